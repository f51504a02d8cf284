//! Sequences of one or two operations, each gone through or drawn.
//!
//! The operations are those of CrashMonkey (Mohan et al., OSDI 2018, section 5.2), on two files
//! that are there, two names that are free, and two directories. Behind each operation comes
//! nothing, or something that makes durable what it touched; behind the last one always something.
//! Sequences of one operation are numbered and can be gone through; of those of two, number and
//! seed draw one.

use super::{Step, Workload};
use crate::oracle::Tree;
use sim::Random;

/// How often a draw is repeated that makes no sense, such as a file that is removed twice.
const DRAWS_MAX: u32 = 1000;

/// How many sequences of one operation there are.
#[must_use]
pub fn one_count() -> u64 {
    all_of_one().len() as u64
}

/// Sequence `number` of one or two operations; `None` if there is none.
#[must_use]
pub fn sequence(length: u32, number: u64, seed: u64) -> Option<Workload> {
    match length {
        1 => {
            let steps = all_of_one()
                .into_iter()
                .nth(usize::try_from(number).ok()?)?;
            Some(Workload::on_small_tree(format!("one:{number}"), steps))
        }
        2 => {
            let mut random = Random::new(seed ^ number.rotate_left(24));
            let steps = draw_two(&mut random)?;
            Some(Workload::on_small_tree(format!("two:{number}"), steps))
        }
        _ => None,
    }
}

/// The operations, and the files and directories that each touches.
fn operations(tag: u64) -> Vec<(Step, Vec<&'static str>)> {
    let mut all = Vec::new();
    for (path, tag) in [("A/foo", tag), ("A/bar", tag + 500_000)] {
        for (offset, len) in [(0, 4096), (1000, 6000), (30_000, 3000)] {
            let (path_of, tag) = (path.to_owned(), tag + offset);
            let write = Step::Write {
                path: path_of,
                offset,
                len,
                tag,
            };
            all.push((write, vec![path]));
        }
        let append = Step::Append {
            path: path.into(),
            len: 5000,
            tag: tag + 1,
        };
        all.push((append, vec![path]));
        for (offset, len) in [(2000, 2000), (8192, 8192)] {
            let allocate = Step::Allocate {
                path: path.into(),
                offset,
                len,
            };
            all.push((allocate, vec![path]));
        }
        for len in [0, 3000, 20_000] {
            let truncate = Step::Truncate {
                path: path.into(),
                len,
            };
            all.push((truncate, vec![path]));
        }
        for to in ["B/foo", "baz"] {
            let link = Step::Link {
                from: path.into(),
                to: to.into(),
            };
            all.push((link, vec![path, to]));
        }
        let unlink = Step::Unlink { path: path.into() };
        all.push((unlink, vec![]));
        for to in ["A/bar", "A/foo", "B/foo", "baz"] {
            let rename = Step::Rename {
                from: path.into(),
                to: to.into(),
            };
            if to != path {
                all.push((rename, vec![to]));
            }
        }
    }
    for path in ["B/foo", "baz"] {
        all.push((Step::Create { path: path.into() }, vec![path]));
    }
    all.push((Step::Mkdir { path: "A/C".into() }, vec![]));
    all.push((Step::Rmdir { path: "B".into() }, vec![]));
    all
}

/// What makes durable what an operation touched.
fn persisting(operation: &Step, files: &[&str]) -> Vec<Step> {
    let mut all = vec![Step::Sync];
    for path in files {
        all.push(Step::Fsync {
            path: (*path).into(),
        });
        all.push(Step::Fdatasync {
            path: (*path).into(),
        });
    }
    let names: Vec<&str> = match operation {
        Step::Link { to, .. } => vec![to],
        Step::Rename { from, to } => vec![from, to],
        Step::Create { path }
        | Step::Unlink { path }
        | Step::Mkdir { path }
        | Step::Rmdir { path } => vec![path],
        _ => vec![],
    };
    for name in names {
        let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
        let step = Step::FsyncDir {
            path: directory.into(),
        };
        if !all.contains(&step) {
            all.push(step);
        }
    }
    all
}

fn all_of_one() -> Vec<Vec<Step>> {
    let mut all = Vec::new();
    for (operation, files) in operations(1000) {
        for last in persisting(&operation, &files) {
            all.push(vec![operation.clone(), last]);
        }
    }
    all
}

fn draw_two(random: &mut Random) -> Option<Vec<Step>> {
    for _ in 0..DRAWS_MAX {
        let mut steps = Vec::new();
        for number in 0..2 {
            let all = operations(2000 + 1_000_000 * number);
            let (operation, files) = random.pick(&all);
            let behind = persisting(operation, files);
            steps.push(operation.clone());
            if number == 1 || random.chance(0.5) {
                steps.push(random.pick(&behind).clone());
            }
        }
        let mut tree = Tree::default();
        let mut whole = Workload::on_small_tree("", steps.clone()).setup;
        whole.extend(steps.iter().cloned());
        if whole.iter().all(|step| tree.apply(step).is_ok()) {
            return Some(steps);
        }
    }
    None
}
