//! A link that changes while one file is read: when, and how soon the reader has it again.

use std::time::Duration;

use azlink::{Command, Link};
use serde::{Deserialize, Serialize};

use crate::app::{Outcome, monotonic_s};
use crate::plan::Scale;
use crate::results::ideal_mb_per_s;

/// A rate counts as reached at this share of the ideal.
const REACHED_SHARE: f64 = 0.9;

/// One state of the link in the sequence.
#[derive(Debug, Clone, Copy)]
struct Phase {
    rtt_ms: f64,
    rate_mbit: f64,
    seconds: f64,
}

fn phases(scale: Scale) -> [Phase; 5] {
    let phase = |rtt_ms, rate_mbit, full, quick| Phase {
        rtt_ms,
        rate_mbit,
        seconds: if scale.is_quick { quick } else { full },
    };
    [
        phase(0.0, 1000.0, 3.0, 2.0),
        phase(100.0, 1000.0, 7.0, 5.0),
        phase(25.0, 1000.0, 4.0, 2.0),
        phase(25.0, 100.0, 5.0, 3.0),
        phase(25.0, 1000.0, 5.0, 2.0),
    ]
}

/// How long the sequence takes.
pub(crate) fn length(scale: Scale) -> Duration {
    Duration::from_secs_f64(phases(scale).iter().map(|phase| phase.seconds).sum())
}

/// How a reader came through one step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StepOutcome {
    pub(crate) at_s: f64,
    pub(crate) rtt_ms: f64,
    pub(crate) rate_mbit: f64,
    /// Until the rate was there again; absent when it never was.
    pub(crate) recovery_s: Option<f64>,
    /// The same in round trips; absent also where the round trip is 0.
    pub(crate) recovery_rtts: Option<f64>,
    /// Rate in the last half of the phase, of the ideal.
    pub(crate) settled_share: f64,
}

/// Puts the link into its first state, before the reader starts.
pub(crate) fn prepare(link: &Link, scale: Scale) {
    set(link, phases(scale)[0]);
}

/// Runs the sequence beside the reader; returns when each phase began (CLOCK_MONOTONIC).
pub(crate) fn follow(link: &Link, scale: Scale) -> Vec<f64> {
    let mut begun = Vec::new();
    for phase in phases(scale) {
        set(link, phase);
        begun.push(monotonic_s());
        std::thread::sleep(Duration::from_secs_f64(phase.seconds));
    }
    begun
}

fn set(link: &Link, phase: Phase) {
    link.apply(&Command::Rtt(Duration::from_secs_f64(phase.rtt_ms / 1e3)));
    link.apply(&Command::Rate(None, Some((phase.rate_mbit * 1e6) as u64)));
}

/// Judges the reader's time line against the phases.
pub(crate) fn judge(outcome: &Outcome, begun: &[f64], scale: Scale) -> Vec<StepOutcome> {
    let line = &outcome.timeline;
    let judged = phases(scale)
        .into_iter()
        .zip(begun)
        .map(|(phase, begun_s)| {
            let at_s = (begun_s - outcome.start_s).max(0.0);
            let end_s = at_s + phase.seconds;
            let ideal = ideal_mb_per_s(phase.rate_mbit * 1e6) * 1e6;
            // A shorter window would call one burst a rate.
            let window_s = (2.0 * phase.rtt_ms / 1e3).max(0.1);
            let recovery_s = first_window(line, at_s, end_s, window_s, REACHED_SHARE * ideal);
            let settled = bytes_at(line, end_s) - bytes_at(line, (at_s + end_s) / 2.0);
            StepOutcome {
                at_s,
                rtt_ms: phase.rtt_ms,
                rate_mbit: phase.rate_mbit,
                recovery_s,
                recovery_rtts: recovery_s
                    .filter(|_| phase.rtt_ms > 0.0)
                    .map(|seconds| seconds * 1e3 / phase.rtt_ms),
                settled_share: settled / (phase.seconds / 2.0) / ideal,
            }
        });
    judged.collect()
}

/// Time from `at_s` to the start of the first window whose rate is enough.
fn first_window(
    line: &[(f64, u64)],
    at_s: f64,
    end_s: f64,
    window_s: f64,
    bytes_per_s: f64,
) -> Option<f64> {
    const GRAIN_S: f64 = 0.005;
    let windows = ((end_s - window_s - at_s) / GRAIN_S).max(0.0) as u64;
    (0..=windows)
        .map(|index| index as f64 * GRAIN_S)
        .find(|after_s| {
            let from_s = at_s + after_s;
            let bytes = bytes_at(line, from_s + window_s) - bytes_at(line, from_s);
            bytes >= bytes_per_s * window_s
        })
}

/// Bytes read by a time, between samples in proportion.
pub(crate) fn bytes_at(line: &[(f64, u64)], time_s: f64) -> f64 {
    let after = line.partition_point(|(at_s, _)| *at_s <= time_s);
    let Some((from_s, from)) = after.checked_sub(1).map(|before| line[before]) else {
        return 0.0;
    };
    let Some((to_s, to)) = line.get(after) else {
        return from as f64;
    };
    from as f64 + (to - from) as f64 * (time_s - from_s) / (to_s - from_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_is_counted_from_the_step_to_the_first_good_window() {
        // 100 bytes/s until 1 s, nothing until 1.5 s, then 100 bytes/s again.
        let line = [(0.0, 0), (1.0, 100), (1.5, 100), (3.0, 250)];
        let found = first_window(&line, 1.0, 3.0, 0.2, 90.0).unwrap();
        assert!((found - 0.48).abs() < 0.011, "{found}");
        assert_eq!(first_window(&line, 1.0, 3.0, 0.2, 150.0), None);
        assert_eq!(bytes_at(&line, 0.5), 50.0);
        assert_eq!(bytes_at(&line, 9.0), 250.0);
    }
}
