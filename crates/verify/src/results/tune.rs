//! Results of tuning runs: points between speed and recovery.

use super::speed::{CellForm, cell, cpu, measure};
use super::{ResultError, invalid, rate, share, time};
use crate::speed::{Cell, LeftOut, Measure, Summary};
use crate::statistics::{
    Interval, median, median_interval, pareto_front, spearman, spearman_interval,
};
use crate::tune::recovery::{Cut, Recovered};
use crate::tune::{Point, Share, TradeOff};
use base::limits::VERIFY_SPEED_CELLS_MAX;
use serde::Deserialize;
use std::time::Duration;

/// A tuning run.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// What was found of each way to set the machine.
    pub points: Vec<Tuned>,
    /// The speed that counts.
    pub by: Measure,
    /// Whether others used the machine.
    pub is_loaded: bool,
    /// How often each point was measured.
    pub repeats: u32,
    /// Processors of the machine.
    pub processors: u32,
    /// What made no sense.
    pub left_out: Vec<LeftOut>,
    /// What could not be measured.
    pub failed: Vec<LeftOut>,
}

/// One of the points.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// Which.
    pub cell: Cell,
    /// What of the bytes that were written was there, over all waits.
    pub recovery: Option<Share>,
    /// And after each wait.
    pub after: Vec<(Duration, Option<Share>)>,
    /// Its speed.
    pub speed: Option<Summary>,
}

impl Tuned {
    /// Recovery rate and speed, if both are known.
    #[must_use]
    pub fn both(&self) -> Option<(f64, f64)> {
        Some((self.recovery?.median, self.speed?.median))
    }
}

impl Tuning {
    /// Of each point, whether no other one beats it in both.
    #[must_use]
    pub fn front(&self) -> Vec<bool> {
        let known: Vec<(f64, f64)> = self.points.iter().filter_map(Tuned::both).collect();
        let mut on_front = pareto_front(&known).into_iter();
        let points = self.points.iter();
        points
            .map(|point| point.both().is_some() && on_front.next().unwrap_or(false))
            .collect()
    }

    /// How speed and recovery go together; `None` if one of the two is the same everywhere.
    #[must_use]
    pub fn trade_off(&self) -> Option<TradeOff> {
        let known: Vec<(f64, f64)> = self.points.iter().filter_map(Tuned::both).collect();
        let rho = spearman(&known)?;
        Some(TradeOff {
            rho,
            interval: spearman_interval(rho, known.len()),
            count: known.len(),
        })
    }
}

#[derive(Deserialize)]
pub(super) struct Form {
    points: Vec<PointForm>,
    by: String,
    left_out: Vec<LeftOut>,
    failed: Vec<LeftOut>,
    is_loaded: bool,
    repeats: u32,
    processors: u32,
}

#[derive(Deserialize)]
struct PointForm {
    #[serde(flatten)]
    cell: CellForm,
    recovery: Option<ShareForm>,
    after: Vec<AfterForm>,
    speed: Option<SpeedForm>,
    /// Of each repeat its losses of power; results without a version have none.
    recoveries: Option<Vec<Vec<CutForm>>>,
    /// Of each repeat.
    rates: Option<Vec<f64>>,
}

#[derive(Deserialize)]
struct CutForm {
    wait_seconds: f64,
    share: f64,
    whole_files: u64,
    is_mountable: bool,
}

#[derive(Deserialize)]
struct AfterForm {
    wait_seconds: f64,
    recovery: Option<ShareForm>,
}

#[derive(Deserialize)]
struct ShareForm {
    median: f64,
    low: f64,
    high: f64,
    confidence: f64,
    count: u32,
}

#[derive(Deserialize)]
struct SpeedForm {
    measure: String,
    median: f64,
    low: f64,
    high: f64,
    confidence: f64,
    count: u32,
    cpu: Option<f64>,
    is_steady: bool,
}

pub(super) fn read(form: Form) -> Result<Tuning, ResultError> {
    if form.points.len() > VERIFY_SPEED_CELLS_MAX {
        return Err(invalid(format!("it has {} points", form.points.len())));
    }
    let points = form.points.into_iter().map(point);
    Ok(Tuning {
        points: points.collect::<Result<_, _>>()?,
        by: measure(&form.by)?,
        is_loaded: form.is_loaded,
        repeats: form.repeats,
        processors: form.processors,
        left_out: form.left_out,
        failed: form.failed,
    })
}

fn point(form: PointForm) -> Result<Tuned, ResultError> {
    let after = form.after.into_iter().map(|after| {
        let recovery = after.recovery.map(recovery).transpose()?;
        Ok((time(after.wait_seconds)?, recovery))
    });
    let mut tuned = Tuned {
        cell: cell(form.cell)?,
        recovery: form.recovery.map(recovery).transpose()?,
        after: after.collect::<Result<_, ResultError>>()?,
        speed: form.speed.map(speed).transpose()?,
    };
    if let Some(repeats) = form.recoveries {
        anew(&mut tuned, repeats)?;
    }
    if let (Some(rates), Some(speed)) = (form.rates, &mut tuned.speed) {
        for one in &rates {
            rate(*one)?;
        }
        let none = || invalid("it has a speed without repeats");
        speed.count = rates.len();
        speed.median = median(&rates).ok_or_else(none)?;
        speed.interval = median_interval(&rates).ok_or_else(none)?;
    }
    Ok(tuned)
}

/// Recovery rates from what was there after each loss of power.
fn anew(tuned: &mut Tuned, repeats: Vec<Vec<CutForm>>) -> Result<(), ResultError> {
    let mut recovered = Vec::new();
    for cuts in repeats {
        let cuts = cuts.into_iter().map(|cut| {
            Ok(Cut {
                wait: time(cut.wait_seconds)?,
                bytes: share("a recovery rate", cut.share)?,
                whole_files: cut.whole_files,
                is_mountable: cut.is_mountable,
            })
        });
        let cuts = cuts.collect::<Result<_, ResultError>>()?;
        recovered.push(Recovered { cuts });
    }
    let point = Point {
        cell: tuned.cell.clone(),
        speed: None,
        recovered,
    };
    tuned.recovery = point.recovery();
    for (wait, share) in &mut tuned.after {
        *share = point.recovery_after(*wait);
    }
    Ok(())
}

fn interval(median: f64, low: f64, high: f64, confidence: f64) -> Result<Interval, ResultError> {
    match low <= median && median <= high {
        true => Ok(Interval {
            low,
            high,
            confidence: share("a confidence", confidence)?,
        }),
        false => Err(invalid(format!(
            "a median of {median} is not between {low} and {high}"
        ))),
    }
}

fn recovery(form: ShareForm) -> Result<Share, ResultError> {
    for one in [form.median, form.low, form.high] {
        share("a recovery rate", one)?;
    }
    Ok(Share {
        count: form.count as usize,
        median: form.median,
        interval: interval(form.median, form.low, form.high, form.confidence)?,
    })
}

fn speed(form: SpeedForm) -> Result<Summary, ResultError> {
    for one in [form.median, form.low, form.high] {
        rate(one)?;
    }
    Ok(Summary {
        cell: 0,
        measure: measure(&form.measure)?,
        count: form.count as usize,
        median: form.median,
        interval: interval(form.median, form.low, form.high, form.confidence)?,
        cpu: cpu(form.cpu)?,
        is_steady: form.is_steady,
    })
}
