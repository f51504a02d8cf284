//! Many threads on a store in a real file.

use crate::work::{self, Worker};
use base::ObjectId;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use store::device::{AlignedBuffer, DeviceOptions, FileDevice, OpenError};
use store::{Core, Store, StoreError, Terms};

const BIG: ObjectId = ObjectId([0xB1; 16]);

pub(crate) fn create(path: &Path, len_bytes: u64) {
    let quiet = &mut |_, _| ControlFlow::Continue(());
    let device = FileDevice::create(path, len_bytes, DeviceOptions::default(), quiet).unwrap();
    Store::format(&device, &work::format()).unwrap();
}

pub(crate) fn device(path: &Path) -> Arc<FileDevice> {
    // Waits for the ring of a process that was killed; more than once on a machine that is busy
    // with other tests.
    let tries = (0..10).map(|_| FileDevice::open(path, DeviceOptions::default()));
    let mut opened = tries.skip_while(|opened| matches!(opened, Err(OpenError::InUse { .. })));
    Arc::new(opened.next().unwrap().unwrap())
}

pub(crate) fn open(path: &Path) -> Store {
    Store::open(device(path), work::options(), work::clock()).unwrap()
}

#[test]
fn threads_share_commits_and_find_what_they_were_acknowledged() {
    const THREADS: u8 = 8;
    const VERSIONS: u64 = 150;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    create(&path, 48 << 20);
    let store = open(&path);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                let mut worker = Worker::begin(thread, store).unwrap();
                for _ in 0..VERSIONS {
                    worker.step(store).unwrap();
                }
            });
        }
    });
    let status = store.status();
    let alone = u64::from(THREADS) * VERSIONS;
    assert!(
        status.commits < alone,
        "{} entries for {alone} commits: none was shared",
        status.commits
    );
    assert!(status.checkpoints > 0 && status.failure.is_none());
    drop(store);
    let core = Core::open(device(&path), work::options()).unwrap();
    work::check(&core).unwrap();
    for thread in 0..THREADS {
        Worker::judge(thread, &core, VERSIONS, VERSIONS).unwrap();
    }
}

#[test]
fn large_buffers_come_back_as_they_went_while_others_are_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    create(&path, 48 << 20);
    let store = open(&path);
    let buffer = |fill: u8| {
        let bytes: Vec<u8> = (0..6_000_123).map(|at| (at / 511) as u8 ^ fill).collect();
        AlignedBuffer::from(&bytes[..])
    };
    for round in 0..8 {
        let object = ObjectId([round; 16]);
        store.create(object, Terms::Default).unwrap();
        store.write_buffer(object, 0, &buffer(round)).unwrap();
        let readings: Vec<_> = (0..6)
            .map(|part| store.start_read(object, part << 20, 1 << 20).unwrap())
            .collect();
        for (part, reading) in readings.into_iter().enumerate() {
            let expected = &buffer(round)[part << 20..];
            let expected = &expected[..expected.len().min(1 << 20)];
            assert_eq!(reading.wait().unwrap()[..], *expected, "part {part}");
            // Not in whole blocks, over the border of allocation units, and beyond the end.
            let at = (part as u64) << 20 | 511;
            let read = store.read_buffer(object, at, 1 << 20).unwrap();
            let expected = &buffer(round)[at as usize..];
            let expected = &expected[..expected.len().min(1 << 20)];
            assert_eq!(read[..], *expected, "part {part}");
        }
        store.delete(object).unwrap();
    }
    store.create(BIG, Terms::Default).unwrap();
    store.write_buffer(BIG, 300, &buffer(77)).unwrap();
    store.stop().unwrap();
    let store = open(&path);
    let mut bytes = vec![1; 7_000_000];
    assert_eq!(store.read(BIG, 0, &mut bytes).unwrap(), 6_000_423);
    assert_eq!(bytes[..300], [0; 300]);
    assert_eq!(bytes[300..6_000_423], buffer(77)[..]);
    let gone = store.info(ObjectId([3; 16]));
    assert!(matches!(gone, Err(StoreError::NotFound(_))));
    let gone = store.read_buffer(ObjectId([3; 16]), 0, 1 << 20);
    assert!(matches!(gone, Err(StoreError::NotFound(_))));
    assert!(store.read_buffer(BIG, 6_000_423, 4096).unwrap().is_empty());
}

#[test]
fn a_full_store_goes_on_when_something_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    create(&path, 16 << 20);
    let store = open(&path);
    let data = vec![5; 1 << 20];
    let mut made = Vec::new();
    let full = loop {
        let object = ObjectId([made.len() as u8; 16]);
        store.create(object, Terms::Default).unwrap();
        made.push(object);
        match store.write(object, 0, &data) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(full, StoreError::NoSpace { .. }), "{full}");
    assert!(made.len() > 8);
    for object in made.drain(..4) {
        store.delete(object).unwrap();
    }
    let last = ObjectId([0xEE; 16]);
    store.create(last, Terms::Default).unwrap();
    store.write(last, 0, &data).unwrap();
    store.commit().unwrap();
    assert_eq!(store.check(true).unwrap().findings, []);
}
