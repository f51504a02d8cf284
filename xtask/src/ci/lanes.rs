//! The tests of the workspace, in four lanes.
//!
//! Cargo runs one test program after the other, and the longest of them sleep most of their time:
//! they wait for leases to run out, for servers that keep silent, for a cluster to choose a leader.
//! Those that neither mount anything nor make namespaces run beside all others, the longest of them
//! by itself. The others stay one after the other: a mount namespace that one of them makes keeps
//! the mounts of another alive. Unit tests never mount anything, so they are a lane as well.
//!
//! Scenes with clusters of servers, tests that wait for the windows of reservations, and those that
//! repeat in small what `cargo xtask deep` does take more time than all others together. They are a
//! step of their own ([`long`]).
//!
//! All have a temporary directory that is theirs ([`playground`]).

use super::Verdict;
use super::steps::{late, verdict};
use crate::scratch::Scratch;
use crate::{process, workspace};
use anyhow::{Context, Result, anyhow};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Test programs that touch nothing but their own directories and loopback.
const BESIDE: [&str; 18] = [
    "acl",
    "conformance",
    "images",
    "it",
    "link",
    "links",
    "messages",
    "namespace",
    "nbd",
    "overshoot",
    "patterns",
    "regular",
    "scheduler",
    "seconds",
    "shell",
    "simulated_session",
    "throughput",
    "waste",
];
/// One of them that takes as long as all others: it waits for clients that say nothing.
const BESIDE_ALONE: &str = "hostile";

/// Modules of [`LONG_PROGRAM`] whose tests start clusters, wait for windows or the kernel, boot
/// machines, or repeat in small what `cargo xtask deep` does.
const LONG: [&str; 20] = [
    "appends::",
    "booked::",
    "demonstration::",
    "disks::boots::",
    "disks::story::",
    "disks::volumes::",
    "faults::",
    "holes::",
    "managers::",
    "missing::",
    "parallel::",
    "partition::",
    "powercut::",
    "report::",
    "reserve::",
    "servers::",
    "silence::",
    "speed::",
    "ticket::",
    "verify::",
];
const LONG_PROGRAM: &str = "e2e";
/// Programs that are long as a whole: a few rounds of what `cargo xtask deep` does for hours.
const LONG_ALONE: [&str; 2] = ["consistency", "kill9"];

/// How many tests of a program run at once beyond one for each processor. Unit tests compute.
const UNIT_TESTS_MORE: usize = 1;
/// The others wait most of the time.
const ONE_BY_ONE_MORE: usize = 2;
/// Those here are few and wait longest: for what is given back when nobody asks for it any more.
const BESIDE_MORE: usize = 4;
/// Unit tests compute, or wait in a time of their own. They have what is left by those that measure
/// real time.
const UNIT_TESTS_NICE: &str = "15";

/// Compiles all tests.
pub(super) fn build(limit: Duration) -> Result<Verdict> {
    let mut build = workspace::cargo(&["test", "--locked", "--workspace"]);
    build.args(["--no-run", "--lib", "--bins", "--tests"]);
    process::stream(&mut build, limit).map(verdict)
}

/// Runs all but the long ones; their output goes to the terminal, lane by lane.
pub(super) fn run(limit: Duration) -> Result<Verdict> {
    let names = programs(&workspace::root().join("crates"))?;
    let (beside, others): (Vec<_>, Vec<_>) = names
        .iter()
        .map(String::as_str)
        .filter(|name| !LONG_ALONE.contains(name) && *name != BESIDE_ALONE)
        .partition(|name| BESIDE.contains(name));
    let scratch = playground()?;
    let cargo = |what: &[&str], programs: &[&str], more| cargo(what, programs, more, &scratch);
    let mut one_by_one = cargo(&[], &others, ONE_BY_ONE_MORE);
    one_by_one.arg("--");
    for module in LONG {
        one_by_one.args(["--skip", module]);
    }
    let (shown, kept) = std::thread::scope(|scope| {
        let units = nice(&cargo(&["--lib", "--bins"], &[], UNIT_TESTS_MORE));
        let alone = cargo(&[], &[BESIDE_ALONE], ONE_BY_ONE_MORE);
        let lanes = [units, cargo(&[], &beside, BESIDE_MORE), alone];
        let lanes = lanes.map(|mut lane| scope.spawn(move || process::capture(&mut lane, limit)));
        let shown = process::tee(&mut one_by_one, limit);
        let kept = lanes.map(|lane| {
            let panicked = |_| Err(anyhow!("a lane of tests panicked"));
            lane.join().unwrap_or_else(panicked)
        });
        (shown, kept)
    });
    let mut outcomes = vec![shown?];
    for kept in kept {
        let kept = kept?;
        println!("{}", kept.output.trim_end());
        outcomes.push(kept);
    }
    Ok(judged(&outcomes))
}

/// Runs the long ones.
pub(super) fn long(limit: Duration) -> Result<Verdict> {
    let begun = Instant::now();
    let scratch = playground()?;
    let mut modules = cargo(&[], &[LONG_PROGRAM], ONE_BY_ONE_MORE, &scratch);
    modules.arg("--").args(LONG);
    let programs = cargo(&[], &LONG_ALONE, ONE_BY_ONE_MORE, &scratch);
    for mut command in [modules, programs] {
        let left = limit.saturating_sub(begun.elapsed());
        let outcome = process::tee(&mut command, left)?;
        let has_failed = outcome.output.contains("... FAILED");
        let late = late(&outcome, left).filter(|_| !has_failed);
        let verdict = late.unwrap_or_else(|| judged(&[outcome]));
        if !matches!(verdict, Verdict::Passed) {
            return Ok(verdict);
        }
    }
    Ok(Verdict::Passed)
}

/// What has been shown already is not shown again, but for what failing tests said.
fn judged(lanes: &[process::Outcome]) -> Verdict {
    let mut output = String::new();
    for lane in lanes.iter().filter(|lane| !lane.success) {
        output += &failures(&lane.output);
        for name in endless(&lane.output) {
            output += &format!("{name} did not end\n");
        }
        output += &format!("{}\n", lane.end);
    }
    match output.is_empty() {
        true => Verdict::Passed,
        false => Verdict::Failed(output),
    }
}

/// The reports of failing tests: between the two lines "failures:" of their program.
fn failures(output: &str) -> String {
    let mut found = String::new();
    for part in output.split("\nfailures:\n").skip(1).step_by(2) {
        found += part;
    }
    found
}

/// Tests that ran for long, and of which nothing more was heard.
fn endless(output: &str) -> Vec<&str> {
    let tests = output.lines().filter_map(|line| line.strip_prefix("test "));
    let tests = tests.filter_map(|line| line.split_once(' '));
    let (ended, others): (Vec<_>, Vec<_>) = tests.partition(|(_, said)| said.starts_with("... "));
    let ended: BTreeSet<&str> = ended.into_iter().map(|(name, _)| name).collect();
    let is_long = |said: &str| said.starts_with("has been running for over ");
    let long = others.into_iter().filter(|(_, said)| is_long(said));
    let endless = long.filter(|(name, _)| !ended.contains(name));
    endless.map(|(name, _)| name).collect()
}

/// A temporary directory for tests, for all users as the system's is. ext4 puts files into the part
/// of a file system where their directory lies, and looks for a place past all that were deleted
/// there in the last minute; thousands are, and of what some tests took that was two thirds. What
/// is made in the top of a hierarchy (`chattr +T`) lies in different parts.
fn playground() -> Result<Scratch> {
    let scratch = Scratch::new("ci")?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(scratch.path(), mode)?;
    // Other file systems know nothing of it, and need not.
    let mut chattr = Command::new("chattr");
    chattr.arg("+T").arg(scratch.path()).stderr(Stdio::null());
    drop(chattr.status());
    Ok(scratch)
}

/// `cargo test` for the whole workspace, so that every lane is compiled with the same features.
fn cargo(what: &[&str], programs: &[&str], tests_more: usize, scratch: &Scratch) -> Command {
    let mut command = workspace::cargo(&["test", "--locked", "--workspace"]);
    command.env("TMPDIR", scratch.path());
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let tests = (processors + tests_more).to_string();
    command.env("RUST_TEST_THREADS", tests).args(what);
    for program in programs {
        command.args(["--test", program]);
    }
    command
}

/// The same, in the background.
fn nice(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", UNIT_TESTS_NICE])
        .arg(command.get_program());
    nice.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        nice.current_dir(directory);
    }
    nice
}

/// The names of all test programs, each once: `tests/NAME.rs` and `tests/NAME/main.rs`.
fn programs(crates: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for member in entries(crates)? {
        let tests = member.join("tests");
        if !tests.is_dir() {
            continue;
        }
        for path in entries(&tests)? {
            let is_program = path.extension().is_some_and(|extension| extension == "rs")
                || path.join("main.rs").is_file();
            if let Some(name) = path.file_stem().filter(|_| is_program) {
                names.push(name.to_string_lossy().into_owned());
            }
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}

fn entries(directory: &Path) -> Result<Vec<std::path::PathBuf>> {
    let entries = std::fs::read_dir(directory);
    entries
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .with_context(|| format!("cannot list {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_failing_tests_are_found() {
        let program = |name: &str| {
            format!(
                "running 1 test\ntest {name} ... FAILED\n\nfailures:\n\n---- {name} stdout ----\n\
                 {name} is wrong\n\n\nfailures:\n    {name}\n\ntest result: FAILED.\n"
            )
        };
        let found = failures(&(program("a") + "more\n" + &program("b")));
        for told in ["a is wrong", "b is wrong"] {
            assert!(found.contains(told), "{found}");
        }
        assert!(!found.contains("running") && !found.contains("result"));
        assert_eq!(failures("error: could not compile\n"), "");
    }

    #[test]
    fn tests_that_did_not_end_are_named() {
        let long = |name: &str| format!("test {name} has been running for over 60 seconds\n");
        let output = long("a::b") + &long("c") + "test a::b ... ok\ntest d ... FAILED\n";
        assert_eq!(endless(&output), ["c"]);
        assert!(endless("test a ... ok\n").is_empty());
    }

    #[test]
    fn modules_of_long_tests_exist() {
        let program = workspace::root().join("crates/azekura/tests/e2e");
        for module in LONG {
            let path = module.trim_end_matches(':').replace("::", "/");
            let file = program.join(format!("{path}.rs"));
            assert!(file.is_file(), "{module}");
        }
    }

    #[test]
    fn every_test_program_is_in_a_lane() {
        let names = programs(&workspace::root().join("crates")).unwrap();
        let others = LONG_ALONE
            .iter()
            .chain(&[LONG_PROGRAM, BESIDE_ALONE, "served"]);
        for name in BESIDE.iter().chain(others) {
            assert!(names.iter().any(|n| n == name), "{name}");
        }
        assert!(!names.iter().any(|name| name == "common"));
    }
}
