//! A commit beside writes that are under way: it waits for the data that its entry speaks of, and
//! for nothing else.

use crate::work;
use base::{BlockDevice, DeviceError, ObjectId, Time};
use sim::CrashDisk;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use store::device::{Completion, Done, InOrder, Queue, Request};
use store::{Core, Store, StoreError, Terms};

const OBJECT: ObjectId = ObjectId([7; 16]);
const PIECE: u64 = 4096;
/// More than what goes through the log.
const LARGE: usize = 128 << 10;

/// Keeps what is submitted while it is shut: the device takes its time.
struct Slow {
    inner: InOrder<CrashDisk>,
    /// None while it is open.
    kept: Mutex<Option<Vec<(Request, Completion)>>>,
}

impl Slow {
    fn kept(&self) -> MutexGuard<'_, Option<Vec<(Request, Completion)>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shut(&self) {
        *self.kept() = Some(Vec::new());
    }

    fn open(&self) {
        for (request, completion) in self.kept().take().unwrap_or_default() {
            self.inner.submit(request, completion).unwrap();
        }
    }

    /// Answers the first request that it keeps: it has failed.
    fn fail_one(&self) {
        let (request, completion) = self.kept().as_mut().unwrap().remove(0);
        let result = Err(DeviceError::Failed {
            action: request.action(),
            extent: request.extent(),
            source: io::ErrorKind::Other.into(),
        });
        completion(Done { request, result });
    }

    fn is_keeping(&self) -> bool {
        self.kept().as_ref().is_some_and(|kept| !kept.is_empty())
    }
}

/// The store's share of it.
struct Shared(Arc<Slow>);

impl Queue for Shared {
    fn device(&self) -> &dyn BlockDevice {
        self.0.inner.device()
    }

    fn submit(&self, request: Request, completion: Completion) -> Result<(), DeviceError> {
        match &mut *self.0.kept() {
            Some(kept) => kept.push((request, completion)),
            None => self.0.inner.submit(request, completion)?,
        }
        Ok(())
    }

    fn read_now(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.0.inner.read_now(offset, into)
    }

    fn stop(&self) -> bool {
        self.0.open();
        self.0.inner.stop()
    }
}

fn store() -> (CrashDisk, Arc<Slow>, Store) {
    let disk = CrashDisk::new(16 << 20);
    Core::format(&disk, &work::format()).unwrap();
    let slow = Arc::new(Slow {
        inner: InOrder::new(Arc::new(disk.clone())).unwrap(),
        kept: Mutex::new(None),
    });
    let queue = Box::new(Shared(slow.clone()));
    let store = Store::open_on(queue, work::options(), work::clock()).unwrap();
    store.create(OBJECT, Terms::Default).unwrap();
    store.write(OBJECT, 0, &[1; LARGE]).unwrap();
    store.commit().unwrap();
    (disk, slow, store)
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What a store has of the object that is opened from what the disk has now.
fn after_a_loss_of_power(disk: &CrashDisk, offset: u64, len: usize) -> Vec<u8> {
    let lost = CrashDisk::from_image(disk.image());
    let core = Core::open(Arc::new(lost), work::options()).unwrap();
    work::check(&core).unwrap();
    let mut bytes = vec![0; len];
    let read = core.read(Time::ZERO, OBJECT, offset, &mut bytes).unwrap();
    bytes.truncate(read);
    bytes
}

#[test]
fn a_commit_does_not_wait_for_what_a_checkpoint_writes() {
    let (disk, slow, store) = store();
    for piece in 0..8 {
        store.write(OBJECT, piece * 3 * PIECE, &[2; 4096]).unwrap();
    }
    store.commit().unwrap();
    slow.shut();
    thread::scope(|scope| {
        let checkpoint = scope.spawn(|| store.checkpoint());
        wait_until("a checkpoint writes", || slow.is_keeping());
        let commit = scope.spawn(|| {
            store.write(OBJECT, PIECE, &[3; 4096]).unwrap();
            store.commit()
        });
        wait_until("a commit goes on", || commit.is_finished());
        commit.join().unwrap().unwrap();
        assert!(!checkpoint.is_finished());
        assert_eq!(after_a_loss_of_power(&disk, PIECE, 4096), [3; 4096]);
        assert_eq!(after_a_loss_of_power(&disk, 0, 4096), [2; 4096]);
        slow.open();
        checkpoint.join().unwrap().unwrap();
    });
    assert_eq!(after_a_loss_of_power(&disk, PIECE, 4096), [3; 4096]);
    store.stop().unwrap();
}

#[test]
fn a_commit_waits_for_the_data_that_its_entry_speaks_of() {
    let (disk, slow, store) = store();
    slow.shut();
    store.write(OBJECT, LARGE as u64, &[4; LARGE]).unwrap();
    assert!(slow.is_keeping(), "it goes into place");
    let before = disk.position();
    thread::scope(|scope| {
        let commit = scope.spawn(|| store.commit());
        thread::sleep(Duration::from_millis(100));
        assert!(!commit.is_finished(), "the device does not have it");
        assert_eq!(disk.position(), before, "nor is an entry written before");
        slow.open();
        commit.join().unwrap().unwrap();
    });
    let kept = after_a_loss_of_power(&disk, LARGE as u64, LARGE);
    assert!(kept == [4; LARGE]);
    store.stop().unwrap();
}

#[test]
fn a_commit_fails_once_something_beside_it_has_failed() {
    let (_, slow, store) = store();
    for piece in 0..8 {
        store.write(OBJECT, piece * 3 * PIECE, &[2; 4096]).unwrap();
    }
    store.commit().unwrap();
    slow.shut();
    thread::scope(|scope| {
        let checkpoint = scope.spawn(|| store.checkpoint());
        wait_until("a checkpoint writes", || slow.is_keeping());
        slow.fail_one();
        // The checkpoint has not found out yet: the rest of it is under way.
        store.write(OBJECT, PIECE, &[3; 4096]).unwrap();
        assert!(matches!(store.commit(), Err(StoreError::Poisoned)));
        slow.open();
        assert!(checkpoint.join().unwrap().is_err());
    });
    let failure = store.status().failure.unwrap();
    assert!(
        failure.contains("a write before it has failed"),
        "{failure}"
    );
    assert!(store.stop().is_err());
}
