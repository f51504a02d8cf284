//! The order in which requests are carried out.
//!
//! By class first, among the credentials that have had no more of the threads' time than the one
//! that has had least, but for a little ([`AHEAD_MAX`]): whoever sends more than the server can do,
//! over however many connections and in whatever class, waits for his own requests, and the others
//! hardly notice. Time is what counts and not a number of requests, because one may list a large
//! directory and another only look a name up. A credential that has been quiet begins where the
//! least served one is: nobody saves time up.
//!
//! Within a credential and a class the connections take turns, so that one with a thousand requests
//! holds up another's single one by one request, not by a thousand; within a connection in order of
//! arrival. A connection without room for further replies is passed over until it has room.
//!
//! Classes below demand may occupy a part of the threads only: predictions and background work
//! half, writes all but one. Those above leave one thread to writes while some wait.

use crate::link::LinkKey;
use crate::share::ShareKey;
use base::RequestId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;
use wire::frame::Class;

/// How many more nanoseconds of the threads' time a credential may have had than the one that has
/// had least, and still go first with what is more urgent. A few requests of the longest kind.
const AHEAD_MAX: u64 = 10_000_000;
/// What a request is taken to need until it is known, in nanoseconds: a look-up. So those that
/// begin at the same moment are not all of one credential.
const EXPECTED: u64 = 50_000;

/// What the queue must know of an element.
pub(crate) trait Queued: Send {
    fn class(&self) -> Class;
    fn link(&self) -> LinkKey;
    /// Whose it is.
    fn share(&self) -> ShareKey;
    fn request(&self) -> RequestId;
    /// Whether its connection has room for the reply. If not, [`Queues::resume`] is called later.
    fn has_room(&self) -> bool;
}

/// What is running, for [`Queues::end`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Running {
    class: Class,
    share: ShareKey,
}

struct ClassQueue<T> {
    /// Connections with waiting requests and room for replies, in the order of their turns.
    ring: VecDeque<LinkKey>,
    requests: HashMap<LinkKey, VecDeque<T>>,
    stalled: HashSet<LinkKey>,
}

/// One credential's requests.
struct Party<T> {
    classes: [ClassQueue<T>; Class::ALL.len()],
    /// Nanoseconds of the threads' time that it has had, or been taken to have had.
    used: u64,
    running: usize,
}

/// All waiting requests.
pub(super) struct Queues<T> {
    resumed: VecDeque<T>,
    parties: HashMap<ShareKey, Party<T>>,
    /// Where the least served one was that had something to do.
    least: u64,
    running: [usize; Class::ALL.len()],
    len: usize,
}

impl<T: Queued> Queues<T> {
    pub(super) fn new() -> Self {
        Self {
            resumed: VecDeque::new(),
            parties: HashMap::new(),
            least: 0,
            running: [0; Class::ALL.len()],
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes everything out that waits.
    pub(super) fn clear(&mut self) -> Vec<T> {
        let mut dropped: Vec<T> = self.resumed.drain(..).collect();
        for queue in self.parties.values_mut().flat_map(|p| &mut p.classes) {
            queue.ring.clear();
            queue.stalled.clear();
            dropped.extend(queue.requests.drain().flat_map(|(_, own)| own));
        }
        self.len = 0;
        dropped
    }

    pub(super) fn push(&mut self, element: T) {
        let (link, class) = (element.link(), element.class());
        let queue = &mut self.party(element.share()).classes[class.index()];
        let own = queue.requests.entry(link).or_default();
        if own.is_empty() && !queue.stalled.contains(&link) {
            queue.ring.push_back(link);
        }
        own.push_back(element);
        self.len += 1;
    }

    pub(super) fn push_resumed(&mut self, element: T) {
        self.resumed.push_back(element);
        self.len += 1;
    }

    /// The next request for one of `threads` threads.
    pub(super) fn take(&mut self, threads: usize) -> Option<(T, Running)> {
        if let Some(element) = self.resumed.pop_front() {
            return Some(self.begin(element));
        }
        let allowed = Class::ALL.map(|class| self.may_run(class, threads));
        // A connection may be found to have no room: then it waits no more, and another one does.
        loop {
            let waiting = self.parties.values().filter(|p| p.waits_in(&allowed));
            let least = waiting.map(|party| party.used).min()?;
            self.least = self.least.max(least);
            let element = self.most_urgent(least.saturating_add(AHEAD_MAX), &allowed);
            if let Some(element) = element {
                return Some(self.begin(element));
            }
        }
    }

    /// The most urgent request of those who have had no more than this.
    fn most_urgent(&mut self, used_max: u64, allowed: &[bool; Class::ALL.len()]) -> Option<T> {
        let classes = Class::ALL.into_iter().zip(allowed);
        for (class, _) in classes.filter(|(_, is_allowed)| **is_allowed) {
            let waits = |party: &&mut Party<T>| {
                party.used <= used_max && !party.classes[class.index()].ring.is_empty()
            };
            let parties = self.parties.values_mut().filter(waits);
            if let Some(party) = parties.min_by_key(|party| party.used)
                && let Some(element) = party.classes[class.index()].take()
            {
                return Some(element);
            }
        }
        None
    }

    fn begin(&mut self, element: T) -> (T, Running) {
        let running = Running {
            class: element.class(),
            share: element.share(),
        };
        let party = self.party(running.share);
        party.used += EXPECTED;
        party.running += 1;
        self.running[running.class.index()] += 1;
        self.len -= 1;
        (element, running)
    }

    /// A credential's requests; one that had nothing to do is not owed what it has not used.
    fn party(&mut self, share: ShareKey) -> &mut Party<T> {
        let least = self.least;
        if !self.parties.contains_key(&share) {
            let is_needed = |party: &Party<T>| !party.is_idle() || party.used > least;
            self.parties.retain(|_, party| is_needed(party));
        }
        let party = self.parties.entry(share).or_insert_with(Party::new);
        if party.is_idle() {
            party.used = party.used.max(least);
        }
        party
    }

    /// Whether [`Self::take`] would find something. Connections found to have no room only then
    /// are not foreseen.
    pub(super) fn may_take(&self, threads: usize) -> bool {
        let allowed = Class::ALL.map(|class| self.may_run(class, threads));
        !self.resumed.is_empty() || self.parties.values().any(|p| p.waits_in(&allowed))
    }

    /// A request is done, or parked, after a thread's time.
    pub(super) fn end(&mut self, running: Running, took: Duration) {
        self.running[running.class.index()] -= 1;
        if let Some(party) = self.parties.get_mut(&running.share) {
            party.running -= 1;
            let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            party.used = party.used.saturating_add(took).saturating_sub(EXPECTED);
        }
    }

    fn may_run(&self, class: Class, threads: usize) -> bool {
        let from = |first: Class| self.running[first.index()..].iter().sum::<usize>();
        match class {
            Class::Metadata | Class::Demand => {
                let urgent: usize = self.running[..Class::Write.index()].iter().sum();
                let leaves_one = urgent + 1 < threads || self.running[Class::Write.index()] > 0;
                threads < 2 || leaves_one || !self.writes_wait()
            }
            Class::Write => from(Class::Write) < threads.saturating_sub(1).max(1),
            Class::Prediction | Class::Background => from(Class::Prediction) < (threads / 2).max(1),
        }
    }

    fn writes_wait(&self) -> bool {
        let waits = |party: &Party<T>| !party.classes[Class::Write.index()].ring.is_empty();
        self.parties.values().any(waits)
    }

    pub(super) fn cancel(&mut self, link: LinkKey, request: RequestId) -> Option<T> {
        for queue in self.parties.values_mut().flat_map(|p| &mut p.classes) {
            let Some(own) = queue.requests.get_mut(&link) else {
                continue;
            };
            let Some(place) = own.iter().position(|e| e.request() == request) else {
                continue;
            };
            let element = own.remove(place);
            if own.is_empty() {
                queue.forget(link);
            }
            self.len -= 1;
            return element;
        }
        None
    }

    pub(super) fn close(&mut self, link: LinkKey) -> Vec<T> {
        let mut dropped = Vec::new();
        for queue in self.parties.values_mut().flat_map(|p| &mut p.classes) {
            dropped.extend(queue.requests.remove(&link).unwrap_or_default());
            queue.forget(link);
            queue.stalled.remove(&link);
        }
        self.len -= dropped.len();
        dropped
    }

    /// A connection has room for replies again.
    pub(super) fn resume(&mut self, link: LinkKey) {
        for queue in self.parties.values_mut().flat_map(|p| &mut p.classes) {
            if queue.stalled.remove(&link) && queue.requests.contains_key(&link) {
                queue.ring.push_back(link);
            }
        }
    }
}

impl<T> Party<T> {
    fn new() -> Self {
        let class = |_| ClassQueue {
            ring: VecDeque::new(),
            requests: HashMap::new(),
            stalled: HashSet::new(),
        };
        Self {
            classes: std::array::from_fn(class),
            used: 0,
            running: 0,
        }
    }

    /// Whether nothing of it waits or runs.
    fn is_idle(&self) -> bool {
        self.running == 0 && self.classes.iter().all(|q| q.requests.is_empty())
    }

    fn waits_in(&self, allowed: &[bool; Class::ALL.len()]) -> bool {
        let mut classes = self.classes.iter().zip(allowed);
        classes.any(|(queue, is_allowed)| *is_allowed && !queue.ring.is_empty())
    }
}

impl<T: Queued> ClassQueue<T> {
    fn take(&mut self) -> Option<T> {
        while let Some(link) = self.ring.pop_front() {
            let Some(own) = self.requests.get_mut(&link) else {
                continue;
            };
            if own.front().is_some_and(|element| !element.has_room()) {
                self.stalled.insert(link);
                continue;
            }
            let element = own.pop_front();
            if own.is_empty() {
                self.requests.remove(&link);
            } else {
                self.ring.push_back(link);
            }
            if element.is_some() {
                return element;
            }
        }
        None
    }

    fn forget(&mut self, link: LinkKey) {
        self.requests.remove(&link);
        self.ring.retain(|other| *other != link);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    struct Item(Class, u64, u64, Arc<AtomicBool>);

    impl Queued for Item {
        fn class(&self) -> Class {
            self.0
        }
        fn link(&self) -> LinkKey {
            LinkKey(self.1)
        }
        fn share(&self) -> ShareKey {
            ShareKey(self.1 / 100)
        }
        fn request(&self) -> RequestId {
            RequestId(self.2)
        }
        fn has_room(&self) -> bool {
            self.3.load(Ordering::Relaxed)
        }
    }

    fn item(class: Class, link: u64, request: u64) -> Item {
        Item(class, link, request, Arc::new(AtomicBool::new(true)))
    }

    fn order(queues: &mut Queues<Item>) -> Vec<(u64, u64)> {
        std::iter::from_fn(|| queues.take(100))
            .map(|(i, _)| (i.1, i.2))
            .collect()
    }

    #[test]
    fn the_urgent_go_first_and_connections_take_turns() {
        let mut queues = Queues::new();
        for request in 0..3 {
            queues.push(item(Class::Demand, 1, request));
        }
        queues.push(item(Class::Prediction, 2, 10));
        queues.push(item(Class::Demand, 2, 11));
        queues.push(item(Class::Metadata, 2, 12));
        assert_eq!(
            order(&mut queues),
            [(2, 12), (1, 0), (2, 11), (1, 1), (1, 2), (2, 10)]
        );
        assert!(queues.is_empty());
    }

    #[test]
    fn predictions_leave_threads_free_and_writes_leave_one() {
        let mut queues = Queues::new();
        for request in 0..8 {
            queues.push(item(Class::Prediction, 1, request));
            queues.push(item(Class::Write, 1, 10 + request));
        }
        let mut taken = Vec::new();
        let mut last = None;
        while let Some((_, running)) = queues.take(4) {
            taken.push(running.class);
            last = Some(running);
        }
        // Predictions are below writes: the three that run leave nothing of the two for them.
        assert_eq!(
            taken,
            [
                Class::Write,
                Class::Write,
                Class::Write,
                Class::Prediction,
                Class::Prediction
            ]
        );
        queues.push(item(Class::Demand, 1, 30));
        assert!(queues.take(4).is_some(), "demand is never held up");
        assert!(!queues.may_take(4));
        queues.end(last.unwrap(), Duration::ZERO);
        assert!(queues.may_take(4));
        let class = queues.take(4).map(|(_, running)| running.class);
        assert_eq!(class, Some(Class::Prediction));
    }

    #[test]
    fn the_urgent_leave_one_thread_to_writes() {
        let mut queues = Queues::new();
        for request in 0..8 {
            queues.push(item(Class::Metadata, 1, request));
        }
        assert_eq!(order(&mut queues).len(), 8, "nobody else wants it");
        let mut queues = Queues::new();
        for request in 0..8 {
            queues.push(item(Class::Metadata, 1, request));
            queues.push(item(Class::Write, 2, 10 + request));
        }
        let taken: Vec<_> = std::iter::from_fn(|| queues.take(4).map(|t| t.1.class))
            .take(4)
            .collect();
        let expected = [[Class::Metadata; 3].as_slice(), &[Class::Write]].concat();
        assert_eq!(taken, expected);
    }

    /// Takes and ends one after another, each after `took`, until one of this credential comes;
    /// how many came before.
    fn before(queues: &mut Queues<Item>, share: ShareKey, took: Duration) -> usize {
        let taken = std::iter::from_fn(|| {
            let (_, running) = queues.take(4)?;
            queues.end(running, took);
            Some(running.share)
        });
        taken.take_while(|taken| *taken != share).count()
    }

    #[test]
    fn who_sends_more_than_can_be_done_waits_for_his_own() {
        let (greedy, other) = (ShareKey(1), ShareKey(2));
        let took = Duration::from_millis(5);
        let mut queues = Queues::new();
        for request in 0..1000 {
            queues.push(item(Class::Metadata, 100 + request % 50, request));
        }
        assert_eq!(before(&mut queues, other, took), 1000);
        for request in 0..1000 {
            queues.push(item(Class::Metadata, 100 + request % 50, request));
        }
        for _ in 0..100 {
            let (_, running) = queues.take(4).unwrap();
            queues.end(running, took);
        }
        // Less urgent as it is, it need not wait for 900 others, and not for its own past.
        queues.push(item(Class::Background, 200, 1));
        let waited = before(&mut queues, other, took);
        assert!(waited <= 4, "{waited}");
        // And it has not saved up what it has not used.
        for request in 0..100 {
            queues.push(item(Class::Metadata, 200, request));
        }
        assert!(before(&mut queues, greedy, took) <= 4);
    }

    #[test]
    fn a_connection_that_does_not_read_stalls_alone() {
        let mut queues = Queues::new();
        let room = Arc::new(AtomicBool::new(false));
        queues.push(Item(Class::Demand, 1, 1, room.clone()));
        queues.push(item(Class::Demand, 2, 2));
        assert_eq!(order(&mut queues), [(2, 2)]);
        queues.push(Item(Class::Demand, 1, 3, room.clone()));
        assert_eq!(order(&mut queues), []);
        room.store(true, Ordering::Relaxed);
        queues.resume(LinkKey(1));
        assert_eq!(order(&mut queues), [(1, 1), (1, 3)]);
    }

    #[test]
    fn cancelled_and_closed_requests_are_gone() {
        let mut queues = Queues::new();
        for request in 0..4 {
            queues.push(item(Class::Demand, 1, request));
        }
        queues.push(item(Class::Demand, 2, 9));
        assert!(queues.cancel(LinkKey(1), RequestId(2)).is_some());
        assert!(queues.cancel(LinkKey(1), RequestId(2)).is_none());
        assert!(queues.cancel(LinkKey(2), RequestId(9)).is_some());
        assert_eq!(queues.close(LinkKey(1)).len(), 3);
        assert!(queues.is_empty());
        queues.push(item(Class::Demand, 1, 5));
        assert_eq!(order(&mut queues), [(1, 5)]);
    }
}
