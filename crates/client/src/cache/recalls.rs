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
}

impl RecallLog {
    /// Recall number `sequence` (from 1) names `handle`.
    pub fn record(&mut self, handle: &Handle, sequence: u64) {
        self.latest.insert(handle.clone(), sequence);
        self.order.push_back((sequence, handle.clone()));
        while self.order.len() > RECALLS_MAX {
            let (sequence, handle) = self.order.pop_front().expect("it is longer than the limit");
            self.floor = self.floor.max(sequence);
            if self.latest.get(&handle) == Some(&sequence) {
                self.latest.remove(&handle);
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
