//! How sessions begin and end.

use crate::checks::{fails, json};
use crate::common::{Scene, VOLUME, obstacle, text};
use crate::far::{Far, ONE_WAY, log_in};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Sessions that the server has, but for that of the command which asks.
#[track_caller]
fn sessions(scene: &Scene) -> usize {
    let status = json(scene.azekura(&["status", scene.address(), "--json"]));
    status["sessions"].as_array().unwrap().len() - 1
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits for something that takes moments.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The server hears of an end within moments; one that it is not told of takes it 90 s.
#[track_caller]
fn no_session_left(scene: &Scene) {
    let begun = Instant::now();
    until("no session is left", || sessions(scene) == 0);
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn every_end_in_order_is_told_to_the_server() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let volume = scene.volume();
    scene.azekura(&["ls", &volume]).ok();
    scene.azekura(&["ls", &format!("{}/none", scene.address())]);
    no_session_left(&scene);
    let mount = scene.mount("mnt", &[]);
    assert_eq!(sessions(&scene), 1);
    scene.umount(&mount);
    no_session_left(&scene);
    for signal in [Signal::TERM, Signal::INT] {
        let mut command = scene.command();
        command.args(["mount", &volume, text(&mount), "--foreground"]);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        until("it is mounted", || {
            let list = fs::read_to_string("/proc/self/mounts").unwrap();
            list.contains(text(&mount))
        });
        send(&child, signal);
        assert!(child.wait().unwrap().success());
        no_session_left(&scene);
    }
}

#[test]
fn an_interrupted_copy_says_goodbye() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    let source = scene.path("many");
    fs::create_dir(&source).unwrap();
    for number in 0..20_000 {
        fs::write(source.join(format!("{number}")), "x").unwrap();
    }
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = scene.command();
        let target = format!("{}:/", scene.volume());
        command.args(["cp", "-r", text(&source), &target]);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let begun = scene.path("export/many");
        until("it has begun", || {
            begun.is_dir() && fs::read_dir(&begun).unwrap().next().is_some()
        });
        send(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(1));
        no_session_left(&scene);
        fs::remove_dir_all(begun).unwrap();
    }
}

#[test]
fn a_volume_is_entered_in_two_round_trips_and_lines_that_broke_resume() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let far = Far::new(scene.address().to_owned(), ONE_WAY);
    let address = &far.address;
    log_in(&scene, address);
    far.turns.store(0, Ordering::SeqCst);
    scene.azekura(&["ls", &format!("{address}/none")]);
    // Keys; greeting and volume; goodbye, because there is no such volume.
    assert_eq!(far.turns.load(Ordering::SeqCst), 3);

    let log = scene.path("log");
    let volume = format!("{address}/{VOLUME}");
    scene.mount_volume(&volume, "mnt", &["-vv", "--log", text(&log)]);
    far.cut();
    until("a connection resumes what another has proven", || {
        fs::read_to_string(&log)
            .unwrap()
            .contains("handshake=Some(Resumed)")
    });
}

#[test]
fn a_record_and_its_fsync_take_one_round_trip() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let far = Far::new(scene.address().to_owned(), ONE_WAY);
    log_in(&scene, &far.address);
    let volume = format!("{}/{VOLUME}", far.address);
    let mount = scene.mount_volume(&volume, "mnt", &[]);
    let mut log = fs::File::create(mount.join("log")).unwrap();
    let mut turns = Vec::new();
    for number in 0..8 {
        far.turns.store(0, Ordering::SeqCst);
        log.write_all(&[number; 3000]).unwrap();
        log.sync_all().unwrap();
        turns.push(far.turns.load(Ordering::SeqCst));
        // What the mount says by itself is over by then.
        std::thread::sleep(Duration::from_millis(300));
    }
    assert!(turns.contains(&1), "{turns:?}");
    let kept = fs::read(scene.path("export/log")).unwrap();
    assert_eq!(kept.len(), 24_000);
}

#[test]
fn a_server_that_was_killed_under_a_mount_is_soon_said_to_be_gone() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &[]);
    std::fs::write(mount.join("file"), vec![1; 1 << 20]).unwrap();
    scene.azekura(&["sync", text(&mount)]).ok();
    scene.kill();
    let begin = std::time::Instant::now();
    fails(&scene.azekura(&["ls", scene.address()]), "AZ0101");
    let time = begin.elapsed();
    assert!(
        time.as_secs() < 20,
        "{time:?}, as if a server were starting"
    );
    let figures = json(scene.azekura(&["top", text(&mount), "--once", "--json"]));
    assert_eq!(figures["connected"], false);
    assert_eq!(figures["reconnects"], 0, "nothing stands yet");
    scene.start();
    assert!(mount.join("file").exists());
    let figures = json(scene.azekura(&["top", text(&mount), "--once", "--json"]));
    assert!(figures["reconnects"].as_u64() >= Some(1), "{figures}");
}

/// Takes a whole file's lock, or one of its bytes, if nobody has it.
fn try_lock(path: &Path, bytes: bool) -> Option<File> {
    let file = File::options().write(true).open(path).unwrap();
    let how = FlockOperation::NonBlockingLockExclusive;
    let taken = match bytes {
        true => fcntl_lock(&file, how),
        false => flock(&file, how),
    };
    taken.ok().map(|()| file)
}

/// A program that holds a file's lock, or waits for it.
fn locker(path: &Path) -> Child {
    let mut command = Command::new("flock");
    command.args(["--no-fork", text(path), "sleep", "1000"]);
    command.spawn().unwrap()
}

/// The server ends while locks are held, and is away while they are let go. When it is back,
/// nobody has them but who still does.
fn let_go_while_away(scene: &mut Scene, mounts: &[PathBuf; 2], end: Signal) {
    let near = |name: &str| mounts[0].join(name);
    for name in ["closed", "unlocked", "bytes", "killed", "kept"] {
        fs::write(near(name), "x").unwrap();
    }
    let locked = |name: &str| try_lock(&near(name), name == "bytes").expect(name);
    let [closed, unlocked, bytes, kept] = ["closed", "unlocked", "bytes", "kept"].map(locked);
    let mut lockers = [locker(&near("killed")), locker(&near("kept"))];
    let far = |name: &str| try_lock(&mounts[1].join(name), name == "bytes");
    until("the program has its lock", || far("killed").is_none());
    scene.end(end);
    drop(closed);
    let begun = Instant::now();
    for locker in &mut lockers {
        locker.kill().unwrap();
        locker.wait().unwrap();
    }
    let killing = begun.elapsed();
    // These wait for the server.
    let waiting = [
        std::thread::spawn(move || flock(&unlocked, FlockOperation::Unlock).unwrap()),
        std::thread::spawn(move || drop(bytes)),
    ];
    std::thread::sleep(Duration::from_secs(1));
    scene.start();
    waiting.into_iter().for_each(|it| it.join().unwrap());
    for name in ["closed", "unlocked", "bytes", "killed"] {
        until(name, || far(name).is_some());
        // What the one before has let go arrives in a moment.
        until(name, || try_lock(&near(name), name == "bytes").is_some());
    }
    assert!(far("kept").is_none(), "who still holds one keeps it");
    drop(kept);
    until("it is let go as ever", || far("kept").is_some());
    let quick = Duration::from_secs(10);
    assert!(
        killing < quick,
        "{killing:?}, although nobody must be asked"
    );
}

#[test]
fn a_lock_let_go_while_the_server_was_away_is_nobodys() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mounts = ["near", "far"].map(|name| scene.mount(name, &["--timeout", "60s"]));
    for end in [Signal::KILL, Signal::TERM] {
        let_go_while_away(&mut scene, &mounts, end);
    }
    for mount in &mounts {
        scene.umount(mount);
    }
}

#[test]
fn a_mount_says_what_it_hides() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.path("mnt");
    fs::create_dir(&mount).unwrap();
    let volume = scene.volume();
    let arguments = ["mount", &volume, text(&mount)];
    let dry = [&arguments[..], &["--dry-run"]].concat();
    let said = |arguments: &[&str]| {
        let run = scene.azekura(arguments);
        assert!(run.status.success(), "{run:?}");
        run.stderr
    };
    let note = format!("{} is not empty", text(&mount.canonicalize().unwrap()));
    assert!(!said(&dry).contains("not empty"));
    fs::write(mount.join("below"), "x").unwrap();
    let tried = said(&dry);
    let mounted = said(&arguments);
    scene.umount(&mount);
    for said in [tried, mounted] {
        assert!(said.contains(&note), "{said}");
    }
    assert_eq!(fs::read(mount.join("below")).unwrap(), b"x");
}
