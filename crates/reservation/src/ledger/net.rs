//! The difference that claims make, resource by resource and second by second.
//!
//! Claims of one reservation may overlap on one resource, and an amended reservation overlaps what
//! it was before. Added up, they are a staircase of differences per resource. Where it rises above
//! zero, that much has to fit; everything else is given back or stays. So admission, extension,
//! release and every other amendment are one rule, and nothing has to be undone: first all steps
//! are judged, then all are made.

use crate::{Claim, Interval, Moment};

/// From `at` on, `delta` more of `resource` is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step<R> {
    pub(super) resource: R,
    pub(super) at: Moment,
    /// Wide enough for any number of claims of any amount.
    pub(super) delta: i128,
}

/// A stretch in which the same additional amount is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need<R> {
    pub(super) resource: R,
    /// With guards.
    pub(super) interval: Interval,
    pub(super) amount: u128,
}

impl<R> Need<R> {
    /// The amount as calendars know amounts. What is larger than that is larger than any capacity.
    pub(super) fn amount(&self) -> u64 {
        u64::try_from(self.amount).unwrap_or(u64::MAX)
    }
}

/// The steps of a staircase, sorted by resource and time.
#[derive(Debug)]
pub(super) struct Net<R>(Vec<Step<R>>);

impl<R: Copy + Ord> Net<R> {
    /// The steps from `old` claims to `new` ones; `occupied` says what of a claim's interval
    /// counts, if any of it does.
    pub(super) fn new(
        old: &[Claim<R>],
        new: &[Claim<R>],
        occupied: impl Fn(&Claim<R>) -> Option<Interval>,
    ) -> Self {
        let signs = old.iter().map(|claim| (claim, -1));
        let signs = signs.chain(new.iter().map(|claim| (claim, 1)));
        let mut steps = Vec::with_capacity(2 * (old.len() + new.len()));
        for (claim, sign) in signs {
            let Some(occupied) = occupied(claim) else {
                continue;
            };
            let delta = sign * i128::from(claim.amount);
            let step = |at, delta| Step {
                resource: claim.resource,
                at,
                delta,
            };
            steps.push(step(occupied.start(), delta));
            steps.push(step(occupied.end(), -delta));
        }
        steps.sort_unstable_by_key(|step| (step.resource, step.at));
        steps.dedup_by(|later, kept| {
            let is_same = (later.resource, later.at) == (kept.resource, kept.at);
            if is_same {
                kept.delta += later.delta;
            }
            is_same
        });
        steps.retain(|step| step.delta != 0);
        Self(steps)
    }

    pub(super) fn steps(&self) -> impl Iterator<Item = &Step<R>> {
        self.0.iter()
    }

    /// The stretches in which something additional is needed.
    pub(super) fn needs(&self) -> impl Iterator<Item = Need<R>> {
        let mut level = 0;
        // Each resource's steps add up to zero, so a level never reaches over to the next one.
        self.0
            .iter()
            .zip(self.0.iter().skip(1))
            .filter_map(move |(step, next)| {
                level += step.delta;
                Some(Need {
                    resource: step.resource,
                    amount: u128::try_from(level).ok().filter(|amount| *amount > 0)?,
                    interval: Interval::new(step.at, next.at).ok()?,
                })
            })
    }
}
