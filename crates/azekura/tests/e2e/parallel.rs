//! Parallel volumes: real file operations on mounts, over a server that is killed.

use crate::checks::{fails, json};
use crate::common::{Run, Scene, obstacle, run};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
/// For two small files, also on a machine that is busy and whose server has just been killed.
const WRITING_TIME_MAX: Duration = Duration::from_secs(120);

struct Place {
    scene: Scene,
    near: PathBuf,
    far: PathBuf,
}

impl Place {
    fn new() -> Option<Self> {
        if let Some(why) = obstacle() {
            println!("{why}");
            return None;
        }
        let mut scene = Scene::with_store("192MiB");
        let volume = scene.parallel();
        let near = scene.mount_volume(&volume, "near", &["--timeout", "60s"]);
        let far = scene.mount_volume(&volume, "far", &["--timeout", "60s"]);
        Some(Self { scene, near, far })
    }

    fn kill_and_start(&mut self) {
        self.scene.kill();
        self.scene.start();
    }
}

/// Bytes that tell where they belong.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    let at = |at: usize| (at.wrapping_mul(31) ^ (at >> 12).wrapping_add(seed)) as u8;
    (0..len).map(at).collect()
}

#[track_caller]
fn shell(directory: &Path, script: &str) -> String {
    let shell = Command::new("sh");
    let mut shell = shell;
    shell.args(["-euc", script]).current_dir(directory);
    run(&mut shell).ok()
}

#[test]
fn files_are_what_they_are_on_any_file_system() {
    let Some(place) = Place::new() else { return };
    let (near, far) = (&place.near, &place.far);
    fs::create_dir(near.join("d")).unwrap();
    let whole = pattern(1, 9 * MIB + 12_345);
    fs::write(near.join("d/large"), &whole).unwrap();
    fs::write(near.join("d/small"), b"small").unwrap();
    // Another machine sees what was closed.
    assert!(fs::read(far.join("d/large")).unwrap() == whole);
    assert_eq!(fs::read(far.join("d/small")).unwrap(), b"small");
    fs::rename(far.join("d/small"), far.join("renamed")).unwrap();
    fs::hard_link(far.join("renamed"), far.join("linked")).unwrap();
    symlink("d/large", far.join("symlink")).unwrap();
    assert_eq!(fs::metadata(near.join("linked")).unwrap().nlink(), 2);
    assert_eq!(
        fs::metadata(near.join("symlink")).unwrap().len(),
        whole.len() as u64
    );
    fs::set_permissions(near.join("linked"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(
        fs::metadata(far.join("renamed")).unwrap().mode() & 0o777,
        0o600
    );
    // What is written in the middle is there, and nothing else changed.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(near.join("d/large"))
        .unwrap();
    file.write_all_at(&[0xee; 5000], 3_333_333).unwrap();
    file.sync_all().unwrap();
    let mut expected = whole;
    expected[3_333_333..3_338_333].fill(0xee);
    assert!(fs::read(far.join("d/large")).unwrap() == expected);
    drop(file);
    copy_within(&near.join("d/large"), expected);
    let listed = shell(near, "ls; tar c . | tar t | sort; find . -type f | wc -l");
    assert!(listed.ends_with("3\n"), "{listed}");
    shell(far, "rm -r d renamed linked symlink; test -z \"$(ls -A)\"");
    assert_eq!(fs::read_dir(near).unwrap().count(), 0);
}

/// The kernel copies through the page cache, and reads ahead into what it is just writing.
fn copy_within(path: &Path, mut expected: Vec<u8>) {
    let len = expected.len();
    let (from, to, bytes) = (len - 280_897, len - 110_922, 110_344);
    let source = File::open(path).unwrap();
    let mut target = OpenOptions::new().write(true).open(path).unwrap();
    target.write_all_at(&[0x0d; 19_375], to as u64 + 5).unwrap();
    expected[to + 5..to + 5 + 19_375].fill(0x0d);
    (&source).seek(SeekFrom::Start(from as u64)).unwrap();
    target.seek(SeekFrom::Start(to as u64)).unwrap();
    std::io::copy(&mut source.take(bytes as u64), &mut target).unwrap();
    expected.copy_within(from..from + bytes, to);
    assert!(fs::read(path).unwrap() == expected);
    drop(target);
    assert!(fs::read(path).unwrap() == expected);
}

#[test]
fn what_was_cut_off_does_not_come_back_and_holes_are_zeros() {
    let Some(place) = Place::new() else { return };
    let (near, far) = (place.near.join("file"), place.far.join("file"));
    let whole = pattern(2, 3 * MIB);
    fs::write(&near, &whole).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&far)
        .unwrap();
    file.set_len(100_001).unwrap();
    file.set_len(2 * MIB as u64).unwrap();
    let mut expected = whole[..100_001].to_vec();
    expected.resize(2 * MIB, 0);
    assert!(fs::read(&near).unwrap() == expected);
    // Beyond the end: a hole.
    file.write_all_at(b"end", 5 * MIB as u64).unwrap();
    expected.resize(5 * MIB, 0);
    expected.extend_from_slice(b"end");
    drop(file);
    assert!(fs::read(&near).unwrap() == expected);
    shell(
        &place.near,
        "fallocate --punch-hole --offset 10000 --length 60000 file",
    );
    expected[10_000..70_000].fill(0);
    assert!(fs::read(&far).unwrap() == expected);
    fs::write(&near, b"anew").unwrap();
    assert_eq!(fs::read(&far).unwrap(), b"anew");
    // A file without a name is read on.
    let mut open = File::open(&far).unwrap();
    fs::remove_file(&near).unwrap();
    let mut last = String::new();
    open.read_to_string(&mut last).unwrap();
    assert_eq!(last, "anew");
}

#[test]
fn what_two_machines_append_is_all_there() {
    let Some(place) = Place::new() else { return };
    let append = |path: PathBuf, what: char| {
        std::thread::spawn(move || {
            let mut log = OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .unwrap();
            for number in 0..200 {
                // One write(2) each.
                let line = format!("{what}{number:04}\n");
                log.write_all(line.as_bytes()).unwrap();
            }
            log.sync_all().unwrap();
        })
    };
    let one = append(place.near.join("log"), 'a');
    let two = append(place.far.join("log"), 'b');
    one.join().unwrap();
    two.join().unwrap();
    let all = fs::read_to_string(place.far.join("log")).unwrap();
    let mut lines: Vec<&str> = all.lines().collect();
    for what in ['a', 'b'] {
        let own: Vec<_> = lines.iter().filter(|line| line.starts_with(what)).collect();
        assert!(own.is_sorted(), "each machine's are in order");
    }
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 400);
}

#[test]
fn nothing_is_lost_when_the_server_is_killed() {
    let Some(mut place) = Place::new() else {
        return;
    };
    let (mut open, mut expected) = (Vec::new(), Vec::new());
    for number in 0..6 {
        let path = place.near.join(format!("file{number}"));
        let data = pattern(number, MIB * (number + 1) / 2 + 17);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .unwrap();
        file.write_all(&data).unwrap();
        if number % 2 == 0 {
            // Durable, and then written over: the store has to get that again.
            file.sync_all().unwrap();
            file.write_all_at(&[0xab; 70_000], 1_000).unwrap();
        }
        open.push(file);
        let mut data = data;
        if number % 2 == 0 {
            data[1_000..71_000].fill(0xab);
        }
        expected.push(data);
    }
    place.kill_and_start();
    for (number, (file, data)) in open.iter_mut().zip(&mut expected).enumerate() {
        // Opens go on, and so do writes through them.
        file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"after").unwrap();
        file.sync_all().unwrap();
        data.extend_from_slice(b"after");
        let far = place.far.join(format!("file{number}"));
        assert!(fs::read(far).unwrap() == *data, "file {number}");
    }
    drop(open);
    place.kill_and_start();
    for (number, data) in expected.iter().enumerate() {
        for mount in [&place.near, &place.far] {
            let path = mount.join(format!("file{number}"));
            assert!(fs::read(path).unwrap() == *data, "file {number}");
        }
    }
}

#[test]
fn a_file_that_is_written_anew_each_time_is_there_each_time_though_the_server_is_killed() {
    let Some(mut place) = Place::new() else {
        return;
    };
    let path = place.near.join("same");
    let (count, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let kills = thread::scope(|scope| {
        let (path, count, is_over) = (&path, &count, &is_over);
        let written = move || count.load(Ordering::Relaxed);
        let writer = scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                // Empties it first.
                let mut file = File::create(path).unwrap();
                file.write_all(&pattern(written(), 200_000)).unwrap();
                file.sync_all().unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Each time another moment of a file, and not before some are there since the last time:
        // how many come in a second is a matter of the machine.
        let mut kills = 0;
        for pause_ms in [700, 0, 40, 1300, 150] {
            let (begun, wanted) = (Instant::now(), written() + 2);
            while written() < wanted && !writer.is_finished() && begun.elapsed() < WRITING_TIME_MAX
            {
                thread::sleep(Duration::from_millis(1));
            }
            if written() < wanted {
                break;
            }
            thread::sleep(Duration::from_millis(pause_ms));
            place.kill_and_start();
            kills += 1;
        }
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        kills
    });
    let written = count.into_inner();
    assert_eq!(kills, 5, "{written} were written, and then none");
    assert!(fs::read(place.far.join("same")).unwrap() == pattern(written - 1, 200_000));
}

#[test]
fn volumes_are_shown_reserved_filled_and_deleted() {
    let Some(mut place) = Place::new() else {
        return;
    };
    let volume = place.scene.parallel();
    let shown = json(place.scene.azekura(&["volume", "show", &volume, "--json"]));
    assert_eq!(shown["kind"], "parallel");
    assert!(shown["stripe_unit_bytes"].as_u64().unwrap() >= 4096);
    assert_eq!(shown["trouble"], serde_json::Value::Null);
    let reserved = json(place.scene.azekura(&[
        "reserve", "create", &volume, "--write", "1MB/s", "--for", "20m", "--name", "r", "--json",
    ]));
    assert!(reserved.is_object());
    // Full is said, and does no harm to what is there.
    fs::write(place.near.join("kept"), b"kept").unwrap();
    let too_much = File::create(place.near.join("large"))
        .and_then(|file| {
            let piece = vec![1; MIB];
            for number in 0..400 {
                file.write_all_at(&piece, number * MIB as u64)?;
            }
            file.sync_all()
        })
        .unwrap_err();
    assert_eq!(too_much.kind(), std::io::ErrorKind::StorageFull);
    assert_eq!(fs::read(place.far.join("kept")).unwrap(), b"kept");
    fs::remove_file(place.near.join("large")).unwrap();
    let delete = |scene: &Scene| -> Run { scene.azekura(&["volume", "delete", &volume]) };
    fails(&delete(&place.scene), "AZ0304");
    for mount in [place.near.clone(), place.far.clone()] {
        place.scene.umount(&mount);
    }
    let refused = delete(&place.scene);
    assert!(refused.stderr.contains("it has files"), "{refused:?}");
    let near = place.scene.mount_volume(&volume, "near", &[]);
    fs::remove_file(near.join("kept")).unwrap();
    place.scene.umount(&near);
    let refused = delete(&place.scene);
    fails(&refused, "AZ0304");
    assert!(refused.stderr.contains("reserved"), "{refused:?}");
    place
        .scene
        .azekura(&["reserve", "cancel", &volume, "r"])
        .ok();
    delete(&place.scene).ok();
}
