//! A million crash states of a store, in runs of a few hundred seeds each, and stores of all sizes
//! that are filled to the last byte.

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
/// Workloads that run on stores of all sizes: a second each.
const FULL_SEEDS: u64 = 200;
const FULL_TEST: &str = "tests::full::a_store_is_filled_to_its_last_byte_at_every_step";

pub(crate) fn prepare() -> Result<Option<String>> {
    Ok(None)
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    let seed = subject.options.first_seed();
    let refused = count(&test(FULL_TEST, seed, FULL_SEEDS)?, " times no space");
    let refused = refused.context("the test does not say how often there was no space")?;
    println!("store: {FULL_SEEDS} workloads on full stores, {refused} times no space");
    let mut states = 0;
    for run in 0..RUNS_MAX {
        let first = seed + run * SEEDS_PER_RUN;
        let output = test(TEST, first, SEEDS_PER_RUN)?;
        let more = count(&output, " crash states");
        states += more.context("the test does not say how many states it judged")?;
        let end = first + SEEDS_PER_RUN;
        println!("store: seeds {first} to {end}, {states} crash states");
        if states >= STATES_MIN {
            return Ok(());
        }
    }
    bail!("only {states} crash states in {RUNS_MAX} runs");
}

/// Runs one test on so many seeds; what it says.
fn test(name: &str, first: u64, seeds: u64) -> Result<String> {
    let arguments = ["test", "--locked", "--package", "store", "--lib", name];
    let mut command = workspace::cargo(&arguments);
    command.args(["--", "--nocapture"]);
    command.env("AZEKURA_STORE_SEEDS", format!("{first}..{}", first + seeds));
    process::check(&mut command, RUN_LIMIT)
}

/// The test's own words: "12345 crash states".
fn count(output: &str, of_what: &str) -> Option<u64> {
    let said = output.lines().find_map(|line| line.strip_suffix(of_what))?;
    said.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tests_own_words_are_counted() {
        let states = |output| count(output, " crash states");
        let said = "running 1 test\n123 crash states\ntest x ... ok";
        assert_eq!(states(said), Some(123));
        assert_eq!(states("test x ... 77 crash states\nok"), Some(77));
        assert_eq!(states("running 0 tests"), None);
        assert_eq!(count("5 times no space", " times no space"), Some(5));
    }
}
