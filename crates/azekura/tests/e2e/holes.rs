//! Holes and space of files: on a parallel volume over two stores, beside ext4; on an export, which
//! has those of its file system.

use crate::common::{Run, Scene, obstacle, run, text};
use crate::random::{Random, seed};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::process::Signal;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The stripe unit, which is the stores' allocation unit, too.
const UNIT: u64 = 64 * KIB;

struct Place {
    scene: Scene,
    near: PathBuf,
    far: PathBuf,
    /// A directory on a local file system.
    local: PathBuf,
}

impl Place {
    /// Two stores of this size.
    fn new(size: &str) -> Option<Self> {
        if let Some(why) = obstacle() {
            println!("{why}");
            return None;
        }
        let mut scene = Scene::with_two_stores(size);
        let volume = scene.parallel();
        let near = scene.mount_volume(&volume, "near", &["--timeout", "60s"]);
        let far = scene.mount_volume(&volume, "far", &["--timeout", "60s"]);
        let local = scene.path("local");
        fs::create_dir(&local).unwrap();
        Some(Self {
            scene,
            near,
            far,
            local,
        })
    }

    fn kill_and_start(&mut self) {
        self.scene.kill();
        self.scene.start();
    }
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.open(path).unwrap()
}

/// Where a file has data, as lseek(2) says.
#[track_caller]
fn data(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let begin = match seek(&file, SeekFrom::Data(from)) {
            Ok(begin) => begin,
            Err(rustix::io::Errno::NXIO) => return all,
            Err(error) => panic!("{error}"),
        };
        let end = seek(&file, SeekFrom::Hole(begin)).unwrap();
        assert!(begin >= from && end > begin, "{from}: {begin} {end}");
        all.push((begin, end));
        from = end;
    }
}

/// The same thing done to several files.
fn each(files: &[File], act: impl Fn(&File) -> io::Result<()>) {
    for file in files {
        act(file).unwrap();
    }
}

fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, flags, offset, len)?)
}

#[test]
fn holes_are_where_they_are_on_ext4() {
    let Some(mut place) = Place::new("64MiB") else {
        return;
    };
    let paths = [place.near.join("f"), place.local.join("f")];
    let files = [open(&paths[0]), open(&paths[1])];
    let write = |offset: u64, len: u64| {
        let bytes = vec![0x5a; len as usize];
        each(&files, |file| file.write_all_at(&bytes, offset));
    };
    let same = |place: &Place| {
        let expected = data(&paths[1]);
        assert_eq!(data(&paths[0]), expected);
        assert_eq!(data(&place.far.join("f")), expected);
        expected.len()
    };
    each(&files, |file| file.set_len(4 * MIB));
    assert_eq!(same(&place), 0);
    // Of one unit, of several, over the columns; not committed.
    write(3 * UNIT, UNIT);
    write(8 * UNIT, 5 * UNIT);
    write(5 * MIB, 3 * MIB);
    assert_eq!(same(&place), 3);
    each(&files, |file| punch(file, 9 * UNIT, 2 * UNIT));
    each(&files, |file| punch(file, 6 * MIB, 4 * KIB));
    assert_eq!(same(&place), 5);
    each(&files, File::sync_all);
    assert_eq!(same(&place), 5);
    place.kill_and_start();
    assert_eq!(same(&place), 5);
    each(&files, |file| file.set_len(5 * MIB + UNIT));
    each(&files, |file| file.set_len(7 * MIB));
    assert_eq!(same(&place), 4);
    // Beyond the end, and at it.
    let beyond = seek(&files[0], SeekFrom::Hole(7 * MIB));
    assert_eq!(beyond, Err(rustix::io::Errno::NXIO));
    assert_eq!(
        seek(&files[0], SeekFrom::Hole(7 * MIB - 1)),
        Ok(7 * MIB - 1)
    );
    // Small ones share allocation units.
    for (name, offset) in [("small", 0), ("behind", 9 * KIB)] {
        let file = open(&place.near.join(name));
        file.write_all_at(b"small", offset).unwrap();
        drop(file);
        let begin = offset / 4096 * 4096;
        assert_eq!(data(&place.far.join(name)), [(begin, offset + 5)]);
    }
}

#[test]
fn whatever_is_written_is_data() {
    let Some(place) = Place::new("64MiB") else {
        return;
    };
    let mut random = Random(seed("AZEKURA_HOLES_SEED"));
    let mut expected = vec![0_u8; 3 * MIB as usize];
    let mut touched = vec![false; expected.len() / UNIT as usize + 1];
    let file = open(&place.near.join("f"));
    file.set_len(expected.len() as u64).unwrap();
    for round in 0..60 {
        let offset = random.below(expected.len() as u64 - 1);
        let len = 1 + random.below([100, 9_000, 300_000][round % 3]);
        let len = len.min(expected.len() as u64 - offset);
        let (from, to) = (offset as usize, (offset + len) as usize);
        if round % 4 == 3 {
            punch(&file, offset, len).unwrap();
            expected[from..to].fill(0);
        } else {
            file.write_all_at(
                &expected[from..to].iter().map(|_| 1).collect::<Vec<u8>>(),
                offset,
            )
            .unwrap();
            expected[from..to].fill(1);
            touched[(offset / UNIT) as usize..=((offset + len) / UNIT) as usize].fill(true);
        }
        let mut is_data = vec![false; expected.len()];
        for (begin, end) in data(&place.near.join("f")) {
            is_data[begin as usize..end as usize].fill(true);
        }
        for (at, byte) in expected.iter().enumerate() {
            assert!(*byte == 0 || is_data[at], "{at} is a hole");
            assert!(touched[at / UNIT as usize] || !is_data[at], "{at} is data");
        }
    }
    assert!(fs::read(place.far.join("f")).unwrap() == expected);
}

fn zero(file: &File, offset: u64, len: u64, keep_size: bool) -> io::Result<()> {
    let mut flags = FallocateFlags::ZERO_RANGE;
    flags.set(FallocateFlags::KEEP_SIZE, keep_size);
    Ok(fallocate(file, flags, offset, len)?)
}

/// What is done on the mount of an export, with much of it unwritten most of the time, against an
/// array of bytes; and the holes are those of the exported file.
#[test]
fn zeros_holes_and_lengths_on_an_export_are_those_of_its_file() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    const LEN: u64 = 2 * MIB;
    let mut scene = Scene::new();
    let mounts = ["near", "far"].map(|name| scene.mount(name, &["--timeout", "60s"]));
    let path = mounts[0].join("f");
    let file = open(&path);
    let mut random = Random(seed("AZEKURA_HOLES_SEED"));
    let mut expected: Vec<u8> = Vec::new();
    for round in 0..400_u32 {
        let offset = random.below(LEN);
        let len = 1 + random.below([100, 9_000, 300_000][round as usize % 3]);
        let (from, to) = (offset as usize, (offset + len) as usize);
        let cleared = |expected: &mut Vec<u8>| {
            let end = to.min(expected.len());
            expected[from.min(end)..end].fill(0);
        };
        match random.below(7) {
            0 | 1 => {
                let byte = (round % 255) as u8 + 1;
                file.write_all_at(&vec![byte; len as usize], offset)
                    .unwrap();
                expected.resize(expected.len().max(to), 0);
                expected[from..to].fill(byte);
            }
            2 => {
                punch(&file, offset, len).unwrap();
                cleared(&mut expected);
            }
            3 => {
                zero(&file, offset, len, true).unwrap();
                cleared(&mut expected);
            }
            4 => {
                zero(&file, offset, len, false).unwrap();
                expected.resize(expected.len().max(to), 0);
                cleared(&mut expected);
            }
            5 => {
                file.set_len(offset).unwrap();
                expected.resize(from, 0);
            }
            _ => {
                fallocate(&file, FallocateFlags::empty(), offset, len).unwrap();
                expected.resize(expected.len().max(to), 0);
            }
        }
        assert_eq!(file.metadata().unwrap().len(), expected.len() as u64);
        if round % 10 == 0 {
            assert!(fs::read(&path).unwrap() == expected, "round {round}");
            file.sync_all().unwrap();
            let local = scene.path("export/f");
            assert!(fs::read(&local).unwrap() == expected, "round {round}");
            assert_eq!(data(&path), data(&local), "round {round}");
        }
    }
    drop(file);
    assert!(fs::read(mounts[1].join("f")).unwrap() == expected);
    let beyond = seek(open(&path), SeekFrom::Data(expected.len() as u64));
    assert_eq!(beyond, Err(rustix::io::Errno::NXIO));
}

/// Writes until there is no space; how much was written.
pub(crate) fn fill(path: &Path) -> u64 {
    let file = open(path);
    let piece = vec![7; MIB as usize];
    let (mut at, mut len) = (0, MIB);
    while len >= 4096 {
        let written = file.write_all_at(&piece[..len as usize], at);
        match written.and_then(|()| file.sync_all()) {
            Ok(()) => at += len,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
                len /= 2;
            }
        }
    }
    at
}

fn writes(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let bytes = vec![3; len as usize];
    file.write_all_at(&bytes, offset)?;
    file.sync_all()
}

#[test]
fn space_that_was_allocated_is_there_when_the_stores_are_full() {
    let Some(mut place) = Place::new("32MiB") else {
        return;
    };
    let path = place.near.join("database");
    let file = open(&path);
    fallocate(&file, FallocateFlags::empty(), 0, 6 * MIB).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 6 * MIB, 2 * MIB + 5).unwrap();
    assert_eq!(
        place.far.join("database").metadata().unwrap().len(),
        6 * MIB
    );
    assert_eq!(data(&place.far.join("database")), []);
    // Far more than there is takes nothing.
    let refused = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 40);
    assert_eq!(refused, Err(rustix::io::Errno::NOSPC));
    assert!(fill(&place.far.join("greedy")) > 20 * MIB);
    let elsewhere = open(&place.near.join("elsewhere"));
    let error = writes(&elsewhere, 0, MIB).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    // In an order in which nothing follows anything, also when the server has died meanwhile.
    for unit in (0..96).rev().step_by(2) {
        writes(&file, unit * UNIT + 1000, 3000).unwrap();
    }
    place.kill_and_start();
    for unit in 0..96 {
        writes(&file, unit * UNIT, UNIT).unwrap();
    }
    writes(&file, 6 * MIB, 2 * MIB).unwrap();
    assert_eq!(
        place.far.join("database").metadata().unwrap().len(),
        8 * MIB
    );
    let whole = fs::read(place.far.join("database")).unwrap();
    assert!(whole.iter().all(|byte| *byte == 3));
    // Zeros keep the space, a hole gives it back.
    fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 8 * MIB).unwrap();
    assert_eq!(data(&path), []);
    writes(&file, 0, 8 * MIB).unwrap();
    punch(&file, 0, 4 * MIB).unwrap();
    until_written(&elsewhere, 2 * MIB);
}

/// What was freed can be had a moment later.
fn until_written(file: &File, len: u64) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Err(error) = writes(file, 0, len) {
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        assert!(Instant::now() < deadline, "it is not free");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn full_stores_are_said_at_the_latest_by_fsync_and_can_be_emptied() {
    let Some(place) = Place::new("32MiB") else {
        return;
    };
    let (near, far) = (&place.near, &place.far);
    fs::write(near.join("kept"), vec![5; MIB as usize]).unwrap();
    let greedy = fill(&near.join("greedy"));
    assert!(greedy > 28 * MIB, "{greedy}");
    let is_full = |outcome: io::Result<()>| {
        let error = outcome.expect_err("there is no space");
        assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    };
    // A write may be believed; fsync, and a close, tell.
    for round in 0..3 {
        let file = open(&near.join(format!("more-{round}")));
        let begun = Instant::now();
        if let Err(error) = file.write_all_at(&vec![3; 8 * MIB as usize], 0) {
            // What a write has told, fsync tells once more.
            assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
        }
        is_full(file.sync_all());
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            begun.elapsed()
        );
        // It told it once; nothing that was lost is there.
        file.sync_all().unwrap();
        let len = far.join(format!("more-{round}")).metadata().unwrap().len();
        assert!(len < 8 * MIB, "{len}");
    }
    let said = sh(near, "dd if=/dev/zero of=closed bs=1M count=8");
    assert!(
        !said.status.success() && said.stderr.contains("No space left"),
        "{said:?}"
    );
    // Names can be made, and everything that makes less of something.
    fs::write(near.join("empty"), b"").unwrap();
    fs::create_dir(near.join("d")).unwrap();
    fs::rename(near.join("kept"), near.join("d/kept")).unwrap();
    assert!(fs::read(far.join("d/kept")).unwrap() == vec![5; MIB as usize]);
    let file = open(&near.join("greedy"));
    file.set_len(greedy + MIB).unwrap();
    file.set_len(greedy / 2 + 1).unwrap();
    until_written(&open(&near.join("anew")), 4 * MIB);
    file.set_len(0).unwrap();
    drop(file);
    sh(far, "rm -r *").ok();
    assert_eq!(fs::read_dir(near).unwrap().count(), 0);
    // All of it is back.
    let deadline = Instant::now() + Duration::from_secs(30);
    while fill(&near.join("again")) < greedy {
        assert!(Instant::now() < deadline, "space was lost");
        fs::remove_file(near.join("again")).unwrap();
        std::thread::sleep(Duration::from_millis(500));
    }
}

fn sh(directory: &Path, script: &str) -> Run {
    run(Command::new("sh")
        .args(["-euc", script])
        .current_dir(directory))
}

#[test]
fn programs_keep_holes() {
    let Some(place) = Place::new("64MiB") else {
        return;
    };
    let source = place.near.join("source");
    let file = open(&source);
    for at in [2, 9, 15] {
        file.write_all_at(&vec![at as u8; UNIT as usize], at * MIB)
            .unwrap();
    }
    file.set_len(24 * MIB).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let holes = data(&source);
    assert_eq!(holes.len(), 3);
    let whole = fs::read(&source).unwrap();
    let is_same = |path: &Path| {
        assert!(fs::read(path).unwrap() == whole, "{}", path.display());
        assert_eq!(data(path), holes, "{}", path.display());
        let blocks = path.metadata().unwrap().blocks() * 512;
        assert!(blocks < MIB, "{blocks} bytes of {}", path.display());
    };
    is_same(&source);
    let local = text(&place.local);
    sh(
        &place.near,
        "cp source copied; cp --sparse=always source always",
    )
    .ok();
    sh(
        &place.near,
        &format!("cp source {local}/cp; tar -cSf {local}/tar source"),
    )
    .ok();
    assert!(place.local.join("tar").metadata().unwrap().len() < MIB);
    sh(&place.far, &format!("mkdir d; tar -C d -xSf {local}/tar")).ok();
    let address = format!("{}:/source", place.scene.parallel());
    place
        .scene
        .azekura(&["cp", &address, &format!("{local}/azekura")])
        .ok();
    let address = format!("{}:/back", place.scene.parallel());
    place
        .scene
        .azekura(&["cp", &format!("{local}/azekura"), &address])
        .ok();
    for name in ["copied", "always", "d/source", "back"] {
        is_same(&place.far.join(name));
    }
    for name in ["cp", "azekura"] {
        is_same(&place.local.join(name));
    }
}

/// Programs that copy files take what has a size and no space for one hole.
#[test]
fn what_the_server_does_not_have_yet_takes_space() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let export = scene.path("export");
    for (name, size) in [("empty", 0), ("hole", 8 * MIB)] {
        let file = File::create(export.join(name)).unwrap();
        file.set_len(size).unwrap();
    }
    let mount = scene.mount("mnt", &["--timeout", "20s"]);
    let [empty, hole] = ["empty", "hole"].map(|name| open(&mount.join(name)));
    let same = |name: &str| {
        let [here, there] = [&mount, &export].map(|top| top.join(name).metadata().unwrap());
        assert_eq!(here.blocks(), there.blocks(), "{name}");
    };
    scene.signal(Signal::STOP);
    for file in [&empty, &hole] {
        file.write_all_at(&vec![1; 3 << 20], 0).unwrap();
    }
    let shown = [&empty, &hole].map(|file| file.metadata().unwrap().blocks());
    scene.signal(Signal::CONT);
    assert_eq!(shown[0], 3 * MIB / 512);
    assert!(shown[1] > 0);
    for (name, file) in [("empty", empty), ("hole", hole)] {
        file.sync_all().unwrap();
        same(name);
    }

    let directory = mount.join("dir");
    fs::create_dir(&directory).unwrap();
    // The first creation finds out that there is no default ACL.
    fs::write(directory.join("first"), "").unwrap();
    scene.azekura(&["sync", text(&mount)]).ok();
    let names = (0..8).map(|number| format!("dir/{number}"));
    let ahead = names.clone().filter(|name| {
        fs::write(mount.join(name), vec![1; 10_000]).unwrap();
        // The kernel keeps what a listing tells.
        assert!(fs::read_dir(&directory).unwrap().count() > 0);
        let shown = mount.join(name).metadata().unwrap();
        assert!(shown.blocks() >= 20, "{} blocks", shown.blocks());
        shown.ino() >= 1 << 63
    });
    assert!(ahead.count() > 0, "none was created ahead");
    scene.azekura(&["sync", text(&mount)]).ok();
    for name in names {
        same(&name);
    }
}
