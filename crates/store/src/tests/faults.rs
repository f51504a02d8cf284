//! Devices that fail and bits that turn: an error or a repair, never other bytes.

use super::world::{self, Model, Step};
use crate::layout::{LOG_OFFSET, Layout};
use crate::{Core, StoreError, Terms};
use base::{BlockDevice, DeviceAction, Extent, ObjectId, Time};
use sim::{CrashDisk, Effect, Failure, Fault, Random};
use std::collections::BTreeMap;
use std::sync::Arc;

const OBJECT: ObjectId = ObjectId([7; 16]);

fn store_with_an_object() -> (Arc<CrashDisk>, Core) {
    let disk = world::formatted(8 << 20);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    store.create(Time::ZERO, OBJECT, Terms::Default).unwrap();
    store
        .write(Time::ZERO, OBJECT, 0, &world::pattern(1, 0, 9000))
        .unwrap();
    store.commit().unwrap();
    (disk, store)
}

#[test]
pub(super) fn after_a_failed_flush_reads_go_on_and_writes_do_not() {
    let (disk, mut store) = store_with_an_object();
    let failure = Effect::Fails(Failure::InputOutput);
    disk.arm(Fault::once(DeviceAction::Flush, 0, failure));
    store
        .write(Time::ZERO, OBJECT, 100, b"never durable")
        .unwrap();
    assert!(matches!(store.commit(), Err(StoreError::Device(_))));
    assert!(store.is_poisoned());
    let again = store.write(Time::ZERO, OBJECT, 0, b"x");
    assert!(matches!(again, Err(StoreError::Poisoned)));
    assert!(matches!(store.commit(), Err(StoreError::Poisoned)));
    assert!(matches!(store.checkpoint(), Err(StoreError::Poisoned)));
    let mut bytes = [0; 50];
    assert_eq!(store.read(Time::ZERO, OBJECT, 0, &mut bytes).unwrap(), 50);
    assert_eq!(bytes[..], world::pattern(1, 0, 50));
    let store = Core::open(disk, world::options()).unwrap();
    assert_eq!(store.info(Time::ZERO, OBJECT).unwrap().size_bytes, 9000);
}

/// Flips one bit of the page that has these bytes.
fn flip_bit_of(disk: &CrashDisk, bytes: &[u8]) {
    let mut page = [0; 4096];
    let mut places = (0..disk.len_bytes()).step_by(4096);
    let at = places.find(|at| {
        disk.read_at(*at, &mut page).unwrap();
        page == bytes
    });
    page[77] ^= 4;
    let at = at.expect("it is on the device");
    disk.write_at(at, &page).unwrap();
}

#[test]
fn what_is_written_over_damage_is_readable_and_nothing_else_of_it() {
    const LEN: usize = 3 << 16;
    let disk = world::formatted(8 << 20);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    let now = Time::ZERO;
    store.create(now, OBJECT, Terms::Default).unwrap();
    let data = world::pattern(1, 0, LEN);
    store.write(now, OBJECT, 0, &data).unwrap();
    store.commit().unwrap();
    // In the middle of what has one checksum.
    let bad = (1 << 16) + 9 * 4096;
    flip_bit_of(&disk, &data[bad..bad + 4096]);
    let is_damaged = |store: &Core, offset: usize| {
        let mut read = [0; 4096];
        match store.read(now, OBJECT, offset as u64, &mut read) {
            Ok(len) => {
                let expected = &data[offset..offset + len];
                assert_eq!(read[..len], *expected);
                false
            }
            Err(error) => {
                assert!(matches!(error, StoreError::Damaged(_)), "{error}");
                true
            }
        }
    };
    let damaged = |store: &Core, to: usize| -> Vec<usize> {
        let pages = (0..to).step_by(4096);
        pages.filter(|at| is_damaged(store, *at)).collect()
    };
    let group: Vec<usize> = (1 << 16..2 << 16).step_by(4096).collect();
    assert_eq!(damaged(&store, LEN), group);
    // A neighbour, and the page that has the bit.
    for page in [bad - 4096, bad] {
        store
            .write(now, OBJECT, page as u64, &data[page..page + 4096])
            .unwrap();
    }
    let mut left = group;
    left.retain(|at| ![bad - 4096, bad].contains(at));
    assert_eq!(damaged(&store, LEN), left);
    store.commit().unwrap();
    store.checkpoint().unwrap();
    drop(store);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    assert_eq!(damaged(&store, LEN), left);
    // Not a part of one: the rest would be vouched for.
    let part = store.write(now, OBJECT, left[0] as u64, &[1; 100]);
    assert!(matches!(part, Err(StoreError::Damaged(_))));
    // What is damaged can be cut, in its middle, too, and does not come back as zeros.
    let size = left[3] + 100;
    store.truncate(now, OBJECT, size as u64).unwrap();
    assert_eq!(damaged(&store, size), left[..4]);
    let hole = Extent::new(left[1] as u64, 4096 + 50);
    store.punch(now, OBJECT, hole).unwrap();
    let mut zeros = [1; 4096];
    store.read(now, OBJECT, hole.offset, &mut zeros).unwrap();
    assert_eq!(zeros, [0; 4096]);
    assert!(is_damaged(&store, left[2]) && is_damaged(&store, left[3]));
    // As a whole it need not be readable.
    let whole = 1 << 16..2 << 16;
    store
        .write(now, OBJECT, whole.start as u64, &data[whole])
        .unwrap();
    assert_eq!(damaged(&store, 2 << 16), []);
    store.delete(now, OBJECT).unwrap();
    store.commit().unwrap();
}

#[test]
fn every_write_of_a_history_may_fail() {
    let steps = [
        Step::Create(1),
        Step::Write {
            object: 1,
            offset: 0,
            len: 150_000,
            fill: 3,
        },
        Step::Commit,
        Step::Write {
            object: 1,
            offset: 5_000,
            len: 9_000,
            fill: 4,
        },
        Step::Checkpoint,
    ];
    for nth in 0..40 {
        let disk = world::formatted(8 << 20);
        let mut store = Core::open(disk.clone(), world::options()).unwrap();
        let effect = Effect::FailsHalfway(Failure::NoSpace, Random::new(nth));
        disk.arm(Fault::once(DeviceAction::Write, nth, effect));
        let mut model = Model::new();
        // What was acknowledged, and what there may be besides: what was after each later step.
        let mut acknowledged = 0;
        let mut models = vec![Model::new()];
        for (index, step) in steps.iter().enumerate() {
            let done = world::apply(&mut store, &mut model, step);
            models.push(model.clone());
            if done.is_err() {
                break;
            }
            if matches!(step, Step::Commit | Step::Checkpoint) {
                acknowledged = index + 1;
            }
        }
        drop(store);
        disk.disarm();
        let store = Core::open(disk, world::options()).unwrap();
        assert_eq!(store.check(true).unwrap().findings, []);
        let found = world::contents(&store).unwrap();
        let possible = &models[acknowledged..];
        assert!(possible.contains(&found), "write {nth}: other bytes");
    }
}

/// A store with objects of every kind, part of it in the tree and part of it in the log.
fn rich_disk() -> (Arc<CrashDisk>, Model) {
    let disk = world::formatted(4 << 20);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    let mut model = Model::new();
    for object in 0..6 {
        let small = usize::from(object) * 3_000 + 10;
        for step in [
            Step::Create(object),
            Step::Write {
                object,
                offset: 0,
                len: small,
                fill: object,
            },
            Step::Write {
                object,
                offset: 7_000,
                len: 90_000 * usize::from(object % 2) + 1,
                fill: 9,
            },
            if object == 2 {
                Step::Checkpoint
            } else {
                Step::Commit
            },
        ] {
            world::apply(&mut store, &mut model, &step).unwrap();
        }
    }
    drop(store);
    disk.restart_log();
    (disk, model)
}

/// How many flipped bits did no harm or were put right, and how many were errors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flips {
    harmless: u32,
    errors: u32,
}

/// Where a byte is.
fn part_of(layout: &Layout, offset: u64) -> &'static str {
    match offset {
        at if at < LOG_OFFSET => "superblocks",
        at if at < layout.record_offset() => "log",
        at if at < layout.grid_offset => "records",
        _ => "data",
    }
}

/// Turns one bit each of `count` copies of a store around; says what came of it, by parts of the
/// device.
pub(super) fn flip_bits(seed: u64, count: u32) -> BTreeMap<&'static str, Flips> {
    let (disk, model) = rich_disk();
    let image = disk.image();
    let layout = *Core::open_read_only(disk, world::options())
        .unwrap()
        .layout();
    let mut random = Random::new(seed);
    let mut flips: BTreeMap<_, Flips> = BTreeMap::new();
    for number in 0..count {
        let flipped = CrashDisk::from_image(image.clone());
        // Half of them where most of what counts is: superblocks, log, records.
        let end = if number % 2 == 0 {
            1 << 20
        } else {
            flipped.len_bytes()
        };
        let (at, bit) = flipped.flip_random_bit(&mut random, Extent::new(0, end));
        let part = flips.entry(part_of(&layout, at)).or_default();
        let Ok(store) = Core::open(Arc::new(flipped), world::options()) else {
            part.errors += 1;
            continue;
        };
        let mut is_whole = true;
        for (object, bytes) in &model {
            let mut found = vec![0; bytes.len() + 1];
            match store.read(Time::ZERO, *object, 0, &mut found) {
                Ok(len) => assert!(found[..len] == bytes[..], "byte {at} bit {bit}: {object}"),
                Err(StoreError::Damaged(_)) => is_whole = false,
                Err(other) => panic!("byte {at} bit {bit}: {other}"),
            }
        }
        part.harmless += u32::from(is_whole);
        part.errors += u32::from(!is_whole);
    }
    flips
}

#[test]
fn no_flipped_bit_becomes_other_bytes() {
    let flips = flip_bits(5, 10_000);
    for (part, Flips { harmless, errors }) in &flips {
        println!("{part}: {harmless} harmless or put right, {errors} errors, 0 other bytes");
    }
    // One bit of a superblock or of the log is put right.
    for (part, errors_min) in [
        ("superblocks", 0),
        ("log", 0),
        ("records", 50),
        ("data", 50),
    ] {
        let Flips { harmless, errors } = flips[part];
        assert!(
            harmless + errors >= 20 && errors >= errors_min,
            "{part}: {harmless} harmless, {errors} errors"
        );
    }
}
