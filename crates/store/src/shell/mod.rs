//! A store that many threads use: the core behind a lock, its I/O outside of it.
//!
//! ```text
//!  write, create, ...  ──► lock: a transaction of the core; data goes to the queue ──► returns
//!  commit              ──► waits until an entry of the log with all before it is durable
//!  read                ──► lock: a plan; then the device, verified, without the lock
//! ```
//!
//! * **Changes** are visible when they return and durable after a [`Store::commit`] that was called
//!   later. Nothing else says that something is durable.
//! * **Commits** that come while one is under way share the next one ([`group`]). A checkpoint goes
//!   on beside them, on a layer that was frozen for it.
//! * **Large data** goes from the caller's buffer to the device and back without a copy
//!   ([`queued`], [`read`]). What is being written is bounded; who writes beyond that waits.
//! * **The store's own I/O**, commits and checkpoints, goes when whoever shares the device among
//!   users lets it ([`gate`]).
//! * **Reads** do not hold the lock while the device works. If what a plan names was written over
//!   meanwhile, its checksums say so and the read begins anew.
//! * **Failures** of a write or a flush poison the store: reads go on, changes are refused, and
//!   [`Store::status`] says why.
//!
//! `now` comes from the clock that the store is opened with: seconds of its end decide about
//! lifetimes, so it should be the wall's.

mod alone;
mod gate;
mod group;
mod open;
mod queued;
mod read;
mod scrub;
mod status;
mod write;

use crate::core::{Checkpoint, Core, Due};
use crate::objects::{ObjectInfo, Page};
use crate::reserve::{How, Payer, Request, ReservationInfo, Terms};
use crate::transaction::Transaction;
use crate::{Attribute, Layout, Present, Report, Sought, StoreError, Wanted};
use base::limits::{STORE_RECLAIM_TIME_MAX, STORE_WAIT_TIME_MAX};
use base::{DeviceAction, DeviceError, Extent, ObjectId, Time};
pub use gate::{Gate, Pass};
pub use open::{Clock, stopped_clock};
use queued::Queued;
pub use read::Reading;
use reservation::Moment;
pub use status::Status;
use std::cmp::Ordering;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
pub use write::Writing;

/// Checkpoints that one change waits for before there is no space for its records.
const CHECKPOINTS_MAX: u32 = 8;

/// A store that many threads use. Dropped, it is stopped.
pub struct Store {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Something is done, or is not going to be.
    changed: Condvar,
    /// How far all is durable. Of its own, so that those who wait for it, many at once, do not all
    /// need the state when they wake.
    told: Mutex<Told>,
    durable: Condvar,
    committer: Condvar,
    keeper: Condvar,
    device: Arc<Queued>,
    clock: Clock,
}

struct State {
    core: Core,
    /// The number of the batch into which transactions go.
    batch: u64,
    /// All batches below are durable.
    durable: u64,
    /// All batches below are waited for.
    wanted: u64,
    /// How many wait for the batch, and waited for the one before.
    waiters: usize,
    waiters_before: usize,
    /// The committer waits for waiters.
    is_gathering: bool,
    /// When the batch got its first transaction.
    batch_since: Option<Instant>,
    /// How long the last entry took to become durable.
    flush_time: Duration,
    /// Somebody needs a checkpoint.
    wants_checkpoint: bool,
    /// Frozen and not begun yet.
    checkpoint: Option<Checkpoint>,
    /// How many are done.
    checkpoints: u64,
    commits: u64,
    has_committer: bool,
    is_stopping: bool,
    /// Somebody changes the store alone; others wait ([`alone`]).
    is_alone: bool,
    /// Why the store takes no changes any more.
    failure: Option<String>,
    /// A scrub has told that one superblock was lost.
    is_loss_told: bool,
}

/// What those who wait for a commit need to know.
#[derive(Clone, Copy, Default)]
struct Told {
    /// All batches below are durable.
    durable: u64,
    /// Nothing more will be.
    is_over: bool,
}

/// What has been changed up to some moment, on its way to be durable.
#[must_use = "only waiting says whether it is durable"]
pub struct Barrier {
    shared: Arc<Shared>,
    mark: u64,
}

impl Barrier {
    /// Waits until all of it is durable.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`]: it is not known to be. [`StoreError::Device`] after
    /// `STORE_WAIT_TIME_MAX`; it may become durable later.
    pub fn wait(self) -> Result<(), StoreError> {
        let told = self.shared.told.lock();
        let told = told.unwrap_or_else(PoisonError::into_inner);
        let waits = |told: &mut Told| told.durable < self.mark && !told.is_over;
        let durable = &self.shared.durable;
        let waited = durable.wait_timeout_while(told, STORE_WAIT_TIME_MAX, waits);
        let told = *waited.unwrap_or_else(PoisonError::into_inner).0;
        match (told.durable >= self.mark, told.is_over) {
            (true, _) => Ok(()),
            (false, true) => Err(StoreError::Poisoned),
            (false, false) => Err(timed_out()),
        }
    }
}

fn timed_out() -> StoreError {
    StoreError::Device(DeviceError::Failed {
        action: DeviceAction::Flush,
        extent: Extent::default(),
        source: io::ErrorKind::TimedOut.into(),
    })
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic within a transaction leaves what it staged behind, and nothing else.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a change of the core; what has to come first is seen to, and the change made again.
    fn change<T>(
        &self,
        change: impl FnMut(&mut Core, Time) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.change_at(change, false)
    }

    /// The same, `in_turn` if it is the caller who changes the store alone.
    fn change_at<T>(
        &self,
        mut change: impl FnMut(&mut Core, Time) -> Result<T, StoreError>,
        in_turn: bool,
    ) -> Result<T, StoreError> {
        let end = Instant::now() + STORE_WAIT_TIME_MAX;
        let (mut checkpoints, mut made_free, mut has_reclaimed) = (0, 0, false);
        let mut state = self.lock();
        loop {
            if !in_turn {
                state = self.wait_for_turn(state, end)?;
            }
            let now = (self.clock)();
            let error = match change(&mut state.core, now) {
                Ok(answer) => {
                    state.note_batch();
                    if state.core.is_batch_large() {
                        self.committer.notify_one();
                    }
                    return Ok(answer);
                }
                Err(error) => error,
            };
            state.note_batch();
            state = match (group::due(&error), &error) {
                (Some(Due::Commit), _) => {
                    let mark = state.batch + 1;
                    self.wait_for_commit(state, mark, end)?
                }
                (Some(Due::Checkpoint), _) => {
                    checkpoints += 1;
                    let none = StoreError::NoSpace { wanted: 1, free: 0 };
                    match checkpoints.cmp(&CHECKPOINTS_MAX) {
                        Ordering::Less => self.wait_for_checkpoint(state, end)?,
                        Ordering::Equal => self.make_free(state, end, in_turn)?.ok_or(none)?,
                        Ordering::Greater => return Err(none),
                    }
                }
                // What was deleted still counts until it is given back.
                (None, StoreError::Used { .. }) if !has_reclaimed => {
                    has_reclaimed = true;
                    self.reclaim_all(state, end, in_turn)?
                }
                // Each checkpoint frees some of what has been given back.
                (None, StoreError::NoSpace { .. } | StoreError::Refused { .. })
                    if made_free < CHECKPOINTS_MAX =>
                {
                    made_free += 1;
                    match self.make_free(state, end, in_turn)? {
                        Some(state) => state,
                        None => return Err(error),
                    }
                }
                _ => return Err(error),
            };
        }
    }

    /// Gives back what is over, in steps between which others have the store; `in_turn` if it is
    /// the caller who changes it alone.
    fn reclaim_all<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        end: Instant,
        in_turn: bool,
    ) -> Result<MutexGuard<'a, State>, StoreError> {
        loop {
            if !in_turn {
                state = self.wait_for_turn(state, end)?;
            }
            match state.reclaim_for_a_while() {
                // Who waits longer than anybody may gets what was given back by then.
                Ok(true) if Instant::now() >= end => return Ok(state),
                Ok(true) => state = group::wait(&self.changed, state, STORE_RECLAIM_TIME_MAX),
                Ok(false) => return Ok(state),
                Err(StoreError::Due(Due::Commit)) => {
                    let mark = state.batch + 1;
                    state = self.wait_for_commit(state, mark, end)?;
                }
                Err(StoreError::Due(Due::Checkpoint)) => {
                    state = self.wait_for_checkpoint(state, end)?;
                }
                Err(other) => return Err(other),
            }
        }
    }

    /// Gives back what is over and waits until some of it is free; none if there is nothing.
    fn make_free<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        end: Instant,
        in_turn: bool,
    ) -> Result<Option<MutexGuard<'a, State>>, StoreError> {
        let before = state.core.room();
        let mut state = self.reclaim_all(state, end, in_turn)?;
        while !state.core.room().has_more_than(before) {
            if state.core.has_frozen() {
                state = self.wait_for_checkpoint(state, end)?;
            } else if state.core.may_have_limbo() {
                // What is in limbo before it begins is free when it is done.
                state = self.wait_for_checkpoint(state, end)?;
            } else {
                return Ok(None);
            }
        }
        Ok(Some(state))
    }

    fn wait_for_commit<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mark: u64,
        end: Instant,
    ) -> Result<MutexGuard<'a, State>, StoreError> {
        state.wanted = state.wanted.max(mark);
        self.committer.notify_one();
        while state.durable < mark {
            state = self.wait_for_change(state, end)?;
        }
        Ok(state)
    }

    /// Waits until the checkpoint under way is done, or one that is begun now.
    fn wait_for_checkpoint<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        end: Instant,
    ) -> Result<MutexGuard<'a, State>, StoreError> {
        let before = state.checkpoints;
        if !state.core.has_frozen() {
            state.wants_checkpoint = true;
            self.committer.notify_one();
        }
        while state.checkpoints == before {
            state = self.wait_for_change(state, end)?;
        }
        Ok(state)
    }

    /// Says how far it is to all who wait.
    fn tell(&self, state: &State) {
        let told = Told {
            durable: state.durable,
            is_over: state.core.is_poisoned() || !state.has_committer,
        };
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = told;
        self.durable.notify_all();
        self.changed.notify_all();
    }

    /// Waits for news about what is done.
    fn wait_for_change<'a>(
        &self,
        state: MutexGuard<'a, State>,
        end: Instant,
    ) -> Result<MutexGuard<'a, State>, StoreError> {
        if state.core.is_poisoned() || !state.has_committer {
            return Err(StoreError::Poisoned);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(timed_out());
        }
        self.device.on_stall();
        Ok(group::wait(&self.changed, state, left))
    }

    fn barrier(self: &Arc<Self>) -> Barrier {
        let mut state = self.lock();
        let mark = state.batch + u64::from(state.core.has_batch());
        if mark > state.batch {
            state.wanted = state.wanted.max(mark);
            state.waiters += 1;
            let is_enough = !state.is_gathering || state.waiters >= state.waiters_before;
            if is_enough {
                self.committer.notify_one();
            }
        }
        let shared = Arc::clone(self);
        Barrier { shared, mark }
    }
}

impl State {
    /// Notes when a batch begins.
    fn note_batch(&mut self) {
        if self.batch_since.is_none() && self.core.has_batch() {
            self.batch_since = Some(Instant::now());
        }
    }
}

impl Store {
    /// Runs `change` as one transaction: all of it happens or, if it fails, nothing. It is run
    /// again if something has to come first.
    ///
    /// # Errors
    /// What `change` says, [`StoreError::TooMuch`], [`StoreError::NoSpace`],
    /// [`StoreError::Poisoned`].
    pub fn transact<T>(
        &self,
        mut change: impl FnMut(&mut Transaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.shared
            .change(|core, now| core.transact(now, &mut change))
    }

    /// Makes an object without bytes.
    ///
    /// # Errors
    /// See [`Core::create`].
    pub fn create(&self, object: ObjectId, terms: Terms) -> Result<(), StoreError> {
        self.create_from(object, terms, None)
    }

    /// As [`Self::create`], of an object without a reservation whose space one pays.
    ///
    /// # Errors
    /// See [`Core::create_from`].
    pub fn create_from(
        &self,
        object: ObjectId,
        terms: Terms,
        payer: Option<Payer>,
    ) -> Result<(), StoreError> {
        self.shared
            .change(|core, now| core.create_from(now, object, terms, payer))
    }

    /// Lets a gate decide when the store's own I/O goes to the device, from now on and for good.
    pub fn set_gate(&self, gate: Arc<dyn Gate>) {
        self.shared.device.set_gate(gate);
    }

    /// Makes the object so long.
    ///
    /// # Errors
    /// See [`Core::truncate`].
    pub fn truncate(&self, object: ObjectId, size_bytes: u64) -> Result<(), StoreError> {
        self.shared
            .change(|core, now| core.truncate(now, object, size_bytes))
    }

    /// Makes the object at most so long, and refuses from now on what comes by an older layout
    /// than one of this generation; makes it if it is not there. One that is of this generation
    /// already, or of a later one, stays as it is.
    ///
    /// # Errors
    /// See [`Core::cut`].
    pub fn cut(
        &self,
        object: ObjectId,
        size_bytes: u64,
        generation: u64,
    ) -> Result<(), StoreError> {
        self.shared
            .change(|core, now| core.cut(now, object, size_bytes, generation))
    }

    /// Makes bytes of the object zeros and gives back what whole AUs that frees.
    ///
    /// # Errors
    /// See [`Core::punch_so`].
    pub fn punch(
        &self,
        object: ObjectId,
        hole: Extent,
        how: impl Into<How>,
    ) -> Result<(), StoreError> {
        let how = how.into();
        self.shared
            .change(|core, now| core.punch_so(now, object, hole, how))
    }

    /// Gives the object the space for `extent`, whether it is written or not.
    ///
    /// # Errors
    /// See [`Core::allocate`].
    pub fn allocate(
        &self,
        object: ObjectId,
        extent: Extent,
        present: Present,
        how: impl Into<How>,
    ) -> Result<(), StoreError> {
        let how = how.into();
        if how.payer.is_none() {
            let check = |core: &mut Core, now| core.check_space_for(now, object, extent);
            self.shared.change(check)?;
        }
        let mut rest = extent;
        while !rest.is_empty() {
            // One transaction at a time: others change the store in between.
            let some = |core: &mut Core, now| core.allocate_some(now, object, rest, (present, how));
            rest = self.shared.change(some)?;
        }
        Ok(())
    }

    /// The next data or hole of the object at or after `offset`.
    ///
    /// # Errors
    /// See [`Core::seek`].
    pub fn seek(
        &self,
        object: ObjectId,
        offset: u64,
        wanted: Wanted,
    ) -> Result<Sought, StoreError> {
        self.ask(|core, now| core.seek(now, object, offset, wanted))
    }

    /// Removes the object.
    ///
    /// # Errors
    /// See [`Core::delete`].
    pub fn delete(&self, object: ObjectId) -> Result<(), StoreError> {
        self.shared.change(|core, now| core.delete(now, object))
    }

    /// Waits until all that was changed before is durable.
    ///
    /// # Errors
    /// See [`Barrier::wait`].
    pub fn commit(&self) -> Result<(), StoreError> {
        self.barrier().wait()
    }

    /// Begins to make durable all that was changed before.
    pub fn barrier(&self) -> Barrier {
        self.shared.barrier()
    }

    /// Makes all durable and lets the log begin anew, so that the next opening replays little.
    ///
    /// # Errors
    /// See [`Barrier::wait`].
    pub fn checkpoint(&self) -> Result<(), StoreError> {
        let end = Instant::now() + STORE_WAIT_TIME_MAX;
        let mut state = self.shared.lock();
        if state.core.has_frozen() {
            state = self.shared.wait_for_checkpoint(state, end)?;
        }
        self.shared.wait_for_checkpoint(state, end).map(drop)
    }

    /// What there is to say of an object.
    ///
    /// # Errors
    /// See [`Core::info`].
    pub fn info(&self, object: ObjectId) -> Result<ObjectInfo, StoreError> {
        self.ask(|core, now| core.info(now, object))
    }

    /// The attributes of an object, in the order of their names.
    ///
    /// # Errors
    /// See [`Core::attributes`].
    pub fn attributes(&self, object: ObjectId) -> Result<Vec<Attribute>, StoreError> {
        self.ask(|core, now| core.attributes(now, object))
    }

    /// Some objects from `from` on, and where to go on.
    ///
    /// # Errors
    /// See [`Core::list`].
    pub fn list(&self, from: ObjectId, count_max: usize) -> Result<Page, StoreError> {
        self.ask(|core, now| core.list(now, from, count_max))
    }

    /// Reserves space over time; durable with the next commit.
    ///
    /// # Errors
    /// See [`Core::reserve`].
    pub fn reserve(&self, request: Request) -> Result<u64, StoreError> {
        self.shared.change(|core, now| core.reserve(now, request))
    }

    /// Whether all of these would be admitted, one after another; nothing is taken.
    ///
    /// # Errors
    /// See [`Core::would_reserve`].
    pub fn would_reserve(&self, requests: &[Request]) -> Result<(), StoreError> {
        self.shared
            .change(|core, now| core.would_reserve(now, requests))
    }

    /// Lengthens a reservation; durable with the next commit.
    ///
    /// # Errors
    /// See [`Core::extend`].
    pub fn extend(&self, reservation: u64, end: Moment) -> Result<(), StoreError> {
        self.shared
            .change(|core, now| core.extend(now, reservation, end))
    }

    /// Lets an object live up to `end`; durable with the next commit.
    ///
    /// # Errors
    /// See [`Core::renew`].
    pub fn renew(&self, object: ObjectId, end: Moment) -> Result<(), StoreError> {
        self.shared.change(|core, now| core.renew(now, object, end))
    }

    /// Ends a reservation now; what it has made is over.
    ///
    /// # Errors
    /// See [`Core::release`].
    pub fn release(&self, reservation: u64) -> Result<(), StoreError> {
        self.shared
            .change(|core, now| core.release(now, reservation))
    }

    /// The first `count_max` reservations from number `from` on that are not over; fewer only if
    /// there are no more.
    ///
    /// # Errors
    /// See [`Core::reservations`].
    pub fn reservations(
        &self,
        from: u64,
        count_max: usize,
    ) -> Result<Vec<ReservationInfo>, StoreError> {
        self.ask(|core, _| core.reservations(from, count_max))
    }

    /// Gives back the space of everything that is over or deleted; also done by itself.
    ///
    /// # Errors
    /// See [`Core::reclaim`].
    pub fn reclaim(&self) -> Result<(), StoreError> {
        self.shared.reclaim()
    }

    /// Checks everything while nothing else happens; see [`Core::check`].
    ///
    /// # Errors
    /// See [`Core::check`].
    pub fn check(&self, data: bool) -> Result<Report, StoreError> {
        self.checkpoint()?;
        self.ask(|core, _| core.check(data))
    }

    /// Where everything lies.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.ask(|core, _| *core.layout())
    }

    /// Asks the core as it is now.
    fn ask<T>(&self, ask: impl FnOnce(&Core, Time) -> T) -> T {
        let state = self.shared.lock();
        ask(&state.core, (self.shared.clock)())
    }

    /// Makes all durable, with a checkpoint, and ends the store's threads. Says whether all that
    /// was changed is durable.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`], [`StoreError::Device`] if the device does not answer.
    pub fn stop(mut self) -> Result<(), StoreError> {
        let done = self.checkpoint();
        let ended = self.end();
        done?;
        ended
    }

    /// Commits what there is and ends the threads.
    fn end(&mut self) -> Result<(), StoreError> {
        self.shared.lock().is_stopping = true;
        self.shared.committer.notify_all();
        for thread in self.threads.drain(..) {
            // A panic there has been printed there.
            drop(thread.join());
        }
        let is_answered = self.shared.device.stop();
        let state = self.shared.lock();
        match is_answered && !state.core.is_poisoned() {
            true => Ok(()),
            false => Err(StoreError::Poisoned),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            // Who wants to know calls `stop`.
            let _ = self.end();
        }
    }
}
