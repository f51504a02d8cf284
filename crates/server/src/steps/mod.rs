//! Carrying a compound request out.
//!
//! An [`Execution`] owns everything that belongs to one request: its permits, its steps, what they
//! have found, the reply so far. It runs on a worker thread until it is done or must wait for
//! somebody: for recalls before a step, for a lock, for other requests, for appends. Then it is
//! parked whole and later goes on where it was, on any thread; no thread waits.
//!
//! | file | steps |
//! |---|---|
//! | `booked` | what waits for its turn, where something is reserved of an export |
//! | `look` | what changes nothing: look-ups, listings, attributes, small files |
//! | `data` | opens, reads, writes, space, durability, copies |
//! | `change` | attributes, extended attributes |
//! | `copies` | what is sent again and must not run twice |
//! | `create` | files that may be there already |
//! | `names` | creations, links, removals, renames |
//! | `striped` | contents that lie in stores |
//! | `lock` | locks |
//! | `after` | waiting for other requests |
//!
//! `room` says how much of the reply's body the steps may take.

mod after;
mod booked;
mod change;
mod copies;
mod create;
mod data;
mod lock;
mod look;
mod names;
mod room;
mod striped;
mod unserved;

use crate::core::Core;
use crate::lease::{Change, Moment, Token};
use crate::link::{Destination, LinkKey, ReplyBytes};
use crate::locks::Ticket;
use crate::pool::{QueuedTask, Task};
use crate::session::{Session, SessionKey};
use crate::share::ShareKey;
use crate::tree::{By, Cutting, Held};
use crate::volume::Volume;
use base::limits::{
    ACL_TEXT_BYTES_MAX, DATA_BYTES_MAX, FRAME_BODY_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX,
    LINK_TARGET_BYTES_MAX, XATTR_BYTES_MAX,
};
use base::{FsError, Handle, Node, Principal, RequestId};
use bytes::{Bytes, BytesMut};
use export::Worker;
use meta::namespace::Turn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::OwnedSemaphorePermit;
use wire::frame::{Class, Frame, FrameKind};
use wire::message::{
    Compound, CompoundReply, Entry, Lease, Refusal, Reply, Settled, Step, StepReply, Target, encode,
};

/// Room for a request's bytes, of its connection and of its credential.
pub(crate) type BytesPermits = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// A request as it came.
pub(crate) struct Incoming {
    pub(crate) session: Arc<Session>,
    pub(crate) to: Destination,
    pub(crate) id: RequestId,
    pub(crate) class: Class,
    pub(crate) resent: bool,
    pub(crate) arrived: Instant,
    pub(crate) compound: Compound,
    pub(crate) payload: Bytes,
    pub(crate) bytes_permits: Option<BytesPermits>,
}

/// A request being carried out.
pub(crate) struct Execution {
    core: Arc<Core>,
    session: Arc<Session>,
    to: Destination,
    id: RequestId,
    class: Class,
    resent: bool,
    remembered: bool,
    arrived: Instant,
    bytes_permits: Option<BytesPermits>,
    reply_bytes: Option<ReplyBytes>,
    who: Principal,
    is_judged: bool,
    /// Steps not carried out yet; the present one is out of its place while it runs.
    steps: Vec<Option<Step>>,
    next: usize,
    /// What is left of the request's payload.
    payload: Bytes,
    results: Vec<Result<StepReply, FsError>>,
    /// What each step found or made.
    found: Vec<Option<Handle>>,
    out: BytesMut,
    /// What the steps may still take of the reply's body beyond what is set aside for each.
    body_left: usize,
    /// Recalls that must be obeyed before the reply goes.
    tokens: Vec<Token>,
    /// Inodes that lose a name here. Who has opened one under a lease must be able to open it at
    /// the server when the lease is recalled; the request lives until that is done.
    held: Vec<Held>,
    /// Of a parallel volume: what the answers depend on.
    turn: Turn,
    /// The parallel volume that this is about. Only one can be: a turn belongs to one.
    parallel: OnceLock<Arc<Volume>>,
    /// Files of it that may become shorter by this.
    cuts: Vec<Cutting>,
    settled: Settled,
    /// What became of what the present step waited for.
    waited: Waited,
    /// How far the present step is that waits for appends.
    waiting: striped::Waiting,
    /// Of an export of which something is reserved: whether the present step has its turn.
    turn_taken: booked::TurnTaken,
    /// Of whose file the present step changes who may open it.
    shut: Option<change::Shut>,
}

/// What became of what a step has waited for: a lock, other requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// It has not waited, or is to look for itself.
    None,
    /// The lock is there.
    Granted,
    /// The client does not want to wait any more.
    Cancelled,
    /// Too many wait already.
    NoRoom,
    /// It has waited for long enough.
    TooLong,
}

/// Why a step has no result now.
enum Stop {
    /// It failed.
    Error(FsError),
    /// It must be tried again when these are obeyed.
    AfterRecalls(Vec<Token>),
    /// It goes on when this lock is there.
    AfterLock(Ticket),
    /// It goes on when the time for reclaiming locks is over.
    AfterGrace,
    /// It goes on when these requests of the session have run.
    AfterRequests(Vec<RequestId>),
    /// It must be tried again when more has been told of what was appended to this file.
    AfterAppends(Place),
    /// The whole request gets another answer.
    Refused(Refusal),
}

impl From<FsError> for Stop {
    fn from(error: FsError) -> Self {
        Self::Error(error)
    }
}

/// The bytes of payload that the steps say they have; `None` if a step says too much.
pub(crate) fn payload_bytes(compound: &Compound) -> Option<usize> {
    compound
        .steps
        .iter()
        .try_fold(0usize, |sum, step| match step {
            Step::Write { bytes, .. } | Step::CreateFile { bytes, .. } => {
                Some(sum + *bytes as usize).filter(|sum| *sum <= FRAME_PAYLOAD_BYTES_MAX)
            }
            _ => Some(sum),
        })
}

/// Bytes that the reply may have.
pub(crate) fn reply_estimate<'s>(steps: impl Iterator<Item = &'s Step>) -> usize {
    let bytes = steps.map(|step| match step {
        Step::Read { bytes, .. } => (*bytes).min(DATA_BYTES_MAX) as usize,
        Step::Lookup {
            inline_bytes_max, ..
        } => (*inline_bytes_max).min(DATA_BYTES_MAX) as usize,
        Step::Fetch { .. } => FRAME_PAYLOAD_BYTES_MAX,
        Step::ReadDirectory { entries_max, .. } => *entries_max as usize * 256,
        Step::GetXattr { .. } | Step::ListXattrs { .. } => XATTR_BYTES_MAX,
        Step::ReadLink { .. } => LINK_TARGET_BYTES_MAX,
        Step::Explain { .. } => ACL_TEXT_BYTES_MAX + room::STEP_BYTES,
        _ => 256,
    });
    bytes
        .sum::<usize>()
        .min(FRAME_PAYLOAD_BYTES_MAX + FRAME_BODY_BYTES_MAX)
}

impl Execution {
    /// Prepares a request. `remembered` says whether the session's memory knows it.
    pub(crate) fn new(core: &Arc<Core>, incoming: Incoming, remembered: bool) -> Box<Self> {
        let Incoming {
            session,
            to,
            id,
            class,
            resent,
            arrived,
            compound,
            payload,
            bytes_permits,
        } = incoming;
        session.requests.fetch_add(1, Ordering::Relaxed);
        let body_left = room::beside(&compound.steps);
        Box::new(Self {
            core: core.clone(),
            session,
            to,
            id,
            class,
            resent,
            remembered,
            arrived,
            bytes_permits,
            reply_bytes: None,
            who: compound.who,
            is_judged: false,
            results: Vec::with_capacity(compound.steps.len()),
            found: Vec::with_capacity(compound.steps.len()),
            steps: compound.steps.into_iter().map(Some).collect(),
            next: 0,
            payload,
            out: BytesMut::new(),
            body_left,
            tokens: Vec::new(),
            held: Vec::new(),
            turn: Turn::new(),
            parallel: OnceLock::new(),
            cuts: Vec::new(),
            settled: compound.settled,
            waited: Waited::None,
            waiting: striped::Waiting::default(),
            turn_taken: booked::TurnTaken::default(),
            shut: None,
        })
    }

    /// Whose it is.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Answers a request that was taken back before it began.
    fn cancel(self) {
        if self.remembered {
            self.session.memory().forget(self.id);
        }
        let frame = self.frame(&Reply::Refused(Refusal::Cancelled), Bytes::new());
        self.to.send(frame, None);
    }

    /// Whether it is this request.
    pub(crate) fn is(&self, session: SessionKey, id: RequestId) -> bool {
        self.session.key == session && self.id == id
    }

    /// Its number.
    pub(crate) fn number(&self) -> RequestId {
        self.id
    }

    /// The wait of the present step is over; to be followed by being queued again.
    pub(crate) fn end_wait(&mut self, waited: Waited) {
        self.waited = waited;
    }

    fn work(mut self: Box<Self>, worker: &Worker) {
        let Some(_working) = self.session.clone().begin_work() else {
            return;
        };
        if !self.is_judged {
            let claimed = std::mem::replace(&mut self.who, Principal::root());
            match self.core.judge.judge(self.session.peer.kind, claimed) {
                Ok(who) => self.who = who,
                Err(refusal) => return self.refuse(refusal),
            }
            self.is_judged = true;
        }
        loop {
            if self.session.has_ended() {
                return;
            }
            self = match self.wait_for_turn() {
                Some(this) => this,
                None => return,
            };
            let Some(step) = self.steps.get_mut(self.next).and_then(Option::take) else {
                break;
            };
            let core = self.core.clone();
            let contents = self.payload.len();
            let stop = match self.step(worker, &step) {
                Ok(reply) => {
                    self.turn_taken.end(&reply);
                    self.results.push(Ok(reply));
                    self.found.resize(self.results.len(), None);
                    self.next += 1;
                    self.wait_no_longer();
                    continue;
                }
                Err(stop) => self.or_put_off(&step, stop),
            };
            // Where the step is to be tried again, it goes back to its place.
            self.steps[self.next] = Some(step);
            match self.as_one_of_many(stop) {
                Stop::Error(error) => {
                    self.results.push(Err(error));
                    if !self.goes_on(contents) {
                        break;
                    }
                    continue;
                }
                Stop::AfterRecalls(tokens) => {
                    // Others' requests on this line, which may be what is waited for, have the room
                    // meanwhile.
                    self.reply_bytes = None;
                    let pool = core.pool.clone();
                    core.caching
                        .wait(&tokens, Box::new(move || pool.push_resumed(self)));
                }
                Stop::AfterLock(ticket) => core.locks.park(ticket, self, &core.pool),
                Stop::AfterGrace => {
                    core.locks
                        .park_for_grace(self, &core.pool, core.clock.now());
                }
                Stop::AfterRequests(requests) => self.wait_behind(&requests),
                Stop::AfterAppends(place) => self.put_behind_appends(&place),
                Stop::Refused(refusal) => self.refuse(refusal),
            }
            return;
        }
        self.finish();
    }

    /// Takes room for the reply, once.
    fn charge_reply(&mut self) {
        if self.reply_bytes.is_none() {
            let estimate = reply_estimate(self.steps.iter().flatten());
            self.reply_bytes = Some(self.to.link.charge(estimate));
        }
    }

    fn step(&mut self, worker: &Worker, step: &Step) -> Result<StepReply, Stop> {
        match step {
            Step::Attach { .. }
            | Step::Lookup { .. }
            | Step::Attributes { .. }
            | Step::ReadLink { .. }
            | Step::ReadDirectory { .. }
            | Step::Fetch { .. }
            | Step::StatFileSystem { .. }
            | Step::GetXattr { .. }
            | Step::ListXattrs { .. }
            | Step::Access { .. }
            | Step::Explain { .. } => self.look(worker, step),
            Step::Open { .. }
            | Step::Close { .. }
            | Step::Read { .. }
            | Step::Write { .. }
            | Step::Commit { .. }
            | Step::Allocate { .. }
            | Step::Seek { .. }
            | Step::CopyRange { .. }
            | Step::SyncDirectory { .. }
            | Step::SyncFileSystem { .. } => self.data(worker, step),
            Step::Layout { .. }
            | Step::Wrote { .. }
            | Step::Extend { .. }
            | Step::Place { .. }
            | Step::PlaceLeft { .. }
            | Step::GivePlaceUp { .. }
            | Step::Stored { .. } => self.striped(worker, step),
            Step::SetAttributes { .. } | Step::SetXattr { .. } | Step::RemoveXattr { .. } => {
                self.change(worker, step)
            }
            Step::Create { .. }
            | Step::CreateFile { .. }
            | Step::MakeDirectory { .. }
            | Step::MakeNode { .. }
            | Step::MakeSymlink { .. }
            | Step::Link { .. }
            | Step::Remove { .. }
            | Step::RemoveDirectory { .. }
            | Step::Rename { .. } => self.names(worker, step),
            Step::Lock { .. } | Step::TestLock { .. } | Step::ReleaseLocks { .. } => {
                self.locks(worker, step)
            }
            Step::After { requests } => self.after(requests),
        }
    }

    /// The inode that a step means: its volume, the client's handle and the tree's.
    fn target(&self, target: &Target) -> Result<Place, FsError> {
        let outer = self.outer(target).ok_or(FsError::Invalid)?;
        self.place(outer.clone())
    }

    fn place(&self, outer: Handle) -> Result<Place, FsError> {
        let (volume, inner) = self.core.volumes.by_handle(&outer)?;
        self.enter_parallel(&volume)?;
        // A client goes on with its handles after a restart without entering again.
        self.session.attach(volume.id);
        Ok(Place {
            volume,
            outer,
            inner,
        })
    }

    /// Notes that the request is about a parallel volume, if it is.
    fn enter_parallel(&self, volume: &Arc<Volume>) -> Result<(), FsError> {
        if volume.tree.parallel().is_none() {
            return Ok(());
        }
        match self.parallel.get_or_init(|| volume.clone()).id == volume.id {
            true => Ok(()),
            false => Err(FsError::CrossDevice),
        }
    }

    /// The caller, on this thread, in this request.
    fn by<'a>(&'a self, worker: &'a Worker) -> By<'a> {
        By {
            worker,
            who: &self.who,
            turn: &self.turn,
            tickets: &self.session.tickets,
        }
    }

    /// A file of a parallel volume may become shorter.
    ///
    /// # Errors
    /// [`FsError::Io`] if it could not be cut now.
    fn may_cut(&mut self, place: &Place) -> Result<(), FsError> {
        if let Some(parallel) = place.volume.tree.parallel() {
            parallel.check_cut(&self.turn, &place.inner)?;
            self.cuts.push(parallel.begin_cut(&place.inner));
        }
        Ok(())
    }

    /// As [`Self::target`], for a step that changes it.
    fn changing(&self, target: &Target) -> Result<Place, FsError> {
        let place = self.target(target)?;
        if place.volume.read_only {
            Err(FsError::ReadOnly)
        } else {
            Ok(place)
        }
    }

    /// Notes what the present step found, for later steps.
    fn note(&mut self, handle: Handle) {
        self.found.resize(self.results.len(), None);
        self.found.push(Some(handle));
    }

    /// Makes sure that nobody else has one of these directories alone.
    fn contest<const N: usize>(&self, directories: [&Handle; N]) -> Result<(), Stop> {
        let tokens = self
            .core
            .caching
            .contest(&self.session, directories.into_iter());
        if tokens.is_empty() {
            Ok(())
        } else {
            Err(Stop::AfterRecalls(tokens))
        }
    }

    /// Makes sure that nobody else has a directory alone, and records a lease on it before its
    /// state is read.
    fn enter(&self, place: &Place, wanted: Lease) -> Result<(Lease, Moment), Stop> {
        self.enter_for(place, wanted, false)
    }

    /// As [`Self::enter`], for a step that may have been answered ahead of this: then the session
    /// had the directory alone, and does not wait for what others may have created there.
    fn enter_ahead(&self, place: &Place, wanted: Lease) -> Result<(Lease, Moment), Stop> {
        self.enter_for(place, wanted, true)
    }

    fn enter_for(
        &self,
        place: &Place,
        wanted: Lease,
        ahead: bool,
    ) -> Result<(Lease, Moment), Stop> {
        let wanted = if place.volume.is_watched() {
            wanted
        } else {
            Lease::None
        };
        let caching = &self.core.caching;
        let entered = caching.enter(&self.session, &place.outer, wanted, ahead);
        entered.map_err(Stop::AfterRecalls)
    }

    /// Records a lease before the state is read.
    fn grant(&self, place: &Place, wanted: Lease) -> Lease {
        if !place.volume.is_watched() {
            return Lease::None;
        }
        self.core.caching.grant(&self.session, &place.outer, wanted)
    }

    /// Something has changed: whoever caches it hears of it before this request is answered.
    fn changed(&mut self, changes: &[Change]) {
        self.tokens
            .extend(self.core.caching.changed(Some(&self.session), changes));
    }

    /// Makes an entry of what was found or made after `then`. The lease is recorded, and if the
    /// inode has changed since `then`, its attributes are read again under the lease.
    fn entry(
        &self,
        worker: &Worker,
        volume: &Volume,
        node: Node,
        wanted: Lease,
        then: Moment,
    ) -> Result<Entry, FsError> {
        let handle = volume.outer(&node.handle);
        let (lease, fresh) = self.grant_found(volume, &handle, wanted, then);
        self.as_found(worker, volume, node, lease, fresh)
    }

    /// An entry; attributes that are not fresh are read again. An inode that has been removed since
    /// is shown as it was found, without a lease: what was asked has been done, and "stale" would
    /// have the client's kernel try it once more.
    fn as_found(
        &self,
        worker: &Worker,
        volume: &Volume,
        node: Node,
        lease: Lease,
        fresh: bool,
    ) -> Result<Entry, FsError> {
        let (attributes, lease) = if fresh {
            (node.attributes, lease)
        } else {
            match volume.tree.attributes(self.by(worker), &node.handle) {
                Err(FsError::Stale) => (node.attributes, Lease::None),
                attributes => (attributes?, lease),
            }
        };
        Ok(Entry {
            handle: volume.outer(&node.handle),
            attributes,
            lease,
        })
    }

    /// As [`Self::changed`] and [`Self::entry`] in one.
    fn made(
        &mut self,
        worker: &Worker,
        volume: &Volume,
        node: Node,
        changes: &[Change],
        wanted: Lease,
        then: Moment,
    ) -> Result<Entry, FsError> {
        let handle = volume.outer(&node.handle);
        let wanted = if volume.is_watched() {
            wanted
        } else {
            Lease::None
        };
        let caching = &self.core.caching;
        let (tokens, lease, fresh) = caching.made(&self.session, changes, &handle, wanted, then);
        self.tokens.extend(tokens);
        self.as_found(worker, volume, node, lease, fresh)
    }

    /// Records a lease; `false` beside it: what was read of the inode since `then` must be read
    /// again.
    fn grant_found(
        &self,
        volume: &Volume,
        handle: &Handle,
        wanted: Lease,
        then: Moment,
    ) -> (Lease, bool) {
        if !volume.is_watched() {
            return (Lease::None, true);
        }
        let found = std::iter::once((handle, wanted));
        self.core.caching.grant_found(&self.session, found, then)[0]
    }

    /// Takes room in the reply's body, of what is not set aside: for steps that change nothing.
    fn take_body(&mut self, bytes: usize) -> Result<(), FsError> {
        self.body_left = self.body_left.checked_sub(bytes).ok_or(FsError::Overflow)?;
        Ok(())
    }

    /// Bytes that still fit into the reply's payload.
    fn payload_left(&self) -> usize {
        FRAME_PAYLOAD_BYTES_MAX - self.out.len()
    }

    /// Room for `bytes` more in the reply's payload.
    fn reserve(&mut self, bytes: usize) {
        if self.out.capacity() == 0 {
            self.out = self.core.buffers.take(bytes);
        }
        self.out.reserve(bytes);
    }

    fn frame(&self, reply: &Reply, payload: Bytes) -> Frame {
        Frame {
            kind: FrameKind::Reply,
            class: self.class,
            resent: false,
            request: self.id,
            body: encode(reply),
            payload: payload.into(),
        }
    }

    fn refuse(self: Box<Self>, refusal: Refusal) {
        let frame = self.frame(&Reply::Refused(refusal), Bytes::new());
        self.deliver(frame);
    }

    /// Answers as soon as everything that must be recalled is.
    fn finish(mut self: Box<Self>) {
        let core = self.core.clone();
        let tokens = std::mem::take(&mut self.tokens);
        if tokens.is_empty() {
            return self.settle();
        }
        // What came is done with, and its room is needed: what obeys the recalls comes behind other
        // requests.
        self.payload = Bytes::new();
        self.steps = Vec::new();
        self.bytes_permits = None;
        core.caching
            .wait(&tokens, Box::new(move || self.go_on_recalled()));
    }

    /// Goes on where somebody obeys or is given up: in the task of a connection, or the reaper. To
    /// free what was removed may take the disk's time, which is not theirs.
    fn go_on_recalled(self: Box<Self>) {
        if self.held.is_empty() {
            return self.settle();
        }
        let runtime = self.core.runtime.clone();
        runtime.spawn_blocking(move || self.settle());
    }

    fn reply(mut self: Box<Self>) {
        // What was removed leaves its space before that is said: who hears it may want to fill it.
        self.held.clear();
        let micros = u32::try_from(self.arrived.elapsed().as_micros()).unwrap_or(u32::MAX);
        let results = std::mem::take(&mut self.results);
        let reply = Reply::Files(CompoundReply {
            results,
            server_micros: micros,
        });
        let payload = std::mem::take(&mut self.out).freeze();
        let frame = self.frame(&reply, payload);
        if frame.body.len() > FRAME_BODY_BYTES_MAX {
            // Nobody can read it, and what was changed is changed.
            let bytes = frame.body.len();
            tracing::error!(
                bytes,
                "a reply is larger than its steps said, and is not sent"
            );
            return self.refuse(Refusal::OutcomeUnknown);
        }
        self.deliver(frame);
    }

    fn deliver(mut self: Box<Self>, frame: Frame) {
        let mut bytes = self.reply_bytes.take();
        if let Some(bytes) = &mut bytes {
            bytes.resize(frame.wire_bytes());
        }
        if !self.remembered {
            return self.to.send(frame, bytes);
        }
        self.session.note_change(self.core.clock.now());
        // The connection may have been lost and the request sent again meanwhile.
        let (destinations, waiting) = {
            let mut memory = self.session.memory();
            (memory.finish(self.id, &frame), memory.take_ready())
        };
        for to in destinations {
            to.send(frame.clone(), bytes.take());
        }
        for waiting in waiting {
            self.core.pool.push_resumed(waiting);
        }
    }
}

/// An inode: its volume, the client's handle, the tree's.
#[derive(Clone)]
struct Place {
    volume: Arc<Volume>,
    outer: Handle,
    inner: Handle,
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.session.requests.fetch_sub(1, Ordering::Relaxed);
        if let Some(parallel) = self
            .parallel
            .get()
            .and_then(|volume| volume.tree.parallel())
        {
            // Nobody waits for the answer any more; the files are cut all the same.
            parallel.cut_later(std::mem::take(&mut self.cuts));
        }
    }
}

impl QueuedTask for Execution {
    fn class(&self) -> Class {
        self.class
    }

    fn link(&self) -> LinkKey {
        self.to.link.key
    }

    fn share(&self) -> ShareKey {
        self.to.link.share.key
    }

    fn request(&self) -> RequestId {
        self.id
    }

    fn has_room(&self) -> bool {
        self.to.link.has_room()
    }
}

impl Task for Execution {
    fn run(mut self: Box<Self>, worker: &Worker) {
        self.charge_reply();
        self.work(worker);
    }

    fn cancel(self: Box<Self>) {
        (*self).cancel();
    }

    fn lose(mut self: Box<Self>) -> Option<crate::pool::Turn> {
        if !self.remembered {
            return None;
        }
        // Or it would be taken for one that is being carried out, and no copy of it would be.
        self.to = self.session.memory().lose(self.id)?;
        Some(self)
    }
}
