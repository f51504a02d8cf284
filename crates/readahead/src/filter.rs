//! Extreme values over a sliding window, as both figures of a link need them: the smallest round
//! trip of the last seconds and the largest delivery rate of the last rounds.

use std::collections::VecDeque;

/// Entries kept. A later, better sample removes the ones it beats, so only a steadily worsening
/// series fills the queue; then neighbours in time are merged.
const ENTRIES_MAX: usize = 64;

/// The best value among the samples whose stamp is at most `span` old. "Best" is the smallest key;
/// a maximum is kept by handing in reversed keys.
#[derive(Clone, Debug)]
pub(crate) struct SlidingBest<K: Ord + Copy> {
    span: u64,
    /// Stamps and keys, both increasing from front to back.
    entries: VecDeque<(u64, K)>,
}

impl<K: Ord + Copy> SlidingBest<K> {
    pub(crate) fn new(span: u64) -> Self {
        Self {
            span,
            entries: VecDeque::new(),
        }
    }

    /// Adds a sample. Stamps must not decrease.
    pub(crate) fn insert(&mut self, stamp: u64, key: K) {
        while self.entries.back().is_some_and(|&(_, worse)| worse >= key) {
            self.entries.pop_back();
        }
        if self.entries.len() == ENTRIES_MAX {
            // The new sample is worse than all kept ones and later than they are: it replaces the
            // last, which errs towards the present.
            self.entries.pop_back();
        }
        self.entries.push_back((stamp, key));
        self.expire(stamp);
    }

    /// Forgets what is too old at `stamp`, but never the last sample: an old figure is better than
    /// none.
    pub(crate) fn expire(&mut self, stamp: u64) {
        while self.entries.len() > 1
            && self
                .entries
                .front()
                .is_some_and(|&(at, _)| stamp.saturating_sub(at) > self.span)
        {
            self.entries.pop_front();
        }
    }

    /// Forgets everything but the sample given.
    pub(crate) fn reset(&mut self, stamp: u64, key: K) {
        self.entries.clear();
        self.entries.push_back((stamp, key));
    }

    /// The best value, if there was a sample.
    pub(crate) fn best(&self) -> Option<K> {
        self.entries.front().map(|&(_, key)| key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_best_of_the_window_agrees_with_a_scan(
            steps in prop::collection::vec((0u64..5, 0u32..50), 1..200)
        ) {
            let mut filter = SlidingBest::new(20);
            let mut all = Vec::new();
            let mut stamp = 0;
            for (step, key) in steps {
                stamp += step;
                all.push((stamp, key));
                filter.insert(stamp, key);
                let best = all.iter().filter(|(at, _)| stamp - at <= 20).map(|(_, k)| *k).min();
                prop_assert_eq!(filter.best(), best);
            }
        }
    }
}
