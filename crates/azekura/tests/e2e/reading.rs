//! Reads of which the kernel asks for more than the program: what is refused then is there when
//! somebody does want it. And reads beside writes of the same program.

use crate::checks::json;
use crate::common::{Scene, obstacle, text};
use crate::far::far_mount;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const READ: usize = 128 << 10;
const RUN: u64 = 512 << 10;
const STEP: u64 = 1536 << 10;
const RUNS: u64 = 64;
/// Files read, at most, until one shows a refusal: on a busy machine a program may take longer from
/// one run to the next than a request waits.
const TRIES: u64 = 8;

/// 8 bytes of which each knows its place and its file.
fn word(file: u64, number: u64) -> [u8; 8] {
    ((file << 56) ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15)).to_le_bytes()
}

fn write(path: &Path, file: u64) {
    let words = RUNS * STEP / 8;
    let contents: Vec<u8> = (0..words).flat_map(|number| word(file, number)).collect();
    fs::write(path, contents).unwrap();
}

#[track_caller]
fn check(file: u64, offset: u64, found: &[u8]) {
    for (number, bytes) in (offset / 8..).zip(found.chunks_exact(8)) {
        assert_eq!(bytes, word(file, number), "of word {number}");
    }
}

/// Reads the runs; with `beyond`, a second thread reads what follows each at the same moment.
fn read_runs(path: &Path, file: u64, beyond: bool) {
    let begun = AtomicU64::new(0);
    let open = File::open(path).unwrap();
    std::thread::scope(|scope| {
        if beyond {
            scope.spawn(|| {
                let mut found = vec![0; READ];
                for run in 0..RUNS {
                    while begun.load(Ordering::Acquire) < run {
                        std::thread::yield_now();
                    }
                    let offset = run * STEP + RUN;
                    open.read_exact_at(&mut found, offset).unwrap();
                    check(file, offset, &found);
                }
            });
        }
        let mut found = vec![0; READ];
        for run in 0..RUNS {
            begun.store(run, Ordering::Release);
            for offset in (run * STEP..run * STEP + RUN).step_by(READ) {
                open.read_exact_at(&mut found, offset).unwrap();
                check(file, offset, &found);
            }
        }
    });
}

/// This thread, and what it starts, goes before all that the machine does otherwise: a request that
/// waits to see what a program does judges by milliseconds.
fn hurry() {
    if let Err(error) = rustix::process::setpriority_process(None, -19) {
        println!("goes on at its usual priority: {error}");
    }
}

fn read_bytes(scene: &Scene, mount: &Path) -> u64 {
    json(scene.azekura(&["top", text(mount), "--once", "--json"]))["read_bytes"]
        .as_u64()
        .unwrap()
}

#[test]
fn what_the_kernel_was_refused_is_there_when_it_is_wanted() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    hurry();
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &[]);
    let mut asked_bytes = Vec::new();
    for file in 0..TRIES {
        let name = file.to_string();
        write(&scene.path("export").join(&name), file);
        let path = mount.join(&name);
        let before = read_bytes(&scene, &mount);
        read_runs(&path, file, false);
        asked_bytes.push(read_bytes(&scene, &mount) - before);
        // All pages of what was refused are in the kernel's cache, and empty.
        let direct = File::options()
            .read(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
            .open(&path)
            .unwrap();
        let mut found = vec![0; READ];
        direct.read_exact_at(&mut found, RUN).unwrap();
        check(file, RUN, &found);
        check(file, 0, &fs::read(&path).unwrap());
        if asked_bytes.last() < Some(&(RUNS * (RUN + RUN / 8))) {
            return;
        }
    }
    panic!("nothing was refused: {asked_bytes:?} for {}", RUNS * RUN);
}

#[test]
fn one_that_reads_on_and_one_that_leaves_are_both_right() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    write(&scene.path("export/file"), 7);
    let mount = scene.mount("mnt", &[]);
    read_runs(&mount.join("file"), 7, true);
    check(7, 0, &fs::read(mount.join("file")).unwrap());
}

/// The read of the hole may be the first at the server, and its answer, that the file ends there,
/// the last to arrive.
#[test]
fn a_hole_is_read_whole_while_what_follows_it_is_on_its_way() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    let mount = scene.mount("mnt", &[]);
    let data = vec![7; 0xbff1];
    for file in 0..300 {
        let path = mount.join(file.to_string());
        let open = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        open.write_all_at(&data, 0x2_1879).unwrap();
        let mut found = vec![1; 0x1_a850];
        open.read_exact_at(&mut found, 0xe892).unwrap();
        let (hole, rest) = found.split_at(0x2_1879 - 0xe892);
        assert!(hole.iter().all(|byte| *byte == 0) && rest.iter().all(|byte| *byte == 7));
        assert_eq!(open.metadata().unwrap().len(), 0x2_d86a);
    }
}

#[test]
fn what_another_machine_appended_is_read_while_a_write_is_on_its_way() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let mut scene = Scene::new();
    fs::write(scene.path("export").join("file"), "begins").unwrap();
    let near = scene.mount("near", &[]);
    let (_far, mount) = far_mount(&mut scene);
    let path = mount.join("file");
    let file = File::options().read(true).write(true).open(path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 6);
    let mut other = File::options()
        .append(true)
        .open(near.join("file"))
        .unwrap();
    other.write_all(b" and ends").unwrap();
    nix::unistd::close(other).unwrap();
    // The kernel knows the file as it was, and asks how long it is while this is on its way.
    file.write_all_at(b"starts", 0).unwrap();
    let mut found = [0; 100];
    let count = file.read_at(&mut found, 0).unwrap();
    assert_eq!(found[..count].escape_ascii().to_string(), "starts and ends");
}
