//! Figures, as JSON and as a table.

use crate::Cli;
use anyhow::Result;
use figures::{Machine, median};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

const MEGA: f64 = 1e6;

/// A rate through the mount, and fio's.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Pair {
    bytes_per_second: f64,
    /// Share of what the processors could do, and of what others had of them.
    busy: f64,
    stolen: f64,
    fio_bytes_per_second: f64,
}

impl Pair {
    pub(crate) fn new((bytes_per_second, busy, stolen): (f64, f64, f64), fio: f64) -> Self {
        Self {
            bytes_per_second,
            busy,
            stolen,
            fio_bytes_per_second: fio,
        }
    }

    fn ratio(&self) -> f64 {
        self.bytes_per_second / self.fio_bytes_per_second
    }
}

/// One run of the job.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Run {
    pub(crate) is_reserved: bool,
    pub(crate) is_beside: bool,
    pub(crate) seconds: f64,
    /// Of each step.
    pub(crate) steps: Vec<f64>,
}

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    machine: Machine,
    load: String,
    conditions: String,
    pub(crate) writes: Vec<Pair>,
    pub(crate) reads: Vec<Pair>,
    pub(crate) runs: Vec<Run>,
}

impl Report {
    pub(crate) fn new(cli: &Cli) -> Self {
        let way = if cli.tls { "with TLS" } else { "without TLS" };
        Self {
            machine: Machine::now(),
            load: format!("{:.2}", figures::load_average()),
            conditions: format!(
                "one server with {} stores in files, server and mounts on one machine, {way}; {} \
                 MiB written and read; a job of {} workers and {} steps of {} ms, {} MiB/s of \
                 reading and of writing reserved, beside {} users; {} rounds, median",
                cli.stores,
                cli.size >> 20,
                cli.workers,
                cli.steps,
                cli.compute,
                cli.rate >> 20,
                cli.users,
                cli.rounds,
            ),
            writes: Vec::new(),
            reads: Vec::new(),
            runs: Vec::new(),
        }
    }

    pub(crate) fn write(&self, json: Option<&Path>, markdown: Option<&Path>) -> Result<()> {
        if let Some(path) = json {
            figures::save_json(path, self)?;
        }
        figures::publish(markdown, "parallel", &self.table()?)
    }

    fn table(&self) -> Result<String> {
        let mut out = format!(
            "{}, load {}; {}.\n",
            self.machine, self.load, self.conditions
        );
        if !self.writes.is_empty() {
            out += "\n| striped | MB/s | fio on as many | of fio | processors busy | stolen |\n\
                    | --- | --- | --- | --- | --- | --- |\n";
        }
        for (name, pairs) in [("written, then fsync", &self.writes), ("read", &self.reads)] {
            let middle = |of: fn(&Pair) -> f64| {
                let all: Vec<f64> = pairs.iter().map(of).collect();
                median(&all)
            };
            let Some(ratio) = middle(Pair::ratio) else {
                continue;
            };
            let of = |of| middle(of).unwrap_or_default();
            writeln!(
                out,
                "| {name} | {:.0} | {:.0} | {:.0} % | {:.0} % | {:.0} % |",
                of(|pair| pair.bytes_per_second) / MEGA,
                of(|pair| pair.fio_bytes_per_second) / MEGA,
                100.0 * ratio,
                100.0 * of(|pair| pair.busy),
                100.0 * of(|pair| pair.stolen),
            )?;
        }
        if !self.runs.is_empty() {
            out += "\n| job | alone | beside others | grows by | at most | slowest step |\n\
                    | --- | --- | --- | --- | --- | --- |\n";
        }
        for (is_reserved, name) in [(true, "reserved"), (false, "without a reservation")] {
            let Some((alone, beside, growths)) = self.growth(is_reserved) else {
                continue;
            };
            let most = growths.iter().copied().fold(f64::MIN, f64::max);
            writeln!(
                out,
                "| {name} | {alone:.2} s | {beside:.2} s | {:.1} % | {:.1} % | {:.0} ms |",
                100.0 * median(&growths).unwrap_or_default(),
                100.0 * most,
                1000.0 * self.slowest_step(is_reserved),
            )?;
        }
        Ok(out)
    }

    /// The slowest step of the runs beside others; the median of these, in seconds.
    fn slowest_step(&self, is_reserved: bool) -> f64 {
        let these = self.runs.iter();
        let these = these.filter(|run| run.is_beside && run.is_reserved == is_reserved);
        let slowest = these.map(|run| run.steps.iter().copied().fold(0.0, f64::max));
        median(&slowest.collect::<Vec<_>>()).unwrap_or_default()
    }

    /// Seconds alone and beside others, and how much it grew in each round.
    fn growth(&self, is_reserved: bool) -> Option<(f64, f64, Vec<f64>)> {
        let seconds = |is_beside| -> Vec<f64> {
            let kind = (is_reserved, is_beside);
            let these = self.runs.iter();
            let these = these.filter(|run| (run.is_reserved, run.is_beside) == kind);
            these.map(|run| run.seconds).collect()
        };
        let (alone, beside) = (seconds(false), seconds(true));
        let growths = alone.iter().zip(&beside);
        let growths: Vec<f64> = growths
            .map(|(alone, beside)| beside / alone - 1.0)
            .collect();
        Some((median(&alone)?, median(&beside)?, growths))
    }
}
