//! One dispatcher for each device: what is due goes to it, carried out by a few threads.
//!
//! ```text
//!  submit ──► order (scheduler) ──► ready ──► lane: store ──► device
//!   gate  ──►    │   ▲                         │
//!                │   └──── complete, stall ◄───┘
//!                └──► the store's own threads, which wait at the gate
//! ```
//! The order decides under one lock, held for microseconds. What it gives out is *ready*: pieces
//! for *lanes*, threads that call the store and wait for the device, as many as pieces may be
//! under way; or one of the store's own threads, which goes on by itself. A lane that has done a
//! piece takes the next; one that rests is woken for a piece that nobody takes ([`resting`]), when
//! the lock is free again.
//!
//! A piece that stalls (see [`order`]) keeps its lane; another lane takes its place, up to
//! [`STALLS_MAX`]. Pieces without a share are no more than [`SHARED_STALLS_MAX`] of these: a flood
//! of small writes that wait for a commit leaves lanes and the device to what is reserved. From
//! [`URGENT_STALLS`] on the store's own I/O does not wait at the gate any more: what so many wait
//! for is urgent. So a checkpoint that writers wait for never waits for these writers. What waits
//! for another request is put aside ([`put_aside`]) and counts for none of that: it has neither a
//! lane nor a place, and it is ready again when that one is done.

mod history;
mod order;
mod past;
mod resting;
#[cfg(test)]
mod tests;

pub(crate) use history::History;
pub use history::Totals;
use order::SHARED_STALLS_MAX;
pub(crate) use order::{Figures, OpenError, Order};
pub(crate) use past::Noted;

use super::clock::StorageClock;
use super::company::{Companion, Company};
use super::model::{Plan, REQUESTS_IN_FLIGHT_MAX};
use base::limits::{GATE_TIME_MAX, TICKET_COLLECT_INTERVAL};
use base::ticket::Grant;
use base::{StoreId, TicketId};
use reservation::scheduler::{Operation, Rejection, RequestKey, Source, TicketKey, TicketSecond};
use resting::Resting;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};
use store::device::Direction;
use store::{Gate, Pass};

/// Lanes beyond those that may be at the device: one for each piece that stalls.
const STALLS_MAX: usize = SHARED_STALLS_MAX + REQUESTS_IN_FLIGHT_MAX;
/// From so many on, what they wait for is urgent. Before pieces without a share are held back:
/// those that are at the device are no more than the rest.
const URGENT_STALLS: usize = SHARED_STALLS_MAX - REQUESTS_IN_FLIGHT_MAX;
/// Tickets of which is noted what they got, between two requests.
const NOTED_AT_ONCE: usize = 32;
/// How often the store's own I/O looks whether it is waited for meanwhile.
const GATE_LOOK_TIME: Duration = Duration::from_millis(2);

/// What a lane carries out: says how many bytes were moved.
pub(crate) type Task = Box<dyn FnOnce() -> u64 + Send>;

/// What the order gives out.
enum Piece {
    /// For a lane.
    Task(Task),
    /// For a thread of the store's, which waits to be told its key.
    Own(SyncSender<RequestKey>),
}

struct State {
    order: Order<Piece>,
    ready: VecDeque<(RequestKey, Task)>,
    resting: Resting<Thread>,
    lanes: Vec<JoinHandle<()>>,
    is_stopping: bool,
    /// What other stores on this disk are told.
    companion: Companion,
}

impl State {
    /// Tells the other stores on this disk whether there is something to do, and hears it of them.
    fn keep_company(&mut self) {
        let busy = self
            .companion
            .say(self.order.has_work() && !self.is_stopping);
        self.order.set_busy(busy);
    }
}

struct Shared {
    state: Mutex<State>,
    clock: Arc<StorageClock>,
}

/// See the module's head. Dropped, it drops what waits and ends its threads.
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
}

thread_local! {
    /// What the calling lane carries out.
    static AT: RefCell<Option<(Weak<Shared>, RequestKey)>> = const { RefCell::new(None) };
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands on whatever the order gives out.
    fn poll(&self, state: &mut State) {
        let now = self.clock.now();
        state.keep_company();
        while let Some(next) = state.order.poll(now) {
            match next.content {
                Piece::Task(task) => state.ready.push_back((next.key, task)),
                Piece::Own(waiter) => {
                    if waiter.try_send(next.key).is_err() {
                        // It has gone on without.
                        state.order.complete(now, next.key, 0);
                        state.keep_company();
                    }
                }
            }
        }
    }

    /// Gives the lock back and wakes lanes for what is ready.
    fn release(mut state: MutexGuard<'_, State>) {
        let (ready, ask) = (state.ready.len(), state.order.next_time());
        let woken = state.resting.call(ready, ask);
        drop(state);
        woken.iter().for_each(Thread::unpark);
    }

    fn run_lane(self: &Arc<Self>, lane: usize) {
        let mut done = None;
        while let Some((key, task)) = self.next(lane, done.take()) {
            AT.set(Some((Arc::downgrade(self), key)));
            // A task that panics is a bug of its own; its text has been printed where it happened.
            let bytes = catch_unwind(AssertUnwindSafe(task)).unwrap_or(0);
            // What was put aside is not done.
            done = AT.take().map(|_| (key, bytes));
        }
    }

    /// The next piece for a lane, which has done one; none if it is to end.
    fn next(&self, lane: usize, done: Option<(RequestKey, u64)>) -> Option<(RequestKey, Task)> {
        let mut state = self.lock();
        if let Some((key, bytes)) = done {
            state.order.complete(self.clock.now(), key, bytes);
            self.poll(&mut state);
        }
        loop {
            if state.is_stopping {
                return None;
            }
            if let Some(piece) = state.ready.pop_front() {
                Self::release(state);
                return Some(piece);
            }
            state = self.rest(lane, state);
        }
    }

    /// Waits for work, or until the order has to be asked again.
    fn rest<'a>(&'a self, lane: usize, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let now = self.clock.now();
        let latest = now + TICKET_COLLECT_INTERVAL;
        let ask = state
            .order
            .next_time()
            .map_or(latest, |ask| ask.min(latest));
        let until = state.resting.rest(lane, thread::current(), ask);
        drop(state);
        match until {
            Some(until) => thread::park_timeout(until.since(now)),
            None => thread::park(),
        }
        let mut state = self.lock();
        if !state.resting.came(lane) {
            self.poll(&mut state);
        }
        state
    }

    fn add_lane(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let (shared, number) = (self.clone(), state.lanes.len());
        let lane = thread::Builder::new().name(format!("lane-{number}"));
        state
            .lanes
            .push(lane.spawn(move || shared.run_lane(number))?);
        Ok(())
    }

    /// The piece of the calling lane stands still.
    fn stall(self: &Arc<Self>, key: RequestKey) {
        let mut state = self.lock();
        if state.order.stalled() >= STALLS_MAX {
            return;
        }
        state.order.stall(self.clock.now(), key);
        let wanted = REQUESTS_IN_FLIGHT_MAX + state.order.stalled();
        if state.lanes.len() < wanted && !state.is_stopping {
            // Without a further lane there is one less for a while.
            let _ = self.add_lane(&mut state);
        }
        self.poll(&mut state);
        Self::release(state);
    }
}

impl Dispatcher {
    /// Starts a device's threads.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub(crate) fn start(
        clock: Arc<StorageClock>,
        plan: Arc<Plan>,
        company: Arc<Company>,
        is_first_come: bool,
    ) -> io::Result<Self> {
        let this = Self::new(clock, plan, company, is_first_come);
        this.begin()?;
        Ok(this)
    }

    /// One that has no threads yet: what is accepted waits until it begins.
    pub(crate) fn new(
        clock: Arc<StorageClock>,
        plan: Arc<Plan>,
        company: Arc<Company>,
        is_first_come: bool,
    ) -> Self {
        let order = Order::new(clock.now(), plan, is_first_come);
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                order,
                ready: VecDeque::new(),
                resting: Resting::new(),
                lanes: Vec::new(),
                is_stopping: false,
                companion: Companion::new(company),
            }),
            clock,
        });
        Self { shared }
    }

    /// Starts the threads, if they are not there.
    ///
    /// # Errors
    /// If there can be no more threads; what there is goes on, and the others are tried again.
    pub(crate) fn begin(&self) -> io::Result<()> {
        let mut state = self.shared.lock();
        while state.lanes.len() < REQUESTS_IN_FLIGHT_MAX && !state.is_stopping {
            self.shared.add_lane(&mut state)?;
        }
        Ok(())
    }

    /// How many threads there are.
    #[cfg(test)]
    pub(super) fn lanes(&self) -> usize {
        self.shared.lock().lanes.len()
    }

    /// The gate for the store on this device.
    pub(crate) fn gate(&self) -> Arc<dyn Gate> {
        Arc::new(Doorway {
            shared: Arc::downgrade(&self.shared),
            plan: self.shared.lock().order.plan().clone(),
        })
    }

    /// Accepts pieces. One that is not accepted is dropped.
    ///
    /// # Errors
    /// [`Rejection`] of the last one that was not; the others are carried out.
    pub(crate) fn submit(
        &self,
        source: Source,
        pieces: impl IntoIterator<Item = (Operation, u32, Task)>,
    ) -> Result<(), Rejection> {
        let mut state = self.shared.lock();
        if state.is_stopping {
            drop(state);
            drop(pieces);
            return Err(Rejection::QueueFull);
        }
        let now = self.shared.clock.now();
        let (mut outcome, mut refused) = (Ok(()), Vec::new());
        for (operation, bytes, task) in pieces {
            let content = Piece::Task(task);
            let submitted = state.order.submit(now, source, (operation, bytes), content);
            if let Err((rejection, content)) = submitted {
                outcome = Err(rejection);
                refused.push(content);
            }
        }
        self.shared.poll(&mut state);
        Shared::release(state);
        // Without the lock: who is told by that may have the next piece.
        drop(refused);
        outcome
    }

    /// Whoever this is waits for the store's own work, until what is returned is dropped. If he has
    /// a share, that work goes before what has none.
    pub(crate) fn hurry(&self, source: Source) -> Option<Hurry> {
        let mut state = self.shared.lock();
        let is_hurried = state.order.hurry(self.shared.clock.now(), source);
        if is_hurried {
            self.shared.poll(&mut state);
        }
        Shared::release(state);
        is_hurried.then(|| Hurry(Arc::downgrade(&self.shared)))
    }

    #[cfg(test)]
    pub(super) fn hurrying(&self) -> usize {
        self.shared.lock().order.hurrying()
    }

    /// Opens a ticket that was verified.
    ///
    /// # Errors
    /// [`OpenError`].
    pub(crate) fn open(&self, grant: &Grant, store: StoreId) -> Result<TicketKey, OpenError> {
        let mut state = self.shared.lock();
        state.order.open(self.shared.clock.now(), grant, store)
    }

    /// Takes tickets back.
    pub(crate) fn revoke(&self, is_revoked: impl Fn(TicketId, u64) -> bool) {
        let mut state = self.shared.lock();
        state.order.revoke(self.shared.clock.now(), is_revoked);
        self.shared.poll(&mut state);
        Shared::release(state);
    }

    /// Whether a ticket is open here.
    pub(crate) fn is_open(&self, lineage: &[TicketId]) -> bool {
        self.shared.lock().order.find(lineage).is_some()
    }

    /// The seconds of a ticket that is open, or was, from one on, and sums over all.
    pub(crate) fn record(
        &self,
        lineage: &[TicketId],
        from_second: u64,
    ) -> Option<(Vec<TicketSecond>, Totals)> {
        let mut state = self.shared.lock();
        state
            .order
            .record_of(self.shared.clock.now(), lineage, from_second)
    }

    /// What there is to note of all its tickets, with so many seconds of each. Holds requests up
    /// for no longer than a few of them take.
    pub(crate) fn noted(&self, seconds_max: usize) -> Vec<Noted> {
        let mut all: Vec<Noted> = Vec::new();
        loop {
            let mut state = self.shared.lock();
            let after = all.last().map(|last| last.lineage.as_slice());
            let bounds = (NOTED_AT_ONCE, seconds_max);
            let some = state.order.noted(self.shared.clock.now(), after, bounds);
            drop(state);
            let is_last = some.len() < NOTED_AT_ONCE;
            all.extend(some);
            if is_last {
                return all;
            }
        }
    }

    /// Takes what an earlier run has noted.
    pub(crate) fn remember(&self, noted: Noted) {
        let mut state = self.shared.lock();
        state.order.remember(self.shared.clock.now(), noted);
    }

    /// How it is.
    pub(crate) fn figures(&self) -> Figures {
        self.shared.lock().order.figures(self.shared.clock.now())
    }

    /// Ends the threads when they have done what they are at; what waits is dropped, and nothing
    /// is accepted any more.
    pub(crate) fn stop(&self) {
        let mut state = self.shared.lock();
        state.is_stopping = true;
        let lanes = std::mem::take(&mut state.lanes);
        let ready = std::mem::take(&mut state.ready);
        let resting = state.resting.end();
        drop(state);
        resting.iter().for_each(Thread::unpark);
        drop(ready);
        for lane in lanes {
            if lane.thread().id() != thread::current().id() {
                // A panic there has been printed there.
                drop(lane.join());
            }
        }
        let mut state = self.shared.lock();
        let waiting = state.order.take_waiting(self.shared.clock.now());
        state.keep_company();
        // What was chosen while the last threads ended.
        let ready = std::mem::take(&mut state.ready);
        drop(state);
        drop((ready, waiting));
    }
}

impl Drop for Dispatcher {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the calling lane carries out is going to wait for something other than the device; nothing
/// on other threads.
pub(super) fn stall() {
    let at = AT.with_borrow(Clone::clone);
    if let Some((shared, key)) = at
        && let Some(shared) = shared.upgrade()
    {
        shared.stall(key);
    }
}

/// A piece that was put aside. Dropped, it is done.
pub(super) struct Aside(Option<(Weak<Shared>, RequestKey)>);

/// Takes what the calling lane carries out from it: the lane does something else when it is left,
/// and the piece goes on later. Nothing on other threads.
pub(super) fn put_aside() -> Option<Aside> {
    let (shared, key) = AT.take()?;
    if let Some(shared) = shared.upgrade() {
        let mut state = shared.lock();
        state.order.put_aside(shared.clock.now(), key);
        shared.poll(&mut state);
        Shared::release(state);
    }
    Some(Aside(Some((shared, key))))
}

impl Aside {
    /// The piece goes on in a lane, with what is left of it. Not if the lanes have ended; nothing
    /// is made then.
    pub(super) fn go_on(mut self, rest: impl FnOnce() -> Task) -> bool {
        let Some((shared, key)) = self.0.take() else {
            return false;
        };
        let Some(shared) = shared.upgrade() else {
            return false;
        };
        let mut state = shared.lock();
        let is_stopping = state.is_stopping;
        if is_stopping {
            state.order.complete(shared.clock.now(), key, 0);
        } else {
            state.ready.push_back((key, rest()));
        }
        Shared::release(state);
        !is_stopping
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if let Some((shared, key)) = self.0.take()
            && let Some(shared) = shared.upgrade()
        {
            let mut state = shared.lock();
            state.order.complete(shared.clock.now(), key, 0);
        }
    }
}

/// See [`Dispatcher::hurry`].
pub(crate) struct Hurry(Weak<Shared>);

impl Drop for Hurry {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.lock().order.hurried();
        }
    }
}

/// The gate: the store's own threads wait here for their turn.
struct Doorway {
    shared: Weak<Shared>,
    plan: Arc<Plan>,
}

/// A turn of the store's own I/O, until it is done.
struct Turn {
    shared: Weak<Shared>,
    key: RequestKey,
    bytes: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            let mut state = shared.lock();
            state
                .order
                .complete(shared.clock.now(), self.key, self.bytes);
            shared.poll(&mut state);
            Shared::release(state);
        }
    }
}

fn operation(direction: Direction) -> Operation {
    match direction {
        Direction::Read => Operation::Read,
        Direction::Write => Operation::Write,
    }
}

impl Gate for Doorway {
    fn enter(&self, direction: Direction, bytes: u64) -> Pass {
        let none: Pass = Box::new(());
        let Some(shared) = self.shared.upgrade() else {
            return none;
        };
        let (sender, turn) = sync_channel(1);
        {
            let mut state = shared.lock();
            if state.is_stopping || state.order.stalled() >= URGENT_STALLS {
                return none;
            }
            let now = shared.clock.now();
            let size = u32::try_from(bytes).unwrap_or(u32::MAX);
            let (cost, content) = ((operation(direction), size), Piece::Own(sender));
            let submitted = state.order.submit(now, Source::Background, cost, content);
            if submitted.is_err() {
                return none;
            }
            shared.poll(&mut state);
            Shared::release(state);
        }
        let begin = Instant::now();
        let key = loop {
            match turn.recv_timeout(GATE_LOOK_TIME) {
                Ok(key) => break Some(key),
                Err(RecvTimeoutError::Disconnected) => break None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            // A commit that waits for long is late enough, and one that so many wait for is urgent.
            // Under the lock nobody gives it a turn: either that has come meanwhile, or it finds
            // nobody.
            let state = shared.lock();
            if state.order.stalled() >= URGENT_STALLS || begin.elapsed() >= GATE_TIME_MAX {
                let last = turn.try_recv().ok();
                drop(turn);
                break last;
            }
        };
        match key {
            Some(key) => Box::new(Turn {
                shared: self.shared.clone(),
                key,
                bytes,
            }),
            None => none,
        }
    }

    fn pass_bytes_max(&self, direction: Direction) -> u64 {
        self.plan.piece_bytes(operation(direction)).into()
    }

    fn on_stall(&self) {
        stall();
    }
}
