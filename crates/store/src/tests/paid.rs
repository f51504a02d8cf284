//! Objects that nobody reserved for, with space that somebody did: what a reservation pays for.

use super::world::{self, AU, id};
use crate::{Core, Payer, Request, StoreError, Terms};
use base::Time;
use reservation::{Interval, Moment};
use sim::CrashDisk;
use std::sync::Arc;

const AUS: u64 = 20;

fn at(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

fn payer(reservation: u64, is_limit: bool) -> Option<Payer> {
    Some(Payer {
        reservation,
        is_limit,
    })
}

/// A store with a reservation from second 10 to an end; its number.
fn reserved(end: Moment) -> (Arc<CrashDisk>, Core, u64) {
    let disk = world::formatted(6 << 20);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    let request = Request {
        interval: Interval::new(Moment::from_secs(10), end).unwrap(),
        aus: AUS,
        records: 4,
    };
    let number = store.reserve(at(10), request).unwrap();
    (disk, store, number)
}

/// Writes to an object of its own until there is no room.
fn fill(store: &mut Core, now: Time) {
    store.create(now, id(9), Terms::Default).unwrap();
    let data = world::pattern(9, 0, AU as usize);
    let full = (0..200).find_map(|au| store.write(now, id(9), au * AU, &data).err());
    assert!(matches!(full, Some(StoreError::NoSpace { .. })), "{full:?}");
}

#[test]
fn what_was_paid_for_is_there_in_a_full_store_and_outlives_the_reservation() {
    let (disk, mut store, number) = reserved(Moment::FOREVER);
    fill(&mut store, at(10));
    let paying = payer(number, false);
    store
        .create_from(at(10), id(1), Terms::Default, paying)
        .unwrap();
    let data = world::pattern(1, 0, AU as usize);
    for au in 0..AUS - 1 {
        let written = store.write_from(at(10), id(1), au * AU, &data, paying);
        written.unwrap_or_else(|error| panic!("{au}: {error}"));
    }
    let left = store.reservations(number, 1).unwrap()[0];
    assert_eq!((left.request.aus, left.aus_used), (1, 0));
    assert_eq!(left.request.records, 3);
    assert_eq!(store.info(at(10), id(1)).unwrap().reservation, None);
    // Writing again over what is there takes nothing.
    store.write_from(at(11), id(1), 0, &data, paying).unwrap();
    store.commit().unwrap();
    // The same after the calendar was made anew from the records.
    let mut store = Core::open(disk, world::options()).unwrap();
    let last = (AUS - 1) * AU;
    store
        .write_from(at(12), id(1), last, &data, paying)
        .unwrap();
    let more = store.write_from(at(12), id(1), AUS * AU, &data, paying);
    assert!(matches!(more, Err(StoreError::NoSpace { .. })), "{more:?}");
    let limited = store.write_from(at(12), id(1), AUS * AU, &data, payer(number, true));
    assert!(
        matches!(limited, Err(StoreError::Used { .. })),
        "{limited:?}"
    );
    store.release(at(13), number).unwrap();
    store.reclaim(at(13)).unwrap();
    let mut found = vec![0; (AUS * AU) as usize];
    let late = at(1 << 33);
    assert_eq!(store.read(late, id(1), 0, &mut found).unwrap(), found.len());
    assert!(found.chunks(AU as usize).all(|au| au == data));
    assert_eq!(store.check(true).unwrap().findings, []);
    let gone = store.write_from(late, id(1), AUS * AU, &data, payer(number, true));
    assert!(matches!(gone, Err(StoreError::NotHeld(_))), "{gone:?}");
}

#[test]
fn what_nobody_took_is_free_when_the_reservation_is_released() {
    let (_, mut store, number) = reserved(Moment::FOREVER);
    let paying = payer(number, true);
    store
        .create_from(at(10), id(1), Terms::Default, paying)
        .unwrap();
    let data = world::pattern(1, 0, 3 * AU as usize);
    store.write_from(at(10), id(1), 0, &data, paying).unwrap();
    let before = store.reserved(at(10)).unwrap().aus_for_ever;
    store.release(at(20), number).unwrap();
    store.advance(at(30));
    // Behind the guard.
    let after = store.reserved(at(30)).unwrap().aus_for_ever;
    assert!(after >= before + AUS - 3, "{before} {after}");
    store.delete(at(30), id(1)).unwrap();
    store.reclaim(at(30)).unwrap();
    store.advance(at(40));
    let empty = store.reserved(at(40)).unwrap().aus_for_ever;
    assert!(empty >= after + 3, "{after} {empty}");
    assert_eq!(store.check(true).unwrap().findings, []);
}

#[test]
fn space_that_is_promised_to_others_later_is_not_given_for_good() {
    let (_, mut store, number) = reserved(Moment::from_secs(100));
    // All of the rest and what is free again then.
    let later = Moment::from_secs(200);
    let all = Request {
        interval: Interval::new(later, Moment::FOREVER).unwrap(),
        aus: 0,
        records: 0,
    };
    let most = (0..200)
        .rev()
        .find(|aus| store.reserve(at(10), Request { aus: *aus, ..all }).is_ok());
    assert!(most.is_some_and(|aus| aus > AUS), "{most:?}");
    let data = world::pattern(1, 0, AU as usize);
    let paying = payer(number, true);
    let made = store.create_from(at(10), id(1), Terms::Default, paying);
    let written = made.and_then(|()| {
        (0..AUS).try_for_each(|au| store.write_from(at(10), id(1), au * AU, &data, paying))
    });
    assert!(
        matches!(written, Err(StoreError::NoSpace { .. })),
        "{written:?}"
    );
    let left = store.reservations(number, 1).unwrap()[0];
    assert!(
        left.request.aus + 4 >= AUS,
        "what failed takes nothing: {left:?}"
    );
    assert_eq!(store.check(true).unwrap().findings, []);
}

#[test]
fn what_is_reserved_later_pays_for_nothing_yet() {
    let disk = world::formatted(6 << 20);
    let mut store = Core::open(disk, world::options()).unwrap();
    let request = Request {
        interval: Interval::new(Moment::from_secs(50), Moment::FOREVER).unwrap(),
        aus: AUS,
        records: 4,
    };
    let number = store.reserve(at(10), request).unwrap();
    let early = store.create_from(at(10), id(1), Terms::Default, payer(number, true));
    assert!(matches!(early, Err(StoreError::NotHeld(_))), "{early:?}");
    store
        .create_from(at(10), id(1), Terms::Default, payer(number, false))
        .unwrap();
    let left = store.reservations(number, 1).unwrap()[0];
    assert_eq!(left.request, request);
}
