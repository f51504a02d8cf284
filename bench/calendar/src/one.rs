//! One device: a question, check and take, give back; as changes and as segments.

use crate::report::Row;
use crate::segments::Segments;
use crate::times::Times;
use crate::workload::{NOW_SECONDS, amount, interval, now};
use figures::Random;
use reservation::{Calendar, Interval};

/// Larger than what is taken, so that the population stays as large as it is said to be.
const CAPACITY: u64 = 1 << 31;

/// The calendar of the product.
pub(crate) fn changes(count: usize, operations: usize, seed: u64) -> Vec<Row> {
    let mut random = Random::new(seed);
    let mut calendar = Calendar::new(now(), CAPACITY, 0);
    let mut live: Vec<(Interval, u64)> = Vec::with_capacity(count);
    for _ in 0..count {
        let claim = (interval(&mut random), amount(&mut random));
        calendar.take(claim.0, claim.1).expect("there is room");
        live.push(claim);
    }
    let [mut rooms, mut takes, mut returns] =
        [Times::default(), Times::default(), Times::default()];
    for _ in 0..operations {
        // Each operation goes where none of the others has just been.
        let asked = interval(&mut random);
        rooms.time(|| calendar.room(asked));
        let (interval, amount) = (interval(&mut random), amount(&mut random));
        let which = random.below(count as u64) as usize;
        let (old, old_amount) = std::mem::replace(&mut live[which], (interval, amount));
        returns.time(|| calendar.give_back(old, old_amount, now()));
        let taken = takes.time(|| calendar.take(interval, amount));
        taken.expect("there is room");
    }
    let memory = calendar.memory_bytes();
    vec![
        Row::times("one device: question", &mut rooms),
        Row::times("one device: check and take", &mut takes),
        Row::times("one device: give back", &mut returns),
        Row::memory("one device: memory", memory),
    ]
}

/// The same with segment trees.
pub(crate) fn segments(count: usize, operations: usize, seed: u64) -> Vec<Row> {
    let mut random = Random::new(seed);
    let mut trees = Segments::new(NOW_SECONDS, CAPACITY as u32);
    let mut draw = || {
        let interval = interval(&mut random);
        let ends = (interval.start().as_secs(), interval.end().as_secs());
        (
            (ends, amount(&mut random) as u32),
            random.below(count as u64) as usize,
        )
    };
    let mut live = Vec::with_capacity(count);
    for _ in 0..count {
        let (claim, _) = draw();
        assert!(trees.take(claim.0, claim.1), "there is room");
        live.push(claim);
    }
    let [mut takes, mut returns] = [Times::default(), Times::default()];
    for _ in 0..operations {
        let (claim, which) = draw();
        let old = std::mem::replace(&mut live[which], claim);
        returns.time(|| trees.give_back(old.0, old.1));
        assert!(takes.time(|| trees.take(claim.0, claim.1)), "there is room");
    }
    let memory = trees.memory_bytes();
    vec![
        Row::times("segment trees: check and take", &mut takes),
        Row::times("segment trees: give back", &mut returns),
        Row::memory("segment trees: memory, whatever is in them", memory),
    ]
}
