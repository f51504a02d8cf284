//! What is done to a file system before power is lost.
//!
//! A workload is a short list of steps on a handful of files. It begins on a file system that was
//! made, filled ([`Workload::setup`]) and unmounted, so what was there before is certain. Some are
//! what programs do ([`mod@named`]: replace a file by renaming, append to a log, change pages of a
//! database); the others are sequences of one or two operations with something that makes them
//! durable behind ([`mod@sequence`]), which is where most of the known faults of file systems lie.
//! Workloads of a store (`object` and `objects`) have objects for files and commits for syncs.

mod database;
mod named;
mod objects;
mod sequence;
mod step;
#[cfg(test)]
mod tests;

pub(crate) use database::line;
pub use database::{PROGRAM as DATABASE_PROGRAM, rows};
pub use named::{NAMES, named};
pub use sequence::{one_count, sequence};
pub use step::{Step, StepError, content};

use base::limits::VERIFY_STEPS_MAX;
use std::fmt;

/// How many sequences of one operation there are for a store.
#[must_use]
pub fn object_count() -> u64 {
    objects::object_count()
}

/// Steps on a small tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// By which it is made again: `write-rename`, `one:17`, `two:5`.
    pub name: String,
    /// What is there before and certain.
    pub setup: Vec<Step>,
    /// What is done then.
    pub steps: Vec<Step>,
}

impl Workload {
    /// The workload of a name, as [`Self::name`] has it.
    ///
    /// # Errors
    /// What names there are.
    pub fn by_name(name: &str, seed: u64) -> Result<Self, String> {
        let wrong = || {
            let names = NAMES.join(", ");
            let more = "one:NUMBER, two:NUMBER, object:NUMBER and objects:NUMBER";
            format!("no workload {name:?}; there are {names}, {more}")
        };
        if let Some(workload) = named(name) {
            return Ok(workload);
        }
        let (length, number) = name.split_once(':').ok_or_else(wrong)?;
        let number = number.parse().map_err(|_| wrong())?;
        match length {
            "one" => sequence(1, number, seed).ok_or_else(wrong),
            "two" => sequence(2, number, seed).ok_or_else(wrong),
            "object" => objects::object(number).ok_or_else(wrong),
            "objects" => Ok(objects::objects(number, seed)),
            _ => Err(wrong()),
        }
    }

    /// The databases that it has; their files are not looked at as files.
    #[must_use]
    pub fn databases(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for step in &self.steps {
            if let Step::Insert { path, .. } = step
                && !paths.contains(path)
            {
                paths.push(path.clone());
            }
        }
        paths
    }

    /// What is there before every workload: two directories and two files.
    fn on_small_tree(name: impl Into<String>, steps: Vec<Step>) -> Self {
        assert!(steps.len() <= VERIFY_STEPS_MAX, "a workload is short");
        let create = |path: &str| Step::Create { path: path.into() };
        let fill = |path: &str, len, tag| Step::Write {
            path: path.into(),
            offset: 0,
            len,
            tag,
        };
        let setup = vec![
            Step::Mkdir { path: "A".into() },
            Step::Mkdir { path: "B".into() },
            create("A/foo"),
            fill("A/foo", 8192, 1),
            create("A/bar"),
            fill("A/bar", 5000, 2),
            Step::Sync,
        ];
        Self {
            name: name.into(),
            setup,
            steps,
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            write!(f, "{separator}{step}")?;
        }
        Ok(())
    }
}
