//! Carrying a batch out: step by step, each in pieces that the order gives out.
//!
//! A job owns everything that belongs to its request: permits, memory, payload, what was read. It
//! lies nowhere but with its pieces: whoever finishes the last piece of a step begins the next
//! step. A piece that is dropped, because the order refused it or ends, has failed.
//!
//! Reads and writes of any length are cut here, and nowhere before, where pieces end: so each takes
//! its turn at the device by itself and lies in one allocation unit. What was read goes from the
//! device to the socket without a copy, in as many pieces as it was read in. Other steps cost what
//! the smallest write costs: their records follow in commits and checkpoints, as the store's own
//! I/O.

use super::Storage;
use super::budget::{Account, Growing};
use super::device::Device;
use super::dispatch::Task;
use super::held::{Charge, HeldTicket};
use super::piece::{Done, Owned, Piece, appended, cut, gather};
use super::space::{SpaceError, SpaceRequest, SpaceTrial, is_system};
use crate::link::Destination;
use crate::seldom::Seldom;
use crate::session::{Session, Working};
use base::limits::OBJECTS_PER_PAGE_MAX;
use base::ticket::Operations;
use base::{ObjectId, RequestId};
use bytes::Bytes;
use reservation::scheduler::{Operation, Source};
use reservation::{Interval, Moment};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use store::{How, ObjectInfo, Payer, StoreError, Terms};
use wire::frame::{Class, Frame, FrameKind};
use wire::message::{
    CredentialKind, ObjectAttribute, ObjectBatch, ObjectError, ObjectReply, ObjectStep,
    ObjectStepReply, ObjectSummary, Reply, TicketRefusal, frame,
};

pub(super) type Outcome = Result<ObjectStepReply, ObjectError>;

/// Device time of what changes records only: that of so many bytes.
const RECORD_BYTES: u32 = 4096;
/// Of reads that find damage: a damaged store that is read on says so all the time.
static DAMAGE_TOLD: Seldom = Seldom::new(Duration::from_secs(1));

/// What a job is made of.
pub(super) struct Job {
    pub(super) storage: Arc<Storage>,
    pub(super) device: Arc<Device>,
    pub(super) session: Arc<Session>,
    pub(super) to: Destination,
    pub(super) id: RequestId,
    pub(super) class: Class,
    pub(super) batch: ObjectBatch,
    pub(super) payload: Bytes,
    pub(super) source: Source,
    pub(super) ticket: Option<Arc<HeldTicket>>,
    pub(super) is_remembered: bool,
    pub(super) arrived: Instant,
    /// Nobody else gets the session's name while it is at work.
    pub(super) _working: Working,
    pub(super) progress: Mutex<Progress>,
}

/// How far a job is.
pub(super) struct Progress {
    charge: Option<Charge>,
    /// Where the next step's part of the payload begins.
    payload_at: usize,
    results: Vec<Outcome>,
    /// Pieces of the step at work that are not done.
    left: usize,
    pieces: Vec<Result<Done, ObjectError>>,
    /// Why the first of them failed that did: those that come after it are not carried out.
    failed: Option<ObjectError>,
    growing: Vec<Growing>,
    read: Vec<Bytes>,
}

impl Progress {
    pub(super) fn new(charge: Charge) -> Self {
        Self {
            charge: Some(charge),
            payload_at: 0,
            results: Vec::new(),
            left: 0,
            pieces: Vec::new(),
            failed: None,
            growing: Vec::new(),
            read: Vec::new(),
        }
    }
}

/// What becomes of a step that was begun.
enum Begun {
    /// It is over already.
    Over(Outcome),
    /// It goes on by itself.
    UnderWay,
}

impl Job {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the pieces of the step are still worth being carried out: the device does nothing
    /// for a step that is going to be asked for again.
    pub(super) fn goes_on(&self) -> Result<(), ObjectError> {
        self.lock().failed.map_or(Ok(()), Err)
    }

    /// Begins the next step, until one goes on by itself or all are done.
    pub(super) fn run(self: &Arc<Self>) {
        loop {
            let at = {
                let progress = self.lock();
                let failed = matches!(progress.results.last(), Some(Err(_)));
                let is_over = failed || progress.results.len() == self.batch.steps.len();
                if is_over {
                    None
                } else {
                    Some(progress.results.len())
                }
            };
            let Some(at) = at else {
                return self.finish();
            };
            match self.begin(&self.batch.steps[at]) {
                Ok(Begun::UnderWay) => return,
                Ok(Begun::Over(outcome)) => self.lock().results.push(outcome),
                Err(error) => self.lock().results.push(Err(error)),
            }
        }
    }

    fn begin(self: &Arc<Self>, step: &ObjectStep) -> Result<Begun, ObjectError> {
        self.check(step)?;
        let payload = {
            let mut progress = self.lock();
            let begin = progress.payload_at;
            progress.payload_at += step.payload_bytes() as usize;
            self.payload.slice(begin..progress.payload_at)
        };
        match *step {
            ObjectStep::Commit => Ok(self.commit()),
            ObjectStep::Read {
                object,
                offset,
                bytes,
            } => self.read(object, offset, bytes),
            ObjectStep::Write { object, offset, .. } => self.write(object, offset, &payload, None),
            ObjectStep::WriteUnder {
                object,
                generation,
                offset,
                ..
            } => self.write(object, offset, &payload, Some(generation)),
            ObjectStep::Append { object, .. } => self.append(object, payload),
            _ => {
                self.one_piece(RECORD_BYTES, move |job| {
                    let at = job.lock().results.len();
                    job.change(&job.batch.steps[at]).map(Done::Step)
                });
                Ok(Begun::UnderWay)
            }
        }
    }

    /// Whether whoever asks may do this.
    fn check(&self, step: &ObjectStep) -> Result<(), ObjectError> {
        use ObjectStep as S;
        let kind = self.session.peer.kind;
        let is_machine = is_machine(kind);
        let (object, operation) = match step {
            S::Read { object, .. }
            | S::Attributes { object }
            | S::Info { object }
            | S::Seek { object, .. } => (Some(*object), Operations::READ),
            S::Create { object, .. }
            | S::Write { object, .. }
            | S::WriteUnder { object, .. }
            | S::Append { object, .. }
            | S::Truncate { object, .. }
            | S::Punch { object, .. }
            | S::PunchUnder { object, .. }
            | S::SetAttribute { object, .. }
            | S::RemoveAttribute { object, .. }
            | S::Allocate { object, .. }
            | S::AllocateUnder { object, .. }
            | S::Delete { object } => (Some(*object), Operations::WRITE),
            // Of a volume's files, whoever has the namespace says so; one that is missing is made.
            S::Cut { object, .. } | S::CutUnder { object, .. } | S::Discard { object }
                if is_machine =>
            {
                (Some(*object), Operations::WRITE)
            }
            S::Cut { .. } | S::CutUnder { .. } | S::Discard { .. } => {
                return Err(ObjectError::Forbidden);
            }
            S::Commit => return Ok(()),
            S::List { .. } if is_machine => return Ok(()),
            S::ConfirmSpace { .. }
            | S::TrySpace { .. }
            | S::ExtendSpace { .. }
            | S::ReleaseSpace { .. }
            | S::SpaceUsed { .. }
                if kind.is_admin() =>
            {
                return Ok(());
            }
            S::List { .. }
            | S::ConfirmSpace { .. }
            | S::TrySpace { .. }
            | S::ExtendSpace { .. }
            | S::ReleaseSpace { .. }
            | S::SpaceUsed { .. } => return Err(ObjectError::Forbidden),
        };
        if object.is_some_and(is_system) {
            return Err(ObjectError::Forbidden);
        }
        match &self.ticket {
            Some(ticket) => {
                let (terms, volume) = (ticket.terms(), ticket.volume());
                if !terms.operations.contains(operation) {
                    return Err(ObjectError::Ticket(TicketRefusal::Operation));
                }
                if object.is_some_and(|object| !terms.reaches(volume, object)) {
                    return Err(ObjectError::Ticket(TicketRefusal::Scope));
                }
                Ok(())
            }
            // A machine judges its users by itself; a user alone has what tickets give.
            None if is_machine => Ok(()),
            None => Err(ObjectError::Forbidden),
        }
    }

    /// Hands pieces to the order.
    fn submit<W>(self: &Arc<Self>, operation: Operation, pieces: Vec<(u32, W)>)
    where
        W: FnOnce(&Job) -> Result<Done, ObjectError> + Send + 'static,
    {
        self.submit_as(operation, pieces, |_, task| task);
    }

    /// The same; what is carried out is made of each, which has its number.
    fn submit_as<W>(
        self: &Arc<Self>,
        operation: Operation,
        pieces: Vec<(u32, W)>,
        made: impl Fn(usize, Task) -> Task,
    ) where
        W: FnOnce(&Job) -> Result<Done, ObjectError> + Send + 'static,
    {
        {
            let mut progress = self.lock();
            progress.left = pieces.len();
            progress.pieces.clear();
            let none = || Err(ObjectError::Busy);
            progress.pieces.resize_with(pieces.len(), none);
        }
        let tasks = pieces
            .into_iter()
            .enumerate()
            .map(|(index, (bytes, work))| {
                let piece = Piece {
                    job: Some(self.clone()),
                    index,
                };
                let task: Task = Box::new(move || piece.carry_out(work));
                (operation, bytes, made(index, task))
            });
        // One that is refused is dropped, and has failed by that.
        let _ = self.device.dispatcher.submit(self.source, tasks);
    }

    fn one_piece(
        self: &Arc<Self>,
        bytes: u32,
        work: impl FnOnce(&Job) -> Result<Done, ObjectError> + Send + 'static,
    ) {
        self.submit(Operation::Write, vec![(bytes, work)]);
    }

    fn read(
        self: &Arc<Self>,
        object: ObjectId,
        offset: u64,
        bytes: u32,
    ) -> Result<Begun, ObjectError> {
        if bytes == 0 {
            self.one_piece(RECORD_BYTES, move |job| {
                job.device.store.info(object).map_err(failed)?;
                Ok(Done::Step(ObjectStepReply::Data { bytes }))
            });
            return Ok(Begun::UnderWay);
        }
        let pieces = cut(offset, bytes, self.device.plan.read_piece_bytes)?;
        let pieces = pieces.into_iter().map(|(at, len)| {
            let work = move |job: &Job| {
                let read = job.device.store.read_buffer(object, at, len as usize);
                let data = Bytes::from_owner(Owned(read.map_err(failed)?));
                let is_short = data.len() < len as usize;
                Ok(Done::Read { data, is_short })
            };
            (len, work)
        });
        self.submit(Operation::Read, pieces.collect());
        Ok(Begun::UnderWay)
    }

    fn write(
        self: &Arc<Self>,
        object: ObjectId,
        offset: u64,
        payload: &Bytes,
        generation: Option<u64>,
    ) -> Result<Begun, ObjectError> {
        let bytes = u32::try_from(payload.len()).map_err(|_| ObjectError::Invalid)?;
        if bytes == 0 {
            return Ok(Begun::Over(Ok(ObjectStepReply::Done)));
        }
        let pieces = cut(offset, bytes, self.device.plan.write_piece_bytes)?;
        let pieces = pieces.into_iter().map(|(at, len)| {
            let begin = (at - offset) as usize;
            let data = payload.slice(begin..begin + len as usize);
            let work = move |job: &Job| {
                let payer = job.draw(object, Some(at + u64::from(len)), 0)?;
                let (store, how) = (&job.device.store, How { payer, generation });
                let writing = store.start_write(object, at, &data, how);
                writing.map_err(failed)?.wait();
                Ok(Done::Moved(data.len() as u64))
            };
            (len, work)
        });
        self.submit(Operation::Write, pieces.collect());
        Ok(Begun::UnderWay)
    }

    /// The end of the object is known only when it is its turn, so the last piece writes the whole;
    /// what it costs beyond a quantum is paid before by pieces in which nothing happens.
    fn append(self: &Arc<Self>, object: ObjectId, payload: Bytes) -> Result<Begun, ObjectError> {
        let bytes = u32::try_from(payload.len()).map_err(|_| ObjectError::Invalid)?;
        let lengths = appended(bytes, self.device.plan.write_piece_bytes);
        let last = lengths.len() - 1;
        let pieces = lengths.into_iter().enumerate().map(|(index, len)| {
            let data = (index == last).then(|| payload.clone());
            let work = move |job: &Job| {
                let Some(data) = data else {
                    return Ok(Done::Moved(0));
                };
                let payer = job.draw(object, None, u64::from(bytes))?;
                let (offset, writing) = job
                    .device
                    .store
                    .start_append(object, &data, payer)
                    .map_err(failed)?;
                writing.wait();
                Ok(Done::Step(ObjectStepReply::Appended { offset }))
            };
            (len, work)
        });
        let appends = &self.device.appends;
        self.submit_as(Operation::Write, pieces.collect(), |index, task| {
            let appends = appends.clone();
            match index == last {
                true => Box::new(move || appends.carry_out(object, task)),
                false => task,
            }
        });
        Ok(Begun::UnderWay)
    }

    /// Draws what an object needs to end at `end`, or by `more` later than now; says who pays if
    /// the object is in nobody's space. What nobody pays for, a machine may have nevertheless: it
    /// may without a ticket, too.
    pub(super) fn draw(
        &self,
        object: ObjectId,
        end: Option<u64>,
        more: u64,
    ) -> Result<Option<Payer>, ObjectError> {
        let Some(ticket) = &self.ticket else {
            return Ok(None);
        };
        let info = self.device.store.info(object).map_err(failed)?;
        let payer = match info.reservation {
            Some(_) => None,
            None => self.payer(ticket).map_err(failed)?,
        };
        let is_free = info.reservation.is_none() && is_machine(self.session.peer.kind);
        if is_free && payer.is_none() {
            return Ok(None);
        }
        let size = info.size_bytes;
        let end = end.unwrap_or(size.saturating_add(more)).max(size);
        let scale = self.device.scale;
        let (now, then) = (scale.blocks(size), scale.blocks(end));
        match self.charge(ticket, object, now, then)? {
            true => Ok(payer),
            false if is_free => Ok(None),
            false => Err(ObjectError::Ticket(TicketRefusal::Budget)),
        }
    }

    /// Draws what a new object needs; says who pays, as [`Self::draw`].
    fn draw_new(
        &self,
        object: ObjectId,
        (terms, payer): (Terms, Option<Payer>),
    ) -> Result<Option<Payer>, ObjectError> {
        let Some(ticket) = &self.ticket else {
            return Ok(None);
        };
        let is_reserved = matches!(terms, Terms::Reserved(_) | Terms::Within(..));
        let is_free = !is_reserved && is_machine(self.session.peer.kind);
        if is_free && payer.is_none() {
            return Ok(None);
        }
        // Asked for again, it takes nothing again.
        if self.device.store.info(object).is_ok() {
            return Err(ObjectError::Exists);
        }
        let blocks = self.device.scale.blocks(0);
        match self.charge(ticket, object, 0, blocks)? {
            true => Ok(payer),
            false if is_free => Ok(None),
            false => Err(ObjectError::Ticket(TicketRefusal::Budget)),
        }
    }

    /// Draws blocks for an object, for as long as the step is at work; whether they are there.
    fn charge(
        &self,
        ticket: &HeldTicket,
        object: ObjectId,
        blocks_now: u64,
        blocks_then: u64,
    ) -> Result<bool, ObjectError> {
        let accounts = accounts(&self.device, ticket).map_err(failed)?;
        let budgets = &self.device.budgets;
        let growing = budgets.draw(&accounts, object, blocks_now, blocks_then);
        let is_there = growing.is_some();
        self.lock().growing.extend(growing);
        Ok(is_there)
    }

    /// The ticket's space here, as what pays for objects that are in nobody's.
    fn payer(&self, ticket: &HeldTicket) -> Result<Option<Payer>, StoreError> {
        let reserved = self.device.reservation_of(ticket.grant.head.id)?;
        Ok(reserved.map(|reservation| Payer {
            reservation,
            is_limit: !is_machine(self.session.peer.kind),
        }))
    }

    fn commit(self: &Arc<Self>) -> Begun {
        let job = self.clone();
        let told = Box::new(move |error: Option<&StoreError>| {
            let outcome = match error {
                None => Ok(ObjectStepReply::Done),
                Some(error) => Err(error_of(error)),
            };
            job.lock().results.push(outcome);
            job.run();
        });
        let ticket = self.ticket.as_deref();
        self.device.commit(self.source, ticket, told);
        Begun::UnderWay
    }

    /// Steps that change or ask for records only.
    fn change(&self, step: &ObjectStep) -> Outcome {
        let store = &self.device.store;
        let done = |changed: Result<(), StoreError>| {
            changed.map(|()| ObjectStepReply::Done).map_err(failed)
        };
        match step {
            ObjectStep::Create { object, end_secs } => {
                let (terms, payer) = self.terms(*end_secs)?;
                let payer = self.draw_new(*object, (terms, payer))?;
                self.created(store.create_from(*object, terms, payer))
            }
            ObjectStep::SetAttribute { object, attribute } => {
                let (name, contents) = (&attribute.name, &attribute.contents);
                done(store.transact(|t| t.set_attribute(*object, name, Some(contents))))
            }
            ObjectStep::RemoveAttribute { object, name } => {
                done(store.transact(|t| t.set_attribute(*object, name, None)))
            }
            ObjectStep::Attributes { object } => {
                let attributes = store.attributes(*object).map_err(failed)?;
                let attributes = attributes.into_iter();
                let attributes =
                    attributes.map(|(name, contents)| ObjectAttribute { name, contents });
                Ok(ObjectStepReply::Attributes(attributes.collect()))
            }
            ObjectStep::Info { object } => {
                let info = store.info(*object).map_err(failed)?;
                Ok(ObjectStepReply::Info(summary(&info)))
            }
            ObjectStep::Delete { object } => done(store.delete(*object)),
            ObjectStep::List { from, count_max } => {
                let count_max = (*count_max as usize).min(OBJECTS_PER_PAGE_MAX);
                let (list, next) = store.list(*from, count_max).map_err(failed)?;
                let list = list.iter().filter(|info| !is_system(info.object));
                Ok(ObjectStepReply::Objects {
                    list: list.map(summary).collect(),
                    next,
                })
            }
            ObjectStep::Write { .. }
            | ObjectStep::WriteUnder { .. }
            | ObjectStep::Append { .. }
            | ObjectStep::Read { .. }
            | ObjectStep::Commit => unreachable!("begun in another way"),
            ObjectStep::ConfirmSpace { .. }
            | ObjectStep::TrySpace { .. }
            | ObjectStep::ExtendSpace { .. }
            | ObjectStep::ReleaseSpace { .. }
            | ObjectStep::SpaceUsed { .. } => self.change_space(step),
            of_bytes => self.change_bytes(of_bytes),
        }
    }

    /// What became of a new object. One that somebody else has made may have been drawn for here.
    fn created(&self, created: Result<(), StoreError>) -> Outcome {
        if let Err(error) = &created
            && !matches!(error, StoreError::Exists(_))
        {
            let growing = std::mem::take(&mut self.lock().growing);
            growing.into_iter().for_each(Growing::undo);
        }
        created.map(|()| ObjectStepReply::Done).map_err(failed)
    }

    /// Steps about the space of tickets, for managers.
    fn change_space(&self, step: &ObjectStep) -> Outcome {
        match step {
            ObjectStep::SpaceUsed { ticket } => {
                let held = self.device.space_used(*ticket).map_err(failed)?;
                Ok(ObjectStepReply::Space { held })
            }
            ObjectStep::ConfirmSpace {
                ticket,
                start_secs,
                end_secs,
                aus,
                records,
            } => {
                let request = SpaceRequest {
                    ticket: *ticket,
                    interval: interval(*start_secs, *end_secs)?,
                    aus: *aus,
                    records: *records,
                };
                space(self.device.confirm_space(&request))
            }
            ObjectStep::TrySpace {
                intervals,
                aus,
                records,
            } => {
                let intervals = intervals.iter();
                let intervals = intervals.map(|(start, end)| interval(*start, *end));
                let trial = SpaceTrial {
                    intervals: intervals.collect::<Result<_, _>>()?,
                    aus: *aus,
                    records: *records,
                };
                space(self.device.try_space(&trial))
            }
            ObjectStep::ExtendSpace { ticket, end_secs } => {
                space(self.device.extend_space(*ticket, moment(*end_secs)))
            }
            ObjectStep::ReleaseSpace { ticket } => space(self.device.release_space(*ticket)),
            _ => unreachable!("all others are carried out before"),
        }
    }

    /// Under which terms an object is made, and who pays for it. One that is never to end is in
    /// nobody's space, because a ticket's ends.
    fn terms(&self, end_secs: Option<u64>) -> Result<(Terms, Option<Payer>), ObjectError> {
        let Some(ticket) = &self.ticket else {
            let terms = end_secs.map_or(Terms::Default, |end| Terms::Until(moment(end)));
            return Ok((terms, None));
        };
        let latest = ticket.terms().lifetime_end_secs;
        let is_for_good = end_secs == Some(u64::MAX);
        let may = is_for_good && is_machine(self.session.peer.kind);
        if !may && end_secs.is_some_and(|end| end > latest) {
            return Err(ObjectError::Ticket(TicketRefusal::Lifetime));
        }
        if is_for_good {
            let payer = self.payer(ticket).map_err(failed)?;
            return Ok((Terms::Until(Moment::FOREVER), payer));
        }
        let reserved = self.device.reservation_of(ticket.grant.head.id);
        let terms = match (reserved.map_err(failed)?, end_secs) {
            (Some(number), None) => Terms::Reserved(number),
            (Some(number), Some(end)) => Terms::Within(number, moment(end)),
            (None, end) => Terms::Until(moment(end.unwrap_or(latest))),
        };
        Ok((terms, None))
    }

    pub(super) fn piece_done(self: &Arc<Self>, index: usize, done: Result<Done, ObjectError>) {
        {
            let mut progress = self.lock();
            if let Err(error) = &done {
                progress.failed.get_or_insert(*error);
            }
            progress.pieces[index] = done;
            progress.left -= 1;
            if progress.left > 0 {
                return;
            }
            progress.failed = None;
            let growing = std::mem::take(&mut progress.growing);
            let pieces = std::mem::take(&mut progress.pieces);
            if pieces.iter().all(Result::is_err) {
                // Nothing has grown, and nothing is paid for it.
                growing.into_iter().for_each(Growing::undo);
            }
            let outcome = gather(pieces, &mut progress.read);
            progress.results.push(outcome);
        }
        self.run();
    }

    fn finish(&self) {
        let (results, read, charge) = {
            let mut progress = self.lock();
            (
                std::mem::take(&mut progress.results),
                std::mem::take(&mut progress.read),
                progress.charge.take(),
            )
        };
        let reply = Reply::Object(ObjectReply::Results {
            verifier: self.storage.verifier(),
            results,
            server_micros: u32::try_from(self.arrived.elapsed().as_micros()).unwrap_or(u32::MAX),
        });
        let frame = Frame {
            class: self.class,
            payload: read.into_iter().collect(),
            ..frame(FrameKind::Reply, self.id, &reply)
        };
        let held = charge.map(|charge| Box::new(charge) as Box<dyn Send + Sync>);
        if !self.is_remembered {
            return self.to.send_held(frame, held);
        }
        let mut held = held;
        for to in self.session.memory().finish(self.id, &frame) {
            to.send_held(frame.clone(), held.take());
        }
    }
}

/// Whether it judges its users by itself, and so may do here what it likes.
fn is_machine(kind: CredentialKind) -> bool {
    kind.is_admin() || kind == CredentialKind::Host
}

/// The accounts that a ticket draws from at a device. The whole has its space in the store, if it
/// has any, and is counted there.
fn accounts(device: &Device, ticket: &HeldTicket) -> Result<Vec<Account>, StoreError> {
    let is_counted = device.reservation_of(ticket.grant.head.id)?.is_some();
    let (mut lineage, mut accounts) = (Vec::new(), Vec::new());
    for (id, terms) in &ticket.grant.lineage {
        lineage.push(*id);
        let slice = terms.slices.iter().find(|slice| slice.device == device.id);
        let budget = slice.map_or(0, |slice| slice.au_budget);
        if lineage.len() > 1 || !is_counted {
            let blocks = budget.saturating_mul(device.scale.unit_blocks());
            accounts.push((lineage.clone(), blocks));
        }
    }
    Ok(accounts)
}

fn moment(secs: u64) -> Moment {
    match secs {
        u64::MAX => Moment::FOREVER,
        secs => Moment::from_secs(secs),
    }
}

fn interval(start_secs: u64, end_secs: u64) -> Result<Interval, ObjectError> {
    Interval::new(moment(start_secs), moment(end_secs)).map_err(|_| ObjectError::Invalid)
}

fn summary(info: &ObjectInfo) -> ObjectSummary {
    ObjectSummary {
        object: info.object,
        size_bytes: info.size_bytes,
        end_secs: if info.end == Moment::FOREVER {
            u64::MAX
        } else {
            info.end.as_secs()
        },
        is_reserved: info.reservation.is_some(),
    }
}

pub(super) fn space(done: Result<(), SpaceError>) -> Outcome {
    match done {
        Ok(()) => Ok(ObjectStepReply::Done),
        Err(SpaceError::UnknownStore(_) | SpaceError::Missing(_)) => Err(ObjectError::UnknownStore),
        Err(SpaceError::Conflict) => Err(ObjectError::Conflict),
        Err(SpaceError::NotHeld) => Err(ObjectError::NotHeld),
        Err(SpaceError::Store(StoreError::Refused {
            wanted,
            room,
            offer,
        })) => Err(ObjectError::NoRoom {
            wanted,
            room,
            offer_secs: seconds(offer.0),
        }),
        Err(SpaceError::Store(error)) => Err(failed(error)),
    }
}

fn seconds(offer: Option<Interval>) -> Option<(u64, u64)> {
    offer.map(|interval| (interval.start().as_secs(), interval.end().as_secs()))
}

#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
pub(super) fn failed(error: StoreError) -> ObjectError {
    error_of(&error)
}

/// The answer to a store's error. What is nobody's fault but the machine's goes to the log.
fn error_of(error: &StoreError) -> ObjectError {
    match error {
        StoreError::NotFound(_) => ObjectError::NotFound,
        StoreError::Exists(_) => ObjectError::Exists,
        StoreError::NoSpace { .. } => ObjectError::NoSpace,
        StoreError::Expired(_) => ObjectError::Expired,
        StoreError::NotHeld(_) => ObjectError::NotHeld,
        StoreError::Used { .. } => ObjectError::SpaceUsed,
        StoreError::Refused { offer, .. } => ObjectError::Refused {
            offer_secs: seconds(offer.0),
        },
        StoreError::Lifetime { .. } | StoreError::NotRenewable(_) => ObjectError::Lifetime,
        StoreError::TooLong { .. } => ObjectError::TooLong,
        StoreError::Superseded(_) => ObjectError::Superseded,
        StoreError::Attribute => ObjectError::Attribute,
        StoreError::TooMuch { .. } | StoreError::Sizes(_) => ObjectError::Invalid,
        StoreError::Damaged(_) => {
            if let Some(withheld) = DAMAGE_TOLD.pass(Instant::now()) {
                tracing::error!(%error, withheld, "an object is damaged");
            }
            ObjectError::Damaged
        }
        StoreError::ReadOnly | StoreError::Poisoned => ObjectError::ReadOnly,
        StoreError::Due(_)
        | StoreError::NotAStore
        | StoreError::Newer { .. }
        | StoreError::Foreign { .. }
        | StoreError::Shortened { .. }
        | StoreError::Older { .. }
        | StoreError::Device(_) => {
            tracing::error!(%error, "a device failed");
            ObjectError::Device
        }
    }
}
