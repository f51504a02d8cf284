//! Writing: answered when the data is here, stored in the background, durable by commit
//! (`commit`).
//!
//! What a caller is promised: after a write, that reads here see it; after a close, that the server
//! has it and everybody's next open sees it; after a commit, that it survives the server's machine.
//! Until the commit the data stays here and is sent again if the server's machine may have lost it.

use super::Volume;
use super::attributes::wall_clock;
use super::freeing::Moment;
use super::opens::Used;
use crate::cache::{Node, NodeId, count_written};
use crate::clock::now;
use crate::file::{Cut, File, MemoryShare, Piece, Write, Written};
use crate::transport::{Call, CallError, FileResponse, TimeLimit};
use base::{Attributes, Extent, FsError, Handle, OpenId, Principal};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::timeout;
use wire::message::{Access, FileRef, Step, StepReply, Target};

/// How long small writes are gathered before they are sent; twice that in the worst case.
pub(super) const GATHER_TIME: Duration = Duration::from_millis(2);
/// The same for a file on stores, where a writer that lost the processor for a moment is worth
/// waiting for.
const GATHER_TIME_STRIPED: Duration = Duration::from_millis(20);
/// Stored bytes of one file that are committed without being asked, so that memory comes back while
/// the writer goes on.
const COMMIT_BYTES: u64 = 32 << 20;

/// The open by which a piece goes, until that is answered.
pub(super) struct Through {
    used: Used,
    /// Which, and who wrote.
    by: Option<(Principal, OpenId)>,
}

impl Volume {
    /// Takes written data. Returns as soon as it is safe in memory; waits only for memory.
    ///
    /// # Errors
    /// That of an earlier write of the file, once for every open; [`FsError::NotPermitted`] if it
    /// is not for the end, and the open is for appending alone.
    pub async fn write(&self, node: NodeId, write: Write) -> Result<(), FsError> {
        self.write_in(node, write, TimeLimit::Short).await
    }

    /// Takes pages of a shared mapping that the kernel writes back, as [`Self::write`]. It forgets
    /// those about which it is told an error, so memory is waited for also while the server is
    /// silent.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn write_back(&self, node: NodeId, write: Write) -> Result<(), FsError> {
        self.write_in(node, write, TimeLimit::Stated).await
    }

    async fn write_in(
        &self,
        node: NodeId,
        mut write: Write,
        time_limit: TimeLimit,
    ) -> Result<(), FsError> {
        let file = self.file(node)?;
        if self.is_elsewhere(&write) {
            return Err(FsError::NotPermitted);
        }
        file.lock().written.errors.take_for_write(write.open)?;
        if self.is_opened_by_another(&write.who, write.open) {
            // Who may write is judged when a file is opened, and the server knows of no such open.
            self.keep_open(node).await?;
        }
        let permit = self
            .write_permit(&file, node, write.data.len() as u64, time_limit)
            .await?;
        write.permits.push(permit);
        self.accept(node, &file, write);
        Ok(())
    }

    /// Takes written data if no waiting is needed; gives it back otherwise.
    ///
    /// # Errors
    /// What was to be written, untouched.
    pub fn try_write(&self, node: NodeId, mut write: Write) -> Result<(), Write> {
        let Ok(file) = self.file(node) else {
            return Err(write);
        };
        if self.is_elsewhere(&write) || self.is_opened_by_another(&write.who, write.open) {
            return Err(write);
        }
        let units = self.units(write.data.len() as u64);
        let Ok(permit) = Arc::clone(&self.write_memory).try_acquire_many_owned(units) else {
            return Err(write);
        };
        if file.lock().written.errors.waits_for_write(write.open) {
            return Err(write);
        }
        write.permits.push(Arc::new(permit));
        self.accept(node, &file, write);
        Ok(())
    }

    /// Whether somebody is to write elsewhere than at the end who may only append.
    fn is_elsewhere(&self, write: &Write) -> bool {
        !write.append && self.is_rich() && self.only_appends(write.open)
    }

    /// Whether others have enough memory for what they write beside what is kept for a server that
    /// is away.
    pub(super) fn has_memory_to_keep(&self) -> bool {
        self.write_memory.available_permits() as u64 >= self.write_memory_units / 2
    }

    fn units(&self, bytes: u64) -> u32 {
        let units = bytes
            .div_ceil(super::WRITE_MEMORY_UNIT)
            .min(self.write_memory_units);
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    /// Waits for memory, committing what holds it.
    async fn write_permit(
        &self,
        file: &Arc<File>,
        node: NodeId,
        bytes: u64,
        time_limit: TimeLimit,
    ) -> Result<MemoryShare, FsError> {
        let units = self.units(bytes);
        let wanted = Arc::clone(&self.write_memory);
        if let Ok(permit) = wanted.try_acquire_many_owned(units) {
            return Ok(Arc::new(permit));
        }
        self.relieve(file, node);
        let wanted = Arc::clone(&self.write_memory).acquire_many_owned(units);
        let permit = match time_limit {
            TimeLimit::Short => self.transport.in_time(now(), wanted).await,
            TimeLimit::Stated => timeout(self.transport.stated_time(), wanted).await.ok(),
            TimeLimit::Endless => Some(wanted.await),
        };
        let permit = permit.ok_or(FsError::TimedOut)?;
        permit.map(Arc::new).map_err(|_| FsError::Io)
    }

    /// Memory is short: send what is gathered anywhere and commit what is stored.
    fn relieve(&self, file: &Arc<File>, node: NodeId) {
        self.commit_in_background(node, file);
        for (node, file) in self.files_by_node() {
            if !file.lock().written.is_empty() {
                self.commit_in_background(node, &file);
            }
        }
    }

    /// Where pieces of a write end. In a file on stores they are cut anew, where stripe units are
    /// and as the lines to them are; a part of a unit would cost a store a write more, for it is
    /// written twice.
    fn cut(&self) -> Cut {
        match &self.stripes {
            Some(_) => Cut::Aligned,
            None => Cut::Parts(self.transport.write_part_bytes()),
        }
    }

    const fn gather_time(&self) -> Duration {
        match &self.stripes {
            Some(_) => GATHER_TIME_STRIPED,
            None => GATHER_TIME,
        }
    }

    fn accept(&self, node: NodeId, file: &Arc<File>, write: Write) {
        let extent = Extent::new(write.offset, write.data.len() as u64);
        self.counters
            .written_bytes
            .fetch_add(extent.len, Ordering::Relaxed);
        if extent.len > 0 && self.is_ahead(node) {
            self.count_write_ahead(node, &write.who);
        }
        let cut = self.cut();
        let gathers = {
            let mut nodes = self.nodes();
            if let Some(known) = nodes.get_mut(node) {
                let time = wall_clock();
                count_written(&mut known.attributes, extent);
                known.attributes.modified = time;
                let is_true = known.kernel_data == Some(known.attributes.changed);
                known.attributes.changed = known.attributes.changed.max(time);
                // What the kernel has of other parts does not get truer by this.
                known.kernel_data = is_true.then_some(known.attributes.changed);
            }
            // Under the lock of the nodes: size and data are always seen together.
            let mut state = file.lock();
            let freed = state.overwrite(extent);
            self.budget().on_freed(file.account, freed);
            state.written.push(write, cut)
        };
        if self.is_ahead(node) {
            self.grown_ahead(node, file);
            return;
        }
        if gathers {
            self.send_gathered_later(node, file);
        }
        self.send_written(node, file);
    }

    /// Sees to it that what is gathered is sent in a moment.
    pub(super) fn send_gathered_later(&self, node: NodeId, file: &Arc<File>) {
        let set = std::mem::replace(&mut file.lock().written.timer_set, true);
        if !set {
            let (this, file) = (self.arc(), Arc::clone(file));
            tokio::spawn(async move {
                loop {
                    let pieces_made = file.lock().written.pieces_made();
                    tokio::time::sleep(this.gather_time()).await;
                    let mut state = file.lock();
                    if state.written.seal_older(pieces_made) {
                        state.written.timer_set = false;
                        break;
                    }
                }
                this.send_written(node, &file);
            });
        }
    }

    /// Sends every piece that may go now.
    pub(super) fn send_written(&self, node: NodeId, file: &Arc<File>) {
        let (handle, gone) = {
            let nodes = self.nodes();
            let known = nodes.get(node);
            let gone = known.is_none_or(|known| known.attributes.links == 0);
            (known.and_then(|known| known.handle.clone()), gone)
        };
        let Some(handle) = handle else {
            // Created ahead. It goes with the creation, or never if the server has refused that.
            if gone {
                file.lock().written.on_refused();
                file.progress.notify_waiters();
            }
            return;
        };
        loop {
            let (id, pending, moment, through) = {
                let mut state = file.lock();
                let Some((id, piece)) = state.written.poll_send() else {
                    break;
                };
                let moment = self.freeing.moment();
                let through = self.through(piece);
                let (step, call) = self.write_step(&handle, piece);
                // Under the lock: whoever sees it under way sees by which request.
                let pending = self.submit_contents(node, &piece.who, vec![step], call);
                state.written.on_requested(id, pending.id());
                (id, pending, moment, through)
            };
            let (this, file) = (self.arc(), Arc::clone(file));
            tokio::spawn(async move {
                let outcome = pending.files().await.map_err(CallError::to_fs_error);
                this.went_through(through, &outcome);
                this.stored(node, &file, (id, moment), outcome);
            });
        }
    }

    /// The request for a piece.
    pub(super) fn write_step(&self, handle: &Handle, piece: &Piece) -> (Step, Call) {
        let at = piece.at();
        let data = piece.part_data();
        let file = FileRef {
            target: Target::Handle(handle.clone()),
            // It may be closed by now: what was written has its rights all the same.
            open: self.open_used(piece.open).or(piece.open),
        };
        let bytes = data.len() as u32;
        (Step::Write { file, at, bytes }, Call::write(data))
    }

    /// The open through which a piece is about to be sent.
    pub(super) fn through(&self, piece: &Piece) -> Through {
        Through {
            used: self.used(piece.open),
            by: piece.open.map(|open| (piece.who.clone(), open)),
        }
    }

    /// The server has answered a request that begins with this piece, or nobody has.
    pub(super) fn went_through(&self, through: Through, outcome: &Result<FileResponse, FsError>) {
        let stored = outcome.as_ref().ok().and_then(|done| done.results.first());
        if matches!(stored, Some(Ok(_))) {
            self.on_used(through.used, Access::Write);
        }
        // It may be closed by now, and have been made anew even if the data was refused.
        if let Some((who, open)) = through.by
            && !self.opens.has(open)
            && !self.transport.is_closed()
        {
            self.close_at_server(&who, open);
        }
    }

    /// A piece that was sent at this moment has been answered. Whether it found no room and is to
    /// be sent once more.
    pub(super) fn stored(
        &self,
        node: NodeId,
        file: &Arc<File>,
        (id, moment): (u64, Moment),
        outcome: Result<FileResponse, FsError>,
    ) -> bool {
        let outcome = outcome.and_then(|response| {
            match response.results.into_iter().next().ok_or(FsError::Io)? {
                Ok(StepReply::Written { bytes: 0, .. }) => Err(FsError::Io),
                Ok(StepReply::Written {
                    offset,
                    bytes,
                    attributes,
                }) => Ok((
                    offset,
                    bytes,
                    attributes,
                    response.recalls_seen,
                    response.verifier,
                )),
                Ok(_) => Err(FsError::Io),
                Err(error) => Err(error),
            }
        });
        let (mut commit, mut again) = (false, false);
        match outcome {
            Ok((offset, bytes, attributes, recalls_seen, verifier)) => {
                let (settled, moved) = {
                    let mut state = file.lock();
                    let moved = state.written.is_moved(id, offset);
                    state.written.on_attributes(attributes, recalls_seen);
                    (state.written.take_settled(id, bytes), moved)
                };
                // Before the piece counts as stored: who waits for that then sees this.
                self.take_told(node, file, (id, bytes), settled, moved);
                let mut state = file.lock();
                state.written.on_stored(id, offset, bytes, verifier);
                self.look_at_runs(&mut state.written);
                self.commit_all_soon();
                let stored = state.written.stored_bytes();
                commit = stored >= COMMIT_BYTES && !state.written.committing;
            }
            Err(error) => again = self.not_stored(node, file, (id, moment), error),
        }
        if file.lock().written.take_failure() {
            // Before anybody is told: who looks then sees what is there.
            self.doubt_contents(node);
        }
        file.progress.notify_waiters();
        self.send_written(node, file);
        if commit {
            self.commit_in_background(node, file);
        }
        again
    }

    /// A server that runs anew may get what was written through a descriptor that somebody else has
    /// opened before it has the open again. Whether that may be so, and the piece is to be sent
    /// once more when it has.
    fn opens_once_more(&self, node: NodeId, file: &Arc<File>, id: u64) -> bool {
        let mut state = file.lock();
        let Some((who, open)) = state.written.whose(id) else {
            return false;
        };
        let entry = self.opens.get(open).filter(|entry| entry.who != who);
        let (Some(open), Some(_)) = (open, entry) else {
            return false;
        };
        if !state.written.on_no_room(id) {
            return false;
        }
        drop(state);
        let (this, file) = (self.arc(), Arc::clone(file));
        tokio::spawn(async move {
            // Whatever is noted of the open: that it was refused says that the server lacks it.
            this.establish(node, open).await;
            file.lock().written.try_again(id);
            this.send_written(node, &file);
        });
        true
    }

    /// A piece could not be stored: it is lost, unless there was no room for it and there may soon
    /// be some. Whether that is so.
    fn not_stored(
        &self,
        node: NodeId,
        file: &Arc<File>,
        (id, moment): (u64, Moment),
        error: FsError,
    ) -> bool {
        if error == FsError::AccessDenied && self.opens_once_more(node, file, id) {
            return true;
        }
        let put_off = match error {
            FsError::WouldBlock | FsError::NoMemory => file.lock().written.on_put_off(id),
            _ => None,
        };
        if let Some(pause) = put_off {
            let (this, file) = (self.arc(), Arc::clone(file));
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                file.lock().written.try_again(id);
                this.send_written(node, &file);
            });
            return true;
        }
        if self.may_find_room(error, moment) && file.lock().written.on_no_room(id) {
            let (this, file) = (self.arc(), Arc::clone(file));
            tokio::spawn(async move {
                this.until_freed().await;
                file.lock().written.try_again(id);
                this.send_written(node, &file);
            });
            return true;
        }
        let known = {
            let mut state = file.lock();
            let known = state.written.errors.is_unseen();
            state.written.on_failed(id, error);
            known
        };
        // Once for a file, not for each piece that was under way. Who closes the session gives up
        // what is on its way, and knows.
        if !known && !self.transport.is_closed() {
            let inode = self.nodes().get(node).map(|known| known.attributes.inode);
            tracing::warn!(%error, inode, "written data of a file could not be stored");
        }
        false
    }

    /// Some of what was written to a file is lost, and nothing of it is on its way any more; or
    /// nobody has said how much of it was changed.
    pub(super) fn doubt_contents(&self, node: NodeId) {
        self.nodes().doubt_contents(node);
        self.distrust_data(node);
        self.tell_data(node);
        self.tell_written(node);
    }

    /// Takes over what is told with an answer to a piece, of which the server has so many bytes
    /// more: the state of the file after all of its writes, if that is known by it, else its size;
    /// `moved` if the piece landed elsewhere than expected.
    fn take_told(
        &self,
        node: NodeId,
        file: &File,
        (id, bytes): (u64, u64),
        settled: Option<(Attributes, u64)>,
        moved: bool,
    ) {
        if let Some((attributes, recalls_seen)) = &settled {
            self.take_settled(node, attributes, *recalls_seen);
        }
        let resized = {
            let mut nodes = self.nodes();
            let told = file.lock().written.told();
            nodes.settle_size(node, told, || file.lock().written.end_after(id, bytes))
        };
        if moved {
            // The kernel cached the bytes where they did not land.
            if let Some(known) = self.nodes().get_mut(node) {
                known.kernel_data = None;
            }
            self.tell_data(node);
        }
        if moved || resized || settled.is_some() {
            self.tell_written(node);
        }
    }

    /// Takes over the state of a file after its writes.
    fn take_settled(&self, node: NodeId, attributes: &Attributes, recalls_seen: u64) {
        let is_true = self.nodes().get(node).is_some_and(|known| {
            // Without a lease somebody else may have written, too.
            known.is_leased() && known.kernel_data == Some(known.attributes.changed)
        });
        self.note_attributes(node, attributes, recalls_seen);
        if !self.nodes().is_recalled_since(node, recalls_seen) {
            // Writing has taken them away. Without this the next write would wait for the
            // server to say so.
            self.note_capabilities(node, None);
        }
        if let Some(known) = self.nodes().get_mut(node) {
            known.kernel_data = is_true.then_some(known.attributes.changed);
        }
    }

    /// Waits until everything written to a file is at the server.
    ///
    /// # Errors
    /// What goes wrong meanwhile; what went wrong before is for those to hear who wrote.
    pub(super) async fn drain(&self, node: NodeId, file: &Arc<File>) -> Result<(), FsError> {
        if self.is_ahead(node) {
            self.settle(node).await?;
        }
        self.until_stored(node, file).await
    }

    /// Waits until everything written to a file is at the server, or lost.
    pub(super) async fn until_stored(&self, node: NodeId, file: &Arc<File>) -> Result<(), FsError> {
        // What is written from now on is not waited for: another program may go on for ever.
        let (errors, wanted) = {
            let mut state = file.lock();
            state.written.seal();
            (state.written.errors.count(), state.written.unstored())
        };
        self.send_written(node, file);
        // Not at the first error: what fails after the answer would be told once more.
        let is_over = |written: &Written| written.unstored_of(&wanted) == 0;
        let over = self.while_moving(file, &wanted, |written| {
            is_over(written).then(|| written.errors.since(errors))
        });
        over.await?
    }

    /// Waits until `look` finds what it looks for, as long as these pieces go on arriving.
    ///
    /// # Errors
    /// [`FsError::TimedOut`] if nothing moves for too long: a slow line may take long for all.
    pub(super) async fn while_moving<T>(
        &self,
        file: &Arc<File>,
        wanted: &[u64],
        mut look: impl FnMut(&Written) -> Option<T>,
    ) -> Result<T, FsError> {
        let (mut since, mut seen) = (now(), (0, 0));
        loop {
            let progress = file.progress.notified();
            tokio::pin!(progress);
            // Registered before the look, so that no wake-up is lost between the two.
            progress.as_mut().enable();
            {
                let written = &file.lock().written;
                if let Some(found) = look(written) {
                    return Ok(found);
                }
                let present = (written.unstored_of(wanted), written.arrivals());
                if present != seen {
                    (since, seen) = (now(), present);
                }
            }
            let moved = self.in_time_of(file, since, progress).await;
            moved.ok_or(FsError::TimedOut)?;
        }
    }

    /// Waits until nothing of `extent` is only here, so that the server can be asked for it. Beyond
    /// the server's end of the file there is a hole as soon as what follows it has been stored.
    pub(super) async fn store_overlapping(
        &self,
        node: NodeId,
        file: &Arc<File>,
        extent: Extent,
    ) -> Result<(), FsError> {
        let reaches_beyond =
            |known: &Node| extent.end().min(known.attributes.size) > known.told_size();
        let reaches_beyond = self.nodes().get(node).is_some_and(reaches_beyond);
        let is_here = {
            let written = &file.lock().written;
            let beyond = reaches_beyond && !written.is_stored();
            beyond || written.is_unstored_in(extent)
        };
        if !is_here {
            return Ok(());
        }
        self.drain(node, file).await
    }
}
