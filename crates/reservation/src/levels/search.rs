//! Questions to the tree that one walk from left to right answers.
//!
//! Each walk carries the level along and skips every child of which the parent's summary already
//! tells the outcome. What is asked for is either in the children skipped to or not far behind, so
//! that all but [`Run`] look at one path or two; a run may have to look at every gap that is too
//! short, in the order of memory.

use super::node::{Change, Child, Node, Summary};
use crate::Moment;

/// A walk over the changes of a tree.
pub(super) trait Walk {
    /// Takes the next change; `true` ends the walk.
    fn step(&mut self, change: Change) -> bool;

    /// Takes all changes of a child at once, if their summary is enough. They begin at `first` and
    /// end before `bound`.
    fn skip(&mut self, first: Moment, bound: Moment, summary: Summary) -> bool;

    /// Whether the walk has come to its end when only changes from `first` on are left.
    fn is_over(&mut self, first: Moment) -> bool;
}

/// Walks over `node`, whose changes all come before `bound`. Returns whether the walk has ended.
pub(super) fn walk<const FAN: usize>(
    node: &Node<FAN>,
    bound: Moment,
    walker: &mut impl Walk,
) -> bool {
    match node {
        Node::Leaf(changes) => changes.iter().any(|change| walker.step(*change)),
        Node::Inner(children) => walk_children(children, bound, walker),
    }
}

fn walk_children<const FAN: usize>(
    children: &[Child<FAN>],
    bound: Moment,
    walker: &mut impl Walk,
) -> bool {
    let bounds = children[1..].iter().map(|next| next.first).chain([bound]);
    for (child, bound) in children.iter().zip(bounds) {
        if walker.is_over(child.first) {
            return true;
        }
        if !walker.skip(child.first, bound, child.summary) && walk(&child.node, bound, walker) {
            return true;
        }
    }
    false
}

/// The highest and the lowest level from `from` on and before `to`.
pub(super) struct Extremes {
    from: Moment,
    to: Moment,
    level: i64,
    pub(super) high: i64,
    pub(super) low: i64,
}

impl Extremes {
    /// `level` is what the tree begins with.
    pub(super) fn new(from: Moment, to: Moment, level: i64) -> Self {
        Self {
            from,
            to,
            level,
            high: level,
            low: level,
        }
    }
}

impl Walk for Extremes {
    fn step(&mut self, change: Change) -> bool {
        if change.at >= self.to {
            return true;
        }
        self.level += change.delta;
        if change.at <= self.from {
            (self.high, self.low) = (self.level, self.level);
        } else {
            self.high = self.high.max(self.level);
            self.low = self.low.min(self.level);
        }
        false
    }

    fn skip(&mut self, first: Moment, bound: Moment, summary: Summary) -> bool {
        if bound <= self.from {
            self.level += summary.total;
            (self.high, self.low) = (self.level, self.level);
            return true;
        }
        if first <= self.from || self.to < bound {
            return false;
        }
        self.high = self.high.max(self.level + summary.high);
        self.low = self.low.min(self.level + summary.low);
        self.level += summary.total;
        true
    }

    fn is_over(&mut self, first: Moment) -> bool {
        first >= self.to
    }
}

/// On which side of a limit the level is sought.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Above,
    AtMost,
}

/// The first moment from `from` on at which the level is on one side of a limit.
pub(super) struct Crossing {
    from: Moment,
    limit: i64,
    side: Side,
    level: i64,
    found: Option<Moment>,
}

impl Crossing {
    pub(super) fn new(from: Moment, limit: i64, side: Side, level: i64) -> Self {
        let mut crossing = Self {
            from,
            limit,
            side,
            level,
            found: None,
        };
        crossing.look(from);
        crossing
    }

    /// The answer, after the walk.
    pub(super) fn found(self) -> Option<Moment> {
        self.found
    }

    /// Notes the level that is reached at `at`. What holds by the last change up to `from` holds
    /// at `from`; a later change up to there may take it back.
    fn look(&mut self, at: Moment) {
        let is_met = match self.side {
            Side::Above => self.level > self.limit,
            Side::AtMost => self.level <= self.limit,
        };
        self.found = is_met.then(|| at.max(self.from));
    }
}

impl Walk for Crossing {
    fn step(&mut self, change: Change) -> bool {
        if self.is_over(change.at) {
            return true;
        }
        self.level += change.delta;
        self.look(change.at);
        false
    }

    fn skip(&mut self, first: Moment, bound: Moment, summary: Summary) -> bool {
        let is_before = bound <= self.from;
        let is_possible = match self.side {
            Side::Above => self.level + summary.high > self.limit,
            Side::AtMost => self.level + summary.low <= self.limit,
        };
        if !is_before && is_possible {
            return false;
        }
        self.level += summary.total;
        self.look(first);
        true
    }

    fn is_over(&mut self, first: Moment) -> bool {
        first > self.from && self.found.is_some()
    }
}

/// The first stretch of a given length, from `from` on, in which the level is at most `limit`.
pub(super) struct Run {
    from: Moment,
    limit: i64,
    length_seconds: u64,
    last_start: Moment,
    level: i64,
    /// Since when the level has been at most the limit.
    start: Option<Moment>,
}

impl Run {
    pub(super) fn new(
        (from, last_start): (Moment, Moment),
        limit: i64,
        length_seconds: u64,
        level: i64,
    ) -> Self {
        Self {
            from,
            limit,
            length_seconds,
            last_start,
            level,
            start: (level <= limit).then_some(from),
        }
    }

    /// The answer, after the walk: what had begun when it ended lasts long enough.
    pub(super) fn found(self) -> Option<Moment> {
        self.start.filter(|start| *start <= self.last_start)
    }

    fn begin(&mut self, at: Moment) {
        self.start.get_or_insert(at.max(self.from));
    }
}

impl Walk for Run {
    fn step(&mut self, change: Change) -> bool {
        if self.is_over(change.at) {
            return true;
        }
        self.level += change.delta;
        if self.level <= self.limit {
            self.begin(change.at);
        } else {
            self.start = None;
        }
        false
    }

    fn skip(&mut self, first: Moment, bound: Moment, summary: Summary) -> bool {
        if bound <= self.from {
            self.level += summary.total;
            self.start = (self.level <= self.limit).then_some(self.from);
        } else if self.level + summary.high <= self.limit {
            self.level += summary.total;
            self.begin(first);
        } else if self.level + summary.low > self.limit {
            self.level += summary.total;
            self.start = None;
        } else {
            return false;
        }
        true
    }

    fn is_over(&mut self, first: Moment) -> bool {
        if first <= self.from {
            return false;
        }
        match self.start {
            Some(start) => start > self.last_start || first >= start.plus(self.length_seconds),
            // No change before `first` can begin a run.
            None => first > self.last_start,
        }
    }
}
