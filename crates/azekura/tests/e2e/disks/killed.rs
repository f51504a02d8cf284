//! A disk that is written to is killed at any moment, again and again: its file system is sound
//! each time, and has what was synced; and so is, and has, the version that it is committed as.
//!
//! The kernel's ext4 writes through a loop device and FUSE into the overlay. `AZEKURA_KILL_ROUNDS`
//! says how many rounds, `AZEKURA_KILL_SEED` from which seed.

use super::attached::{Mounted, published_file_system};
use super::written::kill;
use super::{Scene, assert_same, tool};
use crate::checks::json;
use crate::common::{obstacle, run, text};
use crate::random::{Random, seed, setting};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const ROUNDS: u64 = 3;
/// A server lives this long, at most, while there are writes.
const LIFE_MILLIS_MAX: u64 = 250;
const FILE_BYTES_MAX: u64 = 60_000;

/// Contents by name.
type Files = BTreeMap<String, Vec<u8>>;

/// Writes files and makes them durable, until that fails; those that are.
fn write_until_it_fails(directory: &Path, round: u64, seed: u64) -> Files {
    let mut random = Random(seed);
    let mut synced = Files::new();
    let parent = File::open(directory);
    for number in 0.. {
        let name = format!("round-{round}-{number}");
        let len = random.below(FILE_BYTES_MAX) + 1;
        let bytes: Vec<u8> = (0..len).map(|_| random.below(256) as u8).collect();
        let write = || -> std::io::Result<()> {
            let mut file = File::create_new(directory.join(&name))?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            let parent = parent.as_ref();
            parent.map_or(Ok(()), File::sync_all)
        };
        if write().is_err() {
            break;
        }
        synced.insert(name, bytes);
        // Room for those to come.
        if number > 100 {
            let old = directory.join(format!("round-{round}-{}", number - 100));
            let _ = fs::remove_file(old);
            synced.remove(&format!("round-{round}-{}", number - 100));
        }
    }
    synced
}

/// What the kernel keeps of a disk whose process has died; it goes with this.
struct Remains {
    device: String,
    file: PathBuf,
}

impl Drop for Remains {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.device]).output();
        let _ = Command::new("umount").arg("-l").arg(&self.file).output();
    }
}

/// Has the disk written to and killed; what was durable by then.
fn killed(scene: &Scene, round: u64, random: &mut Random) -> Files {
    let attach = "attach www/images base:1 mnt --cache cache --loop --writable --json";
    let ready: Value = json(scene.line(attach));
    let device = ready["device"].as_str().unwrap().to_owned();
    let _remains = Remains {
        device: device.clone(),
        file: scene.path("mnt"),
    };
    let mounted = Mounted::new(&device, scene.path("fs"), "rw");
    // Of earlier rounds.
    for entry in fs::read_dir(&mounted.0).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("round-") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let seed = random.below(u64::MAX);
    let life = Duration::from_millis(random.below(LIFE_MILLIS_MAX));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until_it_fails(&mounted.0, round, seed));
        std::thread::sleep(life);
        kill(&ready);
        writer.join().unwrap()
    })
}

/// Looks at what the overlay has, as another machine would find it when it is committed.
fn look(scene: &Scene, synced: &Files, round: u64) {
    let commit = "commit www/images base:1 --to www/images --cache cache --name base:killed";
    scene.line(commit).ok();
    let export = "--at www/images --cache cache --overwrite";
    scene
        .line(format!("export base:1 written.img {export} --written"))
        .ok();
    scene
        .line(format!("export base:killed out.img {export}"))
        .ok();
    let out = scene.path("out.img");
    assert_same(&scene.path("written.img"), &out);
    let repaired = run(Command::new("e2fsck").args(["-fp", text(&out)]));
    // The journal was replayed, or there was nothing to do.
    let is_sound = matches!(repaired.status.code(), Some(0 | 1));
    assert!(is_sound, "round {round}: {repaired:?}");
    tool("e2fsck", &["-fn", text(&out)]);
    let found = scene.path("found");
    let _ = fs::remove_dir_all(&found);
    fs::create_dir(&found).unwrap();
    let dump = |name: &String| format!("dump /{name} {}\n", text(&found.join(name)));
    let commands: String = synced.keys().map(dump).collect();
    let script = scene.path("commands");
    fs::write(&script, commands).unwrap();
    tool("debugfs", &["-f", text(&script), text(&out)]);
    for (name, bytes) in synced {
        let read = fs::read(found.join(name)).unwrap_or_default();
        assert!(read == *bytes, "round {round}: {name} was synced");
    }
}

#[test]
fn whenever_a_disk_is_killed_its_file_system_is_sound_and_has_what_was_synced() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let scene = Scene::new();
    let Some(()) = published_file_system(&scene) else {
        return;
    };
    let rounds = setting("AZEKURA_KILL_ROUNDS").unwrap_or(ROUNDS);
    let seed = seed("AZEKURA_KILL_SEED");
    println!("AZEKURA_KILL_SEED={seed}");
    let mut random = Random(seed);
    let mut count = 0;
    for round in 0..rounds {
        let synced = killed(&scene, round, &mut random);
        count += synced.len();
        look(&scene, &synced, round);
        if round % 50 == 49 {
            // What was committed before is not kept.
            scene.line("gc --at www/images --keep 1").ok();
            println!(
                "{} rounds, {count} files were durable and are there",
                round + 1
            );
        }
    }
    println!("{rounds} kills, {count} files were durable and are there");
}
