//! Are the tests blind? Mistakes are planted, and some test has to notice each.

use super::{crash, doubt, faults, full, reserved, reuse, world};
use crate::planted::{Mistake, plant};
use sim::{Plant, Which};
use std::panic::catch_unwind;

/// Mistakes in the store itself, each with the test and the seed that is tried first: most tests
/// run for long where they notice nothing.
const MISTAKES: [(Mistake, &str, u64); 28] = [
    (Mistake::NoDataFlush, "crash", 0),
    (Mistake::NoEntryFlush, "crash", 0),
    (Mistake::NoCheckpointFlush, "crash", 0),
    (Mistake::NoSuperblockFlush, "failed flush", 0),
    (Mistake::OneSuperblock, "crash", 0),
    (Mistake::PagesFreeAtOnce, "crash", 2),
    (Mistake::PagesFreeTooEarly, "crash", 2),
    (Mistake::SpaceFreeAtOnce, "reuse", 0),
    (Mistake::SpaceLost, "crash", 0),
    (Mistake::SpaceNotWritten, "crash", 0),
    (Mistake::CutIsForgotten, "crash", 1),
    (Mistake::DirectOverLive, "failed flush", 4),
    (Mistake::PiecesNotWritten, "failed flush", 0),
    (Mistake::StalePieces, "crash", 4),
    (Mistake::CountersNotReplayed, "crash", 0),
    (Mistake::TornEntries, "crash", 0),
    (Mistake::LogTooLong, "crash", 22),
    (Mistake::NothingIsOver, "reserved", 3),
    (Mistake::UseWithoutLimit, "reserved", 6),
    (Mistake::PromisesForgotten, "crash", 0),
    (Mistake::NotPoisoned, "failing flush", 0),
    (Mistake::UsersNotCounted, "failed flush", 6),
    (Mistake::SharedInPlace, "crash", 19),
    (Mistake::DataUnverified, "flipped bits", 0),
    (Mistake::PagesUnverified, "flipped bits", 35),
    (Mistake::RecordAusFreeAtOnce, "crash", 3),
    (Mistake::RecordAusFreeTooEarly, "crash", 3),
    (Mistake::DoubtForgotten, "failed flush", 0),
];

/// A test on what a seed draws, and its name.
type Proof = (&'static str, fn(u64) -> Result<(), String>);

/// The tests.
const PROOFS: [Proof; 7] = [
    ("crash", |seed| crash::prove(seed, None).map(|_| ())),
    ("reserved", |seed| {
        let steps = world::drawn(reserved::steps(), seed);
        reserved::prove(&steps, &reserved::policy(seed)).map(|_| ())
    }),
    ("reuse", |seed| {
        reuse::prove(&reuse::steps(seed)).map(|_| ())
    }),
    ("failing flush", |_| {
        faults::after_a_failed_flush_reads_go_on_and_writes_do_not();
        Ok(())
    }),
    // On stores of dozens of sizes: it takes as long as all the others together.
    ("full", |seed| match seed {
        0 => full::prove(seed).map(|_| ()),
        _ => Ok(()),
    }),
    ("flipped bits", |seed| {
        faults::flip_bits(seed, 300);
        Ok(())
    }),
    ("failed flush", |seed| doubt::prove(seed).map(|_| ())),
];

/// Seeds that are tried until a mistake is noticed.
const SEEDS: u64 = 60;

/// Whether a test fails on this seed because the mistake is made. A store that finds the mistake
/// itself, while it runs, has noticed it as well.
fn notices((_, proof): Proof, seed: u64, mistake: Mistake) -> bool {
    plant(Some(mistake));
    let outcome = catch_unwind(|| proof(seed));
    let made = plant(None);
    made > 0 && !matches!(outcome, Ok(Ok(())))
}

/// Which test notices, and on which seed; `first` is tried before all others.
fn noticed(mistake: Mistake, first: (&str, u64)) -> Option<(&'static str, u64)> {
    let (name, seed) = first;
    let known = PROOFS.into_iter().find(|proof| proof.0 == name);
    let known = known.map(|proof| (proof, seed));
    let others = (0..SEEDS).flat_map(|seed| PROOFS.map(|proof| (proof, seed)));
    let mut all = known.into_iter().chain(others);
    let found = all.find(|(proof, seed)| notices(*proof, *seed, mistake));
    found.map(|((name, _), seed)| (name, seed))
}

#[test]
fn mistakes_in_the_store_are_noticed() {
    let mut unnoticed = Vec::new();
    for (mistake, name, seed) in MISTAKES {
        match noticed(mistake, (name, seed)) {
            Some(found) if found == (name, seed) => {}
            // As good, and slower.
            Some((name, seed)) => println!("{mistake:?}: now {name}, seed {seed}"),
            None => unnoticed.push(mistake),
        }
    }
    assert!(unnoticed.is_empty(), "{unnoticed:?}");
}

#[test]
fn mistakes_above_the_device_are_noticed() {
    let plants = [
        Plant::SkipFlush(Which::Every(1)),
        Plant::SkipFlush(Which::Every(2)),
        Plant::SkipFlush(Which::Every(3)),
        Plant::SwapWrites(Which::Every(2)),
        Plant::SwapWrites(Which::Every(3)),
        Plant::LoseWrite(Which::Nth(3)),
        Plant::LoseWrite(Which::Every(7)),
    ];
    for plant in plants {
        let noticed = (0..24).any(|seed| {
            let outcome = catch_unwind(|| crash::prove(seed, Some(plant)));
            !matches!(outcome, Ok(Ok(_)))
        });
        assert!(noticed, "{plant:?}");
    }
}

#[test]
fn without_a_mistake_nothing_is_noticed() {
    for (name, proof) in PROOFS {
        assert_eq!(proof(1), Ok(()), "{name}");
    }
}
