//! What a ticket's record says: seconds met, and the cause of each that was not.

use crate::world::{BYTE_NANOS, Client, Device, MILLI, QUANTUM, SECOND, World, shape, terms};
use base::Time;
use base::limits::SCHEDULER_RECORD_SECONDS_MAX;
use reservation::scheduler::{Cause, TicketKey, TicketSecond, TicketTerms};

fn flood() -> impl Iterator<Item = Client> {
    (100..130).map(|user| Client::user(user, 8, (QUANTUM / 2, QUANTUM)))
}

fn run(client: Client, device: Device, terms: &TicketTerms, seconds: u64) -> Vec<TicketSecond> {
    let clients = [client].into_iter().chain(flood()).collect();
    let mut world = World::new(2, &shape(50_000, 50_000), device, clients);
    world.open(0, terms);
    world.run(seconds * SECOND);
    let now = world.now();
    let record = world
        .scheduler
        .take_record(now, TicketKey(0))
        .expect("it is open");
    for second in &record {
        let (from, to) = (second.second * SECOND, (second.second + 1) * SECOND);
        if second.promised_nanos == SECOND / 1_000_000 * u64::from(terms.share_ppm) {
            // Whatever ends with the second counts in the next one, as for the world.
            assert_eq!(second.served_nanos, world.served(0, from, to), "{second:?}");
        }
        assert!(second.bytes.abs_diff(second.served_nanos / BYTE_NANOS) < 4000);
    }
    assert_eq!(
        world.scheduler.take_record(now, TicketKey(0)),
        Some(Vec::new())
    );
    record
}

fn shortfalls(record: &[TicketSecond]) -> Vec<(u64, Option<Cause>)> {
    record
        .iter()
        .map(|second| (second.second, second.shortfall))
        .collect()
}

#[test]
fn seconds_that_were_kept_have_no_cause() {
    let client = Client::ticket(0, 32, (QUANTUM / 4, QUANTUM));
    let record = run(client, Device::noisy(), &terms(0, 300_000), 8);
    let expected: Vec<_> = (0..8).map(|second| (second, None)).collect();
    assert_eq!(shortfalls(&record), expected);
    assert!(
        record
            .iter()
            .all(|second| second.promised_nanos == 300 * MILLI)
    );
}

#[test]
fn the_first_and_last_second_are_promised_in_part() {
    let terms = TicketTerms {
        start: Time::from_millis(1500),
        end: Time::from_millis(3250),
        ..terms(0, 400_000)
    };
    let mut client = Client::ticket(0, 32, (QUANTUM / 4, QUANTUM));
    client.active = vec![(1500 * MILLI, 10 * SECOND)];
    let record = run(client, Device::exact(), &terms, 6);
    let promised: Vec<_> = record
        .iter()
        .map(|second| (second.second, second.promised_nanos / MILLI))
        .collect();
    assert_eq!(promised[..3], [(1, 200), (2, 400), (3, 100)]);
    assert!(record.iter().all(|second| second.shortfall.is_none()));
}

#[test]
fn who_asks_for_nothing_has_no_demand() {
    let mut client = Client::ticket(0, 32, (QUANTUM / 4, QUANTUM));
    client.active = vec![(2 * SECOND, 4 * SECOND)];
    let record = run(client, Device::exact(), &terms(0, 300_000), 7);
    let none = Some(Cause::NoDemand);
    let expected = [
        (0, none),
        (1, none),
        (2, None),
        (3, None),
        (4, none),
        (5, none),
        (6, none),
    ];
    assert_eq!(shortfalls(&record), expected);
}

#[test]
fn who_asks_one_by_one_has_too_few_in_flight() {
    // One request at a time takes three times its cost: a third of the device is the most.
    let client = Client::ticket(0, 1, (QUANTUM, QUANTUM));
    let record = run(client, Device::exact(), &terms(0, 600_000), 5);
    let causes: Vec<_> = record.iter().map(|second| second.shortfall).collect();
    assert_eq!(causes, [Some(Cause::TooFewInFlight); 5]);
}

#[test]
fn a_slow_device_is_said_to_be_slow_and_then_degraded() {
    let client = Client::ticket(0, 32, (QUANTUM / 4, QUANTUM));
    let device = Device {
        slow: vec![(2 * SECOND, 9 * SECOND, 3)],
        ..Device::exact()
    };
    let record = run(client, device, &terms(0, 800_000), 14);
    let expected = [
        (0, None),
        (1, None),
        (2, Some(Cause::SlowDevice)),
        (3, Some(Cause::SlowDevice)),
    ];
    assert_eq!(shortfalls(&record)[..4], expected);
    let degraded: Vec<_> = (4..9)
        .map(|second| (second, Some(Cause::Degraded)))
        .collect();
    assert_eq!(shortfalls(&record)[4..9], degraded);
    assert_eq!(
        shortfalls(&record)[10..],
        [(10, None), (11, None), (12, None), (13, None)]
    );
}

#[test]
fn what_nobody_takes_is_bounded() {
    let mut world = World::new(2, &shape(0, 0), Device::exact(), flood().collect());
    world.open(0, &terms(0, 300_000));
    world.run(SECOND);
    // A server that was busy otherwise for an hour.
    let seconds = 3600;
    world.time = seconds * SECOND;
    let now = world.now();
    let record = world.scheduler.take_record(now, TicketKey(0)).unwrap();
    assert_eq!(record.len(), SCHEDULER_RECORD_SECONDS_MAX);
    assert_eq!(record.last().unwrap().second, seconds - 1);
    assert!(
        record
            .windows(2)
            .all(|pair| pair[0].second + 1 == pair[1].second)
    );
}
