//! Contiguous runs of bytes, and sets of them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The bytes `offset .. offset + len` of a file, object or device. `offset + len` never overflows.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Extent {
    /// First byte.
    pub offset: u64,
    /// Length in bytes; may be zero.
    pub len: u64,
}

impl Extent {
    /// The run of `len` bytes at `offset`, cut short where it would pass the end of the address
    /// space.
    #[must_use]
    pub const fn new(offset: u64, len: u64) -> Self {
        let room = u64::MAX - offset;
        Self {
            offset,
            len: if len > room { room } else { len },
        }
    }

    /// The run from `start` up to, not including, `end`; empty if `end <= start`.
    #[must_use]
    pub const fn between(start: u64, end: u64) -> Self {
        Self {
            offset: start,
            len: end.saturating_sub(start),
        }
    }

    /// First byte after the run.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Whether the run has no bytes.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Whether byte `position` is in the run.
    #[must_use]
    pub const fn contains(self, position: u64) -> bool {
        self.offset <= position && position < self.end()
    }

    /// Whether every byte of `other` is in this run.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        other.is_empty() || (self.offset <= other.offset && other.end() <= self.end())
    }

    /// The bytes that both runs have; empty if none.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self::between(self.offset.max(other.offset), self.end().min(other.end()))
    }

    /// Whether the runs share at least one byte.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        !self.intersection(other).is_empty()
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.offset, self.len)
    }
}

/// A set of bytes, kept as disjoint, non-adjoining runs in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentSet {
    /// Start of a run to its end.
    runs: BTreeMap<u64, u64>,
}

impl ExtentSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the set has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many bytes the set has.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.runs.iter().map(|(start, end)| end - start).sum()
    }

    /// How many separate runs the set has.
    #[must_use]
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// The runs in order.
    pub fn iter(&self) -> impl Iterator<Item = Extent> + '_ {
        self.runs
            .iter()
            .map(|(start, end)| Extent::between(*start, *end))
    }

    /// Adds the bytes of `extent`; runs that touch become one.
    pub fn insert(&mut self, extent: Extent) {
        if extent.is_empty() {
            return;
        }
        let (mut start, mut end) = (extent.offset, extent.end());
        while let Some((&s, &e)) = self.runs.range(..=end).next_back() {
            if e < start {
                break;
            }
            start = start.min(s);
            end = end.max(e);
            self.runs.remove(&s);
        }
        self.runs.insert(start, end);
    }

    /// Takes the bytes of `extent` out.
    pub fn remove(&mut self, extent: Extent) {
        if extent.is_empty() {
            return;
        }
        let (start, end) = (extent.offset, extent.end());
        while let Some((&s, &e)) = self.runs.range(..end).next_back() {
            if e <= start {
                break;
            }
            self.runs.remove(&s);
            if s < start {
                self.runs.insert(s, start);
            }
            if e > end {
                self.runs.insert(end, e);
            }
        }
    }

    /// Whether every byte of `extent` is in the set.
    #[must_use]
    pub fn covers(&self, extent: Extent) -> bool {
        extent.is_empty()
            || self
                .runs
                .range(..=extent.offset)
                .next_back()
                .is_some_and(|(_, &end)| extent.end() <= end)
    }

    /// Whether any byte of `extent` is in the set.
    #[must_use]
    pub fn overlaps(&self, extent: Extent) -> bool {
        !extent.is_empty()
            && self
                .runs
                .range(..extent.end())
                .next_back()
                .is_some_and(|(_, &end)| end > extent.offset)
    }

    /// The run that has the byte at `offset`.
    #[must_use]
    pub fn run_at(&self, offset: u64) -> Option<Extent> {
        let (&start, &end) = self.runs.range(..=offset).next_back()?;
        (offset < end).then(|| Extent::between(start, end))
    }

    /// The runs of `extent` that are not in the set, in order.
    #[must_use]
    pub fn missing(&self, extent: Extent) -> Vec<Extent> {
        let mut gaps = Vec::new();
        let mut position = extent.offset;
        let first = self
            .runs
            .range(..=extent.offset)
            .next_back()
            .map_or(extent.offset, |(s, _)| *s);
        for (&start, &end) in self.runs.range(first..extent.end().max(first)) {
            if start > position {
                gaps.push(Extent::between(position, start.min(extent.end())));
            }
            position = position.max(end);
        }
        if position < extent.end() {
            gaps.push(Extent::between(position, extent.end()));
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SPACE: u64 = 64;

    fn extents() -> impl Strategy<Value = Vec<(bool, u64, u64)>> {
        prop::collection::vec((any::<bool>(), 0..SPACE, 0..SPACE / 2), 0..40)
    }

    proptest! {
        #[test]
        fn set_agrees_with_a_bitmap(ops in extents(), probe in (0..SPACE, 0..SPACE)) {
            let mut set = ExtentSet::new();
            let mut bits = [false; 2 * SPACE as usize];
            for (add, offset, len) in ops {
                let extent = Extent::new(offset, len);
                for bit in &mut bits[offset as usize..(offset + len) as usize] {
                    *bit = add;
                }
                if add { set.insert(extent) } else { set.remove(extent) }
            }
            let extent = Extent::new(probe.0, probe.1);
            let slice = &bits[extent.offset as usize..extent.end() as usize];
            prop_assert_eq!(set.bytes(), bits.iter().filter(|b| **b).count() as u64);
            prop_assert_eq!(set.covers(extent), slice.iter().all(|b| *b));
            prop_assert_eq!(set.overlaps(extent), slice.iter().any(|b| *b));
            let missing: u64 = set.missing(extent).iter().map(|e| e.len).sum();
            prop_assert_eq!(missing, slice.iter().filter(|b| !**b).count() as u64);
            for gap in set.missing(extent) {
                prop_assert!(extent.covers(gap) && !gap.is_empty() && !set.overlaps(gap));
            }
            let runs: Vec<_> = set.iter().collect();
            for pair in runs.windows(2) {
                prop_assert!(pair[0].end() < pair[1].offset, "runs touch: {:?}", pair);
            }
        }
    }

    #[test]
    fn an_extent_never_passes_the_end_of_the_address_space() {
        assert_eq!(Extent::new(u64::MAX - 3, 10).end(), u64::MAX);
        assert!(Extent::new(5, 0).is_empty());
        assert_eq!(Extent::between(7, 3).len, 0);
    }
}
