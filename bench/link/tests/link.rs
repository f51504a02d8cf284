//! The link measured from inside: what it promises is what programs at its ends see.
//!
//! Lower bounds leave room for a busy machine; upper bounds (no packet early, no rate exceeded)
//! are tight, because nothing excuses breaking them.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use azlink::{Direction, Link, LinkOptions, Side, TcpTuning, control, probe};

/// 1448 bytes of payload in 1538 bytes of wire, at 1000 Mbit/s.
const IDEAL_MBIT_PER_S: f64 = 1000.0 * 1448.0 / 1538.0;

/// One link at a time: two at full rate would measure each other.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> Option<MutexGuard<'static, ()>> {
    let guard = ALONE
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(why) = azlink::why_not() {
        // Written past the capture of the test runner, so that it is seen.
        let _ = writeln!(std::io::stderr(), "skipped: {why}");
        return None;
    }
    Some(guard)
}

fn link(commands: &[&str]) -> Link {
    let tuning = TcpTuning {
        buffer_bytes_max: Some(64 << 20),
        forgets_paths: true,
    };
    let mut options = LinkOptions {
        seed: 1,
        tuning,
        ..LinkOptions::default()
    };
    for command in commands {
        options
            .settings
            .apply(&command.parse().expect("the tests' commands are valid"));
    }
    Link::start(&options).expect("why_not found no reason")
}

#[test]
fn round_trips_take_the_set_time() {
    let Some(_alone) = alone() else { return };
    let link = link(&[]);
    for rtt_ms in [0.0, 25.0, 50.0, 100.0] {
        link.apply(&format!("rtt {rtt_ms}ms").parse().unwrap());
        let trips = probe::round_trips(&link, 20, Duration::from_millis(20)).unwrap();
        assert_eq!(trips.times_ms.len(), 20, "no datagram may be lost");
        assert!(trips.min_ms() >= rtt_ms, "{trips:?}");
        // The probe's own threads are ordinary ones: on a busy machine most trips wait for a CPU.
        assert!(trips.min_ms() < rtt_ms + 5.0, "{trips:?}");
    }
}

#[test]
fn tcp_fills_the_rate_and_never_exceeds_it() {
    let Some(_alone) = alone() else { return };
    for direction in [Direction::ToClient, Direction::ToServer] {
        let link = link(&["rtt 10ms"]);
        let start = Instant::now();
        let goodput = probe::goodput(&link, direction, Duration::from_secs(3)).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        assert!(
            goodput.whole_mbit_per_s <= IDEAL_MBIT_PER_S + 0.5,
            "{goodput:?}"
        );
        assert!(
            goodput.steady_mbit_per_s >= 0.6 * IDEAL_MBIT_PER_S,
            "{goodput:?}"
        );
        let counters = link.counters();
        let bulk = match direction {
            Direction::ToClient => counters.to_client,
            Direction::ToServer => counters.to_server,
        };
        assert!(
            bulk.wire_bytes as f64 * 8.0 <= 1e9 * (seconds + 0.1),
            "{bulk:?}"
        );
        assert!(
            bulk.wire_segments > 4 * bulk.delivered_packets,
            "offload is in use: {bulk:?}"
        );
    }
}

#[test]
fn directions_have_their_own_rates() {
    let Some(_alone) = alone() else { return };
    let link = link(&[
        "rtt 10ms",
        "rate to-client 200Mbit",
        "rate to-server 20Mbit",
    ]);
    for (direction, mbit) in [(Direction::ToClient, 200.0), (Direction::ToServer, 20.0)] {
        let goodput = probe::goodput(&link, direction, Duration::from_secs(2)).unwrap();
        let ideal = mbit * 1448.0 / 1538.0;
        assert!(
            goodput.whole_mbit_per_s < ideal * 1.01,
            "{direction:?} {goodput:?}"
        );
        assert!(
            goodput.steady_mbit_per_s > ideal * 0.7,
            "{direction:?} {goodput:?}"
        );
    }
}

#[test]
fn loss_takes_its_share_of_segments_and_tcp_survives_it() {
    let Some(_alone) = alone() else { return };
    let link = link(&["rtt 10ms", "loss to-client 1%"]);
    let goodput = probe::goodput(&link, Direction::ToClient, Duration::from_secs(2)).unwrap();
    assert!(goodput.whole_mbit_per_s > 1.0, "{goodput:?}");
    let counters = link.counters();
    let share = counters.to_client.lost_segments as f64 / counters.to_client.wire_segments as f64;
    assert!((0.007..0.013).contains(&share), "{share} of {counters:?}");
    assert_eq!(counters.to_server.lost_segments, 0);

    link.apply(&"loss 20%".parse().unwrap());
    let trips = probe::round_trips(&link, 200, Duration::from_millis(2)).unwrap();
    // 0.8 x 0.8 come back: 128 of 200, standard deviation 7.
    assert!(
        (93..=163).contains(&trips.times_ms.len()),
        "{}",
        trips.times_ms.len()
    );
}

#[test]
fn a_cut_link_carries_nothing_until_it_is_joined() {
    let Some(_alone) = alone() else { return };
    let link = link(&["down"]);
    let trips = probe::round_trips(&link, 3, Duration::from_millis(5)).unwrap();
    assert!(trips.times_ms.is_empty());
    assert!(link.counters().to_server.cut_segments >= 3);
    link.apply(&"up".parse().unwrap());
    link.apply(&"reset".parse().unwrap());
    let trips = probe::round_trips(&link, 3, Duration::from_millis(5)).unwrap();
    assert_eq!(trips.times_ms.len(), 3);
    assert_eq!(link.counters().to_server.cut_segments, 0);
}

#[test]
fn programs_run_at_the_ends_and_the_socket_obeys() {
    let Some(_alone) = alone() else { return };
    let link = std::sync::Arc::new(link(&[]));
    let interfaces = |side| {
        let output = link
            .command(side, "cat")
            .arg("/proc/net/fib_trie")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(interfaces(Side::Client).contains("10.77.0.1"));
    assert!(interfaces(Side::Server).contains("10.77.0.2"));

    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("control");
    control::serve(std::sync::Arc::clone(&link), &socket).unwrap();
    assert!(
        control::ask(&socket, "rtt 7ms")
            .unwrap()
            .contains("counters")
    );
    assert_eq!(link.settings().rtt, Duration::from_millis(7));
    assert!(
        control::ask(&socket, "gibberish")
            .unwrap()
            .contains("error")
    );
}

#[test]
fn the_program_runs_a_command_and_takes_everything_along_when_killed() {
    let Some(_alone) = alone() else { return };
    let azlink = env!("CARGO_BIN_EXE_azlink");
    let inner = format!("{azlink} ctl rtt 3ms >/dev/null && {azlink} exec server -- true; exit 7");
    let status = Command::new(azlink)
        .args(["run", "--", "sh", "-c", &inner])
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(7));

    // A kill leaves the control socket's file, so that it needs a directory of its own.
    let temp = tempfile::tempdir().unwrap();
    let mut outer = Command::new(azlink)
        .env("TMPDIR", temp.path())
        .args(["run", "--", "sh", "-c", "echo $$; exec sleep 60"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = outer.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line).unwrap();
    let inner_pid: u32 = line.trim().parse().unwrap();
    // Even a kill that the program cannot see must not leave its command behind.
    outer.kill().unwrap();
    outer.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while is_running(inner_pid) {
        assert!(
            Instant::now() < deadline,
            "process {inner_pid} was left behind"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim().is_empty() && !rest.contains(" Z "))
}
