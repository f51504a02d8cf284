//! Two recorders on the same workloads: ours, and QEMU's blklogwrites. Their logs must be equal
//! flush by flush, and what is found in the crash states of one must be found in those of the
//! other, where all is well and where no flush does anything.

use super::Subject;
use crate::process;
use crate::tools;
use crate::workspace;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(15 * 60);
const TARGETS: [&str; 5] = ["ext4", "ext3", "ext2", "xfs", "btrfs"];
/// These find faults when no flush does anything; ext2 promises nothing.
const PLANTED: [&str; 3] = ["ext4", "xfs", "btrfs"];
const POINTS: &str = "400";
/// What a run says that has found something.
const FOUND: &str = "AZ1201";

pub(crate) fn prepare() -> Result<Option<String>> {
    let found = tools::find("qemu-storage-daemon");
    Ok(found
        .is_none()
        .then(|| "qemu-storage-daemon is not installed".to_owned()))
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    let binary = workspace::build_azekura(true)?;
    let seed = subject.options.first_seed().to_string();
    for target in TARGETS {
        let outcome = record(&binary, &seed, &["--target", target])?;
        agree(&outcome.check("a crash run with two recorders")?)?;
    }
    for target in PLANTED {
        let outcome = record(&binary, &seed, &["--target", target, "--plant", "no-flush"])?;
        agree(&outcome.output)?;
        if !outcome.output.contains(FOUND) {
            bail!("{target} without flushes: nothing is found");
        }
    }
    Ok(())
}

fn record(binary: &Path, seed: &str, arguments: &[&str]) -> Result<process::Outcome> {
    let mut command = Command::new(binary);
    command.args(["verify", "crash", "--second-recorder", "--no-recoveries"]);
    command
        .args(["--points", POINTS, "--seed", seed])
        .args(arguments);
    let outcome = process::capture(&mut command, LIMIT)?;
    println!(
        "recorders: {}\n{}",
        arguments.join(" "),
        outcome.output.trim_end()
    );
    Ok(outcome)
}

/// The run's own words: "of 3 logs of two recorders 3 are equal, and 3 were judged alike".
fn agree(output: &str) -> Result<()> {
    let mut lines = output.lines();
    let line = lines.find(|line| line.contains("logs of two recorders"));
    let line = line.context("the run does not say whether the recorders agree")?;
    let numbers: Vec<u64> = line
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    match numbers[..] {
        [logs, equal, alike] if logs > 0 && logs == equal && logs == alike => Ok(()),
        _ => bail!("the recorders do not agree: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runs_own_words_are_understood() {
        let said = |words: &str| agree(&format!("x\next4: {words}\ny"));
        assert!(said("of 3 logs of two recorders 3 are equal, and 3 were judged alike").is_ok());
        assert!(said("of 3 logs of two recorders 2 are equal, and 3 were judged alike").is_err());
        assert!(said("of 3 logs of two recorders 3 are equal, and 2 were judged alike").is_err());
        assert!(said("of 0 logs of two recorders 0 are equal, and 0 were judged alike").is_err());
        assert!(agree("nothing").is_err());
    }
}
