//! Which reservations live: starts over a year, lengths from a minute to a month, all orders of
//! magnitude alike; one in a hundred without an end.

use figures::Random;
use reservation::{Interval, Moment};

/// Some day in 2027.
pub(crate) const NOW_SECONDS: u64 = 1_800_000_000;
pub(crate) const YEAR_SECONDS: u64 = 365 * 86_400;
/// Minutes in the longest interval with an end: two to the power of this, about 23 days.
const LENGTH_POWERS: u64 = 15;

/// The moment at which everything happens.
pub(crate) fn now() -> Moment {
    Moment::from_secs(NOW_SECONDS)
}

/// A random interval from now on.
pub(crate) fn interval(random: &mut Random) -> Interval {
    let start = now().plus(random.below(YEAR_SECONDS));
    let minutes = 1 << random.below(LENGTH_POWERS);
    let end = match random.below(100) {
        0 => Moment::FOREVER,
        _ => start.plus(60 * minutes + random.below(60 * minutes)),
    };
    Interval::new(start, end).expect("at least a minute")
}

/// A random amount; a thousand of them on average make 50,000.
pub(crate) fn amount(random: &mut Random) -> u64 {
    1 + random.below(99)
}
