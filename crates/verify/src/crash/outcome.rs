//! What a run has found.

use super::Target;
use crate::outcome;
use crate::states::{Said, State};
use base::limits::VERIFY_FAILURES_MAX;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Of one target.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What was judged: `ext4`.
    pub target: String,
    /// How it was mounted.
    pub mount_options: String,
    /// From which everything that is left to chance is made.
    pub seed: u64,
    /// Counts.
    pub totals: Totals,
    /// Per kind of loss, how often.
    pub outcomes: BTreeMap<outcome::Outcome, u64>,
    /// The first failures.
    pub failures: Vec<Failure>,
    /// How long it took.
    pub time: Duration,
    /// Whether the user ended it early.
    pub was_interrupted: bool,
    /// What a second recorder made of it, if there was one.
    pub agreement: Option<Agreement>,
}

/// Two recorders on the same workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Workloads that both recorded.
    pub logs: u64,
    /// Of these, how many were the same flush by flush.
    pub equal_logs: u64,
    /// Crash states of the second recorder's logs that were tried.
    pub states: u64,
    /// Of these, those with something wrong.
    pub bad_states: u64,
    /// Workloads of which both logs were judged alike: nothing wrong, or wrong in the same ways.
    pub equal_verdicts: u64,
}

impl Agreement {
    /// Whether the two differ in anything.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.equal_logs == self.logs && self.equal_verdicts == self.logs
    }
}

/// Counts of a run, by the names that they have in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Totals {
    /// Workloads that were recorded.
    pub workloads: u64,
    /// Their steps.
    pub steps: u64,
    /// Writes in their logs.
    pub writes: u64,
    /// Bytes of these.
    pub written_bytes: u64,
    /// Flushes in their logs.
    pub flushes: u64,
    /// Crash states that were tried, those of recoveries among them.
    pub states: u64,
    /// Of these, states in which a recovery was interrupted.
    pub recovery_states: u64,
    /// States of the workloads that differ from each other.
    #[serde(rename = "distinct_states")]
    pub distinct: u64,
    /// States that were left out because another has the same bytes and the same promises.
    pub pruned: u64,
    /// Of the states that were tried, those drawn by chance; the others are all of their kind.
    pub sampled: u64,
    /// Names that had to be there, and were what they had to be, in all states together. Results
    /// from before it was counted have none.
    #[serde(default)]
    pub intact: u64,
    /// Things that had been made durable and were not as they were then.
    pub lost_acks: u64,
    /// Things that may never be there.
    pub exposed: u64,
    /// States that could not be mounted.
    pub unmountable: u64,
    /// States with anything of these.
    pub bad_states: u64,
}

impl Outcome {
    /// Adds what another part of the same run has found.
    pub(super) fn add(&mut self, part: Self) {
        self.totals.add(&part.totals);
        for (kind, count) in part.outcomes {
            *self.outcomes.entry(kind).or_default() += count;
        }
        let room = VERIFY_FAILURES_MAX.saturating_sub(self.failures.len());
        self.failures.extend(part.failures.into_iter().take(room));
        self.was_interrupted |= part.was_interrupted;
    }

    /// States that are not as was promised. What a file system loses that promises nothing of the
    /// kind is counted and no failure; but it must be there at all.
    #[must_use]
    pub fn broken_promises(&self) -> u64 {
        let target = Target::judged_by_name(&self.target);
        match target.is_none_or(Target::keeps_promises) {
            true => self.totals.bad_states,
            false => self.totals.unmountable,
        }
    }
}

impl Totals {
    /// Adds those of another target.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.workloads, other.workloads),
            (&mut self.steps, other.steps),
            (&mut self.writes, other.writes),
            (&mut self.written_bytes, other.written_bytes),
            (&mut self.flushes, other.flushes),
            (&mut self.states, other.states),
            (&mut self.recovery_states, other.recovery_states),
            (&mut self.distinct, other.distinct),
            (&mut self.pruned, other.pruned),
            (&mut self.sampled, other.sampled),
            (&mut self.intact, other.intact),
            (&mut self.lost_acks, other.lost_acks),
            (&mut self.exposed, other.exposed),
            (&mut self.unmountable, other.unmountable),
            (&mut self.bad_states, other.bad_states),
        ];
        for (sum, more) in pairs {
            *sum += more;
        }
    }
}

/// One state in which something is wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The workload's name.
    pub workload: String,
    /// Its steps.
    pub steps: String,
    /// The state in which it was found.
    pub state: State,
    /// The state of that one's recovery, if the recovery was interrupted.
    pub recovery: Option<State>,
    /// What had been said.
    pub said: Said,
    /// What is wrong, in words.
    pub findings: Vec<String>,
    /// A state with fewer changes missing, or there, in which it is wrong as well.
    pub reduced: State,
    /// The changes that this one names.
    pub writes: Vec<Place>,
    /// The command that tries it again.
    pub replay: String,
}

/// A change of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number in the stretch, from 0.
    pub number: u32,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}
