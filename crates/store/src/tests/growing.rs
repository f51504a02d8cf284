//! Power is cut while a store takes in what its device has become longer by, and after that.

use super::crash;
use super::world::{self, Step};
use crate::Core;
use base::BlockDevice;
use sim::{CrashDisk, Image};
use std::sync::Arc;

/// Length of the device when the store was made. It becomes twice as long.
const LEN_BYTES: u64 = 5 << 20;
/// What an object has that does not fit in the store before it grows.
const LARGE_BYTES: usize = 5 << 20;

/// A disk that is longer than the store on it.
fn longer() -> CrashDisk {
    let small = world::formatted(LEN_BYTES);
    let mut all = vec![0; LEN_BYTES as usize];
    small.read_at(0, &mut all).unwrap();
    let mut image = Image::new(2 * LEN_BYTES);
    image.write_at(0, &all);
    CrashDisk::from_image(image)
}

#[test]
fn what_was_there_is_there_and_what_was_grown_stays() {
    let total = |device: Arc<dyn BlockDevice>| {
        let store = Core::open_read_only(device, world::options()).unwrap();
        store.usage().total
    };
    let before = total(world::formatted(LEN_BYTES));
    let grown = total(world::formatted(2 * LEN_BYTES));
    let (mut states, mut smaller, mut larger) = (0, 0, 0);
    for seed in world::seeds(12) {
        let mut steps = world::drawn(world::steps(20), seed);
        let growth = steps.len();
        steps.extend([Step::Grow, Step::Create(7)]);
        steps.extend(
            (0..LARGE_BYTES)
                .step_by(LARGE_BYTES / 5)
                .map(|at| Step::Write {
                    object: 7,
                    offset: at as u64,
                    len: LARGE_BYTES / 5,
                    fill: seed as u8,
                }),
        );
        steps.push(Step::Commit);
        steps.extend(world::drawn(world::steps(10), seed + 1000));
        let history = crash::run_on(&longer(), &steps, None);
        let policy = crash::policy(seed);
        match crash::judge_all(&history, &policy) {
            Ok(count) => states += count,
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
        for state in history.states(&policy) {
            let found = total(Arc::new(state.disk()));
            let has_grown = state.position >= history.end_of(growth);
            assert!(
                found == grown || found == before && !has_grown,
                "seed {seed}, {state}: {found}"
            );
            smaller += u64::from(found == before);
            larger += u64::from(found == grown);
        }
    }
    println!("{states} crash states, {smaller} as before, {larger} grown");
    assert!(smaller > 100 && larger > 100, "{smaller} and {larger}");
}
