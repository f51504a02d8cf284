//! Who is next at one device: the promised shares, then everybody else, then the house's own work.
//!
//! One scheduler has one device, whole: split into several queues, each would have to guess its
//! part of every promise. Where several have one all the same ([`Shape::sharers`]), each
//! promises and keeps an equal part of it; what one has not promised no other one can. It thinks in
//! *device time*. The calibration says how much of a device's second a request takes
//! ([`CostModel`]); a ticket says which part of every second it has; bytes are only counted. It
//! does no I/O and reads no clock; whoever drives the device asks it.
//!
//! # Order
//!
//! 1. What is **due**: the requests of tickets whose share allows one, those of the unreserved
//!    floor and of the background floor; the earliest deadline first ([`pace`]).
//! 2. The **leftover**, if nothing is due: one pool of all users by weight ([`users`]). A ticket's
//!    requests beyond its share are in it, too, in the name of its holder.
//! 3. **Background** work beyond its floor, if nothing else waits at all. While somebody who has
//!    a share waits for that work, as a writer does for a commit, it goes before the leftover, with
//!    a quarter of the device at most: what is promised would otherwise wait for what is not, and
//!    more than that would be others' loss.
//!
//! So the device is never idle while something waits (except for the caps of users, which are made
//! to do that), and a promise that nobody uses is everybody's.
//!
//! # What bounds a wait
//!
//! A device cannot be interrupted and its own queue knows no tickets. Two bounds follow: a request
//! costs at most a *quantum* (the caller splits larger ones), and the device holds at most
//! `in_flight` of device time. When the next request in order does not fit, nobody overtakes it. A
//! due request is at the device after what was in flight, and those with earlier deadlines: at most
//! a quantum of each other claimant that has not had its share.
//!
//! # A device that is slower than it was
//!
//! Promised shares are kept on a *promise clock*, which goes with time as long as deadlines are
//! met. If the most urgent request is late by more than [`SCHEDULER_CATCH_UP_TIME_MAX`], the clock
//! is held back by the rest. Less than that is made good as soon as the device can; more is lost to
//! all claimants alike, in proportion to their shares, floors included: an overloaded device
//! divides what it has as it was promised. A clock of the caller that leaps ahead looks the same
//! and does no harm; one that steps back stands still until it goes on.
//!
//! # Tickets that were split
//!
//! A child's share is taken out of its parent's for as long as the child is open, and refused if it
//! is not there. Whatever holders tell their workers, all of them together have at most what the
//! first ticket had.
//!
//! # Call order
//!
//! ```text
//! open_ticket(now, key, terms)         when a ticket is first shown, or when its time comes near
//! submit(now, source, work, content)   or a Rejection; then, and after each completion:
//! while let Some(next) = poll(now)     give it to the device
//! complete(now, next.key, bytes)       when the device has done it, or failed (bytes: 0)
//! take_record(now, key)                every few seconds: seconds met, and causes of shortfalls
//! close_ticket(now, key)               some time after its end
//! ```
//!
//! Each call costs O(log n) in the number of tickets, users and requests that wait.

mod cost;
mod device;
mod flow;
mod pace;
mod record;
mod terms;
mod tickets;
mod users;

pub use cost::{CostModel, Load, Measured, ModelError, Operation};
pub use record::{Cause, TicketSecond};
pub use terms::{
    Dispatch, Rejection, RequestKey, Right, Shape, Source, TicketKey, TicketTerms, UserKey,
    UserTerms, WHOLE_PPM, Work,
};

use base::Time;
use base::limits::{
    SCHEDULER_CATCH_UP_TIME_MAX, SCHEDULER_QUEUE_REQUESTS_MAX, SCHEDULER_SHARED_REQUESTS_MAX,
    SCHEDULER_USERS_MAX,
};
use device::{Flying, Health, InFlight};
use flow::{Flow, Queued};
use pace::{Agenda, Claimant, Pace};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use terms::nanos;
use tickets::Ticket;
use users::Users;

/// Part of the device that background work has before the leftover, in millionths.
const HURRIED_PPM: u32 = 250_000;

/// See the module's head. `T` is whatever the caller needs to carry a request out.
#[derive(Debug)]
pub struct Scheduler<T> {
    quantum_nanos: u64,
    /// What the caller's clock said last.
    now: Time,
    /// Nanoseconds of that clock, which never step back.
    time: u64,
    /// The promise clock. It goes as many times slower as schedulers have the device together: what
    /// each promises are shares of its part.
    clock: u64,
    /// Time that is too short for a nanosecond of that clock.
    clock_rest: u64,
    slipped_nanos: u64,
    agenda: Agenda,
    tickets: BTreeMap<TicketKey, Ticket<T>>,
    /// Those that were split from others, by these.
    children: BTreeSet<(TicketKey, TicketKey)>,
    /// When tickets begin and end.
    stages: BTreeSet<(u64, TicketKey)>,
    /// Shares of tickets that have begun, and both floors.
    promised_ppm: u64,
    users: Users,
    /// Requests of users without a ticket.
    flows: BTreeMap<UserKey, Flow<T>>,
    /// How many these are.
    shared_waiting: usize,
    /// Whether none of that is given out for now.
    is_shared_held: bool,
    /// Whether background work goes before the leftover.
    is_background_hurried: bool,
    /// How much of it does.
    hurried_pace: Pace,
    shared_pace: Pace,
    /// Whether somebody could be served as leftover.
    is_shared_ready: bool,
    background: Flow<T>,
    background_pace: Pace,
    /// Where each request waits.
    waiting: BTreeMap<RequestKey, Source>,
    last_key: u64,
    in_flight: InFlight,
    health: Health,
}

/// What is next, and who pays.
#[derive(Clone, Copy, Debug)]
struct Choice {
    source: Source,
    /// Whose share pays, if it is due.
    claimant: Option<Claimant>,
    /// Whose part of the leftover pays.
    user: Option<UserKey>,
    /// Whether it is hurried background work that goes before somebody's leftover.
    passes_over: bool,
}

impl<T> Scheduler<T> {
    /// The scheduler of a device that has nothing to do.
    ///
    /// # Panics
    /// If the quantum is zero or more than may be in flight, if no request may be in flight, or if
    /// the floors are more than the whole, or if nobody has the device.
    #[must_use]
    pub fn new(now: Time, shape: &Shape) -> Self {
        let floors = u64::from(shape.unreserved_floor_ppm) + u64::from(shape.background_floor_ppm);
        assert!(
            !shape.quantum.is_zero() && shape.quantum <= shape.in_flight,
            "a device that can be given nothing"
        );
        assert!(shape.requests_in_flight > 0, "a device without a queue");
        assert!(floors <= u64::from(WHOLE_PPM), "floors above the whole");
        assert!(shape.sharers > 0, "a device that nobody has");
        let time = now.as_nanos();
        Self {
            quantum_nanos: nanos(shape.quantum),
            now,
            time,
            clock: time,
            clock_rest: 0,
            slipped_nanos: 0,
            agenda: Agenda::default(),
            tickets: BTreeMap::new(),
            children: BTreeSet::new(),
            stages: BTreeSet::new(),
            promised_ppm: floors,
            users: Users::default(),
            flows: BTreeMap::new(),
            shared_waiting: 0,
            is_shared_held: false,
            is_background_hurried: false,
            hurried_pace: Pace::new(HURRIED_PPM, 0),
            shared_pace: Pace::new(shape.unreserved_floor_ppm, 0),
            is_shared_ready: false,
            background: Flow::new(),
            background_pace: Pace::new(shape.background_floor_ppm, 0),
            waiting: BTreeMap::new(),
            last_key: 0,
            in_flight: InFlight::new(shape),
            health: Health::new(time, shape.sharers),
        }
    }

    /// The largest cost of one request.
    #[must_use]
    pub fn quantum(&self) -> Duration {
        Duration::from_nanos(self.quantum_nanos)
    }

    /// Requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Device time of what is at the device.
    #[must_use]
    pub fn in_flight(&self) -> Duration {
        Duration::from_nanos(self.in_flight.nanos())
    }

    /// Whether it has nothing to do.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }

    /// Of the schedulers that have this device together, so many have something to do now, this one
    /// included: each of them gives the device an equal part of what it may hold at once, though a
    /// quantum at least.
    pub fn set_busy(&mut self, busy: u32) {
        self.in_flight.set_busy(busy);
    }

    /// Whether the device has been slower than what is promised for some seconds. Then nothing more
    /// should be promised.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.health.is_degraded()
    }

    /// Device time that the device did in a second, in millionths of one, when it last had as much
    /// to do as it could; `None` if it never had.
    #[must_use]
    pub fn speed_ppm(&self) -> Option<u32> {
        self.health.speed_ppm()
    }

    /// By how much the promise clock was held back in all.
    #[must_use]
    pub fn slipped(&self) -> Duration {
        Duration::from_nanos(self.slipped_nanos)
    }

    /// Weight and cap of a user from now on; the default ones are forgotten.
    ///
    /// # Errors
    /// [`Rejection::TooManyUsers`]; [`Rejection::BadTerms`] for a weight or a cap of zero.
    pub fn set_user(&mut self, user: UserKey, terms: UserTerms) -> Result<(), Rejection> {
        if terms.weight == 0 || terms.cap_ppm == Some(0) {
            return Err(Rejection::BadTerms);
        }
        if !self.users.can_set_terms(user, terms) {
            return Err(Rejection::TooManyUsers);
        }
        self.users.set_terms(user, terms);
        Ok(())
    }

    /// Accepts a request, or gives it back with the reason.
    ///
    /// # Errors
    /// [`Rejection`] says why not.
    pub fn submit(
        &mut self,
        now: Time,
        source: Source,
        work: Work,
        content: T,
    ) -> Result<RequestKey, (Rejection, T)> {
        self.advance(now);
        if let Err(rejection) = self.admissible(source, work) {
            return Err((rejection, content));
        }
        self.last_key += 1;
        let key = RequestKey(self.last_key);
        self.touch(source);
        self.enqueue(source, key, Queued { work, content });
        Ok(key)
    }

    fn admissible(&self, source: Source, work: Work) -> Result<(), Rejection> {
        if work.cost_nanos > self.quantum_nanos {
            return Err(Rejection::TooLarge {
                cost_nanos: work.cost_nanos,
                quantum_nanos: self.quantum_nanos,
            });
        }
        let (waiting, user) = match source {
            Source::Background => (self.background.len(), None),
            Source::User(user) => (self.flows.get(&user).map_or(0, Flow::len), Some(user)),
            Source::Ticket(key) => {
                let ticket = self.tickets.get(&key).ok_or(Rejection::UnknownTicket)?;
                ticket.check_open()?;
                (ticket.flow.len(), Some(ticket.holder))
            }
        };
        if waiting >= SCHEDULER_QUEUE_REQUESTS_MAX {
            return Err(Rejection::QueueFull);
        }
        // What comes with a ticket is bounded by the tickets: a flood of others takes no room.
        if let (Source::User(_), Some(user)) = (source, user) {
            if self.shared_waiting >= SCHEDULER_SHARED_REQUESTS_MAX {
                return Err(Rejection::SharedFull);
            }
            if !self.users.knows(user) && self.users.len() >= SCHEDULER_USERS_MAX {
                return Err(Rejection::TooManyUsers);
            }
        }
        Ok(())
    }

    /// Takes a request back that has not gone to the device.
    pub fn cancel(&mut self, now: Time, key: RequestKey) -> Option<T> {
        self.advance(now);
        let source = self.waiting.remove(&key)?;
        self.touch(source);
        let queued = self.flow(source).remove(key);
        let queued = queued.expect("what waits is in the flow that was noted");
        self.on_shorter(source);
        Some(queued.content)
    }

    /// Whether nothing is given out for now but what comes with a ticket and has its share, and
    /// background work: for a caller that has no hands left for the rest.
    pub fn hold_shared(&mut self, is_held: bool) {
        self.is_shared_held = is_held;
    }

    /// Whether somebody with a share waits for background work, which then goes before the
    /// leftover as far as a quarter of the device goes, and still after what is due.
    pub fn hurry_background(&mut self, is_hurried: bool) {
        self.is_background_hurried = is_hurried;
    }

    /// The next request for the device, if there is one that it should be given now.
    pub fn poll(&mut self, now: Time) -> Option<Dispatch<T>> {
        self.advance(now);
        let choice = self.choose()?;
        let cost_nanos = self.flow(choice.source).next_cost()?;
        if !self.in_flight.has_room(cost_nanos) {
            // Whoever is next is not overtaken: smaller requests would keep the device full.
            return None;
        }
        Some(self.dispatch(choice, cost_nanos))
    }

    /// When to ask again if there is no [`Self::poll`] to be had although something waits and
    /// nothing is in flight: users wait for their caps.
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        let until = self.users.next_time()?;
        Some(self.now + Duration::from_nanos(until.saturating_sub(self.time)))
    }

    /// The device has done a request and moved `bytes`; zero if it failed.
    ///
    /// # Panics
    /// If it was not at the device, which is a mistake in the caller's accounts.
    pub fn complete(&mut self, now: Time, key: RequestKey, bytes: u64) {
        self.advance(now);
        let flying = self.in_flight.remove(key);
        let flying = flying.expect("a request is done once, after it was given out");
        self.touch(flying.source);
        self.health.finish(flying.work.cost_nanos);
        if let Source::Ticket(ticket) = flying.source
            && let Some(ticket) = self.tickets.get_mut(&ticket)
        {
            ticket.land(key, bytes, flying.work.cost_nanos);
        }
    }

    /// What is next, in the order of the module's head.
    fn choose(&mut self) -> Option<Choice> {
        let next = match self.is_shared_held {
            true => None,
            false => self.users.next(self.time),
        };
        self.list_shared(next.is_some());
        if let Some((claimant, deadline)) = self.agenda.first_due(self.clock) {
            self.hold_clock(deadline);
            let (source, user) = match claimant {
                Claimant::Ticket(ticket) => (Source::Ticket(ticket), None),
                Claimant::Background => (Source::Background, None),
                Claimant::Shared => {
                    let (user, source) = next.expect("the pool is listed if somebody is next");
                    (source, Some(user))
                }
            };
            return Some(Choice {
                source,
                claimant: Some(claimant),
                user,
                passes_over: false,
            });
        }
        let passes_over = self.is_background_hurried
            && !self.background.is_empty()
            && self.hurried_pace.is_eligible(self.clock)
            && next.is_some();
        let (source, user) = match next {
            _ if passes_over => (Source::Background, None),
            Some((user, source)) => (source, Some(user)),
            // Users who wait for their caps do not keep it back: they could not go anyway.
            None if !self.background.is_empty() => (Source::Background, None),
            None => return None,
        };
        Some(Choice {
            source,
            claimant: None,
            user,
            passes_over,
        })
    }

    /// If the most urgent request is too late, the promise clock waits for it.
    fn hold_clock(&mut self, deadline: u64) {
        let latest = deadline.saturating_add(nanos(SCHEDULER_CATCH_UP_TIME_MAX));
        if let Some(slip) = self.clock.checked_sub(latest) {
            self.clock = latest;
            self.slipped_nanos += slip;
        }
    }

    fn dispatch(&mut self, choice: Choice, cost_nanos: u64) -> Dispatch<T> {
        let source = choice.source;
        self.touch(source);
        let (key, queued) = self.flow(source).pop().expect("it has a next request");
        self.waiting.remove(&key);
        if let Some(user) = choice.user {
            let turn = self
                .flow(source)
                .turn
                .expect("it was in its user's rotation");
            let turn = self.users.charge(user, turn, cost_nanos);
            self.flow(source).turn = Some(turn);
        }
        match choice.claimant {
            Some(Claimant::Background) => self.background_pace.charge(cost_nanos),
            Some(Claimant::Shared) => {
                self.shared_pace.charge(cost_nanos);
                let quantum = Some(self.quantum_nanos);
                self.agenda
                    .list(Claimant::Shared, &mut self.shared_pace, quantum);
            }
            Some(Claimant::Ticket(ticket)) => {
                let ticket = self.tickets.get_mut(&ticket).expect("it was listed");
                ticket.pace.charge(cost_nanos);
            }
            None if choice.passes_over => {
                self.hurried_pace.wake(self.clock);
                self.hurried_pace.charge(cost_nanos);
            }
            None => {}
        }
        let work = queued.work;
        self.in_flight.add(key, Flying { source, work });
        if let Source::Ticket(ticket) = source {
            let ticket = self.tickets.get_mut(&ticket).expect("its request waited");
            ticket.in_flight += 1;
        }
        self.on_shorter(source);
        Dispatch {
            key,
            source,
            right: match choice.claimant {
                Some(Claimant::Ticket(_)) => Right::Share,
                Some(_) => Right::Floor,
                None => Right::Leftover,
            },
            work,
            content: queued.content,
        }
    }

    /// Puts a request behind the others of its source.
    fn enqueue(&mut self, source: Source, key: RequestKey, queued: Queued<T>) {
        self.waiting.insert(key, source);
        let flow = match source {
            Source::User(user) => {
                self.shared_waiting += 1;
                self.flows.entry(user).or_insert_with(Flow::new)
            }
            _ => self.flow(source),
        };
        let was_empty = flow.is_empty();
        flow.push(key, queued);
        if was_empty {
            self.on_woken(source);
        }
        self.note_demand(source);
    }

    /// A source has something waiting, after it had nothing.
    fn on_woken(&mut self, source: Source) {
        let clock = self.clock;
        if let Some(user) = self.owner(source) {
            let turn = self.users.add_flow(user, source);
            self.flow(source).turn = Some(turn);
        }
        match source {
            Source::Ticket(key) => {
                let ticket = self.tickets.get_mut(&key).expect("a ticket that is open");
                ticket.pace.wake(clock);
            }
            Source::Background => self.background_pace.wake(clock),
            Source::User(_) => {}
        }
        self.list(source);
    }

    /// A source has one request less waiting.
    fn on_shorter(&mut self, source: Source) {
        let is_empty = self.flow(source).is_empty();
        if is_empty
            && let Some(user) = self.owner(source)
            && let Some(turn) = self.flow(source).turn.take()
        {
            self.users.remove_flow(user, turn);
        }
        if let Source::User(user) = source {
            self.shared_waiting -= 1;
            if is_empty {
                self.flows.remove(&user);
            }
        }
        self.list(source);
        self.note_demand(source);
    }

    /// Lists a source with a share of its own by its next request.
    fn list(&mut self, source: Source) {
        match source {
            Source::Ticket(key) => {
                if let Some(ticket) = self.tickets.get_mut(&key) {
                    let next_cost = ticket.flow.next_cost();
                    self.agenda
                        .list(Claimant::Ticket(key), &mut ticket.pace, next_cost);
                }
            }
            Source::Background => {
                let (pace, next_cost) = (&mut self.background_pace, self.background.next_cost());
                self.agenda.list(Claimant::Background, pace, next_cost);
            }
            Source::User(_) => {}
        }
    }

    /// Lists the pool of the leftover, whose next request counts as a quantum: whose it will be is
    /// decided when it is due.
    fn list_shared(&mut self, is_ready: bool) {
        if is_ready == self.is_shared_ready {
            return;
        }
        self.is_shared_ready = is_ready;
        if is_ready {
            self.shared_pace.wake(self.clock);
        }
        let next_cost = is_ready.then_some(self.quantum_nanos);
        self.agenda
            .list(Claimant::Shared, &mut self.shared_pace, next_cost);
    }

    /// In whose name a source takes part in the leftover.
    fn owner(&self, source: Source) -> Option<UserKey> {
        match source {
            Source::User(user) => Some(user),
            Source::Ticket(key) => self.tickets.get(&key).map(|ticket| ticket.holder),
            Source::Background => None,
        }
    }

    /// The requests of a source that has some, or is open.
    fn flow(&mut self, source: Source) -> &mut Flow<T> {
        match source {
            Source::Background => &mut self.background,
            Source::User(user) => self.flows.get_mut(&user).expect("it has requests"),
            Source::Ticket(key) => {
                let ticket = self.tickets.get_mut(&key).expect("it is open");
                &mut ticket.flow
            }
        }
    }

    /// Brings a ticket's record up to the present, before something happens to it.
    fn touch(&mut self, source: Source) {
        if let Source::Ticket(key) = source
            && let Some(ticket) = self.tickets.get_mut(&key)
        {
            ticket.record.advance(self.time, &self.health);
        }
    }

    fn note_demand(&mut self, source: Source) {
        if let Source::Ticket(key) = source
            && let Some(ticket) = self.tickets.get_mut(&key)
        {
            ticket.note_demand();
        }
    }

    /// Everything that happens by itself as time goes on.
    fn advance(&mut self, now: Time) {
        let step = nanos(now.since(self.now));
        self.now = now;
        self.time = self.time.saturating_add(step);
        let (step, sharers) = (
            step.saturating_add(self.clock_rest),
            u64::from(self.health.sharers()),
        );
        self.clock = self.clock.saturating_add(step / sharers);
        self.clock_rest = step % sharers;
        let (is_busy, waits) = (!self.in_flight.is_empty(), !self.waiting.is_empty());
        self.health
            .advance(self.time, is_busy, waits, self.promised_ppm);
        while let Some(&(at, key)) = self.stages.first()
            && at <= self.time
        {
            self.stages.pop_first();
            self.on_stage(key);
        }
    }
}
