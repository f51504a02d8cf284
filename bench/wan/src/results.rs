//! What a run found: every measurement, the conditions, and medians over repeats.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use figures::median;
use serde::{Deserialize, Serialize};

use crate::app::Latencies;
use crate::steps::StepOutcome;

/// Version of the JSON.
pub(crate) const SCHEMA: u32 = 1;

/// Ideal goodput of a wire rate: 1448 bytes of payload in each 1538 bytes of wire.
pub(crate) fn ideal_mb_per_s(rate_bits_per_s: f64) -> f64 {
    rate_bits_per_s / 8.0 * 1448.0 / 1538.0 / 1e6
}

/// Under what the figures were taken.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Conditions {
    pub(crate) date: String,
    pub(crate) kernel: String,
    pub(crate) cpus: String,
    pub(crate) memory_mib: u64,
    pub(crate) is_quick: bool,
    pub(crate) repeats: u32,
    pub(crate) rtts_ms: Vec<f64>,
    pub(crate) rate_mbit: f64,
    pub(crate) queue: String,
    pub(crate) loss: f64,
    pub(crate) tcp: String,
    pub(crate) is_real_time: bool,
    /// Version and options of each system.
    pub(crate) systems: BTreeMap<String, String>,
    pub(crate) notes: Vec<String>,
}

/// One run of one operation on one system.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) op: String,
    pub(crate) system: String,
    pub(crate) rtt_ms: f64,
    pub(crate) repeat: u32,
    /// The figure of the operation, in `unit`; absent when there was an error.
    pub(crate) value: Option<f64>,
    pub(crate) unit: String,
    pub(crate) error: Option<String>,
    /// The time cap came first: seconds are extrapolated, rates are over a part.
    pub(crate) is_capped: bool,
    pub(crate) done: u64,
    pub(crate) total: u64,
    pub(crate) seconds: f64,
    pub(crate) mount_s: f64,
    pub(crate) first_byte_s: Option<f64>,
    /// Rates in MB/s: over the second half; over all; over all and the mount.
    pub(crate) steady_mb_per_s: Option<f64>,
    pub(crate) read_mb_per_s: Option<f64>,
    pub(crate) whole_mb_per_s: Option<f64>,
    pub(crate) fsync_s: Option<f64>,
    /// Whether all was at the server when fsync returned.
    pub(crate) is_durable: Option<bool>,
    pub(crate) latency: Option<Latencies>,
    /// IP bytes on the wire from mount to after the unmount, and their ratio to the useful ones.
    pub(crate) ip_bytes_to_client: u64,
    pub(crate) ip_bytes_to_server: u64,
    pub(crate) ip_bytes_per_useful: Option<f64>,
    pub(crate) queue_dropped_segments: u64,
    /// Mean lateness of the link's deliveries: how well the machine kept up.
    pub(crate) link_late_us: f64,
    pub(crate) load1: f64,
    pub(crate) cpu_client_s: f64,
    pub(crate) cpu_server_s: f64,
    pub(crate) steps: Vec<StepOutcome>,
    /// (seconds, MB/s) over windows of 200 ms, for steps.
    pub(crate) rate_line: Vec<(f64, f64)>,
}

/// A system or operation that was left out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Skipped {
    pub(crate) what: String,
    pub(crate) why: String,
}

/// Median over the repeats of one operation, system and round trip.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) op: String,
    pub(crate) system: String,
    pub(crate) rtt_ms: f64,
    pub(crate) unit: String,
    pub(crate) n: usize,
    pub(crate) errors: usize,
    pub(crate) median: Option<f64>,
    pub(crate) min: Option<f64>,
    pub(crate) max: Option<f64>,
    pub(crate) whole_mb_per_s: Option<f64>,
    pub(crate) first_byte_s: Option<f64>,
    pub(crate) ip_bytes_per_useful: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    /// Rate of what ran beside calls whose latency is the figure.
    pub(crate) beside_mb_per_s: Option<f64>,
    pub(crate) cpu_s_per_gb: Option<f64>,
    pub(crate) is_capped: bool,
    pub(crate) is_durable: Option<bool>,
}

/// Everything.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) schema: u32,
    /// `wan` or `loopback`.
    pub(crate) kind: String,
    pub(crate) conditions: Conditions,
    pub(crate) skipped: Vec<Skipped>,
    pub(crate) summary: Vec<Summary>,
    pub(crate) measurements: Vec<Measurement>,
}

impl Results {
    pub(crate) fn new(kind: &str, conditions: Conditions) -> Self {
        Self {
            schema: SCHEMA,
            kind: kind.to_owned(),
            conditions,
            skipped: Vec::new(),
            summary: Vec::new(),
            measurements: Vec::new(),
        }
    }

    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// Adds one measurement and brings its summary up to date.
    pub(crate) fn add(&mut self, measurement: Measurement) {
        let (op, system) = (measurement.op.clone(), measurement.system.clone());
        let rtt_ms = measurement.rtt_ms;
        self.measurements.push(measurement);
        self.summary
            .retain(|s| (&s.op, &s.system, s.rtt_ms) != (&op, &system, rtt_ms));
        let group: Vec<&Measurement> = self
            .measurements
            .iter()
            .filter(|m| (&m.op, &m.system, m.rtt_ms) == (&op, &system, rtt_ms))
            .collect();
        let summary = summarise(&group);
        self.summary.push(summary);
    }

    /// Adds another run of the same kind on a link of the same kind.
    pub(crate) fn absorb(&mut self, other: Self) -> anyhow::Result<()> {
        let (ours, theirs) = (&mut self.conditions, other.conditions);
        let link = |c: &Conditions| (c.rate_mbit, c.loss, c.queue.clone(), c.tcp.clone());
        anyhow::ensure!(
            self.kind == other.kind
                && link(ours) == link(&theirs)
                && ours.is_quick == theirs.is_quick,
            "the runs were made under different conditions: {ours:?}, {theirs:?}"
        );
        ours.repeats = ours.repeats.min(theirs.repeats);
        ours.is_real_time &= theirs.is_real_time;
        ours.rtts_ms.extend(theirs.rtts_ms);
        ours.rtts_ms.sort_by(f64::total_cmp);
        ours.rtts_ms.dedup();
        ours.systems.extend(theirs.systems);
        for note in theirs.notes {
            if !ours.notes.contains(&note) {
                ours.notes.push(note);
            }
        }
        self.skipped.extend(other.skipped);
        for measurement in other.measurements {
            self.add(measurement);
        }
        Ok(())
    }

    pub(crate) fn find(&self, op: &str, system: &str, rtt_ms: f64) -> Option<&Summary> {
        self.summary
            .iter()
            .find(|s| s.op == op && s.system == system && s.rtt_ms == rtt_ms)
    }
}

fn summarise(group: &[&Measurement]) -> Summary {
    let figures = |figure: &dyn Fn(&Measurement) -> Option<f64>| -> Vec<f64> {
        let mut values: Vec<f64> = group
            .iter()
            .filter(|m| m.value.is_some())
            .filter_map(|m| figure(m))
            .collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let middle = |figure: &dyn Fn(&Measurement) -> Option<f64>| median(&figures(figure));
    let values = figures(&|m| m.value);
    let first = group[0];
    Summary {
        op: first.op.clone(),
        system: first.system.clone(),
        rtt_ms: first.rtt_ms,
        unit: first.unit.clone(),
        n: values.len(),
        errors: group.len() - values.len(),
        median: median(&values),
        min: values.first().copied(),
        max: values.last().copied(),
        whole_mb_per_s: middle(&|m| m.whole_mb_per_s),
        first_byte_s: middle(&|m| m.first_byte_s),
        ip_bytes_per_useful: middle(&|m| m.ip_bytes_per_useful),
        p99_ms: middle(&|m| m.latency.map(|latency| latency.p99_ms)),
        beside_mb_per_s: middle(&|m| m.steady_mb_per_s.filter(|_| m.unit == "ms")),
        cpu_s_per_gb: middle(&|m| {
            (m.unit.ends_with("B/s"))
                .then(|| (m.cpu_client_s + m.cpu_server_s) / m.done as f64 * 1e9)
        }),
        is_capped: group.iter().any(|m| m.is_capped),
        is_durable: group
            .iter()
            .filter_map(|m| m.is_durable)
            .reduce(|all, one| all && one),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_become_a_median_and_errors_are_counted_not_averaged() {
        let mut results = Results::new("wan", Conditions::default());
        for value in [Some(3.0), None, Some(1.0), Some(2.0)] {
            results.add(Measurement {
                op: "seq".to_owned(),
                system: "x".to_owned(),
                value,
                error: value.is_none().then(|| "broken".to_owned()),
                ..Measurement::default()
            });
        }
        let summary = results.find("seq", "x", 0.0).unwrap();
        assert_eq!(
            (summary.median, summary.n, summary.errors),
            (Some(2.0), 3, 1)
        );
        assert_eq!((summary.min, summary.max), (Some(1.0), Some(3.0)));
        assert_eq!(results.summary.len(), 1);
    }

    #[test]
    fn runs_made_in_parts_become_one_and_other_lines_are_refused() {
        let part = |rtt_ms: f64, value: f64| {
            let conditions = Conditions {
                repeats: 1,
                rtts_ms: vec![rtt_ms],
                ..Conditions::default()
            };
            let mut results = Results::new("wan", conditions);
            results.add(Measurement {
                op: "seq".to_owned(),
                system: "x".to_owned(),
                rtt_ms,
                value: Some(value),
                ..Measurement::default()
            });
            results
        };
        let mut whole = part(100.0, 1.0);
        whole.absorb(part(0.0, 5.0)).unwrap();
        whole.absorb(part(100.0, 3.0)).unwrap();
        assert_eq!(whole.conditions.rtts_ms, [0.0, 100.0]);
        assert_eq!(whole.find("seq", "x", 100.0).unwrap().median, Some(2.0));
        assert_eq!(whole.find("seq", "x", 0.0).unwrap().median, Some(5.0));
        let mut slow = part(0.0, 1.0);
        slow.conditions.rate_mbit = 100.0;
        assert!(whole.absorb(slow).is_err());
    }

    #[test]
    fn the_ideal_of_a_gigabit_is_that_of_the_published_table() {
        assert!((ideal_mb_per_s(1e9) - 117.7).abs() < 0.05);
    }
}
