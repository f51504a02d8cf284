//! The order in virtual time at a simulated device; the dispatcher with real threads.

mod stalls;

use super::super::appends::Appends;
use super::super::company::Company;
use super::super::model::{Floors, Plan};
use super::*;
use base::limits::SCHEDULER_PARTS_MAX;
use base::ticket::{Class, Head, Operations, Slice, Terms};
use base::{ClusterId, ServerId, Time, VolumeId};
use reservation::scheduler::{Cause, Measured, UserKey};
use std::collections::BTreeMap;
use std::sync::Condvar;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const STORE: StoreId = StoreId([1; 16]);
const PIECE: u32 = 256 << 10;
/// A piece takes a millisecond of a device that does 256 MB/s.
const RATE: u64 = PIECE as u64 * 1000;

fn plan() -> Arc<Plan> {
    let cell = |operation, write_percent| Measured {
        operation,
        size_bytes: PIECE,
        depth: 1,
        write_percent,
        bytes_per_second: RATE,
    };
    let cells = [cell(Operation::Read, 0), cell(Operation::Write, 100)];
    Arc::new(Plan::new(&cells, Floors::default()).unwrap())
}

fn terms(share_ppm: u32, start: u64, end: u64) -> Terms {
    Terms {
        operations: Operations::READ_WRITE,
        burst_millis: 10,
        start_secs: start,
        end_secs: end,
        lifetime_end_secs: end,
        slices: vec![Slice {
            device: STORE,
            share_ppm,
            stripe_unit_bytes: 0,
            au_budget: 0,
        }],
        path: Vec::new(),
    }
}

fn grant(id: u8, epoch: u64, lineage: &[Terms]) -> Grant {
    let head = Head {
        class: Class::Standard,
        cluster: ClusterId([0; 16]),
        server: ServerId([0; 16]),
        id: TicketId([id; 16]),
        epoch,
        holder: u64::from(id),
        volume: VolumeId([0; 16]),
        key_id: 1,
    };
    let ids = (0..).map(|generation| TicketId([id + generation; 16]));
    Grant {
        head,
        lineage: ids.zip(lineage.iter().cloned()).collect(),
    }
}

/// A device that does one piece after the other, each in the time that it costs.
struct World {
    order: Order<Source>,
    now: Time,
    /// Pieces at the device: when each is done, and its key.
    at_device: VecDeque<(Time, RequestKey, Source)>,
    done: BTreeMap<Source, u64>,
}

impl World {
    fn new(is_first_come: bool) -> Self {
        let now = Time::from_secs(100);
        Self {
            order: Order::new(now, plan(), is_first_come),
            now,
            at_device: VecDeque::new(),
            done: BTreeMap::new(),
        }
    }

    fn submit(&mut self, source: Source, count: usize) {
        for _ in 0..count {
            let piece = (Operation::Read, PIECE);
            self.order.submit(self.now, source, piece, source).unwrap();
        }
    }

    fn pump(&mut self) {
        while let Some(next) = self.order.poll(self.now) {
            let free = self.at_device.back().map_or(self.now, |(done, ..)| *done);
            let done = free.max(self.now) + Duration::from_nanos(next.work.cost_nanos);
            self.at_device.push_back((done, next.key, next.content));
        }
    }

    /// Lets the device work up to a moment; who has a piece done asks for another one.
    fn run(&mut self, until: Time, greedy: &[Source]) {
        self.pump();
        while let Some((done, key, source)) = self.at_device.front().copied()
            && done <= until
        {
            self.at_device.pop_front();
            self.now = done;
            self.order.complete(done, key, u64::from(PIECE));
            *self.done.entry(source).or_default() += 1;
            if greedy.contains(&source) {
                self.submit(source, 1);
            }
            self.pump();
        }
        self.now = until;
    }
}

#[test]
fn a_ticket_has_its_share_beside_fifty_greedy_users_and_without_the_scheduler_has_not() {
    for is_first_come in [false, true] {
        let mut world = World::new(is_first_come);
        let grant = grant(1, 0, &[terms(500_000, 50, 1000)]);
        let ticket = Source::Ticket(world.order.open(world.now, &grant, STORE).unwrap());
        let users: Vec<_> = (10..60).map(|user| Source::User(UserKey(user))).collect();
        for user in &users {
            world.submit(*user, 8);
        }
        world.submit(ticket, 8);
        let greedy: Vec<_> = users.iter().copied().chain([ticket]).collect();
        for second in 101..=103 {
            let before = world.done.get(&ticket).copied().unwrap_or(0);
            world.run(Time::from_secs(second), &greedy);
            let got = world.done.get(&ticket).copied().unwrap_or(0) - before;
            let expected = if is_first_come { 0..60 } else { 495..560 };
            assert!(expected.contains(&got), "{got} of 500 in second {second}");
        }
        let all: u64 = world.done.values().sum();
        assert!((2990..=3001).contains(&all), "the device was busy: {all}");
        if !is_first_come {
            let served: Vec<_> = users.iter().map(|user| world.done[user]).collect();
            let (least, most) = (served.iter().min().unwrap(), served.iter().max().unwrap());
            assert!(most - least <= 1, "{served:?}");
        }
    }
}

#[test]
fn parts_are_below_the_whole_and_a_newer_ticket_replaces_an_older_one() {
    let mut world = World::new(false);
    let (now, half) = (world.now, terms(500_000, 50, 200));
    let whole = grant(1, 0, std::slice::from_ref(&half));
    let key = world.order.open(now, &whole, STORE).unwrap();
    let again = world.order.open(now, &whole, STORE).unwrap();
    assert_eq!(key, again, "shown twice it is one account");
    let quarter = terms(300_000, 50, 200);
    let part = grant(1, 0, &[half.clone(), quarter.clone()]);
    let part_key = world.order.open(now, &part, STORE).unwrap();
    assert_ne!(part_key, key);
    let mut sibling = grant(1, 0, &[half.clone(), quarter]);
    sibling.lineage[1].0 = TicketId([99; 16]);
    let refused = world.order.open(now, &sibling, STORE);
    let room_ppm = 200_000;
    let oversplit = OpenError::Rejected(Rejection::Oversplit { room_ppm });
    assert_eq!(refused, Err(oversplit));
    let figures = world.order.figures(now);
    assert_eq!((figures.tickets, figures.promised_ppm), (2, 500_000));
    // The reservation was extended; the ticket from before is shown once more.
    let longer = grant(1, 0, &[terms(600_000, 50, 400)]);
    assert_eq!(world.order.open(now, &longer, STORE), Ok(key));
    assert_eq!(world.order.open(now, &whole, STORE), Ok(key));
    assert_eq!(world.order.figures(now).promised_ppm, 600_000);
    let elsewhere = world.order.open(now, &whole, StoreId([2; 16]));
    assert_eq!(elsewhere, Err(OpenError::NoSlice));
    let is_revoked = |ticket, epoch| ticket == TicketId([1; 16]) && epoch == 0;
    world.order.revoke(now, is_revoked);
    assert_eq!(world.order.figures(now).tickets, 0, "with all its parts");
}

/// A part of a ticket, by the number of the whole and its own, with parts of parts below it.
fn part(whole: u8, numbers: &[u16], start: u64, end: u64) -> Grant {
    let mut grant = grant(whole, 0, &[terms(100, start, end)]);
    for number in numbers {
        let mut id = [200; 16];
        id[..2].copy_from_slice(&number.to_be_bytes());
        let part = (TicketId(id), terms(0, start, end));
        grant.lineage.push(part);
    }
    grant
}

const TOO_MANY: Result<TicketKey, OpenError> = Err(OpenError::Rejected(Rejection::TooManyTickets));

#[test]
fn parts_leave_room_for_those_of_others_and_for_whole_tickets() {
    let mut world = World::new(false);
    let now = world.now;
    let mut opened = [0; 3];
    for whole in [0, 1, 2] {
        let mut open = |number| {
            world
                .order
                .open(now, &part(whole, &[number], 50, 1000), STORE)
        };
        let count = (0..).take_while(|number| open(*number).is_ok()).count();
        opened[usize::from(whole)] = count;
        assert_eq!(open(5000), TOO_MANY);
        assert!(open(1).is_ok(), "what is open stays open");
        assert_eq!(
            world
                .order
                .open(now, &part(whole, &[1, 1], 50, 1000), STORE),
            TOO_MANY
        );
    }
    let [first, second, third] = opened;
    assert!((SCHEDULER_PARTS_MAX / 2 - 2..=SCHEDULER_PARTS_MAX / 2).contains(&first));
    assert!(second > first / 3 && third > second / 3, "{opened:?}");
    for whole in 3..200 {
        let grant = grant(whole, 0, &[terms(100, 50, 1000)]);
        world.order.open(now, &grant, STORE).unwrap();
    }
    // Those that are over make room.
    world.now = Time::from_secs(1100);
    let later = part(1, &[1], 1050, 2000);
    assert!(world.order.open(world.now, &later, STORE).is_ok());
}

#[test]
fn a_ticket_is_closed_with_all_its_parts_and_theirs_and_no_others() {
    let mut world = World::new(false);
    let now = world.now;
    for whole in [1, 2, 3] {
        for numbers in [&[1, 3][..], &[1, 4, 5], &[2, 6]] {
            let numbers: Vec<_> = numbers
                .iter()
                .map(|it| u16::from(whole) * 10 + it)
                .collect();
            let part = part(whole, &numbers, 50, 1000);
            world.order.open(now, &part, STORE).unwrap();
        }
    }
    assert_eq!(world.order.figures(now).tickets, 3 * 7);
    let gone = part(1, &[11], 50, 1000).lineage[1].0;
    world.order.revoke(now, |ticket, _| ticket == gone);
    assert_eq!(world.order.figures(now).tickets, 3 * 7 - 4);
    // It was over, and begins anew.
    let again = grant(2, 0, &[terms(100, 1050, 2000)]);
    let now = Time::from_secs(1100);
    world.order.open(now, &again, STORE).unwrap();
    assert_eq!(world.order.figures(now).tickets, 3 + 1 + 7);
}

#[test]
fn many_parts_are_opened_and_refused_without_a_look_at_the_others_and_closed_in_one_pass() {
    let mut world = World::new(false);
    let others = part(2, &[1], 50, 1000);
    world.order.open(world.now, &others, STORE).unwrap();
    let mut open = |number, now| {
        let part = part(1, &[number], 50, 1000);
        world.order.open(now, &part, STORE)
    };
    let now = Time::from_secs(100);
    let count = (0..)
        .take_while(|number| open(*number, now).is_ok())
        .count();
    for number in 5000..5100 {
        assert_eq!(open(number, now), TOO_MANY);
    }
    assert!(count > SCHEDULER_PARTS_MAX / 2 - 4);
    assert_eq!(world.order.looked_at.get(), 0);
    let again = grant(1, 0, &[terms(100, 1050, 2000)]);
    let now = Time::from_secs(1100);
    world.order.open(now, &again, STORE).unwrap();
    assert_eq!(world.order.figures(now).tickets, 1 + 2);
    // The whole, its parts, and the first that is another's.
    assert!((count + 1..=count + 2).contains(&world.order.looked_at.get()));
    // What was closed is not counted any more.
    let mut open = |number| {
        let part = part(1, &[number], 50, 2000);
        world.order.open(now, &part, STORE)
    };
    let again = (0..).take_while(|number| open(*number).is_ok()).count();
    assert!(again.abs_diff(count) <= 1, "{again} after {count}");
}

#[test]
fn outside_its_window_a_ticket_is_its_holder() {
    let mut world = World::new(false);
    let grant = grant(1, 0, &[terms(900_000, 101, 102)]);
    let ticket = Source::Ticket(world.order.open(world.now, &grant, STORE).unwrap());
    let user = Source::User(UserKey(7));
    world.submit(user, 8);
    world.submit(ticket, 8);
    let greedy = [user, ticket];
    let mut before = 0;
    for (second, expected) in [(101, 480..520), (102, 890..960), (103, 480..530)] {
        world.run(Time::from_secs(second), &greedy);
        let got = world.done[&ticket] - before;
        before = world.done[&ticket];
        assert!(expected.contains(&got), "{got} up to second {second}");
    }
    let key = world.order.find(&[TicketId([1; 16])]).unwrap();
    let (seconds, totals) = world.order.record(world.now, key, 0).unwrap();
    let promised: u64 = seconds.iter().map(|second| second.promised_nanos).sum();
    assert_eq!(promised, 900_000_000);
    assert_eq!(
        (totals.seconds, totals.kept),
        (seconds.len() as u64, totals.seconds)
    );
    // Long after its end it is forgotten.
    world.run(Time::from_secs(102 + 700), &[]);
    assert!(world.order.record(world.now, key, 0).is_none());
}

#[test]
fn a_ticket_whose_end_was_a_moment_ago_is_served_as_its_holder() {
    let mut world = World::new(false);
    let grant = grant(1, 0, &[terms(900_000, 50, 99)]);
    let part = grant_of_part(&grant);
    let over = Source::Ticket(world.order.open(world.now, &grant, STORE).unwrap());
    let part = Source::Ticket(world.order.open(world.now, &part, STORE).unwrap());
    world.submit(over, 2);
    world.submit(part, 2);
    world.run(Time::from_secs(101), &[]);
    assert_eq!((world.done[&over], world.done[&part]), (2, 2));
}

/// Lets a ticket read for some seconds; what it has got since the first.
fn work(world: &mut World, grant: &Grant, until: u64) -> Totals {
    let ticket = Source::Ticket(world.order.open(world.now, grant, STORE).unwrap());
    world.submit(ticket, 8);
    world.run(Time::from_secs(until), &[ticket]);
    totals(world)
}

/// Of the first ticket.
fn totals(world: &mut World) -> Totals {
    let record = world.order.record_of(world.now, &[TicketId([1; 16])], 0);
    record.unwrap().1
}

#[test]
fn what_a_ticket_got_can_be_asked_for_after_it_was_taken_back() {
    let mut world = World::new(false);
    let grant = grant(1, 0, &[terms(500_000, 50, 200)]);
    let got = work(&mut world, &grant, 104);
    assert!(got.seconds == 4 && got.kept == 4 && got.bytes > 0);
    world.run(Time::from_millis(104_500), &[]);
    world.order.revoke(world.now, |_, _| true);
    assert!(world.order.find(&[TicketId([1; 16])]).is_none());
    let after = totals(&mut world);
    assert_eq!(
        (after.seconds, after.kept),
        (5, 5),
        "and its last half second"
    );
    assert!(after.bytes >= got.bytes);
    // Until managers have accounted for the window that it had.
    world.run(Time::from_secs(200 + 599), &[]);
    assert_eq!(totals(&mut world), after);
    world.run(Time::from_secs(200 + 601), &[]);
    let record = world.order.record_of(world.now, &[TicketId([1; 16])], 0);
    assert!(record.is_none());
}

#[test]
fn what_parts_got_is_in_the_record_of_what_they_were_split_from() {
    let mut world = World::new(false);
    let whole = grant(1, 0, &[terms(500_000, 50, 200)]);
    let [whole, part] = [whole.clone(), grant_of_part(&whole)]
        .map(|grant| Source::Ticket(world.order.open(world.now, &grant, STORE).unwrap()));
    let Source::Ticket(part_key) = part else {
        panic!("not a ticket")
    };
    world.submit(part, 8);
    world.run(Time::from_secs(103), &[part]);
    // The whole one beside it, then both are taken back in the middle of a second.
    world.submit(whole, 8);
    world.run(Time::from_millis(105_500), &[part, whole]);
    let (own, _) = world.order.record(world.now, part_key, 0).unwrap();
    let (all, open) = world
        .order
        .record_of(world.now, &[TicketId([1; 16])], 0)
        .unwrap();
    assert_eq!(own.len(), all.len());
    for (own, all) in own.iter().zip(&all) {
        assert_eq!(own.second, all.second);
        let is_alone = own.second < 103;
        assert!(
            own.bytes > 0 && (all.bytes == own.bytes) == is_alone,
            "{all:?}"
        );
    }
    world.order.revoke(world.now, |_, _| true);
    let after = totals(&mut world);
    let done = world.done[&part] + world.done[&whole];
    let finished = done * u64::from(PIECE);
    assert!(open.bytes > 0 && after.bytes <= finished);
    assert!(
        after.bytes + 8 * u64::from(PIECE) >= finished,
        "{after:?} of {finished}"
    );
    assert_eq!(
        (after.seconds, after.kept),
        (all.len() as u64 + 1, after.seconds)
    );
}

#[test]
fn a_ticket_of_the_same_id_goes_on_with_the_record_of_the_one_before() {
    // In force when the longer one is shown, over, and over before the first was shown.
    for (start, end, longer_at) in [(50, 200, 104), (50, 103, 106), (50, 99, 104)] {
        let mut world = World::new(false);
        let first = grant(1, 0, &[terms(500_000, start, end)]);
        let before = work(&mut world, &first, longer_at);
        let longer = grant(1, 0, &[terms(400_000, start, 400)]);
        let after = work(&mut world, &longer, longer_at + 3);
        assert_eq!(after.seconds, before.seconds + 3, "{end}");
        assert!(after.bytes > before.bytes, "{end}");
        // Shown again after it was forgotten for another one, and in a new epoch.
        world.order.revoke(world.now, |_, epoch| epoch < 1);
        let anew = grant(1, 1, &[terms(400_000, start, 400)]);
        let last = work(&mut world, &anew, longer_at + 6);
        assert_eq!(last.seconds, after.seconds + 3, "{end}");
    }
}

#[test]
fn what_was_noted_goes_on_in_the_next_run_and_the_time_between_was_missed() {
    let mut world = World::new(false);
    let whole = grant(1, 0, &[terms(500_000, 50, 200)]);
    let before = work(&mut world, &whole, 104);
    world
        .order
        .open(world.now, &grant_of_part(&whole), STORE)
        .unwrap();
    work(&mut world, &grant(3, 0, &[terms(100_000, 50, 200)]), 104);
    world
        .order
        .revoke(world.now, |ticket, _| ticket == TicketId([3; 16]));
    let all = world.order.noted(world.now, None, (9, 2));
    assert_eq!(all.len(), 3);
    // In any pages.
    let first = world.order.noted(world.now, None, (2, 2));
    let rest = world
        .order
        .noted(world.now, Some(&first[1].lineage), (2, 2));
    assert_eq!([first, rest].concat(), all);
    let mut next = World::new(false);
    next.now = Time::from_millis(110_300);
    for noted in all {
        next.order.remember(next.now, noted);
    }
    let (seconds, totals) = next
        .order
        .record_of(next.now, &[TicketId([1; 16])], 0)
        .unwrap();
    assert_eq!((totals.bytes, totals.kept), (before.bytes, before.kept));
    assert_eq!(totals.seconds, before.seconds + 7, "104 to 110");
    assert_eq!(seconds.len(), 2 + 7, "the last two, and those");
    assert!(
        seconds[2..]
            .iter()
            .all(|one| one.shortfall == Some(Cause::ServerAway))
    );
    assert_eq!(seconds[2].promised_nanos, 500_000_000);
    // What was taken back before misses nothing.
    let over = next.order.record_of(next.now, &[TicketId([3; 16])], 0);
    assert!(over.unwrap().1.seconds <= 4);
    // A server that ends before it is shown the ticket has been there until then.
    next.run(Time::from_secs(120), &[]);
    let again = next.order.noted(next.now, None, (9, 900));
    let mut third = World::new(false);
    third.now = Time::from_secs(125);
    for noted in again {
        third.order.remember(third.now, noted);
    }
    let record = third.order.record_of(third.now, &[TicketId([1; 16])], 0);
    assert_eq!(record.unwrap().1.seconds, totals.seconds + 5);
    // It is shown again.
    let last = work(&mut third, &whole, 128);
    assert_eq!(last.seconds, totals.seconds + 5 + 3);
    assert_eq!(last.kept, totals.kept + 3);
}

#[test]
fn what_is_taken_back_before_it_is_shown_again_misses_nothing_more() {
    let mut world = World::new(false);
    work(&mut world, &grant(1, 3, &[terms(500_000, 50, 200)]), 104);
    let all = world.order.noted(world.now, None, (9, 2));
    let mut next = World::new(false);
    next.now = Time::from_secs(110);
    for noted in all {
        assert_eq!(noted.epoch, 3);
        next.order.remember(next.now, noted);
    }
    let before = totals(&mut next);
    next.now = Time::from_secs(112);
    next.order.revoke(next.now, |_, epoch| epoch < 4);
    let mut third = World::new(false);
    third.now = Time::from_secs(190);
    for noted in next.order.noted(next.now, None, (9, 2)) {
        assert_eq!(noted.end, 112);
        third.order.remember(third.now, noted);
    }
    assert_eq!(totals(&mut third), before);
}

#[test]
fn a_ticket_that_is_shown_in_the_second_in_which_the_server_began_is_read_back() {
    let mut world = World::new(false);
    work(&mut world, &grant(1, 0, &[terms(500_000, 50, 200)]), 104);
    let first = world.order.noted(world.now, None, (9, 9));
    // The clock was set back since; then it is noted in the second of its last second.
    let mut next = World::new(false);
    next.now = Time::from_millis(102_300);
    for noted in first {
        next.order.remember(next.now, noted);
    }
    next.order
        .open(next.now, &grant(1, 0, &[terms(500_000, 50, 200)]), STORE)
        .unwrap();
    let noted = next.order.noted(Time::from_millis(102_400), None, (9, 9));
    let mut third = World::new(false);
    third.now = Time::from_secs(107);
    for noted in noted {
        third.order.remember(third.now, noted);
    }
    let record = third.order.record_of(third.now, &[TicketId([1; 16])], 0);
    let (seconds, totals) = record.unwrap();
    let seconds: Vec<_> = seconds.iter().map(|one| one.second).collect();
    assert_eq!(seconds, (100..107).collect::<Vec<_>>());
    assert_eq!(totals.seconds, 7);
}

fn grant_of_part(whole: &Grant) -> Grant {
    let mut part = whole.clone();
    let terms = part.lineage[0].1.clone();
    part.lineage.push((TicketId([42; 16]), terms));
    part
}

#[test]
fn what_stalls_gives_its_place_to_others_and_is_counted_when_it_is_done() {
    let mut world = World::new(false);
    let grant = grant(1, 0, &[terms(500_000, 50, 1000)]);
    let key = world.order.open(world.now, &grant, STORE).unwrap();
    let ticket = Source::Ticket(key);
    world.submit(ticket, 40);
    let mut stalled = Vec::new();
    // Only what is stalled is not at the device: all come, whatever may be in flight.
    while let Some(next) = world.order.poll(world.now) {
        world.order.stall(world.now, next.key);
        world.order.stall(world.now, next.key);
        stalled.push(next.key);
        world.now = world.now + Duration::from_millis(4);
    }
    assert_eq!((stalled.len(), world.order.stalled()), (40, 40));
    // What the store does meanwhile, those who have their share wait for.
    let hurrying = world.order.hurrying();
    assert!((10..=40).contains(&hurrying), "{hurrying}");
    world.now = Time::from_secs(110);
    for key in stalled {
        world.order.complete(world.now, key, 10);
    }
    assert_eq!((world.order.stalled(), world.order.hurrying()), (0, 0));
    let (_, totals) = world.order.record(world.now, key, 0).unwrap();
    assert_eq!(totals.bytes, 400);
}

#[test]
fn what_is_put_aside_is_no_stall_until_it_waits_in_the_store() {
    let mut world = World::new(false);
    world.submit(Source::User(UserKey(1)), 40);
    let mut aside = Vec::new();
    while let Some(next) = world.order.poll(world.now) {
        world.order.put_aside(world.now, next.key);
        aside.push(next.key);
        world.now = world.now + Duration::from_millis(4);
    }
    assert_eq!((aside.len(), world.order.stalled()), (40, 0));
    world.order.stall(world.now, aside[0]);
    assert_eq!(world.order.stalled(), 1);
    for key in aside {
        world.order.complete(world.now, key, 10);
    }
    assert_eq!(world.order.stalled(), 0);
}

#[test]
fn the_stores_own_work_is_hurried_for_who_has_a_share_and_not_at_the_cost_of_shares() {
    let mut world = World::new(false);
    let grant = grant(1, 0, &[terms(500_000, 50, 103)]);
    let ticket = Source::Ticket(world.order.open(world.now, &grant, STORE).unwrap());
    let user = Source::User(UserKey(10));
    // One commit follows the other.
    let greedy = [user, ticket, Source::Background];
    world.submit(user, 8);
    world.submit(ticket, 8);
    world.submit(Source::Background, 1);
    let second = |world: &mut World, until: u64| {
        let before = world.done.clone();
        world.run(Time::from_secs(until), &greedy);
        let got = |source| world.done[&source] - before.get(&source).copied().unwrap_or(0);
        (got(Source::Background), got(ticket), got(user))
    };
    assert!(!world.order.hurry(world.now, user), "he has no share");
    let (background, _, others) = second(&mut world, 101);
    assert!(background <= 60 && others >= 200, "{background} {others}");
    assert!(world.order.hurry(world.now, ticket));
    let (background, reserved, others) = second(&mut world, 102);
    // Its floor, and a quarter of the device.
    let is_quarter = (150..=320).contains(&background);
    assert!(is_quarter, "{background} {reserved} {others}");
    assert!(reserved >= 495 && others >= 110, "{reserved} {others}");
    world.order.hurried();
    let (background, _, others) = second(&mut world, 103);
    assert!(background <= 60 && others >= 200, "{background} {others}");
    assert!(!world.order.hurry(world.now, ticket), "its time is over");
}

fn grant_of_space(now: u64) -> Grant {
    grant(2, 0, &[terms(0, now - 10, now + 100)])
}

#[test]
fn what_is_hurried_is_so_until_nobody_waits() {
    let dispatcher = dispatcher();
    let now = dispatcher.shared.clock.now().as_nanos() / 1_000_000_000;
    let grant = grant(1, 0, &[terms(500_000, now - 10, now + 100)]);
    let ticket = Source::Ticket(dispatcher.open(&grant, STORE).unwrap());
    assert!(dispatcher.hurry(Source::User(UserKey(1))).is_none());
    // It has space there, and no rate.
    let other = grant_of_space(now);
    let other = Source::Ticket(dispatcher.open(&other, STORE).unwrap());
    assert!(dispatcher.hurry(other).is_none());
    let waiting = [dispatcher.hurry(ticket), dispatcher.hurry(ticket)];
    let hurrying = || dispatcher.hurrying();
    assert_eq!(hurrying(), 2);
    drop(waiting);
    assert_eq!(hurrying(), 0);
}

fn dispatcher() -> Dispatcher {
    let clock = Arc::new(StorageClock::start());
    Dispatcher::start(clock, plan(), Company::alone(), false).unwrap()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn tasks_are_carried_out_and_a_panic_costs_its_own_alone() {
    let dispatcher = dispatcher();
    let done = Arc::new(AtomicUsize::new(0));
    let tasks = (0..200).map(|number| {
        let done = done.clone();
        let task: Task = Box::new(move || {
            done.fetch_add(1, Ordering::Relaxed);
            assert!(number != 7, "one that fails, as this test wants it");
            10
        });
        (Operation::Read, 4096, task)
    });
    let user = Source::User(UserKey(1));
    dispatcher.submit(user, tasks.collect::<Vec<_>>()).unwrap();
    let is_over = || dispatcher.figures().done.pieces[1] == 200;
    wait_until("all are done", is_over);
    assert_eq!(done.load(Ordering::Relaxed), 200);
    let figures = dispatcher.figures();
    assert_eq!((figures.waiting, figures.in_flight), (0, 0));
    assert_eq!(figures.done.bytes[1], 199 * 10);
}

/// Something that threads wait for.
#[derive(Clone, Default)]
struct Signal(Arc<(Mutex<bool>, Condvar)>);

impl Signal {
    fn give(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let guard = self.0.0.lock().unwrap();
        drop(self.0.1.wait_while(guard, |is_given| !*is_given).unwrap());
    }
}

#[test]
fn appends_that_wait_for_another_one_take_no_lane_no_place_and_no_stall() {
    let (dispatcher, appends) = (dispatcher(), Arc::new(Appends::default()));
    let count = 2 * (REQUESTS_IN_FLIGHT_MAX + STALLS_MAX);
    let (released, order) = (Signal::default(), Arc::new(Mutex::new(Vec::new())));
    let object = base::ObjectId([1; 16]);
    let append = |number: usize| {
        let (appends, released, order) = (appends.clone(), released.clone(), order.clone());
        let append: Task = Box::new(move || {
            released.wait();
            order.lock().unwrap().push(number);
            10
        });
        let task: Task = Box::new(move || appends.carry_out(object, append));
        (Operation::Write, 4096, task)
    };
    let user = Source::User(UserKey(1));
    dispatcher.submit(user, (0..=count).map(append)).unwrap();
    wait_until("they are put aside", || appends.waiting() == count);
    let stalled = dispatcher.shared.lock().order.stalled();
    // Others have the device, and the store's own I/O its turns there.
    let other: Task = Box::new(|| 7);
    let other = [(Operation::Read, PIECE, other)];
    dispatcher.submit(Source::User(UserKey(2)), other).unwrap();
    let bytes = |class: usize| dispatcher.figures().done.bytes[class];
    wait_until("another one is done", || bytes(1) == 7);
    drop(dispatcher.gate().enter(Direction::Write, 4096));
    let scheduled = dispatcher.figures().done.pieces[2];
    // Before anything may fail: the dispatcher waits for its lanes.
    released.give();
    assert_eq!((stalled, scheduled), (0, 1));
    let all = 7 + 10 * (count as u64 + 1);
    wait_until("all are done", || bytes(1) == all);
    assert_eq!(dispatcher.figures().in_flight, 0);
    assert_eq!(order.lock().unwrap().len(), count + 1, "each once");
    assert_eq!(appends.waiting(), 0);
}

#[test]
fn appends_that_wait_when_it_ends_are_dropped_one_after_the_other() {
    let (dispatcher, appends) = (dispatcher(), Arc::new(Appends::default()));
    let (held, released) = (Arc::new(()), Signal::default());
    let object = base::ObjectId([1; 16]);
    let append = |_| {
        let (appends, released, held) = (appends.clone(), released.clone(), held.clone());
        let append: Task = Box::new(move || {
            released.wait();
            drop(held);
            1
        });
        let task: Task = Box::new(move || appends.carry_out(object, append));
        (Operation::Write, 4096, task)
    };
    let user = Source::User(UserKey(1));
    dispatcher.submit(user, (0..1000).map(append)).unwrap();
    wait_until("they are put aside", || appends.waiting() == 999);
    thread::scope(|scope| {
        scope.spawn(|| dispatcher.stop());
        wait_until("it ends", || dispatcher.shared.lock().is_stopping);
        released.give();
    });
    assert_eq!((Arc::strong_count(&held), appends.waiting()), (1, 0));
    assert_eq!(dispatcher.figures().in_flight, 0);
}

#[test]
fn what_waits_when_it_ends_is_dropped_and_nothing_is_accepted_any_more() {
    let dispatcher = dispatcher();
    let (held, kept) = (Arc::new(()), Arc::new((Mutex::new(false), Condvar::new())));
    let tasks = (0..500).map(|_| {
        let (held, kept) = (held.clone(), kept.clone());
        let task: Task = Box::new(move || {
            let (is_over, changed) = &*kept;
            let guard = is_over.lock().unwrap();
            drop(changed.wait_while(guard, |is_over| !*is_over).unwrap());
            drop(held);
            1
        });
        (Operation::Read, PIECE, task)
    });
    let user = Source::User(UserKey(1));
    dispatcher.submit(user, tasks.collect::<Vec<_>>()).unwrap();
    wait_until("some are at work", || dispatcher.figures().in_flight > 0);
    thread::scope(|scope| {
        scope.spawn(|| dispatcher.stop());
        wait_until("it ends", || dispatcher.shared.lock().is_stopping);
        *kept.0.lock().unwrap() = true;
        kept.1.notify_all();
    });
    assert_eq!(Arc::strong_count(&held), 1, "nothing holds a task any more");
    let task: Task = Box::new(|| 1);
    let late = dispatcher.submit(user, vec![(Operation::Read, 1, task)]);
    assert_eq!(late, Err(Rejection::QueueFull));
}
