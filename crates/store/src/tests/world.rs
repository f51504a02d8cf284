//! What tests share: small stores, random operations, and a naive model of what they mean.

use crate::{Core, Format, Lifetimes, Options, Sizes, StoreError, Terms, Transaction};
use base::{Extent, ObjectId, StoreId, Time};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use sim::CrashDisk;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Smallest allocation unit.
pub(crate) const AU: u64 = 64 << 10;

/// Sizes of a small store whose log wraps and whose records grow within a test.
pub(crate) const SIZES: Sizes = Sizes {
    au_bytes: AU,
    log_bytes: 512 << 10,
    record_bytes: 256 << 10,
};

/// Where the first allocation unit of such a store is.
pub(crate) const FIRST_AU: u64 = 14 * AU;

pub(crate) fn format(store: u8) -> Format {
    Format {
        store: StoreId([store; 16]),
        sizes: SIZES,
        lifetimes: Lifetimes::default(),
        capability: vec![1, 2, 3],
    }
}

pub(crate) fn options() -> Options {
    Options {
        cache_pages: 64,
        ..Options::default()
    }
}

/// A disk with a fresh store, of a whole number of pages.
pub(crate) fn formatted(len_bytes: u64) -> Arc<CrashDisk> {
    formatted_with(len_bytes, &format(1))
}

/// The same with AUs of one or of four groups, as the seed says.
pub(crate) fn formatted_for(seed: u64) -> Arc<CrashDisk> {
    let mut format = format(1);
    match seed % 6 {
        1 | 4 => {
            format.sizes.au_bytes = 4 * AU;
            formatted_with(16 << 20, &format)
        }
        3 if seed % 12 == 3 => formatted_with(FIRST_AU + 40 * AU, &format),
        _ => formatted_with(5 << 20, &format),
    }
}

/// The same of these sizes.
pub(crate) fn formatted_with(len_bytes: u64, format: &Format) -> Arc<CrashDisk> {
    let disk = CrashDisk::new(len_bytes);
    Core::format(&disk, format).unwrap();
    disk.restart_log();
    Arc::new(disk)
}

/// One thing to do.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Create(u8),
    Write {
        object: u8,
        offset: u64,
        len: usize,
        fill: u8,
    },
    Truncate {
        object: u8,
        size: u64,
    },
    Punch {
        object: u8,
        offset: u64,
        len: u64,
    },
    Delete(u8),
    Clone(u8, u8),
    /// So many of the largest attributes, which fill pages of records.
    Attributes(u8, u8),
    Commit,
    Checkpoint,
    Reclaim,
    Reopen,
    /// Takes in what the device is longer than the store.
    Grow,
    /// A checkpoint and an opening, of whose flushes that one fails ([`super::doubt`]).
    FlushFails(u8),
}

pub(crate) fn steps(count_max: usize) -> impl Strategy<Value = Vec<Step>> {
    let object = || 0..6_u8;
    let offset = || {
        prop_oneof![
            3 => 0..20_000_u64,
            2 => 0..300_000_u64,
            1 => (0..5_u64).prop_map(|au| au * AU),
        ]
    };
    let len = || prop_oneof![4 => 1..6_000_usize, 2 => 1..40_000_usize, 2 => 30_000..200_000_usize];
    let step = prop_oneof![
        3 => object().prop_map(Step::Create),
        12 => (object(), offset(), len(), any::<u8>())
            .prop_map(|(object, offset, len, fill)| Step::Write { object, offset, len, fill }),
        2 => (object(), offset()).prop_map(|(object, size)| Step::Truncate { object, size }),
        1 => (object(), 0..8_u64).prop_map(|(object, group)| Step::Punch {
            object,
            offset: group * AU,
            len: AU,
        }),
        2 => (object(), offset(), len()).prop_map(|(object, offset, len)| Step::Punch {
            object,
            offset,
            len: len as u64
        }),
        1 => object().prop_map(Step::Delete),
        2 => (object(), object()).prop_map(|(from, to)| Step::Clone(from, to)),
        2 => (object(), 0..3_u64).prop_map(|(object, au)| Step::Write {
            object,
            offset: au * AU,
            len: 4 * AU as usize,
            fill: au as u8,
        }),
        2 => Just(Step::Commit),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reclaim),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..count_max)
}

pub(crate) fn id(object: u8) -> ObjectId {
    ObjectId([object; 16])
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(fill: u8, offset: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|at| fill.wrapping_add(((offset + at) / 61) as u8))
        .collect()
}

/// What a store should have.
pub(crate) type Model = BTreeMap<ObjectId, Vec<u8>>;

/// Does one step to both; the store's answer must be the model's.
pub(crate) fn apply(store: &mut Core, model: &mut Model, step: &Step) -> Result<(), StoreError> {
    let now = Time::from_secs(1);
    let expect = |there: bool, result: Result<(), StoreError>| match result {
        Err(StoreError::NotFound(_)) if !there => Ok(()),
        Ok(()) if !there => panic!("done to an object that is not there"),
        other => other,
    };
    match *step {
        Step::Create(object) => match (
            model.contains_key(&id(object)),
            store.create(now, id(object), Terms::Default),
        ) {
            (true, Err(StoreError::Exists(_))) => {}
            (false, Ok(())) => {
                model.insert(id(object), Vec::new());
            }
            (_, other) => return other,
        },
        Step::Write {
            object,
            offset,
            len,
            fill,
        } => {
            let data = pattern(fill, offset, len);
            let there = model.contains_key(&id(object));
            expect(there, store.write(now, id(object), offset, &data))?;
            if let Some(bytes) = model.get_mut(&id(object)) {
                let end = offset as usize + len;
                bytes.resize(bytes.len().max(end), 0);
                bytes[offset as usize..end].copy_from_slice(&data);
            }
        }
        Step::Truncate { object, size } => {
            let there = model.contains_key(&id(object));
            expect(there, store.truncate(now, id(object), size))?;
            if let Some(bytes) = model.get_mut(&id(object)) {
                bytes.resize(size as usize, 0);
            }
        }
        Step::Punch {
            object,
            offset,
            len,
        } => {
            let there = model.contains_key(&id(object));
            expect(
                there,
                store.punch(now, id(object), Extent::new(offset, len)),
            )?;
            if let Some(bytes) = model.get_mut(&id(object)) {
                let size = bytes.len();
                let end = size.min((offset + len) as usize);
                bytes[size.min(offset as usize)..end.max(size.min(offset as usize))].fill(0);
            }
        }
        Step::Delete(object) => {
            let there = model.contains_key(&id(object));
            expect(there, store.delete(now, id(object)))?;
            model.remove(&id(object));
        }
        Step::Clone(from, to) => clone(store, model, from, to)?,
        Step::Attributes(object, count) => set_attributes(store, model, object, count)?,
        Step::Commit | Step::Reopen => store.commit()?,
        Step::Checkpoint | Step::FlushFails(_) => store.checkpoint()?,
        Step::Reclaim => store.reclaim(now)?,
        Step::Grow => drop(store.grow()?),
    }
    Ok(())
}

fn set_attributes(
    store: &mut Core,
    model: &Model,
    object: u8,
    count: u8,
) -> Result<(), StoreError> {
    for name in 0..count {
        let contents = vec![object ^ name; 1_000];
        let set = |t: &mut Transaction| t.set_attribute(id(object), &[name; 9], Some(&contents));
        match store.transact(Time::from_secs(1), set) {
            Err(StoreError::NotFound(_)) if !model.contains_key(&id(object)) => {}
            other => other?,
        }
    }
    Ok(())
}

fn clone(store: &mut Core, model: &mut Model, from: u8, to: u8) -> Result<(), StoreError> {
    let cloned = store.clone_object(Time::from_secs(1), id(from), id(to), Terms::Default);
    match (model.get(&id(from)).cloned(), model.contains_key(&id(to))) {
        (Some(bytes), false) => {
            cloned?;
            model.insert(id(to), bytes);
        }
        (None, _) => assert!(matches!(cloned, Err(StoreError::NotFound(_)))),
        (Some(_), true) => assert!(matches!(cloned, Err(StoreError::Exists(_)))),
    }
    Ok(())
}

/// All that a store has.
pub(crate) fn contents(store: &Core) -> Result<Model, StoreError> {
    let mut all = Model::new();
    for info in store.list(Time::ZERO, ObjectId([0; 16]), usize::MAX)?.0 {
        let mut bytes = vec![0xEE; info.size_bytes as usize];
        assert_eq!(
            store.read(Time::ZERO, info.object, 0, &mut bytes)?,
            bytes.len()
        );
        all.insert(info.object, bytes);
    }
    Ok(all)
}

const PART_LEN: usize = 512;

/// Whether `found` is on the way from one to the other: a change too large for one transaction may
/// be there in part.
pub(crate) fn is_between_bytes(found: &[u8], old: &[u8], new: &[u8]) -> bool {
    let lengths = old.len().min(new.len())..=old.len().max(new.len());
    let mut parts = found.chunks(PART_LEN).zip((0..).step_by(PART_LEN));
    // Most parts are one of the two as a whole, which costs little to find.
    lengths.contains(&found.len())
        && parts.all(|(part, at)| {
            let range = at..at + part.len();
            old.get(range.clone()) == Some(part)
                || new.get(range.clone()) == Some(part)
                || part
                    .iter()
                    .zip(range)
                    .all(|(byte, at)| old.get(at) == Some(byte) || new.get(at) == Some(byte))
        })
}

/// What the strategy has for this seed.
pub(crate) fn drawn<T>(strategy: impl Strategy<Value = T>, seed: u64) -> T {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    strategy.new_tree(&mut runner).unwrap().current()
}

/// `count` seeds from 0 on, or as the environment says: `AZEKURA_STORE_SEEDS=FIRST..END`, which is
/// how `cargo xtask deep store` splits more of them.
pub(crate) fn seeds(count: u64) -> std::ops::Range<u64> {
    let said = std::env::var("AZEKURA_STORE_SEEDS").ok();
    let range = said.as_ref().and_then(|said| {
        let (first, end) = said.split_once("..")?;
        Some(first.parse().ok()?..end.parse().ok()?)
    });
    range.unwrap_or(0..count)
}
