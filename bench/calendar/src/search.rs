//! When would it fit: what a counter-offer costs.

use crate::random::Random;
use crate::report::Row;
use crate::times::Times;
use crate::workload::{NOW_SECONDS, YEAR_SECONDS, interval, now};
use reservation::{Calendar, Interval, Moment};

/// Searches that look at every change are few.
const WORST_COUNT: usize = 20;

/// Searches in a calendar that is half full, and the worst one.
pub(crate) fn searches(count: usize, operations: usize, seed: u64) -> Vec<Row> {
    let mut random = Random::new(seed);
    let mut calendar = Calendar::new(now(), 1 << 62, 0);
    for _ in 0..count {
        let taken = calendar.take(interval(&mut random), 1 + random.below(99));
        taken.expect("there is room");
    }
    // A capacity that is reached in about half of all seconds makes gaps of every length.
    let peak = calendar.peak(Interval::unlimited(now()).expect("there is time"));
    calendar.set_capacity(peak / 2);
    let mut usual = Times::default();
    for _ in 0..operations / 10 {
        let earliest = now().plus(random.below(YEAR_SECONDS));
        let (amount, length) = (1 + random.below(peak / 20), 60 + random.below(7200));
        usual.time(|| calendar.first_fit(amount, Some(length), earliest, Moment::FOREVER));
    }

    let mut full = Calendar::new(now(), 10, 0);
    for index in 0..count as u64 {
        let start = Moment::from_secs(NOW_SECONDS + 60 * index);
        let busy = Interval::new(start, start.plus(59)).expect("it has seconds");
        full.take(busy, 10).expect("nothing else is there");
    }
    let mut worst = Times::default();
    for _ in 0..WORST_COUNT {
        let found = worst.time(|| full.first_fit(1, Some(2), now(), Moment::FOREVER));
        assert!(found.is_some(), "after the last there is room for ever");
    }
    vec![
        Row::times("when does it fit: a busy year", &mut usual),
        Row::times(
            "when does it fit: every gap but the last too short",
            &mut worst,
        ),
    ]
}
