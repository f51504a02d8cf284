//! The harness itself: a run over a directory without any network, and a run that is killed.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// One run at a time: a gigabyte of data each.
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

fn wan(arguments: &[&str], json: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wan"));
    command
        .args(arguments)
        .arg("--no-install")
        .arg("--json")
        .arg(json);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_local_run_measures_everything_without_an_error() {
    let Some(_alone) = alone() else { return };
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("results.json");
    let output = wan(&["loopback", "--quick", "--systems", "local"], &json)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(String::from_utf8_lossy(&output.stdout).contains("| create, 1 process, files/s |"));

    let text = std::fs::read(&json).unwrap();
    let results: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let measurements = results["measurements"].as_array().unwrap();
    let operations: Vec<_> = measurements.iter().map(|one| &one["op"]).collect();
    let all = [
        "seq", "write", "create", "create8", "stat", "list", "unlink",
    ];
    assert_eq!(operations, all);
    for one in measurements {
        assert!(
            one["value"].as_f64().is_some_and(|value| value > 0.0),
            "{one}"
        );
        assert_eq!(one["done"], one["total"], "{one}");
        assert!(one["error"].is_null(), "{one}");
    }
}

#[test]
fn a_system_that_is_not_here_is_skipped_with_its_reason() {
    let Some(_alone) = alone() else { return };
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("results.json");
    let output = wan(
        &["--quick", "--systems", "azekura", "--azekura", "nowhere"],
        &json,
    )
    .output();
    let output = output.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(said.contains("skipped: azekura: no azekura at"), "{said}");
}

#[test]
fn a_killed_run_leaves_no_process_behind() {
    let Some(_alone) = alone() else { return };
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("a-killed-run.json");
    let mut run = wan(&["loopback", "--systems", "local"], &json)
        .spawn()
        .unwrap();
    let started = Instant::now();
    // The harness inside is there when three processes carry the name of the results.
    while carriers(&json) < 3 {
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "the run does not start"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    let killed = Instant::now();
    while carriers(&json) > 0 {
        assert!(
            killed.elapsed() < Duration::from_secs(10),
            "processes were left behind"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Processes that have this path in their command line.
fn carriers(path: &Path) -> usize {
    let wanted = path.to_string_lossy().into_owned();
    let entries = std::fs::read_dir("/proc")
        .expect("/proc is there")
        .flatten();
    entries
        .filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| String::from_utf8_lossy(line).contains(&wanted))
        .count()
}
