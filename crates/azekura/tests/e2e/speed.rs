//! `verify speed`: figures of real programs, and a machine that is as it was before.
//!
//! Parameters of the kernel are set that nothing else here depends on. The tests take turns: a
//! second run on the machine is refused.

use crate::checks::{fails, json};
use crate::common::{Run, Scene, obstacle, run, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

static TURN: Mutex<()> = Mutex::new(());
/// Nothing that is waited for takes longer, whatever else the machine does.
const WAIT_TIME_MAX: Duration = Duration::from_secs(60);
/// What the tests set, and to what: it matters to a machine that swaps alone.
const PARAMETER: &str = "/proc/sys/vm/page-cluster";
const SET: &str = "page-cluster=2";
/// Little of everything.
const SMALL: [&str; 6] = ["--size", "4MiB", "--files", "100", "--repeat", "1"];

/// A directory for everything that a run makes, and the right to run.
pub(crate) struct Ground {
    directory: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            directory: tempfile::tempdir().unwrap(),
            _turn: turn,
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.verify("speed", arguments)
    }

    pub(crate) fn verify(&self, what: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_azekura"));
        command
            .args(["verify", what])
            .args(arguments)
            .env("TMPDIR", self.directory.path())
            .env_remove("RUST_LOG")
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn speed(&self, arguments: &[&str]) -> Run {
        run(&mut self.command(arguments))
    }

    /// What is there of a run: its directory and the file of its device, loop devices, groups.
    pub(crate) fn left(&self) -> Vec<String> {
        let names = |directory: &Path| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(directory).into_iter().flatten();
            entries.map(|entry| entry.unwrap().path()).collect()
        };
        let mut left: Vec<String> = Vec::new();
        for path in names(self.directory.path()) {
            left.push(path.display().to_string());
        }
        for device in names(Path::new("/sys/block")) {
            let file = std::fs::read_to_string(device.join("loop/backing_file"));
            if file.is_ok_and(|file| file.contains(text(self.directory.path()))) {
                left.push(device.display().to_string());
            }
        }
        for groups in ["/sys/fs/cgroup/memory", "/sys/fs/cgroup"] {
            let groups = names(Path::new(groups)).into_iter();
            let groups = groups.map(|path| path.display().to_string());
            left.extend(groups.filter(|name| name.contains("/azekura-verify-")));
        }
        left
    }

    /// A run that measures until it is ended, when it has set everything. On a file system that is
    /// made at once: of ext4 a hundred megabytes are written to this machine's disk first, which
    /// others may keep busy.
    fn begun(&self, before: &str) -> Child {
        let begin = || {
            let mut command = self.command(&["--measure", "files", "--files", "100000"]);
            command.args(["--target", "btrfs"]);
            command.args(["--set", SET, "--memory", "64MiB"]);
            let piped = command.stdout(Stdio::null()).stderr(Stdio::piped());
            piped.spawn().unwrap()
        };
        let (mut child, mut said) = (begin(), String::new());
        let deadline = Instant::now() + WAIT_TIME_MAX;
        while parameter() == before {
            if child.try_wait().unwrap().is_some() {
                // Somebody else on this machine may measure.
                let mut stderr = child.stderr.take().unwrap();
                stderr.read_to_string(&mut said).unwrap();
                std::thread::sleep(Duration::from_millis(100));
                child = begin();
            }
            assert!(Instant::now() < deadline, "nothing is set: {said}");
            std::thread::sleep(Duration::from_millis(10));
        }
        child
    }
}

fn parameter() -> String {
    std::fs::read_to_string(PARAMETER).unwrap()
}

fn waits(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT_TIME_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(process: u32, signal: Signal) {
    let process = Pid::from_raw(i32::try_from(process).unwrap()).unwrap();
    // It may have ended.
    let _ = kill_process(process, signal);
}

/// The figures of a cell by their names.
fn medians(found: &Value, cell: usize) -> Vec<(String, f64)> {
    let measures = found["cells"][cell]["measures"].as_array().unwrap();
    let median = |measure: &Value| {
        let (low, high) = (measure["low"].as_f64(), measure["high"].as_f64());
        let median = measure["median"].as_f64().unwrap();
        assert!(
            low.unwrap() <= median && median <= high.unwrap(),
            "{measure}"
        );
        assert!(measure["cpu"].as_f64().is_some(), "{measure}");
        (measure["measure"].as_str().unwrap().to_owned(), median)
    };
    measures.iter().map(median).collect()
}

#[test]
fn every_way_to_set_a_file_system_is_measured_and_set_back() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let ground = Ground::new();
    let before = parameter();
    let page = ground.directory.path().join("speed.html");
    let more = [
        "--target",
        "ext4,btrfs",
        "--block-size",
        "1KiB,4KiB",
        "--memory",
        "64MiB",
        "--set",
        SET,
        "--repeat",
        "2",
        "--report",
        text(&page),
        "--json",
    ];
    let found = json(ground.speed(&[&SMALL[..4], &["--measure", "files"], &more].concat()));
    let cells = found["cells"].as_array().unwrap();
    let shown: Vec<String> = cells
        .iter()
        .map(|cell| format!("{} {}", cell["target"], cell["block_bytes"]))
        .collect();
    assert_eq!(shown, ["\"ext4\" 1024", "\"ext4\" 4096", "\"btrfs\" 4096"]);
    for (number, cell) in cells.iter().enumerate() {
        let names: Vec<String> = (medians(&found, number).into_iter())
            .map(|one| one.0)
            .collect();
        assert_eq!(names, ["create", "delete"], "{found}");
        assert_eq!(cell["samples"].as_array().unwrap().len(), 2);
    }
    assert_eq!(
        found["block_ratios"].as_array().unwrap().len(),
        2,
        "{found}"
    );
    assert_eq!(found["left_out"][0]["what"], "btrfs: blocks of 1024 bytes");
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("<svg") && html.contains("create"), "{html}");
    std::fs::remove_file(&page).unwrap();
    assert_eq!(parameter(), before);
    assert_eq!(ground.left(), [""; 0]);
}

#[test]
fn a_mount_of_ours_is_measured_like_any_directory() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let mut scene = Scene::new();
    let mount = scene.mount("m", &[]);
    std::fs::write(mount.join("mine"), "x").unwrap();
    let ground = Ground::new();
    let arguments = [
        "--target",
        text(&mount),
        "--measure",
        "block,files",
        "--keep-caches",
        "--json",
    ];
    let found = json(ground.speed(&[&SMALL[..], &arguments].concat()));
    let names: Vec<String> = medians(&found, 0).into_iter().map(|one| one.0).collect();
    let known = [
        "block_write",
        "cached_write",
        "block_read",
        "create",
        "delete",
    ];
    assert_eq!(names, known, "{found}");
    assert_eq!(found["caches_dropped"], false);
    let left: Vec<_> = std::fs::read_dir(&mount)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["mine"]);
    assert_eq!(ground.left(), [""; 0]);
}

#[test]
fn whatever_ends_a_run_the_machine_is_as_before_and_nobody_measures_beside_it() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let ground = Ground::new();
    let before = parameter();
    let mut child = ground.begun(&before);
    fails(&ground.speed(&["--measure", "files"]), "AZ1205");
    signal(child.id(), Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!((parameter(), ground.left()), (before.clone(), Vec::new()));
    // The process that acts outlives the other one, and takes everything back.
    let mut child = ground.begun(&before);
    child.kill().unwrap();
    child.wait().unwrap();
    waits("it is not set back", || parameter() == before);
    waits("something is left", || ground.left().is_empty());
    // If both are killed, the next run does it.
    let mut child = ground.begun(&before);
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let actor = std::fs::read_to_string(children).unwrap();
    signal(actor.trim().parse().unwrap(), Signal::KILL);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(parameter(), before);
    assert!(!ground.left().is_empty());
    let elsewhere = tempfile::tempdir().unwrap();
    let place = format!("{}/", text(elsewhere.path()));
    let next = [
        "--target",
        &place,
        "--measure",
        "files",
        "--files",
        "1",
        "--keep-caches",
    ];
    waits("the lock stays", || ground.speed(&next).status.success());
    assert_eq!(parameter(), before);
    waits("something is left", || ground.left().is_empty());
    assert_eq!(std::fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn a_device_that_was_named_is_used_unless_somebody_else_uses_it() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let ground = Ground::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let file = elsewhere.path().join("disk");
    std::fs::File::create(&file)
        .unwrap()
        .set_len(400 << 20)
        .unwrap();
    let mut losetup = Command::new("losetup");
    let device = run(losetup.args(["--find", "--show"]).arg(&file)).ok();
    let device = device.trim();
    let detach = || run(Command::new("losetup").args(["--detach", device])).ok();
    let more = ["--measure", "files", "--set", "read_ahead_kb=64", "--json"];
    let named = [&SMALL[..], &more, &["--yes-destroy", device]].concat();
    let found = json(ground.speed(&named));
    assert_eq!(medians(&found, 0).len(), 2);
    assert_eq!(ground.left(), [""; 0]);
    let point = elsewhere.path().join("point");
    std::fs::create_dir(&point).unwrap();
    run(Command::new("mount").arg(device).arg(&point)).ok();
    let used = ground.speed(&named);
    run(Command::new("umount").arg(&point)).ok();
    detach();
    fails(&used, "AZ1206");
    fails(
        &ground.speed(&[&SMALL[..], &["--yes-destroy", text(&file)]].concat()),
        "AZ1206",
    );
}

#[test]
fn a_short_flush_time_recovers_more() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let ground = Ground::new();
    let expire = "/proc/sys/vm/dirty_expire_centisecs";
    let before = std::fs::read_to_string(expire).unwrap();
    let page = ground.directory.path().join("tune.html");
    let sizes = ["--size", "4MiB", "--repeat", "1", "--json"];
    let more = [
        "--flush-time",
        "30s,300ms",
        "--waits",
        "0s,4s",
        "--report",
        text(&page),
    ];
    let found = json(run(
        &mut ground.verify("tune", &[&sizes[..], &more].concat())
    ));
    let points = found["points"].as_array().unwrap();
    let after = |point: usize, wait: usize| -> f64 {
        let share = &points[point]["after"][wait]["recovery"]["median"];
        share.as_f64().unwrap_or_else(|| panic!("{found}"))
    };
    assert!(
        after(1, 1) > after(0, 1) && after(1, 1) > after(1, 0),
        "{found}"
    );
    assert!(points[0]["speed"]["median"].as_f64().unwrap() > 0.0);
    assert!(points.iter().any(|point| point["is_on_front"] == true));
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("<circle"), "{html}");
    std::fs::remove_file(&page).unwrap();
    assert_eq!(std::fs::read_to_string(expire).unwrap(), before);
    assert_eq!(ground.left(), [""; 0]);
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_can() {
    let ground = Ground::new();
    let usage = ground.speed(&["--target", "fat"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(usage.stderr.contains("btrfs"), "{}", usage.stderr);
    assert_eq!(ground.speed(&["--set", "panic=1"]).status.code(), Some(2));
    fails(&ground.speed(&["--target", "/nowhere/at/all"]), "AZ0401");
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let full = ground.speed(&["--size", "1TiB", "--measure", "block"]);
    fails(&full, "AZ0403");
    let twice = ["--set", "page-cluster=2", "--set", "page-cluster=3"];
    fails(&ground.speed(&twice), "AZ1204");
    // A mount that the kernel refuses is told with what it was, and nothing else is lost by it.
    let odd = [
        "--mount-options",
        "no-such-option",
        "--mount-options",
        "noatime",
    ];
    let partly = ground.speed(&[&SMALL[..], &["--measure", "files"], &odd].concat());
    assert!(partly.stderr.contains("AZ1206"), "{}", partly.stderr);
    assert!(partly.stdout.contains("noatime"), "{}", partly.stdout);
    assert_eq!(ground.left(), [""; 0]);
}
