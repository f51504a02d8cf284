//! Latencies of single calls, in milliseconds.

use serde::{Deserialize, Serialize};

/// A summary of many latencies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latencies {
    pub(crate) count: u64,
    pub(crate) min_ms: f64,
    pub(crate) median_ms: f64,
    pub(crate) p90_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Latencies {
    /// `None` when there was no call.
    pub(crate) fn of(mut seconds: Vec<f64>) -> Option<Self> {
        seconds.sort_by(f64::total_cmp);
        let at = |share| figures::quantile(&seconds, share).map(|seconds| seconds * 1e3);
        Some(Self {
            count: seconds.len() as u64,
            min_ms: at(0.0)?,
            median_ms: at(0.5)?,
            p90_ms: at(0.9)?,
            p99_ms: at(0.99)?,
            max_ms: at(1.0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_calls() {
        let of = Latencies::of((1..=101).rev().map(f64::from).collect()).unwrap();
        assert_eq!((of.count, of.min_ms, of.median_ms), (101, 1e3, 51e3));
        assert_eq!((of.p90_ms, of.max_ms), (91e3, 101e3));
        assert_eq!(Latencies::of(Vec::new()), None);
    }
}
