//! Which workloads come in which order.

use super::target::is_installed;
use super::{CrashError, Options, Target};
use crate::workload::{DATABASE_PROGRAM, NAMES, one_count};
use base::limits::VERIFY_WORKLOADS_MAX;
use sim::Random;

/// Those with names, then sequences of one and of two operations by turns; for the store, its own.
pub(super) struct Names {
    left: Vec<String>,
    /// Sequences of one operation that are to come, the next last.
    ones: Vec<u64>,
    /// Of the workloads that are drawn: what they are called, the next, and where they end.
    drawn: &'static str,
    next: u64,
    end: u64,
    is_drawn_next: bool,
}

impl Names {
    /// # Errors
    /// [`CrashError::Workload`] if none of what was asked for is something for this target.
    pub(super) fn new(target: Target, options: &Options) -> Result<Self, CrashError> {
        let mut names = Self {
            left: Vec::new(),
            ones: (0..one_count()).rev().collect(),
            drawn: "two",
            next: 0,
            end: 0,
            is_drawn_next: false,
        };
        match options.workload.as_deref() {
            Some("one") if target == Target::Store => {
                let why = "a store has objects and no directories, so it cannot go through `one`; \
                           its workloads are objects:NUMBER";
                return Err(CrashError::Workload(why.to_owned()));
            }
            Some("one") => {}
            Some(name) => {
                names.ones.clear();
                names.left.push(name.to_owned());
            }
            None if target == Target::Store => {
                names.ones.clear();
                (names.drawn, names.end) = ("objects", VERIFY_WORKLOADS_MAX);
            }
            None => {
                // Which ones come first is left to the seed.
                let mut random = Random::new(options.seed);
                for last in (1..names.ones.len()).rev() {
                    let other = random.below(last as u64 + 1) as usize;
                    names.ones.swap(last, other);
                }
                let named = NAMES.iter().rev().map(|name| (*name).to_owned());
                let has_database = is_installed(DATABASE_PROGRAM.0);
                names.left = named
                    .filter(|name| has_database || name != "sqlite")
                    .collect();
                names.end = VERIFY_WORKLOADS_MAX;
            }
        }
        Ok(names)
    }
}

impl Iterator for Names {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        if let Some(name) = self.left.pop() {
            return Some(name);
        }
        let is_left = self.next < self.end;
        self.is_drawn_next = is_left && (!self.is_drawn_next || self.ones.is_empty());
        if self.is_drawn_next {
            self.next += 1;
            return Some(format!("{}:{}", self.drawn, self.next - 1));
        }
        self.ones.pop().map(|number| format!("one:{number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn options(workload: Option<&str>) -> Options {
        Options {
            points: 10,
            seed: 7,
            sector_bytes: 4096,
            mount_options: String::new(),
            workload: workload.map(str::to_owned),
            recoveries: false,
            plant: None,
            keep: None,
        }
    }

    #[test]
    fn all_kinds_of_workloads_come_each_once() {
        let all = |target, workload| Names::new(target, &options(workload)).unwrap();
        let names: Vec<String> = all(Target::Ext4, None).take(600).collect();
        assert_eq!(names[..3], NAMES[..3]);
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), 600);
        let ones = names.iter().filter(|name| name.starts_with("one:")).count();
        assert_eq!(ones as u64, one_count().min(290));
        let alone: Vec<String> = all(Target::Ext4, Some("pages")).collect();
        assert_eq!(alone, ["pages"]);
        let ones = all(Target::Ext4, Some("one")).count();
        assert_eq!(ones as u64, one_count());
        let store: Vec<String> = all(Target::Store, None).take(2).collect();
        assert_eq!(store, ["objects:0", "objects:1"]);
        let refused = Names::new(Target::Store, &options(Some("one")));
        assert!(refused.is_err_and(|error| error.to_string().contains("objects:NUMBER")));
    }
}
