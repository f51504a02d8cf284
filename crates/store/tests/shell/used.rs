//! A reservation that is used up: what is deleted of it can be used again at once, and all of it
//! can be written over where no space is left to move it to.

use crate::work;
use base::ObjectId;
use reservation::{Interval, Moment};
use sim::CrashDisk;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;
use store::device::InOrder;
use store::{Core, Request, Store, StoreError, Terms};

const AU: usize = 128 << 10;
/// Attributes that take some of the records of an object.
const NAMES: u8 = 3;
/// Objects that are tried to be made.
const OBJECTS: u8 = 20;

/// A store and a reservation of it; nothing is free but its allocation units.
fn full_but_for(aus: u64, records: u64) -> (Store, u64) {
    let disk = CrashDisk::new(6 << 20);
    Core::format(&disk, &work::format()).unwrap();
    let queue = Box::new(InOrder::new(Arc::new(disk)).unwrap());
    let store = Store::open_on(queue, work::options(), work::clock()).unwrap();
    let interval = Interval::new(Moment::from_secs(0), Moment::from_secs(1000)).unwrap();
    let request = Request {
        interval,
        aus,
        records,
    };
    let reservation = store.reserve(request).unwrap();
    let other = id(200);
    store.create(other, Terms::Default).unwrap();
    for at in 0.. {
        match store.write(other, at * AU as u64, &[9; AU]) {
            Ok(()) => {}
            Err(StoreError::NoSpace { .. }) => break,
            Err(wrong) => panic!("{wrong}"),
        }
    }
    store.commit().unwrap();
    (store, reservation)
}

fn id(number: u8) -> ObjectId {
    ObjectId([number; 16])
}

#[test]
fn the_space_of_what_was_deleted() {
    let (store, reservation) = full_but_for(6, 40);
    for turn in 0..10 {
        store
            .create(id(turn), Terms::Reserved(reservation))
            .unwrap();
        store.write(id(turn), 0, &vec![turn; 6 * AU]).unwrap();
        let more = store.write(id(turn), 6 * AU as u64, &[turn; AU]);
        assert!(matches!(more, Err(StoreError::Used { .. })), "{more:?}");
        let mut bytes = vec![0; 6 * AU];
        assert_eq!(store.read(id(turn), 0, &mut bytes).unwrap(), bytes.len());
        assert!(bytes.iter().all(|byte| *byte == turn));
        store.delete(id(turn)).unwrap();
    }
    store.stop().unwrap();
}

#[test]
fn the_records_of_what_was_deleted() {
    let (store, reservation) = full_but_for(1, 120);
    let attributes = |object| {
        store.transact(|t| {
            t.create(object, Terms::Reserved(reservation))?;
            (0..NAMES).try_for_each(|name| t.set_attribute(object, &[name; 20], Some(&[1; 900])))
        })
    };
    let mut made = Vec::new();
    for number in 0..OBJECTS {
        match attributes(id(number)) {
            Ok(()) => made.push(number),
            Err(StoreError::Used { unit, .. }) => {
                assert_eq!(unit, "records");
                break;
            }
            Err(wrong) => panic!("{wrong}"),
        }
    }
    assert!(
        !made.is_empty() && made.len() < usize::from(OBJECTS),
        "{made:?}"
    );
    for turn in 0..10 {
        let number = made.remove(0);
        store.delete(id(number)).unwrap();
        let next = 100 + turn;
        attributes(id(next)).unwrap();
        made.push(next);
        assert!(store.read(id(next), 0, &mut [0; 1]).is_ok());
        assert!(store.info(id(number)).is_err());
    }
    store.stop().unwrap();
}

#[test]
fn what_is_written_over_at_once_may_be_more_than_many_log_entries() {
    let (store, reservation) = full_but_for(6, 40);
    let store = Arc::new(store);
    store.create(id(1), Terms::Reserved(reservation)).unwrap();
    store.write(id(1), 0, &vec![1; 6 * AU]).unwrap();
    let (done, written) = mpsc::channel();
    let writers: Vec<_> = (2..5)
        .map(|number| {
            let (store, done) = (Arc::clone(&store), done.clone());
            thread::spawn(move || done.send(store.write(id(1), 1000, &vec![number; 6 * AU - 3000])))
        })
        .collect();
    for _ in &writers {
        // Each goes on after every commit that it waits for, beside the others.
        let written = written.recv_timeout(Duration::from_secs(60));
        written.expect("every writer ends").unwrap();
    }
    let mut bytes = vec![0; 6 * AU];
    assert_eq!(store.read(id(1), 0, &mut bytes).unwrap(), bytes.len());
    let (first, rest) = bytes.split_at(1000);
    let (middle, last) = rest.split_at(6 * AU - 3000);
    assert!(first.iter().chain(last).all(|byte| *byte == 1));
    assert!(middle.iter().all(|byte| (2..5).contains(byte)));
    for writer in writers {
        writer.join().unwrap().unwrap();
    }
}
