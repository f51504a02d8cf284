//! A device that fails under a store: nothing after it is acknowledged, and it is said.

use crate::work;
use base::{DeviceAction, ObjectId};
use sim::{CrashDisk, Effect, Failure, Fault};
use std::sync::Arc;
use std::thread;
use store::device::InOrder;
use store::{Core, Store, StoreError, Terms};

const OBJECT: ObjectId = ObjectId([7; 16]);

fn store() -> (CrashDisk, Store) {
    let disk = CrashDisk::new(16 << 20);
    Core::format(&disk, &work::format()).unwrap();
    let queue = Box::new(InOrder::new(Arc::new(disk.clone())).unwrap());
    let store = Store::open_on(queue, work::options(), work::clock()).unwrap();
    store.create(OBJECT, Terms::Default).unwrap();
    store.write(OBJECT, 0, b"kept").unwrap();
    store.commit().unwrap();
    (disk, store)
}

#[test]
fn a_failed_flush_is_everybodys_error_and_reads_go_on() {
    let (disk, store) = store();
    let effect = Effect::Fails(Failure::InputOutput);
    disk.arm(Fault::once(DeviceAction::Flush, 0, effect));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                // Who comes late is refused at once.
                if store.write(OBJECT, 0, b"lost").is_ok() {
                    let outcome = store.commit();
                    assert!(matches!(outcome, Err(StoreError::Poisoned)), "{outcome:?}");
                }
            });
        }
    });
    let again = store.write(OBJECT, 0, b"x");
    assert!(matches!(again, Err(StoreError::Poisoned)));
    let mut bytes = [0; 4];
    assert_eq!(store.read(OBJECT, 0, &mut bytes).unwrap(), 4);
    let failure = store.status().failure.unwrap();
    assert!(failure.contains("could not be flushed"), "{failure}");
    assert!(store.stop().is_err());
    let core = Core::open(Arc::new(disk), work::options()).unwrap();
    work::check(&core).unwrap();
}

#[test]
fn data_that_was_not_written_is_not_acknowledged() {
    let (disk, store) = store();
    let effect = Effect::Fails(Failure::InputOutput);
    disk.arm(Fault::once(DeviceAction::Write, 0, effect));
    // The write is under way when this returns; its failure is the commit's, also of one that the
    // second half of the change has to wait for.
    let written = store.write(OBJECT, 0, &[8; 122 * 4096]);
    assert!(matches!(written, Ok(()) | Err(StoreError::Poisoned)));
    assert!(matches!(store.commit(), Err(StoreError::Poisoned)));
    let failure = store.status().failure.unwrap();
    assert!(
        failure.contains("a write before it has failed"),
        "{failure}"
    );
}
