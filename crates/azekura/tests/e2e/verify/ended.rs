//! Ends of crash runs: of one of their processes alone, and by a terminal; and runs beside mounts
//! and tools of others. Nothing of a run stays behind, and nobody waits for ever.

use super::{break_connections, command, family, fuse_numbers, lives, names, signal, waits};
use crate::common::{obstacle, run, text};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Whatever becomes of a run, it has ended by then.
const END_TIME_MAX: Duration = Duration::from_secs(60);
/// More states than are ever tried.
const ENDLESS: [&str; 2] = ["--points", "100000"];

/// What a file has from its beginning on.
fn read(mut file: &File) -> String {
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

/// A run in a directory of its own, and in a group of processes of its own, as in a terminal. If
/// the test does not come to its end, neither does the run.
pub(super) struct Begun {
    child: Child,
    said: File,
    printed: File,
    pub(super) parent: TempDir,
}

impl Begun {
    pub(super) fn new(arguments: &[&str]) -> Self {
        Self::from(&mut command(&[arguments, &ENDLESS].concat()))
    }

    fn from(command: &mut Command) -> Self {
        let parent = tempfile::tempdir().unwrap();
        let (said, printed) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        let child = command
            .env("TMPDIR", parent.path())
            .stdout(printed.try_clone().unwrap())
            .stderr(said.try_clone().unwrap())
            .process_group(0)
            .spawn()
            .unwrap();
        Self {
            child,
            said,
            printed,
            parent,
        }
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for something of a run that goes on.
    pub(super) fn waits(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        waits(what, || {
            let ended = self.child.try_wait().unwrap();
            assert_eq!(ended, None, "it ended by itself: {}", read(&self.said));
            is_so(self)
        });
    }

    /// The name of its directory; it is hidden until the run has it to itself.
    fn shown(&self) -> Option<String> {
        let mut all = names(self.parent.path()).into_iter();
        all.find(|name| !name.starts_with('.'))
    }

    /// The process that uses the file system, and the name of the run's directory, as soon as a
    /// file system of this kind is mounted there.
    pub(super) fn mounted(&mut self, kind: &str) -> (u32, String) {
        let mut found = None;
        self.waits("nothing is mounted", |run| {
            let Some(name) = run.shown() else {
                return false;
            };
            let point = format!("{}/mnt ", text(&run.parent.path().join(&name)));
            let has_mounted = |process: &u32| {
                let mounts = fs::read_to_string(format!("/proc/{process}/mountinfo"));
                mounts.is_ok_and(|mounts| {
                    mounts
                        .lines()
                        .any(|line| line.contains(&point) && line.contains(&format!(" - {kind} ")))
                })
            };
            found = actor(run.id()).filter(has_mounted).zip(Some(name));
            found.is_some()
        });
        found.unwrap()
    }

    /// Its exit status, if it ends in time.
    pub(super) fn ends(&mut self) -> Option<ExitStatus> {
        let deadline = Instant::now() + END_TIME_MAX;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        None
    }

    pub(super) fn said(&self) -> String {
        read(&self.said)
    }

    /// What is left of it is taken away by the next run.
    pub(super) fn is_cleaned_up_by_the_next(&self) {
        next(&self.parent);
        assert_eq!(names(self.parent.path()), [""; 0]);
    }
}

/// The shortest of runs.
fn next(parent: &TempDir) {
    let next = ["--points", "1", "--workload", "one:0", "--no-recoveries"];
    run(command(&next).env("TMPDIR", parent.path())).ok();
}

impl Drop for Begun {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let all = family(self.id());
        let directory = text(self.parent.path());
        let devices = attached(directory);
        let numbers = all.iter().flat_map(|&one| fuse_numbers(one, directory));
        let numbers: Vec<String> = numbers.collect();
        all.iter().rev().for_each(|&one| signal(one, Signal::KILL));
        let has_ended = || {
            let deadline = Instant::now() + Duration::from_secs(10);
            while all.iter().any(|&one| lives(one)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
            !all.iter().any(|&one| lives(one))
        };
        if !has_ended() && !numbers.is_empty() {
            break_connections(&numbers);
            has_ended();
        }
        let _ = self.child.try_wait();
        for (device, _) in devices {
            let device = Path::new("/dev").join(Path::new(&device).file_name().unwrap());
            let _ = Command::new("losetup").arg("--detach").arg(device).output();
        }
    }
}

/// The process of a run that uses the file system.
fn actor(run: u32) -> Option<u32> {
    with_word(run, "actor")
}

/// The eldest of those that descend from a process that has this word in its command.
fn with_word(eldest: u32, word: &str) -> Option<u32> {
    let mut family = family(eldest).into_iter().skip(1);
    family.find(|one| {
        let words = fs::read(format!("/proc/{one}/cmdline")).unwrap_or_default();
        words
            .split(|byte| *byte == 0)
            .any(|other| other == word.as_bytes())
    })
}

/// The loop devices of files below a directory with this name, and which attachments they are of
/// all that this kernel has made.
pub(super) fn attached(name: &str) -> Vec<(String, String)> {
    let devices = fs::read_dir("/sys/block").unwrap();
    let of = |entry: std::io::Result<fs::DirEntry>| {
        let device = entry.unwrap().path();
        let file = fs::read_to_string(device.join("loop/backing_file")).ok()?;
        let number = fs::read_to_string(device.join("diskseq")).unwrap_or_default();
        file.contains(name)
            .then(|| (text(&device).to_owned(), number))
    };
    devices.filter_map(of).collect()
}

/// Whether one of these is still attached as it was.
pub(super) fn is_attached(devices: &[(String, String)]) -> bool {
    devices.iter().any(|(device, number)| {
        let device = Path::new(device);
        let now = fs::read_to_string(device.join("diskseq")).unwrap_or_default();
        device.join("loop/backing_file").exists() && now == *number
    })
}

/// Whether this machine has what the second recorder is.
pub(super) fn has_second_recorder() -> bool {
    let mut command = Command::new("qemu-storage-daemon");
    command.arg("--version").output().is_ok()
}

#[test]
fn a_run_whose_actor_alone_is_killed_ends_and_leaves_nothing() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let mut cases = vec![
        (vec!["--target", "ext4"], "ext4"),
        (vec!["--target", "xfs"], "xfs"),
        (vec!["--target", "volume"], "ext4"),
    ];
    if has_second_recorder() {
        cases.push((vec!["--second-recorder"], "ext4"));
    }
    for (arguments, kind) in cases {
        let mut begun = Begun::new(&arguments);
        let (actor, name) = begun.mounted(kind);
        let devices = attached(&name);
        assert!(!devices.is_empty(), "{arguments:?}: nothing is attached");
        signal(actor, Signal::KILL);
        let status = begun.ends();
        let said = begun.said();
        let status = status.unwrap_or_else(|| panic!("{arguments:?}: it does not end: {said}"));
        assert_eq!(status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("AZ1203"), "{arguments:?}: {said}");
        assert!(!is_attached(&devices), "{arguments:?}: {devices:?}: {said}");
        assert_eq!(names(begun.parent.path()), [""; 0], "{arguments:?}: {said}");
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&name), "{mounts}");
    }
}

#[test]
fn what_an_actor_uses_that_outlives_its_run_is_not_cleaned_up_under_it() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    // A repair that takes its time keeps the actor busy.
    let tools = tempfile::tempdir().unwrap();
    let busy = tools.path().join("busy");
    let busy = text(&busy);
    let script = format!("#!/bin/sh\n: > {busy}\nwhile [ -e {busy} ]; do sleep 0.02; done\n");
    let repair = tools.path().join("e2fsck");
    fs::write(&repair, script).unwrap();
    fs::set_permissions(&repair, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", text(tools.path()), std::env::var("PATH").unwrap());
    let mut slow = command(&[&["--target", "ext2"][..], &ENDLESS].concat());
    let mut begun = Begun::from(slow.env("PATH", path));
    begun.waits("nothing is repaired", |_| Path::new(busy).exists());
    let name = begun.shown().unwrap();
    let actor = actor(begun.id()).unwrap();
    let devices = attached(&name);
    signal(begun.id(), Signal::KILL);
    assert!(
        begun.ends().is_some(),
        "a run that was killed has not ended"
    );
    next(&begun.parent);
    let stayed = (is_attached(&devices), names(begun.parent.path()));
    fs::remove_file(busy).unwrap();
    assert_eq!((devices.len(), stayed), (2, (true, vec![name])));
    waits("the actor stays", || !lives(actor));
    assert!(!is_attached(&devices), "{devices:?} stay");
    begun.is_cleaned_up_by_the_next();
}

/// Where in the kernel the threads of a process wait.
fn places(process: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let place = |thread: std::io::Result<fs::DirEntry>| {
        fs::read_to_string(thread.unwrap().path().join("wchan")).unwrap_or_default()
    };
    threads.map(place).collect()
}

#[test]
fn a_run_waits_for_nobody_who_uses_what_it_serves() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    if !has_second_recorder() {
        println!("skipped: qemu-storage-daemon is not installed");
        return;
    }
    let mut begun = Begun::new(&["--second-recorder"]);
    let (actor, _) = begun.mounted("ext4");
    let recorder = with_word(begun.id(), "qemu-storage-daemon");
    let recorder = recorder.expect("there is a second recorder");
    let waits = |process: u32| places(process).contains(&"request_wait_answer".to_owned());
    if places(begun.id()).iter().all(|place| place == "0") {
        println!("skipped: this kernel does not tell where its processes wait");
        return;
    }
    // It does not answer any more, until somebody waits for it who asks for its file. If it is the
    // file system that waits, that one cannot come.
    let mut is_waiting = None;
    begun.waits("nobody asks the second recorder", |run| {
        signal(recorder, Signal::STOP);
        let deadline = Instant::now() + Duration::from_millis(300);
        while is_waiting.is_none() && Instant::now() < deadline {
            let [of_run, of_actor] = [run.id(), actor].map(waits);
            is_waiting = (of_run || of_actor).then_some(of_run);
            std::thread::sleep(Duration::from_millis(10));
        }
        signal(recorder, Signal::CONT);
        std::thread::sleep(Duration::from_millis(100));
        is_waiting.is_some()
    });
    let is_waiting = is_waiting.unwrap();
    assert!(!is_waiting, "the run waits for who waits for the run");
}

#[test]
fn an_interrupt_at_a_terminal_makes_no_state_bad_that_two_record() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    if !has_second_recorder() {
        println!("skipped: qemu-storage-daemon is not installed");
        return;
    }
    for millis in [0, 300, 600] {
        let mut begun = Begun::new(&["--second-recorder", "--json"]);
        begun.mounted("ext4");
        std::thread::sleep(Duration::from_millis(millis));
        // What a terminal does: all that are in its foreground are told.
        let group = Pid::from_raw(begun.id().cast_signed()).unwrap();
        kill_process_group(group, Signal::INT).unwrap();
        let status = begun.ends();
        let said = begun.said();
        assert_eq!(status.and_then(|status| status.code()), Some(1), "{said}");
        assert!(said.contains("interrupted after"), "{said}");
        let found: serde_json::Value = serde_json::from_str(&read(&begun.printed)).unwrap();
        assert_eq!(found["bad_states"], 0, "{found}");
        assert_eq!(names(begun.parent.path()), [""; 0]);
    }
}

#[test]
fn what_the_host_takes_off_is_not_held_by_a_run() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let ground = tempfile::tempdir().unwrap();
    let others = ground.path().join("others");
    fs::create_dir(&others).unwrap();
    // A host whose mounts are shared, as those of most are: a run begins, and then somebody takes
    // a disk off.
    let script = r#"
        mount --make-rshared / && mount -t tmpfs others "$1" || exit 3
        shift
        "$@" & run=$!
        read -r _
        umount "$OTHERS" || exit 4
        echo off >&2
        wait $run
    "#;
    let mut host = Command::new("unshare");
    host.args(["--mount", "sh", "-c", script, "sh", text(&others)])
        .arg(env!("CARGO_BIN_EXE_azekura"))
        .args(["verify", "crash"])
        .args(ENDLESS)
        .env("OTHERS", &others)
        .env_remove("RUST_LOG")
        .stdin(Stdio::piped());
    let mut host = Begun::from(&mut host);
    let (actor, _) = host.mounted("ext4");
    let holds = |process: u32| {
        let mounts = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap();
        mounts.contains(&format!(" {} ", text(&others)))
    };
    let run = with_word(host.id(), "crash").expect("there is a run");
    assert!(holds(run) && holds(actor), "they begin with what is there");
    host.child.stdin.take().unwrap().write_all(b"\n").unwrap();
    host.waits("nothing is taken off", |host| host.said().contains("off"));
    let held = [holds(run), holds(actor)];
    signal(run, Signal::INT);
    assert!(host.ends().is_some(), "{}", host.said());
    assert_eq!(held, [false; 2], "{}", host.said());
}

#[test]
fn the_tools_of_administrators_are_found_without_their_directories_in_the_path() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let few = ["--points", "2", "--workload", "one:0", "--no-recoveries"];
    for target in ["ext2", "volume"] {
        let mut plain = command(&[&["--target", target][..], &few].concat());
        run(plain.env("PATH", "/usr/bin:/bin")).ok();
    }
}
