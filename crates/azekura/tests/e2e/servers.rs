//! Several servers of one cluster: joining, files striped over all of them, servers that are killed
//! or away.

use crate::checks::json;
use crate::common::{Run, Scene, obstacle, text};
pub(crate) use crate::launched::{Launched as Disks, join_string, servers, until};
use serde_json::Value;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// Bytes that tell where they belong.
pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    let at = |at: usize| (at.wrapping_mul(31) ^ (at >> 12).wrapping_add(seed)) as u8;
    (0..len).map(at).collect()
}

/// A manager with a store, and two storage servers; the volume `q` lies over all three.
struct Place {
    scene: Scene,
    disks: [Disks; 2],
}

impl Place {
    fn new() -> Option<Self> {
        if let Some(why) = obstacle() {
            println!("{why}");
            return None;
        }
        let scene = Scene::with_store("128MiB");
        let mut disks = ["one", "two"].map(|name| Disks::new(&scene, name));
        for disks in &mut disks {
            disks.join(&scene, "128MiB");
        }
        let volume = format!("{}/q", scene.address());
        scene.azekura(&["volume", "create", &volume]).ok();
        Some(Self { scene, disks })
    }

    fn mount(&mut self, name: &str, options: &[&str]) -> PathBuf {
        let volume = format!("{}/q", self.scene.address());
        self.scene.mount_volume(&volume, name, options)
    }

    fn bytes_used(&self) -> Vec<u64> {
        let of = |server: &Value, name: &str| server[name].as_u64().unwrap();
        let servers = servers(&self.scene);
        let used = servers.iter();
        used.map(|server| of(server, "bytes") - of(server, "bytes_free"))
            .collect()
    }
}

#[test]
fn files_are_striped_over_the_stores_of_all_servers_and_read_back() {
    let Some(mut place) = Place::new() else {
        return;
    };
    let mount = place.mount("near", &["--timeout", "60s"]);
    let far = place.mount("far", &["--timeout", "60s"]);
    let before = place.bytes_used();
    assert_eq!(before.len(), 3);
    let whole = pattern(1, 30 * MIB + 12_345);
    fs::write(mount.join("large"), &whole).unwrap();
    assert!(fs::read(mount.join("large")).unwrap() == whole);
    assert!(fs::read(far.join("large")).unwrap() == whole);
    until("each server has a part of it", || {
        let after = place.bytes_used();
        after
            .iter()
            .zip(&before)
            .all(|(after, before)| *after >= before + 6 * MIB as u64)
    });
    // What is cut off is gone everywhere, and space comes back.
    let file = fs::OpenOptions::new()
        .write(true)
        .open(far.join("large"))
        .unwrap();
    file.set_len(5 * MIB as u64 + 7).unwrap();
    file.set_len(20 * MIB as u64).unwrap();
    let mut expected = whole[..5 * MIB + 7].to_vec();
    expected.resize(20 * MIB, 0);
    assert!(fs::read(mount.join("large")).unwrap() == expected);
    drop(file);
    fs::remove_file(mount.join("large")).unwrap();
    // Cut at all of them, and removed.
    until("what was to be done at the stores is done", || {
        let status = json(
            place
                .scene
                .azekura(&["status", place.scene.address(), "--json"]),
        );
        let workers = status["workers"].as_array().unwrap();
        let chores = workers
            .iter()
            .find(|worker| worker["name"] == "chores q")
            .unwrap();
        chores["progress"].as_u64().unwrap() >= 1 && chores["state"] == "nothing to do"
    });
}

#[test]
fn a_storage_server_that_is_killed_loses_nothing_that_was_acknowledged() {
    let Some(mut place) = Place::new() else {
        return;
    };
    let mount = place.mount("near", &["--timeout", "60s"]);
    let mut expected = Vec::new();
    for round in 0..3 {
        let path = mount.join(format!("file{round}"));
        let contents = pattern(round, 12 * MIB + round);
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&contents[..6 * MIB]).unwrap();
        // Written, and not yet durable anywhere.
        place.disks[round % 2].kill();
        place.disks[round % 2].start("");
        file.write_all(&contents[6 * MIB..]).unwrap();
        file.sync_all().unwrap();
        place.disks[(round + 1) % 2].kill();
        place.disks[(round + 1) % 2].start("");
        expected.push((path, contents));
    }
    for (path, contents) in &expected {
        assert!(fs::read(path).unwrap() == *contents, "{}", path.display());
    }
    // Nothing of it is only here.
    let far = place.mount("far", &["--timeout", "60s"]);
    for (path, contents) in &expected {
        let path = far.join(path.file_name().unwrap());
        assert!(fs::read(&path).unwrap() == *contents, "{}", path.display());
    }
}

/// The servers beside the manager are killed, and started again at once.
fn kill_and_start(place: &mut Place) {
    for disks in &mut place.disks {
        disks.kill();
        disks.start("");
    }
}

#[test]
fn who_has_written_last_writes_again_also_what_others_had_written_before() {
    let Some(mut place) = Place::new() else {
        return;
    };
    let mounts = ["near", "far"].map(|name| place.mount(name, &["--timeout", "60s"]));
    let mut contents = pattern(0, 6 * MIB);
    let mut file = fs::File::create(mounts[0].join("file")).unwrap();
    file.write_all(&contents).unwrap();
    file.sync_all().unwrap();
    drop(file);
    for round in 1..4 {
        let mount = &mounts[round % 2];
        let file = fs::OpenOptions::new().write(true).open(mount.join("file"));
        let from = round * MIB;
        contents[from..from + 3 * MIB].copy_from_slice(&pattern(round, 3 * MIB));
        let file = file.unwrap();
        file.write_all_at(&contents[from..from + 3 * MIB], from as u64)
            .unwrap();
        // Closed, and durable nowhere.
        drop(file);
        kill_and_start(&mut place);
        let file = fs::File::open(mount.join("file")).unwrap();
        file.sync_all().unwrap();
        let other = &mounts[(round + 1) % 2];
        assert!(fs::read(other.join("file")).unwrap() == contents);
    }
}

#[test]
fn machines_that_write_one_file_each_write_their_own_part_again() {
    let Some(mut place) = Place::new() else {
        return;
    };
    let mounts = ["near", "far"].map(|name| place.mount(name, &["--timeout", "60s"]));
    let contents = pattern(1, 8 * MIB);
    fs::write(mounts[0].join("file"), []).unwrap();
    let files = mounts.each_ref().map(|mount| {
        let opened = fs::OpenOptions::new().write(true).open(mount.join("file"));
        opened.unwrap()
    });
    for (index, part) in contents.chunks(MIB).enumerate() {
        let at = (index * MIB) as u64;
        files[index % 2].write_all_at(part, at).unwrap();
    }
    kill_and_start(&mut place);
    for file in &files {
        file.sync_all().unwrap();
    }
    drop(files);
    for mount in &mounts {
        assert!(fs::read(mount.join("file")).unwrap() == contents);
    }
}

#[test]
fn a_server_that_is_away_is_an_error_of_its_files_and_the_others_go_on() {
    let Some(mut place) = Place::new() else {
        return;
    };
    let mount = place.mount("near", &["--timeout", "4s"]);
    let contents = pattern(1, 12 * MIB);
    fs::write(mount.join("over-all"), &contents).unwrap();
    shell_sync(&mount);
    place.scene.umount(&mount);
    let mount = place.mount("near", &["--timeout", "4s"]);
    place.disks[0].kill();
    until("the manager knows that it is away", || {
        servers(&place.scene)
            .iter()
            .any(|server| !server["seconds_away"].is_null())
    });
    let read = fs::read(mount.join("over-all")).expect_err("a part is away");
    let errors = [rustix::io::Errno::TIMEDOUT, rustix::io::Errno::IO];
    let is_clear = |error: &std::io::Error| {
        let number = error.raw_os_error();
        errors
            .iter()
            .any(|errno| Some(errno.raw_os_error()) == number)
    };
    assert!(is_clear(&read), "{read}");
    let file = fs::File::options()
        .write(true)
        .open(mount.join("over-all"))
        .unwrap();
    let cut = file.set_len(1000).expect_err("it cannot be cut there");
    assert!(is_clear(&cut), "{cut}");
    drop(file);
    // Whatever begins now is laid out over those that are there.
    fs::write(mount.join("anew"), &contents).unwrap();
    let file = fs::File::open(mount.join("anew")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert!(fs::read(mount.join("anew")).unwrap() == contents);
    // The manager may be started anew meanwhile.
    place.scene.kill();
    place.scene.start();
    assert!(fs::read(mount.join("anew")).unwrap() == contents);
    place.disks[0].start("");
    place.disks[0].until_known(&place.scene);
    assert!(fs::read(mount.join("over-all")).unwrap() == contents);
    fs::File::options()
        .write(true)
        .open(mount.join("over-all"))
        .and_then(|file| file.set_len(1000))
        .unwrap();
    assert!(fs::read(mount.join("over-all")).unwrap() == contents[..1000]);
}

/// What a program has written is not given up because nobody has taken it in the time that a call
/// has; and what it has appended is there once.
#[test]
fn what_was_written_while_a_server_was_away_for_long_is_there_when_it_is_back() {
    let Some(mut place) = Place::new() else {
        return;
    };
    let mount = place.mount("near", &["--timeout", "2s"]);
    let far = place.mount("far", &["--timeout", "60s"]);
    let whole = pattern(1, 12 * MIB);
    let (begin, end) = whole.split_at(6 * MIB);
    for server in ["storage", "manager"] {
        let [plain, log] = ["plain", "log"].map(|name| {
            let path = mount.join(format!("{name}-{server}"));
            fs::write(&path, begin).unwrap();
            fs::File::open(&path).unwrap().sync_all().unwrap();
            path
        });
        let mut plain = fs::File::options().write(true).open(plain).unwrap();
        plain.seek(SeekFrom::End(0)).unwrap();
        let mut log = fs::File::options().append(true).open(log).unwrap();
        let (first, rest) = end.split_at(MIB);
        for file in [&mut plain, &mut log] {
            file.write_all(first).unwrap();
            file.sync_all().unwrap();
        }
        match server {
            "storage" => place.disks[0].kill(),
            _ => place.scene.kill(),
        }
        for file in [&mut plain, &mut log] {
            file.write_all(rest).unwrap();
            let error = file.sync_all().expect_err("a part of it is away");
            let errno = rustix::io::Errno::from_io_error(&error);
            assert_eq!(errno, Some(rustix::io::Errno::TIMEDOUT), "{error}");
        }
        // Several times as long as any call.
        std::thread::sleep(Duration::from_secs(12));
        match server {
            "storage" => {
                place.disks[0].start("");
                place.disks[0].until_known(&place.scene);
            }
            _ => place.scene.start(),
        }
        for file in [&plain, &log] {
            until("all of it is stored", || file.sync_all().is_ok());
        }
        for name in ["plain", "log"] {
            let found = fs::read(far.join(format!("{name}-{server}"))).unwrap();
            assert!(found == whole, "{name} of the {server}: {}", found.len());
        }
    }
}

fn shell_sync(mount: &Path) {
    fs::File::open(mount.join("over-all"))
        .unwrap()
        .sync_all()
        .unwrap();
}

#[test]
fn who_is_not_of_the_cluster_does_not_join_and_a_join_string_is_for_one_kind() {
    if let Some(why) = obstacle() {
        println!("{why}");
        return;
    }
    let (scene, other) = (Scene::with_store("64MiB"), Scene::new());
    let mut disks = Disks::new(&scene, "one");
    let manager = scene.address().to_owned();
    let attempt = |disks: &mut Disks, join: &str| {
        let more = format!("--store-size 64MiB --join {manager} {join}");
        disks.try_start(&more).expect("it does not start")
    };
    // Of another cluster; for a client; used before.
    let foreign = join_string(&other, "storage");
    let said = attempt(&mut disks, &foreign);
    assert!(said.contains("AZ0"), "{said}");
    let host = join_string(&scene, "host");
    let said = attempt(&mut disks, &host);
    assert!(said.contains("join string"), "{said}");
    let login = scene.azekura(&["login", scene.address(), &join_string(&scene, "storage")]);
    assert!(!login.status.success());
    let good = join_string(&scene, "storage");
    disks.start(&format!("--store-size 64MiB --join {manager} {good}"));
    disks.until_known(&scene);
    let mut thief = Disks::new(&scene, "two");
    let said = attempt(&mut thief, &good);
    assert!(said.contains("join string"), "{said}");
    assert_eq!(servers(&scene).len(), 2);
}

/// Writes until there is no room.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    let data = vec![0x55; 4 * MIB];
    while file
        .write_all(&data)
        .and_then(|()| file.sync_data())
        .is_ok()
    {}
}

#[test]
fn a_reservation_over_all_servers_is_used_and_paid_at_each() {
    let Some(mut place) = Place::new() else {
        return;
    };
    let volume = format!("{}/q", place.scene.address());
    let what = ["--write", "3MB/s", "--space", "180MB", "--for", "20m"];
    let create = ["reserve", "create", &volume, "--name", "run42", "--json"];
    let made = place.scene.azekura(&[&create[..], &what].concat()).ok();
    let ticket = place.scene.path("run42.json");
    fs::write(&ticket, &made).unwrap();
    fs::set_permissions(&ticket, fs::Permissions::from_mode(0o600)).unwrap();
    let made: Value = serde_json::from_str(&made).unwrap();
    let servers = made["tickets"].as_array().unwrap().len();
    assert!(servers > 1, "{made}");
    let far = place.mount("far", &["--timeout", "60s"]);
    std::thread::sleep(Duration::from_millis(1200));
    let near = place.mount("near", &["--timeout", "60s", "--ticket", text(&ticket)]);
    fill(&far.join("greedy"));
    // What the manager knows of the others is some seconds old.
    let mib = MIB as u64;
    let is_seen = |used: &[u64]| used.iter().all(|used| *used >= 30 * mib);
    until("what fills the volume is seen", || {
        is_seen(&place.bytes_used())
    });
    let before = place.bytes_used();
    let whole = pattern(5, 100 * MIB);
    let mut file = fs::File::create(near.join("raw")).unwrap();
    file.write_all(&whole).unwrap();
    file.sync_all().unwrap();
    drop(file);
    assert!(fs::read(far.join("raw")).unwrap() == whole);
    until("each server has a part of it", || {
        let parts = place.bytes_used().into_iter().zip(&before);
        let mib = MIB as u64;
        parts
            .filter(|(after, before)| *after >= **before + 20 * mib)
            .count()
            == servers
    });
    let report = ["reserve", "report", &volume, "run42", "--json"];
    until("what was written is in the report", || {
        let report = json(place.scene.azekura(&report));
        report["space_kept"] == true && report["bytes"].as_u64() >= Some(whole.len() as u64)
    });
    // A manager that starts anew lays files out for the ticket, too, in what is left of its space.
    place.scene.kill();
    place.scene.start();
    let rest = pattern(6, 40 * MIB);
    let mut file = fs::File::create(near.join("more")).unwrap();
    file.write_all(&rest).unwrap();
    file.sync_all().unwrap();
    drop(file);
    // What was written stays, and nobody has the rest any more.
    let cancel = ["reserve", "cancel", &volume, "run42"];
    place.scene.azekura(&cancel).ok();
    assert!(fs::read(far.join("raw")).unwrap() == whole);
    assert!(fs::read(far.join("more")).unwrap() == rest);
}

/// The store of a server, by its place in the status: its identity, and the bytes that whoever has
/// no reservation can use.
fn store_of(place: &Place, server: &Value) -> (String, u64) {
    let status = ["status", place.scene.address(), "--json"];
    let status = json(place.scene.azekura(&status));
    let stores = status["stores"].as_array().unwrap();
    let store = stores.iter().find(|store| store["server"] == *server);
    let store = store.unwrap();
    let units = store["allocation_units_unreserved"].as_u64().unwrap();
    let bytes = units * store["allocation_unit_bytes"].as_u64().unwrap();
    (store["id"].as_str().unwrap().to_owned(), bytes)
}

/// Reserves space on one store for the volume.
fn create(place: &Place, space: &str, store: &str, name: &str) -> Run {
    let volume = format!("{}/q", place.scene.address());
    let asked = [
        "reserve", "create", &volume, "--space", space, "--for", "10m", "--on", store, "--name",
        name,
    ];
    place.scene.azekura(&asked)
}

fn available(mount: &Path) -> (u64, u64) {
    let stat = rustix::fs::statvfs(mount).unwrap();
    (stat.f_bfree * stat.f_frsize, stat.f_bavail * stat.f_frsize)
}

#[test]
fn what_is_reserved_is_not_available_to_others_and_a_server_that_is_away_is_named() {
    let Some(mut place) = Place::new() else {
        return;
    };
    let mount = place.mount("near", &["--timeout", "60s"]);
    let volume = format!("{}/q", place.scene.address());
    let address = place.scene.address().to_owned();
    let far = servers(&place.scene)
        .into_iter()
        .find(|server| {
            server["addresses"]
                .to_string()
                .contains(&place.disks[0].address)
        })
        .unwrap()["id"]
        .clone();
    let (store, _) = store_of(&place, &far);
    let (free, before) = available(&mount);
    assert!(before <= free && before > 0, "{before} of {free}");
    create(&place, "60MB", &store, "first").ok();
    until("it is known that it is not available", || {
        available(&mount).1 + 60_000_000 <= before
    });
    let (free, _) = available(&mount);
    assert!(free > before - 30_000_000, "it is free, though: {free}");
    // Just killed: nobody knows yet.
    place.disks[0].kill();
    let begun = std::time::Instant::now();
    let refused = create(&place, "20MB", &store, "second");
    assert!(
        begun.elapsed() < Duration::from_secs(9),
        "{:?}",
        begun.elapsed()
    );
    assert!(refused.stderr.contains("code: AZ0911"), "{refused:#?}");
    assert!(refused.stderr.contains("storage server"), "{refused:#?}");
    assert!(refused.stderr.contains("azekura status"), "{refused:#?}");
    // What is cancelled is gone, and what the server holds follows.
    let cancelled = place
        .scene
        .azekura(&["reserve", "cancel", &volume, "first", "--discard"]);
    assert!(
        cancelled.stderr.contains("given back when it is there"),
        "{cancelled:#?}"
    );
    cancelled.ok();
    let list = json(
        place
            .scene
            .azekura(&["reserve", "list", &address, "--json"]),
    );
    assert_eq!(list["reservations"].as_array().unwrap().len(), 0, "{list}");
    place.disks[0].start("");
    until("it is given back", || {
        store_of(&place, &far).1 > 0 && available(&mount).1 + 1_000_000 > before
    });
}
