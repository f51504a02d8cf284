//! Objects of a store that are made, written, cut and deleted, with commits between.
//!
//! Long sequences are drawn (`objects:NUMBER`); those of one operation and a commit are numbered
//! and can be gone through (`object:NUMBER`), as those of file systems are.

use super::{Step, Workload};
use crate::oracle::Tree;
use sim::Random;

/// Steps of one workload.
const STEPS: usize = 60;
/// Objects there may be at once.
const OBJECTS: u64 = 6;
/// How often a commit follows a change.
const COMMIT_CHANCE: f64 = 0.3;
/// Lengths of writes: what rides in a log, whole pages, and more than an allocation unit.
const LENGTHS: [u64; 7] = [1, 100, 3000, 4096, 10_000, 70_000, 200_000];
/// Where writes begin.
const OFFSETS_APART: [u64; 5] = [0, 512, 5000, 65_536, 130_000];
/// The same for draws, in which the beginning comes more often.
const OFFSETS: [u64; 6] = [0, 0, 512, 5000, 65_536, 130_000];

fn create(path: &str) -> Step {
    Step::Create { path: path.into() }
}

/// What is there before: two objects.
fn setup() -> Vec<Step> {
    let fill = |path: &str, len, tag| Step::Write {
        path: path.into(),
        offset: 0,
        len,
        tag,
    };
    vec![
        create("o0"),
        fill("o0", 8192, 1),
        create("o1"),
        fill("o1", 5000, 2),
        Step::Sync,
    ]
}

/// Sequence `number` of one operation; `None` if there is none.
pub(super) fn object(number: u64) -> Option<Workload> {
    let operation = operations().nth(usize::try_from(number).ok()?)?;
    Some(Workload {
        name: format!("object:{number}"),
        setup: setup(),
        steps: vec![operation, Step::Sync],
    })
}

/// How many sequences of one operation there are.
pub(super) fn object_count() -> u64 {
    operations().count() as u64
}

/// All single operations on what is there.
fn operations() -> impl Iterator<Item = Step> {
    let each = ["o0", "o1"].into_iter().flat_map(|path| {
        let path = path.to_owned();
        let writes = OFFSETS_APART.iter().flat_map(|offset| {
            LENGTHS.map(|len| Step::Write {
                path: path.clone(),
                offset: *offset,
                len,
                tag: 1000 + offset,
            })
        });
        let appends = LENGTHS.map(|len| Step::Append {
            path: path.clone(),
            len,
            tag: 2000,
        });
        let cuts = [0].into_iter().chain(LENGTHS).map(|len| Step::Truncate {
            path: path.clone(),
            len,
        });
        let all: Vec<Step> = writes.chain(appends).chain(cuts).collect();
        all.into_iter().chain([Step::Unlink { path }])
    });
    each.chain([create("o2")])
}

/// Workload `number` of a seed.
pub(super) fn objects(number: u64, seed: u64) -> Workload {
    let mut random = Random::new(seed ^ number.rotate_left(40) ^ 0x0b);
    let setup = setup();
    let mut tree = Tree::default();
    for step in &setup {
        tree.apply(step).expect("the beginning makes sense");
    }
    let mut steps = Vec::new();
    while steps.len() < STEPS {
        let step = draw(&mut random, 1000 + steps.len() as u64);
        if tree.apply(&step).is_ok() {
            steps.push(step);
            if random.chance(COMMIT_CHANCE) {
                steps.push(Step::Sync);
            }
        }
    }
    steps.push(Step::Sync);
    Workload {
        name: format!("objects:{number}"),
        setup,
        steps,
    }
}

/// A step that may make sense.
fn draw(random: &mut Random, tag: u64) -> Step {
    let path = format!("o{}", random.below(OBJECTS));
    let len = *random.pick(&LENGTHS);
    match random.below(10) {
        0 | 1 => Step::Create { path },
        2..=5 => Step::Write {
            path,
            offset: *random.pick(&OFFSETS),
            len,
            tag,
        },
        6 | 7 => Step::Append { path, len, tag },
        8 => Step::Truncate { path, len },
        _ => Step::Unlink { path },
    }
}
