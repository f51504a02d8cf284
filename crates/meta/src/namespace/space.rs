//! What of a file was never written, as far as its manager knows.
//!
//! Clients say which bytes they have written, allocated or made a hole of; the rest of a file that
//! became longer was never written. So the manager can say how many blocks a file takes without
//! asking its stores, and programs that copy files look for holes only where there are some.
//!
//! A hole is known to the byte and counts by whole stripe units: what is less shares an allocation
//! unit with data. The number of holes is bounded: of more, the smallest count as data.

use base::Extent;
use base::limits::NAMESPACE_HOLES_MAX;
use serde::{Deserialize, Serialize};

/// The holes of a file, and how far it has space: it may have some behind its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Space {
    /// The byte behind the last one that it has space for or that was ever part of it; no less than
    /// its size.
    end: u64,
    /// Where each begins and ends: in order, apart from each other, none behind `end`.
    holes: Vec<(u64, u64)>,
}

impl Space {
    /// Of a file of this size without holes.
    pub(super) fn dense(size: u64) -> Self {
        Self {
            end: size,
            holes: Vec::new(),
        }
    }

    /// Whether there is nothing to say beyond that.
    pub(super) fn is_dense(&self, size: u64) -> bool {
        self.end == size && self.holes.is_empty()
    }

    /// As far as there may be space.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// These bytes have space from now on.
    pub(super) fn on_present(&mut self, extent: Extent) {
        self.reach(extent.offset);
        self.end = self.end.max(extent.end());
        let (from, to) = (extent.offset, extent.end());
        let cut = |(begin, end): (u64, u64)| [(begin, end.min(from)), (begin.max(to), end)];
        let left = std::mem::take(&mut self.holes).into_iter().flat_map(cut);
        self.holes = left.filter(|(begin, end)| begin < end).collect();
        self.bound();
    }

    /// These bytes are a hole from now on.
    pub(super) fn on_hole(&mut self, extent: Extent) {
        let (from, to) = (extent.offset, extent.end().min(self.end));
        if from >= to {
            return;
        }
        let (mut begin, mut end) = (from, to);
        self.holes.retain(|hole| {
            let meets = hole.0 <= to && hole.1 >= from;
            if meets {
                (begin, end) = (begin.min(hole.0), end.max(hole.1));
            }
            !meets
        });
        let at = self.holes.partition_point(|hole| hole.0 < begin);
        self.holes.insert(at, (begin, end));
        self.bound();
    }

    /// The file has this size from now on: longer, or cut.
    pub(super) fn on_size(&mut self, before: u64, size: u64) {
        if size < before {
            self.end = size;
            let cut = |(begin, end): (u64, u64)| (begin, end.min(size));
            let left = std::mem::take(&mut self.holes).into_iter().map(cut);
            self.holes = left.filter(|(begin, end)| begin < end).collect();
        } else {
            self.reach(size);
        }
    }

    fn reach(&mut self, size: u64) {
        let before = self.end;
        self.end = before.max(size);
        self.on_hole(Extent::between(before, self.end));
    }

    fn bound(&mut self) {
        while self.holes.len() > NAMESPACE_HOLES_MAX {
            let smallest = self.holes.iter().enumerate();
            let smallest = smallest.min_by_key(|(_, hole)| hole.1 - hole.0);
            let Some((at, _)) = smallest else { return };
            self.holes.remove(at);
        }
    }

    /// Bytes of holes, by whole stripe units.
    pub(super) fn hole_bytes(&self, unit_log2: u8) -> u64 {
        let unit = 1u64.checked_shl(unit_log2.into()).unwrap_or(u64::MAX);
        let whole = |(begin, end): &(u64, u64)| {
            // What the file's end cuts off has nothing of its unit, either.
            let end = match *end == self.end {
                true => *end,
                false => end / unit * unit,
            };
            end.saturating_sub(begin.div_ceil(unit).saturating_mul(unit))
        };
        let holes = self.holes.iter().map(whole);
        holes.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Present(u64, u64),
        Hole(u64, u64),
        Size(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let part = || (0..200_u64, 1..60_u64);
        let step = prop_oneof![
            3 => part().prop_map(|(offset, len)| Step::Present(offset, len)),
            2 => part().prop_map(|(offset, len)| Step::Hole(offset, len)),
            1 => (0..250_u64).prop_map(Step::Size),
        ];
        prop::collection::vec(step, 1..40)
    }

    /// A bit for each byte: whether it has space.
    #[derive(Default)]
    struct Naive {
        size: usize,
        present: Vec<bool>,
    }

    impl Naive {
        fn apply(&mut self, step: &Step) {
            let part = |offset: u64, len: u64| offset as usize..(offset + len) as usize;
            match *step {
                Step::Present(offset, len) => {
                    let part = part(offset, len);
                    self.present.resize(self.present.len().max(part.end), false);
                    self.present[part].fill(true);
                    self.size = self.size.max((offset + len) as usize);
                }
                Step::Hole(offset, len) => {
                    let part = part(offset, len);
                    let end = self.present.len();
                    self.present[part.start.min(end)..part.end.min(end)].fill(false);
                }
                Step::Size(size) => {
                    let size = size as usize;
                    if size < self.size || size > self.present.len() {
                        self.present.resize(size, false);
                    }
                    self.size = size;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn holes_are_those_of_a_bit_for_each_byte(steps in steps()) {
            let (mut space, mut naive) = (Space::dense(0), Naive::default());
            for step in &steps {
                let before = naive.size as u64;
                match *step {
                    Step::Present(offset, len) => space.on_present(Extent::new(offset, len)),
                    Step::Hole(offset, len) => space.on_hole(Extent::new(offset, len)),
                    Step::Size(size) => space.on_size(before, size),
                }
                naive.apply(step);
                prop_assert_eq!(space.end, naive.present.len() as u64);
                let holes = naive.present.iter().filter(|present| !**present).count();
                prop_assert_eq!(space.hole_bytes(0), holes as u64);
                let apart = space.holes.windows(2).all(|pair| pair[0].1 < pair[1].0);
                prop_assert!(apart, "{:?}", space.holes);
                // By units, and no more than there is.
                prop_assert!(space.hole_bytes(4) <= holes as u64);
            }
        }
    }

    #[test]
    fn of_too_many_holes_the_smallest_count_as_data() {
        let mut space = Space::dense(0);
        let count = NAMESPACE_HOLES_MAX as u64 + 10;
        for number in 0..count {
            // The hole before each byte is longer than the one before that.
            let end = space.end + 100 + number;
            space.on_present(Extent::new(end, 1));
        }
        assert_eq!(space.holes.len(), NAMESPACE_HOLES_MAX);
        let kept: u64 = (10..count).map(|number| 100 + number).sum();
        assert_eq!(space.hole_bytes(0), kept);
    }
}
