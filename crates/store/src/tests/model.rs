//! Random operations, commits, checkpoints and openings: the store has what the model has.

use super::world::{self, Model, Step};
use crate::layout::AU_BYTES_MAX;
use crate::{Core, Options, StoreError, Terms};
use base::{ObjectId, StoreId, Time};
use proptest::prelude::*;
use sim::CrashDisk;
use std::sync::Arc;

fn same(store: &Core, model: &Model) -> Result<(), TestCaseError> {
    let found = world::contents(store).unwrap();
    prop_assert!(found.keys().eq(model.keys()), "other objects");
    for (object, bytes) in model {
        let found = &found[object];
        prop_assert_eq!(found.len(), bytes.len());
        if found != bytes {
            let other = found.iter().zip(bytes).position(|(a, b)| a != b);
            prop_assert_eq!(other, None, "first other byte of {}", object);
        }
    }
    let report = store.check(true).unwrap();
    prop_assert_eq!(report.findings, []);
    let usage = store.usage();
    prop_assert_eq!(
        usage.free + usage.limbo + usage.records + usage.used,
        usage.total
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn the_store_is_a_map_of_byte_strings(steps in world::steps(60)) {
        let device = world::formatted(16 << 20);
        let mut store = Core::open(device.clone(), world::options()).unwrap();
        let mut model = Model::new();
        for step in &steps {
            world::apply(&mut store, &mut model, step).unwrap();
            if let Step::Reopen = step {
                drop(store);
                store = Core::open(device.clone(), world::options()).unwrap();
                same(&store, &model)?;
            }
        }
        same(&store, &model)?;
        store.checkpoint().unwrap();
        same(&store, &model)?;
        drop(store);
        same(&Core::open(device, world::options()).unwrap(), &model)?;
    }
}

#[test]
fn a_full_store_refuses_writes_and_takes_them_again_after_deletions() {
    let device = world::formatted(6 << 20);
    let mut store = Core::open(device.clone(), world::options()).unwrap();
    let now = Time::ZERO;
    let data = world::pattern(3, 0, 100_000);
    let mut count = 0_u8;
    let full = loop {
        let object = ObjectId([count; 16]);
        let made = store
            .create(now, object, Terms::Default)
            .and_then(|()| store.write(now, object, 0, &data));
        match made {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, StoreError::NoSpace { .. }), "{full}");
    assert!(count > 20, "{count} objects of 128 KiB in 5 MiB");
    store.commit().unwrap();
    drop(store);
    let mut store = Core::open(device, world::options()).unwrap();
    assert_eq!(store.check(true).unwrap().findings, []);
    for object in 0..count {
        store.delete(now, ObjectId([object; 16])).unwrap();
    }
    store.reclaim(now).unwrap();
    store.checkpoint().unwrap();
    for object in 0..count {
        store
            .create(now, ObjectId([object; 16]), Terms::Default)
            .unwrap();
        store.write(now, ObjectId([object; 16]), 0, &data).unwrap();
    }
    assert_eq!(store.check(true).unwrap().findings, []);
}

#[test]
fn the_largest_allocation_unit_has_large_objects_and_small_ones() {
    let mut format = world::format(1);
    format.sizes.au_bytes = AU_BYTES_MAX;
    let device = Arc::new(CrashDisk::new(6 * AU_BYTES_MAX));
    Core::format(&*device, &format).unwrap();
    let mut store = Core::open(device.clone(), world::options()).unwrap();
    let now = Time::ZERO;
    let (small, large) = (world::pattern(1, 0, 9_000), world::pattern(2, 0, 3_000_000));
    store.create(now, world::id(1), Terms::Default).unwrap();
    store.write(now, world::id(1), 0, &small).unwrap();
    store.create(now, world::id(2), Terms::Default).unwrap();
    for group in 0..16 {
        let offset = group * (AU_BYTES_MAX / 16);
        store.write(now, world::id(2), offset, &large).unwrap();
    }
    store.checkpoint().unwrap();
    drop(store);
    let mut store = Core::open(device, world::options()).unwrap();
    let mut bytes = vec![0; 9_001];
    assert_eq!(store.read(now, world::id(1), 0, &mut bytes).unwrap(), 9_000);
    assert!(bytes[..9_000] == small);
    assert_eq!(store.check(false).unwrap().findings, Vec::new());
    store.delete(now, world::id(2)).unwrap();
    store.reclaim(now).unwrap();
    store.checkpoint().unwrap();
    assert_eq!(store.usage().used, 1);
}

#[test]
fn what_is_no_store_or_another_is_refused() {
    let device = Arc::new(CrashDisk::new(8 << 20));
    let open = |wanted| {
        let options = Options {
            store: wanted,
            ..world::options()
        };
        Core::open(device.clone(), options).map(|_| ())
    };
    assert!(matches!(open(None), Err(StoreError::NotAStore)));
    Core::format(&*device, &world::format(1)).unwrap();
    assert!(matches!(
        open(Some(StoreId([2; 16]))),
        Err(StoreError::Foreign { .. })
    ));
    assert!(open(Some(StoreId([1; 16]))).is_ok());
}

#[test]
fn a_large_overwrite_is_written_once_and_a_clone_not_at_all() {
    let device = world::formatted(16 << 20);
    let mut store = Core::open(device.clone(), world::options()).unwrap();
    let (now, first, second) = (Time::ZERO, world::id(1), world::id(2));
    let data = world::pattern(1, 0, 16 * world::AU as usize);
    store.create(now, first, Terms::Default).unwrap();
    store.write(now, first, 0, &data).unwrap();
    store.commit().unwrap();
    let bytes_of = |store: &mut Core, act: &mut dyn FnMut(&mut Core)| {
        let before = device.counts().written_bytes;
        act(store);
        store.commit().unwrap();
        store.checkpoint().unwrap();
        device.counts().written_bytes - before
    };
    let other = world::pattern(2, 0, data.len());
    let written = bytes_of(&mut store, &mut |store| {
        store.write(now, first, 0, &other).unwrap();
    });
    assert!(written < other.len() as u64 * 11 / 10, "{written} bytes");
    let written = bytes_of(&mut store, &mut |store| {
        let cloned = store.clone_object(now, first, second, Terms::Default);
        cloned.unwrap();
    });
    assert!(written < 40_000, "{written} bytes for a clone");
    store.write(now, second, 70_000, b"other").unwrap();
    let mut bytes = vec![0; data.len()];
    store.read(now, first, 0, &mut bytes).unwrap();
    assert!(bytes == other, "the clone is written and its source is not");
}
