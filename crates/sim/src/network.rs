//! Nodes and the lanes between them.

use crate::{Lane, LaneCounts, Random, Shape};
use base::Time;
use std::collections::BTreeMap;

/// A machine of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// What came, or did not, over a [`Network`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<P> {
    /// Who sent it.
    pub from: NodeId,
    /// For whom it is.
    pub to: NodeId,
    /// What it carries.
    pub content: P,
    /// How many bytes it has.
    pub bytes: u64,
    /// Whether it is there; else it was lost.
    pub arrived: bool,
}

/// Lanes between nodes, each direction for itself: both may differ, and one alone may be cut.
#[derive(Clone, Debug)]
pub struct Network<P> {
    random: Random,
    lanes: BTreeMap<(NodeId, NodeId), Lane<P>>,
}

impl<P: Clone> Network<P> {
    /// No nodes yet.
    #[must_use]
    pub fn new(random: Random) -> Self {
        Self {
            random,
            lanes: BTreeMap::new(),
        }
    }

    /// Joins two nodes by two lanes of one shape.
    pub fn join(&mut self, a: NodeId, b: NodeId, shape: Shape) {
        for ends in [(a, b), (b, a)] {
            let lane = Lane::new(shape, self.random.fork());
            let before = self.lanes.insert(ends, lane);
            assert!(before.is_none(), "{ends:?} are joined already");
        }
    }

    /// Changes the lane from `from` to `to` alone. All that is due at `now` must have been polled.
    pub fn reshape(&mut self, now: Time, from: NodeId, to: NodeId, shape: Shape) {
        self.lane_mut(from, to).reshape(now, shape);
    }

    /// Cuts the lane from `from` to `to`; the other direction stands.
    pub fn cut(&mut self, now: Time, from: NodeId, to: NodeId) {
        self.lane_mut(from, to).cut(now);
    }

    /// Makes a cut lane stand again.
    pub fn heal(&mut self, from: NodeId, to: NodeId) {
        self.lane_mut(from, to).heal();
    }

    /// What has passed the lane from `from` to `to`.
    #[must_use]
    pub fn counts(&self, from: NodeId, to: NodeId) -> LaneCounts {
        self.lane(from, to).counts()
    }

    /// What the lane from `from` to `to` is like.
    #[must_use]
    pub fn shape(&self, from: NodeId, to: NodeId) -> Shape {
        self.lane(from, to).shape()
    }

    /// Sends a datagram between two joined nodes.
    pub fn send(&mut self, now: Time, from: NodeId, to: NodeId, bytes: u64, content: P) {
        self.lane_mut(from, to).send(now, bytes, content);
    }

    /// When [`Self::poll`] has something next.
    #[must_use]
    pub fn next_time(&self) -> Option<Time> {
        self.lanes.values().filter_map(Lane::next_time).min()
    }

    /// A datagram that has arrived or is known to be lost by `now`; of several the earliest.
    pub fn poll(&mut self, now: Time) -> Option<Datagram<P>> {
        loop {
            let due = |(_, lane): &(_, &mut Lane<P>)| lane.next_time();
            let lanes = self
                .lanes
                .iter_mut()
                .filter(|(_, lane)| lane.next_time().is_some());
            let ((from, to), lane) = lanes.min_by_key(due)?;
            let at = lane.next_time()?;
            if at > now {
                return None;
            }
            // The lane may only have moved something from its queue into the air.
            if let Some(outcome) = lane.poll(at) {
                return Some(Datagram {
                    from: *from,
                    to: *to,
                    content: outcome.content,
                    bytes: outcome.bytes,
                    arrived: outcome.arrived,
                });
            }
        }
    }

    fn lane(&self, from: NodeId, to: NodeId) -> &Lane<P> {
        self.lanes.get(&(from, to)).expect("the nodes are joined")
    }

    fn lane_mut(&mut self, from: NodeId, to: NodeId) -> &mut Lane<P> {
        self.lanes
            .get_mut(&(from, to))
            .expect("the nodes are joined")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rate;
    use std::time::Duration;

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);
    const C: NodeId = NodeId(2);

    #[test]
    fn datagrams_of_all_lanes_come_in_order_of_time() {
        let mut network = Network::new(Random::new(1));
        network.join(A, B, Shape::line(Duration::from_secs(3), Rate(1000)));
        network.join(A, C, Shape::line(Duration::from_secs(1), Rate(1000)));
        network.send(Time::ZERO, A, B, 1, 'b');
        network.send(Time::ZERO, C, A, 1, 'a');
        network.send(Time::ZERO, A, C, 2, 'c');
        assert_eq!(network.poll(Time::from_secs(1)), None);
        let end = Time::from_secs(9);
        let came: String = std::iter::from_fn(|| network.poll(end))
            .map(|d| d.content)
            .collect();
        assert_eq!(came, "acb");
    }

    #[test]
    fn one_direction_can_be_cut_alone() {
        let mut network = Network::new(Random::new(1));
        network.join(A, B, Shape::ideal());
        network.cut(Time::ZERO, A, B);
        network.send(Time::ZERO, A, B, 1, 'x');
        network.send(Time::ZERO, B, A, 1, 'y');
        let mut fates: Vec<_> = std::iter::from_fn(|| network.poll(Time::from_secs(1)))
            .map(|d| (d.content, d.arrived))
            .collect();
        fates.sort_unstable();
        assert_eq!(fates, [('x', false), ('y', true)]);
        network.heal(A, B);
        network.send(Time::from_secs(1), A, B, 1, 'z');
        let at = Time::from_secs(2);
        assert_eq!(
            network.poll(at).map(|d| (d.content, d.arrived)),
            Some(('z', true))
        );
    }
}
