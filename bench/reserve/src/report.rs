//! Figures, as JSON and as a table.

use crate::Cli;
use crate::load::Got;
use anyhow::Result;
use figures::Machine;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

const MIB: f64 = 1_048_576.0;

/// What the paced reader got.
#[derive(Debug, Serialize)]
pub(crate) struct Reader {
    is_protected: bool,
    wanted_bytes_per_second: u64,
    share_ppm: u32,
    /// Shares of the wanted rate: in the worst ten seconds, the worst second, and in all.
    worst_ten_seconds: f64,
    worst_second: f64,
    whole: f64,
    p50_ms: f64,
    p99_ms: f64,
    others_bytes_per_second: f64,
}

impl Reader {
    pub(crate) fn new(
        is_protected: bool,
        rate: u64,
        share_ppm: u32,
        got: &Got,
        seconds: u64,
        others: f64,
    ) -> Self {
        let each = got.seconds(seconds);
        let worst = |width: usize| {
            let width = width.min(each.len()).max(1);
            let sums = each.windows(width).map(|some| some.iter().sum::<f64>());
            sums.fold(f64::MAX, f64::min) / (rate as f64 * width as f64)
        };
        Self {
            is_protected,
            wanted_bytes_per_second: rate,
            share_ppm,
            worst_ten_seconds: worst(10),
            worst_second: worst(1),
            whole: worst(each.len()),
            p50_ms: got.millis(0.5),
            p99_ms: got.millis(0.99),
            others_bytes_per_second: others,
        }
    }
}

/// What some got who share a device.
#[derive(Debug, Serialize)]
pub(crate) struct Shared {
    count: usize,
    promised_bytes_per_second: f64,
    /// The least that one of them got of what was promised.
    worst_of_promised: f64,
    /// Jain's index of what each got beyond that.
    jain: f64,
    bytes_per_second: f64,
    fio_bytes_per_second: f64,
    of_fio: f64,
}

impl Shared {
    pub(crate) fn new(promised: f64, each: &[Vec<f64>], fio: f64) -> Self {
        let mean = |seconds: &Vec<f64>| seconds.iter().sum::<f64>() / seconds.len().max(1) as f64;
        let rates: Vec<f64> = each.iter().map(mean).collect();
        let beyond: Vec<f64> = rates
            .iter()
            .map(|rate| (rate - promised).max(0.0))
            .collect();
        let (sum, squares) = (
            beyond.iter().sum::<f64>(),
            beyond.iter().map(|rate| rate * rate).sum::<f64>(),
        );
        let all: f64 = rates.iter().sum();
        let least = rates.iter().copied().fold(f64::MAX, f64::min);
        Self {
            count: rates.len(),
            promised_bytes_per_second: promised,
            worst_of_promised: if promised > 0.0 {
                least / promised
            } else {
                1.0
            },
            jain: sum * sum / (rates.len() as f64 * squares.max(1.0)),
            bytes_per_second: all,
            fio_bytes_per_second: fio,
            of_fio: all / fio,
        }
    }
}

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    #[serde(flatten)]
    machine: Machine,
    seconds: u64,
    users: usize,
    depth: usize,
    pub(crate) readers: Vec<Reader>,
    pub(crate) tickets: Option<Shared>,
    pub(crate) leftover: Option<Shared>,
    load: String,
}

impl Report {
    pub(crate) fn new(cli: &Cli) -> Self {
        Self {
            machine: Machine::now(),
            seconds: cli.seconds,
            users: cli.users,
            depth: cli.depth,
            readers: Vec::new(),
            tickets: None,
            leftover: None,
            load: format!("{:.2}", figures::load_average()),
        }
    }

    pub(crate) fn write(&self, json: Option<&Path>, markdown: Option<&Path>) -> Result<()> {
        if let Some(path) = json {
            figures::save_json(path, self)?;
        }
        figures::publish(markdown, "reserve", &self.table()?)
    }

    fn table(&self) -> Result<String> {
        let mut out = format!(
            "{}; clients and server share it; {} s each, {} greedy users with {} requests each\n\n",
            self.machine, self.seconds, self.users, self.depth
        );
        if !self.readers.is_empty() {
            out += "| a paced reader | wants, MiB/s | worst 10 s | worst 1 s | p50 | p99 | others, \
                    MiB/s |\n| --- | --- | --- | --- | --- | --- | --- |\n";
        }
        for reader in &self.readers {
            let name = match reader.is_protected {
                true => "reserved",
                false => "first come, first served",
            };
            writeln!(
                out,
                "| {name} | {:.0} | {:.1} % | {:.1} % | {:.1} ms | {:.1} ms | {:.0} |",
                reader.wanted_bytes_per_second as f64 / MIB,
                reader.worst_ten_seconds * 100.0,
                reader.worst_second * 100.0,
                reader.p50_ms,
                reader.p99_ms,
                reader.others_bytes_per_second / MIB,
            )?;
        }
        let parts = [
            ("tickets", &self.tickets),
            ("users without", &self.leftover),
        ];
        for (name, shared) in parts
            .into_iter()
            .filter_map(|(n, s)| Some((n, s.as_ref()?)))
        {
            write!(
                out,
                "\n{} {name} together: {:.0} MiB/s, {:.1} % of fio; the one with least has {:.1} % \
                 of what was promised; Jain's index beyond that {:.3}.\n",
                shared.count,
                shared.bytes_per_second / MIB,
                shared.of_fio * 100.0,
                shared.worst_of_promised * 100.0,
                shared.jain,
            )?;
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_was_promised_and_fairness_of_what_is_beyond() {
        let even = Shared::new(100.0, &[vec![150.0, 150.0], vec![150.0, 150.0]], 600.0);
        assert!((even.jain - 1.0).abs() < 1e-9 && (even.of_fio - 0.5).abs() < 1e-9);
        let odd = Shared::new(100.0, &[vec![99.0], vec![300.0]], 600.0);
        assert!((odd.worst_of_promised - 0.99).abs() < 1e-9);
        assert!((odd.jain - 0.5).abs() < 1e-9);
    }
}
