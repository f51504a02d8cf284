//! Reading: what an application waits for, and what it will probably want.
//!
//! A read asks the server only for bytes that are neither here nor under way, at once and as
//! demand. Then predictions are asked for, as many as the window and the memory allow. A prediction
//! that a reader waits for becomes a demand if it is still queued.

use super::Volume;
use super::opens::Used;
use crate::cache::NodeId;
use crate::clock::now;
use crate::file::{Completion, Fetching, File, FileState};
use crate::transport::{Call, CallError, FileResponse, Pending};
use base::limits::{COMMIT_TRIES_MAX, DATA_BYTES_MAX};
use base::{Extent, FsError, OpenId, Principal};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wire::frame::Class;
use wire::message::{Access, FileRef, Step, StepReply, Target};

/// Data in order; reading it copies nothing.
pub type Pieces = Vec<Bytes>;

/// Tries for one read before it fails: predictions that failed are asked for once more as demand.
const TRIES_MAX: usize = 4;

impl Volume {
    /// Reads, if everything is here.
    #[must_use]
    pub fn read_cached(
        &self,
        node: NodeId,
        open: Option<OpenId>,
        who: &Principal,
        extent: Extent,
    ) -> Option<Pieces> {
        let (file, size) = {
            let mut nodes = self.nodes();
            nodes.watch_pages(node);
            let known = nodes.get(node)?;
            (known.file.clone()?, known.attributes.size)
        };
        let wanted = extent.intersection(Extent::new(0, size));
        let mut state = file.lock();
        if state.written.is_unstored_in(extent) {
            return None;
        }
        let pieces = state.held.get(wanted)?;
        state.on_read(wanted, size);
        state.reader = Some((who.clone(), open));
        self.count_hit(wanted.len, wanted.len);
        self.consume(&file, &mut state, wanted);
        drop(state);
        self.pump(node, &file);
        Some(pieces)
    }

    /// Reads up to `extent.len` bytes; fewer only at the end of the file.
    ///
    /// # Errors
    /// The server's, for this caller.
    pub async fn read(
        &self,
        who: &Principal,
        node: NodeId,
        open: Option<OpenId>,
        extent: Extent,
    ) -> Result<Pieces, FsError> {
        if let Some(pieces) = self.read_cached(node, open, who, extent) {
            return Ok(pieces);
        }
        let file = self.file(node)?;
        let handle = self.handle(node).await?;
        let target = Target::Handle(handle);
        let mut first = true;
        for _ in 0..TRIES_MAX {
            self.store_overlapping(node, &file, extent).await?;
            let known = self.nodes().get(node).map(|known| known.attributes.size);
            let size = known.ok_or(FsError::Stale)?;
            let asking = self.asking_for_lease(node);
            let wanted = extent.intersection(Extent::new(0, size));
            let waits = {
                let mut state = file.lock();
                if state.written.has_lost() && state.written.is_unstored_in(extent) {
                    // Lost since the wait above: it is sent again; what the server has now is old.
                    continue;
                }
                if first {
                    state.on_read(wanted, size);
                    state.reader = Some((who.clone(), open));
                    let missing: u64 = state.missing(wanted).iter().map(|gap| gap.len).sum();
                    self.count_hit(wanted.len, wanted.len - missing);
                }
                if let Some(pieces) = state.held.get(wanted) {
                    self.consume(&file, &mut state, wanted);
                    drop(state);
                    self.pump(node, &file);
                    return Ok(pieces);
                }
                let from = (&target, asking);
                self.demand(node, &file, &mut state, who, open, from, wanted, size)
            };
            first = false;
            self.pump(node, &file);
            let mut outcome = Ok(());
            for (completion, demanded) in waits {
                let arrived = completion.wait().await;
                if demanded {
                    outcome = outcome.and(arrived);
                }
            }
            if outcome == Err(FsError::Io) {
                // More was asked for than is wanted, and not all of it may be bad.
                break;
            }
            outcome?;
        }
        // Or somebody writes as fast as we read: ask for exactly this, past all buffers.
        for _ in 0..COMMIT_TRIES_MAX {
            self.store_overlapping(node, &file, extent).await?;
            let losses = self.losses(node)?;
            let (pieces, response) = self
                .read_through(who, (node, open), target.clone(), extent)
                .await?;
            if !self.has_lost_since(node, losses, &response)? {
                return Ok(pieces);
            }
        }
        Err(FsError::Io)
    }

    /// Asks for what is missing of `wanted`, and with the first of it what is given to be asked
    /// before; all that must be waited for, and whether its failure is the reader's.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one read, all of them in use"
    )]
    fn demand(
        &self,
        node: NodeId,
        file: &Arc<File>,
        state: &mut FileState,
        who: &Principal,
        open: Option<OpenId>,
        (target, mut before): (&Target, Option<Step>),
        wanted: Extent,
        size: u64,
    ) -> Vec<(Completion, bool)> {
        let mut asked = state.streams.with_refused(wanted);
        if state.written.is_unstored_in(asked) {
            // Only what is wanted has been waited for.
            asked = wanted;
        }
        let mut missing = state.missing(asked.intersection(Extent::new(0, size)));
        if let Some(buffer) = self.transport.blocking() {
            // The blocking remote procedure call of the paper: one large request, nothing ahead.
            let start = wanted.offset / buffer * buffer;
            let whole = Extent::new(start, buffer).intersection(Extent::new(0, size));
            missing = state.missing(whole);
        }
        for gap in missing {
            let part_bytes = match self.transport.blocking() {
                Some(_) => gap.len,
                None => self.transport.demand_part_bytes(gap.len),
            };
            let part_bytes = part_bytes.min(u64::from(DATA_BYTES_MAX));
            let mut offset = gap.offset;
            while offset < gap.end() {
                let part = Extent::new(offset, (gap.end() - offset).min(part_bytes));
                state.streams.on_demanded(part);
                let from = (target, before.take());
                self.fetch(node, file, state, who, open, from, part, Class::Demand);
                offset = part.end();
            }
        }
        let mut waits = Vec::new();
        let mut promote = Vec::new();
        for fetching in state.fetching_in(wanted) {
            if !fetching.demanded {
                promote.extend(fetching.request);
            }
            waits.push((fetching.completion.clone(), fetching.demanded));
        }
        for request in promote {
            self.transport.promote(request);
        }
        waits
    }

    /// Asks for one extent and sees to its arrival.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one fetch, all of them in use"
    )]
    fn fetch(
        &self,
        node: NodeId,
        file: &Arc<File>,
        state: &mut FileState,
        who: &Principal,
        open: Option<OpenId>,
        (target, before): (&Target, Option<Step>),
        extent: Extent,
        class: Class,
    ) {
        // A reader waits for its demands, so they are over before the open is closed; a guess may
        // come later and must not open anew.
        let open = if class == Class::Demand {
            self.open_used(open)
        } else {
            self.open_told(open)
        };
        let file_ref = FileRef {
            target: target.clone(),
            open,
        };
        let step = Step::Read {
            file: file_ref,
            offset: extent.offset,
            bytes: extent.len as u32,
        };
        let used = self.used(open.filter(|_| class == Class::Demand));
        let call = Call::read(class, extent.len);
        let steps = before.into_iter().chain([step]).collect();
        let pending = self.submit_contents(node, who, steps, call);
        let completion = Completion::default();
        let fetching = Fetching {
            extent,
            request: pending.id(),
            demanded: class == Class::Demand,
            epoch: state.epoch,
            completion: completion.clone(),
        };
        state.fetching.insert(extent.offset, fetching);
        self.budget().on_taken(file.account, extent.len);
        let (this, file) = (self.arc(), Arc::clone(file));
        tokio::spawn(async move {
            this.arrive(node, &file, (extent, used), pending, completion)
                .await;
        });
    }

    async fn arrive(
        &self,
        node: NodeId,
        file: &Arc<File>,
        (extent, used): (Extent, Used),
        pending: Pending,
        completion: Completion,
    ) {
        let outcome = pending.files().await.map_err(CallError::to_fs_error);
        let seen = outcome.as_ref().map_or(0, |response| response.recalls_seen);
        let mut asked = None;
        let data = outcome.and_then(|mut response| match response.results.pop() {
            Some(Ok(StepReply::Data { bytes, .. })) if bytes as usize <= response.payload.len() => {
                self.on_used(used, Access::Read);
                asked = response.results.pop();
                let mut data = response.payload;
                data.truncate(bytes as usize);
                Ok(data)
            }
            Some(Err(error)) => Err(error),
            _ => Err(FsError::Io),
        });
        let leased = asked.map(|reply| self.take_lease(node, reply, seen));
        let seen = leased.map_or(seen, |(_, seen)| seen);
        let mut state = file.lock();
        let fetching = state.fetching.remove(&extent.offset);
        let valid = fetching.is_some_and(|fetching| fetching.epoch == state.epoch);
        let mut freed = 0;
        match leased {
            // What was read before is not covered by it; this was read after.
            Some((true, _)) => freed += state.distrust(),
            Some((false, _)) => state.lease_refused = true,
            None => {}
        }
        let mut shorter = None;
        let outcome = match data {
            Ok(data) if valid => {
                let arrived = Extent::new(extent.offset, data.len() as u64);
                freed += state.held.insert_all(extent.offset, data.into_pieces());
                state.streams.on_fetched(now(), arrived);
                if arrived.len < extent.len {
                    let rest = Extent::between(arrived.end(), extent.end());
                    state.streams.on_dropped(rest);
                    freed += rest.len;
                    shorter = Some(arrived.end());
                }
                Ok(())
            }
            Ok(_) => {
                state.streams.on_dropped(extent);
                freed += extent.len;
                Ok(())
            }
            Err(error) => {
                state.streams.on_dropped(extent);
                freed += extent.len;
                Err(error)
            }
        };
        self.budget().on_freed(file.account, freed);
        drop(state);
        if let Some(end) = shorter {
            self.truncated_behind(node, file, end, seen);
        }
        completion.set(outcome);
        self.pump(node, file);
    }

    /// The server's file ended at `end` when it was read, without a lease that told us: by a
    /// request that was queued when `seen` events were known.
    fn truncated_behind(&self, node: NodeId, file: &Arc<File>, end: u64, seen: u64) {
        let is_news = {
            let mut nodes = self.nodes();
            // What was written here may have landed after the read, and says so when it has.
            let written = file.lock().written.end();
            written.is_none_or(|written| written <= end) && nodes.shorten(node, end, seen)
        };
        if is_news {
            self.tell_written(node);
        }
    }

    /// Data has been handed to the kernel: it is not needed here any more.
    fn consume(&self, file: &Arc<File>, state: &mut FileState, extent: Extent) {
        state.streams.on_used(now(), extent);
        let mut freed = 0;
        for gone in state.held.remove(extent) {
            state.streams.on_dropped(gone);
            freed += gone.len;
        }
        let mut budget = self.budget();
        budget.on_used(file.account, freed);
        budget.on_freed(file.account, freed);
    }

    /// Asks for what will probably be wanted, as far as window and memory allow, and takes back
    /// what will not.
    pub(super) fn pump(&self, node: NodeId, file: &Arc<File>) {
        if self.transport.blocking().is_some() {
            return;
        }
        let (handle, is_leased) = {
            let nodes = self.nodes();
            let Some(known) = nodes.get(node) else { return };
            (known.handle.clone(), known.is_leased())
        };
        let Some(handle) = handle else { return };
        let striped = self.striped_line(&handle);
        let target = Target::Handle(handle);
        let mut state = file.lock();
        if !is_leased && !state.lease_refused && !self.is_rich() {
            // A reader asks for a lease: what came before it would not be covered.
            return;
        }
        let Some((who, open)) = state.reader.clone() else {
            return;
        };
        self.take_back(file, &mut state);
        loop {
            let (line, room) = match striped {
                Some(line) => (line, line.window_bytes),
                None => {
                    let (line, room, _) = self.transport.download_room();
                    (line, room)
                }
            };
            let room = self
                .striped_room(&line, room)
                .min(self.budget().room_bytes(now(), file.account));
            let Some(fetch) = state.streams.poll_fetch(now(), &line, room) else {
                break;
            };
            if state.written.is_unstored_in(fetch.extent) {
                // What the server would say of it is old. The next reader asks again.
                state.streams.on_dropped(fetch.extent);
                break;
            }
            let class = Class::Prediction;
            self.fetch(
                node,
                file,
                &mut state,
                &who,
                open,
                (&target, None),
                fetch.extent,
                class,
            );
        }
    }

    /// Gives up what no longer pays: cancels what is under way, frees what is here.
    fn take_back(&self, file: &Arc<File>, state: &mut FileState) {
        let mut freed = 0;
        while let Some(extent) = state.streams.poll_cancel(now()) {
            let wasted: u64 = state.held.remove(extent).iter().map(|gone| gone.len).sum();
            freed += wasted;
            self.counters
                .wasted_bytes
                .fetch_add(wasted, Ordering::Relaxed);
            let cancelled: Vec<_> = state
                .fetching_in(extent)
                .filter(|fetching| !fetching.demanded && extent.covers(fetching.extent))
                .filter_map(|fetching| fetching.request)
                .collect();
            // Their tasks see the cancellation and do the accounts.
            for request in cancelled {
                self.transport.cancel(request);
            }
        }
        self.budget().on_freed(file.account, freed);
    }

    /// Nobody has the file open: what was fetched ahead will hardly be used.
    pub(super) fn stop_reading(&self, file: &Arc<File>) {
        let mut state = file.lock();
        state
            .streams
            .advise(readahead::Advice::DontNeed(Extent::new(0, u64::MAX)));
        self.take_back(file, &mut state);
        let whole = Extent::new(0, u64::MAX);
        let mut freed = 0;
        for gone in state.held.remove(whole) {
            state.streams.on_dropped(gone);
            freed += gone.len;
        }
        self.counters
            .wasted_bytes
            .fetch_add(freed, Ordering::Relaxed);
        self.budget().on_freed(file.account, freed);
        state.reader = None;
    }

    /// Says that a small file's contents are on their way, so that readers wait for them.
    pub(super) fn announce_contents(&self, node: NodeId) -> Completion {
        let completion = Completion::default();
        let size = self
            .nodes()
            .get(node)
            .map_or(0, |node| node.attributes.size);
        if let Ok(file) = self.file(node) {
            let mut state = file.lock();
            let extent = Extent::new(0, size);
            if state.fetching.is_empty() && state.held.bytes() == 0 {
                let epoch = state.epoch;
                let announced = Fetching {
                    extent,
                    request: None,
                    demanded: false,
                    epoch,
                    completion: completion.clone(),
                };
                state.fetching.insert(0, announced);
            }
        }
        completion
    }

    /// The contents announced are here, or did not come.
    pub(super) fn contents_arrived(&self, node: NodeId, completion: Completion) {
        if let Ok(file) = self.file(node) {
            let mut state = file.lock();
            if state
                .fetching
                .get(&0)
                .is_some_and(|fetching| fetching.request.is_none())
            {
                state.fetching.remove(&0);
            }
        }
        completion.set(Ok(()));
    }

    /// Reads past all buffers.
    async fn read_through(
        &self,
        who: &Principal,
        (node, open): (NodeId, Option<OpenId>),
        target: Target,
        extent: Extent,
    ) -> Result<(Pieces, FileResponse), FsError> {
        let used = self.used(open);
        let file = FileRef {
            target,
            open: self.open_used(open),
        };
        let bytes = extent.len.min(u64::from(DATA_BYTES_MAX)) as u32;
        let step = Step::Read {
            file,
            offset: extent.offset,
            bytes,
        };
        let call = Call::read(Class::Demand, u64::from(bytes));
        let pending = self.submit_contents(node, who, vec![step], call);
        let (mut replies, mut response) = Self::replies(1, pending).await?;
        match replies.pop() {
            Some(StepReply::Data { bytes, .. }) if bytes as usize <= response.payload.len() => {
                let mut data = std::mem::take(&mut response.payload);
                data.truncate(bytes as usize);
                self.on_used(used, Access::Read);
                Ok((data.into_pieces(), response))
            }
            _ => Err(FsError::Io),
        }
    }
}
