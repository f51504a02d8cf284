//! `azekura demo`: the first thing that anybody runs.

use crate::checks::json;
use crate::common::{obstacle, run};
use crate::terminal::Terminal;
use rustix::process::Signal;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The second part takes so many seconds, twice.
fn demo(scratch: &std::path::Path, seconds: u32) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_azekura"));
    command
        .args(["demo", "--seconds", &seconds.to_string()])
        .env("TMPDIR", scratch)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

fn mounts_below(path: &std::path::Path) -> usize {
    let list = fs::read_to_string("/proc/self/mounts").unwrap();
    list.lines()
        .filter(|line| line.contains(path.to_str().unwrap()))
        .count()
}

#[test]
fn it_verifies_every_byte_prints_figures_and_leaves_nothing() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scratch = tempfile::tempdir().unwrap();
    let figures = json(run(demo(scratch.path(), 2).args(["--once", "--json"])));
    assert_eq!(figures["verified"], true);
    assert!(figures["rtt_micros"].as_u64().unwrap() > 0, "{figures}");
    assert!(figures["files"].as_u64().unwrap() > 10, "{figures}");
    assert!(
        figures["read_bytes_per_second"].as_u64().unwrap() > 0,
        "{figures}"
    );
    let reserved = &figures["reserved"];
    let rate = reserved["rate_bytes_per_second"].as_u64().unwrap();
    // It is of a disk that two processors keep busy.
    assert!(rate < 40_000_000, "{figures}");
    for half in ["without", "with"] {
        let half = &reserved[half];
        assert_eq!(half["seconds"], 2, "{figures}");
        let bytes = half["stream_bytes"].as_u64().unwrap();
        assert!(bytes <= 3 * rate, "more than is due: {figures}");
        assert!(half["others_bytes_per_second"].as_u64().is_some());
    }
    assert!(reserved["with"]["stream_bytes"].as_u64().unwrap() > 0);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
    assert_eq!(mounts_below(scratch.path()), 0);
}

#[test]
fn what_to_try_next_can_be_copied_to_another_terminal() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scratch = tempfile::tempdir().unwrap();
    let terminal = Terminal::new();
    // It is read when the page has been printed.
    terminal.type_in("\n");
    let page = run(demo(scratch.path(), 0).stdin(terminal.input())).ok();
    assert!(page.contains("until you press Enter"), "{page}");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_azekura"));
    let path = format!("  PATH={}:", program.parent().unwrap().display());
    assert!(page.contains(&path), "{page}");
    let columns: Vec<_> = page.lines().filter_map(|line| line.find('#')).collect();
    assert!(columns.len() > 3, "{page}");
    assert!(columns.iter().all(|column| *column == columns[0]), "{page}");
    let last = page.trim_end().lines().last().unwrap();
    assert!(last.starts_with("  unset AZEKURA_CONFIG_DIR"), "{page}");
}

#[test]
fn without_a_terminal_it_asks_for_no_enter_and_says_what_the_figures_are_of() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scratch = tempfile::tempdir().unwrap();
    let run = run(&mut demo(scratch.path(), 0));
    let (page, notes) = (&run.stdout, &run.stderr);
    assert!(run.status.success(), "{run:?}");
    assert!(!page.contains("Enter"), "{page}");
    assert!(notes.contains("standard input is no terminal"), "{notes}");
    for words in [
        "half of them up to",
        "a development build",
        "docs/performance.md",
    ] {
        assert!(page.contains(words), "{page}");
    }
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn an_interruption_cleans_up() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    cleans_up_after(Signal::INT);
}

#[test]
fn it_cleans_up_when_its_terminal_is_closed() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    cleans_up_after(Signal::HUP);
}

fn cleans_up_after(signal: Signal) {
    let scratch = tempfile::tempdir().unwrap();
    let mut child = demo(scratch.path(), 8)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    // The disk of its store, and the first volume.
    while mounts_below(scratch.path()) < 2 {
        assert!(Instant::now() < deadline && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
    child.wait().unwrap();
    assert_eq!(mounts_below(scratch.path()), 0);
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}
