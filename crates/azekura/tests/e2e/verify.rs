//! `verify crash`: what must survive does, what must be noticed is, and nothing stays behind.

mod ended;

use crate::checks::{fails, json};
use crate::common::{Run, obstacle, run, text};
use ended::Begun;
use serde_json::Value;
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_azekura"));
    command
        .args(["verify", "crash"])
        .args(arguments)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    command
}

fn crash(arguments: &[&str]) -> Run {
    run(&mut command(arguments))
}

/// The JSON of a run that found what it was to find, whatever its exit code.
fn found(run: &Run) -> Value {
    let parsed = serde_json::from_str(&run.stdout);
    parsed.unwrap_or_else(|error| panic!("{error}: {} {}", run.stdout, run.stderr))
}

fn count(found: &Value, key: &str) -> u64 {
    found[key]
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {found}"))
}

#[test]
fn ext4_keeps_what_it_promises_in_every_crash_state() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let page = tempfile::NamedTempFile::new().unwrap();
    let arguments = [
        "--target", "ext4", "--points", "150", "--seed", "7", "--json",
    ];
    let report = ["--report", text(page.path())];
    let found = json(crash(&[&arguments[..], &report].concat()));
    assert_eq!(count(&found, "seed"), 7);
    assert!(count(&found, "states") >= 150, "{found}");
    for bad in ["lost_acks", "unmountable", "exposed", "bad_states"] {
        assert_eq!(count(&found, bad), 0, "{found}");
    }
    for some in [
        "intact",
        "pruned",
        "sampled",
        "flushes",
        "recovery_states",
        "workloads",
    ] {
        assert!(count(&found, some) > 0, "{some}: {found}");
    }
    let page = std::fs::read_to_string(page.path()).unwrap();
    assert!(page.contains("Nothing that was promised was lost") && page.contains("<svg"));
}

#[test]
fn ext4_without_barriers_is_found_to_lose_what_it_promised() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let kept = tempfile::tempdir().unwrap();
    let arguments = [
        "--target",
        "ext4",
        "--mount-options",
        "nobarrier",
        "--points",
        "60",
        "--workload",
        "write-rename",
        "--keep",
        text(kept.path()),
        "--json",
    ];
    let run = crash(&arguments);
    assert!(run.stderr.contains("AZ1201"), "{}", run.stderr);
    let losing = found(&run);
    assert_eq!(count(&losing, "flushes"), 0, "{losing}");
    assert!(count(&losing, "lost_acks") > 0, "{losing}");
    // A failure is tried again from its log, and is about few writes.
    let failure = &losing["targets"][0]["failures"][0];
    let writes = failure["writes"].as_array().unwrap().len();
    assert!(writes <= 10, "{failure}");
    let log = kept.path().join("ext4-write-rename.azkc");
    let state = failure["reduced"].as_str().unwrap();
    let again = crash(&["--replay", text(&log), "--state", state, "--json"]);
    assert!(again.stderr.contains("AZ1201"), "{}", again.stderr);
    assert_eq!(count(&found(&again), "bad_states"), 1);
}

#[test]
fn a_flush_that_is_lost_is_noticed() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    // Each record of this workload has two flushes, before and after the commit of the journal;
    // what was promised hangs on the latter. How many come before these is the kernel's matter.
    let found = ["lost-flush:4", "lost-flush:5"].map(|plant| {
        let arguments = [
            "--workload",
            "append-log",
            "--no-recoveries",
            "--plant",
            plant,
        ];
        let run = crash(&[&arguments[..], &["--points", "400", "--json"]].concat());
        count(&found(&run), "lost_acks") > 0 && run.stderr.contains("AZ1201")
    });
    assert!(found.contains(&true));
}

#[test]
fn our_store_keeps_what_it_promises_and_a_store_without_flushes_is_noticed() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let store = ["--target", "store", "--seed", "7", "--json", "--points"];
    let good = json(crash(&[&store[..], &["400"]].concat()));
    assert!(count(&good, "states") >= 400, "{good}");
    assert_eq!(count(&good, "bad_states"), 0, "{good}");
    let bad = crash(&[&store[..], &["100", "--plant", "no-flush"]].concat());
    assert!(bad.stderr.contains("AZ1201"), "{}", bad.stderr);
    assert!(count(&found(&bad), "lost_acks") > 0);
}

#[test]
fn targets_beside_each_other_are_found_to_be_as_one_after_the_other() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let some = ["--target", "ext4,store,ext3", "--points", "60", "--json"];
    let both = |jobs: &str| {
        let arguments = ["--no-recoveries", "--plant", "no-flush", "--jobs", jobs];
        let run = crash(&[&some[..], &arguments].concat());
        assert!(run.stderr.contains("AZ1201"), "{}", run.stderr);
        let found = found(&run);
        let targets = found["targets"].as_array().unwrap().clone();
        let name = |one: &Value| one["target"].as_str().unwrap().to_owned();
        let names: Vec<String> = targets.iter().map(name).collect();
        assert_eq!(names, ["ext4", "store", "ext3"]);
        targets.iter().all(|one| count(one, "bad_states") > 0)
    };
    assert!(both("1") && both("3"));
}

#[test]
fn states_of_single_operations_on_objects_are_all_as_promised() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let all = ["--target", "store", "--workload", "one"];
    let few = ["--points", "400", "--no-recoveries", "--json"];
    let found = json(crash(&[&all[..], &few].concat()));
    assert_eq!(count(&found, "states"), 400, "{found}");
    assert_eq!(count(&found, "bad_states"), 0, "{found}");
    // None of them takes so many that there are none left for those behind it.
    assert!(count(&found, "workloads") > 16, "{found}");
}

#[test]
fn a_path_is_judged_as_what_is_mounted_there_and_left_alone() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let (file, point) = (scratch.path().join("disk"), scratch.path().join("point"));
    std::fs::File::create(&file)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    std::fs::create_dir(&point).unwrap();
    run(Command::new("mkfs.ext4").arg("-q").arg(&file)).ok();
    run(Command::new("mount")
        .args(["-o", "loop,nobarrier"])
        .args([&file, &point]))
    .ok();
    std::fs::write(point.join("mine"), "x").unwrap();
    let arguments = [
        "--target",
        text(&point),
        "--workload",
        "write-rename",
        "--points",
        "60",
    ];
    let judged = crash(&[&arguments[..], &["--json"]].concat());
    let left = names(&point);
    run(Command::new("umount").arg(&point)).ok();
    // Without barriers ext4 loses what it has promised.
    assert!(judged.stderr.contains("AZ1201"), "{}", judged.stderr);
    let found = found(&judged);
    let options = found["targets"][0]["mount_options"].as_str().unwrap();
    assert!(options.contains("barrier"), "{found}");
    assert!(
        count(&found, "flushes") == 0 && count(&found, "lost_acks") > 0,
        "{found}"
    );
    assert!(
        left.contains(&"mine".to_owned()) && left.len() == 2,
        "{left:?}"
    );
}

#[test]
fn a_log_that_was_exported_is_judged_as_the_one_that_was_kept() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let kept = tempfile::tempdir().unwrap();
    let made = ["--mount-options", "nobarrier", "--workload", "write-rename"];
    let few = ["--points", "30", "--no-recoveries", "--json"];
    let keep = ["--keep", text(kept.path())];
    let losing = crash(&[&made[..], &few, &keep].concat());
    assert!(losing.stderr.contains("AZ1201"), "{}", losing.stderr);
    let log = kept.path().join("ext4-write-rename.azkc");
    let exported = kept.path().join("exported.log");
    crash(&["--replay", text(&log), "--export-log", text(&exported)]).ok();
    let replayed = |log: &Path| {
        let run = crash(&[&["--replay", text(log)][..], &few].concat());
        let found = found(&run);
        let keys = ["states", "bad_states", "lost_acks", "unmountable", "writes"];
        keys.map(|key| count(&found, key))
    };
    let first = replayed(&log);
    assert_eq!(first, replayed(&exported));
    assert!(first[1] > 0, "{first:?}");
}

#[test]
fn what_ext2_never_promised_is_told_and_no_failure() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let arguments = ["--target", "ext2", "--workload", "write-rename"];
    let few = ["--points", "40", "--no-recoveries", "--json"];
    let found = json(crash(&[&arguments[..], &few].concat()));
    assert!(count(&found, "lost_acks") > 0, "{found}");
    assert_eq!(count(&found, "unmountable"), 0, "{found}");
}

#[test]
fn two_recorders_agree_on_what_was_written() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    if !ended::has_second_recorder() {
        println!("skipped: qemu-storage-daemon is not installed");
        return;
    }
    let both = [
        "--second-recorder",
        "--workload",
        "append-log",
        "--points",
        "30",
    ];
    let found = json(crash(&[&both[..], &["--no-recoveries", "--json"]].concat()));
    let recorders = &found["targets"][0]["recorders"];
    for equal in ["equal_logs", "equal_verdicts"] {
        assert_eq!(recorders[equal], recorders["logs"], "{found}");
    }
    assert!(
        count(recorders, "states") >= 30 && count(&found, "flushes") > 0,
        "{found}"
    );
}

#[test]
fn a_volume_keeps_what_was_synced_when_its_server_loses_power() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let volume = ["--target", "volume", "--workload", "write-rename"];
    let few = ["--points", "8", "--no-recoveries", "--json"];
    let found = json(crash(&[&volume[..], &few].concat()));
    assert_eq!(count(&found, "states"), 8, "{found}");
    assert_eq!(count(&found, "bad_states"), 0, "{found}");
}

/// Loop devices whose file has this name.
fn loops_of(name: &str) -> usize {
    let blocks = std::fs::read_dir("/sys/block").unwrap();
    let file = |entry: std::fs::DirEntry| entry.path().join("loop/backing_file");
    let below = blocks.map(|entry| std::fs::read_to_string(file(entry.unwrap())));
    below.flatten().filter(|file| file.contains(name)).count()
}

/// The names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect()
}

fn waits(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_stays_behind_when_a_run_is_killed() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let mut said = tempfile::tempfile().unwrap();
    let mut child = command(&["--points", "100000"])
        .env("TMPDIR", parent.path())
        .stdout(Stdio::null())
        .stderr(said.try_clone().unwrap())
        .spawn()
        .unwrap();
    let mut goes_on = || {
        let ended = child.try_wait().unwrap();
        let mut text = String::new();
        if ended.is_some() {
            said.rewind().unwrap();
            said.read_to_string(&mut text).unwrap();
        }
        assert_eq!(ended, None, "it ended by itself: {text}");
    };
    // It is hidden until the run has it to itself.
    let shown = || {
        names(parent.path())
            .into_iter()
            .find(|name| !name.starts_with('.'))
    };
    waits("no directory", || {
        goes_on();
        shown().is_some()
    });
    let name = shown().expect("a run does not rename its directory twice");
    // What is recorded, and what states are put into.
    waits("no loop devices", || {
        goes_on();
        loops_of(&name) == 2
    });
    child.kill().unwrap();
    child.wait().unwrap();
    waits("the loop devices stay", || loops_of(&name) == 0);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&name), "{mounts}");
    // The next run removes what is left of the directory.
    let next = ["--points", "1", "--workload", "one:0", "--no-recoveries"];
    run(command(&next).env("TMPDIR", parent.path())).ok();
    assert_eq!(names(parent.path()), [""; 0]);
}

/// A process and those that descend from it, the eldest first.
fn family(eldest: u32) -> Vec<u32> {
    let mut family = vec![eldest];
    let mut at = 0;
    while let Some(parent) = family.get(at) {
        let listed = format!("/proc/{parent}/task/{parent}/children");
        let listed = std::fs::read_to_string(listed).unwrap_or_default();
        family.extend(
            listed
                .split_whitespace()
                .map(|one| one.parse::<u32>().unwrap()),
        );
        at += 1;
    }
    family
}

/// Whether a process has a thread that has not ended.
fn lives(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    let stat = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("stat"));
    let mut stats = threads
        .into_iter()
        .flatten()
        .flat_map(|one| stat(one.ok()?).ok());
    stats.any(|stat| {
        !stat
            .rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z'))
    })
}

/// The numbers of the FUSE mounts that a process sees in a directory.
fn fuse_numbers(process: u32, directory: &str) -> Vec<String> {
    let mounts = std::fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    let of = |line: &str| {
        let number = line.split(' ').nth(2)?.strip_prefix("0:")?;
        (line.contains(directory) && line.contains(" - fuse")).then(|| number.to_owned())
    };
    mounts.lines().filter_map(of).collect()
}

/// Breaks FUSE connections, for which processes wait that would never end.
fn break_connections(numbers: &[String]) {
    let list = "/sys/fs/fuse/connections";
    let breaks = numbers
        .iter()
        .map(|number| format!("echo 1 > {list}/{number}/abort"));
    let script = format!(
        "mount -t fusectl none {list}; {}",
        breaks.collect::<Vec<_>>().join("; ")
    );
    run(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
}

/// How a run is killed.
#[derive(Clone, Copy, Debug)]
enum Killed {
    /// All its processes in turn, those that it started first.
    AtOnce,
    /// The run itself when those that it started have ended or wait for it.
    Last,
}

fn signal(process: u32, signal: rustix::process::Signal) {
    let process = rustix::process::Pid::from_raw(process.cast_signed()).unwrap();
    let _ = rustix::process::kill_process(process, signal);
}

/// Kills a run and all its processes some time after it has mounted a file system of this kind, and
/// waits for their end: the kernel takes off what they have mounted, and writes to a device that
/// nobody serves any more.
fn is_killed(arguments: &[&str], kind: &str, after: Duration, how: Killed) {
    use rustix::process::Signal;
    let mut begun = Begun::new(arguments);
    begun.mounted(kind);
    std::thread::sleep(after);
    signal(begun.id(), Signal::STOP);
    let all = family(begun.id());
    let descended = &all[1..];
    let directory = text(begun.parent.path()).to_owned();
    let connections = all.iter().flat_map(|&one| fuse_numbers(one, &directory));
    let connections: Vec<String> = connections.collect();
    assert!(!connections.is_empty(), "nothing is served");
    let devices = ended::attached(&directory);
    descended.iter().for_each(|&one| signal(one, Signal::KILL));
    if matches!(how, Killed::Last) {
        std::thread::sleep(Duration::from_millis(300));
    }
    signal(begun.id(), Signal::KILL);
    let deadline = Instant::now() + Duration::from_secs(30);
    let left = || all.iter().copied().filter(|&one| lives(one));
    while left().next().is_some() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let waiting: Vec<u32> = left().collect();
    if !waiting.is_empty() {
        break_connections(&connections);
    }
    let status = begun.ends();
    let case = format!("{arguments:?} {after:?} {how:?}");
    assert_eq!(waiting, [0; 0], "{case}: they wait for each other");
    let signal = status.and_then(|status| status.signal());
    assert_eq!(
        signal,
        Some(Signal::KILL.as_raw()),
        "{case}: {}",
        begun.said()
    );
    begun.is_cleaned_up_by_the_next();
    assert!(!ended::is_attached(&devices), "{case}: {devices:?} stay");
}

#[test]
fn processes_of_a_run_that_are_killed_at_once_do_not_wait_for_each_other() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let mut cases = vec![
        (vec!["--target", "ext4"], "ext4", [0, 10, 20]),
        (vec!["--target", "xfs"], "xfs", [0, 10, 20]),
        (vec!["--target", "volume"], "ext4", [0, 200, 500]),
    ];
    if ended::has_second_recorder() {
        cases.push((vec!["--second-recorder"], "ext4", [0, 20, 200]));
    }
    for (arguments, kind, times) in cases {
        for millis in times {
            for how in [Killed::AtOnce, Killed::Last] {
                is_killed(&arguments, kind, Duration::from_millis(millis), how);
            }
        }
    }
}

#[test]
fn what_cannot_be_used_is_refused_with_what_there_is() {
    let usage = crash(&["--target", "fat"]);
    assert_eq!(usage.status.code(), Some(2));
    assert!(usage.stderr.contains("btrfs"), "{}", usage.stderr);
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    fails(&crash(&["--workload", "three:1"]), "AZ1204");
    let files = crash(&["--target", "store", "--workload", "one:0"]);
    assert!(files.stderr.contains("store cannot"), "{}", files.stderr);
    fails(&files, "AZ1204");
    let none = tempfile::NamedTempFile::new().unwrap();
    fails(&crash(&["--replay", text(none.path())]), "AZ1204");
    assert!(Path::new("/dev/fuse").exists());
}
