//! Figures as JSON and as a table with its conditions.

use crate::times::Times;
use figures::Machine;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

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
    Count(u64),
}

impl Row {
    pub(crate) fn times(what: &str, times: &mut Times) -> Self {
        Self::new(what, Figure::Times(times.quantiles([0.5, 0.99, 0.999])))
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

    pub(crate) fn count(what: &str, count: u64) -> Self {
        Self::new(what, Figure::Count(count))
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
    #[serde(flatten)]
    machine: Machine,
    load: String,
    reservations: usize,
    operations: usize,
    seed: u64,
    rows: Vec<Row>,
}

impl Report {
    pub(crate) fn new(reservations: usize, operations: usize, seed: u64, rows: Vec<Row>) -> Self {
        Self {
            machine: Machine::now(),
            load: format!("{:.2}", figures::load_average()),
            reservations,
            operations,
            seed,
            rows,
        }
    }

    /// Publishes it in the part of the document that has this name.
    pub(crate) fn write(
        &self,
        name: &str,
        json: Option<&Path>,
        markdown: Option<&Path>,
    ) -> anyhow::Result<()> {
        if let Some(path) = json {
            figures::save_json(path, self)?;
        }
        figures::publish(markdown, name, &self.table()?)
    }

    fn table(&self) -> anyhow::Result<String> {
        let what = match self.operations {
            0 => "a year in virtual time".to_owned(),
            count => format!("{} operations of each kind", grouped(count)),
        };
        let mut out = format!(
            "{}; load average {}; one thread, {} live reservations, {what}, seed {}.\n\n\
             | | p50 | p99 | p99.9 |\n| --- | --- | --- | --- |\n",
            self.machine,
            self.load,
            grouped(self.reservations),
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
                Figure::Count(count) => {
                    writeln!(out, "| {what} | {} | | |", grouped(*count as usize))
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
