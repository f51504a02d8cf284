//! Lifetimes as the administrator and the user choose them, reading only, and growing.

use super::world::{self, id};
use crate::{Core, Lifetimes, Request, StoreError, Terms};
use base::Time;
use reservation::{Interval, Moment};
use sim::CrashDisk;
use std::sync::Arc;

fn at(seconds: u64) -> Time {
    Time::from_secs(seconds)
}

fn secs(seconds: u64) -> Moment {
    Moment::from_secs(seconds)
}

fn store(lifetimes: Lifetimes) -> (Arc<CrashDisk>, Core) {
    let disk = world::formatted(8 << 20);
    let mut store = Core::open(disk.clone(), world::options()).unwrap();
    store.set_lifetimes(lifetimes).unwrap();
    (disk.clone(), Core::open(disk, world::options()).unwrap())
}

#[test]
fn lifetimes_have_a_default_and_a_longest_and_are_renewed_so_often() {
    let (_, mut store) = store(Lifetimes {
        default_seconds: Some(100),
        longest_seconds: Some(1_000),
        renewals_max: Some(2),
    });
    store.create(at(10), id(1), Terms::Default).unwrap();
    assert_eq!(store.info(at(10), id(1)).unwrap().end, secs(110));
    let too_long = store.create(at(10), id(2), Terms::Until(secs(1_011)));
    assert!(matches!(too_long, Err(StoreError::Lifetime { .. })));
    store
        .write(at(10), id(1), 0, &world::pattern(1, 0, 300_000))
        .unwrap();
    for (now, end) in [(100, 200), (150, 400)] {
        store.renew(at(now), id(1), secs(end)).unwrap();
        assert_eq!(store.info(at(now), id(1)).unwrap().end, secs(end));
    }
    store.renew(at(150), id(1), secs(300)).unwrap();
    let third = store.renew(at(160), id(1), secs(500));
    assert!(
        matches!(third, Err(StoreError::NotRenewable(_))),
        "{third:?}"
    );
    let late = store.renew(at(400), id(1), secs(500));
    assert!(matches!(late, Err(StoreError::Expired(_))));
    assert_eq!(store.check(true).unwrap().findings, []);
}

#[test]
fn without_limits_objects_live_for_ever_and_without_renewals_not_longer() {
    let (_, mut store) = store(Lifetimes::default());
    store.create(at(10), id(1), Terms::Default).unwrap();
    assert_eq!(store.info(at(1 << 33), id(1)).unwrap().end, Moment::FOREVER);
    let none = Lifetimes {
        renewals_max: Some(0),
        ..Lifetimes::default()
    };
    store.set_lifetimes(none).unwrap();
    let now = at(1 << 33);
    store
        .create(now, id(2), Terms::Until(secs((1 << 33) + 5)))
        .unwrap();
    let renewed = store.renew(now, id(2), secs((1 << 33) + 9));
    assert!(matches!(renewed, Err(StoreError::NotRenewable(_))));
}

#[test]
fn an_object_of_a_reservation_lives_as_long_or_shorter_and_longer_with_it() {
    let (_, mut store) = store(Lifetimes::default());
    let request = Request {
        interval: Interval::new(secs(10), secs(100)).unwrap(),
        aus: 4,
        records: 4,
    };
    let number = store.reserve(at(10), request).unwrap();
    store
        .create(at(10), id(1), Terms::Reserved(number))
        .unwrap();
    store
        .create(at(10), id(2), Terms::Within(number, secs(50)))
        .unwrap();
    let too_long = store.create(at(10), id(3), Terms::Within(number, secs(101)));
    assert!(matches!(too_long, Err(StoreError::Lifetime { .. })));
    store.extend(at(20), number, secs(200)).unwrap();
    assert_eq!(store.info(at(20), id(1)).unwrap().end, secs(200));
    assert_eq!(store.info(at(20), id(2)).unwrap().end, secs(50));
    store.renew(at(30), id(2), secs(150)).unwrap();
    assert_eq!(store.info(at(149), id(2)).unwrap().end, secs(150));
    assert!(matches!(
        store.info(at(150), id(2)),
        Err(StoreError::Expired(_))
    ));
    let unlimited = Interval::unlimited(secs(150)).unwrap();
    let volume = Request {
        interval: unlimited,
        ..request
    };
    let volume = store.reserve(at(150), volume).unwrap();
    store
        .create(at(150), id(4), Terms::Reserved(volume))
        .unwrap();
    assert_eq!(store.info(at(1 << 40), id(4)).unwrap().end, Moment::FOREVER);
}

#[test]
fn what_is_cut_lives_as_long_as_it_did_and_what_is_made_by_that_no_longer_than_anything() {
    let (_, mut store) = store(Lifetimes {
        default_seconds: Some(100),
        longest_seconds: Some(1_000),
        renewals_max: None,
    });
    store.create(at(10), id(1), Terms::Default).unwrap();
    let data = world::pattern(1, 0, 9_000);
    store.write(at(10), id(1), 0, &data).unwrap();
    for object in [id(1), id(2)] {
        store.cut(at(20), object, 50, 3).unwrap();
    }
    let info = |object| store.info(at(20), object).unwrap();
    let of = |info: crate::ObjectInfo| (info.size_bytes, info.generation, info.end);
    assert_eq!(of(info(id(1))), (50, 3, secs(110)));
    assert_eq!(of(info(id(2))), (0, 3, secs(1_020)));
    // What is over is not cut, and does not come back by that.
    let late = store.cut(at(110), id(1), 0, 4);
    assert!(matches!(late, Err(StoreError::Expired(_))), "{late:?}");
    assert!(store.info(at(1_019), id(2)).is_ok());
    assert!(store.info(at(1_020), id(2)).is_err());
    store.reclaim(at(2_000)).unwrap();
    assert_eq!(store.check(true).unwrap().objects, 0);
    // Where nothing has to end, a cut is for ever.
    store.set_lifetimes(Lifetimes::default()).unwrap();
    store.cut(at(2_000), id(3), 0, 1).unwrap();
    assert_eq!(store.info(at(1 << 33), id(3)).unwrap().end, Moment::FOREVER);
}

#[test]
fn a_full_store_renews_what_it_has() {
    let (_, mut store) = store(Lifetimes::default());
    let data = world::pattern(1, 0, world::AU as usize);
    store
        .create(at(10), id(1), Terms::Until(secs(1_000)))
        .unwrap();
    let full = (0..200).find_map(|au| store.write(at(10), id(1), au * world::AU, &data).err());
    assert!(matches!(full, Some(StoreError::NoSpace { .. })), "{full:?}");
    store.renew(at(11), id(1), secs(5_000)).unwrap();
    assert_eq!(store.check(true).unwrap().findings, []);
}

#[test]
fn whoever_only_reads_writes_nothing() {
    let (disk, mut store) = store(Lifetimes::default());
    store.create(at(10), id(1), Terms::Default).unwrap();
    store.write(at(10), id(1), 0, b"in the log").unwrap();
    store.commit().unwrap();
    drop(store);
    let before = disk.counts();
    let mut store = Core::open_read_only(disk.clone(), world::options()).unwrap();
    let mut bytes = [0; 10];
    store.read(at(10), id(1), 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"in the log");
    assert_eq!(store.check(true).unwrap().findings, []);
    let written = store.write(at(10), id(1), 0, b"x");
    assert!(matches!(written, Err(StoreError::ReadOnly)));
    assert!(matches!(store.checkpoint(), Err(StoreError::ReadOnly)));
    assert_eq!(disk.counts().writes, before.writes);
    assert_eq!(disk.counts().flushes, before.flushes);
}

#[test]
fn a_store_grows_with_its_device() {
    let (disk, mut store) = store(Lifetimes::default());
    store.create(at(10), id(1), Terms::Default).unwrap();
    store
        .write(at(10), id(1), 0, &world::pattern(1, 0, 500_000))
        .unwrap();
    store.commit().unwrap();
    assert_eq!(store.grow().unwrap(), 0);
    drop(store);
    let mut all = vec![0; 8 << 20];
    disk.image().read_at(0, &mut all);
    let mut larger = sim::Image::new(16 << 20);
    larger.write_at(0, &all);
    let larger = Arc::new(CrashDisk::from_image(larger));
    let mut store = Core::open(larger.clone(), world::options()).unwrap();
    let before = store.usage();
    assert_eq!(u64::from(store.grow().unwrap()), (8 << 20) / world::AU);
    assert_eq!(store.usage().total, before.total + (8 << 20) / world::AU);
    let data = world::pattern(2, 0, 12 << 20);
    store.create(at(10), id(2), Terms::Default).unwrap();
    store.write(at(10), id(2), 0, &data).unwrap();
    store.commit().unwrap();
    drop(store);
    let store = Core::open(larger, world::options()).unwrap();
    let mut bytes = vec![0; data.len()];
    store.read(at(10), id(2), 0, &mut bytes).unwrap();
    assert!(bytes == data);
    assert_eq!(store.check(true).unwrap().findings, []);
}

#[test]
fn what_can_be_reserved_is_admitted_and_hardly_more() {
    let (_, mut store) = store(Lifetimes::default());
    let interval = |from, to| Interval::new(secs(from), secs(to)).unwrap();
    let request = |interval, aus| Request {
        interval,
        aus,
        records: aus + 64,
    };
    let all = store.reserved(at(100)).unwrap().aus_for_ever;
    assert!(all > 10, "{all}");
    let hour = interval(100, 3700);
    store.reserve(at(100), request(hour, all / 2)).unwrap();
    let reserved = store.reserved(at(100)).unwrap();
    assert_eq!((reserved.count, reserved.aus), (1, all / 2));
    let rest = reserved.aus_for_an_hour;
    assert!(rest + 2 >= all / 2 && rest < all, "{rest} of {all}");
    assert!(reserved.aus_for_ever <= rest);
    // Whoever has no reservation can use that much of what is free, and no more.
    let free = store.usage().free;
    assert!(all <= free && free > reserved.aus_for_ever, "{free}");
    assert_eq!(store.open_aus(at(100)), reserved.aus_for_ever);
    assert!(store.reserve(at(100), request(hour, rest + 1)).is_err());
    store.reserve(at(100), request(hour, rest)).unwrap();
    assert_eq!(store.reserved(at(100)).unwrap().aus_for_an_hour, 0);
    let later = store.reserved(at(4_000)).unwrap();
    assert_eq!((later.count, later.aus, later.aus_for_ever), (0, 0, all));
}

#[test]
fn who_only_asks_hears_what_would_be_refused_and_takes_nothing() {
    let (_, mut store) = store(Lifetimes::default());
    let request = |from, to, aus| Request {
        interval: Interval::new(secs(from), secs(to)).unwrap(),
        aus,
        records: aus + 64,
    };
    let refused = |answer: Result<(), StoreError>| match answer {
        Err(StoreError::Refused {
            wanted,
            room,
            offer,
        }) => (wanted, room, offer.0),
        other => panic!("{other:?}"),
    };
    let all = store.reserved(at(100)).unwrap().aus_for_ever;
    let before = store.reserved(at(100)).unwrap();
    let hour = |aus| request(100, 3700, aus);
    store.would_reserve(at(100), &[hour(all)]).unwrap();
    assert_eq!(store.reserved(at(100)).unwrap(), before);
    let number = store.reserve(at(100), hour(all)).unwrap();
    let full = store.reserved(at(100)).unwrap();
    let tried = refused(store.would_reserve(at(100), &[hour(2)]));
    assert_eq!(tried, refused(store.reserve(at(100), hour(2)).map(drop)));
    let offer = tried.2.unwrap();
    assert!(offer.start() >= secs(3700), "{offer:?}");
    assert_eq!(store.reserved(at(100)).unwrap(), full);
    store.release(at(100), number).unwrap();
    store.would_reserve(at(100), &[hour(2)]).unwrap();
    // What is asked about together has to fit together.
    let (one, other) = (request(100, 900, all), request(800, 1600, all));
    for alone in [one, other] {
        store.would_reserve(at(100), &[alone]).unwrap();
    }
    let (_, room, _) = refused(store.would_reserve(at(100), &[one, other]));
    assert!(room < all, "{room}");
    // Nothing of that is left behind, also by the one that fitted.
    store.reserve(at(100), hour(all)).unwrap();
    // Where nothing can be reserved, no trial says that it can.
    let over = refused(store.would_reserve(at(100), &[request(10, 20, 1)]));
    assert_eq!(over.1, 0);
}
