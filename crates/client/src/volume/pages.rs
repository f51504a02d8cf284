//! The kernel's pages of open files that no lease covers: seeing to it that they do not stay old.
//!
//! Opening a file and locking it compare what the kernel has with what the file is. Who only reads
//! on through an open of before does neither. For him a read that has no lease asks for one, in the
//! same request; and where the server gives none, because another machine has the file open for
//! writing, or because leases have just been lost, the file is looked at every
//! [`UNLEASED_LOOK_INTERVAL`] as long as the kernel may have pages of it.

use super::Volume;
use crate::cache::{Node, NodeId, NodeTable};
use base::FsError;
use base::limits::{UNLEASED_LOOK_INTERVAL, UNLEASED_LOOKS_MAX, UNLEASED_LOOKS_UNDER_WAY_MAX};
use std::sync::Weak;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinSet;
use wire::message::{Step, StepReply, Target};

/// Looks after the pages of a volume's files, as long as there is the volume.
pub(super) async fn look_after(volume: Weak<Volume>, mut woken: Receiver<()>) {
    let mut next_look = None;
    let mut earliest = tokio::time::Instant::now();
    loop {
        let is_due = match next_look {
            Some(at) => match tokio::time::timeout_at(at, woken.recv()).await {
                Ok(Some(())) => false,
                Ok(None) => return,
                Err(_) => true,
            },
            None => match woken.recv().await {
                Some(()) => false,
                None => return,
            },
        };
        let Some(volume) = volume.upgrade() else {
            return;
        };
        volume.drop_old_pages().await;
        if !is_due {
            next_look = next_look.or(Some(earliest));
            continue;
        }
        let is_watching = volume.look_at_watched().await;
        earliest = tokio::time::Instant::now() + UNLEASED_LOOK_INTERVAL;
        next_look = is_watching.then_some(earliest);
    }
}

impl Volume {
    async fn drop_old_pages(&self) {
        let old = self.nodes().take_old_pages();
        let mut dropping = JoinSet::new();
        for node in old {
            if dropping.len() >= UNLEASED_LOOKS_UNDER_WAY_MAX {
                dropping.join_next().await;
            }
            let this = self.arc();
            dropping.spawn(async move { this.renew_pages(node).await });
        }
        while dropping.join_next().await.is_some() {}
    }

    async fn renew_pages(&self, node: NodeId) {
        let Some((changed, epoch, is_leased, file)) = self.nodes().get(node).map(|known| {
            let (changed, file) = (known.attributes.changed, known.file.clone());
            (changed, known.epoch, known.is_leased(), file)
        }) else {
            return;
        };
        if let Some(file) = file {
            // What is on its way without a lease is young enough, and who reads a file while it
            // grows shall not wait for the line each time.
            let mut state = file.lock();
            let freed = match is_leased {
                true => state.distrust(),
                false => state.drop_held(),
            };
            drop(state);
            self.budget().on_freed(file.account, freed);
        }
        match self.drop_pages(node).await {
            Ok(()) => self.nodes().renew_pages(node, changed, epoch),
            // Somebody who reads them waits for the server.
            Err(_) => self.nodes().doubt_pages(node),
        }
    }

    /// Drops all that the kernel has of a file.
    ///
    /// # Errors
    /// `TimedOut` if somebody waits in vain for these very pages.
    pub(super) async fn drop_pages(&self, node: NodeId) -> Result<(), FsError> {
        self.tell_attributes(node);
        if let Some(invalidate) = self.invalidate.get() {
            let dropped = invalidate.data_now(node);
            let dropped = tokio::time::timeout(self.transport.request_time_max(), dropped).await;
            dropped.map_err(|_| FsError::TimedOut)?;
        }
        Ok(())
    }

    /// Asks for the state of open files whose pages no lease covers; whether there are still some.
    async fn look_at_watched(&self) -> bool {
        let watched = self.nodes().watched_pages(UNLEASED_LOOKS_MAX);
        let is_watching = !watched.is_empty() && !self.transport.is_closed();
        let mut looking = JoinSet::new();
        for node in watched {
            if looking.len() >= UNLEASED_LOOKS_UNDER_WAY_MAX {
                looking.join_next().await;
            }
            let this = self.arc();
            looking.spawn(async move { this.look_at(node).await });
        }
        while looking.join_next().await.is_some() {}
        is_watching
    }

    async fn look_at(&self, node: NodeId) {
        match self.attributes(self.transport.own(), node).await {
            Ok(_) => self.nodes().compare_pages(node),
            // The next look will tell.
            Err(FsError::TimedOut) => {}
            // Who may not know has to ask for the contents again.
            Err(_) => self.nodes().doubt_pages(node),
        }
    }

    /// A step to go before a demand of data that is not leased, so that the data is. Not where
    /// readers of a file need not be allowed to see its attributes.
    pub(super) fn asking_for_lease(&self, node: NodeId) -> Option<Step> {
        if self.is_rich() {
            return None;
        }
        let nodes = self.nodes();
        let known = nodes.get(node).filter(|known| !known.is_leased())?;
        let target = Target::Handle(known.handle.clone()?);
        Some(Step::Attributes { target })
    }

    /// Takes over what such a step was answered by a response that has seen so many events: whether
    /// there is a lease now that was not there, and how many events the data behind it has seen.
    pub(super) fn take_lease(
        &self,
        node: NodeId,
        reply: Result<StepReply, FsError>,
        seen: u64,
    ) -> (bool, u64) {
        let Ok(StepReply::Attributes { attributes, lease }) = reply else {
            return (false, seen);
        };
        let state = |nodes: &NodeTable| {
            let known = nodes.get(node);
            known.map_or((false, 0), |known| (known.is_leased(), known.told_at()))
        };
        let mut nodes = self.nodes();
        let (was_leased, was_told_at) = state(&nodes);
        nodes.refresh(node, &attributes, lease, seen);
        let (is_leased, told_at) = state(&nodes);
        // The data is later than these attributes, if they were news.
        let seen = if told_at == was_told_at {
            seen
        } else {
            told_at
        };
        (is_leased && !was_leased, seen)
    }
}
