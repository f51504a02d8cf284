//! When would it fit: what a counter-offer costs.

use crate::report::Row;
use crate::times::Times;
use crate::workload::{NOW_SECONDS, YEAR_SECONDS, interval, now};
use figures::Random;
use reservation::{Calendar, Interval, Moment};

/// Searches that look at every change are few.
const WORST_COUNT: usize = 20;
const MONTH_SECONDS: u64 = 30 * 86_400;

/// Searches in a year in which there is not always room, and the worst one.
pub(crate) fn searches(count: usize, operations: usize, seed: u64) -> Vec<Row> {
    let mut random = Random::new(seed);
    let mut calendar = Calendar::new(now(), 1 << 62, 0);
    for _ in 0..count {
        let drawn = interval(&mut random);
        // What has no end would fill the second half of the year and leave the first one empty.
        let ends = drawn.before(drawn.start().plus(MONTH_SECONDS));
        let taken = calendar.take(ends.expect("it has seconds"), 1 + random.below(99));
        taken.expect("there is room");
    }
    // With what is taken in the middle of the year as its capacity, there are gaps of every length.
    let middle = Interval::new(
        now().plus(YEAR_SECONDS / 2),
        now().plus(YEAR_SECONDS / 2 + 1),
    );
    calendar.set_capacity(calendar.peak(middle.expect("it has a second")));
    let mut usual = Times::default();
    let mut waits_seconds = Vec::new();
    for _ in 0..operations / 10 {
        let earliest = now().plus(MONTH_SECONDS + random.below(YEAR_SECONDS - MONTH_SECONDS));
        let (amount, length) = (1 + random.below(500), 60 + random.below(7200));
        let found =
            usual.time(|| calendar.first_fit(amount, Some(length), earliest, Moment::FOREVER));
        waits_seconds.push(found.and_then(|found| found.start().since(earliest)));
    }
    let waiting = waits_seconds
        .iter()
        .filter(|wait| **wait != Some(0))
        .count();
    let waiting = 100 * waiting / waits_seconds.len().max(1);

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
        Row::times(
            &format!("when does it fit: a year with gaps, not at once for {waiting} of 100"),
            &mut usual,
        ),
        Row::times(
            "when does it fit: every gap but the last too short",
            &mut worst,
        ),
    ]
}
