//! Exports that are reserved: rates alone, by the same tickets.

use crate::checks::{fails, json};
use crate::common::{Scene, obstacle, text};
use crate::greedy::Greedy;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

const MIB: usize = 1 << 20;

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    let at = |at: usize| (at.wrapping_mul(41) ^ (at >> 12).wrapping_add(seed)) as u8;
    (0..len).map(at).collect()
}

/// Reserves of the export; the file with the ticket.
fn reserve(scene: &Scene, name: &str, what: &[&str]) -> PathBuf {
    let volume = scene.volume();
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

/// A report in which at least so many bytes were moved.
#[track_caller]
fn report_of(scene: &Scene, name: &str, bytes: usize) -> Value {
    let volume = scene.volume();
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let found = json(scene.azekura(&["reserve", "report", &volume, name, "--json"]));
        if found["bytes"].as_u64().unwrap() >= bytes as u64 {
            return found;
        }
        assert!(Instant::now() < deadline, "{bytes} were moved: {found}");
        thread::sleep(Duration::from_millis(200));
    }
}

/// Waits until the server has noted what tickets got up to now.
#[track_caller]
fn await_note(scene: &Scene) {
    let wanted = SystemTime::now() + Duration::from_secs(1);
    let deadline = Instant::now() + Duration::from_secs(60);
    let noted = || fs::metadata(scene.path("srv/records")).and_then(|file| file.modified());
    while !noted().is_ok_and(|at| at > wanted) {
        assert!(Instant::now() < deadline, "it is not noted");
        thread::sleep(Duration::from_millis(100));
    }
}

/// Writes a file at a steady rate and makes it durable.
fn record(path: &Path, data: &[u8], bytes_per_second: usize) {
    let mut file = File::create(path).unwrap();
    let begin = Instant::now();
    for (index, part) in data.chunks(MIB / 4).enumerate() {
        file.write_all(part).unwrap();
        let due = Duration::from_secs_f64((index * MIB / 4) as f64 / bytes_per_second as f64);
        thread::sleep(due.saturating_sub(begin.elapsed()));
    }
    file.sync_all().unwrap();
}

/// What a mount says of its ticket.
fn ticket_of(scene: &Scene, mount: &Path) -> Value {
    let top = json(scene.azekura(&["top", text(mount), "--once", "--json"]));
    top["tickets"][0].clone()
}

#[test]
fn what_is_reserved_of_an_export_is_kept_beside_greedy_users() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let both = ["--write", "2MB/s", "--read", "2MB/s", "--for", "20m"];
    let ticket = reserve(&scene, "run42", &both);
    let far = scene.mount("far", &[]);
    // It begins with a whole second.
    thread::sleep(Duration::from_millis(1200));
    let near = scene.mount("near", &["--ticket", text(&ticket)]);
    assert_eq!(ticket_of(&scene, &near)["state"], "in_force");
    let data = pattern(1, 12 * MIB);
    let greedy = [0, 1, 2, 3].map(|number| Greedy::start(&far.join(format!("greedy{number}")), 16));
    record(&near.join("raw"), &data, 2_000_000);
    greedy.into_iter().for_each(Greedy::stop);
    let written = report_of(&scene, "run42", data.len());
    // What others have moved is not in it, and the promise was kept.
    let bytes = written["bytes"].as_u64().unwrap() as usize;
    assert!(bytes < 2 * data.len(), "{written}");
    assert!(written["seconds"].as_u64().unwrap() >= 4, "{written}");
    assert!(written["windows_met"].as_f64().unwrap() >= 0.9, "{written}");
    scene.umount(&near);
    let near = scene.mount("near", &["--ticket", text(&ticket)]);
    assert!(fs::read(near.join("raw")).unwrap() == data);
    report_of(&scene, "run42", bytes + data.len());
    // A server that starts anew does not know the ticket any more, and is shown it again.
    scene.kill();
    scene.start();
    let known = report_of(&scene, "run42", 0)["bytes"].as_u64().unwrap();
    let more = pattern(2, 3 * MIB);
    let durable = |name: &str| {
        let mut file = File::create(near.join(name)).unwrap();
        file.write_all(&more).and_then(|()| file.sync_all())
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    for number in 0.. {
        durable(&format!("more{number}")).unwrap();
        let report = ["reserve", "report", &scene.volume(), "run42", "--json"];
        let report = json(scene.azekura(&report));
        if report["bytes"].as_u64().unwrap() >= known + more.len() as u64 {
            break;
        }
        assert!(Instant::now() < deadline, "it is not used again: {report}");
    }
    // Whoever has mounted goes on when it is taken back.
    let cancel = ["reserve", "cancel", &scene.volume(), "run42"];
    scene.azekura(&cancel).ok();
    durable("last").unwrap();
    assert!(fs::read(far.join("last")).unwrap() == more);
}

#[test]
fn of_an_export_rates_are_reserved_listed_and_given_back_and_no_space() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let volume = scene.volume();
    let create = |what: &[&str]| {
        let mut arguments = vec!["reserve", "create", &volume, "--for", "10m"];
        arguments.extend(what);
        scene.azekura(&arguments)
    };
    let space = create(&["--write", "1MB/s", "--space", "1MB"]);
    fails(&space, "AZ0905");
    assert!(space.stderr.contains("no space"), "{}", space.stderr);
    let much = create(&["--write", "500GB/s", "--dry-run"]);
    assert_eq!(much.status.code(), Some(3), "{much:#?}");
    // Nothing of the measurement is left.
    let left = fs::read_dir(scene.path("export")).unwrap();
    assert_eq!(left.count(), 0);
    create(&["--read", "1MB/s", "--name", "r", "--dry-run"]).ok();
    create(&["--read", "1MB/s", "--name", "r"]).ok();
    let list = json(scene.azekura(&["reserve", "list", &volume, "--json"]));
    assert_eq!(list["reservations"][0]["name"], "r");
    let shown = json(scene.azekura(&["reserve", "show", &volume, "r", "--json"]));
    scene.kill();
    scene.start();
    let again = json(scene.azekura(&["reserve", "show", &volume, "r", "--json"]));
    assert_eq!(again, shown, "the same tickets after a restart");
    // One that somebody has changed is worth nothing.
    let bytes = shown["tickets"][0]["ticket"].as_str().unwrap();
    let last = if bytes.ends_with('0') { "1" } else { "0" };
    let mut forged = shown.clone();
    forged["tickets"][0]["ticket"] = format!("{}{last}", &bytes[..bytes.len() - 1]).into();
    let path = scene.path("forged.json");
    write_ticket(&path, &forged.to_string());
    let directory = scene.path("refused");
    fs::create_dir_all(&directory).unwrap();
    let refused = scene.azekura(&["mount", &volume, text(&directory), "--ticket", text(&path)]);
    fails(&refused, "AZ0910");
    assert!(refused.stderr.contains("not genuine"), "{refused:#?}");
    let released = ["reserve", "release", &volume, "r", "--json"];
    assert_eq!(json(scene.azekura(&released))["state"], "released");
    // A volume that is gone is forgotten, with what was measured.
    scene.azekura(&["volume", "delete", &volume]).ok();
    fails(&scene.azekura(&["reserve", "show", &volume, "r"]), "AZ0301");
}

#[test]
fn when_the_window_of_an_export_is_over_the_mount_shares_with_everybody() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    // So that it is measured, which takes a while.
    let volume = scene.volume();
    let dry = [
        "reserve",
        "create",
        &volume,
        "--write",
        "1MB/s",
        "--for",
        "1m",
        "--dry-run",
    ];
    scene.azekura(&dry).ok();
    let later = ["--write", "1MB/s", "--from", "+3s", "--for", "10s"];
    let ticket = reserve(&scene, "short", &later);
    let near = scene.mount("near", &["--ticket", text(&ticket)]);
    let data = pattern(3, MIB);
    let write = |name: &str| {
        let mut file = File::create(near.join(name)).unwrap();
        file.write_all(&data).and_then(|()| file.sync_all())
    };
    write("early").unwrap();
    let deadline = Instant::now() + Duration::from_secs(90);
    let mut states = Vec::new();
    while states.last() != Some(&"over".to_owned()) {
        let state = ticket_of(&scene, &near)["state"]
            .as_str()
            .unwrap()
            .to_owned();
        if states.last() != Some(&state) {
            states.push(state);
        }
        write("always").unwrap();
        assert!(Instant::now() < deadline, "{states:?}");
        thread::sleep(Duration::from_millis(200));
    }
    assert!(states.contains(&"in_force".to_owned()), "{states:?}");
    report_of(&scene, "short", data.len());
    write("late").unwrap();
    assert!(fs::read(near.join("late")).unwrap() == data);
}

/// Writes now and then until the ticket is in force in a window that begins later than `after`, and
/// says when that begins.
#[track_caller]
fn in_force_after(scene: &Scene, mount: &Path, after: u64) -> u64 {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let mut file = File::create(mount.join("now")).unwrap();
        file.write_all(&pattern(4, MIB / 4)).unwrap();
        file.sync_all().unwrap();
        let ticket = ticket_of(scene, mount);
        let start = ticket["start_seconds"].as_u64().unwrap();
        if ticket["state"] == "in_force" && start > after {
            return start;
        }
        assert!(Instant::now() < deadline, "{ticket}");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_mount_uses_one_window_after_the_other_and_an_old_ticket_is_as_good() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let volume = scene.volume();
    let nightly = [
        "--write", "1MB/s", "--from", "+5s", "--for", "6s", "--every", "15s", "--count", "40",
    ];
    let ticket = reserve(&scene, "nightly", &nightly);
    let near = scene.mount("near", &["--ticket", text(&ticket)]);
    let first = in_force_after(&scene, &near, 0);
    let second = in_force_after(&scene, &near, first);
    assert!((second - first).is_multiple_of(15), "{first} {second}");
    scene.umount(&near);
    // What was printed weeks ago.
    let near = scene.mount("near", &["--ticket", text(&ticket)]);
    in_force_after(&scene, &near, second);
    // Given back, it is over for good, and everybody goes on.
    scene
        .azekura(&["reserve", "release", &volume, "nightly"])
        .ok();
    let deadline = Instant::now() + Duration::from_secs(60);
    while ticket_of(&scene, &near)["state"] != "over" {
        fs::write(near.join("after"), b"shared").unwrap();
        assert!(Instant::now() < deadline, "{}", ticket_of(&scene, &near));
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_report_knows_what_was_delivered_before_a_crash_and_before_a_release() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let volume = scene.volume();
    let ticket = reserve(&scene, "kept", &["--write", "2MB/s", "--for", "20m"]);
    // It begins with a whole second.
    thread::sleep(Duration::from_millis(1200));
    let near = scene.mount("near", &["--ticket", text(&ticket)]);
    let data = pattern(6, 4 * MIB);
    record(&near.join("first"), &data, 2_000_000);
    let before = report_of(&scene, "kept", data.len());
    await_note(&scene);
    scene.kill();
    scene.start();
    let number = |report: &Value, key: &str| report[key].as_u64().unwrap();
    let after = report_of(&scene, "kept", 0);
    for key in ["bytes", "seconds", "seconds_kept"] {
        assert!(
            number(&after, key) >= number(&before, key),
            "{before} {after}"
        );
    }
    let missed = number(&after, "seconds") - number(&after, "seconds_kept");
    let seconds = after["record"].as_array().unwrap().iter();
    let away = seconds.filter(|second| second["shortfall"] == "the server was not there");
    let away = away.count() as u64;
    assert!(away > 0 && missed >= away, "{after}");
    // It is shown again, some writes later, and goes on.
    let known = usize::try_from(number(&after, "bytes")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while report_of(&scene, "kept", 0)["bytes"].as_u64() <= Some(known as u64) {
        record(&near.join("again"), &data[..MIB / 4], 2_000_000);
        assert!(Instant::now() < deadline, "it is not used again");
    }
    record(&near.join("second"), &data, 2_000_000);
    let both = 2 * data.len();
    report_of(&scene, "kept", both);
    scene.azekura(&["reserve", "release", &volume, "kept"]).ok();
    let released = report_of(&scene, "kept", both);
    assert_eq!(released["reservation"]["state"], "released");
    assert!(
        number(&released, "seconds") > number(&after, "seconds"),
        "{released}"
    );
    // So it is when the window is accounted for, and in the next run.
    thread::sleep(Duration::from_secs(8));
    scene.kill();
    scene.start();
    let last = report_of(&scene, "kept", both);
    assert_eq!(number(&last, "bytes"), number(&released, "bytes"));
    assert_eq!(number(&last, "seconds"), number(&released, "seconds"));
}
