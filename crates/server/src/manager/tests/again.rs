//! What is done again while a server is away: no more than what is missing, and nobody else waits.

use super::super::errands::{Outcome, Progress, Task};
use super::super::record::{GUARD_SECONDS, Row};
use super::away::{NO_VOLUME, NOW, World, fails, hold, returned, row, server};
use super::crashes::{create, which};
use super::fake::{Fake, await_that};
use super::world::{MIB, VOLUME, terms};
use crate::storage::Totals;
use base::StoreId;
use wire::message::{ReserveError, ReserveReply, ReserveReport, ReserveRequest};

const OVER: u64 = NOW + 60 + GUARD_SECONDS;

fn totals(seconds: u64) -> Totals {
    Totals {
        seconds,
        kept: seconds,
        bytes: 1000 * seconds,
    }
}

#[test]
fn what_a_server_has_done_is_not_asked_of_it_again() {
    let servers = Fake::new(NOW, 3);
    let row = row();
    hold(&servers, &row);
    servers.set(|state| state.away.extend([server(2)]));
    let leave = || Task::Leave {
        has_tickets: true,
        discard: true,
    };
    let first = returned(&servers, &row, NOW, leave(), Progress::default());
    assert!(first.outcome.is_err());
    servers.set(|state| state.asked.clear());
    let again = returned(&servers, &row, NOW, leave(), first.errand.progress);
    assert!(again.outcome.is_err());
    let asked = [("revoke", server(2)), ("release", server(2))];
    servers.set(|state| assert_eq!(state.asked, asked));
    servers.set(|state| state.away.clear());
    let last = returned(&servers, &row, NOW, leave(), again.errand.progress);
    assert!(last.outcome.is_ok());
    assert_eq!(servers.holders(), []);
    for one in [server(1), server(3)] {
        assert_eq!(servers.asked("release", one), 0);
    }
}

#[test]
fn what_waits_for_a_server_is_done_when_it_is_seen_again() {
    let world = World::new(2);
    world.reserve(VOLUME, 600);
    let is_there = |is_there| {
        world.servers.set(|state| {
            state.devices[1].is_well = is_there;
            match is_there {
                true => state.away.clear(),
                false => state.away.extend([server(2)]),
            }
            state.looks = 0;
        });
    };
    is_there(false);
    // The second look began when the first one was back.
    await_that("it is seen", || {
        let mut looks = 0;
        world.servers.set(|state| looks = state.looks);
        looks >= 3
    });
    let cancelled = world.cancel(true);
    assert!(
        matches!(cancelled, ReserveReply::Later { .. }),
        "{cancelled:?}"
    );
    assert_eq!(world.servers.holders(), [server(2)]);
    is_there(true);
    // The time does not go on, so nothing else does it.
    await_that("it is given back", || world.servers.holders().is_empty());
}

#[test]
fn what_servers_have_said_of_a_window_is_kept_while_another_one_is_away() {
    let servers = Fake::new(NOW, 3);
    let mut row = row();
    servers.set(|state| {
        state.away.extend([server(1)]);
        state.got = (1..=3).map(|one| (server(one), totals(10))).collect();
    });
    let over = NOW + 100 + GUARD_SECONDS;
    let first = returned(&servers, &row, over, Task::Collect, Progress::default());
    assert!(first.outcome.is_err());
    row.told = first.errand.progress.told;
    servers.set(|state| {
        state.away.clear();
        state.got = [(server(1), totals(5))].into();
    });
    let seconds = |row: &Row, now| {
        let back = returned(&servers, row, now, Task::Collect, Progress::default());
        match back.outcome {
            Ok(Outcome::Delivered(delivered)) => Some(delivered.seconds),
            _ => None,
        }
    };
    assert_eq!(seconds(&row, over + 700), Some(25));
    // One that does not come back is waited for until the next window is over.
    servers.set(|state| state.away.extend([server(1)]));
    assert_eq!(seconds(&row, over + 999), None);
    assert_eq!(seconds(&row, over + 1000), Some(20));
}

fn report(world: &World) -> Option<ReserveReport> {
    let report = ReserveRequest::Report {
        which: which("run1"),
        from_second: 0,
    };
    match world.ask(NO_VOLUME, report) {
        ReserveReply::Report(report) => Some(report),
        _ => None,
    }
}

#[test]
fn an_account_outlasts_what_its_servers_keep_and_the_manager() {
    let mut world = World::new(2);
    world.reserve(NO_VOLUME, 0);
    world.servers.set(|state| {
        state.away.extend([server(2)]);
        state.got = [(server(1), totals(40))].into();
        state.now_secs = OVER;
    });
    // When it is asked for the second time, what came of the first time is in the ledger.
    await_that("it is asked for again", || {
        world.servers.set(|state| state.now_secs += 1);
        world.servers.asked("seconds", server(2)) >= 2
    });
    assert!(report(&world).is_none(), "a part is missing");
    world.servers.set(|state| {
        state.away.clear();
        state.got = [(server(2), totals(2))].into();
    });
    world.begin_anew();
    let report = report(&world).unwrap();
    assert_eq!((report.seconds, report.bytes), (42, 42_000));
}

#[test]
fn rows_that_wait_for_a_server_keep_no_other_row_waiting() {
    let world = World::new(2);
    for number in 1..=61 {
        let (end, store) = match number {
            61 => (NOW + 70, 1),
            _ => (NOW + 60, 2),
        };
        let mut asked = terms(0, NOW, end);
        asked.write_bytes_per_second = 4096;
        asked.stores = vec![StoreId([store; 16])];
        let made = world.ask(VOLUME, create(number, asked));
        assert!(matches!(made, ReserveReply::Reserved { .. }), "{made:?}");
    }
    world.servers.set(|state| {
        state.away.extend([server(2)]);
        state.now_secs = OVER + 10;
    });
    await_that("the last one is accounted for", || {
        world.servers.set(|state| state.now_secs += 40);
        world.servers.asked("seconds", server(1)) > 0
    });
}

#[test]
fn what_is_cancelled_unless_something_was_written_follows_where_a_server_is_away() {
    let world = World::new(2);
    world.reserve(VOLUME, 600);
    world.servers.set(|state| state.away.extend([server(2)]));
    world.servers.set(|state| state.used = 2);
    fails(&world.cancel(false), ReserveError::InUse);
    world.servers.set(|state| state.used = 0);
    let done = world.cancel(false);
    assert!(matches!(done, ReserveReply::Later { .. }), "{done:?}");
    assert_eq!(world.state(), None);
    world.servers.set(|state| state.away.clear());
    await_that("all is given back", || {
        world.servers.set(|state| state.now_secs += 1);
        world.servers.holders().is_empty()
    });
}

#[test]
fn the_rate_of_servers_that_have_taken_tickets_back_is_free() {
    let world = World::new(2);
    let at = |number, rate, stores: &[u8]| {
        let mut asked = terms(rate, NOW, NOW + 60);
        asked.stores = stores.iter().map(|store| StoreId([*store; 16])).collect();
        asked.space_bytes = if stores.len() > 1 { 2 * MIB } else { 0 };
        asked.lifetime_secs = 600;
        world.ask(VOLUME, create(number, asked))
    };
    assert!(matches!(at(1, 120, &[1, 2]), ReserveReply::Reserved { .. }));
    let refused = at(2, 60, &[1]);
    assert!(
        matches!(refused, ReserveReply::Refused { .. }),
        "{refused:?}"
    );
    world.servers.set(|state| state.away.extend([server(2)]));
    let done = world.cancel(true);
    assert!(matches!(done, ReserveReply::Later { .. }), "{done:?}");
    let made = at(2, 60, &[1]);
    assert!(matches!(made, ReserveReply::Reserved { .. }), "{made:?}");
    let believed = at(3, 60, &[2]);
    assert!(
        matches!(believed, ReserveReply::Refused { .. }),
        "{believed:?}"
    );
}

#[test]
fn a_store_that_has_failed_keeps_no_release_waiting_for_each_window() {
    let servers = Fake::new(NOW, 3);
    let mut row = row();
    row.count = 20;
    hold(&servers, &row);
    // It has taken its tickets back, and then it says nothing more.
    servers.set(|state| state.silent_stores.extend([server(2)]));
    let released = returned(&servers, &row, NOW, Task::Revoke, Progress::default());
    assert!(released.outcome.is_ok());
    assert_eq!(servers.asked("used", server(2)), 1);
    assert_eq!(servers.holders(), [server(2); 20]);
}
