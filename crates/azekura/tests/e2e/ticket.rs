//! `mount --ticket`: what a mount reads and writes is what was reserved.

use crate::checks::{fails, json};
use crate::common::{Run, Scene, obstacle, text};
use crate::greedy::Greedy;
use rustix::fs::FallocateFlags;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    let at = |at: usize| (at.wrapping_mul(37) ^ (at >> 12).wrapping_add(seed)) as u8;
    (0..len).map(at).collect()
}

/// Reserves for the parallel volume; the file with the tickets.
fn reserve(scene: &Scene, name: &str, what: &[&str]) -> PathBuf {
    let volume = scene.parallel();
    let mut arguments = vec!["reserve", "create", &volume, "--name", name, "--json"];
    arguments.extend(what);
    let path = scene.path(name).with_extension("json");
    write_ticket(&path, &scene.azekura(&arguments).ok());
    path
}

fn write_ticket(path: &Path, contents: &str) {
    fs::write(path, contents).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn report(scene: &Scene, name: &str) -> Value {
    let volume = scene.parallel();
    json(scene.azekura(&["reserve", "report", &volume, name, "--json"]))
}

/// A report in which at least so many bytes were moved: the present second is not in one yet.
#[track_caller]
fn report_of(scene: &Scene, name: &str, bytes: u64) -> Value {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let found = report(scene, name);
        if found["bytes"].as_u64().unwrap() >= bytes {
            return found;
        }
        assert!(Instant::now() < deadline, "{bytes} were moved: {found}");
        thread::sleep(Duration::from_millis(200));
    }
}

fn try_mount(scene: &Scene, volume: &str, ticket: &Path) -> Run {
    let directory = scene.path("refused");
    fs::create_dir_all(&directory).unwrap();
    scene.azekura(&["mount", volume, text(&directory), "--ticket", text(ticket)])
}

/// Writes a file at a steady rate and makes it durable.
fn record(path: &Path, data: &[u8], bytes_per_second: usize) {
    let mut file = File::create(path).unwrap();
    let begin = Instant::now();
    for (index, part) in data.chunks(MIB / 2).enumerate() {
        file.write_all(part).unwrap();
        let due = Duration::from_secs_f64((index * MIB / 2) as f64 / bytes_per_second as f64);
        thread::sleep(due.saturating_sub(begin.elapsed()));
    }
    file.sync_all().unwrap();
}

#[test]
fn what_is_written_and_read_under_a_ticket_is_what_was_reserved() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::with_store("192MiB");
    let volume = scene.parallel();
    let both = ["--write", "2MB/s", "--read", "2MB/s", "--for", "20m"];
    let ticket = reserve(&scene, "run42", &both);
    let far = scene.mount_volume(&volume, "far", &[]);
    // It begins with a whole second.
    thread::sleep(Duration::from_millis(1200));
    let near = scene.mount_volume(&volume, "near", &["--ticket", text(&ticket)]);
    let data = pattern(1, 8 * MIB);
    let greedy = ["greedy1", "greedy2"].map(|name| Greedy::start(&far.join(name), 24));
    record(&near.join("raw"), &data, 2_000_000);
    greedy.into_iter().for_each(Greedy::stop);
    let after_write = report_of(&scene, "run42", data.len() as u64);
    let written = after_write["bytes"].as_u64().unwrap();
    // What others have written is not in it.
    assert!(written < 2 * data.len() as u64, "{after_write}");
    assert!(
        after_write["seconds"].as_u64().unwrap() >= 3,
        "{after_write}"
    );
    assert_eq!(after_write["space_kept"], true);
    scene.umount(&near);
    let near = scene.mount_volume(
        &volume,
        "near",
        &["-o", &format!("ticket={}", text(&ticket))],
    );
    assert!(fs::read(near.join("raw")).unwrap() == data);
    report_of(&scene, "run42", written + data.len() as u64);
    // A server that starts anew does not know the ticket any more, and is shown it again.
    scene.kill();
    scene.start();
    let known = report(&scene, "run42")["bytes"].as_u64().unwrap();
    let more = pattern(2, 3 * MIB);
    fs::write(near.join("more"), &more).unwrap();
    File::open(near.join("more")).unwrap().sync_all().unwrap();
    report_of(&scene, "run42", known + more.len() as u64);
    // Whoever has mounted goes on when it is taken back.
    let cancel = ["reserve", "cancel", &volume, "run42"];
    scene.azekura(&cancel).ok();
    fs::write(near.join("last"), &more).unwrap();
    File::open(near.join("last")).unwrap().sync_all().unwrap();
    assert!(fs::read(far.join("last")).unwrap() == more);
    let rest = ["reserve", "report", &volume, "run42", "--json"];
    let rest = scene.azekura(&rest);
    assert!(
        rest.status.success() || rest.stderr.contains("AZ09"),
        "{rest:#?}"
    );
}

#[track_caller]
fn refused(scene: &Scene, volume: &str, ticket: &Path, why: &str) {
    let refused = try_mount(scene, volume, ticket);
    fails(&refused, "AZ0910");
    assert!(refused.stderr.contains(why), "{}", refused.stderr);
}

#[test]
fn a_ticket_that_is_not_good_is_refused_before_anything_is_mounted() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::with_store("64MiB");
    let volume = scene.parallel();
    let ticket = reserve(&scene, "good", &["--read", "1MB/s", "--for", "20m"]);
    // An export has no stores; another volume has other objects.
    refused(&scene, &scene.volume(), &ticket, "another volume");
    let other = format!("{}/other", scene.address());
    scene.azekura(&["volume", "create", &other]).ok();
    refused(&scene, &other, &ticket, "another volume");
    let good = fs::read_to_string(&ticket).unwrap();
    let mut value: Value = serde_json::from_str(&good).unwrap();
    let bytes = value["tickets"][0]["ticket"].as_str().unwrap().to_owned();
    let forged = scene.path("forged.json");
    let last = if bytes.ends_with('0') { "1" } else { "0" };
    value["tickets"][0]["ticket"] = format!("{}{last}", &bytes[..bytes.len() - 1]).into();
    write_ticket(&forged, &value.to_string());
    refused(&scene, &volume, &forged, "not genuine");
    value["tickets"][0]["ticket"] = bytes[..bytes.len() / 2].into();
    write_ticket(&forged, &value.to_string());
    refused(&scene, &volume, &forged, "damaged");
    write_ticket(&forged, "run42");
    refused(&scene, &volume, &forged, "reserve create --json");
    let revoked = reserve(&scene, "revoked", &["--read", "1MB/s", "--for", "20m"]);
    scene
        .azekura(&["reserve", "cancel", &volume, "revoked"])
        .ok();
    refused(&scene, &volume, &revoked, "revoked");
    // Nothing of it is shown to others, and who could read it is told.
    fs::set_permissions(&ticket, fs::Permissions::from_mode(0o644)).unwrap();
    let shown = scene.azekura(&[
        "mount",
        &volume,
        text(&scene.path("refused")),
        "--ticket",
        text(&ticket),
        "--dry-run",
    ]);
    assert!(shown.stderr.contains("chmod 600"), "{}", shown.stderr);
    shown.ok();
}

#[test]
fn a_ticket_is_used_when_its_time_has_come_and_refused_when_it_is_over() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::with_store("64MiB");
    let volume = scene.parallel();
    let later = reserve(
        &scene,
        "later",
        &["--read", "1MB/s", "--from", "+2h", "--for", "20m"],
    );
    let early = scene.path("early");
    fs::create_dir(&early).unwrap();
    let mounted = scene.azekura(&["mount", &volume, text(&early), "--ticket", text(&later)]);
    assert!(mounted.ok().contains("the reservation begins at"));
    fs::write(early.join("file"), b"shared with everybody").unwrap();
    assert_eq!(
        fs::read(early.join("file")).unwrap(),
        b"shared with everybody"
    );
    assert_eq!(ticket_of(&scene, &early)["state"], "waiting");
    scene.umount(&early);
    // One whose time is over.
    let over = reserve(&scene, "over", &["--read", "1MB/s", "--for", "3s"]);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        // Clocks are given two seconds.
        thread::sleep(Duration::from_secs(1));
        let tried = scene.azekura(&[
            "mount",
            &volume,
            text(&early),
            "--ticket",
            text(&over),
            "--dry-run",
        ]);
        if !tried.status.success() {
            break;
        }
        assert!(Instant::now() < deadline, "it is still good: {tried:?}");
    }
    refused(&scene, &volume, &over, "ended");
    // One of another cluster.
    let other = Scene::with_store("32MiB");
    let foreign = reserve(&other, "foreign", &["--read", "1MB/s", "--for", "20m"]);
    refused(&scene, &volume, &foreign, "another volume");
}

/// What a mount says of its ticket.
fn ticket_of(scene: &Scene, mount: &Path) -> Value {
    let top = json(scene.azekura(&["top", text(mount), "--once", "--json"]));
    top["tickets"][0].clone()
}

/// Writes until there is no room, and says how much there was.
fn fill(path: &Path) -> usize {
    let mut file = File::create(path).unwrap();
    let data = vec![0x55; MIB];
    let mut bytes = 0;
    while file
        .write_all(&data)
        .and_then(|()| file.sync_data())
        .is_ok()
    {
        bytes += MIB;
    }
    bytes
}

#[test]
fn space_that_was_reserved_is_there_in_a_full_volume_and_files_keep_it() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::with_store("96MiB");
    let volume = scene.parallel();
    let space = ["--write", "2MB/s", "--space", "24MB", "--for", "20m"];
    let ticket = reserve(&scene, "run42", &space);
    let far = scene.mount_volume(&volume, "far", &[]);
    thread::sleep(Duration::from_millis(1200));
    let near = scene.mount_volume(&volume, "near", &["--ticket", text(&ticket)]);
    assert!(fill(&far.join("greedy")) > 8 * MIB);
    let data = pattern(3, 10 * MIB);
    let write = |name: &str| {
        let mut file = File::create(near.join(name)).unwrap();
        file.write_all(&data).and_then(|()| file.sync_all())
    };
    write("first").unwrap();
    let one = ticket_of(&scene, &near);
    assert_eq!(one["state"], "in_force");
    assert!(one["bytes"].as_u64().unwrap() >= data.len() as u64, "{one}");
    // The rest of it is there after a restart, too.
    scene.kill();
    scene.start();
    // What is allocated ahead takes it, too, and is not taken twice.
    let mut second = File::create(near.join("second")).unwrap();
    let space = FallocateFlags::empty();
    rustix::fs::fallocate(&second, space, 0, data.len() as u64).unwrap();
    second.write_all(&data).unwrap();
    second.sync_all().unwrap();
    drop(second);
    let report = report(&scene, "run42");
    assert_eq!(report["space_kept"], true, "{report}");
    // More than was reserved is what everybody has: nothing.
    assert!(write("third").is_err());
    fs::remove_file(near.join("third")).unwrap();
    // Nothing of it is in the reservation's space any more, and the files are nobody's but theirs.
    scene.azekura(&["reserve", "cancel", &volume, "run42"]).ok();
    for name in ["first", "second"] {
        assert!(fs::read(far.join(name)).unwrap() == data, "{name}");
    }
    scene.umount(&near);
    scene.umount(&far);
    let far = scene.mount_volume(&volume, "far", &[]);
    for name in ["first", "second"] {
        assert!(fs::read(far.join(name)).unwrap() == data, "{name}");
    }
}

#[test]
fn a_mount_hears_of_it_when_its_reservation_is_made_longer() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::with_store("64MiB");
    let volume = scene.parallel();
    let ticket = reserve(&scene, "short", &["--write", "2MB/s", "--for", "15s"]);
    thread::sleep(Duration::from_millis(1200));
    let near = scene.mount_volume(&volume, "near", &["--ticket", text(&ticket)]);
    let end = |ticket: &Value| ticket["end_seconds"].as_u64().unwrap();
    let short = end(&ticket_of(&scene, &near));
    scene
        .azekura(&["reserve", "extend", &volume, "short", "--until", "+20m"])
        .ok();
    let data = pattern(5, MIB / 4);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut file = File::create(near.join("file")).unwrap();
        file.write_all(&data)
            .and_then(|()| file.sync_all())
            .unwrap();
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let ticket = ticket_of(&scene, &near);
        // Beyond what the clocks are allowed to differ.
        if now > short + 4 && ticket["state"] == "in_force" && end(&ticket) > short {
            break;
        }
        assert!(Instant::now() < deadline, "{ticket}");
        thread::sleep(Duration::from_millis(300));
    }
}
