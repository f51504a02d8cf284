//! The time that a profile may take, and what of it each part gets.
//!
//! Nobody knows beforehand how fast a machine is. So the time is divided anew before each part,
//! among those that are left: what one has not used the others get, and what one has used beyond
//! its share they lack. A part whose share is too short for any result is left out, and so its time
//! is the others', too.

use std::time::Duration;

/// What is kept back for the report and for what has to be cleaned up: a tenth.
const KEPT_BACK: u32 = 10;
/// And no more than this.
const KEPT_BACK_MAX: Duration = Duration::from_secs(20);

/// Whoever is to end has so long for it in any case: what was written goes to the disk first.
const GRACE_MIN: Duration = Duration::from_secs(10);

/// What a part gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// As long as it takes.
    Unbounded,
    /// So long.
    Bounded(Duration),
    /// So long would be left for it, and it needs more.
    TooShort(Duration),
}

/// See the module's head.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Without what is kept back.
    time: Option<Duration>,
    kept_back: Duration,
    /// Of the parts that are left.
    weights: u64,
}

impl Budget {
    /// For parts with these weights.
    #[must_use]
    pub fn new(time: Option<Duration>, weights: impl Iterator<Item = u32>) -> Self {
        let kept_back = time.map_or(KEPT_BACK_MAX, |time| (time / KEPT_BACK).min(KEPT_BACK_MAX));
        Self {
            time: time.map(|time| time.saturating_sub(kept_back)),
            kept_back,
            weights: weights.map(u64::from).sum(),
        }
    }

    /// How long a part that is to end has for that.
    #[must_use]
    pub fn grace(&self) -> Duration {
        self.kept_back.max(GRACE_MIN)
    }

    /// What the next part gets, which is not one of those that are left any more.
    pub fn take(&mut self, elapsed: Duration, weight: u32, least: Duration) -> Share {
        let weights = self.weights.max(1);
        self.weights = self.weights.saturating_sub(u64::from(weight));
        let Some(time) = self.time else {
            return Share::Unbounded;
        };
        let left = time.saturating_sub(elapsed);
        let share = left.mul_f64((f64::from(weight) / weights as f64).min(1.0));
        match share < least {
            true => Share::TooShort(share),
            false => Share::Bounded(share),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn time_is_divided_by_weights_and_what_is_not_used_goes_on() {
        // 100 s, of which 10 are kept back.
        let mut budget = Budget::new(Some(seconds(100)), [3, 3, 3].into_iter());
        assert_eq!(budget.grace(), seconds(10));
        assert_eq!(
            budget.take(seconds(0), 3, seconds(1)),
            Share::Bounded(seconds(30))
        );
        // It took 10 s: the others have 80.
        assert_eq!(
            budget.take(seconds(10), 3, seconds(1)),
            Share::Bounded(seconds(40))
        );
        // And this one took all of it and 20 more.
        assert_eq!(
            budget.take(seconds(70), 3, seconds(1)),
            Share::Bounded(seconds(20))
        );
    }

    #[test]
    fn what_is_too_short_is_left_out_and_its_time_is_the_others() {
        let mut budget = Budget::new(Some(seconds(100)), [1, 8].into_iter());
        assert_eq!(
            budget.take(seconds(0), 1, seconds(20)),
            Share::TooShort(seconds(10))
        );
        assert_eq!(
            budget.take(seconds(0), 8, seconds(20)),
            Share::Bounded(seconds(90))
        );
        assert_eq!(
            budget.take(seconds(200), 8, seconds(1)),
            Share::TooShort(seconds(0))
        );
    }

    #[test]
    fn little_is_kept_back_of_much_and_without_a_bound_there_is_none() {
        let mut budget = Budget::new(Some(seconds(1000)), [1].into_iter());
        assert_eq!(
            budget.take(seconds(0), 1, seconds(0)),
            Share::Bounded(seconds(980))
        );
        let mut budget = Budget::new(None, [1].into_iter());
        assert_eq!(budget.take(seconds(9999), 1, seconds(5)), Share::Unbounded);
    }
}
