//! Making everything durable: for who asks, and at the end of the session.
//!
//! One flush of the server's file system serves all files: each by itself would take its round
//! trip. What is left then has failed, or is not at the server yet, and is asked about file by
//! file.
//!
//! What is lost is told once, and what is late is told the next time as well. So
//! [`FsError::TimedOut`] always means that something is still under way, and is said of nothing
//! that is lost.

use super::Volume;
use crate::cache::{Node, NodeId};
use crate::clock::now;
use crate::file::{File, lost};
use base::{FsError, Principal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinSet;

/// Files that a sync makes durable by themselves at once.
const COMMITS_TOGETHER_MAX: usize = 64;

/// What a sync was to tell somebody who was not there any more.
#[derive(Debug, Default)]
pub(super) struct Unheard(Mutex<Option<FsError>>);

impl Unheard {
    fn lock(&self) -> MutexGuard<'_, Option<FsError>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_some(&self) -> bool {
        self.lock().is_some()
    }

    fn keep(&self, error: FsError) {
        self.lock().get_or_insert(error);
    }

    fn take(&self) -> Result<(), FsError> {
        self.lock().take().map_or(Ok(()), Err)
    }
}

impl Volume {
    /// Waits until everything written is durable, or says what was lost.
    ///
    /// # Errors
    /// The first loss, which is told once; else [`FsError::TimedOut`] if something is still under
    /// way, and will be told the next time.
    pub async fn sync(&self, who: &Principal) -> Result<(), FsError> {
        let synced = self.sync_now(who).await;
        // Only now, and no wait comes after it: until they are told, they are known to be untold.
        let refused = self.refusals().take_all();
        let refused = worse(refused, self.unheard.take());
        match worse(refused, synced) {
            Err(FsError::Stale) => Err(lost(FsError::Stale)),
            told => told,
        }
    }

    /// What [`Self::sync`] has said has come to nobody: it is said once more.
    pub fn on_unheard(&self, error: FsError) {
        if error != FsError::TimedOut {
            self.unheard.keep(error);
        }
    }

    async fn sync_now(&self, who: &Principal) -> Result<(), FsError> {
        // What was made ahead and refused keeps nothing else from being made durable.
        let settled = self.settle_everywhere().await;
        let stored = match settled {
            Err(FsError::TimedOut) => settled,
            _ => self.store_all().await,
        };
        // A server does not answer: nothing else will be answered.
        if stored.is_err() && !self.transport.is_heard() {
            return worse(worse(settled, self.tell_what_is_over()), stored);
        }
        let flushed = match stored {
            // It is one of the stores, and would keep the flush of all of them waiting.
            Err(_) if self.stripes.is_some() => stored,
            _ => self.flush_stored(who).await,
        };
        if flushed == Err(FsError::TimedOut) && !self.transport.is_heard() {
            return worse(worse(settled, self.tell_what_is_over()), flushed);
        }
        let committed = self.commit_together(who).await;
        worse(worse(settled, committed), flushed)
    }

    /// Waits until all that is written now is at the server, or lost; no longer than for the first
    /// file that nothing more comes of.
    ///
    /// # Errors
    /// [`FsError::TimedOut`]; what is lost stays with its file.
    async fn store_all(&self) -> Result<(), FsError> {
        let files = self.files_that_last();
        for (node, file) in &files {
            file.lock().written.seal();
            self.send_written(*node, file);
        }
        for (node, file) in &files {
            if file.lock().written.is_stored() {
                continue;
            }
            if self.drain(*node, file).await == Err(FsError::TimedOut) {
                return Err(FsError::TimedOut);
            }
        }
        Ok(())
    }

    /// Makes the files durable that are not, side by side, until too many of them have kept it
    /// waiting; and tells what was lost of others.
    async fn commit_together(&self, who: &Principal) -> Result<(), FsError> {
        let files = self.files_that_last().into_iter();
        let mut files = files.filter(|(_, file)| file.lock().written.is_due());
        let (mut outcome, mut late) = (Ok(()), 0);
        let mut committing = JoinSet::new();
        loop {
            while late < COMMITS_TOGETHER_MAX
                && committing.len() < COMMITS_TOGETHER_MAX
                && let Some((node, file)) = files.next()
            {
                let (this, who) = (self.arc(), who.clone());
                committing.spawn(async move { this.commit_in_time(&who, node, &file).await });
            }
            let Some(committed) = committing.join_next().await else {
                // Those that were not tried are not durable.
                let left = files.next().map_or(Ok(()), |_| Err(FsError::TimedOut));
                return worse(outcome, left);
            };
            let (committed, was_late) = committed.unwrap_or((Err(FsError::Io), false));
            outcome = worse(outcome, committed);
            late += usize::from(was_late);
        }
    }

    /// Makes a file durable. Whether it could not be done in its time is told besides: what is said
    /// then may be about something else that was lost.
    async fn commit_in_time(
        &self,
        who: &Principal,
        node: NodeId,
        file: &Arc<File>,
    ) -> (Result<(), FsError>, bool) {
        let begun = now();
        let is_over = file.lock().written.is_empty();
        let committed = match is_over {
            // Nothing is left but to tell what was lost.
            true => Ok(()),
            false => self.make_durable(who, node, file, None, false).await,
        };
        let is_late = committed == Err(FsError::TimedOut)
            || committed.is_err() && now().since(begun) >= self.transport.stated_time();
        // What becomes of the data of a file that is gone by now concerns nobody.
        if !self.nodes().get(node).is_none_or(Node::lasts) {
            return (Ok(()), false);
        }
        let told = file.lock().written.errors.take(None);
        (worse(told, committed), is_late)
    }

    /// What was lost of files of which nothing else is left: no server is asked for that.
    fn tell_what_is_over(&self) -> Result<(), FsError> {
        let mut outcome = Ok(());
        for (_, file) in self.files_that_last() {
            let written = &mut file.lock().written;
            if written.is_empty() {
                outcome = worse(outcome, written.errors.take(None));
            }
        }
        outcome
    }
}

/// What is said of two things at once: what is lost is told once, and what is late the next time.
pub(super) const fn worse(
    first: Result<(), FsError>,
    second: Result<(), FsError>,
) -> Result<(), FsError> {
    match (first, second) {
        (Ok(()), _) => second,
        (Err(FsError::TimedOut), Err(_)) => second,
        (Err(_), _) => first,
    }
}
