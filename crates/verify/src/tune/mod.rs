//! A tuning run: what a way to set the machine is worth in speed, and what it costs in files.
//!
//! ```text
//! point = a cell's speed (as in a speed run) and its recovery rate ([`recovery`])
//! front = the points that no other one beats in both
//! rho   = the rank correlation of the two over all points
//! ```
//!
//! Sections 3.2 and 5.3 of the paper measure both and find that what makes a file system fast makes
//! it lose more, and that a shorter flush time improves both. Here both are measured for the same
//! settings, and the claim is a number with an interval.

pub mod recovery;

use crate::speed::{Cell, Summary};
use crate::statistics::{
    Interval, median, median_interval, pareto_front, spearman, spearman_interval,
};
use recovery::Recovered;
use std::time::Duration;

/// What was found of one way to set the machine.
#[derive(Clone, Debug)]
pub struct Point {
    /// Which.
    pub cell: Cell,
    /// Its speed, of the measure that the run is about.
    pub speed: Option<Summary>,
    /// What was there after each loss of power.
    pub recovered: Vec<Recovered>,
}

/// A share that was measured several times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// How often.
    pub count: usize,
    /// Of what was written, the share that was there.
    pub median: f64,
    /// Where the median probably lies.
    pub interval: Interval,
}

fn share(values: &[f64]) -> Option<Share> {
    Some(Share {
        count: values.len(),
        median: median(values)?,
        interval: median_interval(values)?,
    })
}

impl Point {
    /// The recovery rate: of each repeat the mean over all waits.
    #[must_use]
    pub fn recovery(&self) -> Option<Share> {
        let rates: Vec<f64> = self.recovered.iter().map(Recovered::rate).collect();
        share(&rates)
    }

    /// The recovery rate when power is lost so long after the last write.
    #[must_use]
    pub fn recovery_after(&self, wait: Duration) -> Option<Share> {
        let of = |recovered: &Recovered| {
            let mut cuts = recovered.cuts.iter();
            cuts.find(|cut| cut.wait == wait).map(|cut| cut.bytes)
        };
        let rates: Vec<f64> = self.recovered.iter().filter_map(of).collect();
        share(&rates)
    }

    /// Recovery rate and speed, if both are known.
    fn both(&self) -> Option<(f64, f64)> {
        Some((self.recovery()?.median, self.speed?.median))
    }
}

/// How the two go together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TradeOff {
    /// Spearman's rank correlation of recovery rate and speed.
    pub rho: f64,
    /// Where it probably lies; points too few for that have none.
    pub interval: Option<Interval>,
    /// How many points.
    pub count: usize,
}

/// Of each point, whether it is on the Pareto front of recovery rate and speed. One of which only
/// half is known is not.
#[must_use]
pub fn front(points: &[Point]) -> Vec<bool> {
    let known: Vec<(f64, f64)> = points.iter().filter_map(Point::both).collect();
    let mut on_front = pareto_front(&known).into_iter();
    points
        .iter()
        .map(|point| point.both().is_some() && on_front.next().unwrap_or(false))
        .collect()
}

/// The trade-off over these points; `None` if one of the two is the same everywhere.
#[must_use]
pub fn trade_off(points: &[Point]) -> Option<TradeOff> {
    let known: Vec<(f64, f64)> = points.iter().filter_map(Point::both).collect();
    let rho = spearman(&known)?;
    Some(TradeOff {
        rho,
        interval: spearman_interval(rho, known.len()),
        count: known.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::recovery::Cut;
    use super::*;
    use crate::crash::Target;
    use crate::speed::{Measure, Place};

    fn point(speed: Option<f64>, shares: &[[f64; 2]]) -> Point {
        let cell = Cell {
            place: Place::Made(Target::Ext4),
            block_bytes: Some(4096),
            memory_bytes: None,
            flush_time: None,
            settings: Vec::new(),
            mount_options: String::new(),
        };
        let speed = speed.map(|median| Summary {
            cell: 0,
            measure: Measure::BlockWrite,
            count: 1,
            median,
            interval: median_interval(&[median]).unwrap(),
            cpu: None,
            is_steady: true,
        });
        let cut = |wait, bytes| Cut {
            wait: Duration::from_secs(wait),
            bytes,
            whole_files: 0,
            is_mountable: true,
        };
        let recovered = shares
            .iter()
            .map(|[now, later]| Recovered {
                cuts: vec![cut(0, *now), cut(10, *later)],
            })
            .collect();
        Point {
            cell,
            speed,
            recovered,
        }
    }

    #[test]
    fn a_recovery_rate_is_the_mean_over_waits_and_the_median_over_repeats() {
        let point = point(None, &[[0.0, 1.0], [0.2, 1.0], [0.0, 0.0]]);
        let all = point.recovery().unwrap();
        assert_eq!((all.count, all.median), (3, 0.5));
        assert_eq!((all.interval.low, all.interval.high), (0.0, 0.6));
        let later = point.recovery_after(Duration::from_secs(10)).unwrap();
        assert_eq!((later.median, later.interval.low), (1.0, 0.0));
        assert_eq!(point.recovery_after(Duration::from_secs(3)), None);
    }

    #[test]
    fn the_front_and_the_correlation_are_of_points_that_are_known() {
        let points = [
            point(Some(100.0), &[[0.0, 0.1]]),
            point(Some(90.0), &[[0.5, 0.9]]),
            point(Some(80.0), &[[0.5, 0.8]]),
            point(None, &[[1.0, 1.0]]),
            point(Some(70.0), &[[0.9, 1.0]]),
        ];
        assert_eq!(front(&points), [true, true, false, false, true]);
        let trade_off = trade_off(&points).unwrap();
        assert_eq!(trade_off.count, 4);
        assert!((trade_off.rho + 0.8).abs() < 1e-12, "{trade_off:?}");
        assert!(trade_off.interval.unwrap().low < -0.9);
        assert_eq!(super::trade_off(&points[..1]), None);
    }
}
