//! What a tuning run has found, for people and for programs.

use super::head;
use super::print::{kernel, load};
use super::speed_print::{cell, from_cache, left_out, measure, rate};
use crate::output;
use ::verify::results::Kind;
use ::verify::speed::{Measure, Outcome};
use ::verify::statistics::Interval;
use ::verify::tune::recovery::Cut;
use ::verify::tune::{Point, Share, front, trade_off};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::Duration;

/// What was asked for, and is not in the outcome.
pub(super) struct Facts<'a> {
    pub(super) by: Measure,
    pub(super) waits: &'a [Duration],
    pub(super) repeats: u32,
    pub(super) seed: u64,
    pub(super) was_interrupted: bool,
}

/// What a run was done with, for its report.
pub(super) fn conditions(speeds: &Outcome, facts: &Facts<'_>) -> Vec<(&'static str, String)> {
    let waits: Vec<String> = facts.waits.iter().map(|wait| output::span(*wait)).collect();
    let now = jiff::Timestamp::now();
    vec![
        ("date", now.strftime("%Y-%m-%d %H:%M UTC").to_string()),
        ("kernel", kernel()),
        ("processors", speeds.processors.to_string()),
        (
            "load before and after",
            format!("{:.2}; {}", speeds.load, load()),
        ),
        ("speed", facts.by.name().replace('_', " ")),
        ("power is lost after", waits.join(", ")),
        ("repeats", facts.repeats.to_string()),
        ("seed", facts.seed.to_string()),
        ("azekura", env!("CARGO_PKG_VERSION").to_owned()),
    ]
}

fn percent(share: Option<Share>) -> String {
    share.map_or(String::new(), |share| {
        let Interval { low, high, .. } = share.interval;
        let [median, low, high] = [share.median, low, high].map(|share| share * 100.0);
        format!("{median:.0} % ({low:.0} to {high:.0})")
    })
}

pub(super) fn text(speeds: &Outcome, points: &[Point], facts: &Facts<'_>) -> String {
    let rows: Vec<[String; 5]> = points
        .iter()
        .zip(front(points))
        .map(|(point, is_on_front)| {
            let shown = |figure| rate(facts.by, figure);
            let speed = point.speed.as_ref();
            [
                speeds.name(&point.cell),
                percent(point.recovery()),
                speed.map_or(String::new(), |speed| shown(speed.median)),
                speed.map_or(String::new(), |speed| {
                    let Interval { low, high, .. } = speed.interval;
                    format!("{} to {}", shown(low), shown(high))
                }),
                if is_on_front { "front" } else { "" }.to_owned(),
            ]
        })
        .collect();
    let name = facts.by.name().to_uppercase();
    let mut text = output::table(["CELL", "RECOVERED", &name, "INTERVAL", ""], &rows);
    match trade_off(points) {
        Some(trade_off) => {
            let between = trade_off.interval.map_or(String::new(), |interval| {
                format!(" ({:.2} to {:.2})", interval.low, interval.high)
            });
            let _ = writeln!(
                text,
                "rank correlation of recovery and speed over {} cells: {:.2}{between}",
                trade_off.count, trade_off.rho
            );
        }
        None => text.push_str("no rank correlation: recovery or speed is the same in all cells\n"),
    }
    if speeds.is_loaded {
        text.push_str("others used the machine: these speeds are no basis for a comparison\n");
    }
    text + &from_cache(std::iter::once(facts.by))
}

fn share(share: Option<Share>) -> Value {
    share.map_or(Value::Null, |share| {
        json!({
            "median": share.median,
            "low": share.interval.low,
            "high": share.interval.high,
            "confidence": share.interval.confidence,
            "count": share.count,
        })
    })
}

/// What was there after each loss of power of each repeat.
fn recoveries(point: &Point) -> Value {
    let cut = |cut: &Cut| {
        json!({
            "wait_seconds": cut.wait.as_secs_f64(),
            "share": cut.bytes,
            "whole_files": cut.whole_files,
            "is_mountable": cut.is_mountable,
        })
    };
    let repeats = point.recovered.iter();
    let repeats = repeats.map(|one| Value::Array(one.cuts.iter().map(cut).collect()));
    repeats.collect()
}

/// The speed of each repeat.
fn rates(speeds: &Outcome, cell: usize, by: Measure) -> Vec<f64> {
    let samples = speeds.samples.iter().filter(|sample| sample.cell == cell);
    let values = samples.flat_map(|sample| &sample.values);
    let values = values.filter(|value| value.measure == by);
    values.map(|value| value.rate).collect()
}

pub(super) fn json(speeds: &Outcome, points: &[Point], facts: &Facts<'_>) -> Value {
    let one = |number: usize, point: &Point, is_on_front: bool| {
        let mut value = cell(&point.cell);
        let waits = facts.waits.iter().map(|wait| {
            json!({
                "wait_seconds": wait.as_secs_f64(),
                "recovery": share(point.recovery_after(*wait)),
            })
        });
        let cuts = point.recovered.iter().flat_map(|recovered| &recovered.cuts);
        let unmountable = cuts.filter(|cut| !cut.is_mountable).count();
        let more = [
            ("recovery", share(point.recovery())),
            ("after", waits.collect()),
            ("unmountable", json!(unmountable)),
            ("speed", point.speed.as_ref().map_or(Value::Null, measure)),
            ("is_on_front", json!(is_on_front)),
            ("recoveries", recoveries(point)),
            ("rates", json!(rates(speeds, number, facts.by))),
        ];
        for (key, more) in more {
            value[key] = more;
        }
        value
    };
    let fronts = front(points);
    let all = points.iter().zip(fronts).enumerate();
    let all = all.map(|(number, (point, is_on_front))| one(number, point, is_on_front));
    let trade_off = trade_off(points);
    let interval = trade_off.and_then(|found| found.interval);
    let mut result = json!({
        "points": all.collect::<Vec<_>>(),
        "by": facts.by.name(),
        "rank_correlation": trade_off.map(|found| found.rho),
        "rank_correlation_low": interval.map(|interval| interval.low),
        "rank_correlation_high": interval.map(|interval| interval.high),
        "left_out": speeds.left_out.iter().map(left_out).collect::<Vec<_>>(),
        "failed": speeds.failed.iter().map(left_out).collect::<Vec<_>>(),
        "is_loaded": speeds.is_loaded,
        "load_before": speeds.load,
        "load": load(),
        "processors": speeds.processors,
        "seed": facts.seed,
        "repeats": facts.repeats,
        "interrupted": facts.was_interrupted,
    });
    head::add(&mut result, Kind::Tune);
    result
}
