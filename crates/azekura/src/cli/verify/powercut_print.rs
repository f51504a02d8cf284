//! What a run of power cuts has found, for people and for programs.

use super::head;
use super::print::{kernel, load};
use crate::output;
use ::verify::powercut::{Bound, Cell, Options, Run, Sample, Summary, summary};
use ::verify::results::Kind;
use base::ByteSize;
use serde_json::{Value, json};
use std::time::Duration;

/// What would be done.
pub(super) struct Plan<'a> {
    pub(super) cells: &'a [Cell],
    pub(super) bound: Bound,
    pub(super) lanes: u64,
    pub(super) kernel: &'a str,
    pub(super) is_kernel_cached: bool,
}

/// What a cut takes beside its wait, measured on a quiet machine.
const CUT_TIME: Duration = Duration::from_secs(4);

impl Plan<'_> {
    fn cuts(&self) -> (u64, u64) {
        let cells = self.cells.len() as u64;
        (cells * self.bound.cuts_min(), cells * self.bound.cuts_max)
    }

    /// How long it takes if every cell is known as soon as it can be.
    fn time(&self) -> Duration {
        let each = self.cells.iter().map(|cell| cell.wait + CUT_TIME);
        let all = each.sum::<Duration>().as_secs_f64() * self.bound.cuts_min() as f64;
        Duration::from_secs((all / self.lanes.max(1) as f64) as u64)
    }

    pub(super) fn text(&self) -> String {
        let rows: Vec<[String; 1]> = self.cells.iter().map(|one| [one.to_string()]).collect();
        let mut text = output::table(["CELL"], &rows);
        let (least, most) = self.cuts();
        let time = output::span(self.time());
        text += &format!("{least} to {most} cuts, at the least some {time}\n");
        let kernel = output::plain(self.kernel);
        text += &match self.is_kernel_cached {
            true => format!("kernel: {kernel}, which is there\n"),
            false => format!("kernel: {kernel}, which would be downloaded\n"),
        };
        text
    }

    pub(super) fn json(&self) -> Value {
        let (least, most) = self.cuts();
        json!({
            "dry_run": true,
            "cells": self.cells.iter().map(cell).collect::<Vec<_>>(),
            "cuts_min": least,
            "cuts_max": most,
            "seconds_min": self.time().as_secs(),
            "kernel": self.kernel,
            "kernel_is_there": self.is_kernel_cached,
        })
    }
}

/// What was asked for and what was found.
pub(super) struct Facts<'a> {
    pub(super) options: &'a Options,
    pub(super) found: &'a Run,
    /// What was not cut, and why.
    pub(super) left_out: &'a [(&'static str, String)],
}

/// What is wrong after some of so many cuts, in words. What was synced on a file system that cannot
/// be mounted is lost as well.
fn findings(cuts: u64, lost: u64, unmountable: u64) -> Option<String> {
    let lost = (lost > 0).then(|| format!("{lost} of {cuts} cuts lost what had been synced"));
    let gone = (unmountable > 0)
        .then(|| format!("after {unmountable} of {cuts} cuts the file system cannot be mounted"));
    let words: Vec<String> = lost.into_iter().chain(gone).collect();
    (!words.is_empty()).then(|| words.join("; "))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

impl Facts<'_> {
    /// Of every cell, whether it was cut or not.
    pub(super) fn summaries(&self) -> Vec<Summary> {
        let cells = self.options.cells.iter();
        cells
            .map(|cell| summary(cell, &self.found.samples))
            .collect()
    }

    /// Cells that were given up, in words.
    pub(super) fn failed(&self) -> Vec<String> {
        let failed = self.found.failed.iter();
        failed.map(|(cell, why)| format!("{cell}: {why}")).collect()
    }

    pub(super) fn lost_acks(&self) -> u64 {
        self.summaries().iter().map(|cell| cell.lost_acks).sum()
    }

    /// Cuts after which there was no file system any more.
    pub(super) fn unmountable(&self) -> u64 {
        self.summaries().iter().map(Summary::unmountable).sum()
    }

    /// What is wrong with the file systems, in words.
    pub(super) fn findings(&self) -> Option<String> {
        findings(
            self.found.samples.len() as u64,
            self.lost_acks(),
            self.unmountable(),
        )
    }

    /// What a run was done with, for its report.
    pub(super) fn conditions(&self) -> Vec<(&'static str, String)> {
        let now = jiff::Timestamp::now();
        let Options {
            memory_bytes,
            bound,
            lanes,
            ..
        } = self.options;
        vec![
            ("date", now.strftime("%Y-%m-%d %H:%M UTC").to_string()),
            (
                "kernel of the machines",
                self.options.kernel.version.clone(),
            ),
            ("memory of each", ByteSize(*memory_bytes).to_string()),
            ("machines beside each other", lanes.to_string()),
            ("cuts of a cell at the most", bound.cuts_max.to_string()),
            (
                "interval to each side at the most",
                percent(bound.half_width),
            ),
            ("kernel of the host", kernel()),
            ("load", load()),
            ("seed", self.options.seed.to_string()),
            ("azekura", env!("CARGO_PKG_VERSION").to_owned()),
        ]
    }

    pub(super) fn text(&self) -> String {
        let row = |one: &Summary| {
            let Summary { cell, interval, .. } = one;
            let outcomes = one.outcomes.iter();
            let outcomes = outcomes.map(|(outcome, count)| format!("{count} {}", outcome.name()));
            let middle = |share: f64| match one.cuts {
                0 => String::new(),
                _ => percent(share),
            };
            let (low, high) = (interval.low * 100.0, interval.high * 100.0);
            [
                cell.file_system.name().to_owned(),
                cell.how.name().to_owned(),
                ByteSize(cell.bytes).to_string(),
                seconds(cell.wait),
                seconds(cell.flush_time),
                cell.mount_options.clone(),
                cell.disk_cache.name().to_owned(),
                one.cuts.to_string(),
                format!("{:.0} % to {:.0} %", low, high),
                middle(one.size_share),
                middle(one.content_share),
                format!("{:.1} s", one.write_seconds),
                outcomes.collect::<Vec<_>>().join(", "),
            ]
        };
        let head = [
            "TARGET",
            "HOW",
            "SIZE",
            "WAIT",
            "FLUSH",
            "OPTIONS",
            "DISK CACHE",
            "N",
            "WHOLE",
            "SIZE %",
            "CONTENT %",
            "WRITE",
            "OUTCOMES",
        ];
        let rows: Vec<[String; 13]> = self.summaries().iter().map(row).collect();
        let mut text = output::table(head, &rows);
        for (cell, count) in &self.found.thrown_away {
            let cuts = output::count(*count, "cut");
            let cell = output::plain(&cell.to_string());
            text += &format!("thrown away because a machine failed: {cell}: {cuts}\n");
        }
        for failed in self.failed() {
            text += &format!("given up: {}\n", output::plain(&failed));
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let cells = self.summaries();
        let cells: Vec<Value> = cells.iter().map(|one| self.cell(one)).collect();
        let left_out = self.left_out.iter();
        let left_out = left_out.map(|(what, why)| json!({"what": what, "why": why}));
        let mut result = json!({
            "cells": cells,
            "cuts": self.found.samples.len(),
            "lost_acks": self.lost_acks(),
            "unmountable": self.unmountable(),
            "failed": self.failed(),
            "left_out": left_out.collect::<Vec<_>>(),
            "guest_kernel": self.options.kernel.version,
            "memory_bytes": self.options.memory_bytes,
            "jobs": self.options.lanes,
            "half_width": self.options.bound.half_width,
            "cuts_max": self.options.bound.cuts_max,
            "seed": self.options.seed,
            "load": load(),
            "boot_seconds": self.found.boot_time.as_secs_f64(),
            "seconds": self.found.time.as_secs_f64(),
            "interrupted": self.found.was_interrupted,
        });
        head::add(&mut result, Kind::Powercut);
        result
    }

    /// Cuts of a cell that are in no share, because a machine failed.
    fn thrown_away(&self, cell: &Cell) -> u64 {
        let mut all = self.found.thrown_away.iter();
        all.find(|(known, _)| known == cell)
            .map_or(0, |(_, count)| *count)
    }

    fn cell(&self, summary: &Summary) -> Value {
        let mut value = cell(&summary.cell);
        let outcomes = summary.outcomes.iter();
        let outcomes = outcomes.map(|(outcome, count)| (outcome.name().to_owned(), json!(count)));
        let of = |sample: &&Sample| sample.cell == summary.cell;
        let samples = self.found.samples.iter().filter(of);
        let more = [
            ("count", json!(summary.cuts)),
            ("whole", json!(summary.hits)),
            ("low", json!(summary.interval.low)),
            ("high", json!(summary.interval.high)),
            ("size_share", json!(summary.size_share)),
            ("content_share", json!(summary.content_share)),
            ("write_seconds", json!(summary.write_seconds)),
            ("beside_seconds", json!(summary.beside_seconds)),
            ("lost_acks", json!(summary.lost_acks)),
            ("thrown_away", json!(self.thrown_away(&summary.cell))),
            ("outcomes", Value::Object(outcomes.collect())),
            ("samples", samples.map(sample).collect()),
        ];
        for (key, more) in more {
            value[key] = more;
        }
        value
    }
}

fn cell(cell: &Cell) -> Value {
    json!({
        "target": cell.file_system.name(),
        "how": cell.how.name(),
        "size_bytes": cell.bytes,
        "wait_seconds": cell.wait.as_secs_f64(),
        "flush_seconds": cell.flush_time.as_secs_f64(),
        "mount_options": cell.mount_options,
        "disk_cache": cell.disk_cache.name(),
    })
}

fn sample(sample: &Sample) -> Value {
    json!({
        "outcome": sample.outcome.name(),
        "size_share": sample.size_share,
        "content_share": sample.content_share,
        "write_seconds": sample.write_time.as_secs_f64(),
        "cut_after_seconds": sample.cut_after.as_secs_f64(),
        "seconds": sample.time.as_secs_f64(),
        "load_before": sample.load,
        "words": sample.words,
        "flushes": sample.flushes,
        "lost_bytes": sample.lost_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_is_gone_is_a_finding_whatever_was_promised() {
        assert_eq!(findings(6, 0, 0), None);
        let gone = findings(6, 0, 2).unwrap();
        assert_eq!(gone, "after 2 of 6 cuts the file system cannot be mounted");
        let both = findings(6, 1, 2).unwrap();
        assert_eq!(
            both,
            format!("1 of 6 cuts lost what had been synced; {gone}")
        );
    }
}
