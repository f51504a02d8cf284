//! The scheduler beside one without any index: the same rules, by looking at everybody each time.
//! Every request that goes to the device is the same, by the same right, whatever has happened
//! before: arrivals, completions, requests taken back, tickets that come, change and go, and time.

use crate::world::{IN_FLIGHT, MILLI, QUANTUM, shape, terms, work};
use base::Time;
use base::limits::SCHEDULER_CATCH_UP_TIME_MAX;
use proptest::prelude::*;
use reservation::scheduler::{
    RequestKey, Right, Scheduler, Source, TicketKey, TicketTerms, UserKey, UserTerms,
};
use std::collections::BTreeMap;
use std::time::Duration;

const TICKETS: u64 = 4;
const USERS: u64 = 4;
const FLOORS: [u64; 2] = [50_000, 100_000];
const SCALE: u128 = 1 << 20;

/// A share and its two tags.
#[derive(Clone, Debug, Default)]
struct Pace {
    share: u64,
    burst: u64,
    eligible: u64,
    deadline: u64,
}

impl Pace {
    fn time_for(&self, cost: u64) -> u64 {
        (u128::from(cost) * 1_000_000 / u128::from(self.share)) as u64
    }

    fn wake(&mut self, clock: u64) {
        self.eligible = self.eligible.max(clock - self.burst);
        self.deadline = self.deadline.max(clock);
    }

    fn charge(&mut self, cost: u64) {
        self.eligible += self.time_for(cost);
        self.deadline += self.time_for(cost);
    }
}

#[derive(Clone, Debug, Default)]
struct User {
    tag: u128,
    weight: u64,
    since: u64,
}

#[derive(Clone, Debug)]
struct Waiting {
    key: RequestKey,
    source: Source,
    cost: u64,
}

#[derive(Debug)]
struct Model {
    clock: u64,
    paces: BTreeMap<u64, Pace>,
    shared: Pace,
    background: Pace,
    is_shared_awake: bool,
    is_shared_held: bool,
    is_background_hurried: bool,
    hurried: Pace,
    waiting: Vec<Waiting>,
    in_flight: Vec<(RequestKey, u64)>,
    users: Vec<User>,
    virtual_time: u128,
    tag_max: u128,
    turns: u64,
    /// When each source last went to the end of its user's flows.
    turn_of: BTreeMap<Source, u64>,
}

impl Model {
    fn new(clock: u64) -> Self {
        let floor = |share| Pace {
            share,
            ..Pace::default()
        };
        Self {
            clock,
            paces: BTreeMap::new(),
            shared: floor(FLOORS[0]),
            background: floor(FLOORS[1]),
            is_shared_awake: false,
            is_shared_held: false,
            is_background_hurried: false,
            hurried: floor(250_000),
            waiting: Vec::new(),
            in_flight: Vec::new(),
            users: (0..USERS)
                .map(|user| User {
                    weight: user + 1,
                    ..User::default()
                })
                .collect(),
            virtual_time: 0,
            tag_max: 0,
            turns: 0,
            turn_of: BTreeMap::new(),
        }
    }

    /// Tickets belong to the user of the same number.
    fn user(source: Source) -> Option<u64> {
        match source {
            Source::Ticket(key) => Some(key.0 % USERS),
            Source::User(user) => Some(user.0),
            Source::Background => None,
        }
    }

    fn next_of(&self, source: Source) -> Option<&Waiting> {
        let own = self
            .waiting
            .iter()
            .filter(|waiting| waiting.source == source);
        own.min_by_key(|waiting| waiting.key)
    }

    fn user_waits(&self, user: u64) -> bool {
        self.waiting
            .iter()
            .any(|waiting| Self::user(waiting.source) == Some(user))
    }

    fn submit(&mut self, key: RequestKey, source: Source, cost: u64) {
        if self.next_of(source).is_none() {
            match source {
                Source::Ticket(ticket) => self
                    .paces
                    .get_mut(&ticket.0)
                    .expect("it is open")
                    .wake(self.clock),
                Source::Background => self.background.wake(self.clock),
                Source::User(_) => {}
            }
            if let Some(user) = Self::user(source) {
                self.turns += 1;
                self.turn_of.insert(source, self.turns);
                if !self.user_waits(user) {
                    let entry = &mut self.users[user as usize];
                    entry.tag = entry.tag.max(self.virtual_time);
                    entry.since = self.turns;
                }
            }
        }
        self.waiting.push(Waiting { key, source, cost });
    }

    fn remove(&mut self, key: RequestKey) -> Waiting {
        let at = self
            .waiting
            .iter()
            .position(|waiting| waiting.key == key)
            .expect("it waits");
        let waiting = self.waiting.remove(at);
        if (0..USERS).all(|user| !self.user_waits(user)) {
            self.virtual_time = self.tag_max;
        }
        waiting
    }

    fn next_of_shared(&self) -> Option<&Waiting> {
        let waits = |user: &u64| self.user_waits(*user);
        let user = (0..USERS).filter(waits).min_by_key(|user| {
            let entry = &self.users[*user as usize];
            (entry.tag, std::cmp::Reverse(entry.since), *user)
        })?;
        let mut own: Vec<_> = self.waiting.iter().map(|waiting| waiting.source).collect();
        own.retain(|source| Self::user(*source) == Some(user));
        let source = own.into_iter().min_by_key(|source| self.turn_of[source])?;
        self.next_of(source)
    }

    fn poll(&mut self) -> Option<(RequestKey, Source, Right)> {
        let shared = match self.is_shared_held {
            true => None,
            false => self.next_of_shared().cloned(),
        };
        if shared.is_some() && !self.is_shared_awake {
            self.shared.wake(self.clock);
        }
        self.is_shared_awake = shared.is_some();
        let mut due = Vec::new();
        if let Some(next) = self.next_of(Source::Background) {
            due.push((&self.background, next.cost, 0, next.clone(), Right::Floor));
        }
        if let Some(next) = &shared {
            due.push((&self.shared, QUANTUM, 1, next.clone(), Right::Floor));
        }
        for (key, pace) in &self.paces {
            if let Some(next) = self.next_of(Source::Ticket(TicketKey(*key))) {
                due.push((pace, next.cost, 2 + key, next.clone(), Right::Share));
            }
        }
        due.retain(|(pace, ..)| pace.share > 0 && pace.eligible <= self.clock);
        let first = due.into_iter().map(|(pace, cost, order, next, right)| {
            (pace.deadline + pace.time_for(cost), order, next, right)
        });
        let first = first.min_by_key(|(deadline, order, ..)| (*deadline, *order));
        let passes_over = first.is_none()
            && shared.is_some()
            && self.is_background_hurried
            && self.hurried.eligible <= self.clock
            && self.next_of(Source::Background).is_some();
        let (next, right, order) = match (first, shared) {
            (Some((deadline, order, next, right)), _) => {
                let late = deadline + SCHEDULER_CATCH_UP_TIME_MAX.as_nanos() as u64;
                self.clock = self.clock.min(late);
                (next, right, order)
            }
            (None, shared) => {
                let background = self.next_of(Source::Background).cloned();
                let background = background.map(|next| (next, Right::Leftover, 0));
                let shared = shared.map(|next| (next, Right::Leftover, 1));
                match passes_over {
                    true => background?,
                    false => shared.or(background)?,
                }
            }
        };
        let held: u64 = self.in_flight.iter().map(|(_, cost)| cost).sum();
        if held + next.cost > IN_FLIGHT && held > 0 {
            return None;
        }
        if passes_over {
            self.hurried.wake(self.clock);
            self.hurried.charge(next.cost);
        }
        self.go(&next, right, order);
        Some((next.key, next.source, right))
    }

    fn go(&mut self, next: &Waiting, right: Right, order: u64) {
        if order == 1 {
            let user = &mut self.users[Self::user(next.source).expect("a user is next") as usize];
            self.virtual_time = self.virtual_time.max(user.tag);
            user.tag += u128::from(next.cost) * SCALE / u128::from(user.weight);
            self.tag_max = self.tag_max.max(user.tag);
            self.turns += 1;
            self.turn_of.insert(next.source, self.turns);
        }
        match (right, order) {
            (Right::Leftover, _) => {}
            (_, 0) => self.background.charge(next.cost),
            (_, 1) => self.shared.charge(next.cost),
            (_, ticket) => self
                .paces
                .get_mut(&(ticket - 2))
                .expect("it is open")
                .charge(next.cost),
        }
        self.remove(next.key);
        self.in_flight.push((next.key, next.cost));
    }

    /// What waits with it belongs to its user alone from now on.
    fn close(&mut self, key: u64) {
        let (ticket, own) = (
            Source::Ticket(TicketKey(key)),
            Source::User(UserKey(key % USERS)),
        );
        self.paces.remove(&key);
        if self.next_of(ticket).is_none() {
            return;
        }
        let user = key % USERS;
        let others = self
            .waiting
            .iter()
            .filter(|waiting| waiting.source != ticket);
        let mut others = others.filter(|waiting| Self::user(waiting.source) == Some(user));
        let was_alone = others.next().is_none();
        if self.next_of(own).is_none() {
            self.turns += 1;
            self.turn_of.insert(own, self.turns);
        }
        for waiting in &mut self.waiting {
            if waiting.source == ticket {
                waiting.source = own;
            }
        }
        if was_alone {
            // For a moment its user wanted nothing.
            let is_only = (0..USERS).all(|other| other == user || !self.user_waits(other));
            if is_only {
                self.virtual_time = self.tag_max;
            }
            let entry = &mut self.users[user as usize];
            entry.tag = entry.tag.max(self.virtual_time);
            entry.since = self.turns;
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Source (tickets, users, background), cost, how often.
    Submit(u64, u64, u64),
    Cancel(usize),
    Complete(usize),
    Wait(u64),
    Open(u64, u64, u64),
    Change(u64, u64, u64),
    Close(u64),
    /// Whether only what has a share is given out.
    Hold(bool),
    Hurry(bool),
}

fn step() -> impl Strategy<Value = Step> {
    // Small ones fall a second behind with a few requests: then the promise clock is held.
    let share = prop_oneof![Just(0), 300..3_000_u64, 1_000..400_000_u64];
    let burst = prop_oneof![Just(0), 0..1000_u64];
    prop_oneof![
        8 => (0..TICKETS + USERS + 1, 1..=QUANTUM, 1..6_u64)
            .prop_map(|(source, cost, count)| Step::Submit(source, cost, count)),
        1 => (0..100_usize).prop_map(Step::Cancel),
        8 => (0..100_usize).prop_map(Step::Complete),
        8 => prop_oneof![0..3 * MILLI, 0..4000 * MILLI].prop_map(Step::Wait),
        2 => (0..TICKETS, share.clone(), burst.clone()).prop_map(|(k, s, b)| Step::Open(k, s, b)),
        1 => (0..TICKETS, share, burst).prop_map(|(k, s, b)| Step::Change(k, s, b)),
        1 => (0..TICKETS).prop_map(Step::Close),
        1 => any::<bool>().prop_map(Step::Hold),
        1 => any::<bool>().prop_map(Step::Hurry),
    ]
}

fn source_of(number: u64) -> Source {
    match number {
        ticket if ticket < TICKETS => Source::Ticket(TicketKey(ticket)),
        user if user < TICKETS + USERS => Source::User(UserKey(user - TICKETS)),
        _ => Source::Background,
    }
}

struct Pair {
    now: u64,
    scheduler: Scheduler<()>,
    model: Model,
}

impl Pair {
    fn new() -> Self {
        let now = 1000 * 1_000_000_000;
        let floors = shape(FLOORS[0] as u32, FLOORS[1] as u32);
        let mut scheduler = Scheduler::new(Time::from_nanos(now), &floors);
        for user in 0..USERS {
            let terms = UserTerms {
                weight: user as u32 + 1,
                cap_ppm: None,
            };
            scheduler.set_user(UserKey(user), terms).expect("few users");
        }
        Self {
            now,
            scheduler,
            model: Model::new(now),
        }
    }

    fn submit(&mut self, source: Source, cost: u64, count: u64) {
        let now = Time::from_nanos(self.now);
        for _ in 0..count {
            if let Ok(key) = self.scheduler.submit(now, source, work(cost), ()) {
                self.model.submit(key, source, cost);
            }
        }
    }

    fn take(&mut self, step: &Step) {
        let now = Time::from_nanos(self.now);
        match *step {
            Step::Submit(source, cost, count) => self.submit(source_of(source), cost, count),
            Step::Cancel(at) => {
                let keys: Vec<_> = self
                    .model
                    .waiting
                    .iter()
                    .map(|waiting| waiting.key)
                    .collect();
                if !keys.is_empty() {
                    let key = keys[at % keys.len()];
                    assert_eq!(self.scheduler.cancel(now, key), Some(()));
                    self.model.remove(key);
                }
            }
            Step::Complete(at) => {
                let in_flight = &mut self.model.in_flight;
                if !in_flight.is_empty() {
                    let (key, _) = in_flight.remove(at % in_flight.len());
                    self.scheduler.complete(now, key, 1);
                }
            }
            Step::Wait(nanos) => {
                self.now += nanos;
                self.model.clock += nanos;
            }
            Step::Open(key, share, burst) => {
                let terms = TicketTerms {
                    holder: UserKey(key % USERS),
                    burst: Duration::from_millis(burst),
                    ..terms(key, share as u32)
                };
                if self
                    .scheduler
                    .open_ticket(now, TicketKey(key), &terms)
                    .is_ok()
                {
                    let burst = burst * MILLI;
                    self.model.paces.insert(
                        key,
                        Pace {
                            share,
                            burst,
                            ..Pace::default()
                        },
                    );
                }
            }
            Step::Change(key, share, burst) => {
                let (ticket, wait) = (TicketKey(key), Duration::from_millis(burst));
                let changed =
                    self.scheduler
                        .change_ticket(now, ticket, share as u32, wait, Time::MAX);
                if changed.is_ok() {
                    let pace = self.model.paces.get_mut(&key).expect("it is open");
                    (pace.share, pace.burst) = (share, burst * MILLI);
                }
            }
            Step::Hold(is_held) => self.hold(is_held),
            Step::Hurry(is_hurried) => self.hurry(is_hurried),
            Step::Close(key) => {
                if self.scheduler.close_ticket(now, TicketKey(key)).is_some() {
                    self.model.close(key);
                }
            }
        }
    }

    fn hurry(&mut self, is_hurried: bool) {
        self.scheduler.hurry_background(is_hurried);
        self.model.is_background_hurried = is_hurried;
    }

    fn hold(&mut self, is_held: bool) {
        self.scheduler.hold_shared(is_held);
        self.model.is_shared_held = is_held;
    }

    fn compare(&mut self) {
        loop {
            let dispatch = self.scheduler.poll(Time::from_nanos(self.now));
            let next = dispatch.map(|next| (next.key, next.source, next.right));
            assert_eq!(next, self.model.poll());
            if next.is_none() {
                break;
            }
        }
        assert_eq!(self.scheduler.waiting(), self.model.waiting.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_decision_is_that_of_looking_at_everybody(
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.take(step);
            pair.compare();
        }
    }
}
