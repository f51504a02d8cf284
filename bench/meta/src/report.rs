//! Figures, as JSON and as a table, with their conditions.

use crate::work::Done;
use figures::{Machine, quantile};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// One line of a table.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    what: String,
    per_second: Option<f64>,
    /// Microseconds below which 50, 99 and 99.9 of 100 lie.
    times_us: Option<[f64; 3]>,
    seconds: Option<f64>,
}

impl Row {
    pub(crate) fn new(what: &str, done: Done) -> Self {
        let Done {
            mut times_us,
            seconds,
        } = done;
        times_us.sort_unstable_by(f64::total_cmp);
        let count = times_us.len();
        let below = |share: f64| quantile(&times_us, share).unwrap_or_default();
        Self {
            what: what.to_owned(),
            per_second: Some(count as f64 / seconds),
            times_us: Some([below(0.5), below(0.99), below(0.999)]),
            seconds: None,
        }
    }

    pub(crate) fn seconds(what: &str, seconds: f64) -> Self {
        Self {
            what: what.to_owned(),
            per_second: None,
            times_us: None,
            seconds: Some(seconds),
        }
    }
}

/// What one engine did.
#[derive(Debug, Serialize)]
struct Part {
    engine: String,
    /// 4 KiB made durable on the same file system, a second, before and after.
    flushes_per_second: (f64, f64),
    load: String,
    rows: Vec<Row>,
}

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    machine: Machine,
    seconds: u64,
    rows_per_transaction: usize,
    parts: Vec<Part>,
}

impl Report {
    pub(crate) fn new(seconds: u64, rows_per_transaction: usize) -> Self {
        Self {
            machine: Machine::now(),
            seconds,
            rows_per_transaction,
            parts: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, engine: &str, flushes_per_second: (f64, f64), rows: Vec<Row>) {
        self.parts.push(Part {
            engine: engine.to_owned(),
            flushes_per_second,
            load: format!("{:.2}", figures::load_average()),
            rows,
        });
    }

    pub(crate) fn write(&self, json: Option<&Path>, markdown: Option<&Path>) -> anyhow::Result<()> {
        if let Some(path) = json {
            figures::save_json(path, self)?;
        }
        figures::publish(markdown, "meta", &self.table()?)
    }

    fn table(&self) -> anyhow::Result<String> {
        let mut out = format!(
            "{}; shared by clients, engine and, with etcd, three members; {} s each; up to {} \
             admissions in a transaction.\n",
            self.machine, self.seconds, self.rows_per_transaction
        );
        for part in &self.parts {
            let (before, after) = part.flushes_per_second;
            write!(
                out,
                "\n| {}: the disk makes {before:.0} to {after:.0} flushes a second, load {} | \
                 a second | p50 | p99 | p99.9 |\n| --- | --- | --- | --- | --- |\n",
                part.engine, part.load
            )?;
            for row in &part.rows {
                let rate = row.per_second.map(|rate| format!("{rate:.0}"));
                let rate = rate.or(row.seconds.map(|seconds| format!("{seconds:.1} s")));
                write!(out, "| {} | {} |", row.what, rate.unwrap_or_default())?;
                for time_us in row.times_us.into_iter().flatten() {
                    write!(out, " {:.2} ms |", time_us / 1000.0)?;
                }
                let missing = if row.times_us.is_some() { 0 } else { 3 };
                writeln!(out, "{}", " |".repeat(missing))?;
            }
        }
        Ok(out)
    }
}
