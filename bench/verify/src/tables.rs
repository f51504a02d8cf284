//! Results as tables of a document.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;
use verify::crash;
use verify::powercut::{Cell, DiskCache, Summary};
use verify::results::{Cuts, Run, Speeds};
use verify::speed::{self, Measure};

/// Cells of a speed run beside each other: more do not fit into a line of a document.
const COLUMNS: usize = 5;

/// When, where and how: the first lines of a part. The command is as long as it is.
fn head(run: &Run, more: &str) -> String {
    let head = &run.head;
    let (date, kernel, load) = (&head.date, &head.kernel, &head.load);
    let early = match head.was_interrupted {
        true => "; ended early",
        false => "",
    };
    let command = wrapped(&head.command);
    format!("{date}, {kernel}{more};\nload at the end {load}{early}.\n\n```sh\n{command}\n```\n")
}

/// A command in lines that a document may have.
fn wrapped(command: &str) -> String {
    let (mut text, mut len) = (String::new(), 0);
    for word in command.split(' ') {
        let more = word.len() + 1;
        if len > 0 && len + more > 140 {
            text.push_str(" \\\n ");
            len = 1;
        }
        if len > 0 {
            text.push(' ');
        }
        text.push_str(word);
        len += more;
    }
    text
}

fn row(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn begin(text: &mut String, head: &[String]) {
    text.push('\n');
    row(text, head);
    let _ = writeln!(text, "|{}", "---|".repeat(head.len()));
}

/// What stands in a row of the paper's table 5: everything but the time to the cut.
fn without_wait(cell: &Cell) -> Cell {
    Cell {
        wait: Duration::ZERO,
        ..cell.clone()
    }
}

/// The paper's table 5.
pub(crate) fn cuts(run: &Run, cuts: &Cuts) -> String {
    let memory = cuts.memory_bytes >> 20;
    let more = format!(" in machines with {memory} MiB that QEMU emulates");
    let mut text = head(run, &more);
    let waits: BTreeSet<Duration> = cuts.cells.iter().map(|one| one.cell.wait).collect();
    let mut names = ["file system", "written by", "size", "flush"]
        .map(str::to_owned)
        .to_vec();
    names.extend(
        waits
            .iter()
            .map(|wait| format!("cut after {} s", wait.as_secs_f64())),
    );
    names.push("written in".to_owned());
    begin(&mut text, &names);
    let mut rows: Vec<Cell> = Vec::new();
    for cell in cuts.cells.iter().map(|one| without_wait(&one.cell)) {
        if !rows.contains(&cell) {
            rows.push(cell);
        }
    }
    for of in &rows {
        let mut cells = of_row(of).to_vec();
        let mut own = cuts
            .cells
            .iter()
            .filter(|one| without_wait(&one.cell) == *of);
        for wait in &waits {
            let one = cuts
                .cells
                .iter()
                .find(|one| without_wait(&one.cell) == *of && one.cell.wait == *wait);
            cells.push(one.map_or("–".to_owned(), share));
        }
        let seconds = own.next().map_or(0.0, |one| one.write_seconds);
        cells.push(format!("{seconds:.1} s"));
        row(&mut text, &cells);
    }
    let all: u64 = cuts.cells.iter().map(|one| one.cuts).sum();
    let lost: u64 = cuts.cells.iter().map(|one| one.lost_acks).sum();
    let of_cells = cuts.cells.iter().filter(|one| one.cuts > 0);
    let beside: Vec<f64> = of_cells.map(|one| one.beside_seconds).collect();
    let beside = figures::median(&beside).unwrap_or(0.0);
    let _ = write!(
        text,
        "\nWhole files of so many cuts, the interval of their share (Wilson, 95 %), and the \
         medians of length and of right\ncontent; {all} cuts in all, of which {lost} lost what had \
         been synced. Beside its wait and the\nwriting, a cut takes {beside:.1} s (median)."
    );
    for left in &cuts.left_out {
        let _ = write!(text, " Left out: {}: {}.", left.what, left.why);
    }
    for failed in &cuts.failed {
        let _ = write!(text, " Given up: {failed}.");
    }
    text.push('\n');
    text
}

fn of_row(cell: &Cell) -> [String; 4] {
    let mut name = cell.file_system.name().to_owned();
    if !cell.mount_options.is_empty() {
        let _ = write!(name, " ({})", cell.mount_options);
    }
    if cell.disk_cache == DiskCache::Lost {
        name.push_str(", disk cache lost");
    }
    let flush = format!("{} s", cell.flush_time.as_secs_f64());
    let size = base::ByteSize(cell.bytes).to_string();
    [name, cell.how.name().to_owned(), size, flush]
}

fn share(one: &Summary) -> String {
    if one.cuts == 0 {
        return "–".to_owned();
    }
    let percent = |share: f64| share * 100.0;
    let lost = if one.lost_acks > 0 { "**" } else { "" };
    format!(
        "{lost}{}/{}{lost} ({:.0}-{:.0} %), {:.0} %, {:.0} %",
        one.hits,
        one.cuts,
        percent(one.interval.low),
        percent(one.interval.high),
        percent(one.size_share),
        percent(one.content_share),
    )
}

/// The paper's sections 4 and 5: what was measured down, file systems and settings across.
pub(crate) fn matrix(run: &Run, speeds: &Speeds) -> String {
    let outcome = &speeds.outcome;
    let repeats = outcome.samples.len();
    let more = format!(
        ", {} processors, {} in blocks, {} small files, {} repeats, {} of {repeats} disturbed by \
         others{}",
        outcome.processors,
        base::ByteSize(speeds.bytes),
        speeds.files,
        speeds.repeats,
        outcome.disturbed(),
        if outcome.is_loaded { ", loaded" } else { "" },
    );
    let mut text = head(run, &more);
    let summaries = outcome.summaries();
    let numbers: Vec<usize> = (0..outcome.cells.len()).collect();
    for group in numbers.chunks(COLUMNS) {
        let mut names = vec!["MB/s, or things a second".to_owned()];
        names.extend(
            group
                .iter()
                .map(|number| outcome.name(&outcome.cells[*number])),
        );
        begin(&mut text, &names);
        for measure in Measure::ALL {
            let of = |number: &usize| {
                let mut all = summaries.iter();
                all.find(|one| one.cell == *number && one.measure == measure)
            };
            let found: Vec<Option<&speed::Summary>> = group.iter().map(of).collect();
            if found.iter().all(Option::is_none) {
                continue;
            }
            let mut cells = vec![measure.name().replace('_', " ")];
            cells.extend(found.iter().map(|one| one.map_or("–".to_owned(), rate)));
            row(&mut text, &cells);
        }
    }
    text.push_str(
        "\nMedians, the values between which they lie, and processor time as a share of one",
    );
    text.push_str(" processor; ~: repeats more than\na tenth apart.");
    for left in outcome.left_out.iter().chain(&outcome.failed) {
        let _ = write!(text, " Left out: {}: {}.", left.what, left.why);
    }
    text.push('\n');
    text
}

fn rate(one: &speed::Summary) -> String {
    let scale = if one.measure.is_in_bytes() { 1e6 } else { 1.0 };
    let shown = |rate: f64| match rate / scale {
        rate if rate < 10.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    };
    let cpu = one
        .cpu
        .map_or(String::new(), |cpu| format!(", {:.0} %", cpu * 100.0));
    let steady = if one.is_steady { "" } else { "~" };
    let (low, high) = (shown(one.interval.low), shown(one.interval.high));
    format!("{steady}{} ({low}-{high}){cpu}", shown(one.median))
}

/// Crash states of each target.
pub(crate) fn crash(run: &Run, outcomes: &[crash::Outcome]) -> String {
    let mut text = head(run, &format!(", seed {}", run.head.seed));
    let names = [
        "target",
        "workloads",
        "writes",
        "flushes",
        "states",
        "of recoveries",
        "left out as equal",
        "drawn",
        "intact",
        "lost",
        "exposed",
        "unmountable",
        "states/s",
    ];
    begin(&mut text, &names.map(str::to_owned));
    for one in outcomes {
        let totals = &one.totals;
        let counts = [
            totals.workloads,
            totals.writes,
            totals.flushes,
            totals.states,
            totals.recovery_states,
            totals.pruned,
            totals.sampled,
            totals.intact,
            totals.lost_acks,
            totals.exposed,
            totals.unmountable,
        ];
        let mut cells = vec![one.target.clone()];
        cells.extend(counts.iter().map(u64::to_string));
        let rate = totals.states as f64 / one.time.as_secs_f64().max(1e-9);
        cells.push(format!("{rate:.0}"));
        row(&mut text, &cells);
    }
    text
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::{Value, json};
    use verify::results::Found;

    fn head_of(kind: &str, more: Value) -> Value {
        let mut value = json!({
            "kind": kind, "version": 1, "date": "2026-11-27T07:00:00Z", "release": "0.1.0",
            "command": format!("azekura verify {kind} --json"), "kernel": "Linux 6.18.44",
            "load": "0.10 0.20 0.30", "seed": 7,
        });
        for (key, more) in more.as_object().unwrap() {
            value[key] = more.clone();
        }
        value
    }

    fn read(value: &Value) -> Run {
        Run::read("x.json", value.to_string().as_bytes()).unwrap()
    }

    pub(crate) fn crash() -> Value {
        let target = json!({
            "target": "store", "mount_options": "", "outcomes": {}, "seconds": 2.0,
            "states_per_second": 50.0, "interrupted": false, "failures": [],
            "states": 100, "intact": 300, "lost_acks": 0, "unmountable": 0, "exposed": 0,
            "bad_states": 0, "pruned": 5, "sampled": 6, "distinct_states": 105,
            "recovery_states": 7, "workloads": 2, "steps": 9, "writes": 40,
            "written_bytes": 4096, "flushes": 11,
        });
        head_of("crash", json!({"targets": [target]}))
    }

    fn lines_fit(text: &str) {
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(150), "{text}");
    }

    #[test]
    fn table_5_has_a_row_for_everything_but_the_time_to_the_cut() {
        let cell = |how: &str, wait: f64, whole: usize| {
            let sample = |number: usize| {
                json!({
                    "outcome": if number < whole { "intact" } else { "zero_filled" },
                    "size_share": 1.0, "content_share": if number < whole { 1.0 } else { 0.2 },
                    "write_seconds": 1.5, "cut_after_seconds": 5.01, "seconds": 9.0,
                    "load_before": 0.5, "words": "",
                })
            };
            json!({
                "target": "jfs", "how": how, "size_bytes": 1 << 20, "wait_seconds": wait,
                "flush_seconds": 30.0, "mount_options": "",
                "samples": (0..5).map(sample).collect::<Vec<_>>(),
            })
        };
        let cells = [
            cell("close", 0.0, 0),
            cell("close", 5.0, 4),
            cell("fsync", 0.0, 4),
        ];
        let value = head_of(
            "powercut",
            json!({
                "cells": cells, "failed": [], "guest_kernel": "6.1.0", "memory_bytes": 512 << 20,
                "left_out": [{"what": "xfs", "why": "mkfs.xfs is not installed"}],
            }),
        );
        let run = read(&value);
        let Found::Powercut(found) = &run.found else {
            panic!("{run:?}");
        };
        let text = cuts(&run, found);
        lines_fit(&text);
        for part in [
            "| jfs | close | 1.0 MiB | 30 s | 0/5 (0-43 %), 100 %, 20 % | 4/5 (38-96 %), 100 %, ",
            "| jfs | fsync | 1.0 MiB | 30 s | **4/5** (38-96 %), 100 %, 100 % | – | 1.5 s |",
            "15 cuts in all, of which 1 lost",
            "a cut takes 2.5 s (median)",
            "Left out: xfs: mkfs.xfs is not installed.",
            "azekura verify powercut --json",
            "Linux 6.1.0 in machines with 512 MiB",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn a_matrix_has_a_column_for_each_cell() {
        let cell = |target: &str, rates: [f64; 5]| {
            let sample = |round: usize| {
                let value = json!({"measure": "block_write", "rate": rates[round], "cpu": 0.25});
                json!({
                    "round": round, "values": [value], "others_cpu": 0.0, "steal": 0.0,
                    "load_before": 0.1, "seconds": 1.0,
                })
            };
            json!({
                "target": target, "block_bytes": 4096, "memory_bytes": null,
                "flush_seconds": null, "settings": [], "mount_options": "",
                "samples": (0..5).map(sample).collect::<Vec<_>>(),
            })
        };
        let targets = ["ext4", "xfs", "btrfs", "ext3", "ext2", "/srv"];
        let cells: Vec<Value> = targets
            .iter()
            .map(|target| cell(target, [100e6, 105e6, 95e6, 101e6, 300e6]))
            .collect();
        let value = head_of(
            "speed",
            json!({
                "cells": cells, "block_ratios": [], "left_out": [], "failed": [],
                "is_loaded": true, "caches_dropped": true, "processors": 2, "load_before": 0.05,
                "repeats": 5, "size_bytes": 1 << 20, "files": 100, "seconds": 9.5,
                "interrupted": false,
            }),
        );
        let run = read(&value);
        let Found::Speed(found) = &run.found else {
            panic!("{run:?}");
        };
        let text = matrix(&run, found);
        lines_fit(&text);
        assert!(
            text.contains("| ext4 | xfs | btrfs | ext3 | ext2 |"),
            "{text}"
        );
        assert!(text.contains("| /srv |"), "{text}");
        let known = "| block write | ~101 (95-300), 25 % |";
        assert!(text.contains(known) && text.contains(", loaded"), "{text}");
        assert!(!text.contains("block read"), "{text}");
    }

    #[test]
    fn a_crash_run_has_its_counts() {
        let run = read(&crash());
        let Found::Crash(found) = &run.found else {
            panic!("{run:?}");
        };
        let text = super::crash(&run, found);
        lines_fit(&text);
        let known = "| store | 2 | 40 | 11 | 100 | 7 | 5 | 6 | 300 | 0 | 0 | 0 | 50 |";
        assert!(text.contains(known) && text.contains("seed 7"), "{text}");
    }

    #[test]
    fn long_commands_are_put_into_lines() {
        let words = vec!["--target"; 40].join(" ");
        let text = wrapped(&words);
        assert!(text.lines().all(|line| line.len() <= 150) && text.lines().count() > 1);
        assert_eq!(text.replace(" \\\n  ", " "), words);
    }
}
