//! The tree below [`Levels`](super::Levels): a B+ tree of changes, in which every child is known
//! to its parent by the sum of its changes and by how high and how low the level comes within it.
//!
//! Sums make lazy marks needless: a reservation over ten years is two changes, and no node between
//! them is touched. Children of one parent are at most `FAN` and lie in one piece of memory, so the
//! sums beside a path are read in the order in which memory is fetched. A node that loses most of
//! its content is joined with a neighbour.

use crate::Moment;

/// A change of the level: from `at` on it is `delta` higher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) at: Moment,
    /// Never zero within a tree.
    pub(crate) delta: i64,
}

/// What changes in a row do to the level that they begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Summary {
    /// What is added by all of them.
    pub(super) total: i64,
    /// What is added at most after one or more of them.
    pub(super) high: i64,
    /// What is added at least after one or more of them.
    pub(super) low: i64,
}

impl Summary {
    fn of_change(change: &Change) -> Self {
        Self {
            total: change.delta,
            high: change.delta,
            low: change.delta,
        }
    }

    /// These changes, and `next` after them.
    fn then(self, next: Self) -> Self {
        Self {
            total: self.total + next.total,
            high: self.high.max(self.total + next.high),
            low: self.low.min(self.total + next.low),
        }
    }
}

/// A node as its parent knows it.
#[derive(Clone, Debug)]
pub(super) struct Child<const FAN: usize> {
    /// When its first change is.
    pub(super) first: Moment,
    pub(super) summary: Summary,
    pub(super) node: Node<FAN>,
}

impl<const FAN: usize> Child<FAN> {
    /// `node` must not be empty.
    pub(super) fn new(node: Node<FAN>) -> Self {
        let (first, summary) = node
            .describe()
            .expect("only nodes with content get parents");
        Self {
            first,
            summary,
            node,
        }
    }
}

/// Changes in the order of time; all leaves lie equally deep.
#[derive(Clone, Debug)]
pub(super) enum Node<const FAN: usize> {
    Leaf(Vec<Change>),
    Inner(Vec<Child<FAN>>),
}

impl<const FAN: usize> Node<FAN> {
    /// Below this a node is joined with a neighbour if both fit into three quarters of one, so that
    /// the next change does not split it again.
    const SMALL: usize = FAN / 4;
    const JOINED_MAX: usize = FAN / 2 + FAN / 4;

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Leaf(changes) => changes.len(),
            Self::Inner(children) => children.len(),
        }
    }

    /// First moment and summary; `None` if there are no changes.
    pub(super) fn describe(&self) -> Option<(Moment, Summary)> {
        match self {
            Self::Leaf(changes) => {
                let parts = changes.iter().map(Summary::of_change);
                Some((changes.first()?.at, parts.reduce(Summary::then)?))
            }
            Self::Inner(children) => {
                let parts = children.iter().map(|child| child.summary);
                Some((children.first()?.first, parts.reduce(Summary::then)?))
            }
        }
    }

    /// Adds `change`. If the node had to be split for it, its later part is returned.
    pub(super) fn add(&mut self, change: Change) -> Option<Child<FAN>> {
        match self {
            Self::Leaf(changes) => {
                let place = changes.binary_search_by_key(&change.at, |known| known.at);
                match place {
                    Ok(at) => {
                        changes[at].delta += change.delta;
                        if changes[at].delta == 0 {
                            changes.remove(at);
                        }
                        None
                    }
                    Err(at) => Some(Child::new(Self::Leaf(insert(changes, at, change, FAN)?))),
                }
            }
            Self::Inner(children) => {
                let at = children.partition_point(|child| child.first <= change.at);
                let at = at.saturating_sub(1);
                let split = children[at].node.add(change);
                Self::settle(children, at);
                let later = insert(children, at + 1, split?, FAN)?;
                Some(Child::new(Self::Inner(later)))
            }
        }
    }

    /// Makes `children` right again after the one at `at` has changed.
    fn settle(children: &mut Vec<Child<FAN>>, at: usize) {
        let child = &mut children[at];
        let Some((first, summary)) = child.node.describe() else {
            children.remove(at);
            return;
        };
        (child.first, child.summary) = (first, summary);
        if child.node.len() >= Self::SMALL || children.len() == 1 {
            return;
        }
        let left = if at + 1 < children.len() { at } else { at - 1 };
        if children[left].node.len() + children[left + 1].node.len() <= Self::JOINED_MAX {
            let right = children.remove(left + 1);
            let mut joined = children.remove(left).node;
            match (&mut joined, right.node) {
                (Self::Leaf(changes), Self::Leaf(more)) => changes.extend(more),
                (Self::Inner(own), Self::Inner(more)) => own.extend(more),
                _ => unreachable!("neighbours lie equally deep"),
            }
            children.insert(left, Child::new(joined));
        }
    }

    /// Drops every change at `moment` or before, and returns their sum.
    pub(super) fn forget_through(&mut self, moment: Moment) -> i64 {
        match self {
            Self::Leaf(changes) => {
                let count = changes.partition_point(|change| change.at <= moment);
                changes.drain(..count).map(|change| change.delta).sum()
            }
            Self::Inner(children) => {
                // Of the children that begin by then, all but the last one end by then, too.
                let begun = children.partition_point(|child| child.first <= moment);
                let Some(last) = begun.checked_sub(1) else {
                    return 0;
                };
                let gone = children.drain(..last).map(|child| child.summary.total);
                let total: i64 = gone.sum();
                let rest = children[0].node.forget_through(moment);
                Self::settle(children, 0);
                total + rest
            }
        }
    }
}

/// Inserts `item` at `at` into `items`. If there are `fan` of them already, the later part is
/// returned; what comes at the end of a full node begins a new one, so that nodes which are filled
/// in order become full.
fn insert<T>(items: &mut Vec<T>, at: usize, item: T, fan: usize) -> Option<Vec<T>> {
    if items.len() < fan {
        items.insert(at, item);
        return None;
    }
    let middle = if at == items.len() { at } else { fan / 2 };
    let mut later = items.split_off(middle);
    if at <= middle && at < fan {
        items.insert(at, item);
    } else {
        later.insert(at - middle, item);
    }
    Some(later)
}
