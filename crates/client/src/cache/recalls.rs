//! Recent recalls.

use base::{Handle, QuickMap};
use std::collections::VecDeque;

/// Recalls remembered. One is forgotten only when this many later ones have come; requests older
/// than that are refused their leases wholesale.
const RECALLS_MAX: usize = 8192;

/// Which inodes have been recalled recently, by the number of the recall.
#[derive(Debug, Default)]
pub struct RecallLog {
    latest: QuickMap<Handle, u64>,
    order: VecDeque<(u64, Handle)>,
    /// Requests queued before this many recalls had been seen get no lease.
    floor: u64,
    /// Inodes whose leases are being given back: whether the server has granted one before or after
    /// that nobody knows until it has answered.
    returning: QuickMap<Handle, u32>,
}

impl RecallLog {
    /// Recall number `sequence` (from 1) names `handle`.
    pub fn record(&mut self, handle: &Handle, sequence: u64) {
        // Who counts first need not come first.
        let latest = self.latest.entry(handle.clone()).or_default();
        *latest = sequence.max(*latest);
        self.order.push_back((sequence, handle.clone()));
        while self.order.len() > RECALLS_MAX {
            let (sequence, handle) = self.order.pop_front().expect("it is longer than the limit");
            self.floor = self.floor.max(sequence);
            if self.latest.get(&handle) == Some(&sequence) {
                self.latest.remove(&handle);
            }
        }
    }

    /// Leases on these inodes are about to be given back.
    pub fn begin_return(&mut self, handles: &[Handle]) {
        for handle in handles {
            *self.returning.entry(handle.clone()).or_default() += 1;
        }
    }

    /// The server has taken them; none if it was not asked to. What was asked before that is
    /// refused its leases as if they had been recalled; more than are remembered here, those on
    /// everything.
    pub fn end_return(&mut self, handles: &[Handle], sequence: Option<u64>) {
        for handle in handles {
            if let Some(count) = self.returning.get_mut(handle) {
                *count -= 1;
                if *count == 0 {
                    self.returning.remove(handle);
                }
            }
            if let Some(sequence) = sequence {
                self.record(handle, sequence);
            }
        }
    }

    /// Everything was recalled at `sequence`.
    pub fn record_all(&mut self, sequence: u64) {
        self.latest.clear();
        self.order.clear();
        self.floor = self.floor.max(sequence);
    }

    /// Whether a lease on `handle`, granted to a request that was queued when `recalls_seen`
    /// recalls had been received, may have been recalled meanwhile.
    #[must_use]
    pub fn is_recalled_since(&self, handle: &Handle, recalls_seen: u64) -> bool {
        recalls_seen < self.floor
            || self.returning.contains_key(handle)
            || self
                .latest
                .get(handle)
                .is_some_and(|sequence| *sequence > recalls_seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(n: u64) -> Handle {
        Handle::new(&n.to_le_bytes()).expect("eight bytes")
    }

    #[test]
    fn a_lease_asked_for_before_its_recall_is_refused() {
        let mut log = RecallLog::default();
        log.record(&handle(1), 5);
        assert!(log.is_recalled_since(&handle(1), 4));
        assert!(!log.is_recalled_since(&handle(1), 5));
        assert!(!log.is_recalled_since(&handle(2), 0));
    }

    #[test]
    fn the_later_of_two_recalls_counts_in_whichever_order_they_come() {
        let mut log = RecallLog::default();
        log.record(&handle(1), 9);
        log.record(&handle(1), 7);
        assert!(log.is_recalled_since(&handle(1), 8));
        assert!(!log.is_recalled_since(&handle(1), 9));
    }

    #[test]
    fn a_lease_that_is_being_given_back_is_refused_until_that_is_answered() {
        let mut log = RecallLog::default();
        log.begin_return(&[handle(1), handle(2)]);
        log.begin_return(&[handle(1)]);
        assert!(log.is_recalled_since(&handle(1), 9));
        assert!(!log.is_recalled_since(&handle(3), 0));
        log.end_return(&[handle(1)], None);
        assert!(
            log.is_recalled_since(&handle(1), 9),
            "the other one is under way"
        );
        log.end_return(&[handle(1), handle(2)], Some(10));
        assert!(
            log.is_recalled_since(&handle(1), 9),
            "it was asked for before"
        );
        assert!(!log.is_recalled_since(&handle(2), 10));
        assert!(log.returning.is_empty());
    }

    #[test]
    fn forgetting_a_recall_refuses_everything_older() {
        let mut log = RecallLog::default();
        for n in 1..=RECALLS_MAX as u64 + 1 {
            log.record(&handle(n), n);
        }
        assert!(log.is_recalled_since(&handle(1), 0));
        assert!(!log.is_recalled_since(&handle(1), 1));
        assert_eq!(log.latest.len(), RECALLS_MAX);
    }
}
