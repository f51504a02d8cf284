//! Many seeds, and the one that failed.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a test over seeds. A failure names its seed and the line that runs it again.
///
/// ```
/// sim::Seeds::new("cargo test -p wire --test simulated_session cuts", 0..100)
///     .replay(std::env::var("SIM_SEED").ok().as_deref())
///     .run(|seed| assert!(seed < 100));
/// ```
#[derive(Clone, Debug)]
pub struct Seeds {
    command: &'static str,
    seeds: Range<u64>,
}

impl Seeds {
    /// `command` is what runs the test; it is shown behind `SIM_SEED=...`.
    #[must_use]
    pub fn new(command: &'static str, seeds: Range<u64>) -> Self {
        assert!(!seeds.is_empty(), "a test over no seeds tests nothing");
        Self { command, seeds }
    }

    /// Only the seed that `text` names (`17`), or those of a range (`0..100000`). The environment
    /// is the caller's to read; `None` changes nothing.
    ///
    /// # Panics
    /// If the text is neither: a mistyped replay must not pass for a success.
    #[must_use]
    pub fn replay(self, text: Option<&str>) -> Self {
        let Some(text) = text else {
            return self;
        };
        let number = |text: &str| {
            text.trim()
                .parse::<u64>()
                .unwrap_or_else(|_| panic!("SIM_SEED={text}: write 17 or 0..100"))
        };
        let seeds = match text.split_once("..") {
            Some((start, end)) => number(start)..number(end),
            None => number(text)..number(text) + 1,
        };
        Self::new(self.command, seeds)
    }

    /// Runs the test for each seed.
    ///
    /// # Panics
    /// At the first seed for which `test` panics.
    pub fn run(&self, mut test: impl FnMut(u64)) {
        for seed in self.seeds.clone() {
            // Whatever the panic left half done is not used again: the test ends here.
            let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) else {
                continue;
            };
            let why = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without text");
            panic!(
                "seed {seed} failed: {why}\nreplay: SIM_SEED={seed} {}",
                self.command
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(seeds: &Seeds) -> String {
        let outcome = catch_unwind(|| seeds.run(|seed| assert!(seed < 17, "too much")));
        let panic = outcome.expect_err("seed 17 is among them");
        panic.downcast_ref::<String>().expect("a text").clone()
    }

    #[test]
    fn a_failure_names_its_seed_and_how_to_run_it_again() {
        let all = Seeds::new("cargo test -p x y", 0..100);
        let text = "seed 17 failed: too much\nreplay: SIM_SEED=17 cargo test -p x y";
        assert_eq!(failure(&all), text);
        assert_eq!(failure(&all.clone().replay(Some("17"))), text);
        assert_eq!(failure(&all.replay(Some(" 5..18 "))), text);
    }

    #[test]
    #[should_panic(expected = "write 17 or 0..100")]
    fn a_mistyped_replay_is_no_success() {
        let _ = Seeds::new("", 0..1).replay(Some("seventeen"));
    }
}
