//! Which workloads come in which order.

use super::{Options, Target};
use crate::programs::is_installed;
use crate::workload::{DATABASE_PROGRAM, NAMES, object_count, one_count};
use base::limits::VERIFY_WORKLOADS_MAX;
use sim::Random;

/// Those with names, then sequences of one and of two operations by turns; for the store, its own.
pub(super) struct Names {
    left: Vec<String>,
    /// Sequences of one operation that are to come, the next last, and what they are called.
    ones: Vec<u64>,
    of_one: &'static str,
    /// Of the workloads that are drawn: what they are called, the next, and where they end.
    drawn: &'static str,
    next: u64,
    end: u64,
    is_drawn_next: bool,
}

impl Names {
    pub(super) fn new(target: Target, options: &Options) -> Self {
        let (of_one, count) = match target {
            Target::Store => ("object", object_count()),
            _ => ("one", one_count()),
        };
        let mut names = Self {
            left: Vec::new(),
            ones: (0..count).rev().collect(),
            of_one,
            drawn: "two",
            next: 0,
            end: 0,
            is_drawn_next: false,
        };
        match options.workload.as_deref() {
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
        names
    }

    /// How many sequences of one operation are to come.
    pub(super) fn ones_left(&self) -> u64 {
        self.ones.len() as u64
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
        let number = self.ones.pop()?;
        Some(format!("{}:{number}", self.of_one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
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
        let all = |target, workload| Names::new(target, &options(workload));
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
        let mut left = all(Target::Store, Some("one"));
        assert_eq!(left.ones_left(), object_count());
        left.next().unwrap();
        assert_eq!(left.ones_left(), object_count() - 1);
        let ones: HashSet<String> = all(Target::Store, Some("one")).collect();
        assert_eq!(ones.len() as u64, object_count());
        for name in ones {
            assert!(name.starts_with("object:"), "{name}");
            let workload = Workload::by_name(&name, 7).unwrap();
            assert!(workload.steps.iter().all(|step| Target::Store.can(step)));
        }
        assert!(Workload::by_name(&format!("object:{}", object_count()), 7).is_err());
    }
}
