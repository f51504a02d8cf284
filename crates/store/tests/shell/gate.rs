//! The store's own I/O asks a gate, and users' does not; a write says when the device has it.

use crate::file;
use base::ObjectId;
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use store::device::Direction;
use store::{Gate, Pass, Terms};

const OBJECT: ObjectId = ObjectId([7; 16]);
const UNIT: usize = 1 << 20;
/// Not a multiple of what has one checksum.
const PASS_BYTES: u64 = (100 << 10) + 1;

/// Counts; lets nothing through while it is shut.
#[derive(Default)]
struct Counting {
    is_shut: Mutex<bool>,
    changed: Condvar,
    bytes: AtomicU64,
    read_bytes: AtomicU64,
    /// Largest pass for reading.
    largest: AtomicU64,
    waiting: AtomicU64,
    inside: Arc<AtomicU64>,
    stalls: AtomicU64,
}

struct Inside(Arc<AtomicU64>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Counting {
    fn shut(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.changed.notify_all();
    }

    fn entered(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }
}

impl Gate for Counting {
    fn enter(&self, direction: Direction, bytes: u64) -> Pass {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let guard = self.is_shut.lock().unwrap();
        drop(self.changed.wait_while(guard, |is_shut| *is_shut).unwrap());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let counter = match direction {
            Direction::Read => {
                self.largest.fetch_max(bytes, Ordering::SeqCst);
                &self.read_bytes
            }
            Direction::Write => &self.bytes,
        };
        counter.fetch_add(bytes, Ordering::SeqCst);
        self.inside.fetch_add(1, Ordering::SeqCst);
        Box::new(Inside(self.inside.clone()))
    }

    fn pass_bytes_max(&self, _: Direction) -> u64 {
        PASS_BYTES
    }

    fn on_stall(&self) {
        self.stalls.fetch_add(1, Ordering::SeqCst);
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn commits_and_checkpoints_pass_the_gate_and_users_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    file::create(&path, 48 << 20);
    let store = file::open(&path);
    let gate = Arc::new(Counting::default());
    store.set_gate(gate.clone());
    gate.shut(true);
    store.create(OBJECT, Terms::Default).unwrap();
    let data = Bytes::from(vec![3; UNIT]);
    let writing = store.start_write(OBJECT, 0, &data, None).unwrap();
    writing.wait();
    let mut read = vec![0; UNIT];
    assert_eq!(store.read(OBJECT, 0, &mut read).unwrap(), UNIT);
    assert!(read == data);
    assert_eq!(gate.entered(), 0, "users go without asking");
    thread::scope(|scope| {
        let commit = scope.spawn(|| store.commit().unwrap());
        wait_until("a commit asks", || gate.waiting.load(Ordering::SeqCst) > 0);
        thread::sleep(Duration::from_millis(20));
        assert!(!commit.is_finished(), "and waits");
        gate.shut(false);
        commit.join().unwrap();
    });
    let committed = gate.entered();
    assert!(committed > 0);
    // Small pieces ride in the log and go into place with a checkpoint.
    for at in 0..64 {
        store.write(OBJECT, at * 8192 + 100, b"small").unwrap();
    }
    store.commit().unwrap();
    gate.shut(true);
    thread::scope(|scope| {
        let checkpoint = scope.spawn(|| store.checkpoint().unwrap());
        wait_until("a checkpoint asks", || {
            gate.waiting.load(Ordering::SeqCst) > 0
        });
        gate.shut(false);
        checkpoint.join().unwrap();
    });
    assert!(gate.entered() > committed + 64 * 4096, "its pages, too");
    let end = Bytes::from_static(b"the end");
    let (offset, writing) = store.start_append(OBJECT, &end, None).unwrap();
    writing.wait();
    assert_eq!(offset, UNIT as u64);
    store.commit().unwrap();
    store.stop().unwrap();
    assert_eq!(
        gate.inside.load(Ordering::SeqCst),
        0,
        "every pass came back"
    );
}

#[test]
fn a_scrub_reads_in_parts_that_the_gate_allows_when_it_lets_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    file::create(&path, 16 << 20);
    let store = file::open(&path);
    let gate = Arc::new(Counting::default());
    store.set_gate(gate.clone());
    store.create(OBJECT, Terms::Default).unwrap();
    store.write(OBJECT, 0, &vec![3; UNIT]).unwrap();
    store.commit().unwrap();
    gate.shut(true);
    let go_on = &mut |_, _| std::ops::ControlFlow::Continue(());
    thread::scope(|scope| {
        let scrub = scope.spawn(|| store.scrub(None, go_on).unwrap());
        wait_until("it asks", || gate.waiting.load(Ordering::SeqCst) > 0);
        thread::sleep(Duration::from_millis(20));
        assert!(!scrub.is_finished(), "and waits");
        gate.shut(false);
        let report = scrub.join().unwrap();
        assert_eq!(report.verified_bytes, UNIT as u64);
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    });
    assert!(gate.read_bytes.load(Ordering::SeqCst) >= UNIT as u64);
    assert!(gate.largest.load(Ordering::SeqCst) <= PASS_BYTES);
    store.stop().unwrap();
    assert_eq!(gate.inside.load(Ordering::SeqCst), 0);
}

#[test]
fn a_change_that_waits_for_the_store_itself_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    file::create(&path, 16 << 20);
    let store = file::open(&path);
    let gate = Arc::new(Counting::default());
    store.set_gate(gate.clone());
    store.create(OBJECT, Terms::Default).unwrap();
    // More small pieces than the log holds before a checkpoint.
    let data = vec![1; 3000];
    for at in 0..3000 {
        store.write(OBJECT, at % 500 * 4096 + 7, &data).unwrap();
    }
    let stalls = gate.stalls.load(Ordering::SeqCst);
    assert!(stalls > 0, "it never waited");
    store.stop().unwrap();
    assert_eq!(gate.inside.load(Ordering::SeqCst), 0);
}
