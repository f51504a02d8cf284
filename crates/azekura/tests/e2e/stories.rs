//! What the program is for, as it is told.

use crate::checks::json;
use crate::common::{Scene, obstacle, run, text};
use crate::greedy::Greedy;
use crate::speed::Ground;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn count(number: &Value) -> u64 {
    number.as_u64().unwrap()
}

/// Seconds that a camera records.
const RECORD_S: u64 = 12;

/// A camera of so many MiB/s, durable at the end. What fio says of it.
fn record(path: &Path, rate_mib_s: u64) -> Value {
    let file = format!("--filename={}", text(path));
    let size = format!("--size={}M", rate_mib_s * RECORD_S);
    let mut fio = Command::new("fio");
    fio.args(["--name=cam", &file, "--rw=write", "--bs=1M", &size])
        .arg(format!("--rate={rate_mib_s}M"))
        .args(["--end_fsync=1", "--output-format=json"]);
    let said = run(&mut fio).ok();
    serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap()
}

/// A reservation for the fastest camera that the store has time for, and its MiB/s: beside
/// other tests the store was measured as slow as its disk was for it.
fn reserved(scene: &Scene, volume: &str) -> (u64, String) {
    for rate in [20, 10, 5, 2] {
        let write = format!("{rate}MiB/s");
        let create = ["reserve", "create", volume, "--write", &write];
        let window = ["--space", "300MB", "--from", "now", "--for", "2m"];
        let named = ["--name", "run42", "--json"];
        let made = scene.azekura(&[&create[..], &window, &named].concat());
        if made.status.success() {
            return (rate, made.ok());
        }
        assert_eq!(made.status.code(), Some(3), "{}", made.stderr);
    }
    panic!("the store has no time for writing 2 MiB/s");
}

#[test]
fn a_remote_site_reads_and_the_owner_proves_the_store_safe() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let sample = vec![7; 48 << 20];
    fs::write(scene.path("export").join("sample.bam"), &sample).unwrap();
    let far = scene.mount("g", &["--read-only", "--timeout", "10s"]);
    let from = format!("if={}", text(&far.join("sample.bam")));
    let dd = run(Command::new("dd").args([&from, "of=/dev/null", "bs=128k"]));
    assert!(
        dd.stderr.contains(&format!("{} bytes", sample.len())),
        "{}",
        dd.stderr
    );
    let top = json(scene.azekura(&["top", text(&far), "--once", "--json"]));
    for key in [
        "window_bytes",
        "in_flight_bytes",
        "hit_rate",
        "wasted_bytes",
    ] {
        assert!(top[key].is_number(), "{key}: {top}");
    }
    fs::write(far.join("mine"), "x").expect_err("it is mounted read-only");
    scene.umount(&far);

    what_it_is_on_is_judged();
    assert!(!scene.azekura(&["doctor"]).stdout.is_empty());
}

/// The store after crashes, and beside others.
fn what_it_is_on_is_judged() {
    let ground = Ground::new();
    let out = tempfile::tempdir().unwrap();
    let page = out.path().join("crash.html");
    let crash = [
        "--target", "store", "--points", "60", "--seed", "7", "--json",
    ];
    let crash = [&crash[..], &["--report", text(&page)]].concat();
    let crash = json(run(&mut ground.verify("crash", &crash)));
    assert!(
        count(&crash["states"]) >= 60 && crash["lost_acks"] == 0,
        "{crash}"
    );
    assert!(
        fs::read_to_string(&page)
            .unwrap()
            .contains("Nothing that was promised was lost")
    );

    let page = out.path().join("speed.html");
    let speed = [
        "--against",
        "ext4,xfs,sshfs",
        "--report",
        text(&page),
        "--json",
    ];
    let little = [
        "--size",
        "1MiB",
        "--files",
        "20",
        "--measure",
        "files",
        "--repeat",
        "1",
    ];
    let speed = json(ground.speed(&[&speed[..], &little].concat()));
    let cells = speed["cells"].as_array().unwrap();
    let names: Vec<&Value> = cells.iter().map(|cell| &cell["target"]).collect();
    assert_eq!(names[..3], ["store", "ext4", "xfs"], "{speed}");
    // Nothing is mounted by sshfs here, or it was measured as well.
    let is_left_out = speed["left_out"][0]["what"] == "sshfs";
    assert_eq!(is_left_out, names.len() == 3, "{speed}");
    assert!(fs::read_to_string(&page).unwrap().contains("<svg"));
    assert_eq!(ground.left(), [""; 0]);
}

#[test]
fn an_instrument_does_not_lose_a_frame() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    if Command::new("fio").arg("--version").output().is_err() {
        return println!("skipped: fio is not there");
    }
    let mut scene = Scene::with_store("1GiB");
    let volume = format!("{}/lab", scene.address());
    scene.azekura(&["volume", "create", &volume]).ok();
    let (rate, made) = reserved(&scene, &volume);
    let ticket = scene.path("run42.json");
    fs::write(&ticket, made).unwrap();
    fs::set_permissions(&ticket, fs::Permissions::from_mode(0o600)).unwrap();
    let far = scene.mount_volume(&volume, "far", &[]);
    let lab = scene.mount_volume(&volume, "lab", &["--ticket", text(&ticket)]);
    let greedy = [0, 1, 2, 3].map(|number| Greedy::start(&far.join(format!("greedy{number}")), 48));
    let said = record(&lab.join("run42.raw"), rate);
    greedy.into_iter().for_each(Greedy::stop);
    let job = &said["jobs"][0];
    assert_eq!(job["error"], 0, "{said}");
    let bytes = (rate * RECORD_S) << 20;
    assert_eq!(job["write"]["io_bytes"], bytes, "{said}");
    let report = ["reserve", "report", &volume, "run42", "--json"];
    let report = json(scene.azekura(&report));
    assert_eq!(report["space_kept"], true, "{report}");
    assert!(report["seconds"].as_u64() >= Some(10), "{report}");
    assert!(
        report["bytes"].as_u64() >= Some(bytes - bytes / 6),
        "{report}"
    );
    // All seconds are kept, or the device beneath, which other tests use as well, is what was slow.
    let record = report["record"].as_array().unwrap();
    let slow = record.iter().filter(|second| {
        let why = second["shortfall"].as_str().unwrap_or_default();
        why.contains("device")
    });
    let (all, kept) = (count(&report["seconds"]), count(&report["seconds_kept"]));
    assert_eq!(all - kept, slow.count() as u64, "{report}");
    let large = ["reserve", "create", &volume, "--write", "500GB/s"];
    let large = scene.azekura(&[&large[..], &["--for", "1m", "--dry-run"]].concat());
    assert_eq!(large.status.code(), Some(3), "{}", large.stderr);
    assert!(large.stderr.contains("AZ0901"), "{}", large.stderr);
    scene.umount(&lab);
}
