//! Useful throughput and bytes on the wire in the model, at every distance of issue 2's table.

mod common;

use base::Extent;
use common::{App, GIGABIT, MIB, Path, World, calls_of};
use std::time::Duration;

const DISTANCES_MILLIS: [u64; 5] = [0, 10, 25, 50, 100];

fn sequential() -> App {
    App::new(calls_of(Extent::new(0, 1024 * MIB)).collect(), 1024 * MIB)
}

fn runs(starts: impl Iterator<Item = u64>, len: u64, size: u64) -> App {
    App::new(
        starts
            .flat_map(|start| calls_of(Extent::new(start, len)))
            .collect(),
        size,
    )
}

fn stride() -> App {
    runs((0..300).map(|at| at * 9 * MIB), 3 * MIB, 2700 * MIB)
}

fn reverse() -> App {
    let calls = calls_of(Extent::new(0, 800 * MIB))
        .collect::<Vec<_>>()
        .into_iter()
        .rev();
    App::new(calls.collect(), 800 * MIB)
}

/// Four runs 6 MiB apart, then on by 100 MiB.
fn nested() -> App {
    let starts = (0..100).flat_map(|outer| (0..4).map(move |inner| outer * 100 + inner * 6));
    runs(starts.map(|start| start * MIB), 2 * MIB, 10_000 * MIB)
}

/// Eight readers in turn, each in its own part of the file.
fn interleaved() -> App {
    let calls = (0..800).flat_map(|at| {
        (0..8u64).map(move |reader| {
            Extent::new(
                reader * 131 * MIB + at * common::READ_BYTES,
                common::READ_BYTES,
            )
        })
    });
    App::new(calls.collect(), 8 * 131 * MIB)
}

/// At every distance the line is full, and little crosses it in vain.
fn check(name: &str, app: &App) {
    for rtt_millis in DISTANCES_MILLIS {
        let outcome = World::new(Path::fixed(rtt_millis, GIGABIT), app.clone()).run();
        // The kernel's read-ahead past the end of a run is asked of us, wanted or not.
        let asked = outcome.tally.useful_bytes as f64 / outcome.useful_bytes as f64;
        let rate = outcome.rate_between(0.4, 0.95) / GIGABIT as f64;
        let steady = rate * asked;
        let wire = outcome.wire_per_useful();
        let figures = format!(
            "{name} at {rtt_millis} ms: {steady:.3} of the line, {rate:.3} for the application, \
             {:.3} with the start, {wire:.3} bytes on the wire per useful, {:?}",
            outcome.rate_between(0.0, 1.0) / GIGABIT as f64,
            outcome.tally
        );
        assert!(steady >= 0.95, "{figures}");
        assert!(rate >= 0.90, "{figures}");
        assert!(wire <= 1.10, "{figures}");
    }
}

#[test]
fn sequential_reading_fills_the_line() {
    check("sequential", &sequential());
}

#[test]
fn a_stride_fills_the_line() {
    check("stride", &stride());
}

#[test]
fn reverse_reading_fills_the_line() {
    check("reverse", &reverse());
}

#[test]
fn a_two_level_stride_fills_the_line() {
    check("nested", &nested());
}

#[test]
fn eight_interleaved_readers_fill_the_line() {
    check("interleaved", &interleaved());
}

/// The horizon: an application slower than the line never waits, and little is held for it.
#[test]
fn a_slow_reader_is_served_in_time_with_little_memory() {
    for rtt_millis in [10, 100] {
        let speed = 20_000_000;
        let size = 400 * MIB;
        let calls = calls_of(Extent::new(0, size)).collect();
        let app = App {
            speed,
            ..App::new(calls, size)
        };
        let outcome = World::new(Path::fixed(rtt_millis, GIGABIT), app).run();
        let rate = outcome.rate_between(0.4, 0.95);
        assert!(rate >= 0.98 * speed as f64, "{rtt_millis} ms: {rate}");
        let horizon_bytes = speed * rtt_millis / 1000;
        let most_bytes = horizon_bytes * 2 + MIB;
        assert!(
            outcome.unread_bytes_max <= most_bytes,
            "{} bytes",
            outcome.unread_bytes_max
        );
    }
}

/// What a server's disks take is covered as the line's delay is, by requests that are under way.
#[test]
fn a_server_that_works_for_long_is_given_enough_to_do() {
    let (rate, size) = (1_000_000_000, 2000 * MIB);
    for server_millis in [1, 3, 6] {
        let app = App::new(calls_of(Extent::new(0, size)).collect(), size);
        let mut path = Path::fixed(0, rate);
        path.server_time = Duration::from_millis(server_millis);
        let outcome = World::new(path, app).run();
        let share = outcome.rate_between(0.4, 0.95) / rate as f64;
        assert!(share >= 0.90, "{server_millis} ms: {share:.3}");
    }
}

/// Runs that vary by a tenth cost a stall when one is longer than guessed, but not the line.
#[test]
fn a_stride_with_varying_runs_uses_most_of_the_line() {
    let mut state = 9u64;
    let mut vary = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % 5
    };
    let run = |at: u64, len: u64| calls_of(Extent::new(at * 9 * MIB, len * common::READ_BYTES));
    let calls: Vec<Extent> = (0..400).flat_map(|at| run(at, 22 + vary())).collect();
    for (rtt_millis, least) in [(0, 0.88), (10, 0.86), (25, 0.86), (50, 0.85), (100, 0.83)] {
        let app = App::new(calls.clone(), 3600 * MIB);
        let outcome = World::new(Path::fixed(rtt_millis, GIGABIT), app).run();
        let rate = outcome.rate_between(0.4, 0.95) / GIGABIT as f64;
        let asked = outcome.tally.useful_bytes as f64;
        let wire = outcome.wire_bytes as f64 / asked;
        assert!(
            rate >= least && wire <= 1.10,
            "{rtt_millis} ms: {rate:.3}, wire {wire:.3}"
        );
    }
}
