//! `verify powercut`: a machine really boots and is killed, and nothing of it stays behind.

use crate::checks::{fails, json};
use crate::common::{Run, run, text};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What takes longer than this is not coming, also on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn command(scratch: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_azekura"));
    command
        .args(["verify", "powercut"])
        .args(arguments)
        .env("TMPDIR", scratch)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

fn powercut(scratch: &Path, arguments: &[&str]) -> Run {
    run(&mut command(scratch, arguments))
}

/// Where machines must be emulated (`cargo xtask deep powercut`), what is lacking is an error.
const REQUIRED: &str = "AZEKURA_MACHINES_REQUIRED";

/// Why no machine can be emulated here, in one line, if so: QEMU or the kernel's package cannot be
/// had.
fn obstacle(said: &str) -> Option<String> {
    let is_lacking = ["AZ1202", "AZ1208"].iter().any(|code| said.contains(code));
    let why = format!("skipped: {}", said.lines().next().unwrap_or_default());
    assert!(!is_lacking || std::env::var_os(REQUIRED).is_none(), "{why}");
    is_lacking.then_some(why)
}

/// Processes that work in a directory or below it, also if it is removed by now.
fn processes_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| {
            let at = std::fs::read_link(path.join("cwd"));
            at.is_ok_and(|at| at.starts_with(directory))
        })
        .collect()
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} has not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn cell<'a>(found: &'a Value, how: &str, disk_cache: &str) -> &'a Value {
    let mut cells = found["cells"].as_array().unwrap().iter();
    let is_it = |cell: &&Value| cell["how"] == how && cell["disk_cache"] == disk_cache;
    cells.find(is_it).unwrap()
}

#[test]
fn what_was_only_closed_is_lost_and_what_was_synced_is_there() {
    let scratch = tempfile::tempdir().unwrap();
    let kept = tempfile::tempdir().unwrap();
    let (state, page) = (kept.path().join("cuts"), kept.path().join("page"));
    let arguments = [
        "--target",
        "ext4",
        "--how",
        "close,fsync",
        "--size",
        "1MiB",
        "--wait",
        "0s",
        "--disk-cache",
        "none,lost",
        "--cuts-max",
        "1",
        "--state",
        text(&state),
        "--json",
    ];
    let report = ["--report", text(&page)];
    let first = powercut(scratch.path(), &[&arguments[..], &report].concat());
    if let Some(why) = obstacle(&first.stderr) {
        println!("{why}");
        return;
    }
    let found = json(first);
    for disk_cache in ["none", "lost"] {
        let of = |how| cell(&found, how, disk_cache);
        let (closed, synced) = (of("close"), of("fsync"));
        assert_eq!((&closed["count"], &synced["count"]), (&1.into(), &1.into()));
        assert_eq!(closed["whole"], 0, "{found}");
        assert_eq!(closed["content_share"], 0.0, "{found}");
        assert_eq!(synced["outcomes"]["intact"], 1, "{found}");
        assert_eq!(synced["content_share"], 1.0, "{found}");
        assert!(synced["write_seconds"].as_f64().unwrap() > 0.0, "{found}");
        // Only a disk with a cache is told to flush: of the data, and of the journal.
        let flushes = synced["samples"][0]["flushes"].as_u64().unwrap();
        assert_eq!(flushes > 1, disk_cache == "lost", "{found}");
    }
    assert_eq!(found["lost_acks"], 0);
    assert!(found["boot_seconds"].as_f64().unwrap() > 0.0, "{found}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("ext4 fsync 1.0 MiB") && page.contains("<svg"));
    assert!(is_empty(scratch.path()) && processes_in(scratch.path()).is_empty());

    a_report_can_be_made_of(&found, &kept.path().join("cuts.json"));

    // Everything that was asked for is there: no machine boots.
    let again = json(powercut(scratch.path(), &arguments));
    assert_eq!(again["boot_seconds"], 0.0, "{again}");
    assert_eq!(again["cells"], found["cells"]);
    // Of another seed, it is another run's.
    let other = powercut(scratch.path(), &[&arguments[..], &["--seed", "2"]].concat());
    fails(&other, "AZ1209");
    assert!(other.stderr.contains("another seed: 1, not 2"));
    assert!(is_empty(scratch.path()));
}

#[test]
fn a_disk_that_loses_its_cache_shows_who_does_not_flush() {
    if std::env::var_os(REQUIRED).is_none() {
        println!("skipped: it is one of `cargo xtask deep powercut`");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let options = ["--mount-options", "noatime", "--mount-options", "nobarrier"];
    let cut = powercut(
        scratch.path(),
        &[
            &["--target", "ext4", "--how", "fsync", "--size", "1MiB"][..],
            &[
                "--wait",
                "0s",
                "--disk-cache",
                "none,lost",
                "--cuts-max",
                "2",
            ],
            &options,
            &["--json"],
        ]
        .concat(),
    );
    let found: Value = serde_json::from_str(&cut.stdout).unwrap_or_else(|_| panic!("{cut:?}"));
    let lost = |options: &str, disk_cache: &str| {
        let mut cells = found["cells"].as_array().unwrap().iter();
        let is_it =
            |cell: &&Value| cell["mount_options"] == options && cell["disk_cache"] == disk_cache;
        cells.find(is_it).unwrap()["lost_acks"].as_u64()
    };
    // The machine that is killed keeps what its disk was given, flushed or not.
    assert_eq!(
        (lost("noatime", "none"), lost("nobarrier", "none")),
        (Some(0), Some(0))
    );
    assert_eq!(
        (lost("noatime", "lost"), lost("nobarrier", "lost")),
        (Some(0), Some(2))
    );
    assert!(cut.stderr.contains("AZ1201"), "{}", cut.stderr);
    assert!(is_empty(scratch.path()) && processes_in(scratch.path()).is_empty());
}

/// What was printed is a result, and the report has its shares.
fn a_report_can_be_made_of(found: &Value, result: &Path) {
    std::fs::write(result, found.to_string()).unwrap();
    let mut report = Command::new(env!("CARGO_BIN_EXE_azekura"));
    let report = json(run(report.args([
        "verify",
        "report",
        text(result),
        "--json",
    ])));
    let whole = |how: &str| {
        let rows = report["rows"].as_array().unwrap().iter();
        let rows = rows.filter(|row| row["how"] == how && row["measure"] == "whole");
        let of = |row: &Value| (row["disk_cache"].clone(), row["value"].clone());
        rows.map(of).collect::<Vec<_>>()
    };
    let both = |share: f64| ["none", "lost"].map(|one| (Value::from(one), Value::from(share)));
    assert_eq!(whole("close"), both(0.0));
    assert_eq!(whole("fsync"), both(1.0));
    let kernel = report["runs"][0]["kernel"].as_str().unwrap();
    let kernel = kernel.trim_start_matches("Linux ");
    assert_eq!(Some(kernel), found["guest_kernel"].as_str());
}

/// A run whose machine is booting.
fn booting(scratch: &Path) -> Result<Child, String> {
    let mut child = command(scratch, &["--target", "ext4"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lacks = None;
    eventually("a machine", || {
        if child.try_wait().unwrap().is_some() {
            lacks = Some(());
        }
        lacks.is_some() || !processes_in(scratch).is_empty()
    });
    match lacks {
        None => Ok(child),
        Some(()) => {
            let output = child.wait_with_output().unwrap();
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

#[test]
fn a_run_that_is_ended_or_killed_leaves_no_machine_and_no_image() {
    for signal in [Signal::INT, Signal::KILL] {
        let scratch = tempfile::tempdir().unwrap();
        let mut child = match booting(scratch.path()) {
            Ok(child) => child,
            Err(said) => {
                let why = obstacle(&said).unwrap_or_else(|| panic!("{said}"));
                println!("{why}");
                return;
            }
        };
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        assert!(!status.success(), "{status}");
        eventually("the end of the machine", || {
            processes_in(scratch.path()).is_empty()
        });
        eventually("an empty directory", || is_empty(scratch.path()));
    }
}

/// A run that has a check made that does not end by itself, and says `cancelled` when a terminal
/// interrupts it. `None` if there is none.
fn checking(scratch: &Path, kept: &Path) -> Option<Child> {
    let [begun, state, check] = ["begun", "state", "e2fsck"].map(|name| kept.join(name));
    let _ = std::fs::remove_file(&begun);
    let script = format!(
        "#!/bin/sh\ntrap 'exit 32' INT\n: > {0}\nwhile [ -e {0} ]; do sleep 0.02; done\n",
        text(&begun)
    );
    std::fs::write(&check, script).unwrap();
    std::fs::set_permissions(&check, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", text(kept), std::env::var("PATH").unwrap());
    let few = ["--target", "ext2", "--wait", "0s", "--size", "1MiB"];
    let arguments = [&few[..], &["--jobs", "1", "--state", text(&state)]].concat();
    let mut child = command(scratch, &arguments)
        .env("PATH", path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    // A machine boots first.
    let deadline = Instant::now() + 3 * LIMIT;
    while !begun.exists() && matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    if begun.exists() {
        return Some(child);
    }
    let said = ended(child);
    let why = obstacle(&said).unwrap_or_else(|| panic!("{said}"));
    println!("{why}");
    None
}

/// What a run has said that ends; if it does not, it is killed.
fn ended(mut child: Child) -> String {
    let deadline = Instant::now() + LIMIT;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_check_that_ends_with_its_run_is_no_verdict_and_does_not_outlive_it() {
    let (scratch, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // What a terminal does: all that are in its foreground are told.
    let Some(run) = checking(scratch.path(), kept.path()) else {
        return;
    };
    kill_process_group(Pid::from_child(&run), Signal::INT).unwrap();
    let said = ended(run);
    assert!(said.contains("interrupted after 0 cuts"), "{said}");
    eventually("an empty directory", || is_empty(scratch.path()));
    assert!(processes_in(scratch.path()).is_empty());
    // Killed alone, it can end nothing any more.
    let run = checking(scratch.path(), kept.path()).expect("it could be run before");
    kill_process(Pid::from_child(&run), Signal::KILL).unwrap();
    eventually("the end of the check", || {
        processes_in(scratch.path()).is_empty()
    });
    ended(run);
    eventually("an empty directory", || is_empty(scratch.path()));
    let state = std::fs::read_to_string(kept.path().join("state")).unwrap();
    assert_eq!(state.lines().count(), 1, "{state}");
}

#[test]
fn what_would_be_done_is_said_and_not_done() {
    let scratch = tempfile::tempdir().unwrap();
    let arguments = [
        "--target",
        "ext4,xfs",
        "--half-width",
        "0.1",
        "--cuts-max",
        "50",
        "--dry-run",
        "--json",
    ];
    let plan = json(powercut(scratch.path(), &arguments));
    assert_eq!(plan["cells"].as_array().unwrap().len(), 6);
    assert_eq!(
        (&plan["cuts_min"], &plan["cuts_max"]),
        (&96.into(), &300.into())
    );
    assert!(is_empty(scratch.path()));
    let wrong = powercut(scratch.path(), &["--target", "fat"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", wrong.stderr);
}
