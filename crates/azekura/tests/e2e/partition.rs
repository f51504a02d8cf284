//! Machines that cannot reach each other, though each of them is there: a manager, a storage server
//! and a client, each in a network namespace of its own, with a line between every two of them.

use crate::checks::json;
use crate::common::{Scene, obstacle, run, text};
use crate::servers::{Disks, pattern, servers, until};
use rustix::io::Errno;
use rustix::process::Signal;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// A namespace, which is there as long as its process.
struct Machine {
    process: Child,
    name: &'static str,
    /// On its loopback device; the lines have none of their own.
    address: String,
}

impl Machine {
    fn new(number: usize, name: &'static str) -> Self {
        let process = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec sleep 600"])
            .stdout(Stdio::piped())
            .spawn();
        let mut process = process.unwrap();
        // It says something when it is there.
        let mut said = [0];
        std::io::Read::read_exact(process.stdout.as_mut().unwrap(), &mut said).unwrap();
        let machine = Self {
            process,
            name,
            address: format!("10.77.9.{number}"),
        };
        machine.ip(&["link", "set", "lo", "up"]);
        let address = format!("{}/32", machine.address);
        machine.ip(&["addr", "add", &address, "dev", "lo"]);
        machine
    }

    fn ip(&self, arguments: &[&str]) {
        let target = format!("--target={}", self.process.id());
        let mut command = Command::new("nsenter");
        run(command.args([&target, "--net", "ip"]).args(arguments)).ok();
    }

    /// A line between the two; each end has the other machine's name.
    fn connect(&self, other: &Self) {
        let there = other.process.id().to_string();
        let peer = ["peer", "name", self.name, "netns", &there];
        let add = ["link", "add", other.name, "type", "veth"];
        self.ip(&[&add[..], &peer].concat());
        for (near, far) in [(self, other), (other, self)] {
            near.set(far, "up");
        }
    }

    /// Brings this machine's end of a line up, or down.
    fn set(&self, other: &Self, state: &str) {
        self.ip(&["link", "set", other.name, state]);
        if state == "up" {
            let route = ["route", "replace", &other.address, "dev", other.name];
            self.ip(&[&route[..], &["src", &self.address]].concat());
        }
    }

    /// Moves the calling thread there, and whatever it starts.
    fn enter(&self) {
        enter(&format!("/proc/{}/ns/net", self.process.id()));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn enter(path: &str) {
    let space = File::open(path).unwrap();
    move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// Moves the thread back to where it was.
struct Home;

impl Drop for Home {
    fn drop(&mut self) {
        enter(&format!("/proc/{}/ns/net", std::process::id()));
    }
}

fn write(path: &std::path::Path, contents: &[u8]) -> std::io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

fn away(scene: &Scene) -> usize {
    let servers = servers(scene);
    let away = servers.iter();
    away.filter(|server| !server["seconds_away"].is_null())
        .count()
}

/// Reserves writing over all stores; the file with the tickets, and how many there are.
fn reserve(scene: &Scene, volume: &str) -> (std::path::PathBuf, usize) {
    let what = ["--write", "3MB/s", "--space", "120MB", "--for", "20m"];
    let create = ["reserve", "create", volume, "--name", "run42", "--json"];
    let create = [&create[..], &what].concat();
    let trial = [&create[..], &["--dry-run"]].concat();
    // The calendars look at devices every so often.
    until("the new device is on the calendars", || {
        scene.azekura(&trial).status.success()
    });
    let made = scene.azekura(&create).ok();
    let path = scene.path("run42.json");
    fs::write(&path, &made).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let made: Value = serde_json::from_str(&made).unwrap();
    (path, made["tickets"].as_array().unwrap().len())
}

/// Files that the server holds open for anybody.
fn opens(scene: &Scene) -> u64 {
    let status = json(scene.azekura(&["status", scene.address(), "--json"]));
    let sessions = status["sessions"].as_array().unwrap();
    let opens = sessions.iter().map(|session| session["opens"].as_u64());
    opens.map(Option::unwrap).sum()
}

/// A server, its user's machine, and what they serve; this thread is at the server.
fn server_and_user() -> (Machine, Machine, Scene) {
    let there = Machine::new(4, "server");
    let user = Machine::new(5, "user");
    there.connect(&user);
    there.enter();
    let mut scene = Scene::with_store_at("64MiB", &format!("{}:7700", there.address));
    scene.end(Signal::TERM);
    scene.start_with(&["--plain"]);
    let said = scene.log();
    assert!(said.contains("without TLS can be read"), "{said}");
    (there, user, scene)
}

/// What a program waits for ends at once after a silence of that length; what it has written is
/// carried to the stores all the same.
#[test]
fn what_is_written_in_a_silence_arrives_at_the_stores_when_the_line_is_back() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let _home = Home;
    let (there, user, mut scene) = server_and_user();
    user.enter();
    let volume = format!("{}/q", scene.address());
    scene.azekura(&["volume", "create", &volume]).ok();
    let mount = scene.mount_volume(&volume, "mount", &["--timeout", "4s", "--plain"]);
    let mut file = File::create(mount.join("late")).unwrap();
    file.write_all(&pattern(6, MIB)).unwrap();
    file.sync_all().unwrap();

    there.set(&user, "down");
    for directory in ["one", "two"] {
        let error = fs::create_dir(mount.join(directory)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    }
    file.write_all(&pattern(7, MIB)).unwrap();
    // More than a call is waited for that a program makes now.
    std::thread::sleep(Duration::from_secs(1));
    there.set(&user, "up");
    user.set(&there, "up");
    until("all is stored", || file.sync_all().is_ok());
    drop(file);
    scene.umount(&mount);
    let mount = scene.mount_volume(&volume, "mount", &["--plain"]);
    let found = fs::read(mount.join("late")).unwrap();
    assert!(found == [pattern(6, MIB), pattern(7, MIB)].concat());
    scene.umount(&mount);
}

/// A line that is silent both ways, and says nothing of it.
#[test]
fn a_mount_outlives_a_line_that_is_lost_and_its_programs_are_told_in_time() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    const TIMEOUT: Duration = Duration::from_secs(4);
    let _home = Home;
    let (there, user, mut scene) = server_and_user();
    for name in ["known", "new", "later"] {
        fs::write(scene.path("export").join(name), pattern(3, 2 * MIB)).unwrap();
    }
    user.enter();
    let mount = scene.mount("mount", &["--timeout", "4s", "--plain"]);
    assert!(fs::read(mount.join("known")).unwrap() == pattern(3, 2 * MIB));
    let mut written = File::create(mount.join("written")).unwrap();
    written.write_all(&pattern(4, MIB)).unwrap();
    written.sync_all().unwrap();
    let closed = File::options().write(true).open(mount.join("known"));
    let mut closed = closed.unwrap();
    closed.write_all(b"known").unwrap();
    closed.sync_all().unwrap();

    there.set(&user, "down");
    written.write_all(&pattern(5, MIB)).unwrap();
    let timed = |what: &str, call: &mut dyn FnMut() -> std::io::Result<()>| {
        let begun = Instant::now();
        let error = call().expect_err(what);
        let time = begun.elapsed();
        assert_eq!(
            Errno::from_io_error(&error),
            Some(Errno::TIMEDOUT),
            "{what}"
        );
        assert!(time < TIMEOUT + Duration::from_secs(6), "{what}: {time:?}");
    };
    timed("read", &mut || fs::read(mount.join("new")).map(drop));
    timed("fsync", &mut || written.sync_all());
    timed("mkdir", &mut || fs::create_dir(mount.join("made")));
    timed("list", &mut || {
        fs::read_dir(&mount).and_then(|mut all| all.try_for_each(|it| it.map(drop)))
    });

    // The server hears of it when it can.
    drop(closed);
    std::thread::sleep(Duration::from_secs(1));

    there.set(&user, "up");
    user.set(&there, "up");
    until("the line is back", || fs::read(mount.join("new")).is_ok());
    assert!(fs::read(mount.join("later")).unwrap() == pattern(3, 2 * MIB));
    written.sync_all().unwrap();
    drop(written);
    let found = fs::read(scene.path("export/written")).unwrap();
    assert!(found == [pattern(4, MIB), pattern(5, MIB)].concat());
    until("nothing is open", || opens(&scene) == 0);
    scene.umount(&mount);
}

#[test]
fn a_manager_that_cannot_reach_a_storage_server_stops_nobody_who_can() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let _home = Home;
    let manager = Machine::new(1, "manager");
    let disk = Machine::new(2, "disk");
    let user = Machine::new(3, "user");
    manager.connect(&disk);
    manager.connect(&user);
    disk.connect(&user);
    manager.enter();
    let mut scene = Scene::with_store_at("96MiB", &format!("{}:7700", manager.address));
    disk.enter();
    let mut disks = Disks::at(&scene, "one", &format!("{}:7700", disk.address));
    disks.join(&scene, "96MiB");
    user.enter();
    let volume = format!("{}/q", scene.address());
    scene.azekura(&["volume", "create", &volume]).ok();
    let (ticket, tickets) = reserve(&scene, &volume);
    assert_eq!(tickets, 2, "both servers are needed");
    std::thread::sleep(Duration::from_millis(1200));
    let options = ["--timeout", "60s", "--ticket", text(&ticket)];
    let mount = scene.mount_volume(&volume, "mount", &options);
    let data = pattern(1, 12 * MIB);
    let mut open = File::create(mount.join("before")).unwrap();
    open.write_all(&data[..4 * MIB]).unwrap();
    open.sync_all().unwrap();

    manager.set(&disk, "down");
    until("the manager misses the server", || away(&scene) == 1);
    // Tickets are judged where the stores are: whoever reaches both goes on.
    open.write_all(&data[4 * MIB..]).unwrap();
    open.sync_all().unwrap();
    assert!(fs::read(mount.join("before")).unwrap() == data);
    // What begins now lies where the manager can see it.
    write(&mount.join("meanwhile"), &data).unwrap();
    assert!(fs::read(mount.join("meanwhile")).unwrap() == data);
    // What the manager would have to do there is not called done.
    let cut = open.set_len(1000).unwrap_err();
    let errno = Errno::from_io_error(&cut);
    assert!(matches!(errno, Some(Errno::TIMEDOUT | Errno::IO)), "{cut}");
    assert!(fs::read(mount.join("before")).unwrap() == data);
    fs::remove_file(mount.join("before")).unwrap();
    // Nothing new is promised of a device that nobody can ask.
    let more = [
        "--write", "1MB/s", "--space", "8MB", "--for", "5m", "--json",
    ];
    let create = ["reserve", "create", &volume, "--name", "more"];
    let made = scene.azekura(&[&create[..], &more].concat()).ok();
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made["tickets"].as_array().unwrap().len(), 1, "{made}");

    manager.set(&disk, "up");
    disk.set(&manager, "up");
    disks.until_known(&scene);
    assert!(fs::read(mount.join("meanwhile")).unwrap() == data);
    write(&mount.join("after"), &data).unwrap();
    assert!(fs::read(mount.join("after")).unwrap() == data);
    drop(open);
    // What could not be removed there is, now.
    until("the space of what was removed is free again", || {
        let status = servers(&scene);
        let used = status.iter().map(|server| {
            let of = |name: &str| server[name].as_u64().unwrap();
            of("bytes") - of("bytes_free")
        });
        used.sum::<u64>() < 60 * MIB as u64
    });
}
