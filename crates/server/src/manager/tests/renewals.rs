//! The next ticket for who has one, and what is none of that.

use super::crashes::{Measured, ask_as, create, start_with, which};
use super::rights::{ADMIN, World, fails, user, world};
use super::world::{VOLUME, terms};
use crate::storage::{Opening, Storage, with_store};
use base::ticket::Ticket;
use base::{ClusterId, TicketId};
use reservation::Moment;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};
use wire::message::{
    ReservationSummary, ReserveError, ReserveReply, ReserveRequest, ReserveTerms, ReserveWindow,
};

impl World {
    #[track_caller]
    fn reserve(&self, number: u8, terms: ReserveTerms) -> (ReservationSummary, Vec<u8>) {
        reserved(ask_as(&self.manager, ADMIN, create(number, terms)))
    }

    fn renew(&self, reservation: TicketId, ticket: &[u8]) -> ReserveReply {
        let ticket = ticket.to_vec();
        let request = ReserveRequest::Renew {
            reservation,
            ticket,
        };
        ask_as(&self.manager, user(4711), request)
    }
}

#[track_caller]
fn reserved(reply: ReserveReply) -> (ReservationSummary, Vec<u8>) {
    let ReserveReply::Reserved {
        summary, tickets, ..
    } = reply
    else {
        panic!("{reply:?}");
    };
    let ticket = tickets.into_iter().next();
    (summary, ticket.map_or_else(Vec::new, |one| one.ticket))
}

#[track_caller]
fn window(ticket: &[u8]) -> (u64, u64) {
    let ticket = Ticket::from_bytes(ticket).unwrap();
    assert_eq!(ticket.head().volume, VOLUME);
    (ticket.terms().start_secs, ticket.terms().end_secs)
}

/// Two seconds every seven, from the next one on.
fn series(world: &World) -> ReserveTerms {
    ReserveTerms {
        every_secs: 7,
        count: 3,
        ..terms(1, world.now + 1, world.now + 3)
    }
}

#[test]
fn who_has_the_ticket_of_a_window_gets_that_of_the_next_one() {
    let world = world();
    let (series, first) = world.reserve(1, series(&world));
    let start = series.start_secs;
    assert_eq!(window(&first), (start, start + 2));
    // In the window it is the same one.
    assert_eq!(reserved(world.renew(series.id, &first)).1, first);
    let deadline = Instant::now() + Duration::from_secs(30);
    let next = loop {
        let (_, next) = reserved(world.renew(series.id, &first));
        if next != first {
            break next;
        }
        assert!(Instant::now() < deadline, "there is no next one");
        std::thread::sleep(Duration::from_millis(100));
    };
    let (from, until) = window(&next);
    assert!(from > start && (from - start).is_multiple_of(7) && until == from + 2);
    // That of a later window is worth as much as that of the first.
    assert_ne!(reserved(world.renew(series.id, &next)).1, first);
}

#[test]
fn what_is_made_longer_is_renewed_and_what_is_given_back_is_not() {
    let world = world();
    let (one, before) = world.reserve(1, terms(1, world.now + 1, world.now + 100));
    let extend = ReserveRequest::Extend {
        which: which("run1"),
        end_secs: world.now + 200,
        dry_run: false,
    };
    reserved(ask_as(&world.manager, ADMIN, extend));
    let (_, after) = reserved(world.renew(one.id, &before));
    assert_eq!(window(&after), (one.start_secs, world.now + 200));
    let release = ReserveRequest::Release {
        which: which("run1"),
        dry_run: false,
    };
    reserved(ask_as(&world.manager, ADMIN, release));
    let (summary, none) = reserved(world.renew(one.id, &after));
    assert!(none.is_empty() && summary.released_secs.is_some());
}

#[test]
fn nobody_gets_a_ticket_who_has_none() {
    let world = world();
    let (one, ticket) = world.reserve(1, terms(1, world.now + 1, world.now + 100));
    let (other, of_other) = world.reserve(2, terms(1, world.now + 1, world.now + 100));
    let refused = |reservation, ticket: &[u8]| {
        fails(world.renew(reservation, ticket), ReserveError::NotFound);
    };
    refused(one.id, &of_other);
    refused(other.id, &ticket);
    refused(TicketId([9; 16]), &ticket);
    refused(one.id, b"");
    refused(one.id, &ticket[..ticket.len() - 1]);
    // A byte of it is another one: head, terms, code.
    for at in 0..ticket.len() {
        let mut forged = ticket.clone();
        forged[at] ^= 1;
        let reply = world.renew(one.id, &forged);
        assert!(
            matches!(reply, ReserveReply::Failed { .. }),
            "byte {at}: {reply:?}"
        );
    }
    // A part ends as its maker wanted it.
    let whole = Ticket::from_bytes(&ticket).unwrap();
    let parts = whole
        .split(&[TicketId([1; 16]), TicketId([2; 16])])
        .unwrap();
    refused(one.id, &parts[0].to_bytes());
    let cancel = ReserveRequest::Cancel {
        which: which("run1"),
        discard: false,
        dry_run: false,
    };
    assert!(matches!(
        ask_as(&world.manager, ADMIN, cancel),
        ReserveReply::Done
    ));
    refused(one.id, &ticket);
}

#[test]
fn the_seat_is_kept_however_long_the_ledger_is_read() {
    let (directory, _) = with_store(16);
    let storage = Storage::open(directory.path(), ClusterId([1; 16]), &Opening::default()).unwrap();
    let left = Arc::new(AtomicI64::new(i64::MAX));
    let servers = Measured::new(&storage);
    // While the manager has its seat and does not serve yet.
    *servers.delay.lock().unwrap() = base::limits::META_SEAT_TIME + Duration::from_secs(1);
    let manager = start_with(directory.path(), servers, &left, false);
    let now = Moment::at_or_before(storage.now()).as_secs();
    let mut at = terms(1, 0, 0);
    at.window = ReserveWindow::At {
        start_secs: now + 1,
        end_secs: now + 100,
    };
    reserved(ask_as(&manager, ADMIN, create(1, at)));
}
