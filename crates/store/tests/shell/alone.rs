//! Lifetimes, clones and growing, on a store that others use meanwhile.

use crate::file;
use crate::work;
use base::{ObjectId, Time};
use reservation::Moment;
use sim::CrashDisk;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use store::device::{DeviceOptions, FileDevice, InOrder};
use store::{Core, Lifetimes, Store, StoreError, Terms};

const AU: u64 = 128 << 10;

/// Sets a flag when it goes, also when the test fails: who waits for the flag ends, and the failure
/// is seen.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn id(object: u8) -> ObjectId {
    ObjectId([object; 16])
}

/// A clock that is set by hand.
fn clock(seconds: u64) -> (Arc<AtomicU64>, store::Clock) {
    let hand = Arc::new(AtomicU64::new(seconds));
    let read = hand.clone();
    (
        hand,
        Arc::new(move || Time::from_secs(read.load(Ordering::SeqCst))),
    )
}

fn store_on(disk: &CrashDisk, clock: store::Clock) -> Store {
    let queue = Box::new(InOrder::new(Arc::new(disk.clone())).unwrap());
    Store::open_on(queue, work::options(), clock).unwrap()
}

#[test]
fn lifetimes_are_set_kept_and_renewed() {
    let disk = CrashDisk::new(8 << 20);
    Core::format(&disk, &work::format()).unwrap();
    let (hand, clock) = clock(10);
    let store = store_on(&disk, clock.clone());
    let lifetimes = Lifetimes {
        default_seconds: Some(100),
        longest_seconds: Some(1_000),
        renewals_max: Some(1),
    };
    store.set_lifetimes(lifetimes).unwrap();
    // Power is lost here; what was said to be durable is.
    let lost = CrashDisk::from_image(disk.image());
    drop(store);
    let store = store_on(&lost, clock);
    assert_eq!(store.lifetimes(), lifetimes);
    let secs = Moment::from_secs;
    store.create(id(1), Terms::Default).unwrap();
    store.write(id(1), 0, &[1; 200_000]).unwrap();
    let too_long = store.create(id(2), Terms::Until(secs(1_011)));
    assert!(matches!(too_long, Err(StoreError::Lifetime { .. })));
    assert_eq!(store.info(id(1)).unwrap().end, secs(110));
    store.renew(id(1), secs(300)).unwrap();
    let again = store.renew(id(1), secs(400));
    assert!(matches!(again, Err(StoreError::NotRenewable(_))));
    store.commit().unwrap();
    hand.store(299, Ordering::SeqCst);
    assert_eq!(store.info(id(1)).unwrap().renewals, 1);
    hand.store(300, Ordering::SeqCst);
    assert!(matches!(store.info(id(1)), Err(StoreError::Expired(_))));
    store.stop().unwrap();
}

#[test]
fn a_store_gives_back_what_is_over_by_itself_and_is_never_in_its_own_way() {
    let disk = CrashDisk::new(12 << 20);
    Core::format(&disk, &work::format()).unwrap();
    let (hand, clock) = clock(10);
    let store = store_on(&disk, clock);
    // As many records as there is room for: giving them back takes commits and checkpoints.
    let end = Terms::Until(Moment::from_secs(1_000));
    let mut made = 0_u32;
    loop {
        let mut object = id(1);
        object.0[..4].copy_from_slice(&made.wrapping_mul(0x9E37_79B9).to_le_bytes());
        let done = store.transact(|t| {
            t.create(object, end)?;
            (0..20).try_for_each(|name| t.set_attribute(object, &[name; 9], Some(&[name; 900])))
        });
        match done {
            Ok(()) => made += 1,
            Err(StoreError::NoSpace { .. }) => break,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(made > 20, "{made} objects");
    store.create(id(2), Terms::Default).unwrap_err();
    hand.store(2_000, Ordering::SeqCst);
    let patience = Instant::now() + Duration::from_secs(60);
    while store.create(id(2), Terms::Default).is_err() || store.check(false).unwrap().objects > 1 {
        assert!(Instant::now() < patience, "{:?}", store.status());
        thread::sleep(Duration::from_millis(20));
        store.delete(id(2)).unwrap_or_default();
    }
    assert_eq!(store.check(true).unwrap().findings, Vec::new());
    store.stop().unwrap();
}

#[test]
fn a_clone_has_what_there_was_at_one_moment() {
    const AUS: u64 = 100;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    file::create(&path, 64 << 20);
    let store = file::open(&path);
    let (first, last) = (0, (AUS - 1) * AU);
    store.create(id(1), Terms::Default).unwrap();
    for au in 0..AUS {
        store.write(id(1), au * AU, &[0; 8]).unwrap();
    }
    let is_done = AtomicBool::new(false);
    let markers = |object| {
        let read = |offset| {
            let mut bytes = [0; 8];
            store.read(object, offset, &mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        };
        (read(first), read(last))
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut version = 0_u64;
            while !is_done.load(Ordering::SeqCst) {
                version += 1;
                let bytes = version.to_le_bytes();
                let both = |t: &mut store::Transaction| {
                    t.write(id(1), first, &bytes)?;
                    t.write(id(1), last, &bytes)
                };
                store.transact(both).unwrap();
                if version.is_multiple_of(16) {
                    store.commit().unwrap();
                }
            }
        });
        let _done = Done(&is_done);
        let mut before = 0;
        for _ in 0..30 {
            store.clone_object(id(1), id(2), Terms::Default).unwrap();
            let (first, last) = markers(id(2));
            assert!(first == last && first >= before, "{first} and {last}");
            before = first;
            let there = store.clone_object(id(1), id(2), Terms::Default);
            assert!(matches!(there, Err(StoreError::Exists(_))));
            store.delete(id(2)).unwrap();
        }
    });
    assert_eq!(store.check(true).unwrap().findings, Vec::new());
    store.stop().unwrap();
}

fn longer(path: &Path, len_bytes: u64) {
    let device = FileDevice::open(path, DeviceOptions::default()).unwrap();
    let quiet = &mut |_, _| ControlFlow::Continue(());
    device.grow(len_bytes, quiet).unwrap();
}

#[test]
fn a_store_grows_while_it_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    file::create(&path, 8 << 20);
    longer(&path, 24 << 20);
    let store = file::open(&path);
    let before = store.status().usage;
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            store.create(id(1), Terms::Default).unwrap();
            for version in 0_u64.. {
                if is_done.load(Ordering::SeqCst) {
                    break;
                }
                store.write(id(1), 0, &[version as u8; 150_000]).unwrap();
                store.commit().unwrap();
            }
        });
        let _done = Done(&is_done);
        thread::sleep(Duration::from_millis(20));
        assert_eq!(u64::from(store.grow().unwrap()), (16 << 20) / AU);
    });
    assert_eq!(store.grow().unwrap(), 0);
    let more = store.status().usage.total - before.total;
    assert_eq!(more, (16 << 20) / AU);
    store.create(id(2), Terms::Default).unwrap();
    store.write(id(2), 0, &vec![2; 16 << 20]).unwrap();
    store.stop().unwrap();
    let core = Core::open(file::device(&path), work::options()).unwrap();
    work::check(&core).unwrap();
    assert_eq!(core.info(Time::ZERO, id(2)).unwrap().size_bytes, 16 << 20);
}
