//! A level over time, from an origin on and for ever: how much is taken of something.
//!
//! The level is kept as its changes, sorted by time: a stretch of any length is two of them, one
//! without an end is a single one, and what nobody has changed costs nothing. There is no horizon,
//! and every second is exact. See [`node`] for the tree and [`search`] for the questions. Decision
//! 9 compares it with a segment tree of seconds.

mod node;
mod search;
#[cfg(test)]
mod tests;

use crate::{Interval, Moment};
pub(crate) use node::Change;
use node::{Child, Node};
use search::{Crossing, Extremes, Run, Side, Walk, walk};
use std::mem::size_of;

/// Changes in a leaf and children of an inner node.
const FAN_DEFAULT: usize = 32;

/// A level over time. The caller keeps the sum of all amounts at any moment below 2^62.
#[derive(Clone, Debug)]
pub(crate) struct Levels<const FAN: usize = FAN_DEFAULT> {
    origin: Moment,
    /// The level at `origin`.
    base: i64,
    /// The changes after `origin` and before [`Moment::FOREVER`].
    root: Node<FAN>,
}

impl<const FAN: usize> Levels<FAN> {
    /// Nothing is taken from `origin` on; what was before it is not known.
    pub(crate) fn new(origin: Moment) -> Self {
        Self {
            origin,
            base: 0,
            root: Node::Leaf(Vec::new()),
        }
    }

    /// The level that `changes` make, sorted by time and each after `origin`, on top of `base`: in
    /// time that follows their number alone.
    pub(crate) fn from_changes(
        origin: Moment,
        base: i64,
        changes: impl IntoIterator<Item = Change>,
    ) -> Self {
        let leaves = in_pieces(changes, Self::FILLED, Node::Leaf);
        let mut children: Vec<Child<FAN>> = leaves.collect();
        while children.len() > 1 {
            children = in_pieces(children, Self::FILLED, Node::Inner).collect();
        }
        let root = children.pop().map(|child| child.node);
        Self {
            origin,
            base,
            root: root.unwrap_or(Node::Leaf(Vec::new())),
        }
    }

    /// Entries of a node that is made at once: the first changes after that split nothing.
    const FILLED: usize = FAN / 2 + FAN / 4;

    pub(crate) fn origin(&self) -> Moment {
        self.origin
    }

    /// Raises the level by `delta` from `at` on. Before the origin is at the origin; what would
    /// come at the end of time does not come.
    pub(crate) fn add(&mut self, at: Moment, delta: i64) {
        if at <= self.origin {
            self.base += delta;
        } else if at < Moment::FOREVER && delta != 0 {
            if let Some(later) = self.root.add(Change { at, delta }) {
                let earlier = std::mem::replace(&mut self.root, Node::Leaf(Vec::new()));
                self.root = Node::Inner(vec![Child::new(earlier), later]);
            }
            self.lower_root();
        }
    }

    /// A root with one child is none.
    fn lower_root(&mut self) {
        while let Node::Inner(children) = &mut self.root
            && children.len() <= 1
        {
            self.root = match children.pop() {
                Some(child) => child.node,
                None => Node::Leaf(Vec::new()),
            };
        }
    }

    /// Moves the origin to `now` and forgets what was before; never moves it back.
    pub(crate) fn forget_before(&mut self, now: Moment) {
        if now > self.origin {
            self.base += self.root.forget_through(now);
            self.lower_root();
            self.origin = now;
        }
    }

    fn walk<W: Walk>(&self, mut walker: W) -> W {
        walk(&self.root, Moment::FOREVER, &mut walker);
        walker
    }

    /// The part of `interval` that is not before the origin.
    fn known(&self, interval: Interval) -> Option<Interval> {
        interval.from_on(self.origin)
    }

    /// The highest level in `interval`; zero if all of it is past.
    pub(crate) fn high(&self, interval: Interval) -> i64 {
        self.known(interval).map_or(0, |interval| {
            self.walk(Extremes::new(interval.start(), interval.end(), self.base))
                .high
        })
    }

    /// The lowest level in `interval`; zero if all of it is past.
    pub(crate) fn low(&self, interval: Interval) -> i64 {
        self.known(interval).map_or(0, |interval| {
            self.walk(Extremes::new(interval.start(), interval.end(), self.base))
                .low
        })
    }

    /// The first moment from `from` on with a level above `limit`.
    pub(crate) fn first_above(&self, from: Moment, limit: i64) -> Option<Moment> {
        let from = from.max(self.origin);
        self.walk(Crossing::new(from, limit, Side::Above, self.base))
            .found()
    }

    /// The first moment from `from` on with a level of at most `limit`.
    pub(crate) fn first_at_most(&self, from: Moment, limit: i64) -> Option<Moment> {
        let from = from.max(self.origin);
        self.walk(Crossing::new(from, limit, Side::AtMost, self.base))
            .found()
    }

    /// The first moment between `from` and `last_start`, both included, from which on the level is
    /// at most `limit` for `length_seconds`; for [`u64::MAX`] of them, for ever.
    pub(crate) fn first_run(
        &self,
        (from, last_start): (Moment, Moment),
        limit: i64,
        length_seconds: u64,
    ) -> Option<Moment> {
        let from = from.max(self.origin);
        self.walk(Run::new(
            (from, last_start),
            limit,
            length_seconds,
            self.base,
        ))
        .found()
    }

    /// All changes in the order of time; the first is the level at the origin if it is not zero.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> {
        let base = Change {
            at: self.origin,
            delta: self.base,
        };
        let base = Some(base).filter(|change| change.delta != 0);
        base.into_iter().chain(Changes {
            above: Vec::new(),
            node: Some(&self.root),
            leaf: [].iter(),
        })
    }

    /// Memory that is held, in bytes, itself included.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + Self::node_bytes(&self.root)
    }

    fn node_bytes(node: &Node<FAN>) -> usize {
        match node {
            Node::Leaf(changes) => changes.capacity() * size_of::<Change>(),
            Node::Inner(children) => {
                let below = children.iter().map(|child| Self::node_bytes(&child.node));
                children.capacity() * size_of::<Child<FAN>>() + below.sum::<usize>()
            }
        }
    }
}

/// Nodes of `len` items each.
fn in_pieces<T, const FAN: usize>(
    items: impl IntoIterator<Item = T>,
    len: usize,
    node: impl Fn(Vec<T>) -> Node<FAN>,
) -> impl Iterator<Item = Child<FAN>> {
    let mut items = items.into_iter();
    std::iter::from_fn(move || {
        let piece: Vec<T> = items.by_ref().take(len).collect();
        (!piece.is_empty()).then(|| Child::new(node(piece)))
    })
}

/// Two levels are equal if they are so at every moment, whichever way they came about.
impl<const FAN: usize> PartialEq for Levels<FAN> {
    fn eq(&self, other: &Self) -> bool {
        self.origin == other.origin && self.changes().eq(other.changes())
    }
}

impl<const FAN: usize> Eq for Levels<FAN> {}

/// The changes of a tree in the order of time.
struct Changes<'a, const FAN: usize> {
    /// What is left of the nodes on the way down.
    above: Vec<std::slice::Iter<'a, Child<FAN>>>,
    node: Option<&'a Node<FAN>>,
    leaf: std::slice::Iter<'a, Change>,
}

impl<const FAN: usize> Iterator for Changes<'_, FAN> {
    type Item = Change;

    fn next(&mut self) -> Option<Change> {
        loop {
            if let Some(change) = self.leaf.next() {
                return Some(*change);
            }
            match self.node.take() {
                Some(Node::Leaf(changes)) => self.leaf = changes.iter(),
                Some(Node::Inner(children)) => self.above.push(children.iter()),
                None => match self.above.last_mut()?.next() {
                    Some(child) => self.node = Some(&child.node),
                    None => {
                        self.above.pop();
                    }
                },
            }
        }
    }
}
