//! The window on a modelled line: how soon it fills a new one, and how soon it is right again after
//! the line has changed.

mod common;

use base::{Extent, Time};
use common::{App, GIGABIT, KIB, MIB, Path, Step, calls_of};
use readahead::{LineMemory, LinkEstimator, Sent};
use std::collections::VecDeque;
use std::time::Duration;

/// A greedy sender: whatever the window allows, it asks for.
struct Greedy {
    link: LinkEstimator,
    path: Path,
    in_flight: VecDeque<(Time, Sent)>,
    delivered: Vec<(Time, u64)>,
    now: Time,
    /// What the transport below lets go at most.
    transport_bytes_max: u64,
    /// Every second reply of this time comes at its end, as on a connection that lost something.
    held_up: (Time, Time),
    asked: u64,
}

impl Greedy {
    fn new(link: LinkEstimator, path: Path) -> Self {
        Self {
            link,
            path,
            in_flight: VecDeque::new(),
            delivered: Vec::new(),
            now: Time::ZERO,
            transport_bytes_max: u64::MAX,
            held_up: (Time::ZERO, Time::ZERO),
            asked: 0,
        }
    }

    fn run_until(&mut self, end: Time) {
        loop {
            let extent_bytes = self.link.extent_bytes();
            while self.link.room_bytes() >= extent_bytes
                && self.link.in_flight_bytes() + extent_bytes <= self.transport_bytes_max
            {
                let sent = self.link.on_sent(self.now, extent_bytes);
                let mut at = self.path.request(self.now, extent_bytes);
                self.asked += 1;
                if self.asked.is_multiple_of(2) && (self.held_up.0..self.held_up.1).contains(&at) {
                    at = self.held_up.1;
                }
                self.in_flight.push_back((at, sent));
            }
            let times = self.in_flight.iter().map(|(at, _)| *at);
            let Some((first, at)) = times.enumerate().min_by_key(|(_, at)| *at) else {
                return;
            };
            if at > end {
                return;
            }
            let (_, sent) = self.in_flight.remove(first).expect("found above");
            self.now = at;
            self.link.on_reply(at, sent, sent.bytes(), Duration::ZERO);
            self.delivered.push((at, sent.bytes()));
        }
    }

    /// Share of the line used in `[from, to)`.
    fn share(&self, from: Time, to: Time, rate: u64) -> f64 {
        let within = self
            .delivered
            .iter()
            .filter(|(at, _)| (from..to).contains(at));
        let bytes = within.map(|(_, bytes)| bytes).sum::<u64>();
        bytes as f64 / to.since(from).as_secs_f64() / rate as f64
    }
}

const SLOW: u64 = GIGABIT / 10;

fn millis(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn step(from_millis: u64, rtt_millis: u64, rate: u64) -> Step {
    Step {
        from: millis(from_millis),
        rtt: Duration::from_millis(rtt_millis),
        rate,
    }
}

#[test]
fn a_new_line_is_filled_within_eight_round_trips() {
    for rtt_millis in [1, 10, 25, 50, 100, 300] {
        let mut link = LinkEstimator::new(256 * MIB);
        link.expect_rtt(Duration::from_millis(rtt_millis));
        let mut greedy = Greedy::new(link, Path::fixed(rtt_millis, GIGABIT));
        let settled = millis(8 * rtt_millis.max(2));
        let end = settled + Duration::from_millis(20 * rtt_millis + 200);
        greedy.run_until(end);
        let share = greedy.share(settled, end, GIGABIT);
        assert!(share >= 0.95, "{rtt_millis} ms: {share:.3}");
        let bdp_bytes = GIGABIT * rtt_millis / 1000;
        let line = greedy.link.line();
        assert!(
            line.window_bytes <= bdp_bytes * 3 / 2 + 4 * MIB,
            "{rtt_millis} ms: a queue of {line:?} for a BDP of {bdp_bytes}"
        );
        assert!(
            line.bdp_bytes() >= bdp_bytes * 9 / 10,
            "{rtt_millis} ms: {line:?}"
        );
    }
}

#[test]
fn on_a_near_line_several_parts_of_a_write_are_in_flight() {
    let mut greedy = Greedy::new(LinkEstimator::new(256 * MIB), Path::fixed(0, GIGABIT));
    assert_eq!(greedy.link.near_part_bytes(), MIB);
    let (mut turns, mut several) = (0, 0);
    for turn in (1000..3000).step_by(5) {
        greedy.run_until(millis(turn));
        let parts = greedy.link.window_bytes() / greedy.link.near_part_bytes();
        turns += 1;
        several += u32::from(parts >= 3);
    }
    // But for one round in twelve, which drains.
    assert!(several * 10 >= turns * 9, "{several} of {turns}");
}

#[test]
fn before_devices_there_is_more_in_flight_than_the_line_holds() {
    let windows = |has_devices: bool, rate: u64| {
        let mut link = LinkEstimator::new(256 * MIB);
        if has_devices {
            link.expect_devices();
        }
        let mut greedy = Greedy::new(link, Path::fixed(0, rate));
        let windows = (1000..2000).step_by(5).map(|turn| {
            greedy.run_until(millis(turn));
            greedy.link.window_bytes()
        });
        let mut windows: Vec<u64> = windows.collect();
        windows.sort_unstable();
        // But for one round in twelve, which drains.
        (windows[windows.len() / 10], windows[windows.len() - 1])
    };
    let (least, most) = windows(true, 8 * GIGABIT);
    assert!(least >= 12 * MIB && most <= 20 * MIB, "{least} to {most}");
    let (least, most) = windows(false, 8 * GIGABIT);
    assert!(least >= 3 * MIB && most <= 7 * MIB, "{least} to {most}");
    // What a slow line brings in 16 ms.
    let (_, most) = windows(true, GIGABIT);
    assert!(most <= 3 * MIB, "{most}");
}

/// Full again within ten of its round trips after each step, and what is in flight is soon less
/// than two BDP and the floor.
fn check_steps(name: &str, steps: &[Step]) {
    let mut greedy = Greedy::new(
        LinkEstimator::new(256 * MIB),
        Path::stepping(steps.to_vec()),
    );
    for (at, now) in steps.iter().enumerate() {
        let next = steps.get(at + 1).map(|next| next.from);
        let end = next.unwrap_or(now.from + Duration::from_secs(5));
        // Ten round trips as the line has them; without distance, the ends' own time counts.
        let settled = now.from + (now.rtt * 10).max(Duration::from_millis(100));
        let judged = settled + Duration::from_millis(1000);
        greedy.run_until(judged);
        let share = greedy.share(settled, judged, now.rate);
        let what = format!("{name}, from {}, {:?}", now.from, greedy.link.line());
        assert!(share >= 0.90, "{what}: {share:.3}");
        greedy.run_until(end);
        // A turn of probe and drain.
        let turn = now.rtt * 12 + Duration::from_millis(500);
        let share = greedy.share(end - turn, end, now.rate);
        let what = format!("{name}, late from {}, {:?}", now.from, greedy.link.line());
        assert!(share >= 0.95, "{what}: {share:.3}");
        let bdp_bytes = now.rate * now.rtt.as_millis() as u64 / 1000;
        assert!(
            greedy.link.window_bytes() <= bdp_bytes * 7 / 4 + 2 * MIB,
            "{what}"
        );
    }
}

#[test]
fn a_first_window_that_tcp_does_not_fill_shrinks_to_the_line() {
    let mut link = LinkEstimator::new(256 * MIB);
    link.expect_rtt(Duration::from_millis(100));
    let mut greedy = Greedy::new(link, Path::fixed(100, SLOW));
    greedy.transport_bytes_max = 5 * MIB;
    assert!(greedy.link.window_bytes() > 8 * MIB);
    greedy.run_until(millis(3000));
    let bdp_bytes = SLOW / 10;
    let window_bytes = greedy.link.window_bytes();
    assert!(window_bytes <= 2 * bdp_bytes, "{window_bytes}");
    assert!(greedy.share(millis(1000), millis(3000), SLOW) >= 0.95);
}

#[test]
fn replies_that_were_held_up_are_not_taken_for_a_faster_line() {
    for from_millis in [300, 900, 3000] {
        let mut greedy = Greedy::new(LinkEstimator::new(256 * MIB), Path::fixed(100, GIGABIT));
        greedy.held_up = (millis(from_millis), millis(from_millis + 250));
        greedy.run_until(millis(from_millis + 2000));
        let rate = greedy.link.line().rate.0;
        assert!(rate <= GIGABIT * 21 / 20, "{from_millis} ms: {rate}");
    }
}

#[test]
fn the_window_is_right_again_ten_round_trips_after_the_distance_steps() {
    check_steps(
        "0, 100, 25 ms",
        &[
            step(0, 0, GIGABIT),
            step(4000, 100, GIGABIT),
            step(9000, 25, GIGABIT),
        ],
    );
    let growing = [(0, 10), (4000, 30), (6000, 60), (9000, 200)];
    check_steps(
        "10 to 200 ms",
        &growing.map(|(from, rtt)| step(from, rtt, GIGABIT)),
    );
}

#[test]
fn the_window_is_right_again_ten_round_trips_after_the_rate_steps() {
    for rtt in [0, 10, 25, 50, 100] {
        let steps = [
            step(0, rtt, GIGABIT),
            step(6000, rtt, SLOW),
            step(12_000, rtt, GIGABIT),
        ];
        check_steps(&format!("rate 1000, 100, 1000 at {rtt} ms"), &steps);
    }
}

#[test]
fn the_window_is_right_again_ten_round_trips_after_both_step() {
    check_steps(
        "both at once",
        &[
            step(0, 0, GIGABIT),
            step(4000, 100, SLOW),
            step(9000, 25, GIGABIT),
        ],
    );
}

/// Where in its turn the estimator is when the line changes must not matter.
#[test]
fn no_moment_for_a_step_is_a_bad_one() {
    for offset in 0..60 {
        let at = 4000 + offset * 7;
        let steps = [
            step(0, 0, GIGABIT),
            step(at, 100, GIGABIT),
            step(at + 5000, 25, GIGABIT),
        ];
        check_steps(&format!("offset {offset}"), &steps);
        let steps = [
            step(0, 25, GIGABIT),
            step(at, 25, SLOW),
            step(at + 5000, 25, GIGABIT),
        ];
        check_steps(&format!("rate, offset {offset}"), &steps);
    }
}

/// On a busy machine replies come in bursts, after pauses of many milliseconds.
#[test]
fn a_receiver_that_stalls_does_not_mislead_the_window() {
    for rtt_millis in [0, 5, 25, 100] {
        for (every, length) in [(50, 5), (200, 15), (1000, 60)] {
            let mut path = Path::fixed(rtt_millis, GIGABIT);
            path.stall = Some((Duration::from_millis(every), Duration::from_millis(length)));
            let mut greedy = Greedy::new(LinkEstimator::new(256 * MIB), path);
            let bdp_bytes = GIGABIT * rtt_millis / 1000;
            let mut largest = 0;
            for at in 0..900 {
                greedy.run_until(millis(1000 + at * 10));
                if at > 100 {
                    largest = largest.max(greedy.link.window_bytes());
                }
            }
            let share = greedy.share(millis(2000), millis(10_000), GIGABIT);
            let what = format!("{rtt_millis} ms, {length} in {every}: {share:.3}, {largest}");
            // While it sleeps longer than the window lasts, the line must idle.
            assert!(share >= 0.90, "{what}, {:?}", greedy.link.line());
            assert!(
                largest <= bdp_bytes * 5 / 2 + 5 * MIB,
                "{what} for a BDP of {bdp_bytes}"
            );
        }
    }
}

/// A cold connection gives a hundredth of the line at first.
#[test]
fn the_window_follows_a_transport_in_its_own_slow_start() {
    for rtt_millis in [10, 50, 100] {
        let mut path = Path::fixed(rtt_millis, GIGABIT);
        path.slow_start_bytes = Some(14_600);
        let mut greedy = Greedy::new(LinkEstimator::new(256 * MIB), path);
        // The transport itself needs ten round trips at 100 ms.
        let settled = millis(16 * rtt_millis);
        let end = settled + Duration::from_millis(20 * rtt_millis);
        greedy.run_until(end);
        let share = greedy.share(settled, end, GIGABIT);
        assert!(
            share >= 0.90,
            "{rtt_millis} ms: {share:.3}, {:?}",
            greedy.link.line()
        );
    }
}

/// A reader on demand waits behind what is queued for the others.
#[test]
fn bulk_adds_less_than_half_a_round_trip_to_others() {
    for rtt_millis in [25, 50, 100] {
        let mut greedy = Greedy::new(
            LinkEstimator::new(256 * MIB),
            Path::fixed(rtt_millis, GIGABIT),
        );
        let mut worst = Duration::ZERO;
        for at in 0..200 {
            let now = millis(20 * rtt_millis + at * 37);
            greedy.run_until(now);
            worst = worst.max(greedy.path.clone().request(now, 4 * KIB).since(now));
        }
        let rtt = Duration::from_millis(rtt_millis);
        assert!(worst <= rtt * 17 / 10, "{rtt_millis} ms: {worst:?}");
    }
}

#[test]
fn the_window_is_never_zero_and_never_above_its_cap() {
    for cap in [0, 1, 100_000, MIB, 3 * MIB, 256 * MIB] {
        let mut greedy = Greedy::new(LinkEstimator::new(cap), Path::fixed(50, GIGABIT));
        for at in 0..100 {
            greedy.run_until(millis(at * 20));
            let window_bytes = greedy.link.window_bytes();
            assert!(
                (1..=cap.max(1)).contains(&window_bytes),
                "{window_bytes} of {cap}"
            );
            if let Some((_, sent)) = greedy.in_flight.pop_front().filter(|_| at % 7 == 0) {
                greedy.link.on_lost(greedy.now, sent);
            }
        }
        assert!(greedy.link.in_flight_bytes() <= cap.max(1));
    }
}

#[test]
fn without_distance_the_window_is_not_the_bottleneck() {
    let rate = 3_000_000_000;
    let mut greedy = Greedy::new(LinkEstimator::new(256 * MIB), Path::fixed(0, rate));
    greedy.run_until(millis(500));
    let share = greedy.share(millis(100), millis(500), rate);
    assert!(share >= 0.95, "{share:.3}: {:?}", greedy.link.line());
}

/// Without distance ten rounds are over in a moment. Threads and disks are late for longer.
#[test]
fn a_moment_without_replies_does_not_shrink_the_window_of_a_near_line() {
    let rate = 1_000_000_000;
    let mut greedy = Greedy::new(LinkEstimator::new(256 * MIB), Path::fixed(0, rate));
    greedy.run_until(millis(500));
    let before = greedy.link.window_bytes();
    for pause in 0..8 {
        // A request at a time, each of which takes a millisecond.
        let start = millis(500 + pause * 200);
        greedy.transport_bytes_max = 0;
        greedy.run_until(start);
        greedy.transport_bytes_max = u64::MAX;
        for at in 0..60 {
            greedy.now = start + Duration::from_millis(at);
            let sent = greedy.link.on_sent(greedy.now, 128 * KIB);
            let arrives = greedy.now + Duration::from_millis(1);
            greedy
                .link
                .on_reply(arrives, sent, 128 * KIB, Duration::ZERO);
        }
        greedy.now = start + Duration::from_millis(60);
        let after = greedy.link.window_bytes();
        assert!(
            after >= before / 2,
            "{before} {after} {:?}",
            greedy.link.line()
        );
        greedy.run_until(start + Duration::from_millis(200));
    }
}

#[test]
fn a_known_line_is_filled_from_the_first_round_trip_on() {
    let mut first = Greedy::new(LinkEstimator::new(256 * MIB), Path::fixed(100, GIGABIT));
    first.run_until(millis(3000));
    let memory: LineMemory = first.link.remember().unwrap();
    let link = LinkEstimator::from_memory(256 * MIB, memory);
    let mut second = Greedy::new(link, Path::fixed(100, GIGABIT));
    second.run_until(millis(1100));
    let share = second.share(millis(101), millis(1100), GIGABIT);
    assert!(share >= 0.90, "{share:.3}");
}

/// An application that asks for little must not teach the estimator that the line is slow.
#[test]
fn a_slow_application_does_not_shrink_the_line() {
    let mut greedy = Greedy::new(LinkEstimator::new(256 * MIB), Path::fixed(50, GIGABIT));
    greedy.run_until(millis(2000));
    let before = greedy.link.line();
    while let Some((at, sent)) = greedy.in_flight.pop_front() {
        greedy.link.on_reply(at, sent, sent.bytes(), Duration::ZERO);
        greedy.now = at;
    }
    for _ in 0..40 {
        let sent = greedy.link.on_sent(greedy.now, 128 * KIB);
        greedy.now = greedy.path.request(greedy.now, 128 * KIB);
        greedy
            .link
            .on_reply(greedy.now, sent, 128 * KIB, Duration::ZERO);
    }
    let after = greedy.link.line();
    assert!(
        after.bdp_bytes() >= before.bdp_bytes() * 8 / 10,
        "{before:?} {after:?}"
    );
}

#[test]
fn the_servers_own_time_is_not_distance() {
    let mut link = LinkEstimator::new(256 * MIB);
    let sent = link.on_sent(Time::ZERO, 4096);
    link.on_reply(millis(90), sent, 4096, Duration::from_millis(70));
    assert_eq!(link.line().rtt, Duration::from_millis(20));
}

/// The whole chain, application to line, through the steps of the table.
#[test]
fn a_sequential_reader_is_at_full_speed_again_after_steps_of_the_line() {
    let steps = vec![
        step(0, 0, GIGABIT),
        step(4000, 100, GIGABIT),
        step(9000, 25, GIGABIT),
        step(12000, 25, SLOW),
        step(17000, 25, GIGABIT),
    ];
    let size = 3000 * MIB;
    let app = App::new(calls_of(Extent::new(0, size)).collect(), size);
    let outcome = common::World::new(Path::stepping(steps.clone()), app).run();
    for now in steps {
        let settled = now.from + (now.rtt * 10).max(Duration::from_millis(100));
        let rate = outcome.rate_in(settled, settled + Duration::from_secs(1));
        let share = rate / now.rate as f64;
        assert!(share >= 0.90, "from {}: {share:.3}", now.from);
    }
}
