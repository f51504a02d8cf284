//! Several managers of one cluster, on three members of etcd: what is in etcd, who leads, and what
//! becomes of everything when one of them is killed or stopped.

use crate::checks::json;
use crate::common::{Scene, obstacle, text};
use crate::etcd::{Cluster, MEMBERS};
use crate::launched::{Launched, until};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Within this time another manager leads and answers.
const TAKEOVER_TIME_MAX: Duration = Duration::from_secs(30);

/// Managers `one` and maybe `two`, a storage server, three members of etcd, and the volume `q`.
struct Place {
    scene: Scene,
    etcd: Cluster,
    managers: Vec<Launched>,
    disks: Launched,
}

impl Place {
    fn new(managers: usize) -> Option<Self> {
        if let Some(why) = obstacle() {
            println!("{why}");
            return None;
        }
        let scene = Scene::new();
        let etcd = Cluster::begin(&scene)?;
        etcd.until_there();
        let names = ["one", "two"].into_iter().take(managers);
        let managers = names.map(|name| Launched::configured(&scene, name, "config"));
        let mut place = Self {
            managers: managers.collect(),
            disks: Launched::new(&scene, "disks"),
            scene,
            etcd,
        };
        let meta = place.etcd.address();
        place.managers[0].start(&format!("--init --meta {meta}"));
        let first = place.managers[0].address.clone();
        if place.managers.len() > 1 {
            let join = place.join_string("manager");
            place.managers[1].start(&format!("--join {first} {join}"));
        }
        let join = place.join_string("storage");
        let joining = format!("--store-size 256MiB --join {first} {join}");
        place.disks.start(&joining);
        place.until_disks_are_there();
        place.azekura(&["volume", "create", &place.volume()]);
        Some(place)
    }

    fn azekura(&self, arguments: &[&str]) -> String {
        self.scene.azekura(arguments).ok()
    }

    /// All managers, as commands take them.
    fn address(&self) -> String {
        let managers = self.managers.iter();
        let all: Vec<&str> = managers.map(|manager| manager.address.as_str()).collect();
        all.join(",")
    }

    fn volume(&self) -> String {
        format!("{}/q", self.address())
    }

    fn join_string(&self, kind: &str) -> String {
        let first = &self.managers[0].address;
        let made = self.azekura(&["join", "create", first, "--kind", kind, "--json"]);
        let made: Value = serde_json::from_str(&made).unwrap();
        made["join_string"].as_str().unwrap().to_owned()
    }

    fn status(&self) -> Value {
        json(self.scene.azekura(&["status", &self.address(), "--json"]))
    }

    fn until_disks_are_there(&self) {
        until("the storage server is there", || {
            let status = self.status();
            let servers = status["servers"].as_array().unwrap();
            servers.iter().any(|server| {
                server["addresses"][0] == self.disks.address && server["seconds_away"].is_null()
            })
        });
    }

    /// Which of the managers leads, as the one says that answers.
    fn leader(&self) -> usize {
        let status = self.status();
        let managers = status["managers"].as_array().unwrap();
        let leads = managers.iter().find(|manager| manager["leads"] == true);
        let address = leads.expect("one leads")["addresses"][0].clone();
        let mut managers = self.managers.iter();
        managers
            .position(|manager| manager.address == address.as_str().unwrap())
            .unwrap()
    }

    fn reserve(&self, name: &str) -> Value {
        let volume = self.volume();
        let terms = ["--write", "1MB/s", "--space", "32MB", "--for", "20m"];
        let mut command = vec!["reserve", "create", &volume, "--name", name, "--json"];
        command.extend(terms);
        // The calendar hears of a new store within a moment.
        let mut made = None;
        until("it is reserved", || {
            let run = self.scene.azekura(&command);
            made = run.status.success().then(|| run.ok());
            made.is_some()
        });
        serde_json::from_str(&made.unwrap()).unwrap()
    }

    fn reservations(&self) -> Value {
        let list = self.azekura(&["reserve", "list", &self.address(), "--json"]);
        serde_json::from_str(&list).unwrap()
    }

    fn mount(&mut self, name: &str, options: &[&str]) -> PathBuf {
        let volume = self.volume();
        self.scene.mount_volume(&volume, name, options)
    }
}

/// Bytes that tell where they belong.
fn contents(number: u64) -> Vec<u8> {
    let word = format!("file {number} ");
    word.bytes()
        .cycle()
        .take(10_000 + (number as usize * 977) % 90_000)
        .collect()
}

/// Copies what a manager keeps that others do not know: keys and certificates.
fn copy_keys(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in ["cluster.toml", "secrets.toml", "boot.toml"] {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
    fs::create_dir(to.join("server")).unwrap();
    for file in fs::read_dir(from.join("server")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join("server").join(file.file_name())).unwrap();
    }
}

#[test]
fn a_manager_on_etcd_goes_on_with_its_keys_alone() {
    let Some(mut place) = Place::new(1) else {
        return;
    };
    let mount = place.mount("m", &[]);
    for number in 0..20 {
        fs::write(mount.join(format!("f{number}")), contents(number)).unwrap();
    }
    fs::create_dir(mount.join("d")).unwrap();
    fs::rename(mount.join("f3"), mount.join("d/moved")).unwrap();
    fs::remove_file(mount.join("f4")).unwrap();
    place.scene.umount(&mount);
    rich_acls_are_set(&place);
    let reserved = place.reserve("run");
    let before = place.reservations();
    let credentials =
        |place: &Place| place.azekura(&["credential", "list", &place.address(), "--json"]);
    let known = credentials(&place);
    place.managers[0].kill();
    let directory = place.scene.path("one");
    let kept = place.scene.path("one.before");
    fs::rename(&directory, &kept).unwrap();
    copy_keys(&kept, &directory);
    place.managers[0].start("");
    // It is another server with the same keys: it waits until the seat of the one before is free.
    until("it leads", || place.managers[0].said().contains("ready on"));
    assert!(
        !directory.join("volumes.toml").exists(),
        "nothing is kept there"
    );
    assert_eq!(credentials(&place), known);
    assert_eq!(place.reservations(), before);
    let id = reserved["id"].clone();
    assert!(!id.is_null() && before.to_string().contains(id.as_str().unwrap()));
    place.until_disks_are_there();
    let mount = place.mount("again", &[]);
    for number in (0..20).filter(|number| ![3, 4].contains(number)) {
        assert!(fs::read(mount.join(format!("f{number}"))).unwrap() == contents(number));
    }
    assert!(fs::read(mount.join("d/moved")).unwrap() == contents(3));
    assert!(!mount.join("f4").exists() && !mount.join("f3").exists());
    rich_acls_are_there(&place);
    delete_and_make_again(&mut place, &mount);
    // What is there is nobody else's.
    let meta = place.etcd.address();
    let other = place.scene.azekura(&[
        "server",
        "--data",
        "other",
        "--listen",
        "127.0.0.1:0",
        "--init",
        "--meta",
        &meta,
    ]);
    assert!(other.stderr.contains("AZ0606"), "{}", other.stderr);
}

/// One that lies with its inode, and one that lies by itself.
fn rich_acls_are_set(place: &Place) {
    let volume = place.volume();
    place.azekura(&["acl", "enable", &volume]);
    for (file, users) in [("f1", 1), ("f2", 80)] {
        let entries = (0..users).map(|user| format!("A::{}:r", 70_000 + user));
        let entries: Vec<String> = entries.collect();
        let file = format!("{volume}:/{file}");
        place.azekura(&["acl", "set", &file, "--set", &entries.join(",")]);
    }
}

/// The next manager judges by them, and knows what was written down.
fn rich_acls_are_there(place: &Place) {
    let volume = place.volume();
    for (file, users) in [("f1", 1), ("f2", 80)] {
        for (user, is_allowed) in [(users - 1, true), (users, false)] {
            let (file, user) = (format!("{volume}:/{file}"), (70_000 + user).to_string());
            let by = json(
                place
                    .scene
                    .azekura(&["acl", "explain", &file, "--as", &user, "--json"]),
            );
            assert_eq!(
                (&by["allowed"], &by["origin"]),
                (&is_allowed.into(), &"rich".into()),
                "{by}"
            );
        }
    }
    let status = json(place.scene.azekura(&["acl", "status", &volume, "--json"]));
    assert_eq!(
        (&status["enabled"], &status["stored"]),
        (&true.into(), &2.into()),
        "{status}"
    );
    assert_eq!(
        status["last_edits"].as_array().unwrap().len(),
        2,
        "{status}"
    );
}

fn delete_and_make_again(place: &mut Place, mount: &Path) {
    for entry in fs::read_dir(mount).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
    place.scene.umount(mount);
    let volume = place.volume();
    place.azekura(&["reserve", "cancel", &volume, "run"]);
    until("the volume is empty", || {
        let deleted = place.scene.azekura(&["volume", "delete", &volume]);
        deleted.status.success()
    });
    place.azekura(&["volume", "create", &place.volume()]);
    let export = format!("{}/x", place.address());
    let directory = place.scene.path("export");
    let refused = place
        .scene
        .azekura(&["volume", "create", &export, "--export", text(&directory)]);
    assert!(
        refused.stderr.contains("one machine's"),
        "{}",
        refused.stderr
    );
}

/// Writes files one after the other, each with fsync; says which were acknowledged.
fn write_files(mount: PathBuf, is_over: Arc<AtomicBool>) -> std::thread::JoinHandle<Vec<u64>> {
    std::thread::spawn(move || {
        let mut acknowledged = Vec::new();
        for number in 0.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let (open, done) = (format!("{number}.part"), format!("{number}"));
            let (open, done) = (mount.join(open), mount.join(done));
            let mut file = File::create(&open).unwrap();
            file.write_all(&contents(number)).unwrap();
            file.sync_all().unwrap();
            fs::rename(&open, &done).unwrap();
            acknowledged.push(number);
            std::thread::sleep(Duration::from_millis(20));
        }
        acknowledged
    })
}

fn check_files(mount: &Path, acknowledged: &[u64]) {
    for number in acknowledged {
        let found = fs::read(mount.join(format!("{number}")));
        assert!(
            found.is_ok_and(|found| found == contents(*number)),
            "file {number}"
        );
        assert!(
            !mount.join(format!("{number}.part")).exists(),
            "file {number}"
        );
    }
    let names = fs::read_dir(mount).unwrap();
    let is_number = |name: &str| name.starts_with(|c: char| c.is_ascii_digit());
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.filter(|name| is_number(name)).count();
    let more = names - acknowledged.len();
    assert!(more <= 1, "{more} files that nobody has acknowledged");
}

#[test]
fn nothing_is_lost_when_managers_and_members_are_killed_in_turn() {
    let Some(mut place) = Place::new(2) else {
        return;
    };
    let reserved = place.reserve("run");
    let ticket = place.scene.path("run.json");
    fs::write(&ticket, reserved.to_string()).unwrap();
    let before = place.reservations();
    let mount = place.mount("m", &[]);
    let booked = place.mount("booked", &["--ticket", text(&ticket)]);
    let stream = File::create(booked.join("stream")).unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let writing = write_files(mount.clone(), is_over.clone());
    for round in 0..4 {
        let leader = place.leader();
        if round % 2 == 1 {
            place.etcd.kill(round % MEMBERS);
        }
        place.managers[leader].kill();
        let killed = Instant::now();
        // Its ticket is judged by the storage server alone.
        let part = contents(round as u64);
        stream
            .write_all_at(&part, (round * 100_000) as u64)
            .unwrap();
        until("another one leads", || place.leader() != leader);
        let taken = killed.elapsed();
        println!("round {round}: another manager answers after {taken:.1?}");
        assert!(taken < TAKEOVER_TIME_MAX, "{taken:?}");
        assert_eq!(place.reservations(), before);
        place.managers[leader].start("");
        let said = place.managers[leader].said();
        assert!(said.contains("standing by"), "{said}");
        if round % 2 == 1 {
            place.etcd.start(round % MEMBERS);
        }
        // As many as a while brings.
        std::thread::sleep(Duration::from_secs(2));
    }
    is_over.store(true, Ordering::Relaxed);
    let acknowledged = writing.join().unwrap();
    println!("{} files", acknowledged.len());
    assert!(acknowledged.len() > 20);
    stream.sync_all().unwrap();
    drop(stream);
    check_files(&mount, &acknowledged);
    let other = place.mount("other", &[]);
    check_files(&other, &acknowledged);
    let stream = fs::read(other.join("stream")).unwrap();
    for round in 0..4 {
        let (from, part) = (round * 100_000, contents(round as u64));
        assert!(stream[from..from + part.len()] == part[..], "part {round}");
    }
    let show = ["reserve", "show", &place.volume(), "run", "--json"];
    let shown: Value = serde_json::from_str(&place.azekura(&show)).unwrap();
    assert_eq!(shown["id"], reserved["id"]);
}

#[test]
fn a_manager_that_stands_by_or_was_stopped_answers_nothing_wrong() {
    let Some(mut place) = Place::new(2) else {
        return;
    };
    assert_eq!(place.leader(), 0);
    let (first, second) = (
        place.managers[0].address.clone(),
        place.managers[1].address.clone(),
    );
    for arguments in [vec!["status", &second], vec!["volume", "list", &second]] {
        let refused = place.scene.azekura(&arguments);
        assert!(!refused.status.success());
        for word in ["stands by", &first, "AZ0109"] {
            assert!(refused.stderr.contains(word), "{word}: {}", refused.stderr);
        }
    }
    let shown = place.azekura(&["status", &place.address()]);
    assert!(
        shown.contains("leads") && shown.contains("stands by"),
        "{shown}"
    );
    // The client was told of the other one.
    let mount = place.scene.mount_volume(&format!("{first}/q"), "m", &[]);
    fs::write(mount.join("a"), "before").unwrap();
    let stopped = place.managers[0].pid.unwrap();
    kill_process(stopped, Signal::STOP).unwrap();
    let only_second = format!("{second},{first}");
    until("another one leads", || {
        let status = place.scene.azekura(&["status", &only_second, "--json"]);
        status.status.success()
    });
    fs::write(mount.join("b"), "after").unwrap();
    fs::rename(mount.join("a"), mount.join("c")).unwrap();
    kill_process(stopped, Signal::CONT).unwrap();
    let begun = Instant::now();
    while !place.managers[0].said().contains("standing by") {
        let log = fs::read_to_string(place.scene.path("one.log")).unwrap();
        assert!(begun.elapsed() < TAKEOVER_TIME_MAX, "{log}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let refused = place.scene.azekura(&["status", &first]);
    assert!(refused.stderr.contains(&second), "{}", refused.stderr);
    assert_eq!(place.leader(), 1);
    for dir in [mount, place.mount("n", &[])] {
        assert_eq!(fs::read(dir.join("b")).unwrap(), b"after");
        assert_eq!(fs::read(dir.join("c")).unwrap(), b"before");
        assert!(!dir.join("a").exists());
    }
    // Its process is the same one, which has begun anew.
    assert_eq!(place.managers[0].pid, Some(stopped));
}
