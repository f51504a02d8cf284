//! Thousands that are over at the same moment: giving back what they had costs so much for each of
//! them, however many they are; and they are no hole in a list.

use super::world;
use crate::core::take_looks;
use crate::{Core, Present, Request, Terms};
use base::{Extent, ObjectId, Time};
use reservation::{Interval, Moment};

const RESERVATIONS: u64 = 2_000;
/// Records that are looked at for each thing that is given back: to find it, and to find that there
/// is nothing else to do first.
const LOOKS_MAX: u64 = 40;

fn at(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

/// A store in which so much is in no checkpoint.
fn store() -> Core {
    let mut format = world::format(1);
    format.sizes.log_bytes = 16 << 20;
    let disk = world::formatted_with(240 << 20, &format);
    Core::open(disk, world::options()).unwrap()
}

/// Reserves up to this second, with an object.
fn reserve(store: &mut Core, object: u64, end: u64) -> u64 {
    let request = Request {
        interval: Interval::new(Moment::from_secs(10), Moment::from_secs(end)).unwrap(),
        aus: 0,
        records: 1,
    };
    let number = store.reserve(at(10), request).unwrap();
    let object = ObjectId(u128::from(object).to_le_bytes());
    let made = store.create(at(10), object, Terms::Reserved(number));
    made.unwrap();
    number
}

#[test]
fn reservations_that_end_in_the_same_second_are_removed_one_as_quickly_as_the_other() {
    let mut store = store();
    for object in 0..RESERVATIONS {
        reserve(&mut store, object, 100);
    }
    // What is removed hides what the tree has, and is hidden itself by nothing.
    store.checkpoint().unwrap();
    take_looks();
    store.reclaim(at(100)).unwrap();
    let looks = take_looks();
    println!("{looks} looks for {RESERVATIONS} reservations");
    assert!(looks < LOOKS_MAX * RESERVATIONS, "{looks} looks");
    assert_eq!(store.reserved(at(100)).unwrap().count, 0);
    assert_eq!(store.list(at(10), ObjectId([0; 16]), 10).unwrap().0, []);
    assert_eq!(store.check(true).unwrap().findings, []);
    // What ends later is found, though it was made when the others had been looked for.
    reserve(&mut store, 1, 200);
    reserve(&mut store, 2, 150);
    store.reclaim(at(150)).unwrap();
    assert_eq!(store.reserved(at(150)).unwrap().count, 1);
    store.reclaim(at(200)).unwrap();
    assert_eq!(store.reserved(at(200)).unwrap().count, 0);
    assert_eq!(store.check(true).unwrap().findings, []);
}

#[test]
fn an_object_of_many_units_is_given_back_one_as_quickly_as_the_other() {
    const UNITS: u64 = 2_000;
    let mut store = store();
    let object = ObjectId([7; 16]);
    store.create(at(10), object, Terms::Default).unwrap();
    let all = Extent::new(0, UNITS * world::AU);
    let given = store.allocate(at(10), object, all, Present::Kept, None);
    given.unwrap();
    store.checkpoint().unwrap();
    store.delete(at(10), object).unwrap();
    take_looks();
    store.reclaim(at(10)).unwrap();
    let looks = take_looks();
    println!("{looks} looks for {UNITS} units");
    assert!(looks < 8 * UNITS, "{looks} looks");
    for _ in 0..2 {
        store.checkpoint().unwrap();
    }
    assert_eq!(store.usage().used, 0);
    assert_eq!(store.check(true).unwrap().findings, []);
}

#[test]
fn a_page_of_reservations_is_full_whatever_is_over_between_them() {
    let mut store = store();
    let numbers: Vec<u64> = (0..200)
        .map(|object| reserve(&mut store, object, if object % 50 == 7 { 500 } else { 100 }))
        .collect();
    let lasting: Vec<u64> = numbers.iter().copied().skip(7).step_by(50).collect();
    for is_reclaimed in [false, true] {
        if is_reclaimed {
            store.reclaim(at(100)).unwrap();
        }
        store.advance(at(100));
        let mut found = Vec::new();
        for page in 0..4 {
            let from = found.last().map_or(0, |last| last + 1);
            let some = store.reservations(from, 1).unwrap();
            assert_eq!(some.len(), 1, "page {page}");
            found.extend(some.iter().map(|there| there.reservation));
        }
        assert_eq!(found, lasting);
        let next = found.last().map_or(0, |last| last + 1);
        assert_eq!(store.reservations(next, 1).unwrap(), []);
        let all = store.reservations(0, 3).unwrap();
        let all: Vec<u64> = all.iter().map(|there| there.reservation).collect();
        assert_eq!(all, lasting[..3]);
    }
}

/// Removals are short in the log, and cost as much as others to replay.
#[test]
fn changes_that_are_short_are_not_left_for_an_opening_to_replay_without_a_bound() {
    const UNITS: u64 = 3_000;
    let format = world::format(1);
    let changes_max = format.sizes.log_bytes / 3 / 64;
    let disk = world::formatted_with(240 << 20, &format);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    let object = ObjectId([7; 16]);
    store.create(at(10), object, Terms::Default).unwrap();
    let all = Extent::new(0, UNITS * world::AU);
    let given = store.allocate(at(10), object, all, Present::Kept, None);
    given.unwrap();
    store.checkpoint().unwrap();
    let epoch = store.superblock().epoch;
    store.delete(at(10), object).unwrap();
    store.reclaim(at(10)).unwrap();
    store.commit().unwrap();
    assert!(store.superblock().epoch > epoch, "the log alone is short");
    drop(store);
    let store = Core::open_read_only(disk, world::options()).unwrap();
    let changes = store.overlay.records.len() as u64;
    println!("{changes} changes of {} removals are replayed", 2 * UNITS);
    assert!(changes < changes_max && changes < 2 * UNITS);
    assert_eq!(store.usage().used, 0);
}
