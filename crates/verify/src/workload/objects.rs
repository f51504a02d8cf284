//! Objects of a store that are made, written, cut and deleted, with commits between.

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
const OFFSETS: [u64; 6] = [0, 0, 512, 5000, 65_536, 130_000];

/// Workload `number` of a seed.
pub(super) fn objects(number: u64, seed: u64) -> Workload {
    let mut random = Random::new(seed ^ number.rotate_left(40) ^ 0x0b);
    let create = |path: &str| Step::Create { path: path.into() };
    let fill = |path: &str, len, tag| Step::Write {
        path: path.into(),
        offset: 0,
        len,
        tag,
    };
    let setup = vec![
        create("o0"),
        fill("o0", 8192, 1),
        create("o1"),
        fill("o1", 5000, 2),
        Step::Sync,
    ];
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
