//! How long single operations took.

use std::hint::black_box;
use std::time::Instant;

/// Durations in nanoseconds, the reading of the clock included (some 25 ns).
#[derive(Debug, Default)]
pub(crate) struct Times(Vec<u32>);

impl Times {
    /// Times one operation.
    pub(crate) fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = black_box(operation());
        let nanos = start.elapsed().as_nanos();
        self.0.push(u32::try_from(nanos).unwrap_or(u32::MAX));
        result
    }

    /// Counts what was timed last there here as well.
    pub(crate) fn count_last_of(&mut self, other: &Self) {
        self.0.extend(other.0.last());
    }

    /// The durations at these shares of all of them, in microseconds.
    pub(crate) fn quantiles(&mut self, shares: [f64; 3]) -> [f64; 3] {
        self.0.sort_unstable();
        shares.map(|share| {
            let nanos = figures::quantile(&self.0, share);
            nanos.map_or(0.0, |nanos| f64::from(nanos) / 1000.0)
        })
    }
}
