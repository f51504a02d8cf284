//! What is fetched before it is asked for: by hints, beside what is read, and over a line that is
//! known from before.

use crate::checks::figures;
use crate::common::{Scene, VOLUME, obstacle};
use crate::far::{far_mount, mount_over};
use rustix::fs::XattrFlags;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Bytes of which each page knows its place.
fn contents(bytes: u64) -> Vec<u8> {
    let page = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    (0..bytes / 8).flat_map(|word| page(word / 512)).collect()
}

fn hint(file: &Path, name: &str, value: &str) -> rustix::io::Result<()> {
    rustix::fs::setxattr(file, name, value.as_bytes(), XattrFlags::empty())
}

fn number(mount: &Path, name: &str) -> u64 {
    figures(mount)[name].as_u64().unwrap()
}

#[test]
fn what_a_program_says_that_it_will_read_is_there_before_it_reads() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let whole = contents(64 * MIB);
    fs::write(scene.path("export/file"), &whole).unwrap();
    let mount = scene.mount("mnt", &[]);
    let path = mount.join("file");
    let wanted = [(40 * MIB, MIB), (3 * MIB, 512 * KIB), (55 * MIB, 300 * KIB)];
    let words = wanted.map(|(offset, len)| format!("{offset}+{len}"));
    hint(&path, "user.azekura.will_read", &words.join(" ")).unwrap();
    let all: u64 = wanted.iter().map(|(_, len)| len).sum();
    let deadline = Instant::now() + Duration::from_secs(20);
    while number(&mount, "buffered_bytes") < all {
        assert!(Instant::now() < deadline, "{}", figures(&mount));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(number(&mount, "read_bytes"), 0, "nobody has read yet");
    let received = number(&mount, "bytes_received");
    let file = File::open(&path).unwrap();
    for (offset, len) in wanted {
        for at in (offset..offset + len).step_by(64 * KIB as usize) {
            let len = (64 * KIB).min(offset + len - at);
            let mut found = vec![0; len as usize];
            file.read_exact_at(&mut found, at).unwrap();
            assert!(found == whole[at as usize..(at + len) as usize], "at {at}");
        }
    }
    let figures = figures(&mount);
    // The kernel reads a little beyond each, which nobody has hinted.
    let hit_bytes = figures["hit_rate"].as_f64().unwrap() * number(&mount, "read_bytes") as f64;
    assert!(hit_bytes >= all as f64, "{hit_bytes} of {all}: {figures}");
    let more = figures["bytes_received"].as_u64().unwrap() - received;
    assert!(more < 32 * MIB, "{more} bytes, though all of it was there");
    for bad in ["", "x", "1+", "5"] {
        let refused = hint(&path, "user.azekura.will_read", bad);
        assert_eq!(refused, Err(rustix::io::Errno::INVAL), "{bad:?}");
    }
}

#[test]
fn who_says_that_he_reads_at_random_gets_nothing_else() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let whole = contents(16 * MIB);
    for name in ["random", "normal"] {
        fs::write(scene.path("export").join(name), &whole).unwrap();
    }
    let mount = scene.mount("mnt", &[]);
    let read = |name: &str| {
        let file = File::open(mount.join(name)).unwrap();
        let before = number(&mount, "bytes_received");
        let mut found = vec![0; 4 * MIB as usize];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == whole[..found.len()]);
        // What was asked for beyond it arrives.
        std::thread::sleep(Duration::from_millis(300));
        number(&mount, "bytes_received") - before
    };
    hint(&mount.join("random"), "user.azekura.advise", "random").unwrap();
    let [random, normal] = ["random", "normal"].map(read);
    // The kernel itself reads on by less than 256 KiB.
    assert!(random < 4 * MIB + 512 * KIB, "{random}");
    assert!(normal > random + 128 * KIB, "{normal} and {random}");
    let refused = hint(&mount.join("normal"), "user.azekura.advise", "quickly");
    assert_eq!(refused, Err(rustix::io::Errno::INVAL));
}

#[test]
fn small_files_that_are_read_in_order_come_many_at_a_time() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    const FILES: usize = 300;
    const DIRECTORIES: usize = 3;
    let mut scene = Scene::new();
    let content = |number: usize| format!("{number} ").repeat(1000);
    for directory in 0..DIRECTORIES {
        let local = scene.path("export").join(directory.to_string());
        fs::create_dir(&local).unwrap();
        for number in 0..FILES {
            fs::write(local.join(format!("{number:04}")), content(number)).unwrap();
        }
    }
    // So far that a busy machine, too, reads many files in the time of an answer.
    let (far, mount) = mount_over(&mut scene, Duration::from_millis(160));
    let (mut first, mut turns) = (None, Vec::new());
    // As much is asked for at once as is read in the time of an answer: beside others who use the
    // machine that is less, so round trips are counted again in the next directory.
    let is_few = |turns: &usize| *turns < FILES / 4;
    while turns.len() < DIRECTORIES && !turns.last().is_some_and(is_few) {
        let directory = mount.join(turns.len().to_string());
        far.turns.store(0, Ordering::SeqCst);
        let entries = fs::read_dir(&directory).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for (number, name) in names.iter().enumerate() {
            let found = fs::read(directory.join(name)).unwrap();
            assert!(found == content(number).as_bytes(), "{number}");
        }
        turns.push(far.turns.load(Ordering::SeqCst));
        first.get_or_insert_with(|| figures(&mount));
    }
    assert!(turns.last().is_some_and(is_few), "round trips: {turns:?}");
    // However fast it is read, nearly all of it was asked for before.
    let first = first.unwrap();
    assert!(first["hit_rate"].as_f64().unwrap() > 0.9, "{first}");
}

#[test]
fn directories_beside_those_that_are_listed_come_along() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    const DIRECTORIES: usize = 60;
    let mut scene = Scene::new();
    for number in 0..DIRECTORIES {
        let directory = scene.path("export").join(format!("{number:02}"));
        fs::create_dir(&directory).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(directory.join(name), name).unwrap();
        }
    }
    let (far, mount) = far_mount(&mut scene);
    far.turns.store(0, Ordering::SeqCst);
    let mut files = 0;
    for number in 0..DIRECTORIES {
        for entry in fs::read_dir(mount.join(format!("{number:02}"))).unwrap() {
            files += entry.unwrap().metadata().unwrap().len();
        }
    }
    assert_eq!(files, 3 * DIRECTORIES as u64);
    let turns = far.turns.load(Ordering::SeqCst);
    assert!(
        turns < DIRECTORIES / 2,
        "{turns} round trips for {DIRECTORIES} directories"
    );
}

#[test]
fn the_next_mount_knows_the_line() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    fs::write(scene.path("export/file"), contents(24 * MIB)).unwrap();
    let (far, mount) = far_mount(&mut scene);
    fs::read(mount.join("file")).unwrap();
    scene.umount(&mount);
    let lines = scene.path("config/state/lines");
    // The mount's process is not waited for without end.
    let deadline = Instant::now() + Duration::from_secs(30);
    while !lines.is_dir() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    let files: Vec<_> = fs::read_dir(&lines)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let known: serde_json::Value = serde_json::from_slice(&fs::read(&files[0]).unwrap()).unwrap();
    // A line as slow as a modem, or far faster than what is guessed of one.
    let volume = format!("{}/{VOLUME}", far.address);
    let windows = [100_000_u64, 2_000_000_000].map(|bytes| {
        let mut line = known.clone();
        line["download"]["rate_bytes_per_second"] = bytes.into();
        line["received_bytes"] = (1_u64 << 40).into();
        fs::write(&files[0], line.to_string()).unwrap();
        let mount = scene.mount_volume(&volume, "mnt", &[]);
        let window = number(&mount, "window_bytes");
        scene.umount(&mount);
        window
    });
    assert!(windows[1] > 2 * windows[0], "{windows:?} of {known}");
    // What is no line does no harm.
    fs::write(&files[0], "{").unwrap();
    let mount = scene.mount_volume(&volume, "mnt", &[]);
    assert!(mount.join("file").exists());
}
