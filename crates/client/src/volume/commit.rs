//! Making what was written durable: fsync(2), and the commits that nobody asks for.
//!
//! What the server has stored is kept here until a commit under the same write verifier has
//! covered it. A server whose machine runs anew may have lost it, and gets it again
//! ([`Volume::replay`]). Before others may change a file, it is committed
//! ([`Volume::commit_stored`]), so that this never undoes what they do.

use super::freeing::Moment;
use super::{Volume, WRITE_MEMORY_UNIT};
use crate::cache::{Node, NodeId};
use crate::clock::now;
use crate::file::{Covered, File};
use crate::transport::{Call, CallError, FileResponse};
use base::limits::{COMMIT_TRIES_MAX, RECALL_COMMIT_TIME_MAX};
use base::{FsError, OpenId, Principal, WriteVerifier};
use std::sync::Arc;
use std::time::Duration;
use wire::message::{FileRef, Step, StepReply, Target};

/// Longest pause before a commit is tried again because the server runs anew; it begins with 1 ms
/// and doubles.
const COMMIT_PAUSE_MAX: Duration = Duration::from_millis(250);
/// How long data stays here at most before it is made durable, while the server can be reached.
const GROUP_COMMIT_TIME: Duration = Duration::from_secs(5);
/// How often memory is looked at meanwhile.
const GROUP_COMMIT_LOOK_TIME: Duration = Duration::from_millis(250);
/// Files that are committed one by one when others want some of them.
const RECALL_COMMITS_MAX: usize = 8;

/// A piece that has gone together with a commit.
struct Sent {
    id: u64,
    moment: Moment,
    /// What the commit covers, that piece included if it is stored.
    covered: Covered,
}

impl Volume {
    /// Makes everything written to a file durable.
    ///
    /// # Errors
    /// That of its writes or of the server's flush, once for every open.
    pub async fn commit(
        &self,
        who: &Principal,
        node: NodeId,
        open: Option<OpenId>,
        data_only: bool,
    ) -> Result<(), FsError> {
        let file = self.file(node)?;
        let outcome = self.make_durable(who, node, &file, open, data_only).await;
        let told = file.lock().written.errors.take(open);
        told.and(outcome)
    }

    pub(super) async fn make_durable(
        &self,
        who: &Principal,
        node: NodeId,
        file: &Arc<File>,
        open: Option<OpenId>,
        data_only: bool,
    ) -> Result<(), FsError> {
        // Contents that go with the creation become a piece then.
        if self.is_ahead(node) {
            self.settle(node).await?;
        }
        // A server whose machine runs anew may have lost what was stored, and gets it again: only
        // what a commit has covered is gone from here.
        let wanted = {
            let mut state = file.lock();
            state.written.seal();
            state.written.ids()
        };
        for attempt in 0..COMMIT_TRIES_MAX {
            let together = self.store_and_commit(who, node, file, open, data_only);
            let flush = (who, open, data_only);
            if !together.await? && !self.commit_behind(node, file, flush, &wanted).await? {
                self.drain(node, file).await?;
                self.commit_once(who, node, file, open, data_only).await?;
            }
            if file.lock().written.has_none_of(&wanted) {
                return Ok(());
            }
            // What the server may have lost is about to be sent again.
            let pause = Duration::from_millis(1 << attempt).min(COMMIT_PAUSE_MAX);
            tokio::time::sleep(pause).await;
        }
        // Each time another server has answered than the one that has the data.
        Err(FsError::Io)
    }

    /// One request that stores the only piece that is not at the server and commits everything: a
    /// record and its fsync(2) take one round trip. `false` if there is no such piece, or more than
    /// one, and nothing was sent.
    async fn store_and_commit(
        &self,
        who: &Principal,
        node: NodeId,
        file: &Arc<File>,
        open: Option<OpenId>,
        data_only: bool,
    ) -> Result<bool, FsError> {
        let handle = self
            .nodes()
            .get(node)
            .and_then(|known| known.handle.clone());
        let Some(handle) = handle else {
            return Ok(false);
        };
        let target = Target::Handle(handle.clone());
        let open = self.open_told(open);
        let commit = Step::Commit {
            file: FileRef { target, open },
            data_only,
        };
        let (sent, through, write, call) = {
            let mut state = file.lock();
            state.written.seal();
            if !state.written.has_one_waiting(who) {
                return Ok(false);
            }
            let Some((id, piece)) = state.written.poll_send() else {
                return Ok(false);
            };
            let through = self.through(piece);
            let (write, call) = self.write_step(&handle, piece);
            let covered = state.written.with(id);
            let moment = self.freeing.moment();
            let sent = Sent {
                id,
                moment,
                covered,
            };
            (sent, through, write, call)
        };
        let pending = self.submit_contents(node, who, vec![write, commit], call);
        let (this, told) = (self.arc(), Arc::clone(file));
        // The answer is heard even if nobody waits for the flush any more.
        let heard = tokio::spawn(async move {
            let outcome = pending.files().await.map_err(CallError::to_fs_error);
            this.went_through(through, &outcome);
            this.stored_and_committed(node, &told, sent, outcome)
        });
        let outcome = self.in_time_of(file, now(), heard).await;
        let outcome = outcome.ok_or(FsError::TimedOut)?;
        outcome.map_err(|_| FsError::Io)?.map(|()| true)
    }

    fn stored_and_committed(
        &self,
        node: NodeId,
        file: &Arc<File>,
        sent: Sent,
        outcome: Result<FileResponse, FsError>,
    ) -> Result<(), FsError> {
        let Sent {
            id,
            moment,
            covered,
        } = sent;
        let mut response = match outcome {
            Ok(response) => response,
            Err(error) => {
                // If it is sent again, the commit comes after that.
                return match self.stored(node, file, (id, moment), Err(error)) {
                    true => Ok(()),
                    false => Err(error),
                };
            }
        };
        let committed = (response.results.len() > 1).then(|| response.results.swap_remove(1));
        let refused = response
            .results
            .first()
            .and_then(|stored| stored.as_ref().err().copied());
        let (verifier, recalls_seen) = (response.verifier, response.recalls_seen);
        // What the server did not take at once goes after the commit.
        let again = self.stored(node, file, (id, moment), Ok(response));
        let Some(committed) = committed else {
            // If it is sent again, the commit comes after that.
            return match again {
                true => Ok(()),
                false => Err(refused.unwrap_or(FsError::Io)),
            };
        };
        self.committed(node, file, &covered, verifier, recalls_seen, committed)
    }

    /// One commit of what is stored now.
    async fn commit_once(
        &self,
        who: &Principal,
        node: NodeId,
        file: &Arc<File>,
        open: Option<OpenId>,
        data_only: bool,
    ) -> Result<(), FsError> {
        let asked = self.ask_to_commit(who, node, file, open, data_only);
        let (covered, answer) = asked.await?;
        self.take_commit(node, file, &covered, answer)
    }

    /// As [`Self::commit_once`], for nobody in particular: an error stays with the file for the
    /// next who asks. A file that is not there any more, which somebody has removed, concerns
    /// nobody if the next flush of all shows that the server has lost nothing: a device that fails
    /// can hide files as well.
    async fn commit_unasked(&self, who: &Principal, node: NodeId, file: &Arc<File>) {
        let asked = self.ask_to_commit(who, node, file, None, true).await;
        // Without an answer, the data stays.
        let Ok((covered, answer)) = asked else {
            return;
        };
        if let Some(Err(FsError::Stale)) = answer.results.last() {
            return self.commit_all_soon();
        }
        let _ = self.take_commit(node, file, &covered, answer);
    }

    /// What a commit of what is stored now covers, and its answer.
    async fn ask_to_commit(
        &self,
        who: &Principal,
        node: NodeId,
        file: &Arc<File>,
        open: Option<OpenId>,
        data_only: bool,
    ) -> Result<(Covered, FileResponse), FsError> {
        let target = self.target(node).await?;
        let covered = file.lock().written.stored();
        let file_ref = FileRef {
            target,
            open: self.open_told(open),
        };
        let step = Step::Commit {
            file: file_ref,
            data_only,
        };
        let ask = |since| {
            let call = Call::metadata().since(since);
            let pending = self.submit_contents(node, who, vec![step.clone()], call);
            pending.files()
        };
        // Without an answer of the disk nothing is known of the data: it stays.
        let response = self.patiently(ask).await;
        Ok((covered, response.map_err(CallError::to_fs_error)?))
    }

    fn take_commit(
        &self,
        node: NodeId,
        file: &Arc<File>,
        covered: &Covered,
        mut answer: FileResponse,
    ) -> Result<(), FsError> {
        let (verifier, seen) = (answer.verifier, answer.recalls_seen);
        let committed = answer.results.pop().unwrap_or(Err(FsError::Io));
        self.committed(node, file, covered, verifier, seen, committed)
    }

    /// The server has answered a commit that covers pieces of written data.
    pub(super) fn committed(
        &self,
        node: NodeId,
        file: &Arc<File>,
        covered: &Covered,
        verifier: WriteVerifier,
        recalls_seen: u64,
        outcome: Result<StepReply, FsError>,
    ) -> Result<(), FsError> {
        match outcome {
            Ok(reply) => {
                let has_lost = {
                    let written = &mut file.lock().written;
                    written.on_committed(covered, verifier);
                    self.look_at_runs(written);
                    written.has_lost()
                };
                if has_lost {
                    self.send_written(node, file);
                }
                if let StepReply::Attributes { attributes, lease } = reply {
                    let settled = file.lock().written.is_stored();
                    if settled {
                        self.nodes().refresh(node, &attributes, lease, recalls_seen);
                    }
                }
                Ok(())
            }
            Err(FsError::TimedOut) => Err(FsError::TimedOut),
            Err(error) => {
                // The server's flush failed: what it covered may be lost, and no later success can
                // say otherwise.
                file.lock().written.on_commit_failed(covered, error);
                Err(error)
            }
        }
    }

    /// Commits without anybody waiting; an error stays with the file for the next who asks.
    pub(super) fn commit_in_background(&self, node: NodeId, file: &Arc<File>) {
        let who = {
            let mut state = file.lock();
            if state.written.committing || state.written.is_empty() {
                return;
            }
            // Stores take whole units, and what is gathered for them goes by its own time.
            if self.stripes.is_none() {
                state.written.seal();
            }
            state.written.committing = true;
            state
                .reader
                .as_ref()
                .map_or_else(|| self.transport.own().clone(), |(who, _)| who.clone())
        };
        self.send_written(node, file);
        let (this, file) = (self.arc(), Arc::clone(file));
        tokio::spawn(async move {
            let who = file.lock().written.writer().unwrap_or(who);
            this.commit_unasked(&who, node, &file).await;
            file.lock().written.committing = false;
            file.progress.notify_waiters();
        });
    }

    /// Makes durable what a file has at the server, because others may change it from now on: what
    /// is not durable may have to be sent again, and would undo what they do. Nobody waits for
    /// long; an error stays with the file for the next who asks.
    pub(super) async fn commit_stored(&self, node: NodeId) {
        let file = self.nodes().get(node).and_then(|node| node.file.clone());
        let Some(file) = file else {
            return;
        };
        let who = {
            let written = &file.lock().written;
            if !written.needs_commit() {
                return;
            }
            let writer = written.writer();
            writer.unwrap_or_else(|| self.transport.own().clone())
        };
        // The answer is heard even if it comes late.
        let this = self.arc();
        let committed = async move { this.commit_unasked(&who, node, &file).await };
        await_for_a_while(RECALL_COMMIT_TIME_MAX, committed).await;
    }

    /// As [`Self::commit_stored`], unless others must ask for the lease before they change it.
    async fn commit_if_shared(&self, node: NodeId) {
        if !self.is_leased(node) {
            self.commit_stored(node).await;
        }
    }

    /// Waits until what was written is at the server, and where others may change the file, until
    /// it is durable. For a server that has not taken the first nobody waits a second time.
    pub(super) async fn drained_for_others(
        &self,
        node: NodeId,
        file: &Arc<File>,
    ) -> Result<(), FsError> {
        let drained = self.drain(node, file).await;
        if drained != Err(FsError::TimedOut) {
            self.commit_if_shared(node).await;
        }
        drained
    }

    pub(super) fn is_leased(&self, node: NodeId) -> bool {
        self.nodes().get(node).is_some_and(Node::is_leased)
    }

    /// As [`Self::commit_stored`] for files that others want. If there are many more, they follow
    /// by one flush: others may want them next.
    pub(super) async fn commit_for_others(&self, nodes: &[NodeId]) {
        let wanted = |node: &NodeId| {
            let file = self.nodes().get(*node).and_then(|node| node.file.clone());
            file.is_some_and(|file| needs_commit(&file))
        };
        if !nodes.iter().any(wanted) {
            return;
        }
        let (this, nodes) = (self.arc(), nodes.to_vec());
        let committed = async move {
            if nodes.len() > RECALL_COMMITS_MAX {
                return this.commit_all(this.transport.own()).await;
            }
            for node in &nodes {
                this.commit_stored(*node).await;
            }
            let others = this
                .files()
                .iter()
                .filter(|file| needs_commit(file))
                .count();
            if others > RECALL_COMMITS_MAX {
                tokio::spawn(async move { this.commit_all(this.transport.own()).await });
            }
        };
        await_for_a_while(RECALL_COMMIT_TIME_MAX, committed).await;
    }

    /// Makes everything durable that is stored, before others change it; for a while, after which
    /// it goes on.
    pub(super) async fn commit_all_for_others(&self) {
        if self.files().iter().any(needs_commit) {
            let this = self.arc();
            let committed = async move { this.commit_all(this.transport.own()).await };
            await_for_a_while(RECALL_COMMIT_TIME_MAX, committed).await;
        }
    }

    /// The server has said its write verifier: what it may have lost is sent again.
    pub(super) fn replay(&self, verifier: WriteVerifier) {
        for (node, file) in self.files_by_node() {
            let mut state = file.lock();
            let losses = state.written.losses();
            let again = state.written.on_verifier(verifier);
            if state.written.losses() != losses {
                // What is being read may come from a server that has lost it.
                let freed = state.distrust();
                self.budget().on_freed(file.account, freed);
            }
            drop(state);
            if again {
                self.send_written(node, &file);
            }
        }
    }

    /// Waits until a group commit pays: some seconds, or less if it brings much memory back.
    pub(super) async fn until_group_commit(&self) {
        let begun = now();
        while now().since(begun) < GROUP_COMMIT_TIME {
            tokio::time::sleep(GROUP_COMMIT_LOOK_TIME).await;
            let stored = |file: &Arc<File>| file.lock().written.stored_bytes();
            let stored_bytes: u64 = self.files().iter().map(stored).sum();
            if stored_bytes >= self.write_memory_units * WRITE_MEMORY_UNIT / 2 {
                return;
            }
        }
    }

    /// Makes everything durable that is stored now, by one flush of the server's file system.
    pub(super) async fn commit_all(&self, who: &Principal) {
        let is_due = self.files().iter().any(needs_commit);
        let flushed = match is_due {
            true => self.flush_stored(who).await,
            false => Ok(()),
        };
        // Without an answer the data stays here and is tried again with the next commit.
        if !matches!(flushed, Ok(()) | Err(FsError::TimedOut)) {
            self.commit_each().await;
        }
        self.send_lost();
        self.commit_the_rest();
    }

    /// Some file could not be made durable: each by itself, then, to learn which. An error stays
    /// with the file.
    async fn commit_each(&self) {
        for (node, file) in self.files_by_node() {
            let who = {
                let written = &file.lock().written;
                if !written.needs_commit() {
                    continue;
                }
                let writer = written.writer();
                writer.unwrap_or_else(|| self.transport.own().clone())
            };
            let _ = self.commit_once(&who, node, &file, None, true).await;
            file.progress.notify_waiters();
        }
    }

    /// One flush of the server's file system, after which all is durable that is stored now, names
    /// too.
    ///
    /// # Errors
    /// That of the flush. Which files it is about is not known.
    pub(super) async fn flush_stored(&self, who: &Principal) -> Result<(), FsError> {
        let mut files: Vec<(Arc<File>, Covered)> = Vec::new();
        for file in self.files() {
            let state = file.lock();
            if state.written.needs_commit() {
                let covered = state.written.stored();
                drop(state);
                files.push((file, covered));
            }
        }
        let target = self.target(NodeId::ROOT).await?;
        let ask = |since| {
            let target = target.clone();
            let steps = vec![Step::SyncFileSystem { target }];
            let call = Call::metadata().since(since);
            let pending = self.submit_contents(NodeId::ROOT, who, steps, call);
            pending.files()
        };
        let (_, response) = Self::replied(1, self.patiently(ask).await)?;
        for (file, covered) in files {
            let mut state = file.lock();
            state.written.on_committed(&covered, response.verifier);
            self.look_at_runs(&mut state.written);
            drop(state);
            file.progress.notify_waiters();
        }
        self.send_lost();
        Ok(())
    }

    /// Sees to it that what is here and not durable will be, without anybody asking.
    pub(super) fn commit_the_rest(&self) {
        let is_left = |file: &Arc<File>| !file.lock().written.is_empty();
        if !self.transport.is_closed() && self.files().iter().any(is_left) {
            self.commit_all_soon();
        }
    }
}

/// Whether something is stored and not durable.
fn needs_commit(file: &Arc<File>) -> bool {
    file.lock().written.needs_commit()
}

/// Waits until something is done, for a while; it goes on by itself.
async fn await_for_a_while(time_max: Duration, work: impl Future<Output = ()> + Send + 'static) {
    let _ = tokio::time::timeout(time_max, tokio::spawn(work)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn who_waits_no_longer_for_a_commit_does_not_end_it() {
        let (answer, answered) = oneshot::channel::<()>();
        let (heard, hears) = oneshot::channel();
        let commit = async move {
            let _ = answered.await;
            let _ = heard.send(());
        };
        await_for_a_while(Duration::from_millis(1), commit).await;
        answer.send(()).expect("the commit goes on");
        hears.await.expect("and is heard");
    }
}
