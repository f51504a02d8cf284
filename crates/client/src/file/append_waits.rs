//! Requests about one file that may wait at the manager for appends of others.

use base::Time;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What waits, and when something did last. What waits for such a request itself has its own time
/// besides ([`Self::own_time_since`]).
#[derive(Debug, Default)]
pub struct AppendWaits {
    requests: AtomicU32,
    ended_nanos: AtomicU64,
}

impl AppendWaits {
    /// A request is under way.
    pub fn begin(&self) {
        self.requests.fetch_add(1, Ordering::AcqRel);
    }

    /// One that was is over.
    pub fn end(&self, now: Time) {
        // Before the count: who sees no request sees when the last one ended.
        self.ended_nanos.fetch_max(now.as_nanos(), Ordering::AcqRel);
        self.requests.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether a request is under way.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.requests.load(Ordering::Acquire) > 0
    }

    /// When the own time began of what has been waited for since `since`, if nothing waits now:
    /// between two requests that wait there is work, at the stores, which has that whole.
    #[must_use]
    pub fn own_time_since(&self, since: Time) -> Time {
        since.max(Time::from_nanos(self.ended_nanos.load(Ordering::Acquire)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_two_waits_has_its_own_time() {
        let waits = AppendWaits::default();
        let at = Time::from_secs;
        assert_eq!(waits.own_time_since(at(3)), at(3), "nothing has waited");
        waits.begin();
        waits.begin();
        waits.end(at(8));
        assert!(waits.is_waiting());
        waits.end(at(9));
        assert!(!waits.is_waiting());
        assert_eq!(waits.own_time_since(at(3)), at(9));
        assert_eq!(waits.own_time_since(at(10)), at(10), "it has come since");
    }
}
