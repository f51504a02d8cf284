//! The order in which requests are carried out.
//!
//! By class first; within a class the connections take turns, so that one with a thousand requests
//! holds up another's single one by one request, not by a thousand; within a connection in order of
//! arrival. A connection without room for further replies is passed over until it has room.
//!
//! Classes below demand may occupy a part of the threads only: predictions and background work
//! half, writes all but one.

use crate::link::LinkKey;
use base::RequestId;
use std::collections::{HashMap, HashSet, VecDeque};
use wire::frame::Class;

/// What the queue must know of an element.
pub(crate) trait Queued: Send {
    fn class(&self) -> Class;
    fn link(&self) -> LinkKey;
    fn request(&self) -> RequestId;
    /// Whether its connection has room for the reply. If not, [`Queues::resume`] is called later.
    fn has_room(&self) -> bool;
}

struct ClassQueue<T> {
    /// Connections with waiting requests and room for replies, in the order of their turns.
    ring: VecDeque<LinkKey>,
    requests: HashMap<LinkKey, VecDeque<T>>,
    stalled: HashSet<LinkKey>,
}

/// All waiting requests.
pub(super) struct Queues<T> {
    resumed: VecDeque<T>,
    classes: [ClassQueue<T>; Class::ALL.len()],
    running: [usize; Class::ALL.len()],
    len: usize,
}

impl<T: Queued> Queues<T> {
    pub(super) fn new() -> Self {
        let class = |_| ClassQueue {
            ring: VecDeque::new(),
            requests: HashMap::new(),
            stalled: HashSet::new(),
        };
        Self {
            resumed: VecDeque::new(),
            classes: std::array::from_fn(class),
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
        for queue in &mut self.classes {
            queue.ring.clear();
            queue.stalled.clear();
            dropped.extend(queue.requests.drain().flat_map(|(_, own)| own));
        }
        self.len = 0;
        dropped
    }

    pub(super) fn push(&mut self, element: T) {
        let link = element.link();
        let queue = &mut self.classes[element.class().index()];
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

    /// The next request for one of `threads` threads, with its class for [`Self::end`].
    pub(super) fn take(&mut self, threads: usize) -> Option<(T, Class)> {
        if let Some(element) = self.resumed.pop_front() {
            self.len -= 1;
            let class = element.class();
            self.running[class.index()] += 1;
            return Some((element, class));
        }
        for class in Class::ALL {
            if !self.may_run(class, threads) {
                continue;
            }
            if let Some(element) = self.classes[class.index()].take() {
                self.len -= 1;
                self.running[class.index()] += 1;
                return Some((element, class));
            }
        }
        None
    }

    /// Whether [`Self::take`] would find something. Connections found to have no room only then
    /// are not foreseen.
    pub(super) fn may_take(&self, threads: usize) -> bool {
        let waits = |class: &Class| !self.classes[class.index()].ring.is_empty();
        !self.resumed.is_empty()
            || Class::ALL
                .iter()
                .any(|class| waits(class) && self.may_run(*class, threads))
    }

    /// A request of this class is done, or parked.
    pub(super) fn end(&mut self, class: Class) {
        self.running[class.index()] -= 1;
    }

    fn may_run(&self, class: Class, threads: usize) -> bool {
        let from = |first: Class| self.running[first.index()..].iter().sum::<usize>();
        match class {
            Class::Metadata | Class::Demand => true,
            Class::Write => from(Class::Write) < threads.saturating_sub(1).max(1),
            Class::Prediction | Class::Background => from(Class::Prediction) < (threads / 2).max(1),
        }
    }

    pub(super) fn cancel(&mut self, link: LinkKey, request: RequestId) -> Option<T> {
        for queue in &mut self.classes {
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
        for queue in &mut self.classes {
            dropped.extend(queue.requests.remove(&link).unwrap_or_default());
            queue.forget(link);
            queue.stalled.remove(&link);
        }
        self.len -= dropped.len();
        dropped
    }

    /// A connection has room for replies again.
    pub(super) fn resume(&mut self, link: LinkKey) {
        for queue in &mut self.classes {
            if queue.stalled.remove(&link) && queue.requests.contains_key(&link) {
                queue.ring.push_back(link);
            }
        }
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
        while let Some((_, class)) = queues.take(4) {
            taken.push(class);
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
        queues.end(Class::Prediction);
        assert!(queues.may_take(4));
        assert_eq!(queues.take(4).map(|t| t.1), Some(Class::Prediction));
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
