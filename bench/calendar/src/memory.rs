//! What calendars hold that have little in them.

use crate::report::Row;
use crate::workload::{amount, interval, now};
use figures::Random;
use reservation::Calendar;

/// Memory with three and with a thousand reservations.
pub(crate) fn sizes(count: usize, seed: u64) -> Vec<Row> {
    let counts = [3, 1_000].into_iter().filter(|few| *few < count);
    let size = |few: usize| {
        let mut random = Random::new(seed);
        let mut calendar = Calendar::new(now(), 1 << 40, 0);
        for _ in 0..few {
            let taken = calendar.take(interval(&mut random), amount(&mut random));
            taken.expect("there is room");
        }
        Row::memory(
            &format!("a calendar of {few}: memory"),
            calendar.memory_bytes(),
        )
    };
    counts.map(size).collect()
}
