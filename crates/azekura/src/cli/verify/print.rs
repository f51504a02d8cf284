//! What a crash run has found, for people and for programs.

use super::head;
use crate::output;
use ::verify::crash::{Failure, Outcome, Totals};
use ::verify::results::Kind;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Different failures of a target that are told on a terminal; all are in JSON and in the report.
const SHOWN_MAX: usize = 5;

/// What a run was done with, for its report.
pub(super) fn conditions(outcomes: &[Outcome]) -> Vec<(&'static str, String)> {
    let seed = outcomes.first().map_or(0, |outcome| outcome.seed);
    let now = jiff::Timestamp::now();
    vec![
        ("date", now.strftime("%Y-%m-%d %H:%M UTC").to_string()),
        ("kernel", kernel()),
        ("load", load()),
        ("seed", seed.to_string()),
        ("azekura", env!("CARGO_PKG_VERSION").to_owned()),
    ]
}

pub(super) fn kernel() -> String {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    format!("{} {}", text(uname.sysname()), text(uname.release()))
}

/// How busy the machine is: a rate says nothing without it.
pub(super) fn load() -> String {
    let averages = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let minutes: Vec<&str> = averages.split(' ').take(3).collect();
    minutes.join(" ")
}

pub(super) fn json(outcomes: &[Outcome], seed: u64) -> Value {
    let mut sum = Totals::default();
    outcomes.iter().for_each(|outcome| sum.add(&outcome.totals));
    let mut all = totals(&sum);
    let more = [
        ("seed", json!(seed)),
        ("load", json!(load())),
        ("targets", outcomes.iter().map(target).collect()),
    ];
    for (key, value) in more {
        all[key] = value;
    }
    head::add(&mut all, Kind::Crash);
    all
}

fn totals(totals: &Totals) -> Value {
    json!({
        "states": totals.states,
        "intact": totals.intact,
        "lost_acks": totals.lost_acks,
        "unmountable": totals.unmountable,
        "exposed": totals.exposed,
        "bad_states": totals.bad_states,
        "pruned": totals.pruned,
        "sampled": totals.sampled,
        "distinct_states": totals.distinct,
        "recovery_states": totals.recovery_states,
        "workloads": totals.workloads,
        "steps": totals.steps,
        "writes": totals.writes,
        "written_bytes": totals.written_bytes,
        "flushes": totals.flushes,
    })
}

fn target(outcome: &Outcome) -> Value {
    let mut target = totals(&outcome.totals);
    let counts = ::verify::Outcome::WRONG.map(|kind| {
        let count = outcome.outcomes.get(&kind).copied().unwrap_or(0);
        (kind.name().to_owned(), json!(count))
    });
    let seconds = outcome.time.as_secs_f64();
    let more = [
        ("target", json!(outcome.target)),
        ("mount_options", json!(outcome.mount_options)),
        ("outcomes", Value::Object(counts.into_iter().collect())),
        ("seconds", json!(seconds)),
        ("states_per_second", json!(rate(outcome))),
        ("interrupted", json!(outcome.was_interrupted)),
        ("failures", outcome.failures.iter().map(failure).collect()),
    ];
    for (key, value) in more {
        target[key] = value;
    }
    if let Some(both) = &outcome.agreement {
        target["recorders"] = json!({
            "logs": both.logs,
            "equal_logs": both.equal_logs,
            "states": both.states,
            "bad_states": both.bad_states,
            "equal_verdicts": both.equal_verdicts,
        });
    }
    target
}

fn rate(outcome: &Outcome) -> f64 {
    outcome.totals.states as f64 / outcome.time.as_secs_f64().max(1e-9)
}

fn failure(failure: &Failure) -> Value {
    let writes: Vec<Value> = failure
        .writes
        .iter()
        .map(|write| json!({"number": write.number, "offset": write.offset, "bytes": write.len}))
        .collect();
    json!({
        "workload": failure.workload,
        "steps": failure.steps,
        "state": failure.state.to_string(),
        "recovery": failure.recovery.as_ref().map(ToString::to_string),
        "begun": failure.said.begun,
        "done": failure.said.done,
        "findings": failure.findings,
        "reduced": failure.reduced.to_string(),
        "writes": writes,
        "replay": failure.replay,
    })
}

/// What a failure was reduced to: several states fail for the same reason.
fn about(failure: &Failure) -> (&str, String) {
    (&failure.workload, failure.reduced.to_string())
}

pub(super) fn text(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        let mut told = BTreeSet::new();
        let mut different = outcome.failures.iter();
        while let Some(failure) = different.find(|failure| told.insert(about(failure))) {
            if told.len() > SHOWN_MAX {
                break;
            }
            // What a tool has said may hold anything.
            let findings = output::plain(&failure.findings.join("; "));
            let _ = writeln!(
                text,
                "{}: {}: {findings}\n  steps: {}\n  again: {}",
                outcome.target, failure.workload, failure.steps, failure.replay
            );
        }
        if let Some(both) = &outcome.agreement {
            let _ = writeln!(
                text,
                "{}: of {} logs of two recorders {} are equal, and {} were judged alike",
                outcome.target, both.logs, both.equal_logs, both.equal_verdicts
            );
        }
        let bad = outcome.totals.bad_states;
        if bad > 0 {
            let _ = writeln!(text, "{}: {bad} states in all", outcome.target);
        }
        if bad > outcome.broken_promises() {
            let target = &outcome.target;
            let _ = writeln!(
                text,
                "{target}: it has no journal and promises none of this; it is no failure"
            );
        }
    }
    let rows: Vec<[String; 8]> = outcomes
        .iter()
        .map(|outcome| {
            let totals = &outcome.totals;
            [
                outcome.target.clone(),
                totals.states.to_string(),
                totals.lost_acks.to_string(),
                totals.exposed.to_string(),
                totals.unmountable.to_string(),
                totals.pruned.to_string(),
                totals.sampled.to_string(),
                format!("{:.0}/s", rate(outcome)),
            ]
        })
        .collect();
    let head = [
        "TARGET",
        "STATES",
        "LOST",
        "EXPOSED",
        "UNMOUNTABLE",
        "PRUNED",
        "SAMPLED",
        "RATE",
    ];
    text.push_str(&output::table(head, &rows));
    text
}
