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
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Shared {
    count: usize,
    promised_bytes_per_second: f64,
    /// The least that one of them got of what was promised.
    worst_of_promised: f64,
    /// Jain's index of what each got beyond that; of less than a hundredth there is none to tell.
    jain: Option<f64>,
    bytes_per_second: f64,
    fio_bytes_per_second: f64,
    of_fio: f64,
    /// Of what the same users have first come, first served.
    of_unscheduled: f64,
}

/// The middle of several rounds by what `of` says of each.
fn middle<T>(rounds: &[T], of: impl Fn(&T) -> f64) -> f64 {
    let all: Vec<f64> = rounds.iter().map(of).collect();
    figures::median(&all).unwrap_or_default()
}

/// The least and the most of several rounds.
fn ends<T>(rounds: &[T], of: impl Fn(&T) -> f64) -> (f64, f64) {
    let all = rounds.iter().map(of);
    let begin = (f64::MAX, f64::MIN);
    all.fold(begin, |(least, most), one| (least.min(one), most.max(one)))
}

impl Shared {
    pub(crate) fn new(promised: f64, each: &[Vec<f64>], fio: f64, unscheduled: f64) -> Self {
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
            jain: (sum > all / 100.0).then(|| sum * sum / (rates.len() as f64 * squares)),
            bytes_per_second: all,
            fio_bytes_per_second: fio,
            of_fio: all / fio,
            of_unscheduled: all / unscheduled,
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
    rounds: usize,
    pub(crate) readers: Vec<Reader>,
    pub(crate) tickets: Vec<Shared>,
    pub(crate) leftover: Vec<Shared>,
    load: String,
}

impl Report {
    pub(crate) fn new(cli: &Cli) -> Self {
        Self {
            machine: Machine::now(),
            seconds: cli.seconds,
            users: cli.users,
            depth: cli.depth,
            rounds: cli.rounds,
            readers: Vec::new(),
            tickets: Vec::new(),
            leftover: Vec::new(),
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
            "{}; load average {}; clients and server share it; {} rounds of {} s each, in turn; \
             {} greedy users with {} requests each; median of the rounds, in brackets the \
             worst.\n\n",
            self.machine, self.load, self.rounds, self.seconds, self.users, self.depth
        );
        if !self.readers.is_empty() {
            out += "| a paced reader | wants, MiB/s | worst 10 s | worst 1 s | p50 | p99 | others, \
                    MiB/s |\n| --- | --- | --- | --- | --- | --- | --- |\n";
        }
        for (is_protected, name) in [(true, "reserved"), (false, "first come, first served")] {
            let these = self.readers.iter();
            let rounds: Vec<&Reader> = these
                .filter(|one| one.is_protected == is_protected)
                .collect();
            if !rounds.is_empty() {
                out += &row(name, &rounds);
            }
        }
        let parts = [
            ("tickets", &self.tickets),
            ("users without", &self.leftover),
        ];
        for (name, rounds) in parts {
            if let Some(first) = rounds.first() {
                write!(
                    out,
                    "\n{} {name} together: {}",
                    first.count,
                    together(rounds)
                )?;
            }
        }
        Ok(out)
    }
}

/// A row of the table of readers.
fn row(name: &str, rounds: &[&Reader]) -> String {
    let percent = |of: fn(&Reader) -> f64| {
        let (worst, _) = ends(rounds, |one| of(one));
        let middle = middle(rounds, |one| of(one));
        format!("{:.1} % ({:.1} %)", 100.0 * middle, 100.0 * worst)
    };
    let millis = |of: fn(&Reader) -> f64| {
        let (_, worst) = ends(rounds, |one| of(one));
        format!("{:.1} ms ({worst:.1})", middle(rounds, |one| of(one)))
    };
    format!(
        "| {name} | {:.0} | {} | {} | {} | {} | {:.0} |\n",
        middle(rounds, |one| one.wanted_bytes_per_second as f64) / MIB,
        percent(|one| one.worst_ten_seconds),
        percent(|one| one.worst_second),
        millis(|one| one.p50_ms),
        millis(|one| one.p99_ms),
        middle(rounds, |one| one.others_bytes_per_second) / MIB,
    )
}

/// What users of one device had together.
fn together(rounds: &[Shared]) -> String {
    let (least, most) = ends(rounds, |one| one.of_fio);
    let (worst, _) = ends(rounds, |one| one.worst_of_promised);
    let shared: Vec<f64> = rounds.iter().filter_map(|one| one.jain).collect();
    let beyond = match figures::median(&shared) {
        Some(jain) => {
            let (unfair, _) = ends(&shared, |jain| *jain);
            let rounds = shared.len();
            format!("Jain's index beyond that {jain:.3} ({unfair:.3}, {rounds} rounds)")
        }
        None => "nothing beyond that was left to share".into(),
    };
    format!(
        "{:.0} MiB/s, {:.1} % of fio ({:.1} to {:.1} %), {:.1} % of what there is without a \
         scheduler; the one with least has {:.1} % ({:.1} %) of what was promised; {beyond}.\n",
        middle(rounds, |one| one.bytes_per_second) / MIB,
        100.0 * middle(rounds, |one| one.of_fio),
        100.0 * least,
        100.0 * most,
        100.0 * middle(rounds, |one| one.of_unscheduled),
        100.0 * middle(rounds, |one| one.worst_of_promised),
        100.0 * worst,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_was_promised_and_fairness_of_what_is_beyond() {
        let even = Shared::new(
            100.0,
            &[vec![150.0, 150.0], vec![150.0, 150.0]],
            600.0,
            300.0,
        );
        let is_about =
            |jain: Option<f64>, is: f64| jain.is_some_and(|jain| (jain - is).abs() < 1e-9);
        assert!(is_about(even.jain, 1.0) && (even.of_fio - 0.5).abs() < 1e-9);
        assert!((even.of_unscheduled - 1.0).abs() < 1e-9);
        let odd = Shared::new(100.0, &[vec![99.0], vec![300.0]], 600.0, 300.0);
        assert!((odd.worst_of_promised - 0.99).abs() < 1e-9);
        assert!(is_about(odd.jain, 0.5));
    }

    #[test]
    fn of_what_is_not_there_nobody_has_an_unfair_part() {
        let nothing = Shared::new(100.0, &[vec![100.5], vec![98.0]], 600.0, 200.0);
        assert_eq!(nothing.jain, None);
        assert!(together(&[nothing]).contains("nothing beyond that was left"));
    }
}
