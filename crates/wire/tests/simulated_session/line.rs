//! A full line: the window comes from [`readahead::LinkEstimator`], the data flow through the
//! session.

use crate::client::{Client, End, What};
use crate::server::Server;
use crate::world::{Event, World};
use base::{Rate, Time};
use sim::{Random, Shape};
use std::time::Duration;
use wire::frame::Class;

/// Goodput of a gigabit line, bytes per second.
const GIGABIT: u64 = 117_700_000;
const MEMORY_BYTES: u64 = 256 << 20;
const DEMAND_BYTES: u32 = 4096;

/// What a test does at a moment of its own.
enum Act {
    /// An application reads something that nobody has predicted.
    Demand,
}

/// A line of `rtt_millis` with an endless supply of bulk data.
struct Busy {
    world: World<Act>,
    class: Class,
}

fn shape(rtt_millis: u64, rate: u64) -> Shape {
    Shape::line(Duration::from_micros(rtt_millis * 500), Rate(rate))
}

impl Busy {
    fn new(seed: u64, connections: usize, shape: Shape, class: Class) -> Self {
        let mut random = Random::new(seed);
        let service_time_max = Duration::from_micros(200);
        let server = Server::new(random.fork(), service_time_max, service_time_max);
        let client = Client::new(connections, MEMORY_BYTES);
        let world = World::new(random, shape, 16 << 10, client, server);
        Self { world, class }
    }

    fn run_until(&mut self, end: Time) {
        let class = self.class;
        self.world.run_until(end, |world, event| {
            if let Some(Act::Demand) = event {
                let what = What::Read(DEMAND_BYTES);
                world.client.submit(world.now, Class::Demand, what, None);
            }
            keep_full(world, class);
        });
    }

    /// Share of the line that bulk data had in `[from, to)`.
    fn share(&self, from: Time, to: Time, rate: u64) -> f64 {
        let book = self.world.client.book.values();
        let bulk = book.filter(|asked| asked.class == self.class);
        let bytes: u64 = bulk
            .filter_map(|asked| match asked.end {
                Some((at, End::Answered { .. })) if (from..to).contains(&at) => Some(asked.what),
                _ => None,
            })
            .map(|what| match what {
                What::Read(bytes) | What::Append(bytes) => u64::from(bytes),
                What::Close | What::Lock => 0,
            })
            .sum();
        bytes as f64 / to.since(from).as_secs_f64() / rate as f64
    }

    /// How long each demand waited, shortest first.
    fn waits(&self) -> Vec<Duration> {
        let book = self.world.client.book.values();
        let demands = book.filter(|asked| asked.class == Class::Demand);
        let mut waits: Vec<_> = demands
            .map(|asked| asked.end.as_ref().unwrap().0.since(asked.at))
            .collect();
        waits.sort_unstable();
        waits
    }
}

/// Queues as much as the window has room for, as a greedy reader or writer does.
fn keep_full(world: &mut World<Act>, class: Class) {
    let client = &mut world.client;
    loop {
        let (link, queued_bytes) = match class {
            Class::Write => (&client.upload, client.session.in_flight().queued as u64),
            _ => (&client.download, client.session.queued_read_bytes()),
        };
        let bytes = link.extent_bytes();
        if link.room_bytes() < queued_bytes + bytes || (class == Class::Write && queued_bytes > 0) {
            return;
        }
        let bytes = bytes as u32;
        let what = match class {
            Class::Write => What::Append(bytes),
            _ => What::Read(bytes),
        };
        client.submit(world.now, class, what, None);
    }
}

fn millis(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn seeded(seed: u64, rtt_millis: u64) -> Shape {
    // The seed moves the figures a little, so that no test rests on one lucky number.
    let mut random = Random::new(seed);
    let rate = random.within(GIGABIT * 95 / 100..GIGABIT);
    let delay = Duration::from_micros(rtt_millis * 500) + random.up_to(Duration::from_micros(50));
    Shape::line(delay, Rate(rate))
}

#[test]
fn bulk_fills_a_line_of_any_length_in_both_directions() {
    let command = "cargo test -p wire --test simulated_session bulk_fills";
    crate::seeds(command, 4).run(|seed| {
        for class in [Class::Prediction, Class::Write] {
            for rtt_millis in [0, 1, 10, 25, 50, 100, 250] {
                let shape = seeded(seed, rtt_millis);
                let mut busy = Busy::new(seed, 9, shape, class);
                let settled = millis(10 * rtt_millis.max(10));
                let end = settled + Duration::from_millis(12 * rtt_millis + 1000);
                busy.run_until(end);
                let share = busy.share(settled, end, shape.rate.0);
                let line = busy.world.client.download.line();
                assert!(
                    share >= 0.95,
                    "{class:?} at {rtt_millis} ms: {share:.3}, {line:?}"
                );
            }
        }
    });
}

/// All bulk connections may be gone; the main one then carries everything, and all of it.
#[test]
fn one_connection_alone_fills_the_line_too() {
    for class in [Class::Prediction, Class::Write] {
        for connections in [1, 2] {
            let mut busy = Busy::new(1, connections, shape(50, GIGABIT), class);
            busy.run_until(millis(2000));
            let share = busy.share(millis(1000), millis(2000), GIGABIT);
            assert!(share >= 0.95, "{class:?} on {connections}: {share:.3}");
        }
    }
}

#[test]
fn who_waits_is_not_behind_a_full_window_of_bulk_data() {
    let command = "cargo test -p wire --test simulated_session who_waits";
    crate::seeds(command, 3).run(|seed| {
        for rtt_millis in [25, 50, 100] {
            let shape = seeded(seed, rtt_millis);
            let mut busy = Busy::new(seed, 9, shape, Class::Prediction);
            // The first doubling of the window overshoots; sixteen round trips later it is over.
            let settled = millis(18 * rtt_millis);
            for at in 0..250 {
                let at = settled + Duration::from_millis(at * 37);
                busy.world.agenda.at(at, Event::Test(Act::Demand));
            }
            busy.run_until(settled + Duration::from_secs(11));
            let waits = busy.waits();
            let in_rtt = |wait: Duration| wait.as_secs_f64() * 1000.0 / rtt_millis as f64;
            let at = |percent: usize| in_rtt(waits[(waits.len() - 1) * percent / 100]);
            // Twelve rounds of the window in turn: two probe with half a round trip's worth of
            // queue, the others have a quarter.
            for (percent, most) in [(50, 1.4), (80, 1.55), (100, 1.7)] {
                let wait = at(percent);
                assert!(
                    wait <= most,
                    "{rtt_millis} ms, {percent} %: {wait:.2} round trips"
                );
            }
        }
    });
}

/// A tenth of a second is what ten round trips are worth on a line without distance: the ends' own
/// time counts there.
fn ten_round_trips(shape: Shape) -> Duration {
    (shape.delay * 20).max(Duration::from_millis(100))
}

#[test]
fn a_changed_line_is_full_again_within_ten_round_trips() {
    const SLOW: u64 = GIGABIT / 10;
    let steps = [
        vec![(0, GIGABIT), (100, GIGABIT), (25, GIGABIT)],
        vec![(25, GIGABIT), (25, SLOW), (25, GIGABIT)],
        vec![(100, GIGABIT), (100, SLOW), (100, GIGABIT)],
        vec![(0, GIGABIT), (100, SLOW), (25, GIGABIT)],
        vec![(10, GIGABIT), (60, GIGABIT), (200, GIGABIT)],
    ];
    for class in [Class::Prediction, Class::Write] {
        for steps in &steps {
            let shapes: Vec<Shape> = steps.iter().map(|(rtt, rate)| shape(*rtt, *rate)).collect();
            let mut busy = Busy::new(1, 9, shapes[0], class);
            for (at, shape) in shapes.iter().enumerate() {
                let from = Time::from_secs(6 * at as u64);
                busy.world.agenda.at(from, Event::Reshape(*shape));
                let settled = from + ten_round_trips(*shape);
                let judged = settled + Duration::from_secs(1);
                busy.run_until(judged);
                let share = busy.share(settled, judged, shape.rate.0);
                let line = busy.world.client.download.line();
                assert!(
                    share >= 0.90,
                    "{class:?} {steps:?}, step {at}: {share:.3}, {line:?}"
                );
                busy.run_until(from + Duration::from_secs(6));
            }
        }
    }
}

#[test]
fn connections_that_come_and_go_cost_little() {
    let command = "cargo test -p wire --test simulated_session connections_that";
    crate::seeds(command, 3).run(|seed| {
        let mut busy = Busy::new(seed, 9, shape(50, GIGABIT), Class::Prediction);
        busy.world.reconnect_time_max = Duration::from_millis(400);
        let mut random = Random::new(seed);
        // One of the eight bulk connections breaks every 300 ms, with an eighth of the window.
        for at in 3..30 {
            let slot = random.within(1..9) as usize;
            busy.world
                .agenda
                .at(millis(at * 300), Event::Reset { slot });
        }
        busy.run_until(millis(9000));
        let share = busy.share(millis(1000), millis(9000), GIGABIT);
        assert!(share >= 0.85, "{share:.3}");
    });
}
