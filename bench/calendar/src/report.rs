//! Figures as JSON and as a table with its conditions.

use crate::times::Times;
use anyhow::Context;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// One line of the table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    what: String,
    figure: Figure,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Figure {
    /// Microseconds below which 50, 99 and 99.9 of 100 lie.
    Times([f64; 3]),
    MemoryBytes(usize),
    PerSecond(f64),
    Seconds(f64),
}

impl Row {
    pub(crate) fn times(what: &str, times: &mut Times) -> Self {
        Self::new(what, Figure::Times(times.quantiles([500, 990, 999])))
    }

    pub(crate) fn memory(what: &str, bytes: usize) -> Self {
        Self::new(what, Figure::MemoryBytes(bytes))
    }

    pub(crate) fn rate(what: &str, per_second: f64) -> Self {
        Self::new(what, Figure::PerSecond(per_second))
    }

    pub(crate) fn seconds(what: &str, seconds: f64) -> Self {
        Self::new(what, Figure::Seconds(seconds))
    }

    fn new(what: &str, figure: Figure) -> Self {
        Self {
            what: what.to_owned(),
            figure,
        }
    }
}

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    date: String,
    kernel: String,
    processors: String,
    load: String,
    reservations: usize,
    operations: usize,
    seed: u64,
    rows: Vec<Row>,
}

fn read(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

impl Report {
    pub(crate) fn new(reservations: usize, operations: usize, seed: u64, rows: Vec<Row>) -> Self {
        let date = Command::new("date")
            .args(["-u", "+%Y-%m-%dT%H:%M:%SZ"])
            .output();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name"));
        let model = model
            .unwrap_or_default()
            .trim_start_matches(['\t', ':', ' ']);
        let count = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let load = read("/proc/loadavg");
        Self {
            date: date
                .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
                .unwrap_or_default(),
            kernel: read("/proc/sys/kernel/osrelease"),
            processors: format!("{count} x {model}"),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
            reservations,
            operations,
            seed,
            rows,
        }
    }

    pub(crate) fn write(&self, json: Option<&Path>, markdown: Option<&Path>) -> anyhow::Result<()> {
        if let Some(path) = json {
            let text = serde_json::to_string_pretty(self)?;
            std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        let table = self.table()?;
        match markdown {
            Some(path) => replace_in(path, &table),
            None => {
                use std::io::Write;
                std::io::stdout().write_all(table.as_bytes())?;
                Ok(())
            }
        }
    }

    fn table(&self) -> anyhow::Result<String> {
        let mut out = format!(
            "{}, kernel {}, {}; load average {}; one thread, {} live reservations, {} operations \
             of each kind, seed {}.\n\n| | p50 | p99 | p99.9 |\n| --- | --- | --- | --- |\n",
            self.date,
            self.kernel,
            self.processors,
            self.load,
            grouped(self.reservations),
            grouped(self.operations),
            self.seed
        );
        for Row { what, figure } in &self.rows {
            match figure {
                Figure::Times([p50, p99, p999]) => {
                    writeln!(
                        out,
                        "| {what} | {} | {} | {} |",
                        time(*p50),
                        time(*p99),
                        time(*p999)
                    )
                }
                Figure::MemoryBytes(bytes) => writeln!(out, "| {what} | {} | | |", size(*bytes)),
                Figure::PerSecond(rate) => {
                    writeln!(out, "| {what} | {} | | |", grouped(*rate as usize))
                }
                Figure::Seconds(seconds) => writeln!(out, "| {what} | {seconds:.2} s | | |"),
            }?;
        }
        Ok(out)
    }
}

fn time(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2} µs"),
        us if us < 1000.0 => format!("{us:.0} µs"),
        us => format!("{:.1} ms", us / 1000.0),
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        0..10_000 => format!("{} B", grouped(bytes)),
        10_000..10_000_000 => format!("{} KiB", grouped(bytes >> 10)),
        _ => format!("{} MiB", grouped(bytes >> 20)),
    }
}

/// With commas between groups of three digits.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Replaces what stands between the markers, or appends markers and table.
fn replace_in(path: &Path, table: &str) -> anyhow::Result<()> {
    const BEGIN: &str = "<!-- bench calendar: begin -->";
    const END: &str = "<!-- bench calendar: end -->";
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let block = format!("{BEGIN}\n{table}\n{END}");
    let replaced = match (text.find(BEGIN), text.find(END)) {
        (Some(from), Some(to)) if from < to => {
            format!("{}{block}{}", &text[..from], &text[to + END.len()..])
        }
        _ => format!("{text}\n{block}\n"),
    };
    std::fs::write(path, replaced).with_context(|| format!("writing {}", path.display()))
}
