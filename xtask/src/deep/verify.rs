//! Crash runs that take longer than a test may: all states of all sequences of one operation on
//! every file system, longer ones by chance, a hundred thousand states of our store. Nothing may be
//! found in any of them: it would be a false alarm, or something to report.
//!
//! ext2 is run, too, and must be repaired to something that can be mounted; it has no journal, so
//! nothing else is asked of it.

use super::Subject;
use crate::process;
use crate::workspace;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// One crash run.
const LIMIT: Duration = Duration::from_secs(60 * 60);
/// Judged beside each other, as many as there are processors: those with the most states first.
const JOURNALLING: &str = "xfs,btrfs,ext4,ext3";
/// More than there are of the sequences of one operation.
const ALL: &str = "10000000";
/// Of longer workloads, on each file system.
const SOME: &str = "20000";
const STORE: &str = "100000";
/// Of all file systems together, none of them a false alarm.
const CLEAN_MIN: u64 = 100_000;

pub(crate) fn prepare() -> Result<Option<String>> {
    Ok(None)
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    let binary = workspace::build_azekura(true)?;
    let seed = subject.options.first_seed().to_string();
    let crash = |arguments: &[&str]| crash(&binary, &seed, arguments);
    let (mut clean, mut seconds) = (0, 0.0);
    let one = &["--workload", "one"][..];
    let runs = [
        (JOURNALLING, ALL, one),
        ("store", ALL, one),
        (JOURNALLING, SOME, &[]),
        ("store", STORE, &[]),
    ];
    for (targets, points, more) in runs {
        let outcome = crash(&[&["--target", targets, "--points", points], more].concat())?;
        seconds += outcome.elapsed.as_secs_f64();
        clean += states(&outcome.check("a crash run")?, targets);
    }
    let rate = clean as f64 / seconds;
    println!("verify: {clean} states without a fault, 0 false alarms, {rate:.0} states/s");
    if clean < CLEAN_MIN {
        bail!("only {clean} states without a fault");
    }
    // What it loses is told and is no failure; it must be mounted, though.
    crash(&["--target", "ext2", "--points", SOME])?.check("a crash run of ext2")?;
    Ok(())
}

/// How many states a run has tried of these targets, as the rows of its table say.
fn states(output: &str, targets: &str) -> u64 {
    let rows = output.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let is_one = targets.split(',').any(|target| target == name);
        is_one.then(|| words.next()?.parse::<u64>().ok())?
    });
    rows.sum()
}

fn crash(binary: &Path, seed: &str, arguments: &[&str]) -> Result<process::Outcome> {
    let mut command = Command::new(binary);
    command.args(["verify", "crash"]).args(arguments);
    command.args(["--seed", seed]);
    let outcome = process::capture(&mut command, LIMIT)?;
    let (line, seconds) = (arguments.join(" "), outcome.elapsed.as_secs());
    println!("verify: {line}, {seconds} s\n{}", outcome.output.trim_end());
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_run_are_counted() {
        let output = "TARGET  STATES  LOST\next4       199     0\nxfs         20     0\next4 x";
        assert_eq!(states(output, "ext4"), 199);
        assert_eq!(states(output, "xfs,btrfs,ext4"), 219);
        assert_eq!(states(output, "btrfs"), 0);
    }
}
