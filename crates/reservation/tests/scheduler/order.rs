//! Bounds, refusals and taking back, one by one.

use crate::world::{MILLI, QUANTUM, shape, terms, work};
use base::Time;
use base::limits::{SCHEDULER_QUEUE_REQUESTS_MAX, SCHEDULER_SHARED_REQUESTS_MAX};
use reservation::scheduler::{
    Rejection, RequestKey, Right, Scheduler, Shape, Source, TicketKey, TicketTerms, UserKey,
    UserTerms,
};
use std::time::Duration;

const NOW: Time = Time::from_secs(100);
const USER: Source = Source::User(UserKey(1));
const TICKET: Source = Source::Ticket(TicketKey(1));

fn scheduler() -> Scheduler<u32> {
    Scheduler::new(NOW, &shape(50_000, 50_000))
}

fn submit(scheduler: &mut Scheduler<u32>, source: Source, cost: u64) -> RequestKey {
    scheduler
        .submit(NOW, source, work(cost), 7)
        .expect("it is accepted")
}

fn rejection(scheduler: &mut Scheduler<u32>, source: Source, cost: u64) -> Rejection {
    let (rejection, content) = scheduler
        .submit(NOW, source, work(cost), 7)
        .expect_err("it is refused");
    assert_eq!(content, 7, "the request is given back");
    rejection
}

#[test]
fn what_is_larger_than_a_quantum_has_to_be_split() {
    let mut scheduler = scheduler();
    assert_eq!(scheduler.quantum(), Duration::from_nanos(QUANTUM));
    submit(&mut scheduler, USER, QUANTUM);
    let too_large = Rejection::TooLarge {
        cost_nanos: QUANTUM + 1,
        quantum_nanos: QUANTUM,
    };
    for source in [USER, Source::Background] {
        assert_eq!(rejection(&mut scheduler, source, QUANTUM + 1), too_large);
    }
}

#[test]
fn a_flood_fills_its_own_queue_and_nobody_elses() {
    let mut scheduler = scheduler();
    scheduler
        .open_ticket(NOW, TicketKey(1), &terms(1, 100_000))
        .unwrap();
    for _ in 0..SCHEDULER_QUEUE_REQUESTS_MAX {
        submit(&mut scheduler, USER, 1);
        submit(&mut scheduler, Source::Background, 1);
    }
    assert_eq!(rejection(&mut scheduler, USER, 1), Rejection::QueueFull);
    assert_eq!(
        rejection(&mut scheduler, Source::Background, 1),
        Rejection::QueueFull
    );
    let users = (SCHEDULER_SHARED_REQUESTS_MAX / SCHEDULER_QUEUE_REQUESTS_MAX) as u64;
    for user in 2..=users {
        for _ in 0..SCHEDULER_QUEUE_REQUESTS_MAX {
            submit(&mut scheduler, Source::User(UserKey(user)), 1);
        }
    }
    let next = Source::User(UserKey(users + 1));
    assert_eq!(rejection(&mut scheduler, next, 1), Rejection::SharedFull);
    // What has gone makes room.
    let gone = std::iter::from_fn(|| scheduler.poll(NOW));
    let of_users = gone.filter(|dispatch| matches!(dispatch.source, Source::User(_)));
    let count = of_users.count();
    assert!(count > 1);
    for _ in 0..count {
        submit(&mut scheduler, next, 1);
    }
    assert_eq!(rejection(&mut scheduler, next, 1), Rejection::SharedFull);
    // Tickets have room of their own, with a bound of its own.
    for _ in 0..SCHEDULER_QUEUE_REQUESTS_MAX {
        submit(&mut scheduler, TICKET, 1);
    }
    assert_eq!(rejection(&mut scheduler, TICKET, 1), Rejection::QueueFull);
}

#[test]
fn no_share_is_used_ahead_of_a_clock_that_was_held() {
    let mut scheduler = Scheduler::new(NOW, &shape(0, 0));
    let (one, other) = (TICKET, Source::Ticket(TicketKey(2)));
    // A request takes a second of the one share and 3.3 seconds of the other.
    for (key, share_ppm) in [(1, 1000), (2, 300)] {
        let terms = TicketTerms {
            burst: Duration::ZERO,
            ..terms(key, share_ppm)
        };
        scheduler.open_ticket(NOW, TicketKey(key), &terms).unwrap();
    }
    for _ in 0..3 {
        submit(&mut scheduler, one, QUANTUM);
        submit(&mut scheduler, other, QUANTUM);
    }
    let mut next = |seconds| {
        let now = NOW + Duration::from_secs(seconds);
        let next = scheduler.poll(now).unwrap();
        scheduler.complete(now, next.key, 1);
        (next.source, next.right)
    };
    assert_eq!(next(0), (one, Right::Share));
    assert_eq!(next(0), (other, Right::Share));
    // Four seconds later the one's second request is two seconds late, and the clock is held at the
    // third second. The other's second one is not due there.
    assert_eq!(next(4), (one, Right::Share));
    assert_eq!(next(4), (one, Right::Share));
    assert_eq!(next(4), (other, Right::Leftover));
    assert_eq!(scheduler.slipped(), Duration::from_secs(1));
}

#[test]
fn what_is_taken_back_never_goes_and_is_not_charged() {
    let mut scheduler = scheduler();
    scheduler
        .open_ticket(NOW, TicketKey(1), &terms(1, 100_000))
        .unwrap();
    for source in [TICKET, USER, Source::Background] {
        let keys: Vec<_> = (0..3).map(|_| submit(&mut scheduler, source, 1)).collect();
        assert_eq!(scheduler.cancel(NOW, keys[1]), Some(7));
        assert_eq!(scheduler.cancel(NOW, keys[1]), None, "only once");
        let first = scheduler.poll(NOW).unwrap();
        assert_eq!((first.key, first.source), (keys[0], source));
        assert_eq!(scheduler.cancel(NOW, keys[0]), None, "it is at the device");
        assert_eq!(scheduler.cancel(NOW, keys[2]), Some(7));
        assert_eq!(scheduler.waiting(), 0);
        assert_eq!(scheduler.poll(NOW), None);
        scheduler.complete(NOW, keys[0], 1);
        assert_eq!(scheduler.in_flight(), Duration::ZERO);
    }
}

#[test]
fn nobody_overtakes_who_is_next_and_does_not_fit() {
    let mut scheduler = scheduler();
    scheduler
        .open_ticket(NOW, TicketKey(1), &terms(1, 500_000))
        .unwrap();
    let flood: Vec<_> = (0..3)
        .map(|_| submit(&mut scheduler, USER, QUANTUM))
        .collect();
    for key in &flood {
        assert_eq!(scheduler.poll(NOW).unwrap().key, *key);
    }
    // Three and a half of four quanta, and a whole one is next.
    let half = submit(&mut scheduler, USER, QUANTUM / 2);
    assert_eq!(scheduler.poll(NOW).unwrap().key, half);
    let reserved = submit(&mut scheduler, TICKET, QUANTUM);
    submit(&mut scheduler, USER, 1);
    assert_eq!(scheduler.poll(NOW), None);
    scheduler.complete(NOW, half, 1);
    let next = scheduler.poll(NOW).unwrap();
    assert_eq!((next.key, next.right), (reserved, Right::Share));
}

#[test]
fn the_device_is_given_so_many_requests_and_no_more() {
    let shape = Shape {
        requests_in_flight: 3,
        ..shape(0, 0)
    };
    let mut scheduler = Scheduler::new(NOW, &shape);
    for _ in 0..5 {
        submit(&mut scheduler, USER, 1);
    }
    let given = std::iter::from_fn(|| scheduler.poll(NOW)).count();
    assert_eq!(given, 3);
}

#[test]
fn those_that_have_a_device_together_give_it_equal_parts_of_what_it_may_hold() {
    let mut scheduler = Scheduler::new(NOW, &shape(0, 0));
    assert!(scheduler.is_idle());
    let mut given = Vec::new();
    for (busy, at_once) in [(4, 1), (2, 2), (3, 1), (1, 4), (100, 1)] {
        for _ in 0..5 {
            submit(&mut scheduler, USER, QUANTUM);
        }
        scheduler.set_busy(busy);
        let now: Vec<_> = std::iter::from_fn(|| scheduler.poll(NOW)).collect();
        assert_eq!(now.len(), at_once, "{busy}");
        given.extend(now.into_iter().map(|next| next.key));
        // What is there already counts.
        scheduler.set_busy(1);
        let rest = std::iter::from_fn(|| scheduler.poll(NOW)).count();
        assert_eq!(at_once + rest, 4);
        scheduler = Scheduler::new(NOW, &shape(0, 0));
    }
    assert_eq!(given.len(), 9);
}

#[test]
fn with_a_share_of_half_every_second_request_is_due() {
    let mut scheduler = Scheduler::new(NOW, &shape(0, 0));
    let no_burst = TicketTerms {
        burst: Duration::ZERO,
        ..terms(1, 500_000)
    };
    scheduler.open_ticket(NOW, TicketKey(1), &no_burst).unwrap();
    for _ in 0..100 {
        submit(&mut scheduler, TICKET, MILLI);
        submit(&mut scheduler, USER, MILLI);
    }
    let mut rights = Vec::new();
    for step in 0..100 {
        let now = NOW + Duration::from_millis(step);
        let next = scheduler.poll(now).unwrap();
        rights.push(next.right);
        scheduler.complete(now, next.key, 1);
        assert_eq!(next.right == Right::Share, step % 2 == 0, "{step}");
    }
}

#[test]
fn terms_that_cannot_be_are_refused() {
    let mut scheduler = scheduler();
    let good = terms(1, 100_000);
    let bad = [
        TicketTerms {
            share_ppm: 1_000_001,
            ..good
        },
        TicketTerms {
            burst: Duration::from_millis(1001),
            ..good
        },
        TicketTerms {
            start: NOW,
            end: NOW,
            ..good
        },
    ];
    for terms in bad {
        let opened = scheduler.open_ticket(NOW, TicketKey(1), &terms);
        assert_eq!(opened, Err(Rejection::BadTerms), "{terms:?}");
    }
    let past = TicketTerms { end: NOW, ..good };
    assert_eq!(
        scheduler.open_ticket(NOW, TicketKey(1), &past),
        Err(Rejection::Over)
    );
    scheduler.open_ticket(NOW, TicketKey(1), &good).unwrap();
    assert_eq!(
        scheduler.open_ticket(NOW, TicketKey(1), &good),
        Err(Rejection::Exists)
    );
    assert_eq!(
        rejection(&mut scheduler, Source::Ticket(TicketKey(2)), 1),
        Rejection::UnknownTicket
    );
    for terms in [
        UserTerms {
            weight: 0,
            cap_ppm: None,
        },
        UserTerms {
            weight: 1,
            cap_ppm: Some(0),
        },
    ] {
        assert_eq!(
            scheduler.set_user(UserKey(1), terms),
            Err(Rejection::BadTerms)
        );
    }
}

#[test]
fn users_who_wait_for_nothing_are_forgotten() {
    let mut scheduler = scheduler();
    for user in 0..200_000 {
        let key = submit(&mut scheduler, Source::User(UserKey(user)), 1);
        assert_eq!(scheduler.poll(NOW).unwrap().key, key);
        scheduler.complete(NOW, key, 1);
    }
}

#[test]
fn what_has_no_share_can_be_held_back() {
    let mut scheduler = scheduler();
    scheduler
        .open_ticket(NOW, TicketKey(1), &terms(1, 100_000))
        .unwrap();
    for source in [USER, USER, Source::Background, TICKET] {
        submit(&mut scheduler, source, 1);
    }
    let mut next = |is_held| {
        scheduler.hold_shared(is_held);
        scheduler.poll(NOW).map(|next| next.source)
    };
    let mut given = vec![next(true), next(true)];
    given.sort();
    let mut others = vec![Some(Source::Background), Some(TICKET)];
    others.sort();
    assert_eq!(given, others);
    assert_eq!(next(true), None);
    assert_eq!(next(false), Some(USER));
    assert_eq!(next(true), None);
    assert_eq!(next(false), Some(USER));
}

#[test]
fn background_work_that_is_waited_for_goes_before_the_leftover_and_after_what_is_due() {
    let mut scheduler = Scheduler::new(NOW, &shape(0, 0));
    scheduler
        .open_ticket(NOW, TicketKey(1), &terms(1, 100_000))
        .unwrap();
    let background = Source::Background;
    for source in [USER, USER, USER, background, background, TICKET] {
        submit(&mut scheduler, source, 1);
    }
    let mut next = |now, is_hurried| {
        scheduler.hurry_background(is_hurried);
        scheduler.poll(now).map(|next| next.source)
    };
    assert_eq!(next(NOW, true), Some(TICKET));
    assert_eq!(next(NOW, true), Some(Source::Background));
    // That was its quarter for four times as long as it takes.
    assert_eq!(next(NOW, true), Some(USER));
    let later = NOW + Duration::from_nanos(4);
    assert_eq!(next(later, false), Some(USER));
    assert_eq!(next(later, true), Some(Source::Background));
    assert_eq!(next(later, true), Some(USER));
    assert_eq!(next(later, true), None);
}

#[test]
fn what_nobody_was_kept_waiting_for_is_not_set_against_what_is_hurried_later() {
    let mut scheduler = Scheduler::new(NOW, &shape(0, 0));
    scheduler.hurry_background(true);
    // As much as the device can do, for a while.
    for at in 0..100 {
        let now = NOW + Duration::from_nanos(at);
        submit(&mut scheduler, Source::Background, 1);
        let next = scheduler.poll(now).expect("nothing else is wanted");
        scheduler.complete(now, next.key, 0);
    }
    let later = NOW + Duration::from_nanos(100);
    for source in [USER, Source::Background] {
        submit(&mut scheduler, source, 1);
    }
    let next = scheduler.poll(later).map(|next| next.source);
    assert_eq!(next, Some(Source::Background));
}
