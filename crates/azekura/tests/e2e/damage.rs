//! Bytes that a disk has changed by itself, under files of a parallel volume.

use crate::checks::json;
use crate::common::{Scene, obstacle, text};
use crate::random::{Random, seed};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const BLOCK: usize = 4096;
/// Blocks of each of the files: more than one allocation unit, one, and less than a page of small
/// objects.
const FILES: [usize; 4] = [900, 256, 64, 3];
/// Blocks that are damaged.
const DAMAGED: usize = 16;
/// Blocks with one checksum, if they were written straight to their place: none of the files is so
/// small that it goes through the log of so small a store (`docs/formats/store.md`).
const GROUP: usize = 16;

/// A block whose bytes are nowhere else.
fn block(file: usize, number: usize) -> Vec<u8> {
    let mut random = Random(((file as u64) << 32) | number as u64);
    (0..BLOCK).map(|_| random.below(256) as u8).collect()
}

/// Changes bytes of a block as disks do: some, all of a sector, or all.
fn spoil(random: &mut Random, disk: &File, at: u64) {
    let len = [2, 16, 512, BLOCK][random.below(4) as usize];
    let begin = at + random.below((BLOCK - len) as u64 + 1);
    let mut bytes = vec![0; len];
    disk.read_exact_at(&mut bytes, begin).unwrap();
    let key = 1 + random.below(255) as u8;
    bytes.iter_mut().for_each(|byte| *byte ^= key);
    disk.write_all_at(&bytes, begin).unwrap();
}

/// Blocks of all files that cannot be read; all others are as they were written.
fn unreadable(mount: &Path) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    for (file, blocks) in FILES.into_iter().enumerate() {
        let opened = File::open(mount.join(file.to_string())).unwrap();
        for number in 0..blocks {
            let mut read = vec![0; BLOCK];
            match opened.read_exact_at(&mut read, (number * BLOCK) as u64) {
                Ok(()) => assert!(read == block(file, number), "{file}: block {number}"),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(5), "{error}");
                    all.push((file, number));
                }
            }
        }
    }
    all
}

/// Has the server read its stores; what it says of them then.
fn scrub(scene: &Scene) -> String {
    let state = || {
        let status = json(scene.azekura(&["status", scene.address(), "--json"]));
        let workers = status["workers"].as_array().unwrap().clone();
        let is_scrub = |name: &str| name.starts_with("scrub ");
        let mut scrubs = workers.iter();
        let scrub = scrubs.find(|worker| is_scrub(worker["name"].as_str().unwrap()));
        let scrub = scrub.expect("one for each store");
        let progress = scrub["progress"].as_u64().unwrap();
        (scrub["state"].as_str().unwrap().to_owned(), progress)
    };
    let (_, before) = state();
    let begun = scene.azekura(&["store", "scrub", "--server", scene.address()]);
    assert!(begun.ok().contains("azekura status"));
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let (state, progress) = state();
        let is_over = progress > before && !state.starts_with("reading");
        if is_over && (state.contains("damaged") || state.contains("DAMAGED")) {
            return state;
        }
        assert!(Instant::now() < deadline, "{state}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_the_disk_has_changed_is_an_error_until_it_is_written_again() {
    if let Some(why) = obstacle() {
        return println!("{why}");
    }
    let seed = seed("AZEKURA_DAMAGE_SEED");
    println!("AZEKURA_DAMAGE_SEED={seed}");
    let mut random = Random(seed);
    let mut scene = Scene::with_store("48MiB");
    let volume = scene.parallel();
    let mount = scene.mount_volume(&volume, "before", &[]);
    for (file, blocks) in FILES.into_iter().enumerate() {
        let all: Vec<u8> = (0..blocks).flat_map(|number| block(file, number)).collect();
        fs::write(mount.join(file.to_string()), all).unwrap();
    }
    scene.umount(&mount);
    assert_eq!(scrub(&scene), "nothing is damaged");
    scene.kill();
    let path = scene.path("srv/stores/0");
    let image = fs::read(&path).unwrap();
    let blocks = image.chunks_exact(BLOCK).enumerate();
    let places: HashMap<&[u8], usize> = blocks.map(|(at, block)| (block, at)).collect();
    let disk = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let mut spoilt = Vec::new();
    while spoilt.len() < DAMAGED {
        let file = random.below(FILES.len() as u64) as usize;
        let number = random.below(FILES[file] as u64) as usize;
        if spoilt.contains(&(file, number)) {
            continue;
        }
        let at = places.get(&*block(file, number));
        let at = at.unwrap_or_else(|| panic!("block {number} of {file} is not on the disk"));
        spoil(&mut random, &disk, (at * BLOCK) as u64);
        spoilt.push((file, number));
    }
    drop(disk);
    scene.start();
    let mount = scene.mount_volume(&volume, "after", &[]);
    let mut expected: Vec<_> = (FILES.into_iter().enumerate())
        .flat_map(|(file, blocks)| (0..blocks).map(move |number| (file, number)))
        .collect();
    let is_near = |one: &(usize, usize), (file, number): &(usize, usize)| {
        one.0 == *file && one.1 / GROUP == number / GROUP
    };
    expected.retain(|block| spoilt.iter().any(|bad| is_near(bad, block)));
    assert_eq!(unreadable(&mount), expected);
    let found = scrub(&scene);
    assert!(found.starts_with("DAMAGED in "), "{found}");
    // What has one checksum is written as a whole: a part of it would vouch for the rest.
    for group in expected.chunk_by(|one, other| is_near(one, other)) {
        let (file, first) = group[0];
        let file_name = mount.join(file.to_string());
        let opened = OpenOptions::new().write(true).open(file_name).unwrap();
        let all: Vec<u8> = (group.iter())
            .flat_map(|(file, number)| block(*file, *number))
            .collect();
        opened.write_all_at(&all, (first * BLOCK) as u64).unwrap();
        opened.sync_all().unwrap();
    }
    assert_eq!(unreadable(&mount), []);
    scene.umount(&mount);
    assert_eq!(scrub(&scene), "nothing is damaged");
    let check = scene.azekura(&["store", "check", text(&path)]);
    assert!(check.stderr.contains("AZ0802"), "the server has it");
}
