//! Results as a Markdown table.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use figures::median;

use crate::plan;
use crate::results::{Results, Summary};
use crate::steps::StepOutcome;

/// The table with its conditions.
pub(crate) fn table(results: &Results) -> String {
    let mut out = conditions(results);
    if results.kind == "loopback" {
        loopback(&mut out, results)
    } else {
        wan(&mut out, results)
    }
    for skipped in &results.skipped {
        let _ = writeln!(out, "skipped: {}: {}", skipped.what, skipped.why);
    }
    out
}

fn conditions(results: &Results) -> String {
    let c = &results.conditions;
    let loads = || results.measurements.iter().map(|m| m.load1);
    let late = results
        .measurements
        .iter()
        .map(|m| m.link_late_us)
        .fold(0.0, f64::max);
    let mut out = format!(
        "{}, kernel {}, {}, {} MiB; median of {}{}; load average {:.1} to {:.1} (the run itself \
         included)",
        c.date,
        c.kernel,
        c.cpus,
        c.memory_mib,
        c.repeats,
        if c.is_quick { ", quick sizes" } else { "" },
        loads().fold(f64::INFINITY, f64::min).min(999.0),
        loads().fold(0.0, f64::max),
    );
    if results.kind == "wan" {
        let _ = write!(
            out,
            "; link {} Mbit/s, {}, loss {}, real-time threads: {}, mean lateness of a run up to \
             {late:.0} us; TCP: {}",
            c.rate_mbit,
            c.queue,
            c.loss,
            if c.is_real_time { "yes" } else { "NO" },
            c.tcp
        );
    }
    out.push_str(".\n");
    for note in &c.notes {
        let _ = writeln!(out, "{note}");
    }
    out.push('\n');
    for (name, about) in &c.systems {
        let _ = writeln!(out, "* {name}: {about}");
    }
    out.push('\n');
    out
}

/// Systems in the order in which they were measured.
fn systems(results: &Results) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let names = results.measurements.iter().map(|m| m.system.as_str());
    names.filter(|name| seen.insert(*name)).collect()
}

fn wan(out: &mut String, results: &Results) {
    let rtts = &results.conditions.rtts_ms;
    let heads: Vec<String> = rtts.iter().map(|rtt| format!("{rtt} ms")).collect();
    let _ = writeln!(
        out,
        "| operation | system | {} | wire ratio at {} |\n| --- | --- |{} --- |",
        heads.join(" | "),
        heads.last().map_or("", String::as_str),
        " --- |".repeat(rtts.len())
    );
    for op in plan::ops(&[], Duration::ZERO).unwrap_or_default() {
        if op.name == "steps" {
            continue;
        }
        for system in systems(results) {
            let found: Vec<Option<&Summary>> = rtts
                .iter()
                .map(|rtt| results.find(op.name, system, *rtt))
                .collect();
            if found.iter().all(Option::is_none) {
                continue;
            }
            let cells: Vec<String> = found.iter().map(|found| cell(*found)).collect();
            let wire = found
                .last()
                .copied()
                .flatten()
                .and_then(|last| last.ip_bytes_per_useful);
            let _ = writeln!(
                out,
                "| {}, {} | {system} | {} | {} |",
                op.title,
                op.figure.unit(),
                cells.join(" | "),
                wire.map(|ratio| format!("{ratio:.2}")).unwrap_or_default()
            );
        }
    }
    out.push_str(
        "\n`~` extrapolated from the part done within the time cap; `!` returned before the data \
         was at the server: not comparable; in brackets for rates: whole, mount and start \
         included, and first byte after open; for latencies: 99th percentile.\n\n",
    );
    steps(out, results);
}

fn cell(summary: Option<&Summary>) -> String {
    let Some(summary) = summary else {
        return String::new();
    };
    let Some(median) = summary.median else {
        return "failed".to_owned();
    };
    let digits = if median < 10.0 { 2 } else { 1 };
    let mut cell = format!("{median:.digits$}");
    if summary.is_capped && summary.unit == "s" {
        cell.insert(0, '~');
    }
    if summary.is_durable == Some(false) {
        cell.push('!');
    }
    let beside = if summary.unit == "ms" {
        summary.p99_ms
    } else {
        summary.whole_mb_per_s
    };
    if let Some(beside) = beside {
        let _ = write!(cell, " ({beside:.1})");
    }
    if let Some(first_s) = summary.first_byte_s.filter(|_| summary.op == "seq") {
        let _ = write!(cell, ", first {:.0} ms", first_s * 1e3);
    }
    if let Some(bulk) = summary.beside_mb_per_s {
        let _ = write!(cell, ", bulk {bulk:.0} MB/s");
    }
    if summary.errors > 0 {
        let _ = write!(cell, ", {} failed", summary.errors);
    }
    cell
}

/// Recovery of each system after each step: of each step the median over the runs and, in brackets,
/// the slowest.
fn steps(out: &mut String, results: &Results) {
    let of = |system: &str| -> Vec<&[StepOutcome]> {
        let runs = results.measurements.iter();
        runs.filter(|m| m.op == "steps" && m.system == system && !m.steps.is_empty())
            .map(|m| m.steps.as_slice())
            .collect()
    };
    let heads = systems(results).into_iter().map(of);
    let Some(heads) = heads.into_iter().find_map(|runs| runs.first().copied()) else {
        return;
    };
    let _ = write!(out, "| one read while the link changes |");
    for step in heads.iter().skip(1) {
        let _ = write!(out, " to {} ms, {} Mbit/s |", step.rtt_ms, step.rate_mbit);
    }
    let _ = writeln!(out, "\n| --- |{}", " --- |".repeat(heads.len() - 1));
    for system in systems(results) {
        let runs = of(system);
        if runs.is_empty() {
            continue;
        }
        let _ = write!(out, "| {system} |");
        for at in 1..heads.len() {
            let step: Vec<&StepOutcome> = runs.iter().filter_map(|run| run.get(at)).collect();
            let _ = write!(out, " {} |", step_cell(&step));
        }
        out.push('\n');
    }
    out.push_str(
        "\nTime until 90 % of the line's goodput is reached again: the median of the runs, in \
         brackets the slowest; and the share of it in the second half of the phase.\n",
    );
}

/// One step in all runs.
fn step_cell(runs: &[&StepOutcome]) -> String {
    // What never came back is slower than all that did.
    let (unit, figure): (_, fn(&StepOutcome) -> Option<f64>) = match runs.first() {
        Some(run) if run.rtt_ms > 0.0 => ("RTT", |run| run.recovery_rtts),
        _ => ("s", |run| run.recovery_s),
    };
    let shown = |value: f64| match value.is_finite() {
        true => format!("{value:.1}"),
        false => "never".to_owned(),
    };
    let recovery = |run: &&StepOutcome| figure(run).unwrap_or(f64::INFINITY);
    let recoveries: Vec<f64> = runs.iter().map(recovery).collect();
    let settled: Vec<f64> = runs.iter().map(|run| run.settled_share).collect();
    let slowest = recoveries.iter().copied().fold(0.0, f64::max);
    format!(
        "{} {unit} ({}), settled {:.0} %",
        shown(median(&recoveries).unwrap_or(f64::INFINITY)),
        shown(slowest),
        median(&settled).unwrap_or(0.0) * 100.0
    )
}

fn loopback(out: &mut String, results: &Results) {
    let rows = [
        ("seq", "sequential read, GB/s"),
        ("write", "1 GiB written, then fsync, GB/s"),
        ("create", "create, 1 process, files/s"),
        ("create8", "create, 8 processes, own directories, files/s"),
        ("stat", "stat, cold, files/s"),
        ("list", "readdir + stat, cold, files/s"),
        ("unlink", "unlink, files/s"),
    ];
    let systems = systems(results);
    let _ = writeln!(
        out,
        "| no link | {} |\n| --- |{}",
        systems.join(" | "),
        " --- |".repeat(systems.len())
    );
    for (op, title) in rows {
        let cells: Vec<String> = systems
            .iter()
            .map(|system| match results.find(op, system, 0.0) {
                None => String::new(),
                Some(Summary { median: None, .. }) => "failed".to_owned(),
                Some(Summary {
                    median: Some(median),
                    ..
                }) if matches!(op, "seq" | "write") => format!("{median:.2}"),
                Some(Summary {
                    median: Some(median),
                    ..
                }) => format!("{median:.0}"),
            })
            .collect();
        let _ = writeln!(out, "| {title} | {} |", cells.join(" | "));
    }
    let cpu: Vec<String> = systems
        .iter()
        .map(|system| {
            let found = results
                .find("seq", system, 0.0)
                .and_then(|summary| summary.cpu_s_per_gb);
            found
                .map(|seconds| format!("{seconds:.2}"))
                .unwrap_or_default()
        })
        .collect();
    let _ = writeln!(
        out,
        "| sequential read, CPU s/GB, client + server | {} |",
        cpu.join(" | ")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_shown_by_its_median_and_its_slowest_run() {
        let run = |recovery_rtts: Option<f64>| StepOutcome {
            at_s: 3.0,
            rtt_ms: 25.0,
            rate_mbit: 1000.0,
            recovery_s: recovery_rtts.map(|rtts| rtts * 0.025),
            recovery_rtts,
            settled_share: 0.985,
        };
        let runs = [Some(18.2), None, Some(7.6), Some(5.4), Some(10.0)].map(run);
        let cell = step_cell(&runs.iter().collect::<Vec<_>>());
        assert_eq!(cell, "10.0 RTT (never), settled 98 %");
    }
}
