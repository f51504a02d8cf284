//! Every figure of every result as a row, for programs that compute with them: as JSON and as CSV
//! (RFC 4180).

use super::states::States;
use crate::crash;
use crate::powercut::Summary as Cut;
use crate::results::{Found, Run, Tuned};
use crate::speed::{Cell, Measure, Summary};
use crate::statistics::{Interval, wilson};
use serde::Serialize;
use std::time::Duration;

/// A figure with the conditions under which it was found. What does not apply is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The number of its result, from 1.
    pub run: usize,
    /// What kind of run that was.
    pub kind: &'static str,
    /// The kernel that was judged.
    pub kernel: String,
    /// Whether others used the machine.
    pub is_loaded: bool,
    /// File system or directory.
    pub target: String,
    /// With commas between.
    pub mount_options: String,
    /// Block size of the file system.
    pub block_bytes: Option<u64>,
    /// Bound on memory.
    pub memory_bytes: Option<u64>,
    /// Flush time.
    pub flush_seconds: Option<f64>,
    /// Parameters of the kernel, with blanks between.
    pub settings: String,
    /// In which way a file was written before a power cut.
    pub how: &'static str,
    /// Its length.
    pub size_bytes: Option<u64>,
    /// The time from the last write to the loss of power.
    pub wait_seconds: Option<f64>,
    /// What was found: a speed, or a share.
    pub measure: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// From how many repeats, cuts or states.
    pub count: u64,
    /// The median, or the share.
    pub value: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// And the upper.
    pub high: f64,
    /// With which probability it lies there; 0 if it has no interval.
    pub confidence: f64,
    /// What became of the cache of the disk of a machine.
    pub disk_cache: &'static str,
    /// Whether it is a speed of reading what has just been written, from memory as far as that has
    /// room.
    pub is_from_cache: bool,
}

const SHARE: &str = "share";

/// All rows of some results.
#[must_use]
pub fn rows(runs: &[Run]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (number, run) in (1..).zip(runs) {
        let row = Row {
            run: number,
            kind: run.head.kind.name(),
            kernel: run.head.kernel.clone(),
            is_loaded: run.is_loaded(),
            ..Row::default()
        };
        match &run.found {
            Found::Crash(outcomes) => rows.extend(outcomes.iter().flat_map(|one| crash(&row, one))),
            Found::Powercut(cuts) => rows.extend(cuts.cells.iter().flat_map(|one| cut(&row, one))),
            Found::Speed(speeds) => {
                let outcome = &speeds.outcome;
                rows.extend(outcome.summaries().iter().map(|summary| {
                    let row = of_cell(&row, &outcome.cells[summary.cell]);
                    speed(row, summary)
                }));
            }
            Found::Tune(tuning) => {
                rows.extend(tuning.points.iter().flat_map(|one| tuned(&row, one)));
            }
        }
    }
    rows
}

/// With a share of so many.
fn with_share(row: Row, measure: &'static str, hits: u64, of: u64) -> Option<Row> {
    let (low, high) = wilson(hits, of);
    (of > 0).then(|| Row {
        measure,
        unit: SHARE,
        count: of,
        value: hits as f64 / of as f64,
        low,
        high,
        confidence: 0.95,
        ..row
    })
}

fn crash(row: &Row, outcome: &crash::Outcome) -> Vec<Row> {
    let row = Row {
        target: outcome.target.clone(),
        mount_options: outcome.mount_options.clone(),
        ..row.clone()
    };
    let totals = &outcome.totals;
    let shares = [
        ("bad_states", totals.bad_states),
        ("unmountable_states", totals.unmountable),
    ];
    // Without an interval nothing was left to chance.
    let is_drawn = States::of(totals).interval().is_some();
    shares
        .into_iter()
        .filter_map(|(measure, hits)| with_share(row.clone(), measure, hits, totals.states))
        .map(|row| if is_drawn { row } else { alone(row) })
        .collect()
}

/// A figure without an interval.
fn alone(row: Row) -> Row {
    Row {
        low: row.value,
        high: row.value,
        confidence: 0.0,
        ..row
    }
}

fn cut(row: &Row, cut: &Cut) -> Vec<Row> {
    let cell = &cut.cell;
    let row = Row {
        target: cell.file_system.name().to_owned(),
        mount_options: cell.mount_options.clone(),
        flush_seconds: Some(cell.flush_time.as_secs_f64()),
        how: cell.how.name(),
        size_bytes: Some(cell.bytes),
        wait_seconds: Some(cell.wait.as_secs_f64()),
        disk_cache: cell.disk_cache.name(),
        ..row.clone()
    };
    let Some(whole) = with_share(row.clone(), "whole", cut.hits, cut.cuts) else {
        return Vec::new();
    };
    // Of these the state of one cut alone is known: no interval.
    let median = |measure, value| {
        alone(Row {
            measure,
            value,
            ..whole.clone()
        })
    };
    let (size, content) = (
        median("size_share", cut.size_share),
        median("content_share", cut.content_share),
    );
    let gone = with_share(row, "unmountable", cut.unmountable(), cut.cuts);
    [whole, size, content].into_iter().chain(gone).collect()
}

fn of_cell(row: &Row, cell: &Cell) -> Row {
    let settings: Vec<String> = cell.settings.iter().map(ToString::to_string).collect();
    Row {
        target: cell.place.to_string(),
        mount_options: cell.mount_options.clone(),
        block_bytes: cell.block_bytes,
        memory_bytes: cell.memory_bytes,
        flush_seconds: cell.flush_time.map(|time| time.as_secs_f64()),
        settings: settings.join(" "),
        ..row.clone()
    }
}

fn with_median(row: Row, (count, median): (usize, f64), interval: Interval) -> Row {
    Row {
        count: count as u64,
        value: median,
        low: interval.low,
        high: interval.high,
        confidence: interval.confidence,
        ..row
    }
}

fn speed(row: Row, summary: &Summary) -> Row {
    let row = Row {
        measure: summary.measure.name(),
        unit: unit(summary.measure),
        is_from_cache: summary.measure.is_from_cache(),
        ..row
    };
    with_median(row, (summary.count, summary.median), summary.interval)
}

const fn unit(measure: Measure) -> &'static str {
    if measure.is_in_bytes() {
        "bytes/s"
    } else {
        "1/s"
    }
}

fn tuned(row: &Row, point: &Tuned) -> Vec<Row> {
    let row = of_cell(row, &point.cell);
    let speeds = point
        .speed
        .iter()
        .map(|summary| speed(row.clone(), summary));
    let mut rows: Vec<Row> = speeds.collect();
    let all = (None, point.recovery);
    let after = point
        .after
        .iter()
        .map(|(wait, share)| (Some(*wait), *share));
    for (wait, share) in [all].into_iter().chain(after) {
        let wait: Option<Duration> = wait;
        let Some(share) = share else { continue };
        let row = Row {
            measure: "recovery",
            unit: SHARE,
            wait_seconds: wait.map(|wait| wait.as_secs_f64()),
            ..row.clone()
        };
        rows.push(with_median(
            row,
            (share.count, share.median),
            share.interval,
        ));
    }
    rows
}

/// The columns of CSV: the names that rows have in JSON.
const COLUMNS: [&str; 22] = [
    "run",
    "kind",
    "kernel",
    "is_loaded",
    "target",
    "mount_options",
    "block_bytes",
    "memory_bytes",
    "flush_seconds",
    "settings",
    "how",
    "size_bytes",
    "wait_seconds",
    "measure",
    "unit",
    "count",
    "value",
    "low",
    "high",
    "confidence",
    "disk_cache",
    "is_from_cache",
];

/// The same as CSV, with a line of names.
#[must_use]
pub fn csv(rows: &[Row]) -> String {
    let mut text = COLUMNS.join(",") + "\r\n";
    for row in rows {
        let number = |number: Option<u64>| number.map_or(String::new(), |one| one.to_string());
        let figure = |figure: Option<f64>| figure.map_or(String::new(), |one| one.to_string());
        let fields: [String; 22] = [
            row.run.to_string(),
            row.kind.to_owned(),
            field(&row.kernel),
            row.is_loaded.to_string(),
            field(&row.target),
            field(&row.mount_options),
            number(row.block_bytes),
            number(row.memory_bytes),
            figure(row.flush_seconds),
            field(&row.settings),
            row.how.to_owned(),
            number(row.size_bytes),
            figure(row.wait_seconds),
            row.measure.to_owned(),
            row.unit.to_owned(),
            row.count.to_string(),
            row.value.to_string(),
            row.low.to_string(),
            row.high.to_string(),
            row.confidence.to_string(),
            row.disk_cache.to_owned(),
            row.is_from_cache.to_string(),
        ];
        text.push_str(&fields.join(","));
        text.push_str("\r\n");
    }
    text
}

/// Text as a field. Spreadsheets run what begins like a formula, so that gets an apostrophe.
fn field(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let plain = match plain.starts_with(['=', '+', '-', '@']) {
        true => format!("'{plain}"),
        false => plain,
    };
    match plain.contains(['"', ',', ' ', '\'']) {
        true => format!("\"{}\"", plain.replace('"', "\"\"")),
        false => plain,
    }
}
