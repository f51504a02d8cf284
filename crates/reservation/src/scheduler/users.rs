//! Who is next for what nobody has reserved: the leftover, shared among users by weight.
//!
//! Start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM 1996). A user's tag says how much it has
//! had: each request moves it on by cost / weight, and the lowest tag is next. Virtual time is the
//! tag of whoever was served last; who comes back from a pause begins there and goes before those
//! with the same tag, so nobody saves and nobody pays for having been away. Two users who both want
//! more than they get differ by at most one request of each, divided by weight, over any time.
//!
//! Why not deficit round robin, which needs no ordered set: a newcomer waits for a whole round
//! there. With 10,000 users and a quantum of a millisecond that is ten seconds for a single page.
//! Here it waits for what is at the device, and the ordered set costs a logarithm.
//!
//! A user's requests can come in its own name or with several tickets; these flows take turns. A
//! cap is a pace that the user cannot exceed: it is parked until its share allows the next request.

use super::terms::{Source, UserKey, UserTerms, WHOLE_PPM};
use base::limits::SCHEDULER_USERS_MAX;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Tags are nanoseconds times this: a weight of some thousand leaves no rounding that matters.
const SCALE: u128 = 1 << 20;

/// What a cap allowed and nobody used is kept for so long: its user is served late now and then.
const CAP_SLACK_NANOS: u64 = 100_000_000;

/// Order of those who are ready: by tag; if many have the same, as after a common start, by who
/// came last.
type Rank = (u128, Reverse<u64>, UserKey);

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Users {
    /// Those with something waiting, and those whose tag is ahead of virtual time.
    users: BTreeMap<UserKey, User>,
    terms: BTreeMap<UserKey, UserTerms>,
    ready: BTreeSet<Rank>,
    /// Those whose caps are used up, by until when, whether something of them waits or not.
    parked: BTreeSet<(u64, UserKey)>,
    /// The others without anything waiting.
    idle: BTreeSet<(u128, UserKey)>,
    virtual_time: u128,
    /// The largest tag there has been.
    tag_max: u128,
    turns: u64,
    /// The latest time that was said.
    time: u64,
}

#[derive(Debug)]
struct User {
    tag: u128,
    /// Until when its cap is used up.
    capped_until: u64,
    /// When it last began to want something, as a turn.
    since: u64,
    place: Place,
    /// Its flows with something waiting, in the order of their turns.
    flows: BTreeMap<u64, Source>,
}

impl User {
    fn rank(&self, user: UserKey) -> Rank {
        (self.tag, Reverse(self.since), user)
    }
}

/// The set that a user is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Ready,
    Parked,
    Idle,
}

impl Users {
    /// Users that are remembered.
    pub(super) fn len(&self) -> usize {
        self.users.len()
    }

    pub(super) fn knows(&self, user: UserKey) -> bool {
        self.users.contains_key(&user)
    }

    /// Whether there is room for terms that are not the default ones.
    pub(super) fn can_set_terms(&self, user: UserKey, terms: UserTerms) -> bool {
        let is_known = terms == UserTerms::default() || self.terms.contains_key(&user);
        is_known || self.terms.len() < SCHEDULER_USERS_MAX
    }

    pub(super) fn set_terms(&mut self, user: UserKey, terms: UserTerms) {
        if terms == UserTerms::default() {
            self.terms.remove(&user);
        } else {
            self.terms.insert(user, terms);
        }
    }

    fn terms(&self, user: UserKey) -> UserTerms {
        self.terms.get(&user).copied().unwrap_or_default()
    }

    /// A flow of this user has something waiting now. Its turn is returned.
    pub(super) fn add_flow(&mut self, user: UserKey, source: Source) -> u64 {
        self.turns += 1;
        let turn = self.turns;
        let start = self.virtual_time;
        let entry = self.users.entry(user).or_insert_with(|| {
            self.idle.insert((start, user));
            User {
                tag: start,
                capped_until: 0,
                since: turn,
                place: Place::Idle,
                flows: BTreeMap::new(),
            }
        });
        entry.flows.insert(turn, source);
        if entry.place == Place::Idle {
            entry.since = turn;
            self.settle(user);
        }
        turn
    }

    /// A flow of this user has nothing waiting any more.
    pub(super) fn remove_flow(&mut self, user: UserKey, turn: u64) {
        let entry = self.users.get_mut(&user).expect("its flow was added");
        assert!(entry.flows.remove(&turn).is_some(), "the flow was added");
        if entry.flows.is_empty() {
            self.settle(user);
            self.forget_idle();
        }
    }

    /// The user who is next at `time`, and its flow.
    pub(super) fn next(&mut self, time: u64) -> Option<(UserKey, Source)> {
        self.time = time;
        while let Some(&(until, user)) = self.parked.first()
            && until <= time
        {
            self.settle(user);
        }
        let (_, _, user) = self.ready.first()?;
        let source = self.users[user].flows.values().next();
        Some((*user, *source.expect("who is ready has something waiting")))
    }

    /// Puts a user into the set where it belongs.
    fn settle(&mut self, user: UserKey) {
        let entry = self.users.get_mut(&user).expect("a user who is known");
        match entry.place {
            Place::Ready => self.ready.remove(&entry.rank(user)),
            Place::Parked => self.parked.remove(&(entry.capped_until, user)),
            Place::Idle => self.idle.remove(&(entry.tag, user)),
        };
        let was_ready = entry.place == Place::Ready;
        entry.place = if entry.capped_until > self.time {
            self.parked.insert((entry.capped_until, user));
            Place::Parked
        } else if entry.flows.is_empty() {
            self.idle.insert((entry.tag, user));
            Place::Idle
        } else {
            if !was_ready {
                entry.tag = entry.tag.max(self.virtual_time);
            }
            self.ready.insert(entry.rank(user));
            Place::Ready
        };
    }

    /// When the first user whose cap is used up may go on.
    pub(super) fn next_time(&self) -> Option<u64> {
        self.parked.first().map(|(until, _)| *until)
    }

    /// A request of the user that [`Self::next`] named went to the device; if its flow still has
    /// something waiting, that is behind the user's other flows now. The new turn is returned.
    pub(super) fn charge(&mut self, user: UserKey, turn: u64, cost_nanos: u64) -> u64 {
        let terms = self.terms(user);
        self.turns += 1;
        let entry = self.users.get_mut(&user).expect("it was next");
        let source = entry.flows.remove(&turn).expect("its flow was next");
        entry.flows.insert(self.turns, source);
        assert!(self.ready.remove(&entry.rank(user)), "it was ready");
        self.virtual_time = self.virtual_time.max(entry.tag);
        entry.tag += u128::from(cost_nanos) * SCALE / u128::from(terms.weight.max(1));
        self.tag_max = self.tag_max.max(entry.tag);
        if let Some(cap_ppm) = terms.cap_ppm {
            let step = u128::from(cost_nanos) * u128::from(WHOLE_PPM) / u128::from(cap_ppm.max(1));
            let step = u64::try_from(step).unwrap_or(u64::MAX);
            let earliest = self.time.saturating_sub(CAP_SLACK_NANOS);
            entry.capped_until = entry.capped_until.max(earliest).saturating_add(step);
        }
        self.ready.insert(entry.rank(user));
        self.settle(user);
        self.turns
    }

    /// Forgets whose tag virtual time has passed: they would begin there anyway. When nobody waits,
    /// virtual time catches up with every tag: what was had in one busy time does not count in the
    /// next one.
    fn forget_idle(&mut self) {
        if self.ready.is_empty() {
            self.virtual_time = self.tag_max;
        }
        while let Some(&(tag, user)) = self.idle.first()
            && tag <= self.virtual_time
        {
            self.idle.pop_first();
            self.users.remove(&user);
        }
    }
}
