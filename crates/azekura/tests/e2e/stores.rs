//! `store`: on files, and as root on a block device.

use crate::checks::{fails, json};
use crate::common::{Run, run, text};
use ::store::device::{DeviceOptions, FileDevice};
use ::store::{Core, Options, StoreError, Terms};
use base::{ObjectId, Time};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
/// Makes a store at once.
const QUICK: [&str; 3] = ["--unit", "64KiB", "--no-calibration"];

/// A directory for stores.
pub(crate) struct Scene(TempDir);

impl Scene {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_azekura"));
        command
            .env("AZEKURA_CONFIG_DIR", self.0.path())
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .arg("store")
            .args(arguments);
        command
    }

    #[track_caller]
    pub(crate) fn store(&self, arguments: &[&str]) -> Run {
        run(&mut self.command(arguments))
    }

    /// Makes a store without measuring.
    #[track_caller]
    pub(crate) fn format(&self, path: &Path, more: &[&str]) -> Run {
        self.store(&[&["format", text(path)], &QUICK[..], more].concat())
    }
}

#[test]
fn a_store_in_a_new_file_is_measured_and_shown() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    let made = json(scene.store(&[
        "format",
        text(&disk),
        "--size",
        "32MiB",
        "--default-lifetime",
        "2h",
        "--longest-lifetime",
        "24h",
        "--renewals",
        "3",
        "--calibration-time",
        "500ms",
        "--json",
    ]));
    assert_eq!(made["device_bytes"], 32 * MIB);
    assert_eq!(made["default_lifetime_seconds"], 7200);
    assert_eq!(made["longest_lifetime_seconds"], 86400);
    assert_eq!(made["renewals_max"], 3);
    assert_eq!(made["reservations"], 0);
    let unit = made["allocation_unit_bytes"].as_u64().unwrap();
    assert!(unit.is_power_of_two() && (65536..=MIB).contains(&unit));
    assert_eq!(made["units"]["free"], made["units"]["total"]);
    let capability = &made["capability"];
    assert_eq!(capability["rates"].as_array().unwrap().len(), 136);
    for rate in ["read_bytes_per_second", "write_bytes_per_second"] {
        assert!(capability[rate].as_u64().unwrap() > 0, "{capability}");
    }
    let metadata = fs::metadata(&disk).unwrap();
    assert_eq!(metadata.len(), 32 * MIB);
    assert!(metadata.blocks() * 512 >= 32 * MIB, "its space is its own");
    let before = fs::read(&disk).unwrap();
    let mut shown = json(scene.store(&["show", text(&disk), "--json"]));
    // Whoever only looks says so.
    shown["device"] = made["device"].clone();
    assert_eq!(shown, made);
    scene.store(&["check", text(&disk), "--data"]).ok();
    assert!(
        fs::read(&disk).unwrap() == before,
        "looking changes nothing"
    );
    let page = scene.store(&["show", text(&disk)]).ok();
    assert!(page.contains(made["store"].as_str().unwrap()), "{page}");
    assert!(
        page.contains("default 2 h 0 min, longest 1 d 0 h"),
        "{page}"
    );
    assert!(
        page.contains("\n  8.0 MiB  ") && page.contains("B/s"),
        "{page}"
    );
}

#[test]
fn a_store_of_an_older_format_says_so_until_it_is_written_to() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    scene.format(&disk, &["--size", "16MiB"]).ok();
    let file = File::options().read(true).write(true).open(&disk).unwrap();
    for superblock in [0, 64 << 10] {
        let mut page = [0; 4096];
        file.read_exact_at(&mut page, superblock).unwrap();
        page[8] = 1;
        page[12..16].fill(0);
        let crc = crc32c::crc32c(&page);
        page[12..16].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&page, superblock).unwrap();
    }
    let version = || json(scene.store(&["show", text(&disk), "--json"]))["format_version"].clone();
    assert_eq!(version(), 1);
    let page = scene.store(&["show", text(&disk)]).ok();
    assert!(
        page.contains("version 1; 2 once it is written to"),
        "{page}"
    );
    put(&disk, 1, b"new");
    assert_eq!(version(), 2);
}

#[test]
fn a_store_that_is_not_measured_promises_no_rate() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    let page = scene.format(&disk, &["--size", "16MiB"]).ok();
    assert!(page.contains("no rate can be promised"), "{page}");
    let shown = json(scene.store(&["show", text(&disk), "--json"]));
    assert_eq!(shown["capability"], serde_json::Value::Null);
    assert_eq!(shown["allocation_unit_bytes"], 65536);
    let checked = json(scene.store(&["check", text(&disk), "--data", "--json"]));
    assert_eq!(checked["objects"], 0);
    let usage = scene.store(&["format", text(&disk), "--no-calibration"]);
    assert_eq!(
        usage.status.code(),
        Some(2),
        "a unit must come from somewhere"
    );
}

#[test]
fn what_is_on_a_device_is_named_and_kept() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    let file = File::create_new(&disk).unwrap();
    file.set_len(16 * MIB).unwrap();
    file.write_all_at(b"\x53\xef", 0x438).unwrap();
    for more in [&[][..], &["--dry-run"]] {
        let refused = scene.format(&disk, more);
        fails(&refused, "AZ0803");
        assert!(refused.stderr.contains("ext4"), "{}", refused.stderr);
    }
    assert_eq!(
        fs::metadata(&disk).unwrap().blocks(),
        file_of_one_block(&scene)
    );
    scene.format(&disk, &["--overwrite"]).ok();
    let blocks = fs::metadata(&disk).unwrap().blocks();
    assert!(blocks * 512 >= 16 * MIB, "holes are space of others");
    let store = json(scene.store(&["show", text(&disk), "--json"]));
    let refused = scene.format(&disk, &[]);
    fails(&refused, "AZ0803");
    let name = format!("store {}", store["store"].as_str().unwrap());
    assert!(refused.stderr.contains(&name), "{}", refused.stderr);
    let kept = json(scene.store(&["show", text(&disk), "--json"]));
    assert_eq!(kept["store"], store["store"]);
}

/// What a file with one written block takes here.
fn file_of_one_block(scene: &Scene) -> u64 {
    let path = scene.path("one");
    let file = File::create_new(&path).unwrap();
    file.set_len(16 * MIB).unwrap();
    file.write_all_at(b"\x53\xef", 0x438).unwrap();
    fs::metadata(&path).unwrap().blocks()
}

#[test]
fn nothing_is_left_of_a_store_that_is_not_made() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    fails(&scene.format(&disk, &[]), "AZ0806");
    let small = scene.format(&disk, &["--size", "512KiB"]);
    fails(&small, "AZ0806");
    assert!(small.stderr.contains(" MiB is enough"), "{small:?}");
    let unit = ["--unit", "100KB", "--size", "16MiB"];
    fails(
        &scene.store(&[&["format", text(&disk)], &unit[..]].concat()),
        "AZ0806",
    );
    let lifetime = ["--size", "16MiB", "--longest-lifetime", "1h"];
    fails(&scene.format(&disk, &lifetime), "AZ0806");
    fails(
        &scene.format(&disk, &["--size", "8000TB", "--dry-run"]),
        "AZ0403",
    );
    scene.format(&disk, &["--size", "16MiB", "--dry-run"]).ok();
    assert!(!disk.exists());
    fails(&scene.format(scene.0.path(), &[]), "AZ0809");
    fails(&scene.store(&["show", text(&disk)]), "AZ0002");
}

/// Whether a process has a file of that length open below a directory.
fn has_file(process: u32, directory: &Path, len_bytes: u64) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{process}/fd"));
    let descriptors = descriptors.into_iter().flatten().flatten();
    descriptors.map(|descriptor| descriptor.path()).any(|path| {
        let is_below = fs::read_link(&path).is_ok_and(|target| target.starts_with(directory));
        is_below && fs::metadata(&path).is_ok_and(|metadata| metadata.len() == len_bytes)
    })
}

#[test]
fn an_interrupted_format_leaves_no_file() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    let directory = scene.0.path().canonicalize().unwrap();
    for signal in [Signal::TERM, Signal::KILL] {
        let log = File::create(scene.path("log")).unwrap();
        let mut child = scene
            .command(&["format", text(&disk), "--size", "16MiB"])
            .stderr(log)
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !has_file(child.id(), &directory, 16 * MIB) {
            assert!(Instant::now() < deadline, "no file");
            std::thread::sleep(Duration::from_millis(5));
        }
        // It is written by now, and measured, for a minute.
        std::thread::sleep(Duration::from_secs(1));
        assert!(!disk.exists(), "it has its name when it is a store");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        if signal == Signal::TERM {
            let said = fs::read_to_string(scene.path("log")).unwrap();
            assert_eq!(status.code(), Some(1), "{said}");
            assert!(said.contains("AZ0004"), "{said}");
        }
        assert!(!disk.exists());
    }
    // What may have been left is not in the way, and goes.
    scene.format(&disk, &["--size", "16MiB"]).ok();
    let left = fs::read_dir(&directory).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.len() <= 3 && disk.exists(), "{left:?}");
    let is_unfinished = |name: &std::ffi::OsString| name.to_string_lossy().contains("unfinished");
    assert!(!left.iter().any(is_unfinished), "{left:?}");
}

#[test]
fn a_path_is_judged_before_anything_is_written() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    let slash = format!("{}/", text(&disk));
    for is_there in [false, true] {
        if is_there {
            File::create_new(&disk).unwrap().set_len(16 * MIB).unwrap();
        }
        let refused = scene.format(Path::new(&slash), &["--size", "16MiB"]);
        fails(&refused, "AZ0809");
        assert!(refused.stderr.contains("slash"), "{refused:#?}");
        assert_eq!(disk.exists(), is_there);
    }
    // It would be written and measured for a minute before the system says so.
    for path in [scene.path(&"n".repeat(300)), disk.join("below")] {
        let refused = scene.format(&path, &["--size", "16MiB"]);
        fails(&refused, "AZ0002");
        assert!(
            refused.stderr.contains("is the path right?"),
            "{refused:#?}"
        );
    }
    let circle = scene.path("circle");
    std::os::unix::fs::symlink(&circle, &circle).unwrap();
    let refused = scene.store(&["show", text(&circle)]);
    fails(&refused, "AZ0002");
    assert!(
        refused.stderr.contains("is the path right?"),
        "{refused:#?}"
    );
    let huge = scene.path("huge");
    let long = scene.format(&huge, &["--size", "300TiB", "--dry-run"]);
    fails(
        &long,
        if has_room(&scene, 300 << 40) {
            "AZ0806"
        } else {
            "AZ0403"
        },
    );
    let sparse = File::create_new(&huge).unwrap();
    // Not every file system has files of that length.
    if sparse.set_len(257 << 40).is_ok() {
        let refused = scene.format(&huge, &["--dry-run"]);
        fails(&refused, "AZ0806");
        assert!(refused.stderr.contains("256 TiB"), "{refused:#?}");
    }
}

fn has_room(scene: &Scene, bytes: u64) -> bool {
    let stat = rustix::fs::statvfs(scene.0.path()).unwrap();
    stat.f_bavail.saturating_mul(stat.f_frsize) >= bytes
}

/// A link leads to another file system, which has the room.
#[test]
fn a_link_to_a_file_is_that_file() {
    let scene = Scene::new();
    let elsewhere = tempfile::tempdir_in("/dev/shm");
    let Ok(elsewhere) = elsewhere else {
        eprintln!("skipped: there is no other file system");
        return;
    };
    let (file, link) = (elsewhere.path().join("file"), scene.path("link"));
    let room = |path: &Path| {
        let stat = rustix::fs::statvfs(path).unwrap();
        stat.f_bavail.saturating_mul(stat.f_frsize)
    };
    let (here, there) = (room(scene.0.path()), room(elsewhere.path()));
    // More than there is where the file is, and less than where the link is; or the other way.
    let len = (here / 2 + there / 2) / 4096 * 4096;
    if here.abs_diff(there) < 64 * MIB {
        eprintln!("skipped: both file systems have the same room");
        return;
    }
    File::create_new(&file).unwrap().set_len(len).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let tried = scene.format(&link, &["--dry-run"]);
    match there < here {
        true => {
            fails(&tried, "AZ0403");
            let directory = text(elsewhere.path());
            assert!(tried.stderr.contains(directory), "{tried:#?}");
        }
        false => drop(tried.ok()),
    }
}

#[test]
fn what_is_no_store_or_in_use_is_refused() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    for bytes in [&b"short"[..], &[7; 1 << 20]] {
        fs::write(&disk, bytes).unwrap();
        fails(&scene.store(&["show", text(&disk)]), "AZ0801");
        fails(&scene.store(&["check", text(&disk)]), "AZ0801");
    }
    scene.format(&disk, &["--overwrite"]).ok();
    let user = FileDevice::open(&disk, DeviceOptions::default()).unwrap();
    for command in ["show", "check"] {
        fails(&scene.store(&[command, text(&disk)]), "AZ0802");
    }
    fails(&scene.format(&disk, &["--overwrite"]), "AZ0802");
    drop(user);
    scene.store(&["show", text(&disk)]).ok();
}

#[test]
fn what_was_done_and_cannot_be_printed_is_said_to_be_done() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    let arguments = [&["format", text(&disk), "--size", "16MiB"], &QUICK[..]].concat();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = scene.command(&arguments).stdout(full).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("AZ0002") && said.contains("is done"),
        "{said}"
    );
    assert!(!said.contains("os error"), "{said}");
    scene.store(&["check", text(&disk)]).ok();
}

/// Puts an object into a store.
pub(crate) fn put(disk: &Path, object: u8, data: &[u8]) {
    let device = Arc::new(FileDevice::open(disk, DeviceOptions::default()).unwrap());
    let mut core = Core::open(device, Options::default()).unwrap();
    let (object, now) = (ObjectId([object; 16]), Time::from_secs(1));
    core.create(now, object, Terms::Default).unwrap();
    core.write(now, object, 0, data).unwrap();
    core.commit().unwrap();
}

/// What an object has.
pub(crate) fn get(disk: &Path, object: u8, len: usize) -> Result<Vec<u8>, StoreError> {
    let options = DeviceOptions {
        read_only: true,
        ..DeviceOptions::default()
    };
    let device = Arc::new(FileDevice::open(disk, options).unwrap());
    let core = Core::open_read_only(device, Options::default())?;
    let mut bytes = vec![0; len];
    core.read(Time::from_secs(1), ObjectId([object; 16]), 0, &mut bytes)?;
    Ok(bytes)
}

#[test]
fn damage_is_found_and_said() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    scene.format(&disk, &["--size", "16MiB"]).ok();
    let data = vec![0xC7; 300 << 10];
    put(&disk, 1, &data);
    let good = json(scene.store(&["check", text(&disk), "--data", "--json"]));
    assert_eq!(good["objects"], 1);
    assert!(good["verified_bytes"].as_u64().unwrap() >= data.len() as u64);

    let bytes = fs::read(&disk).unwrap();
    let at = bytes.windows(4096).position(|part| *part == data[..4096]);
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&[0xC6], at.unwrap() as u64 + 100)
        .unwrap();
    scene.store(&["check", text(&disk)]).ok();
    let bad = scene.store(&["check", text(&disk), "--data"]);
    assert_eq!(bad.status.code(), Some(1), "{bad:#?}");
    assert!(bad.stderr.contains("AZ0808"), "{bad:#?}");
    let object = "data: object 01010101010101010101010101010101, bytes 0 to 65536: ";
    assert!(bad.stdout.contains(object), "{bad:#?}");
    assert!(
        bad.stdout.contains("1 finding, 1 beyond repair\n"),
        "{bad:#?}"
    );

    for superblock in [100, (64 << 10) + 100] {
        file.write_all_at(&[0xFF], superblock).unwrap();
    }
    fails(&scene.store(&["check", text(&disk)]), "AZ0804");
}

/// A loop device, which goes when the test ends in whatever way.
pub(crate) struct Loop(pub(crate) String);

impl Loop {
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let output = Command::new("losetup")
            .args(["--find", "--show", text(path)])
            .output();
        let output = output.ok().filter(|output| output.status.success())?;
        let name = String::from_utf8(output.stdout).unwrap();
        Some(Self(name.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn a_block_device_becomes_a_store() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: loop devices need root");
        return;
    }
    let scene = Scene::new();
    let below = scene.path("below");
    File::create_new(&below).unwrap().set_len(32 * MIB).unwrap();
    let Some(device) = Loop::of(&below) else {
        eprintln!("skipped: no loop device can be had");
        return;
    };
    let device = Path::new(&device.0);
    let sized = scene.format(device, &["--size", "16MiB"]);
    fails(&sized, "AZ0806");
    let unit = ["--unit", "128KiB", "--calibration-time", "300ms", "--json"];
    let made = json(scene.store(&[&["format", text(device)], &unit[..]].concat()));
    assert_eq!(made["device_bytes"], 32 * MIB);
    assert_eq!(made["allocation_unit_bytes"], 128 << 10);
    assert!(made["device"].as_str().unwrap().starts_with("block device"));
    assert_eq!(made["capability"]["rates"].as_array().unwrap().len(), 136);
    fails(&scene.format(device, &[]), "AZ0803");
    // Nobody has the device now, and somebody may at any time.
    fails(&scene.format(&below, &["--overwrite"]), "AZ0802");
    fails(&scene.store(&["check", text(&below)]), "AZ0802");
    let user = FileDevice::open(device, DeviceOptions::default()).unwrap();
    fails(&scene.format(device, &["--overwrite"]), "AZ0802");
    drop(user);
    scene.store(&["check", text(device), "--data"]).ok();
}
