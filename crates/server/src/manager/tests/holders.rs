//! What one user can have, so that others have room; and where what is reserved can lie.

use super::super::ask::check;
use super::super::book::{Book, Created, Rejected};
use super::super::desk::{Asker, Place};
use super::super::plan::Short;
use super::super::record::{GUARD_SECONDS, RowState, digest};
use super::super::{Resource, ask::Wish};
use super::crashes::create;
use super::fake::{Fake, ask, manager};
use super::world::{MIB, Numbers, VOLUME, device, id, terms, wish};
use base::StoreId;
use base::limits::{
    RESERVE_CONFIRMATIONS_MAX, RESERVE_HOLDER_LIVE_MAX, RESERVE_HOLDER_RECORDS_MAX,
};
use reservation::Moment;
use std::sync::Arc;
use wire::message::{ReserveError, ReserveLimits, ReserveReply, ReserveRequest};

fn book(stores: u8) -> Book {
    let mut book = Book::new(Moment::from_secs(1000), ReserveLimits::default());
    book.set_devices(
        (1..=stores)
            .map(|store| device(store, store, 100))
            .collect(),
    );
    book
}

fn admit(book: &mut Book, number: u64, wish: &Wish) {
    let created = book.create(id(number), wish, &[]);
    assert!(matches!(created, Ok(Created::New(_))), "{created:?}");
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(result: Result<T, Rejected>, wanted: ReserveError) {
    let is_it = matches!(&result, Err(Rejected::Failed(code, _)) if *code == wanted);
    assert!(is_it, "{result:?}");
}

/// Little of a second each, one after the other.
fn little(number: u64) -> Wish {
    let mut asked = terms(0, 2000 + 10 * number, 2001 + 10 * number);
    asked.write_bytes_per_second = 4096;
    wish(number, asked)
}

#[test]
fn who_has_many_reservations_leaves_room_for_others() {
    let mut book = book(1);
    let live = RESERVE_HOLDER_LIVE_MAX as u64;
    for number in 0..live {
        assert_eq!(book.check_holder(1000), Ok(()));
        admit(&mut book, number, &little(number));
    }
    is_refused(book.check_holder(1000), ReserveError::Limit);
    assert_eq!(book.check_holder(1001), Ok(()));
    // Those that are cancelled count, until their tickets are over.
    for number in 0..10 {
        book.leave(id(number), true).unwrap();
        book.gone(id(number)).unwrap();
    }
    is_refused(book.check_holder(1000), ReserveError::Limit);
    book.advance(Moment::from_secs(2001 + GUARD_SECONDS));
    assert_eq!(book.check_holder(1000), Ok(()));
    // What is over counts with all others.
    for number in live..RESERVE_HOLDER_RECORDS_MAX as u64 {
        admit(&mut book, number, &little(number));
    }
    let end = little(RESERVE_HOLDER_RECORDS_MAX as u64).terms;
    let wire::message::ReserveWindow::At { end_secs, .. } = end.window else {
        panic!("{end:?}");
    };
    book.advance(Moment::from_secs(end_secs));
    is_refused(book.check_holder(1000), ReserveError::Limit);
    book.remove(id(0)).unwrap();
    assert_eq!(book.check_holder(1000), Ok(()));
}

#[test]
fn everybody_is_shown_what_is_his_page_by_page() {
    let mut book = book(1);
    for number in 0..40 {
        let mut wish = little(number);
        wish.holder = [1000, 1001, 999][number as usize % 3];
        admit(&mut book, number, &wish);
    }
    for holder in [999, 1000, 1001, 5] {
        let all = book
            .rows_after(None)
            .filter(|(_, row)| row.holder == holder);
        let mut expected: Vec<_> = all.map(|(id, _)| id).collect();
        let ids = |after| book.rows_of(holder, after).map(|(id, _)| id);
        assert_eq!(ids(None).collect::<Vec<_>>(), expected);
        if let Some(after) = expected.get(3).copied() {
            let rest = expected.split_off(4);
            assert_eq!(ids(Some(after)).collect::<Vec<_>>(), rest);
        }
    }
}

#[test]
fn a_user_is_refused_what_would_be_more_than_his_part_and_told_again_what_he_has() {
    let directory = tempfile::tempdir().unwrap();
    let servers = Fake::new(1000, 1);
    let manager = Arc::new(manager(directory.path(), &servers));
    let admin = Asker {
        is_admin: true,
        uid: 0,
    };
    let user = Asker {
        is_admin: false,
        uid: 5,
    };
    let limits = ReserveLimits {
        users: vec![5],
        ..ReserveLimits::default()
    };
    let dry_run = false;
    let set = ReserveRequest::SetLimits { limits, dry_run };
    ask(&manager, admin, VOLUME, set);
    let request = |number: u64| {
        let ReserveRequest::Create { volume, .. } = create(0, terms(1, 0, 1)) else {
            unreachable!();
        };
        ReserveRequest::Create {
            request: id(number).0,
            volume,
            name: format!("run{number}"),
            terms: little(number).terms,
            dry_run,
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let all = (0..RESERVE_HOLDER_LIVE_MAX as u64).map(|number| {
        let (manager, request) = (manager.clone(), request(number));
        async move { manager.ask(user, VOLUME, request).await }
    });
    let mut asked = tokio::task::JoinSet::new();
    let runtime = runtime.unwrap();
    for one in all {
        asked.spawn_on(one, runtime.handle());
    }
    let replies = runtime.block_on(asked.join_all());
    let is_made = |reply: &ReserveReply| matches!(reply, ReserveReply::Reserved { .. });
    assert!(replies.iter().all(is_made), "{replies:?}");
    let more = request(RESERVE_HOLDER_LIVE_MAX as u64);
    let refused = ask(&manager, user, VOLUME, more.clone());
    let is_limit =
        matches!(refused, ReserveReply::Failed { code, .. } if code == ReserveError::Limit);
    assert!(is_limit);
    assert!(is_made(&ask(&manager, user, VOLUME, request(7))), "again");
    assert!(is_made(&ask(&manager, admin, VOLUME, more)));
}

#[test]
fn stores_are_asked_for_space_a_bounded_number_of_times() {
    let mut book = book(17);
    let mut asked = terms(1, 2000, 2100);
    asked.space_bytes = 17 * MIB;
    asked.stores = (1..=17).map(|store| StoreId([store; 16])).collect();
    (asked.every_secs, asked.count) = (86_400, 60);
    const { assert!(17 * 60 <= RESERVE_CONFIRMATIONS_MAX && 17 * 61 > RESERVE_CONFIRMATIONS_MAX) };
    admit(&mut book, 1, &wish(1, asked.clone()));
    asked.count = 61;
    is_refused(
        book.judge(&wish(2, asked.clone()), &[]),
        ReserveError::Limit,
    );
    // Without space nobody is asked.
    asked.space_bytes = 0;
    admit(&mut book, 2, &wish(2, asked));
}

#[test]
fn what_was_reserved_before_lines_were_counts_when_they_are() {
    let mut book = book(1);
    admit(&mut book, 1, &wish(1, terms(20, 2000, 2100)));
    let limits = ReserveLimits {
        network_bytes_per_second: 30 * MIB,
        ..ReserveLimits::default()
    };
    book.set_limits(limits).unwrap();
    let more = book.judge(&wish(2, terms(20, 2000, 2100)), &[]);
    let Err(Rejected::Short { short, .. }) = more else {
        panic!("{more:?}");
    };
    let line = Resource::Line(device(1, 1, 1).server);
    assert!(
        matches!(short, Short::Of { resource, .. } if resource == line),
        "{short:?}"
    );
    admit(&mut book, 3, &wish(3, terms(10, 2000, 2100)));
}

#[test]
fn what_is_reserved_for_a_volume_lies_where_its_files_can() {
    let mut book = book(3);
    let store = |number| StoreId([number; 16]);
    let mut small = wish(1, terms(10, 2000, 2100));
    let asked = digest(&small);
    small.among = Some(Arc::new([store(2)].into()));
    assert_eq!(digest(&small), asked, "it is the same question");
    admit(&mut book, 1, &small);
    assert_eq!(book.row(id(1)).unwrap().slices[0].store, store(2));
    let mut wide = wish(2, terms(150, 3000, 3100));
    assert!(book.judge(&wide, &[]).is_ok());
    wide.among.clone_from(&small.among);
    let short = book.judge(&wide, &[]);
    assert!(matches!(short, Err(Rejected::Short { .. })), "{short:?}");
    let now = Moment::from_secs(1000);
    wide.terms.stores = vec![store(1)];
    is_refused(check(&wide, now), ReserveError::Unreservable);
    wide.terms.stores = vec![store(2)];
    assert_eq!(check(&wide, now), Ok(()));
    // So it is for who asks the manager.
    let directory = tempfile::tempdir().unwrap();
    let servers = Fake::new(1000, 3);
    let manager = manager(directory.path(), &servers);
    let admin = Asker {
        is_admin: true,
        uid: 0,
    };
    let mut asked = terms(10, 2000, 2100);
    asked.space_bytes = MIB;
    let place = Place {
        volume: VOLUME,
        among: Some(Arc::new([store(3)].into())),
    };
    let made = ask(&manager, admin, place, create(1, asked));
    let ReserveReply::Reserved { summary, .. } = made else {
        panic!("{made:?}");
    };
    let stores: Vec<_> = summary.slices.iter().map(|slice| slice.store).collect();
    assert_eq!(stores, [store(3)]);
}

/// Windows of rows that are not over, counted anew.
fn recounted(book: &Book) -> u64 {
    let now = book.now();
    let rows = book.rows_after(None);
    let live = rows.filter(|(_, row)| row.state != RowState::Gone && row.end() > now);
    live.map(|(_, row)| u64::from(row.count)).sum()
}

fn series(number: u64, start_secs: u64, count: u32) -> Wish {
    let mut asked = terms(0, start_secs, start_secs + 5);
    asked.write_bytes_per_second = 4096;
    (asked.every_secs, asked.count) = match count {
        1 => (0, 1),
        _ => (60, count),
    };
    wish(number, asked)
}

#[test]
fn windows_are_counted_as_they_come_and_go() {
    let mut numbers = Numbers::new(42);
    let mut book = book(1);
    let (mut now, mut most) = (1000, 0);
    for number in 0..600 {
        let (other, count) = (id(numbers.below(number + 1)), numbers.below(40) as u32 + 1);
        let start = now + numbers.below(500);
        let change = match numbers.below(8) {
            0..=2 => match book.create(id(number), &series(number, start, count), &[]) {
                Ok(Created::New(change)) => Some(change),
                _ => None,
            },
            3 => book.extend(other, Moment::from_secs(now + 4000)).ok(),
            4 => book.release(other).ok(),
            5 => book.leave(other, true),
            6 => book.gone(other),
            _ => book.remove(other),
        };
        assert_eq!(book.windows(), recounted(&book));
        if let Some(change) = change.filter(|_| numbers.below(4) == 0) {
            book.undo(change);
        }
        now += numbers.below(60);
        book.advance(Moment::from_secs(now));
        assert_eq!(book.windows(), recounted(&book));
        most = most.max(book.windows());
    }
    assert!(most > 100, "{most}");
    book.advance(Moment::from_secs(now + 1_000_000));
    assert_eq!(book.windows(), 0);
}

#[test]
fn no_more_windows_are_planned_than_can_be_read_again() {
    let mut book = book(1);
    book.set_windows_max(30);
    admit(&mut book, 1, &series(1, 2000, 20));
    let more = book.create(id(2), &series(2, 2000, 11), &[]);
    let Err(Rejected::Failed(ReserveError::Limit, why)) = &more else {
        panic!("{more:?}");
    };
    assert!(why.contains("at most 30: ask for fewer windows"), "{why}");
    admit(&mut book, 2, &series(2, 2010, 9));
    let last = book.row(id(2)).unwrap().last_end();
    is_refused(book.extend(id(2), last.plus(120)), ReserveError::Limit);
    assert!(book.extend(id(2), last.plus(60)).is_ok());
    is_refused(book.judge(&series(3, 2020, 1), &[]), ReserveError::Limit);
    // What is over makes room.
    book.release(id(1)).unwrap();
    admit(&mut book, 3, &series(3, 2020, 20));
}
