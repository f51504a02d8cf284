//! Crash runs that take longer than a test may: all states of all sequences of one operation on
//! every file system, longer ones by chance, a hundred thousand states of our store; and faults
//! that are planted, every one of which must be found.
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
/// What a run says that has found something.
const FOUND: &str = "AZ1201";
const JOURNALLING: [&str; 4] = ["ext4", "xfs", "btrfs", "ext3"];
/// More than there are of the sequences of one operation.
const ALL: &str = "10000000";
/// Of longer workloads, on each file system.
const SOME: &str = "20000";
const STORE: &str = "100000";
/// Flushes that are lost one by one: every second one is the last before a promise, and so matters.
const LOST_FLUSHES: u64 = 6;

pub(crate) fn prepare() -> Result<Option<String>> {
    Ok(None)
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    let binary = workspace::build_azekura(true)?;
    let seed = subject.options.first_seed().to_string();
    let crash = |arguments: &[&str]| crash(&binary, &seed, arguments);
    for target in JOURNALLING {
        for more in [
            &["--workload", "one", "--points", ALL][..],
            &["--points", SOME],
        ] {
            let outcome = crash(&[&["--target", target], more].concat())?;
            outcome.check("a crash run")?;
        }
    }
    crash(&["--target", "store", "--points", STORE])?.check("a crash run of the store")?;
    // What it loses is told and is no failure.
    crash(&["--target", "ext2", "--points", SOME])?;
    planted(crash)
}

/// What must be found.
fn planted(crash: impl Fn(&[&str]) -> Result<process::Outcome>) -> Result<()> {
    let mut faults = Vec::new();
    for target in JOURNALLING.iter().chain(&["store"]) {
        faults.push((*target, vec!["--plant".to_owned(), "no-flush".to_owned()]));
    }
    for target in ["ext4", "ext3"] {
        let barrier = ["--mount-options", "nobarrier"].map(str::to_owned);
        faults.push((target, barrier.to_vec()));
    }
    for number in 0..LOST_FLUSHES {
        let plant = format!("lost-flush:{}", 2 * number + 4);
        let words = ["--workload", "append-log", "--plant", &plant];
        faults.push(("ext4", words.map(str::to_owned).to_vec()));
    }
    let mut missed = Vec::new();
    for (target, words) in &faults {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let base = ["--target", target, "--points", "400", "--no-recoveries"];
        let outcome = crash(&[&base[..], &words].concat())?;
        if !outcome.output.contains(FOUND) {
            missed.push(format!("{target} {}", words.join(" ")));
        }
    }
    let count = faults.len();
    println!(
        "verify: {} of {count} planted faults found",
        count - missed.len()
    );
    if !missed.is_empty() {
        bail!("not found: {}", missed.join("; "));
    }
    Ok(())
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
