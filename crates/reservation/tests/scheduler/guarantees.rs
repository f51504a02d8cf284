//! What a ticket and the two floors are promised: Q1, Q2 and Q5 of the design, whatever others do.

use crate::world::{
    Chance, Client, Device, Done, IN_FLIGHT, MILLI, QUANTUM, SECOND, World, shape, terms,
};
use proptest::prelude::*;
use reservation::scheduler::{Right, Source};
use std::time::Duration;

/// Everybody who is not reserved: fifty greedy users with small and large requests, and background
/// work without end.
fn greedy(first_user: u64) -> Vec<Client> {
    let users = (0..50).map(|user| {
        let costs = match user % 3 {
            0 => (QUANTUM / 64, QUANTUM / 64),
            1 => (QUANTUM, QUANTUM),
            _ => (QUANTUM / 100, QUANTUM),
        };
        Client::user(first_user + user, 8, costs)
    });
    let background = Client::new(Source::Background, 16, (QUANTUM / 2, QUANTUM));
    users.chain([background]).collect()
}

/// A sum of shares divided at random.
fn shares(chance: &mut Chance, count: u64, sum_ppm: u64) -> Vec<u32> {
    let parts: Vec<u64> = (0..count).map(|_| chance.within(10, 100)).collect();
    let whole: u64 = parts.iter().sum();
    parts
        .iter()
        .map(|part| (part * sum_ppm / whole) as u32)
        .collect()
}

/// At least `percent` of its share in every window of `length` between two times, up to a request
/// that is cut by each end of the window.
fn assert_kept(world: &World, client: usize, share_ppm: u32, (from, to): (u64, u64)) {
    for (length, percent) in [(SECOND, 95), (10 * SECOND, 99)] {
        let mut start = from;
        while start + length <= to {
            let served = world.served(client, start, start + length);
            let promised = length / 1_000_000 * u64::from(share_ppm);
            assert!(
                served + QUANTUM >= promised * percent / 100,
                "client {client}: {served} of {promised} ns from {start} on"
            );
            start += SECOND / 10;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn shares_are_kept_in_every_second_beside_greedy_users(seed in any::<u64>()) {
        let mut chance = Chance::new(seed);
        let shares = shares(&mut chance, 32, 900_000);
        let tickets = (0..32).map(|key| {
            let low = chance.within(QUANTUM / 100, QUANTUM);
            Client::ticket(key, 32, (low, chance.within(low, QUANTUM)))
        });
        let clients = tickets.chain(greedy(100)).collect();
        // What is promised is what the device does nearly always: 5 % below its mean.
        let device = Device { percent: (30, 160), ..Device::noisy() };
        let mut world = World::new(seed, &shape(50_000, 50_000), device, clients);
        for (key, share) in shares.iter().enumerate() {
            world.open(key as u64, &terms(key as u64, *share));
        }
        world.run(12 * SECOND);
        for (client, share) in shares.iter().enumerate() {
            assert_kept(&world, client, *share, (SECOND / 10, 12 * SECOND));
        }
        let all = world.served_all(SECOND, 11 * SECOND);
        prop_assert!(all >= 10 * SECOND / 100 * 95, "{all}");
    }

    #[test]
    fn who_comes_back_from_a_pause_takes_nothing_from_steady_tickets(seed in any::<u64>()) {
        let mut chance = Chance::new(seed);
        let shares = shares(&mut chance, 20, 900_000);
        let clients = (0..20).map(|key| {
            let mut client = Client::ticket(key, 64, (QUANTUM / 10, QUANTUM));
            if key % 2 == 1 {
                // Idle for seconds, then everything at once; all at the same moments.
                let seconds = (0..6).map(|n| ((2 * n + 1) * SECOND, (2 * n + 2) * SECOND));
                client.active = seconds.collect();
            }
            client
        });
        let clients = clients.chain(greedy(100)).collect();
        let mut world = World::new(seed, &shape(50_000, 50_000), Device::exact(), clients);
        for (key, share) in shares.iter().enumerate() {
            let burst = if key % 2 == 1 { 1000 } else { 10 };
            let terms = terms(key as u64, *share);
            world.open(key as u64, &reservation::scheduler::TicketTerms {
                burst: Duration::from_millis(burst),
                ..terms
            });
        }
        world.run(12 * SECOND);
        for (client, share) in shares.iter().enumerate().step_by(2) {
            assert_kept(&world, client, *share, (SECOND / 10, 12 * SECOND));
        }
    }

    #[test]
    fn a_clock_that_steps_takes_nothing_from_anybody(seed in any::<u64>()) {
        let mut chance = Chance::new(seed);
        let shares = shares(&mut chance, 10, 800_000);
        let tickets = (0..10).map(|key| Client::ticket(key, 32, (QUANTUM / 10, QUANTUM)));
        let clients = tickets.chain(greedy(100)).collect();
        let mut world = World::new(seed, &shape(50_000, 50_000), Device::exact(), clients);
        world.clock_offset = (3600 * SECOND) as i64;
        for (key, share) in shares.iter().enumerate() {
            world.open(key as u64, &terms(key as u64, *share));
        }
        for step in 1..4 {
            world.run(step * 3 * SECOND);
            world.clock_offset += chance.within(0, 1000 * SECOND) as i64 - (500 * SECOND) as i64;
            // A second after a leap ahead is in debt to all tickets alike.
        }
        world.run(12 * SECOND);
        for (client, share) in shares.iter().enumerate() {
            for after_step in [3, 6, 9] {
                let window = (after_step * SECOND, (after_step + 3) * SECOND);
                assert_kept(&world, client, *share, window);
            }
        }
    }
}

#[test]
fn a_due_request_waits_for_what_is_in_flight_and_a_quantum_of_each_floor() {
    // One request at a time and then a pause, so that each is due when it comes.
    let mut reserved = Client::ticket(0, 1, (QUANTUM / 4, QUANTUM / 4));
    reserved.think = 7 * MILLI;
    let clients = [reserved].into_iter().chain(greedy(100)).collect();
    let mut world = World::new(1, &shape(50_000, 50_000), Device::exact(), clients);
    world.open(0, &terms(0, 300_000));
    world.run(10 * SECOND);
    let done = &world.done[0];
    assert!(done.len() > 500, "{}", done.len());
    // Up to a lane of the device; it has three, each of which takes three times the cost.
    let longest = done.iter().map(|done| done.wait).max().unwrap();
    assert!(
        longest <= IN_FLIGHT + 2 * QUANTUM + 3 * QUANTUM,
        "{longest}"
    );
    assert!(done.iter().all(|done| done.right == Right::Share));
}

#[test]
fn background_work_has_its_floor_and_no_more_while_others_wait() {
    let background = Client::new(Source::Background, 16, (QUANTUM / 2, QUANTUM));
    let mut user = Client::user(7, 16, (QUANTUM, QUANTUM));
    user.active = vec![(5 * SECOND, 10 * SECOND)];
    let ticket = Client::ticket(0, 16, (QUANTUM, QUANTUM));
    let clients = vec![
        background,
        user,
        Client {
            active: vec![(10 * SECOND, 15 * SECOND)],
            ..ticket
        },
    ];
    let mut world = World::new(1, &shape(50_000, 80_000), Device::exact(), clients);
    world.open(0, &terms(0, 870_000));
    world.run(15 * SECOND);
    let alone = world.served(0, SECOND, 5 * SECOND);
    assert!(alone >= 4 * SECOND * 99 / 100, "{alone}");
    for from in [6, 11] {
        for second in from..from + 3 {
            let served = world.served(0, second * SECOND, (second + 1) * SECOND);
            let floor = SECOND * 8 / 100;
            assert!(
                (floor - QUANTUM..=floor + QUANTUM).contains(&served),
                "{second}: {served}"
            );
        }
    }
}

#[test]
fn an_overloaded_device_divides_what_it_has_as_was_promised() {
    // 80 % are promised to tickets, and the device does half of what it did.
    let tickets = [400_000, 300_000, 90_000, 10_000];
    let reserved = (0..4).map(|key| Client::ticket(key, 64, (QUANTUM / 10, QUANTUM)));
    let clients = reserved.chain(greedy(100)).collect();
    let device = Device {
        slow: vec![(0, 30 * SECOND, 2)],
        ..Device::exact()
    };
    let mut world = World::new(3, &shape(100_000, 100_000), device, clients);
    for (key, share) in tickets.iter().enumerate() {
        world.open(key as u64, &terms(key as u64, *share));
    }
    world.run(30 * SECOND);
    let served = |client: usize, right| {
        let within = |done: &&Done| done.right == right && done.time >= 10 * SECOND;
        world.done[client]
            .iter()
            .filter(within)
            .map(|done| done.cost)
            .sum::<u64>()
    };
    // The holders of tickets have a part of the unreserved floor, too.
    let users: u64 = (0..54).map(|client| served(client, Right::Floor)).sum();
    let background = served(54, Right::Floor);
    let parts = (0..4).map(|key| (served(key, Right::Share), tickets[key]));
    for (served, share) in parts.chain([(users, 100_000), (background, 100_000)]) {
        let expected = 10 * SECOND / 1_000_000 * u64::from(share);
        let difference = served.abs_diff(expected);
        assert!(difference <= expected * 4 / 100, "{served} of {expected}");
    }
    assert!(world.scheduler.is_degraded());
    let speed = world.scheduler.speed_ppm().unwrap();
    assert!((480_000..=520_000).contains(&speed), "{speed}");
    assert!(world.scheduler.slipped() > Duration::from_secs(10));
}

#[test]
fn what_a_slow_moment_took_is_made_good() {
    let reserved = (0..4).map(|key| Client::ticket(key, 64, (QUANTUM / 10, QUANTUM)));
    let clients = reserved.chain(greedy(100)).collect();
    let device = Device {
        slow: vec![(5 * SECOND, 5 * SECOND + SECOND / 2, 20)],
        ..Device::exact()
    };
    let mut world = World::new(3, &shape(50_000, 50_000), device, clients);
    for key in 0..4 {
        world.open(key, &terms(key, 150_000));
    }
    world.run(15 * SECOND);
    for client in 0..4 {
        let lost = world.served(client, 5 * SECOND, 6 * SECOND);
        assert!(lost < SECOND * 14 / 100, "{lost}");
        assert_kept(&world, client, 150_000, (7 * SECOND, 15 * SECOND));
        let all = world.served(client, 4 * SECOND, 14 * SECOND);
        assert!(all >= 10 * SECOND * 15 / 100 * 99 / 100, "{all}");
    }
    assert!(!world.scheduler.is_degraded());
}

#[test]
fn what_a_long_slow_time_took_is_made_good_up_to_a_second() {
    let reserved = (0..4).map(|key| Client::ticket(key, 64, (QUANTUM / 10, QUANTUM)));
    let clients = reserved.chain(greedy(100)).collect();
    let device = Device {
        slow: vec![(5 * SECOND, 20 * SECOND, 4)],
        ..Device::exact()
    };
    let mut world = World::new(3, &shape(50_000, 50_000), device, clients);
    for key in 0..4 {
        world.open(key, &terms(key, 150_000));
    }
    world.run(26 * SECOND);
    // Behind by a second of 70 %, with 30 % to spare: all is as before three seconds later.
    let others = |second: u64| -> u64 {
        let second = (second * SECOND, (second + 1) * SECOND);
        (4..54)
            .map(|client| world.served(client, second.0, second.1))
            .sum()
    };
    assert!(others(20) < SECOND / 10, "{}", others(20));
    for second in [23, 24, 25] {
        assert!(
            others(second) > SECOND * 30 / 100,
            "{second}: {}",
            others(second)
        );
    }
}
