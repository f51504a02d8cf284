//! A flush fails, and the store is opened again, as by a server that is started anew: what can be
//! read then may be gone after the next loss of power, unless it is written again. A store that was
//! open is whole after every crash from then on, and lets go of nothing that it had.

use super::crash;
use super::world::{self, Step};
use crate::Core;
use base::{BlockDevice, DeviceAction};
use sim::{CrashDisk, Effect, Failure, Fault};
use std::sync::Arc;

/// Makes superblocks longer than a sector, so that they can be torn.
const CAPABILITY_BYTES: usize = 2_000;
/// Flushes of a checkpoint and of an opening: of data, of an entry of the log, of pages and of a
/// superblock; of what is written again, and of another superblock.
const FLUSHES: u64 = 6;

/// Makes a checkpoint and opens the store again, while one of the flushes fails, the `nth` from
/// now. Nobody gives up before the store is open.
pub(super) fn fail_a_flush(
    disk: &CrashDisk,
    device: &Arc<dyn BlockDevice>,
    mut store: Core,
    nth: u8,
) -> Core {
    let failure = Effect::Fails(Failure::InputOutput);
    disk.arm(Fault::once(DeviceAction::Flush, nth.into(), failure));
    let _ = store.checkpoint();
    drop(store);
    let open = |_| Core::open(device.clone(), world::options()).ok();
    let opened = (0..2).find_map(open);
    disk.disarm();
    opened.expect("one flush fails")
}

/// Work, between which flushes fail, twice.
fn steps(seed: u64) -> Vec<Step> {
    let some = |part: u64| world::drawn(world::steps(12), 3 * seed + part);
    let mut steps: Vec<Step> = (0..6).map(Step::Create).collect();
    steps.extend(some(0));
    steps.push(Step::FlushFails((seed % FLUSHES) as u8));
    steps.extend(some(1));
    steps.push(Step::Commit);
    steps.push(Step::FlushFails((seed / FLUSHES % FLUSHES) as u8));
    steps.extend(some(2));
    steps.extend([Step::Commit, Step::Checkpoint]);
    steps
}

/// Cuts the power at each point of such work, and counts the states.
pub(super) fn prove(seed: u64) -> Result<u64, String> {
    let mut format = world::format(1);
    format.capability = vec![7; CAPABILITY_BYTES];
    let disk = world::formatted_with(5 << 20, &format);
    let history = crash::run_on(&disk, &steps(seed), None);
    crash::judge_all(&history, &crash::policy(seed))
}

#[test]
fn a_store_that_is_open_after_a_failed_flush_survives_every_crash() {
    let mut states = 0;
    for seed in 0..2 * FLUSHES {
        match prove(seed) {
            Ok(count) => states += count,
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
    }
    println!("{states} crash states");
    assert!(
        states > 1_000,
        "{states} states are too few to say anything"
    );
}
