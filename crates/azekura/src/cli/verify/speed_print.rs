//! What a speed run has found, for people and for programs.

use super::head;
use super::print::{kernel, load};
use crate::output;
use ::verify::results::Kind;
use ::verify::speed::{Cell, LeftOut, Measure, Outcome, Sample, Summary};
use base::{ByteSize, Rate};
use serde_json::{Value, json};
use std::fmt::Write;

/// What was asked for, and is not in the outcome.
pub(super) struct Facts {
    pub(super) seed: u64,
    pub(super) repeats: u32,
    pub(super) bytes: u64,
    pub(super) files: u64,
}

/// What a run was done with, for its report.
pub(super) fn conditions(outcome: &Outcome, facts: &Facts) -> Vec<(&'static str, String)> {
    let now = jiff::Timestamp::now();
    let caches = if outcome.are_caches_dropped {
        "dropped"
    } else {
        "not dropped"
    };
    vec![
        ("date", now.strftime("%Y-%m-%d %H:%M UTC").to_string()),
        ("kernel", kernel()),
        ("processors", outcome.processors.to_string()),
        (
            "load before and after",
            format!("{:.2}; {}", outcome.load, load()),
        ),
        ("repeats", facts.repeats.to_string()),
        ("written in blocks", ByteSize(facts.bytes).to_string()),
        ("small files", facts.files.to_string()),
        (
            "caches before reading",
            format!("{caches}; by bonnie++ never"),
        ),
        ("seed", facts.seed.to_string()),
        ("azekura", env!("CARGO_PKG_VERSION").to_owned()),
    ]
}

/// A rate as people read it.
pub(super) fn rate(measure: Measure, rate: f64) -> String {
    match measure.is_in_bytes() {
        true => Rate(rate as u64).to_string(),
        false => format!("{rate:.0}/s"),
    }
}

pub(super) fn text(outcome: &Outcome) -> String {
    let summaries = outcome.summaries();
    let row = |summary: &Summary| {
        let shown = |figure| rate(summary.measure, figure);
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        [
            outcome.name(&outcome.cells[summary.cell]),
            summary.measure.name().to_owned(),
            shown(summary.median),
            shown(summary.interval.low),
            shown(summary.interval.high),
            summary.cpu.map_or(String::new(), percent),
            summary.count.to_string(),
            if summary.is_steady { "" } else { "unsteady" }.to_owned(),
        ]
    };
    let rows: Vec<[String; 8]> = summaries.iter().map(row).collect();
    let head = ["CELL", "MEASURE", "MEDIAN", "FROM", "TO", "CPU", "N", ""];
    let mut text = output::table(head, &rows);
    for ratio in outcome.block_ratios() {
        let cell = &outcome.cells[ratio.cell];
        let _ = writeln!(
            text,
            "blocks of 4 KiB over 1 KiB: {}: {}: {:.2}",
            output::plain(&outcome.name(cell)),
            ratio.measure.name(),
            ratio.ratio
        );
    }
    if outcome.is_loaded {
        let _ = writeln!(
            text,
            "others used the machine (load {:.2} before, {} of {} disturbed): these figures are no \
             basis for a comparison",
            outcome.load,
            outcome.disturbed(),
            output::count(outcome.samples.len() as u64, "repeat"),
        );
    }
    if !outcome.are_caches_dropped {
        text.push_str("the caches of directories were not emptied: reading may be from memory\n");
    }
    text + &from_cache(summaries.iter().map(|summary| summary.measure))
}

/// What is said of measures that are read from memory; nothing if there are none.
pub(super) fn from_cache(measures: impl Iterator<Item = Measure>) -> String {
    let mut names: Vec<&str> = measures
        .filter(|measure| measure.is_from_cache())
        .map(Measure::name)
        .collect();
    names.sort_unstable();
    names.dedup();
    match names.is_empty() {
        true => String::new(),
        false => format!(
            "from memory, as far as --char-size fits into it: {} (bonnie++ empties no caches)\n",
            names.join(", ")
        ),
    }
}

pub(super) fn json(outcome: &Outcome, facts: &Facts) -> Value {
    let summaries = outcome.summaries();
    let cells: Vec<Value> = (0..outcome.cells.len())
        .map(|number| {
            let mut cell = cell(&outcome.cells[number]);
            let of = |summary: &&Summary| summary.cell == number;
            let measures = summaries.iter().filter(of);
            cell["measures"] = measures.map(measure).collect();
            let of = |sample: &&Sample| sample.cell == number;
            let samples = outcome.samples.iter().filter(of);
            cell["samples"] = samples.map(sample).collect();
            cell
        })
        .collect();
    let ratios: Vec<Value> = outcome
        .block_ratios()
        .iter()
        .map(|ratio| {
            json!({"cell": ratio.cell, "measure": ratio.measure.name(), "ratio": ratio.ratio})
        })
        .collect();
    let mut result = json!({
        "cells": cells,
        "block_ratios": ratios,
        "left_out": outcome.left_out.iter().map(left_out).collect::<Vec<_>>(),
        "failed": outcome.failed.iter().map(left_out).collect::<Vec<_>>(),
        "is_loaded": outcome.is_loaded,
        "disturbed": outcome.disturbed(),
        "caches_dropped": outcome.are_caches_dropped,
        "processors": outcome.processors,
        "load_before": outcome.load,
        "load": load(),
        "seed": facts.seed,
        "repeats": facts.repeats,
        "size_bytes": facts.bytes,
        "files": facts.files,
        "seconds": outcome.time.as_secs_f64(),
        "interrupted": outcome.was_interrupted,
    });
    head::add(&mut result, Kind::Speed);
    result
}

pub(super) fn cell(cell: &Cell) -> Value {
    let settings: Vec<Value> = cell
        .settings
        .iter()
        .map(|setting| json!({"name": setting.tunable.name(), "value": setting.value}))
        .collect();
    json!({
        "target": cell.place.to_string(),
        "block_bytes": cell.block_bytes,
        "memory_bytes": cell.memory_bytes,
        "flush_seconds": cell.flush_time.map(|time| time.as_secs_f64()),
        "settings": settings,
        "mount_options": cell.mount_options,
    })
}

pub(super) fn measure(summary: &Summary) -> Value {
    json!({
        "measure": summary.measure.name(),
        "median": summary.median,
        "low": summary.interval.low,
        "high": summary.interval.high,
        "confidence": summary.interval.confidence,
        "count": summary.count,
        "cpu": summary.cpu,
        "is_steady": summary.is_steady,
        "is_from_cache": summary.measure.is_from_cache(),
    })
}

fn sample(sample: &Sample) -> Value {
    let values: Vec<Value> = sample
        .values
        .iter()
        .map(|value| json!({"measure": value.measure.name(), "rate": value.rate, "cpu": value.cpu}))
        .collect();
    json!({
        "round": sample.round,
        "values": values,
        "others_cpu": sample.others.programs,
        "steal": sample.others.steal,
        "is_disturbed": sample.others.is_busy(),
        "load_before": sample.load,
        "seconds": sample.time.as_secs_f64(),
    })
}

pub(super) fn left_out(left_out: &LeftOut) -> Value {
    json!({"what": left_out.what, "why": left_out.why})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_from_memory_are_named() {
        let some = [Measure::Seeks, Measure::BlockRead, Measure::CharRead];
        let said = from_cache(some.into_iter().chain(some));
        assert!(said.contains(": char_read, seeks (bonnie++"), "{said}");
        assert_eq!(from_cache([Measure::BlockRead].into_iter()), "");
    }
}
