//! Are the tests blind? Mistakes are planted, and some test has to notice each.

use super::{crash, faults, full, reserved, reuse, world};
use crate::planted::{Mistake, plant};
use sim::{Plant, Which};
use std::panic::catch_unwind;

/// Mistakes in the store itself.
const MISTAKES: [Mistake; 27] = [
    Mistake::NoDataFlush,
    Mistake::NoEntryFlush,
    Mistake::NoCheckpointFlush,
    Mistake::NoSuperblockFlush,
    Mistake::OneSuperblock,
    Mistake::PagesFreeAtOnce,
    Mistake::PagesFreeTooEarly,
    Mistake::SpaceFreeAtOnce,
    Mistake::SpaceLost,
    Mistake::SpaceNotWritten,
    Mistake::CutIsForgotten,
    Mistake::DirectOverLive,
    Mistake::PiecesNotWritten,
    Mistake::StalePieces,
    Mistake::CountersNotReplayed,
    Mistake::TornEntries,
    Mistake::LogTooLong,
    Mistake::NothingIsOver,
    Mistake::UseWithoutLimit,
    Mistake::PromisesForgotten,
    Mistake::NotPoisoned,
    Mistake::UsersNotCounted,
    Mistake::SharedInPlace,
    Mistake::DataUnverified,
    Mistake::PagesUnverified,
    Mistake::RecordAusFreeAtOnce,
    Mistake::RecordAusFreeTooEarly,
];

/// A test on what a seed draws, and its name.
type Proof = (&'static str, fn(u64) -> Result<(), String>);

/// The tests.
const PROOFS: [Proof; 6] = [
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
];

/// Seeds that are tried until a mistake is noticed.
const SEEDS: u64 = 60;

/// Which test notices, and on which seed. A store that finds the mistake itself, while it runs, has
/// noticed it as well.
fn noticed(mistake: Mistake) -> Option<(&'static str, u64)> {
    (0..SEEDS).find_map(|seed| {
        PROOFS.iter().find_map(|(name, proof)| {
            plant(Some(mistake));
            let outcome = catch_unwind(|| proof(seed));
            let made = plant(None);
            let is_noticed = made > 0 && !matches!(outcome, Ok(Ok(())));
            is_noticed.then_some((*name, seed))
        })
    })
}

#[test]
fn mistakes_in_the_store_are_noticed() {
    let mut unnoticed = Vec::new();
    for mistake in MISTAKES {
        match noticed(mistake) {
            Some((name, seed)) => println!("{mistake:?}: {name}, seed {seed}"),
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
