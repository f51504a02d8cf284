//! The kernel's pages of open files that no lease covers: seeing to it that they do not stay old.
//!
//! Opening a file and locking it compare what the kernel has with what the file is. Who only reads
//! on through an open of before does neither. For him a read that has no lease asks for one, in the
//! same request; and where the server gives none, because another machine has the file open for
//! writing, or because leases have just been lost, the file is looked at every
//! [`UNLEASED_LOOK_INTERVAL`] as long as the kernel may have pages of it.

use super::Volume;
use crate::cache::{NodeId, NodeTable};
use base::FsError;
use base::limits::{UNLEASED_LOOK_INTERVAL, UNLEASED_LOOKS_MAX, UNLEASED_LOOKS_UNDER_WAY_MAX};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use tokio::sync::mpsc::Receiver;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};
use wire::message::{Step, StepReply, Target};

/// Looks after the pages of a volume's files, as long as there is the volume.
pub(super) async fn look_after(volume: Weak<Volume>, mut woken: Receiver<()>) {
    let mut work = Work::default();
    let mut next_look = None;
    let mut earliest = Instant::now();
    loop {
        let is_due = match next_look {
            Some(at) => match timeout_at(at, woken.recv()).await {
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
        work.drop_old_pages(&volume).await;
        if is_due {
            let is_watching = work.look_at_watched(&volume).await;
            earliest = Instant::now() + UNLEASED_LOOK_INTERVAL;
            next_look = is_watching.then_some(earliest);
        } else {
            next_look = next_look.or(Some(earliest));
        }
    }
}

/// What is under way. One file that has to wait for the server holds no other up.
#[derive(Default)]
struct Work {
    dropping: JoinSet<()>,
    looking: JoinSet<NodeId>,
    looked_at: BTreeSet<NodeId>,
}

impl Work {
    async fn drop_old_pages(&mut self, volume: &Arc<Volume>) {
        while self.dropping.try_join_next().is_some() {}
        let old = volume.nodes().take_old_pages();
        for node in old {
            if self.dropping.len() >= UNLEASED_LOOKS_UNDER_WAY_MAX {
                self.dropping.join_next().await;
            }
            let volume = Arc::clone(volume);
            self.dropping
                .spawn(async move { volume.renew_pages(node).await });
        }
    }

    /// Asks for the state of open files whose pages no lease covers; whether there are still some.
    async fn look_at_watched(&mut self, volume: &Arc<Volume>) -> bool {
        let watched = volume.nodes().watched_pages(UNLEASED_LOOKS_MAX);
        for node in watched {
            while let Some(looked) = self.looking.try_join_next() {
                self.on_looked(looked);
            }
            if self.looking.len() >= UNLEASED_LOOKS_UNDER_WAY_MAX
                && let Some(looked) = self.looking.join_next().await
            {
                self.on_looked(looked);
            }
            if self.looked_at.insert(node) {
                let volume = Arc::clone(volume);
                self.looking.spawn(async move {
                    volume.look_at(node).await;
                    node
                });
            }
        }
        volume.nodes().watches_pages() && !volume.transport.is_closed()
    }

    fn on_looked(&mut self, looked: Result<NodeId, JoinError>) {
        // A panic has been reported; the file it was about is not looked at any more.
        if let Ok(node) = looked {
            self.looked_at.remove(&node);
        }
    }
}

impl Volume {
    async fn renew_pages(&self, node: NodeId) {
        self.until_answered(&[node]).await;
        let Some((changed, epoch)) = self.nodes().get(node).map(|known| {
            // What is read from now on is of this state or a later one.
            (known.attributes.changed, known.epoch)
        }) else {
            return;
        };
        // Nor may what is here already, or on its way, come to the kernel after that.
        self.distrust_data(node);
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
        self.tell_written(node);
        if let Some(invalidate) = self.invalidate.get() {
            let dropped = invalidate.data_now(node);
            let dropped = timeout(self.transport.request_time_max(), dropped).await;
            dropped.map_err(|_| FsError::TimedOut)?;
        }
        Ok(())
    }

    async fn look_at(&self, node: NodeId) {
        // Not as for the kernel, which keeps nothing of it.
        match self.learn_attributes(self.transport.own(), node).await {
            Ok(()) => self.nodes().compare_pages(node),
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
