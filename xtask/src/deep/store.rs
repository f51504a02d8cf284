//! A million crash states of a store, in runs of a few hundred seeds each.

use super::Subject;
use crate::process;
use crate::workspace;
use anyhow::{Context, Result, bail};
use std::time::Duration;

/// Crash states that have to be judged, with none that lost anything.
const STATES_MIN: u64 = 1_000_000;
/// Seeds of one run: half a minute on a quiet core.
const SEEDS_PER_RUN: u64 = 200;
/// Runs after which the states are too few because a seed makes fewer than it should.
const RUNS_MAX: u64 = 40;
const RUN_LIMIT: Duration = Duration::from_secs(15 * 60);
const TEST: &str = "tests::crash::no_crash_loses_what_was_acknowledged";

pub(crate) fn prepare() -> Result<Option<String>> {
    Ok(None)
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    let mut states = 0;
    for run in 0..RUNS_MAX {
        let first = subject.options.seed + run * SEEDS_PER_RUN;
        let end = first + SEEDS_PER_RUN;
        let arguments = ["test", "--locked", "--package", "store", "--lib", TEST];
        let mut command = workspace::cargo(&arguments);
        command.args(["--", "--nocapture"]);
        command.env("AZEKURA_STORE_SEEDS", format!("{first}..{end}"));
        let output = process::check(&mut command, RUN_LIMIT)?;
        states += count(&output).context("the test does not say how many states it judged")?;
        println!("store: seeds {first} to {end}, {states} crash states");
        if states >= STATES_MIN {
            return Ok(());
        }
    }
    bail!("only {states} crash states in {RUNS_MAX} runs");
}

/// The test's own words: "12345 crash states".
fn count(output: &str) -> Option<u64> {
    let said = output
        .lines()
        .find_map(|line| line.strip_suffix(" crash states"))?;
    said.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_own_words_are_counted() {
        assert_eq!(
            count("running 1 test\n123 crash states\ntest x ... ok"),
            Some(123)
        );
        assert_eq!(count("test x ... 77 crash states\nok"), Some(77));
        assert_eq!(count("running 0 tests"), None);
    }
}
