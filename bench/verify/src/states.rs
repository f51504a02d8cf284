//! Crash states by the program itself: how many a second on one processor, and all of them.

use crate::Cli;
use crate::report::{Goal, Report};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::process::Command;
use std::time::Instant;

/// The first processor alone.
const ONE: [&str; 3] = ["taskset", "--cpu-list", "0"];
const RATE_MIN: f64 = 150.0;
/// More than there are.
const ALL: &str = "10000000";
const ALL_SECONDS_MAX: f64 = 900.0;

/// What a crash run found, which must be nothing.
fn crash(cli: &Cli, before: &[&str], arguments: &[&str]) -> Result<Value> {
    let words = [
        before,
        &[cli.azekura.to_str().context("the program's path")?],
    ]
    .concat();
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .args(["verify", "crash", "--json", "--no-recoveries"]);
    let output = command
        .args(arguments)
        .output()
        .context(words[0].to_owned())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).context("the result of a crash run")
}

/// On one processor, with everything that the run needs beside the kernel.
pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let points = cli.points.to_string();
    let mut rates = vec![Vec::new(); cli.targets.len()];
    for _ in 0..cli.repeat {
        for (target, rates) in cli.targets.iter().zip(&mut rates) {
            let of = ["--target", target, "--points", &points, "--workload", "one"];
            let found = crash(cli, &ONE, &of)?;
            let rate = found["targets"][0]["states_per_second"].as_f64();
            rates.push(rate.context("the run says no rate")?);
        }
    }
    for (target, rates) in cli.targets.iter().zip(&rates) {
        let goal = match target.as_str() {
            "ext4" => Goal::at_least(RATE_MIN, "at least 150 a second"),
            _ => Goal::none(),
        };
        let what = format!("crash states of {target} on one processor");
        report.beside(&what, "1/s", rates, &[], goal);
    }
    Ok(())
}

/// Once, all targets, as many beside each other as there are processors.
pub(crate) fn measure_all(cli: &Cli, report: &mut Report) -> Result<()> {
    let targets = cli.targets.join(",");
    let of = ["--target", &targets, "--points", ALL, "--workload", "one"];
    let started = Instant::now();
    let found = crash(cli, &[], &of)?;
    let seconds = started.elapsed().as_secs_f64();
    let states = found["states"].as_u64().context("the run says no states")?;
    for one in found["targets"].as_array().into_iter().flatten() {
        let name = one["target"].as_str().unwrap_or_default();
        let count = |key: &str| one[key].as_u64().unwrap_or_default();
        let (states, pruned) = (count("states"), count("pruned"));
        let (workloads, took) = (count("workloads"), one["seconds"].as_f64().unwrap_or(0.0));
        report.note(format!(
            "{name}: {states} states of {workloads} workloads in {took:.0} s, {pruned} left out as \
             equal"
        ));
    }
    let what = format!("all {states} states of sequences of one operation");
    let goal = Goal::at_most(ALL_SECONDS_MAX, "at most 15 minutes on two processors");
    report.beside(&what, "s", &[seconds], &[], goal);
    Ok(())
}
