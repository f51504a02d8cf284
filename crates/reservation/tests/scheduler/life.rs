//! Tickets that come, begin, change, are split and end while requests wait.

use crate::world::{Client, Device, MILLI, QUANTUM, SECOND, World, shape, terms, work};
use base::Time;
use reservation::scheduler::{Rejection, Right, Source, TicketKey, TicketTerms, UserKey};
use std::time::Duration;

fn flood(first: u64) -> impl Iterator<Item = Client> {
    (first..first + 30).map(|user| Client::user(user, 8, (QUANTUM / 2, QUANTUM)))
}

/// A ticket (client 0) beside thirty greedy users.
fn world(terms: &TicketTerms) -> World {
    let clients = [Client::ticket(0, 64, (QUANTUM / 4, QUANTUM))];
    let clients = clients.into_iter().chain(flood(100)).collect();
    let mut world = World::new(9, &shape(50_000, 50_000), Device::exact(), clients);
    world.open(0, terms);
    world
}

/// Its share, and what one of thirty-one users has beyond that.
fn assert_share(world: &World, client: usize, second: u64, percent: u64) {
    let served = world.served(client, second * SECOND, (second + 1) * SECOND);
    let expected = SECOND / 100 * percent + SECOND / 100 * (100 - percent) / 31;
    let difference = served.abs_diff(expected);
    assert!(
        difference <= expected / 50 + QUANTUM,
        "second {second}: {served} of {expected}"
    );
}

#[test]
fn a_ticket_that_ends_leaves_its_requests_to_the_leftover() {
    let mut world = world(&TicketTerms {
        end: Time::from_secs(3),
        ..terms(0, 400_000)
    });
    world.run(2 * SECOND);
    assert_share(&world, 0, 1, 40);
    let key = TicketKey(0);
    let waiting = world.scheduler.waiting();
    world.run(3 * SECOND - 1);
    world.run(8 * SECOND);
    assert!(
        world.scheduler.waiting() < waiting,
        "its client asks no more"
    );
    let late: Vec<_> = world.done[0]
        .iter()
        .filter(|done| done.time > 3 * SECOND + 20 * MILLI)
        .collect();
    assert!(!late.is_empty(), "what waited was served");
    assert!(late.iter().all(|done| done.right != Right::Share));
    let answered = world.done[0].len();
    let now = world.now();
    let (refused, _) = world
        .scheduler
        .submit(now, Source::Ticket(key), work(1), (0, 0))
        .unwrap_err();
    assert_eq!(refused, Rejection::Over);
    let record = world.scheduler.close_ticket(now, key).unwrap();
    let promised = record.iter().filter(|second| second.promised_nanos > 0);
    assert_eq!(promised.count(), 3, "three seconds were promised");
    let (refused, _) = world
        .scheduler
        .submit(now, Source::Ticket(key), work(1), (0, 0))
        .unwrap_err();
    assert_eq!(refused, Rejection::UnknownTicket);
    world.run(20 * SECOND);
    assert_eq!(world.done[0].len(), answered, "nothing of it was left");
}

#[test]
fn a_ticket_is_served_from_its_start_on() {
    let mut world = world(&TicketTerms {
        start: Time::from_secs(2),
        ..terms(0, 400_000)
    });
    let now = world.now();
    let (refused, _) = world
        .scheduler
        .submit(now, Source::Ticket(TicketKey(0)), work(1), (0, 0))
        .unwrap_err();
    assert_eq!(refused, Rejection::NotYet);
    world.clients[0].active = vec![(2 * SECOND, 9 * SECOND)];
    world.run(SECOND);
    assert!(world.done[0].is_empty());
    let mut late = Client::ticket(0, 64, (QUANTUM / 4, QUANTUM));
    late.active = vec![(2 * SECOND, 9 * SECOND)];
    let clients = [late].into_iter().chain(flood(100)).collect();
    let mut world = World::new(9, &shape(50_000, 50_000), Device::exact(), clients);
    world.open(
        0,
        &TicketTerms {
            start: Time::from_secs(2),
            ..terms(0, 400_000)
        },
    );
    world.run(5 * SECOND);
    assert_share(&world, 0, 3, 40);
}

#[test]
fn shares_grow_and_shrink_while_requests_wait() {
    let mut world = world(&terms(0, 100_000));
    let mut expected = vec![(1, 10)];
    for (second, percent) in [(2, 60), (4, 5), (6, 0), (8, 30)] {
        world.run(second * SECOND);
        let now = world.now();
        let burst = Duration::from_millis(10);
        let share_ppm = percent as u32 * 10_000;
        let end = Time::from_secs(50);
        world
            .scheduler
            .change_ticket(now, TicketKey(0), share_ppm, burst, end)
            .unwrap();
        expected.push((second + 1, percent));
    }
    world.run(10 * SECOND);
    for (second, percent) in expected {
        assert_share(&world, 0, second, percent);
    }
}

#[test]
fn an_extension_reaches_beyond_the_old_end() {
    let mut world = world(&TicketTerms {
        end: Time::from_secs(3),
        ..terms(0, 400_000)
    });
    world.run(2 * SECOND);
    let now = world.now();
    let burst = Duration::from_millis(10);
    let mut change = |end, share_ppm| {
        let end = Time::from_secs(end);
        world
            .scheduler
            .change_ticket(now, TicketKey(0), share_ppm, burst, end)
    };
    assert_eq!(
        change(2, 400_000),
        Err(Rejection::BadTerms),
        "an end that is not after now"
    );
    assert_eq!(change(7, 1_000_001), Err(Rejection::BadTerms));
    assert_eq!(change(7, 400_000), Ok(()));
    world.run(10 * SECOND);
    assert_share(&world, 0, 5, 40);
    let rights = world.done[0].iter().filter(|done| done.time > 8 * SECOND);
    assert!(rights.clone().all(|done| done.right != Right::Share));
    let now = world.now();
    let changed = world
        .scheduler
        .change_ticket(now, TicketKey(0), 1, burst, Time::MAX);
    assert_eq!(changed, Err(Rejection::Over));
}

#[test]
fn a_closed_ticket_is_over_for_its_requests_and_their_completions() {
    let mut world = world(&terms(0, 400_000));
    world.run(2 * SECOND);
    let now = world.now();
    assert!(world.scheduler.close_ticket(now, TicketKey(0)).is_some());
    assert_eq!(world.scheduler.close_ticket(now, TicketKey(0)), None);
    assert_eq!(world.scheduler.take_record(now, TicketKey(0)), None);
    world.run(4 * SECOND);
    let late = world.done[0]
        .iter()
        .filter(|done| done.time > 2 * SECOND + 20 * MILLI);
    assert!(late.clone().all(|done| done.right != Right::Share));
}

fn child(share_ppm: u32) -> TicketTerms {
    TicketTerms {
        holder: UserKey(0),
        parent: Some(TicketKey(0)),
        ..terms(0, share_ppm)
    }
}

/// A ticket with 60 % (client 0), its children with 30 and 20 %, the second one until 3 s, and a
/// child of that with 5 %, beside thirty greedy users.
fn family() -> World {
    let clients = (0..4).map(|key| Client::ticket(key, 64, (QUANTUM / 4, QUANTUM)));
    let clients = clients.chain(flood(100)).collect();
    let mut world = World::new(9, &shape(50_000, 50_000), Device::exact(), clients);
    world.open(0, &terms(0, 600_000));
    world.open(1, &child(300_000));
    let until_3 = Time::from_secs(3);
    world.open(
        2,
        &TicketTerms {
            end: until_3,
            ..child(200_000)
        },
    );
    world.open(
        3,
        &TicketTerms {
            parent: Some(TicketKey(2)),
            ..child(50_000)
        },
    );
    world
}

fn is_over(world: &mut World, key: u64) -> bool {
    let (now, source) = (world.now(), Source::Ticket(TicketKey(key)));
    let submitted = world.scheduler.submit(now, source, work(1), (0, 0));
    matches!(submitted, Err((Rejection::Over, _)))
}

#[test]
fn children_have_together_what_their_parent_had() {
    let mut world = family();
    assert_eq!(world.scheduler.room_ppm(TicketKey(0)), Some(100_000));
    assert_eq!(world.scheduler.room_ppm(TicketKey(2)), Some(150_000));
    world.run(3 * SECOND);
    let served = |client| world.served(client, SECOND, 2 * SECOND);
    let all: u64 = (0..4).map(served).sum();
    // All four are one user in the leftover.
    let expected = SECOND / 100 * 60 + SECOND / 100 * 40 / 31;
    assert!(
        all.abs_diff(expected) < expected / 50,
        "{all} of {expected}"
    );
    for (client, percent) in [(0, 10), (1, 30), (2, 15), (3, 5)] {
        let (least, most) = (SECOND / 100 * percent, SECOND / 100 * (percent + 1));
        let range = least - QUANTUM..=most + QUANTUM;
        assert!(
            range.contains(&served(client)),
            "{client}: {}",
            served(client)
        );
    }
}

#[test]
fn children_that_do_not_fit_are_refused() {
    let mut world = family();
    let now = world.now();
    let oversplit = Err(Rejection::Oversplit { room_ppm: 100_000 });
    let scheduler = &mut world.scheduler;
    assert_eq!(
        scheduler.open_ticket(now, TicketKey(4), &child(100_001)),
        oversplit
    );
    let late = TicketTerms {
        start: Time::from_secs(4),
        parent: Some(TicketKey(2)),
        ..child(1)
    };
    let late = scheduler.open_ticket(now, TicketKey(4), &late);
    assert_eq!(late, Err(Rejection::BadTerms), "its parent ends before");
    assert_eq!(
        scheduler.room_ppm(TicketKey(2)),
        Some(150_000),
        "and keeps its share"
    );
    let mut change = |key, share_ppm| {
        let burst = Duration::from_millis(10);
        scheduler.change_ticket(now, TicketKey(key), share_ppm, burst, Time::MAX)
    };
    assert_eq!(change(2, 300_001), oversplit);
    assert_eq!(
        change(0, 499_999),
        Err(Rejection::BadTerms),
        "children have it"
    );
    assert_eq!(change(1, 200_000), Ok(()));
    assert_eq!(change(2, 400_000), Ok(()));
    assert_eq!(
        change(1, 200_001),
        Err(Rejection::Oversplit { room_ppm: 0 })
    );
    let orphan = TicketTerms {
        parent: Some(TicketKey(77)),
        ..child(1)
    };
    let orphan = scheduler.open_ticket(now, TicketKey(4), &orphan);
    assert_eq!(orphan, Err(Rejection::UnknownTicket));
}

#[test]
fn a_childs_end_is_its_childrens_and_its_share_goes_back() {
    let mut world = family();
    world.run(4 * SECOND);
    assert_eq!(world.scheduler.room_ppm(TicketKey(0)), Some(300_000));
    assert!(is_over(&mut world, 2) && is_over(&mut world, 3));
    world.run(6 * SECOND);
    let served = world.served(0, 5 * SECOND, 6 * SECOND);
    assert!(served >= SECOND / 100 * 30, "{served}");
    let now = world.now();
    world.scheduler.close_ticket(now, TicketKey(0)).unwrap();
    assert!(is_over(&mut world, 1));
}
