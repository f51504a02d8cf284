//! What a session remembers of requests that must not run twice.
//!
//! A client whose connection broke sends again what was not answered. The first copy may have run,
//! may be running, or may still lie in a dead socket and arrive after the second. So every request
//! that changes something is noted by its id when it arrives, whichever copy that is, and its reply
//! is kept until the client says that it has it ([`Compound::settled`]).
//! So here it is known, too, what has run: for requests that wait for others ([`Behind`]).
//!
//! [`Compound::settled`]: wire::message::Compound

use crate::behind::Behind;
use crate::link::Destination;
use crate::steps::{Execution, Waited};
use base::limits::{CONNECTIONS_MAX, REPLIES_KEPT_BYTES_MAX, REPLIES_KEPT_MAX};
use base::{RequestId, Time};
use std::collections::BTreeMap;
use wire::frame::Frame;
use wire::message::Settled;

/// What to do with a request that has arrived.
pub(crate) enum Arrival {
    /// It is the first copy: carry it out. Its reply goes through [`Memory::finish`].
    New(Destination),
    /// It has been answered: here is the answer.
    Answered(Destination, Frame),
    /// It is being carried out; the reply will go to where this copy came from, too.
    Running,
    /// The client has said that it needs no answer any more.
    Settled,
    /// There are too many that the client has not settled.
    Full(Destination),
}

enum Remembered {
    /// The reply goes to every connection on which a copy came: the first copy may come last, and
    /// its connection be dead. With it the bytes that its reply may have.
    Running(Vec<Destination>, usize),
    Done(Frame),
}

/// Requests of one session that change something and are not settled.
#[derive(Default)]
pub(crate) struct Memory {
    requests: BTreeMap<RequestId, Remembered>,
    /// Bytes of the replies that are kept, and of those to come as far as that is known.
    bytes: usize,
    settled: Settled,
    /// Requests that wait for others of these.
    behind: Behind<Box<Execution>>,
}

impl Remembered {
    fn bytes(&self) -> usize {
        match self {
            Self::Running(_, bytes) => *bytes,
            Self::Done(frame) => frame.wire_bytes(),
        }
    }
}

impl Memory {
    /// Notes a request. `to` is where its reply goes, which may have `bytes`.
    pub(crate) fn arrive(
        &mut self,
        id: RequestId,
        settled: &Settled,
        bytes: usize,
        to: Destination,
    ) -> Arrival {
        self.settle(settled);
        if self.settled.covers(id) {
            return Arrival::Settled;
        }
        let is_full = self.requests.len() >= REPLIES_KEPT_MAX
            || self.bytes.saturating_add(bytes) > REPLIES_KEPT_BYTES_MAX;
        match self.requests.get_mut(&id) {
            Some(Remembered::Running(destinations, _)) => {
                destinations.retain(|other| !other.link.is_closed());
                // More copies than connections are a client's mistake and cost it the newest.
                if destinations.len() < CONNECTIONS_MAX {
                    destinations.push(to);
                }
                Arrival::Running
            }
            Some(Remembered::Done(frame)) => Arrival::Answered(to, frame.clone()),
            None if is_full => Arrival::Full(to),
            None => {
                self.bytes += bytes;
                self.requests
                    .insert(id, Remembered::Running(vec![to.clone()], bytes));
                Arrival::New(to)
            }
        }
    }

    /// Forgets what the client has settled. Returns whether that is news.
    pub(crate) fn settle(&mut self, settled: &Settled) -> bool {
        if !self.settled.advance(settled) {
            return false;
        }
        // What still runs stays: its end must find its place.
        let over = self.requests.range(..self.settled.below);
        let gone: Vec<RequestId> = over
            .filter(|(_, request)| !matches!(request, Remembered::Running(..)))
            .map(|(id, _)| *id)
            .filter(|id| self.settled.covers(*id))
            .collect();
        for id in gone {
            let request = self.requests.remove(&id);
            self.bytes -= request.as_ref().map_or(0, Remembered::bytes);
        }
        if !self.behind.is_empty() {
            // Answered by a run before this one, maybe: then this is all that is heard of it.
            let (requests, settled) = (&self.requests, &self.settled);
            let has_run = |id| !requests.contains_key(&id) && settled.covers(id);
            self.behind.on_run(has_run);
        }
        true
    }

    /// Keeps the reply of a request and says where it goes.
    pub(crate) fn finish(&mut self, id: RequestId, frame: &Frame) -> Vec<Destination> {
        let before = if self.settled.covers(id) {
            self.requests.remove(&id)
        } else {
            self.bytes += frame.wire_bytes();
            self.requests.insert(id, Remembered::Done(frame.clone()))
        };
        self.bytes -= before.as_ref().map_or(0, Remembered::bytes);
        self.behind.on_run(|other| other == id);
        match before {
            Some(Remembered::Running(destinations, _)) => destinations,
            Some(Remembered::Done(_)) | None => Vec::new(),
        }
    }

    /// Forgets a request that was taken back before it began.
    pub(crate) fn forget(&mut self, id: RequestId) {
        if let Some(Remembered::Running(_, bytes)) = self.requests.get(&id) {
            self.bytes -= bytes;
            self.requests.remove(&id);
        }
    }

    /// A request has not begun, and the connection that it waited for has ended. Where its reply
    /// goes now: another copy has come on a connection that stands, and was not kept. `None` if
    /// there is none: the next copy is the first one again.
    pub(crate) fn lose(&mut self, id: RequestId) -> Option<Destination> {
        let Some(Remembered::Running(destinations, _)) = self.requests.get_mut(&id) else {
            return None;
        };
        destinations.retain(|to| !to.link.is_closed());
        let other = destinations.first().cloned();
        if other.is_none() {
            self.forget(id);
        }
        other
    }

    /// Whether all of these have run.
    pub(crate) fn have_run(&self, ids: &[RequestId]) -> bool {
        ids.iter().all(|id| self.has_run(*id))
    }

    fn has_run(&self, id: RequestId) -> bool {
        match self.requests.get(&id) {
            Some(Remembered::Done(_)) => true,
            Some(Remembered::Running(..)) => false,
            None => self.settled.covers(id),
        }
    }

    /// Puts a request aside until these have run; gives it back if they have, or if there is no
    /// room for it.
    pub(crate) fn put_behind(
        &mut self,
        ids: &[RequestId],
        request: Box<Execution>,
        now: Time,
    ) -> Option<(Box<Execution>, Waited)> {
        let left = ids.iter().copied().filter(|id| !self.has_run(*id));
        let left: Vec<RequestId> = left.collect();
        if left.is_empty() {
            return Some((request, Waited::None));
        }
        let refused = self.behind.put(left, request, now);
        refused.map(|request| (request, Waited::NoRoom))
    }

    /// Requests that were put aside, of which the wait is over.
    #[expect(clippy::vec_box, reason = "they go to the queue as they are")]
    pub(crate) fn take_ready(&mut self) -> Vec<Box<Execution>> {
        self.behind.take_ready()
    }

    /// Those that have waited for too long.
    #[expect(clippy::vec_box, reason = "they go to the queue as they are")]
    pub(crate) fn take_late(&mut self, now: Time) -> Vec<Box<Execution>> {
        self.behind.take_late(now)
    }

    /// One that its client has taken back.
    pub(crate) fn take_behind(&mut self, id: RequestId) -> Option<Box<Execution>> {
        self.behind.take(|request| request.number() == id)
    }

    /// The session is over: all that were put aside. To be dropped when this is not locked.
    #[expect(clippy::vec_box, reason = "they are dropped as they are")]
    pub(crate) fn close(&mut self) -> Vec<Box<Execution>> {
        self.behind.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::{Link, LinkKey};
    use crate::pool::Pool;
    use std::sync::{Arc, Weak};
    use tokio::sync::Semaphore;
    use wire::frame::{Class, FrameKind};
    use wire::message::ConnectionRole;

    fn to(key: u64) -> Destination {
        let pool: Weak<Pool> = Weak::new();
        let address = "127.0.0.1:1".parse().unwrap();
        let share = crate::share::Whole::default().share();
        let link = Link::new(LinkKey(key), address, ConnectionRole::Main, share, pool);
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Destination::new(link, permit)
    }

    fn frame(id: u64) -> Frame {
        Frame {
            kind: FrameKind::Reply,
            class: Class::Metadata,
            resent: false,
            request: RequestId(id),
            body: bytes::Bytes::from_static(b"answer"),
            payload: wire::payload::Payload::new(),
        }
    }

    fn below(id: u64) -> Settled {
        Settled::all_below(RequestId(id))
    }

    fn arrive(memory: &mut Memory, id: u64, settled: u64, link: u64) -> Arrival {
        memory.arrive(RequestId(id), &below(settled), 256, to(link))
    }

    #[test]
    fn a_second_copy_is_answered_and_not_repeated() {
        let mut memory = Memory::default();
        assert!(matches!(arrive(&mut memory, 5, 0, 1), Arrival::New(_)));
        assert!(matches!(arrive(&mut memory, 5, 0, 2), Arrival::Running));
        let to = memory.finish(RequestId(5), &frame(5));
        let links: Vec<_> = to.iter().map(|to| to.link.key).collect();
        assert_eq!(links, [LinkKey(1), LinkKey(2)], "whichever copy came last");
        let Arrival::Answered(to, again) = arrive(&mut memory, 5, 0, 3) else {
            panic!()
        };
        assert_eq!((to.link.key, again), (LinkKey(3), frame(5)));
    }

    #[test]
    fn a_request_whose_connection_ended_before_it_began_is_carried_out_by_another_copy() {
        let mut memory = Memory::default();
        let Arrival::New(first) = arrive(&mut memory, 5, 0, 1) else {
            panic!()
        };
        // The second copy came before the end of the first one's connection was noticed.
        assert!(matches!(arrive(&mut memory, 5, 0, 2), Arrival::Running));
        first.link.close(None);
        let to = memory.lose(RequestId(5)).unwrap();
        assert_eq!(to.link.key, LinkKey(2));
        // This one ends, too, and the next copy comes later.
        to.link.close(None);
        assert!(memory.lose(RequestId(5)).is_none());
        assert!(memory.requests.is_empty() && memory.bytes == 0);
        assert!(matches!(arrive(&mut memory, 5, 0, 3), Arrival::New(_)));
        let to = memory.finish(RequestId(5), &frame(5));
        assert_eq!(to[0].link.key, LinkKey(3));
        assert!(memory.lose(RequestId(5)).is_none(), "it has run");
        assert!(matches!(
            arrive(&mut memory, 5, 0, 4),
            Arrival::Answered(..)
        ));
    }

    #[test]
    fn a_copy_that_arrives_after_the_client_is_satisfied_is_dropped() {
        let mut memory = Memory::default();
        assert!(matches!(arrive(&mut memory, 5, 0, 1), Arrival::New(_)));
        memory.finish(RequestId(5), &frame(5));
        assert!(matches!(arrive(&mut memory, 7, 6, 1), Arrival::New(_)));
        assert!(matches!(arrive(&mut memory, 5, 0, 1), Arrival::Settled));
        assert_eq!(memory.requests.len(), 1);
        // Settled while it still runs: its end leaves nothing behind.
        memory.settle(&below(9));
        assert_eq!(memory.finish(RequestId(7), &frame(7)).len(), 1);
        assert!(memory.requests.is_empty());
    }

    #[test]
    fn a_client_that_settles_nothing_is_held_to_a_bound() {
        let mut memory = Memory::default();
        for id in 1..=REPLIES_KEPT_MAX as u64 {
            assert!(matches!(arrive(&mut memory, id, 0, 1), Arrival::New(_)));
        }
        assert!(matches!(
            arrive(&mut memory, 1 << 40, 0, 1),
            Arrival::Full(_)
        ));
        memory.forget(RequestId(3));
        assert!(matches!(
            arrive(&mut memory, 1 << 40, 0, 1),
            Arrival::New(_)
        ));
    }

    #[test]
    fn replies_that_are_kept_are_bounded_in_bytes_also_before_they_are_there() {
        let mut memory = Memory::default();
        let bytes = REPLIES_KEPT_BYTES_MAX / 4;
        let arrive = |memory: &mut Memory, id, settled| {
            memory.arrive(RequestId(id), &below(settled), bytes, to(1))
        };
        for id in 1..=4 {
            assert!(matches!(arrive(&mut memory, id, 0), Arrival::New(_)));
        }
        assert!(matches!(arrive(&mut memory, 5, 0), Arrival::Full(_)));
        // What turns out smaller makes room; what is settled or taken back is not counted any more.
        memory.finish(RequestId(1), &frame(1));
        memory.forget(RequestId(4));
        assert!(matches!(arrive(&mut memory, 5, 0), Arrival::New(_)));
        assert!(matches!(arrive(&mut memory, 6, 2), Arrival::New(_)));
        for id in [2, 3, 5, 6] {
            memory.finish(RequestId(id), &frame(id));
        }
        memory.settle(&below(7));
        assert_eq!((memory.bytes, memory.requests.len()), (0, 0));
    }
}
