//! A scrub beside writers, and what it finds.

use crate::work::{self, Worker};
use base::{BlockDevice, Extent, ObjectId, Time};
use reservation::{Interval, Moment};
use sim::CrashDisk;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use store::device::InOrder;
use store::{Core, Kind, Mend, Report, Request, Store, Superblock, Terms, stopped_clock};

const DEVICE_BYTES: u64 = 16 << 20;
const OBJECT: ObjectId = ObjectId([0xB1; 16]);

fn store() -> (CrashDisk, Store) {
    let disk = CrashDisk::new(DEVICE_BYTES);
    Core::format(&disk, &work::format()).unwrap();
    let queue = InOrder::new(Arc::new(disk.clone())).unwrap();
    let store = Store::open_on(Box::new(queue), work::options(), work::clock());
    (disk, store.unwrap())
}

fn scrub(store: &Store) -> Report {
    let report = store.scrub(None, &mut |_, _| ControlFlow::Continue(()));
    report.unwrap()
}

#[test]
fn a_scrub_beside_writers_finds_nothing() {
    const THREADS: u8 = 3;
    let (_, store) = store();
    let left = AtomicUsize::new(usize::from(THREADS));
    let mut scrubs = 0;
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, left) = (&store, &left);
            scope.spawn(move || {
                let mut worker = Worker::begin(thread, store).unwrap();
                for _ in 0..150 {
                    worker.step(store).unwrap();
                }
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        while left.load(Ordering::Relaxed) > 0 {
            assert_eq!(scrub(&store).findings, []);
            scrubs += 1;
        }
    });
    assert!(scrubs > 1, "{scrubs} scrubs");
    assert!(
        store.status().checkpoints > 2,
        "checkpoints went on beside them"
    );
}

#[test]
fn a_flipped_bit_in_data_or_records_is_found_and_what_is_in_memory_is_renewed() {
    let (disk, store) = store();
    // No two runs of it are the same.
    let data: Vec<u8> = (0..75_000_u32).flat_map(u32::to_le_bytes).collect();
    store.create(OBJECT, Terms::Default).unwrap();
    store.write(OBJECT, 0, &data).unwrap();
    store.checkpoint().unwrap();
    let whole = scrub(&store);
    assert_eq!(whole.findings, []);
    assert!(whole.verified_bytes >= data.len() as u64);

    let kinds = |report: &Report| -> Vec<_> {
        let each = report.findings.iter().map(|f| (f.kind, f.mend));
        each.collect()
    };
    for superblock in [0, 64 << 10] {
        disk.flip_bit(superblock + 30, 1);
        assert_eq!(kinds(&scrub(&store)), [(Kind::Superblock, Mend::Done)]);
        assert_eq!(scrub(&store).findings, []);
    }
    let superblock = |at| {
        let mut page = vec![0; 4096];
        disk.read_at(at, &mut page).unwrap();
        Superblock::decode(&page).unwrap()
    };
    let newest = [superblock(0), superblock(64 << 10)];
    let newest = newest.into_iter().max_by_key(|superblock| superblock.epoch);
    let root = newest.unwrap().root.unwrap().page * 4096;
    disk.flip_bit(root + 77, 5);
    assert_eq!(kinds(&scrub(&store)), [(Kind::Page, Mend::Possible)]);
    disk.flip_bit(root + 77, 5);

    let mut all = vec![0; DEVICE_BYTES as usize];
    disk.read_at(0, &mut all).unwrap();
    let part = &data[200_000..200_100];
    let at = all
        .windows(part.len())
        .position(|bytes| bytes == part)
        .unwrap();
    disk.flip_bit(at as u64, 0);
    let bad = scrub(&store);
    assert_eq!(kinds(&bad), [(Kind::Data, Mend::Impossible)]);
    assert_eq!(bad.findings[0].object, Some(OBJECT));
    let extent = bad.findings[0].extent.unwrap();
    assert!(
        extent.contains(200_000) && extent.len <= 64 << 10,
        "{extent}"
    );
    // Others' bytes go on being read.
    let mut bytes = vec![0; 1000];
    assert_eq!(store.read(OBJECT, 0, &mut bytes).unwrap(), 1000);
    assert!(bytes == data[..1000]);
}

/// As if a disk had said that it has written what it has not.
#[test]
fn a_superblock_that_is_an_old_one_is_renewed() {
    let (disk, store) = store();
    for place in [0, 64 << 10] {
        let mut page = vec![0; 4096];
        disk.read_at(place, &mut page).unwrap();
        for _ in 0..4 {
            store.checkpoint().unwrap();
        }
        disk.write_at(place, &page).unwrap();
        let report = scrub(&store);
        let found = report.findings.iter().map(|f| (f.kind, f.mend));
        assert!(found.eq([(Kind::Superblock, Mend::Done)]), "{report:?}");
        assert_eq!(scrub(&store).findings, []);
    }
}

#[test]
fn a_sector_that_cannot_be_read_is_found_and_the_rest_is_read() {
    let (disk, store) = store();
    let data: Vec<u8> = (0..75_000_u32).flat_map(u32::to_le_bytes).collect();
    store.create(OBJECT, Terms::Default).unwrap();
    store.write(OBJECT, 0, &data).unwrap();
    store.checkpoint().unwrap();
    let whole = scrub(&store).verified_bytes;
    let mut all = vec![0; DEVICE_BYTES as usize];
    disk.read_at(0, &mut all).unwrap();
    let kinds = |report: &Report| -> Vec<_> {
        let each = report.findings.iter().map(|f| (f.kind, f.mend));
        each.collect()
    };
    disk.make_unreadable(Extent::new(100, 1));
    let renewed = [(Kind::Superblock, Mend::Done), (Kind::Device, Mend::Done)];
    assert_eq!(kinds(&scrub(&store)), renewed);
    assert_eq!(scrub(&store).findings, []);

    let superblocks = [0, 64 << 10].map(|at| {
        let mut page = vec![0; 4096];
        disk.read_at(at, &mut page).unwrap();
        Superblock::decode(&page).unwrap()
    });
    let newest = superblocks
        .into_iter()
        .max_by_key(|superblock| superblock.epoch);
    let root = newest.unwrap().root.unwrap().page * 4096;
    let mut page = vec![0; 4096];
    disk.read_at(root, &mut page).unwrap();
    disk.make_unreadable(Extent::new(root + 512, 1));
    let bad = [
        (Kind::Page, Mend::Possible),
        (Kind::Device, Mend::Impossible),
    ];
    assert_eq!(kinds(&scrub(&store)), bad);
    disk.write_at(root, &page).unwrap();

    let part = &data[200_000..200_100];
    let at = all.windows(part.len()).position(|bytes| bytes == part);
    disk.make_unreadable(Extent::new(at.unwrap() as u64, 1));
    let report = scrub(&store);
    let bad = [
        (Kind::Data, Mend::Impossible),
        (Kind::Device, Mend::Impossible),
    ];
    assert_eq!(kinds(&report), bad);
    assert_eq!(report.findings[0].object, Some(OBJECT));
    assert!(report.findings[0].extent.unwrap().contains(200_000));
    assert_eq!(
        report.verified_bytes,
        whole - (64 << 10),
        "all others were read"
    );
}

/// Whose clock is wrong may be anybody who looks after a store.
#[test]
fn who_only_looks_after_a_store_ends_nothing() {
    let (disk, store) = store();
    let end = Moment::from_secs(100);
    let interval = Interval::new(Moment::from_secs(1), end).unwrap();
    let request = Request {
        interval,
        aus: 2,
        records: 4,
    };
    let reservation = store.reserve(request).unwrap();
    store.create(OBJECT, Terms::Until(end)).unwrap();
    store.write(OBJECT, 0, &vec![7; 1 << 20]).unwrap();
    let other = ObjectId([0xB2; 16]);
    store.create(other, Terms::Reserved(reservation)).unwrap();
    store.stop().unwrap();

    let queue = InOrder::new(Arc::new(disk.clone())).unwrap();
    let store = Store::open_on(Box::new(queue), work::options(), stopped_clock()).unwrap();
    // Long enough for its own threads to look for what is over.
    let rate = Some(700 << 10);
    let report = store.scrub(rate, &mut |_, _| ControlFlow::Continue(()));
    assert_eq!(report.unwrap().findings, []);
    store.stop().unwrap();

    let core = Core::open_read_only(Arc::new(disk), work::options()).unwrap();
    assert_eq!(core.now(), Time::from_secs(1));
    let reservations = core.reservations(0, 9).unwrap();
    assert_eq!(reservations.len(), 1, "{reservations:?}");
    for object in [OBJECT, other] {
        core.info(Time::from_secs(99), object).unwrap();
    }
}

#[test]
fn a_scrub_is_paced_and_can_be_stopped() {
    let (_, store) = store();
    store.create(OBJECT, Terms::Default).unwrap();
    store.write(OBJECT, 0, &vec![7; 1 << 20]).unwrap();
    store.commit().unwrap();
    let begin = Instant::now();
    let rate = Some(2 << 20);
    let report = store.scrub(rate, &mut |_, _| ControlFlow::Continue(()));
    assert!(report.unwrap().verified_bytes >= 1 << 20);
    assert!(
        begin.elapsed() > Duration::from_millis(450),
        "{:?}",
        begin.elapsed()
    );
    let mut calls = 0;
    let report = store.scrub(None, &mut |_, _| {
        calls += 1;
        ControlFlow::Break(())
    });
    assert_eq!((report.unwrap().verified_bytes, calls), (0, 1));
}

#[test]
fn a_superblock_that_was_lost_before_the_store_was_opened_is_told_once() {
    let (disk, store) = store();
    store.stop().unwrap();
    disk.write_at(0, &[0x5A; 512]).unwrap();
    disk.flush().unwrap();
    let queue = InOrder::new(Arc::new(disk)).unwrap();
    let store = Store::open_on(Box::new(queue), work::options(), work::clock()).unwrap();
    assert!(store.status().is_one_superblock_lost);
    let found = scrub(&store).findings;
    let kinds: Vec<_> = found.iter().map(|one| (one.kind, one.mend)).collect();
    assert_eq!(kinds, [(Kind::Superblock, Mend::Done)]);
    assert_eq!(scrub(&store).findings, []);
}
