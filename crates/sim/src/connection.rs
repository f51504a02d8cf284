//! Ordered, reliable frames over a network, as TCP makes them.
//!
//! A frame is cut into segments; all connections between two nodes share their lanes segment by
//! segment. A lost segment is sent again, and what came after it waits at the receiver: loss
//! becomes delay. There is no congestion control and no acknowledgement on the line; a sender
//! learns of a loss one `repeat_time` after the lane does, doubled with every further try of the
//! same segment.
//!
//! An end that closes hears nothing more at once. What it had sent still arrives: a request in a
//! dead socket can come after its own repetition on another connection.

use crate::{Agenda, Datagram, Network, NodeId};
use base::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// A connection, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

/// A piece of a frame on a lane.
#[derive(Clone, Debug)]
pub struct Segment<F> {
    connection: ConnectionId,
    number: u64,
    tries: u32,
    /// The frame, with its last segment.
    frame: Option<F>,
}

/// A whole frame at its receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival<F> {
    /// On which connection.
    pub connection: ConnectionId,
    /// At which node.
    pub to: NodeId,
    /// The frame.
    pub frame: F,
}

/// One direction of a connection.
#[derive(Clone, Debug)]
struct Course<F> {
    /// Number of the next segment to be sent, and to be handed to the receiver.
    next_sent: u64,
    next_heard: u64,
    early: BTreeMap<u64, Option<F>>,
    sender_closed: bool,
    receiver_closed: bool,
}

impl<F> Default for Course<F> {
    fn default() -> Self {
        Self {
            next_sent: 0,
            next_heard: 0,
            early: BTreeMap::new(),
            sender_closed: false,
            receiver_closed: false,
        }
    }
}

/// See the module's head.
#[derive(Clone, Debug)]
pub struct Connections<F> {
    network: Network<Segment<F>>,
    segment_bytes: u64,
    repeat_time: Duration,
    courses: BTreeMap<(ConnectionId, NodeId), Course<F>>,
    made: u64,
    repeats: Agenda<(NodeId, NodeId, u64, Segment<F>)>,
    ready: std::collections::VecDeque<Arrival<F>>,
}

impl<F: Clone> Connections<F> {
    /// Connections over `network`, cutting frames into `segment_bytes`. Small segments are truer,
    /// large ones faster.
    #[must_use]
    pub fn new(network: Network<Segment<F>>, segment_bytes: u64, repeat_time: Duration) -> Self {
        assert!(segment_bytes > 0, "a segment has bytes");
        Self {
            network,
            segment_bytes,
            repeat_time,
            courses: BTreeMap::new(),
            made: 0,
            repeats: Agenda::new(),
            ready: std::collections::VecDeque::new(),
        }
    }

    /// The network, to cut and to change.
    pub fn network(&mut self) -> &mut Network<Segment<F>> {
        &mut self.network
    }

    /// A connection between two joined nodes. It stands at once at both ends.
    pub fn connect(&mut self, a: NodeId, b: NodeId) -> ConnectionId {
        let id = ConnectionId(self.made);
        self.made += 1;
        for receiver in [a, b] {
            self.courses.insert((id, receiver), Course::default());
        }
        id
    }

    /// Sends a frame of `bytes` (at least 1) from `from` to `to`. On a connection that this end has
    /// closed it vanishes.
    pub fn send(
        &mut self,
        now: Time,
        connection: ConnectionId,
        (from, to): (NodeId, NodeId),
        bytes: u64,
        frame: F,
    ) {
        let Some(course) = self.courses.get_mut(&(connection, to)) else {
            return;
        };
        if course.sender_closed {
            return;
        }
        let mut frame = Some(frame);
        let mut left = bytes.max(1);
        while left > 0 {
            let piece = left.min(self.segment_bytes);
            left -= piece;
            let segment = Segment {
                connection,
                number: course.next_sent,
                tries: 0,
                frame: if left == 0 { frame.take() } else { None },
            };
            course.next_sent += 1;
            self.network.send(now, from, to, piece, segment);
        }
    }

    /// `end` closes: it hears and sends nothing more. What it has sent is still on its way.
    pub fn close(&mut self, connection: ConnectionId, end: NodeId) {
        for ((id, receiver), course) in self
            .courses
            .range_mut((connection, NodeId(0))..=(connection, NodeId(u32::MAX)))
        {
            debug_assert_eq!(*id, connection, "the interval has one connection");
            if *receiver == end {
                course.receiver_closed = true;
                course.early.clear();
            } else {
                course.sender_closed = true;
            }
        }
        self.ready
            .retain(|a| (a.connection, a.to) != (connection, end));
    }

    /// Both ends lose the connection with all that is under way on it.
    pub fn reset(&mut self, connection: ConnectionId) {
        self.courses.retain(|(id, _), _| *id != connection);
        self.ready
            .retain(|arrival| arrival.connection != connection);
    }

    /// When [`Self::poll`] may have something next.
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        if !self.ready.is_empty() {
            return Some(Time::ZERO);
        }
        let times = [self.network.next_time(), self.repeats.next_time()];
        times.into_iter().flatten().min()
    }

    /// The next frame that is complete at its receiver by `now`.
    pub fn poll(&mut self, now: Time) -> Option<Arrival<F>> {
        loop {
            if let Some(arrival) = self.ready.pop_front() {
                return Some(arrival);
            }
            // In order of time: a repetition that is due goes before what lands after it.
            let landing = self.network.next_time().unwrap_or(Time::MAX);
            if let Some(at) = self
                .repeats
                .next_time()
                .filter(|at| *at <= now.min(landing))
            {
                let (from, to, bytes, segment) = self.repeats.poll(at).expect("next_time saw one");
                self.network.send(at, from, to, bytes, segment);
                continue;
            }
            if landing > now {
                return None;
            }
            if let Some(datagram) = self.network.poll(landing) {
                self.on_datagram(landing, datagram);
            }
        }
    }

    fn on_datagram(&mut self, now: Time, datagram: Datagram<Segment<F>>) {
        let Datagram {
            from,
            to,
            mut content,
            bytes,
            arrived,
        } = datagram;
        let connection = content.connection;
        let Some(course) = self.courses.get_mut(&(connection, to)) else {
            return;
        };
        if course.receiver_closed || content.number < course.next_heard {
            return;
        }
        if !arrived {
            let wait = self.repeat_time * (1 << content.tries.min(6));
            content.tries += 1;
            self.repeats.at(now + wait, (from, to, bytes, content));
            return;
        }
        course.early.insert(content.number, content.frame);
        while let Some(frame) = course.early.remove(&course.next_heard) {
            course.next_heard += 1;
            if let Some(frame) = frame {
                self.ready.push_back(Arrival {
                    connection,
                    to,
                    frame,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
