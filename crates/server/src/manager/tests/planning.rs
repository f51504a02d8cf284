//! Which devices carry what, by example.

use super::super::book::{Book, Created, Rejected};
use super::super::plan::{Instead, Lack, Short};
use super::super::record::{GUARD_SECONDS, Row};
use super::world::{MIB, device, id, plan_of, terms, wish};
use base::StoreId;
use reservation::Moment;
use wire::message::{ReserveError, ReserveLimits, ReserveWindow};

fn book(devices: Vec<super::super::plan::PlanDevice>) -> Book {
    let mut book = Book::new(Moment::from_secs(1000), ReserveLimits::default());
    book.set_devices(devices);
    book
}

fn admitted(book: &mut Book, number: u64, terms: wire::message::ReserveTerms) -> Row {
    match book.create(id(number), &wish(number, terms), &[]) {
        Ok(Created::New(_)) => book.row(id(number)).unwrap().clone(),
        other => panic!("{other:?}"),
    }
}

fn offers(book: &mut Book, terms: wire::message::ReserveTerms) -> Vec<Instead> {
    match book.create(id(99), &wish(99, terms), &[]) {
        Err(Rejected::Short { offers, .. }) => offers,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_server_carries_what_it_can_before_a_second_one_is_asked() {
    let mut book = book(vec![
        device(1, 1, 100),
        device(1, 2, 100),
        device(2, 3, 150),
    ]);
    let one = admitted(&mut book, 1, terms(80, 1000, 1100));
    assert_eq!((one.slices.len(), one.slices[0].stripe_unit_bytes), (1, 0));
    // 160 MiB/s: two devices of the first server, although one of each would do, too.
    let mut book = self::book(vec![
        device(1, 1, 100),
        device(1, 2, 100),
        device(2, 3, 150),
    ]);
    let two = admitted(&mut book, 1, terms(160, 1000, 1100));
    assert_eq!((two.servers().len(), two.slices.len()), (1, 2));
    assert_eq!(two.slices[0].stripe_unit_bytes, 1 << 20);
    let three = offers(&mut book, terms(200, 1050, 1060));
    assert!(matches!(three[0], Instead::Later(_)), "{three:?}");
}

#[test]
fn what_a_store_lacks_is_laid_over_more_of_them_and_one_that_is_away_is_not_asked() {
    let book = book((1..=3).map(|store| device(store, store, 100)).collect());
    let mut asked = terms(10, 1000, 1100);
    asked.space_bytes = 12 * MIB;
    let wish = wish(1, asked);
    let first = book.judge(&wish, &[]).unwrap();
    let [slice] = first.slices[..] else {
        panic!("{first:?}");
    };
    assert_eq!(slice.aus, 13);
    let lack = |store: u64, aus| Lack {
        store: StoreId([store as u8; 16]),
        aus,
    };
    // None of them has it all, and each has a half.
    let halves = [1, 2, 3].map(|store| lack(store, 7));
    let wider = book.judge(&wish, &halves).unwrap();
    let aus: Vec<u64> = wider.slices.iter().map(|slice| slice.aus).collect();
    assert_eq!(aus, [7, 7]);
    // Said twice, the less counts; one that is away is none of them.
    let less = [lack(1, 7), lack(2, 7), lack(3, 7), lack(1, 0)];
    let others = book.judge(&wish, &less).unwrap();
    let stores: Vec<StoreId> = others.slices.iter().map(|slice| slice.store).collect();
    assert_eq!(stores, [lack(2, 0).store, lack(3, 0).store]);
    let none = [1, 2, 3].map(|store| lack(store, 2));
    assert!(book.judge(&wish, &none).is_err());
}

#[test]
fn equal_devices_take_turns() {
    let mut book = book((1..=4).map(|store| device(store, store, 100)).collect());
    for number in 0..4 {
        admitted(&mut book, number, terms(40, 1000, 1100));
    }
    let stores = (0..4).map(|number| book.row(id(number)).unwrap().slices[0].store);
    let mut stores: Vec<_> = stores.collect();
    stores.sort_unstable();
    stores.dedup();
    assert_eq!(stores.len(), 4);
}

#[test]
fn a_window_is_moved_to_where_it_fits() {
    let mut book = book(vec![device(1, 1, 100)]);
    admitted(&mut book, 1, terms(60, 1000, 2000));
    let mut asked = terms(60, 1500, 1600);
    let found = offers(&mut book, asked.clone());
    let Instead::Later(later) = &found[0] else {
        panic!("{found:?}");
    };
    assert_eq!(later.window.start().as_secs(), 2000 + GUARD_SECONDS);
    asked.window = ReserveWindow::Within {
        earliest_secs: 1200,
        latest_secs: 3000,
        duration_secs: 100,
    };
    let row = admitted(&mut book, 2, asked);
    assert_eq!(row.window.start().as_secs(), 2000 + GUARD_SECONDS);
    let Some(Instead::Slower(slower)) = found.last() else {
        panic!("{found:?}");
    };
    // 60 of 90 MiB/s are taken.
    assert!((28 * MIB..=30 * MIB).contains(&slower.write), "{slower:?}");
}

#[test]
fn recurring_windows_are_admitted_together_or_not_at_all() {
    let mut book = book(vec![device(1, 1, 100)]);
    let mut daily = terms(50, 1000, 1100);
    (daily.every_secs, daily.count) = (86_400, 365);
    let row = admitted(&mut book, 1, daily.clone());
    // Of the device, and of its server's line.
    assert_eq!(row.claims().len(), 2 * 365);
    // One of the second row's windows meets one of the first's.
    let in_the_way = terms(50, 1000 + 100 * 86_400, 1010 + 100 * 86_400);
    let found = offers(&mut book, in_the_way);
    assert!(!found.is_empty());
    let before = book.clone();
    assert!(!offers(&mut book, daily).is_empty());
    assert!(book == before, "nothing of it stays");
}

#[test]
fn nothing_is_promised_of_what_was_not_measured_or_is_not_well() {
    let mut unmeasured = device(1, 1, 100);
    unmeasured.is_measured = false;
    let mut unwell = device(2, 2, 100);
    unwell.is_well = false;
    let mut book = book(vec![unmeasured, unwell]);
    assert!(offers(&mut book, terms(1, 1000, 1100)).is_empty());
}

#[test]
fn files_that_are_there_are_read_where_they_lie() {
    let mut book = book((1..=3).map(|store| device(store, store, 100)).collect());
    let stores = vec![StoreId([1; 16]), StoreId([3; 16])];
    let mut asked = terms(60, 1000, 1100);
    asked.stores.clone_from(&stores);
    let row = admitted(&mut book, 1, asked.clone());
    let found: Vec<_> = row.slices.iter().map(|slice| slice.store).collect();
    assert_eq!(found, stores);
    // The second device is idle, and does not have the file.
    asked.write_bytes_per_second = 170 * MIB;
    assert!(!offers(&mut book, asked).is_empty());
}

#[test]
fn headroom_and_lines_are_kept() {
    let mut book = book(vec![device(1, 1, 100), device(2, 2, 100)]);
    let limits = ReserveLimits {
        unreserved_ppm: 400_000,
        background_ppm: 100_000,
        network_bytes_per_second: 30 * MIB,
        users: Vec::new(),
    };
    book.set_limits(limits.clone()).unwrap();
    // A device would carry 45 MiB/s, a line 30: two servers.
    let row = admitted(&mut book, 1, terms(45, 1000, 1100));
    assert_eq!(row.lines.len(), 2);
    assert!(!offers(&mut book, terms(20, 1000, 1100)).is_empty());
    let too_much = ReserveLimits {
        unreserved_ppm: 900_001,
        ..limits
    };
    let refused = book.set_limits(too_much);
    assert!(matches!(
        refused,
        Err(Rejected::Failed(ReserveError::Invalid, _))
    ));
}

#[test]
fn what_is_more_than_a_whole_store_is_named_as_what_it_would_take() {
    let mut device = device(1, 1, 100);
    device.plan = plan_of(400 * MIB, 40 * MIB);
    let mut book = book(vec![device]);
    for (read, write, expected) in [(0, 80, 200), (800, 0, 200), (400, 40, 200), (200, 100, 300)] {
        let mut terms = terms(write, 1000, 1100);
        terms.read_bytes_per_second = read * MIB;
        let short = match book.create(id(1), &wish(1, terms), &[]) {
            Err(Rejected::Short { short, .. }) => short,
            other => panic!("{other:?}"),
        };
        let Short::Of { wanted, .. } = short else {
            panic!("{short:?}")
        };
        let percent = wanted / 10_000;
        let range = expected - 1..expected + 10;
        assert!(range.contains(&percent), "{read} and {write}: {percent} %");
    }
}

#[test]
fn questions_without_sense_are_refused_with_the_reason() {
    let mut book = book(vec![device(1, 1, 100)]);
    admitted(&mut book, 1, terms(1, 1000, 1100));
    let good = terms(1, 1000, 1100);
    let mut bad = |change: &dyn Fn(&mut super::super::ask::Wish)| {
        let mut wish = wish(2, good.clone());
        change(&mut wish);
        match book.create(id(2), &wish, &[]) {
            Err(Rejected::Failed(code, _)) => code,
            other => panic!("{other:?}"),
        }
    };
    use ReserveError::{Exists, Invalid, Over};
    assert_eq!(bad(&|wish| wish.name = String::new()), Invalid);
    assert_eq!(bad(&|wish| wish.name = "a/b".into()), Invalid);
    assert_eq!(bad(&|wish| wish.name = "0".repeat(32)), Invalid);
    assert_eq!(bad(&|wish| wish.name = "run1".into()), Exists);
    assert_eq!(bad(&|wish| wish.terms.write_bytes_per_second = 0), Invalid);
    assert_eq!(
        bad(&|wish| wish.terms.write_bytes_per_second = u64::MAX),
        Invalid
    );
    assert_eq!(bad(&|wish| wish.terms.burst_millis = 1001), Invalid);
    assert_eq!(bad(&|wish| wish.terms.count = 0), Invalid);
    assert_eq!(bad(&|wish| wish.terms.count = u32::MAX), Invalid);
    assert_eq!(
        bad(&|wish| (wish.terms.count, wish.terms.every_secs) = (2, 103)),
        Invalid
    );
    let window = |start_secs, end_secs| ReserveWindow::At {
        start_secs,
        end_secs,
    };
    assert_eq!(bad(&|wish| wish.terms.window = window(1100, 1100)), Invalid);
    assert_eq!(
        bad(&|wish| wish.terms.window = window(1000, u64::MAX)),
        Invalid
    );
    assert_eq!(bad(&|wish| wish.terms.window = window(900, 1000)), Over);
}
