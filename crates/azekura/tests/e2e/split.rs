//! `reserve split`: parts of a ticket for workers, and `mount --ticket -`.

use crate::checks::{fails, json};
use crate::common::{Run, Scene, obstacle, run, text};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

/// Reserves for the parallel volume; the file with the tickets.
fn reserve(scene: &Scene, name: &str, what: &[&str]) -> PathBuf {
    let volume = scene.parallel();
    let mut arguments = vec!["reserve", "create", &volume, "--name", name, "--json"];
    arguments.extend(what);
    let path = scene.path(name).with_extension("json");
    fs::write(&path, scene.azekura(&arguments).ok()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[track_caller]
fn split(scene: &Scene, ticket: &Path, how: &[&str]) -> Run {
    run(scene
        .command()
        .current_dir(scene.path("."))
        .args(["reserve", "split", text(ticket)])
        .args(how))
}

fn document(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn ticket_of(scene: &Scene, mount: &Path) -> Value {
    let top = json(scene.azekura(&["top", text(mount), "--once", "--json"]));
    top["tickets"][0].clone()
}

/// Writes with the mount until its ticket is in force and was used.
#[track_caller]
fn is_used(scene: &Scene, mount: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let mut file = File::create(mount.join("data")).unwrap();
        file.write_all(&vec![7; MIB / 2]).unwrap();
        file.sync_all().unwrap();
        let ticket = ticket_of(scene, mount);
        if ticket["state"] == "in_force" && ticket["bytes"].as_u64().unwrap() > 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{ticket}");
        thread::sleep(Duration::from_millis(300));
    }
}

fn shares(document: &Value) -> u64 {
    let slices = document["slices"].as_array().unwrap().iter();
    slices
        .map(|slice| slice["share_ppm"].as_u64().unwrap())
        .sum()
}

#[test]
fn two_mounts_with_two_parts_have_together_what_was_reserved() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::with_store("128MiB");
    let volume = scene.parallel();
    let whole = reserve(
        &scene,
        "cam",
        &["--write", "2MB/s", "--space", "16MB", "--for", "20m"],
    );
    let said = json(split(&scene, &whole, &["--parts", "2", "--json"]));
    assert_eq!(said["parts"][0]["write_bytes_per_second"], 1_000_000);
    let parts = ["cam-1.json", "cam-2.json"].map(|name| scene.path(name));
    let (all, one, two) = (document(&whole), document(&parts[0]), document(&parts[1]));
    assert_eq!(
        shares(&one) + shares(&two),
        shares(&all),
        "exactly the whole"
    );
    for part in &parts {
        assert_eq!(
            fs::metadata(part).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
    // A ticket begins with a whole second.
    thread::sleep(Duration::from_millis(1200));
    let mounts = [("one", &parts[0]), ("two", &parts[1])]
        .map(|(name, part)| scene.mount_volume(&volume, name, &["--ticket", text(part)]));
    for mount in &mounts {
        let file = mount.join(mount.file_name().unwrap());
        fs::write(&file, vec![1; MIB]).unwrap();
        File::open(&file).unwrap().sync_all().unwrap();
    }
    mounts.iter().for_each(|mount| is_used(&scene, mount));
    // The report is about all that was done with the reservation, by whatever part.
    crate::launched::until("what is moved with parts is reported", || {
        let report = json(scene.azekura(&["reserve", "report", &volume, "cam", "--json"]));
        report["bytes"].as_u64().unwrap() > 0
    });
    // Of a part that is too much, nothing is left.
    split(&scene, &whole, &["--share", "50", "--name", "third"]).ok();
    let third = scene.path("third-1.json");
    let directory = scene.path("third");
    fs::create_dir(&directory).unwrap();
    let third = ["mount", &volume, text(&directory), "--ticket", text(&third)];
    let refused = scene.azekura(&third);
    fails(&refused, "AZ0910");
    assert!(refused.stderr.contains("other parts"), "{}", refused.stderr);
    // What servers have promised to both is what they have promised to the whole.
    let status = json(scene.azekura(&["status", scene.address(), "--json"]));
    let stores = status["stores"].as_array().unwrap();
    let promised: u64 = stores
        .iter()
        .map(|one| one["promised_ppm"].as_u64().unwrap())
        .sum();
    let floors = 100_000 * stores.len() as u64;
    assert!(
        (shares(&all)..=shares(&all) + floors).contains(&promised),
        "{promised} of {}: {status}",
        shares(&all)
    );
}

#[test]
fn a_part_is_narrower_than_its_ticket_or_refused() {
    let scene = Scene::with_store("64MiB");
    let whole = reserve(
        &scene,
        "cam",
        &["--write", "2MB/s", "--space", "8MB", "--for", "20m"],
    );
    let narrow = ["--write", "500kB/s", "--until", "+5m", "--name", "w"];
    let said = split(&scene, &whole, &[&narrow[..], &["--dry-run"]].concat()).ok();
    assert!(said.contains("nothing was written"), "{said}");
    assert!(!scene.path("w-1.json").exists());
    split(&scene, &whole, &narrow).ok();
    let (all, part) = (document(&whole), document(&scene.path("w-1.json")));
    assert_eq!(
        part["space_bytes"], 2_000_000,
        "the space goes with the share"
    );
    assert!(shares(&part) <= shares(&all) / 4 && shares(&part) > 0);
    // Nothing is overwritten, and no link is followed.
    let again = split(&scene, &whole, &narrow);
    fails(&again, "AZ0002");
    assert!(again.stderr.contains("--name"), "{}", again.stderr);
    symlink(scene.path("elsewhere"), scene.path("l-2.json")).unwrap();
    fails(
        &split(&scene, &whole, &["--parts", "3", "--name", "l"]),
        "AZ0002",
    );
    assert!(!scene.path("elsewhere").exists());
    assert!(!scene.path("l-1.json").exists(), "all of them or none");
    // Wider is refused, also for a part of a part.
    let wider = |ticket: &Path, how: &[&str], why: &str| {
        let refused = split(&scene, ticket, how);
        fails(&refused, "AZ0903");
        assert!(refused.stderr.contains(why), "{}", refused.stderr);
    };
    wider(&whole, &["--write", "3MB/s"], "more than the 2.0 MB/s");
    wider(&whole, &["--read", "1MB/s"], "no rate of reading");
    wider(&whole, &["--share", "150"], "at most 100 %");
    wider(&whole, &["--space", "9MB"], "of space would be more");
    wider(
        &whole,
        &["--until", "+2h"],
        "the window of time would be wider",
    );
    let part = scene.path("w-1.json");
    wider(&part, &["--write", "1MB/s"], "more than the 500.0 kB/s");
    wider(&part, &["--until", "+10m"], "the window of time");
    split(&scene, &part, &["--share", "50", "--name", "half"]).ok();
    let usage = split(&scene, &whole, &[]);
    assert_eq!(usage.status.code(), Some(2), "{usage:#?}");
}

#[test]
fn a_part_that_says_more_than_it_has_is_refused_by_the_server() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::with_store("64MiB");
    let volume = scene.parallel();
    let whole = reserve(&scene, "cam", &["--write", "1MB/s", "--for", "20m"]);
    split(&scene, &whole, &["--share", "40"]).ok();
    let mut part = document(&scene.path("cam-1.json"));
    // One byte of the share that is in the link, before the code and whatever else there is.
    let bytes = part["tickets"][0]["ticket"].as_str().unwrap().to_owned();
    let share = part["slices"][0]["share_ppm"].as_u64().unwrap();
    let share = u32::try_from(share).unwrap().to_le_bytes();
    let hex: String = share.iter().map(|byte| format!("{byte:02x}")).collect();
    let at = bytes.rfind(&hex).unwrap();
    let forged = format!("{}ffff0100{}", &bytes[..at], &bytes[at + 8..]);
    part["tickets"][0]["ticket"] = forged.into();
    let path = scene.path("forged.json");
    fs::write(&path, part.to_string()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let directory = scene.path("refused");
    fs::create_dir_all(&directory).unwrap();
    let tried = scene.azekura(&["mount", &volume, text(&directory), "--ticket", text(&path)]);
    fails(&tried, "AZ0910");
    assert!(tried.stderr.contains("not genuine"), "{}", tried.stderr);
}

#[test]
fn a_ticket_can_come_on_standard_input() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::with_store("64MiB");
    let volume = scene.parallel();
    let ticket = reserve(&scene, "cam", &["--write", "1MB/s", "--for", "20m"]);
    let directory = scene.path("mnt");
    fs::create_dir_all(&directory).unwrap();
    let mount = |more: &[&str]| {
        let mut command = scene.command();
        command
            .args(["mount", &volume, text(&directory), "--ticket", "-"])
            .args(more)
            .stdin(File::open(&ticket).unwrap());
        run(&mut command)
    };
    mount(&["--dry-run"]).ok();
    mount(&[]).ok();
    thread::sleep(Duration::from_millis(1200));
    is_used(&scene, &directory);
    scene.umount(&directory);
    let empty = run(scene
        .command()
        .args(["mount", &volume, text(&directory), "--ticket", "-"])
        .stdin(Stdio::null()));
    fails(&empty, "AZ0910");
    assert!(empty.stderr.contains("standard input"), "{}", empty.stderr);
}
