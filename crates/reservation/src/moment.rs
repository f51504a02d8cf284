//! Whole seconds of common time, and the stretches between them.
//!
//! Why not [`base::Time`]: it counts nanoseconds on whichever clock its user chose, and most clocks
//! here begin at a start of the machine. A reservation outlives machines, so it is counted in wall
//! time; and it is judged in whole seconds, so the rounding has to be visible where it happens: a
//! start is rounded down and an end up ([`Moment::at_or_before`], [`Moment::at_or_after`]), and
//! what is promised is never less than what was asked for.

use base::Time;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A second of common time (UTC), counted from 1970 without leap seconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Moment(u64);

impl Moment {
    /// Later than every moment that comes: the end of what has no end.
    pub const FOREVER: Self = Self(u64::MAX);

    /// The moment `seconds` after the beginning of 1970; the largest number is [`Self::FOREVER`].
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds)
    }

    /// Seconds since the beginning of 1970.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0
    }

    /// The last moment that is not after `time`, a time of the wall clock.
    #[must_use]
    pub const fn at_or_before(time: Time) -> Self {
        Self(time.as_nanos() / 1_000_000_000)
    }

    /// The first moment that is not before `time`, a time of the wall clock; for [`Time::MAX`],
    /// which is later than everything, [`Self::FOREVER`].
    #[must_use]
    pub const fn at_or_after(time: Time) -> Self {
        match time.as_nanos() {
            u64::MAX => Self::FOREVER,
            nanos => Self(nanos.div_ceil(1_000_000_000)),
        }
    }

    /// The moment `seconds` later. What would lie at the end of time or behind it is
    /// [`Self::FOREVER`].
    #[must_use]
    pub const fn plus(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    /// The moment `seconds` earlier, at most back to 1970. [`Self::FOREVER`] stays what it is.
    #[must_use]
    pub const fn minus(self, seconds: u64) -> Self {
        match self {
            Self::FOREVER => self,
            Self(own) => Self(own.saturating_sub(seconds)),
        }
    }

    /// Seconds from `earlier` to this moment; zero if it is not after it, `None` from any moment to
    /// [`Self::FOREVER`].
    #[must_use]
    pub const fn since(self, earlier: Self) -> Option<u64> {
        match self {
            Self::FOREVER => None,
            Self(own) => Some(own.saturating_sub(earlier.0)),
        }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::FOREVER => f.write_str("for ever"),
            Self(seconds) => write!(f, "@{seconds}"),
        }
    }
}

/// The seconds from a start up to, not including, an end. Never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(Moment, Moment)", into = "(Moment, Moment)")]
pub struct Interval {
    start: Moment,
    end: Moment,
}

/// An interval that would end before it has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an interval ends after its start")]
pub struct EmptyInterval;

impl Interval {
    /// The interval [`start`, `end`).
    ///
    /// # Errors
    /// [`EmptyInterval`] unless `start < end`.
    pub const fn new(start: Moment, end: Moment) -> Result<Self, EmptyInterval> {
        if start.0 < end.0 {
            Ok(Self { start, end })
        } else {
            Err(EmptyInterval)
        }
    }

    /// From `start` on, without an end; at the end of time there is nothing left.
    ///
    /// # Errors
    /// [`EmptyInterval`] if `start` is [`Moment::FOREVER`].
    pub const fn unlimited(start: Moment) -> Result<Self, EmptyInterval> {
        Self::new(start, Moment::FOREVER)
    }

    /// Its first second.
    #[must_use]
    pub const fn start(self) -> Moment {
        self.start
    }

    /// The first second after it; [`Moment::FOREVER`] if it has no end.
    #[must_use]
    pub const fn end(self) -> Moment {
        self.end
    }

    /// Its length; `None` if it has no end.
    #[must_use]
    pub const fn duration_seconds(self) -> Option<u64> {
        self.end.since(self.start)
    }

    /// Whether `moment` lies in it.
    #[must_use]
    pub const fn contains(self, moment: Moment) -> bool {
        self.start.0 <= moment.0 && moment.0 < self.end.0
    }

    /// What of it lies before `moment`.
    #[must_use]
    pub fn before(self, moment: Moment) -> Option<Self> {
        Self::new(self.start, self.end.min(moment)).ok()
    }

    /// What of it lies at `moment` or later.
    #[must_use]
    pub fn from_on(self, moment: Moment) -> Option<Self> {
        Self::new(self.start.max(moment), self.end).ok()
    }

    /// The same interval `seconds` later. `None` if that would be at the end of time.
    #[must_use]
    pub fn later_by(self, seconds: u64) -> Option<Self> {
        let start = self.start.plus(seconds);
        let end = self.end.plus(seconds);
        let kept_its_end = (end == Moment::FOREVER) == (self.end == Moment::FOREVER);
        kept_its_end.then(|| Self::new(start, end).ok())?
    }
}

impl TryFrom<(Moment, Moment)> for Interval {
    type Error = EmptyInterval;

    fn try_from((start, end): (Moment, Moment)) -> Result<Self, EmptyInterval> {
        Self::new(start, end)
    }
}

impl From<Interval> for (Moment, Moment) {
    fn from(interval: Interval) -> Self {
        (interval.start, interval.end)
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_rounded_down_and_ends_up() {
        let time = Time::from_millis(1_500);
        assert_eq!(Moment::at_or_before(time), Moment::from_secs(1));
        assert_eq!(Moment::at_or_after(time), Moment::from_secs(2));
        let whole = Time::from_secs(3);
        assert_eq!(Moment::at_or_before(whole), Moment::at_or_after(whole));
        assert_eq!(Moment::at_or_after(Time::MAX), Moment::FOREVER);
    }

    #[test]
    fn for_ever_stays_for_ever() {
        assert_eq!(Moment::FOREVER.minus(5), Moment::FOREVER);
        assert_eq!(Moment::FOREVER.plus(5), Moment::FOREVER);
        assert_eq!(Moment::FOREVER.since(Moment::from_secs(1)), None);
        let last = Moment::from_secs(u64::MAX - 1);
        assert_eq!(last.plus(1), Moment::FOREVER);
        let unlimited = Interval::unlimited(last).unwrap();
        assert_eq!(unlimited.duration_seconds(), None);
        assert_eq!(unlimited.later_by(1), None, "nothing is left to begin in");
        let ends = Interval::new(Moment::from_secs(1), last).unwrap();
        assert_eq!(ends.later_by(1), None, "an end does not become none");
    }

    #[test]
    fn no_interval_is_empty_from_whatever_source() {
        let (one, two) = (Moment::from_secs(1), Moment::from_secs(2));
        assert_eq!(Interval::new(two, two), Err(EmptyInterval));
        assert_eq!(Interval::unlimited(Moment::FOREVER), Err(EmptyInterval));
        let bytes = postcard::to_stdvec(&Interval::new(one, two).unwrap()).unwrap();
        assert_eq!(bytes, [1, 2]);
        assert!(postcard::from_bytes::<Interval>(&bytes).is_ok());
        assert!(postcard::from_bytes::<Interval>(&[2, 2]).is_err());
        assert!(postcard::from_bytes::<Interval>(&[2, 1]).is_err());
    }
}
