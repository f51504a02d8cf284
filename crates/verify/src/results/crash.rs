//! Results of crash runs.

use super::{ResultError, count, invalid, time};
use crate::crash::{Failure, Outcome, Place, Totals};
use crate::states::{Said, State};
use base::limits::VERIFY_FAILURES_MAX;
use serde::Deserialize;
use std::collections::BTreeMap;

/// There are fewer file systems.
const TARGETS_MAX: usize = 64;

#[derive(Deserialize)]
pub(super) struct Form {
    seed: u64,
    targets: Vec<TargetForm>,
}

#[derive(Deserialize)]
struct TargetForm {
    target: String,
    mount_options: String,
    #[serde(flatten)]
    totals: Totals,
    outcomes: BTreeMap<String, u64>,
    seconds: f64,
    interrupted: bool,
    failures: Vec<FailureForm>,
}

#[derive(Deserialize)]
struct FailureForm {
    workload: String,
    steps: String,
    state: String,
    recovery: Option<String>,
    begun: u32,
    done: u32,
    findings: Vec<String>,
    reduced: String,
    writes: Vec<WriteForm>,
    replay: String,
}

#[derive(Deserialize)]
struct WriteForm {
    number: u32,
    offset: u64,
    bytes: u64,
}

pub(super) fn read(form: Form) -> Result<Vec<Outcome>, ResultError> {
    let seed = form.seed;
    if form.targets.len() > TARGETS_MAX {
        return Err(invalid(format!("it has {} targets", form.targets.len())));
    }
    let targets = form.targets.into_iter();
    targets.map(|target| outcome(target, seed)).collect()
}

fn outcome(form: TargetForm, seed: u64) -> Result<Outcome, ResultError> {
    let totals = form.totals;
    count("a number of states", totals.states)?;
    for (what, part) in [
        ("bad_states", totals.bad_states),
        ("unmountable", totals.unmountable),
        ("recovery_states", totals.recovery_states),
    ] {
        if part > totals.states {
            return Err(invalid(format!(
                "{what} is {part}, of {} states",
                totals.states
            )));
        }
    }
    for part in [
        totals.intact,
        totals.lost_acks,
        totals.exposed,
        totals.pruned,
        totals.sampled,
        totals.distinct,
        totals.written_bytes,
    ] {
        count("a count", part)?;
    }
    let mut outcomes = BTreeMap::new();
    for (name, times) in form.outcomes {
        let mut all = crate::outcome::Outcome::WRONG.into_iter();
        let outcome = all.find(|known| known.name() == name);
        let outcome = outcome.ok_or_else(|| invalid(format!("there is no outcome {name:?}")))?;
        outcomes.insert(outcome, count("a count", times)?);
    }
    if form.failures.len() > VERIFY_FAILURES_MAX {
        return Err(invalid(format!("it has {} failures", form.failures.len())));
    }
    let failures = form.failures.into_iter().map(failure);
    Ok(Outcome {
        target: form.target,
        mount_options: form.mount_options,
        seed,
        totals,
        outcomes,
        failures: failures.collect::<Result<_, _>>()?,
        time: time(form.seconds)?,
        was_interrupted: form.interrupted,
        agreement: None,
    })
}

fn failure(form: FailureForm) -> Result<Failure, ResultError> {
    let state = |text: &str| {
        let parsed = text.parse::<State>();
        parsed.map_err(|why| invalid(format!("{text:?}: {why}")))
    };
    let writes = form.writes.iter().map(|write| Place {
        number: write.number,
        offset: write.offset,
        len: write.bytes,
    });
    Ok(Failure {
        state: state(&form.state)?,
        recovery: form.recovery.as_deref().map(state).transpose()?,
        said: Said {
            begun: form.begun,
            done: form.done,
        },
        reduced: state(&form.reduced)?,
        writes: writes.collect(),
        workload: form.workload,
        steps: form.steps,
        findings: form.findings,
        replay: form.replay,
    })
}
