//! Commits that are sent right behind the writes that they cover.
//!
//! A commit that is sent when the last write has been answered comes a round trip after it. So it
//! is sent as soon as all that it is to cover is on its way: it names the requests that must run
//! before it, and the server puts it aside until they have. It goes in their class, behind them in
//! the same queue, so that it does not wait there for long.
//!
//! The answers come in any order. What a commit has covered is known when the writes that it names
//! are answered, too: one may have failed, or been stored in part, or by a server that has lost it
//! since. What is left is committed once more.
//!
//! Where the server does not know this, or has no room, or the writes do not come in time, the
//! commit follows the answers as it would without this. So it does in parallel volumes, where each
//! store is committed by itself.

use super::Volume;
use crate::cache::NodeId;
use crate::file::{Behind, Covered, File};
use crate::transport::{Call, CallError, FileResponse};
use base::limits::AFTER_REQUESTS_MAX;
use base::{FsError, OpenId, Principal};
use std::sync::{Arc, OnceLock};
use wire::message::{FileRef, Step};

/// Who flushes, through which open, and whether contents only.
pub(super) type Flush<'f> = (&'f Principal, Option<OpenId>, bool);

/// What became of a commit: what it was, or `None` if there was none.
type Outcome = Option<Result<(), FsError>>;

impl Volume {
    /// One commit behind these pieces of a file, which are under way. `false` if there are none, or
    /// it was not carried out: then it has to follow them.
    ///
    /// # Errors
    /// That of the pieces or of the server's flush; [`FsError::TimedOut`] if nothing moves.
    pub(super) async fn commit_behind(
        &self,
        node: NodeId,
        file: &Arc<File>,
        flush: Flush<'_>,
        wanted: &[u64],
    ) -> Result<bool, FsError> {
        if self.stripes.is_some() || !self.transport.lets_wait() {
            return Ok(false);
        }
        let (who, open, data_only) = flush;
        let target = self.target(node).await?;
        let errors = file.lock().written.errors.count();
        self.send_written(node, file);
        // One may have to wait for another one that it overlaps.
        let under_way = self.while_moving(file, wanted, |written| {
            written.behind(wanted, AFTER_REQUESTS_MAX)
        });
        let Behind { requests, covered } = under_way.await?;
        if requests.is_empty() {
            return Ok(false);
        }
        let file_ref = FileRef {
            target,
            open: self.open_told(open),
        };
        let commit = Step::Commit {
            file: file_ref,
            data_only,
        };
        let steps = vec![Step::After { requests }, commit];
        let pending = self.transport.submit_steps(who, steps, Call::behind());
        let outcome = Arc::new(OnceLock::<Outcome>::new());
        let (this, heard, told) = (self.arc(), Arc::clone(file), Arc::clone(&outcome));
        // The answers are heard even if nobody waits for the flush any more.
        tokio::spawn(async move {
            let answer = pending.files().await;
            let outcome = this.committed_behind(node, &heard, &covered, answer).await;
            let _ = told.set(outcome);
            heard.progress.notify_waiters();
        });
        let outcome = self.while_moving(file, wanted, |_| outcome.get().copied());
        match outcome.await? {
            None => Ok(false),
            Some(committed) => {
                file.lock().written.errors.since(errors)?;
                committed.map(|()| true)
            }
        }
    }

    /// The server has answered, or will not.
    async fn committed_behind(
        &self,
        node: NodeId,
        file: &Arc<File>,
        covered: &Covered,
        answer: Result<FileResponse, CallError>,
    ) -> Outcome {
        let mut response = answer.ok()?;
        // The first result is that of the wait. If it has failed there is no other one.
        let committed = (response.results.len() > 1).then(|| response.results.swap_remove(1))?;
        self.until_heard(file, covered).await;
        let (verifier, recalls_seen) = (response.verifier, response.recalls_seen);
        Some(self.committed(node, file, covered, verifier, recalls_seen, committed))
    }

    /// Waits until all is answered that a commit was sent behind. That is at the latest when the
    /// session ends.
    async fn until_heard(&self, file: &Arc<File>, covered: &Covered) {
        loop {
            let progress = file.progress.notified();
            tokio::pin!(progress);
            // Registered before the look, so that no wake-up is lost between the two.
            progress.as_mut().enable();
            if file.lock().written.is_heard(covered) {
                return;
            }
            progress.await;
        }
    }
}
