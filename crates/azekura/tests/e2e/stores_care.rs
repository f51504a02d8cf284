//! What an administrator does with a store: repair, scrub, grow, calibrate.

use crate::checks::{fails, json};
use crate::common::text;
use crate::stores::{Loop, MIB, Scene, get, put};
use ::store::StoreError;
use serde_json::{Value, json as value};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

const SUPERBLOCKS: [u64; 2] = [0, 64 << 10];

fn damage(disk: &Path, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(disk).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// Where these bytes are.
fn find(disk: &Path, bytes: &[u8]) -> u64 {
    let all = fs::read(disk).unwrap();
    let at = all.windows(bytes.len()).position(|part| part == bytes);
    at.expect("the bytes are on the device") as u64
}

/// Codes of findings, and what became of each.
fn findings(report: &Value) -> Vec<(&str, &str)> {
    let findings = report["findings"].as_array().unwrap();
    let text = |finding: &Value| {
        let field = |name: &str| finding[name].as_str();
        (
            field("code").map(str::to_owned),
            field("repair").map(str::to_owned),
        )
    };
    findings
        .iter()
        .map(|finding| {
            let (code, repair) = text(finding);
            assert!(code.is_some() && repair.is_some(), "{finding}");
            (
                finding["code"].as_str().unwrap(),
                finding["repair"].as_str().unwrap(),
            )
        })
        .collect()
}

#[test]
fn a_superblock_is_repaired_once_and_a_dry_run_repairs_nothing() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    scene.format(&disk, &["--size", "16MiB"]).ok();
    let data = vec![0xC7; 300 << 10];
    put(&disk, 1, &data);
    for superblock in SUPERBLOCKS {
        damage(&disk, superblock + 20, &[0xEE; 30]);
        let before = fs::read(&disk).unwrap();
        let check = ["check", text(&disk), "--json"];
        let found = scene.store(&[&check[..], &["--repair", "--dry-run"]].concat());
        assert_eq!(found.status.code(), Some(1), "{found:#?}");
        assert!(found.stderr.contains("AZ0808"), "{found:#?}");
        let report: Value = serde_json::from_str(&found.stdout).unwrap();
        assert_eq!(findings(&report), [("superblock", "possible")]);
        assert!(
            fs::read(&disk).unwrap() == before,
            "a dry run changes nothing"
        );
        let repaired = json(scene.store(&[&check[..], &["--repair"]].concat()));
        assert_eq!(findings(&repaired), [("superblock", "done")]);
        let after = fs::read(&disk).unwrap();
        let again = json(scene.store(&[&check[..], &["--repair"]].concat()));
        assert_eq!(again["findings"], value!([]));
        assert!(
            fs::read(&disk).unwrap() == after,
            "nothing was left to repair"
        );
    }
    assert!(get(&disk, 1, data.len()).unwrap() == data);
    let page = scene.store(&["check", text(&disk), "--data"]).ok();
    assert!(page.ends_with("0 findings\n"), "{page}");
}

#[test]
fn what_cannot_be_repaired_is_named_and_stays_an_error() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    scene.format(&disk, &["--size", "16MiB"]).ok();
    let (first, second) = (vec![0xC7; 300 << 10], vec![0x3A; 200 << 10]);
    put(&disk, 1, &first);
    put(&disk, 2, &second);
    damage(&disk, find(&disk, &first[..4096]) + 100, &[1]);
    damage(&disk, SUPERBLOCKS[0] + 20, &[0xEE; 30]);
    for superblock in [vec![("superblock", "done")], vec![]] {
        let check = ["check", text(&disk), "--data", "--repair", "--json"];
        let left = scene.store(&check);
        assert_eq!(left.status.code(), Some(1), "{left:#?}");
        assert!(left.stderr.contains("AZ0808"), "{left:#?}");
        let report: Value = serde_json::from_str(&left.stdout).unwrap();
        let expected = [superblock, vec![("data", "impossible")]].concat();
        assert_eq!(findings(&report), expected);
        let finding = report["findings"].as_array().unwrap().last().unwrap();
        assert_eq!(finding["object"], "01".repeat(16));
        assert_eq!(finding["offset_bytes"], 0);
        assert_eq!(finding["bytes"], 65536);
    }
    let read = get(&disk, 1, first.len());
    assert!(matches!(read, Err(StoreError::Damaged(_))), "{read:?}");
    assert!(get(&disk, 2, second.len()).unwrap() == second);
}

#[test]
fn a_newer_store_and_another_one_are_refused_with_their_codes() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    let made = json(scene.format(&disk, &["--size", "16MiB", "--json"]));
    let identity = made["store"].as_str().unwrap();
    let commands = [
        &["show"][..],
        &["check"],
        &["check", "--repair"],
        &["scrub"],
        &["grow", "--size", "32MiB"],
        &["calibrate"],
    ];
    let before = fs::read(&disk).unwrap();
    let run = |command: &[&str], more: &[&str]| {
        let arguments = [&command[..1], &[text(&disk)], &command[1..], more].concat();
        scene.store(&arguments)
    };
    for command in commands {
        let other = format!("{}0", &"f".repeat(31));
        let refused = run(command, &["--store", &other]);
        fails(&refused, "AZ0801");
        assert!(refused.stderr.contains(identity), "{refused:#?}");
    }
    let malformed = run(&["show"], &["--store", "xyz"]);
    assert_eq!(malformed.status.code(), Some(2), "{malformed:#?}");
    run(&["show"], &["--store", identity]).ok();
    assert!(
        fs::read(&disk).unwrap() == before,
        "refusing changes nothing"
    );

    // The other superblock is still of a version that is known; it must not be gone back to.
    let mut page = before[..4096].to_vec();
    page[8] = 9;
    page[12..16].fill(0);
    let crc = crc32c::crc32c(&page);
    page[12..16].copy_from_slice(&crc.to_le_bytes());
    damage(&disk, 0, &page);
    let before = fs::read(&disk).unwrap();
    for command in commands {
        fails(&run(command, &[]), "AZ0805");
    }
    assert!(
        fs::read(&disk).unwrap() == before,
        "refusing changes nothing"
    );
}

#[test]
fn a_scrub_reads_everything_at_its_rate_and_names_what_is_bad() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    scene.format(&disk, &["--size", "16MiB"]).ok();
    let data: Vec<u8> = (0..3 * MIB).map(|at| (at / 4096) as u8 ^ 0x5A).collect();
    put(&disk, 1, &data);
    let good = json(scene.store(&["scrub", text(&disk), "--json"]));
    assert_eq!(good["findings"], value!([]));
    assert_eq!(good["verified_bytes"], data.len() as u64);
    let begin = Instant::now();
    scene
        .store(&["scrub", text(&disk), "--rate", "2MiB/s"])
        .ok();
    let took = begin.elapsed();
    assert!(
        took > Duration::from_millis(1400),
        "3 MiB at 2 MiB/s took {took:?}"
    );
    // A superblock is in memory, too; the bytes of an object are not.
    damage(&disk, SUPERBLOCKS[1] + 20, &[0xEE; 30]);
    damage(&disk, find(&disk, &data[4096 * 40..4096 * 41]) + 9, &[1]);
    let bad = scene.store(&["scrub", text(&disk), "--json"]);
    assert_eq!(bad.status.code(), Some(1), "{bad:#?}");
    assert!(bad.stderr.contains("AZ0808"), "{bad:#?}");
    let report: Value = serde_json::from_str(&bad.stdout).unwrap();
    let found = findings(&report);
    assert!(found.contains(&("data", "impossible")), "{report}");
    let finding = report["findings"].as_array().unwrap().last().unwrap();
    assert_eq!(finding["object"], "01".repeat(16));
    let offset = finding["offset_bytes"].as_u64().unwrap();
    let bytes = finding["bytes"].as_u64().unwrap();
    assert!(
        (offset..offset + bytes).contains(&(4096 * 40 + 9)),
        "{finding}"
    );
    let check = scene.store(&["check", text(&disk)]).ok();
    assert!(check.contains("0 findings"), "{check}");
}

/// The store was used last at the beginning of 1970, and this machine's clock is not asked.
#[test]
fn nothing_ends_because_somebody_looks_after_a_store() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    let lifetime = ["--size", "16MiB", "--default-lifetime", "100s"];
    scene.format(&disk, &lifetime).ok();
    let data = vec![0xC7; 2 << 20];
    put(&disk, 1, &data);
    for command in [
        // Long enough for the store to look for what is over.
        &["scrub", "--rate", "1200KiB/s"][..],
        &["check", "--repair", "--data"],
        &["grow", "--size", "32MiB"],
        &["calibrate", "--calibration-time", "200ms"],
        &["show"],
    ] {
        let arguments = [&command[..1], &[text(&disk)], &command[1..]].concat();
        scene.store(&arguments).ok();
        assert!(get(&disk, 1, data.len()).unwrap() == data, "{command:?}");
    }
}

#[test]
fn a_store_grows_with_its_file() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    let made = json(scene.format(&disk, &["--size", "16MiB", "--json"]));
    let data = vec![0xC7; 300 << 10];
    put(&disk, 1, &data);
    let tried = [
        "grow",
        text(&disk),
        "--size",
        "32MiB",
        "--dry-run",
        "--json",
    ];
    let tried = json(scene.store(&tried));
    assert_eq!(tried["added_units"], 16 * MIB / 65536);
    assert_eq!(fs::metadata(&disk).unwrap().len(), 16 * MIB);
    let grown = json(scene.store(&["grow", text(&disk), "--size", "32MiB", "--json"]));
    assert_eq!(grown["store"], made["store"]);
    assert_eq!(grown["device_bytes"], 32 * MIB);
    let units = |store: &Value| store["units"]["total"].as_u64().unwrap();
    assert_eq!(units(&grown), units(&made) + 16 * MIB / 65536);
    let metadata = fs::metadata(&disk).unwrap();
    assert!(metadata.blocks() * 512 >= 32 * MIB, "its space is its own");
    // Longer by other means, with a hole.
    let file = File::options().write(true).open(&disk).unwrap();
    file.set_len(40 * MIB).unwrap();
    let grown = json(scene.store(&["grow", text(&disk), "--json"]));
    assert_eq!(grown["device_bytes"], 40 * MIB);
    let metadata = fs::metadata(&disk).unwrap();
    assert!(
        metadata.blocks() * 512 >= 40 * MIB,
        "holes are space of others"
    );
    fails(
        &scene.store(&["grow", text(&disk), "--size", "20MiB"]),
        "AZ0806",
    );
    let huge = scene.store(&["grow", text(&disk), "--size", "300TiB"]);
    fails(&huge, "AZ0806");
    assert!(
        huge.stderr
            .contains("cannot grow: a store has at most 256 TiB")
    );
    scene.store(&["grow", text(&disk)]).ok();
    put(&disk, 2, &vec![0x11; 20 << 20]);
    assert!(get(&disk, 1, data.len()).unwrap() == data);
    scene.store(&["check", text(&disk), "--data"]).ok();
}

#[test]
fn calibrating_again_touches_nothing_that_the_store_has() {
    let scene = Scene::new();
    let disk = scene.path("disk");
    let made = json(scene.format(&disk, &["--size", "48MiB", "--json"]));
    assert_eq!(made["capability"], Value::Null);
    let data = vec![0xC7; 300 << 10];
    put(&disk, 1, &data);
    let tried = json(scene.store(&["calibrate", text(&disk), "--dry-run", "--json"]));
    assert!(
        tried["region_bytes"].as_u64().unwrap() >= 40 * MIB,
        "{tried}"
    );
    let brief = ["--calibration-time", "400ms", "--json"];
    let measured = json(scene.store(&[&["calibrate", text(&disk)], &brief[..]].concat()));
    assert_eq!(measured["allocation_unit_bytes"], 65536, "the unit stays");
    assert!(
        measured["capability"]["read_bytes_per_second"]
            .as_u64()
            .unwrap()
            > 0
    );
    assert!(get(&disk, 1, data.len()).unwrap() == data);
    scene.store(&["check", text(&disk), "--data"]).ok();
    let shown = json(scene.store(&["show", text(&disk), "--json"]));
    assert_eq!(shown["capability"], measured["capability"]);
    put(&disk, 2, &vec![0x11; 40 << 20]);
    fails(&scene.store(&["calibrate", text(&disk)]), "AZ0403");
}

#[test]
fn a_store_on_a_block_device_grows_with_it() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: loop devices need root");
        return;
    }
    let scene = Scene::new();
    let below = scene.path("below");
    File::create_new(&below).unwrap().set_len(16 * MIB).unwrap();
    let Some(device) = Loop::of(&below) else {
        eprintln!("skipped: no loop device can be had");
        return;
    };
    let path = Path::new(&device.0);
    scene.format(path, &[]).ok();
    fails(
        &scene.store(&["grow", text(path), "--size", "32MiB"]),
        "AZ0806",
    );
    let file = File::options().write(true).open(&below).unwrap();
    file.set_len(32 * MIB).unwrap();
    let mut measure_anew = std::process::Command::new("losetup");
    assert!(
        measure_anew
            .args(["-c", &device.0])
            .status()
            .unwrap()
            .success()
    );
    let grown = json(scene.store(&["grow", text(path), "--json"]));
    assert_eq!(grown["device_bytes"], 32 * MIB);
    scene.store(&["check", text(path), "--data"]).ok();
}
