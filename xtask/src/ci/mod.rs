//! Everything that judges a change, in one command.
//!
//! The first failure ends the run. Each step has a time limit and the whole has a budget of twenty
//! minutes on two cores; longer suites belong to [`crate::deep`]. A usual machine has time for all
//! of it. On one that takes twice as long, tests that take minutes by themselves ([`lanes::long`])
//! and steps that only look at the text are left out and said to be "skipped" ([`steps`]); what
//! else tries the programs never is.
//!
//! The tests' output goes to the terminal, because continuous integration counts cargo's own "test
//! result" lines: that of most as it comes, that of the lanes beside them ([`lanes`]) when these
//! are over. What the failing ones said is shown again as the last. Other steps keep quiet unless
//! they fail.

mod lanes;
mod steps;

use crate::args::Args;
use anyhow::{Result, bail};
use std::time::{Duration, Instant};
use steps::{STEPS, Step};

/// For all steps together.
const BUDGET: Duration = Duration::from_secs(20 * 60);
/// What steps that may be left out leave of it.
const RESERVE: Duration = Duration::from_secs(60);

/// Steps that take one processor each for some seconds; they run beside each other, before all
/// others.
const LIGHT: [&str; 3] = ["fmt", "tidy", "floors"];

/// How a step ended.
pub(crate) enum Verdict {
    Passed,
    /// With the one-line reason.
    Skipped(String),
    /// With the output.
    Failed(String),
}

struct Row {
    name: &'static str,
    result: String,
    elapsed: Duration,
}

/// `cargo xtask ci [STEP...]`
pub(crate) fn run(args: Args) -> Result<()> {
    let wanted = args.finish()?;
    if let Some(unknown) = wanted
        .iter()
        .find(|name| STEPS.iter().all(|step| step.name != **name))
    {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        bail!("no step {unknown:?}; there are: {}", names.join(" "));
    }
    let chosen = STEPS
        .iter()
        .filter(|step| wanted.is_empty() || wanted.iter().any(|name| name == step.name));
    let started = Instant::now();
    let mut rows = Vec::new();
    let mut failure = None;
    let (light, others): (Vec<_>, Vec<_>) = chosen.partition(|step| LIGHT.contains(&step.name));
    let left = || BUDGET.saturating_sub(started.elapsed());
    let first = std::thread::scope(|scope| {
        let begin = |step| scope.spawn(move || run_step(step, BUDGET));
        let running: Vec<_> = light.into_iter().map(begin).collect();
        let ended = running.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended.collect::<Vec<_>>()
    });
    for ended in first {
        let (row, failed) = ended.map_err(|_| anyhow::anyhow!("a step panicked"))?;
        rows.push(row);
        failure = failure.or(failed);
    }
    for step in others {
        if failure.is_some() {
            break;
        }
        let (row, failed) = run_step(step, left());
        rows.push(row);
        failure = failed;
    }
    print!("\n{}", table(&rows, started.elapsed()));
    failure.map_or(Ok(()), Err)
}

fn run_step(step: &Step, left: Duration) -> (Row, Option<anyhow::Error>) {
    println!("ci: {}", step.name);
    let started = Instant::now();
    let left = match step.needs_s {
        Some(_) => left.saturating_sub(RESERVE),
        None => left,
    };
    let verdict = if step.needs_s.is_some_and(|needed| left.as_secs() < needed) {
        Verdict::Skipped("no time is left for it".to_owned())
    } else if left.is_zero() {
        Verdict::Failed(format!("the budget of {} s is used up", BUDGET.as_secs()))
    } else {
        (step.work)(step.limit().min(left))
            .unwrap_or_else(|error| Verdict::Failed(format!("{error:#}")))
    };
    let (result, failed) = match verdict {
        Verdict::Passed => ("passed".to_owned(), None),
        Verdict::Skipped(why) => (format!("skipped: {why}"), None),
        Verdict::Failed(output) => {
            println!("{}", output.trim_end());
            (
                "FAILED".to_owned(),
                Some(anyhow::anyhow!("ci: {} failed", step.name)),
            )
        }
    };
    (
        Row {
            name: step.name,
            result,
            elapsed: started.elapsed(),
        },
        failed,
    )
}

fn table(rows: &[Row], elapsed: Duration) -> String {
    let mut text = format!("{:<10} {:>8}  result\n", "step", "seconds");
    for Row {
        name,
        result,
        elapsed,
    } in rows
    {
        text += &format!("{name:<10} {:>8.1}  {result}\n", elapsed.as_secs_f64());
    }
    text + &format!(
        "{:<10} {:>8.1}  of {} s\n",
        "together",
        elapsed.as_secs_f64(),
        BUDGET.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_named_once_and_limited() {
        for (at, step) in STEPS.iter().enumerate() {
            assert!(
                STEPS[..at].iter().all(|other| other.name != step.name),
                "{}",
                step.name
            );
            assert!(step.limit() < BUDGET, "{}", step.name);
        }
        assert!(run(Args::new(vec!["fnt".to_owned()])).is_err());
    }

    #[test]
    fn a_failing_and_a_skipped_step_are_told_apart() {
        let step = |work| Step {
            name: "x",
            limit_s: 1,
            needs_s: None,
            work,
        };
        let second = Duration::from_secs(1);
        let fails = step(|_| Ok(Verdict::Failed("broken".into())));
        let errs = step(|_| anyhow::bail!("broken"));
        let skips = step(|_| Ok(Verdict::Skipped("no disk".into())));
        assert!(run_step(&fails, second).1.is_some());
        assert!(run_step(&errs, second).1.is_some());
        let (row, failed) = run_step(&skips, second);
        assert!(failed.is_none());
        assert_eq!(row.result, "skipped: no disk");
    }

    #[test]
    fn no_step_begins_without_time_and_what_may_be_left_out_is() {
        let step = |needs_s, work| Step {
            name: "x",
            limit_s: 1,
            needs_s,
            work,
        };
        let passes = |_| Ok(Verdict::Passed);
        assert!(run_step(&step(None, passes), Duration::ZERO).1.is_some());
        for (needs_s, left) in [(1, Duration::ZERO), (400, Duration::from_secs(399))] {
            let (row, failed) = run_step(&step(Some(needs_s), passes), RESERVE + left);
            assert!(failed.is_none());
            assert_eq!(row.result, "skipped: no time is left for it");
        }
        // What fails in time has failed.
        let fails = |_| Ok(Verdict::Failed("broken".into()));
        assert!(run_step(&step(Some(400), fails), BUDGET).1.is_some());
    }

    #[test]
    fn what_tries_the_programs_is_never_left_out_but_for_long_tests() {
        let tries = ["fmt", "tidy", "floors", "build", "test", "doctest", "docs"];
        for step in &STEPS {
            let is_needed = tries.contains(&step.name);
            assert_eq!(step.needs_s.is_none(), is_needed, "{}", step.name);
        }
    }
}
