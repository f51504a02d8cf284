//! Space that was given back: it is free soon although nobody asks for it, and nobody is refused
//! what a checkpoint would make free.

use crate::work;
use base::{Extent, ObjectId};
use reservation::{Interval, Moment};
use sim::CrashDisk;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use store::device::InOrder;
use store::{Core, Present, Request, Store, Terms};

const AU: usize = 128 << 10;
/// For the store's own thread to come to it, on a busy machine.
const SOON: Duration = Duration::from_secs(60);
const FIRST: ObjectId = ObjectId([1; 16]);
const SECOND: ObjectId = ObjectId([2; 16]);

/// A store half of which was in use and given back in this moment; how much that was, in AUs.
fn given_back() -> (Store, u64) {
    let disk = CrashDisk::new(16 << 20);
    Core::format(&disk, &work::format()).unwrap();
    let queue = Box::new(InOrder::new(Arc::new(disk)).unwrap());
    let store = Store::open_on(queue, work::options(), work::clock()).unwrap();
    let half = store.status().usage.free / 2 + 1;
    store.create(FIRST, Terms::Default).unwrap();
    store.write(FIRST, 0, &vec![1; half as usize * AU]).unwrap();
    store.commit().unwrap();
    store.delete(FIRST).unwrap();
    store.commit().unwrap();
    (store, half)
}

#[test]
fn it_is_free_soon_in_a_store_that_nobody_uses() {
    let (store, half) = given_back();
    let begin = Instant::now();
    loop {
        let usage = store.status().usage;
        if usage.free >= 2 * half - 2 {
            break;
        }
        assert!(begin.elapsed() < SOON, "{usage:?}");
        thread::sleep(Duration::from_millis(20));
    }
    // And then the store is quiet.
    let settled = |store: &Store| {
        let before = store.status().checkpoints;
        thread::sleep(Duration::from_millis(2500));
        store.status().checkpoints == before
    };
    while !settled(&store) {
        assert!(begin.elapsed() < SOON, "it makes checkpoints for ever");
    }
    store.stop().unwrap();
}

#[test]
fn a_reservation_has_it_at_once() {
    let (store, half) = given_back();
    let interval = Interval::new(Moment::from_secs(1), Moment::from_secs(1000)).unwrap();
    let request = Request {
        interval,
        aus: half + 1,
        records: 10,
    };
    store.reserve(request).unwrap();
    store.stop().unwrap();
}

#[test]
fn what_is_allocated_ahead_has_it_at_once() {
    let (store, half) = given_back();
    store.create(SECOND, Terms::Default).unwrap();
    let extent = Extent::new(0, (half + 1) * AU as u64);
    store.allocate(SECOND, extent, Present::Kept, None).unwrap();
    store.stop().unwrap();
}
