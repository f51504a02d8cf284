//! Lines of the log that would come thousands of times a second.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lets one through in so much time, and counts the others.
pub(crate) struct Seldom {
    interval: Duration,
    state: Mutex<State>,
}

struct State {
    /// When one was let through.
    last: Option<Instant>,
    withheld: u64,
}

impl Seldom {
    pub(crate) const fn new(interval: Duration) -> Self {
        Self {
            interval,
            state: Mutex::new(State {
                last: None,
                withheld: 0,
            }),
        }
    }

    /// Whether this one is let through at this time: how many were not since the one before.
    pub(crate) fn pass(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_early = |last: Instant| now.saturating_duration_since(last) < self.interval;
        if state.last.is_some_and(is_early) {
            state.withheld += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.withheld))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_let_through_and_the_others_are_counted() {
        let seldom = Seldom::new(Duration::from_secs(1));
        let start = Instant::now();
        let at = |millis| seldom.pass(start + Duration::from_millis(millis));
        assert_eq!(at(0), Some(0));
        assert_eq!((at(10), at(999)), (None, None));
        assert_eq!(at(1000), Some(2));
        assert_eq!(at(1999), None);
        assert_eq!(at(3000), Some(1));
    }
}
