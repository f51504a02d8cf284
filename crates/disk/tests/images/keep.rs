//! Images that are kept: read without any network, and what is missing is said exactly.

use crate::common::{KIB, Scene, noise, tag};
use crate::device::{Machine, cache, chunk_files};
use crate::server::{Answer, Asked, Server};
use crate::training::{how, profile, published, scattered};
use base::{BlockDevice, Extent};
use disk::{
    Cache, DiskError, Fetcher, ImageDevice, KeptReport, Manifest, Share, Source, TagRecord,
    Trained, Trust, Unread,
    keep::{self, Image},
};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

const PLACE: &str = "0123456789abcdef";

fn keep_at(
    (place, name): (&str, &str),
    scene: &Scene,
    machine: &Machine,
    share: &Share,
) -> Result<KeptReport, DiskError> {
    let (fetcher, source) = (&machine.fetcher, &machine.source);
    let tag = &tag(name);
    let image = Image { place, tag };
    keep::keep(fetcher, source, image, share, &scene.trust(), &|_, _| {})
}

fn keep_all(scene: &Scene, machine: &Machine, share: &Share) -> Result<KeptReport, DiskError> {
    keep_at((PLACE, "base:1"), scene, machine, share)
}

fn missing(cache: &Cache, place: &str, name: &str) -> Result<KeptReport, DiskError> {
    let tag = &tag(name);
    keep::missing(cache, Image { place, tag }, &Trust::Anybody)
}

fn release(cache: &Cache, place: &str, name: &str) -> Result<Vec<Unread>, DiskError> {
    let tag = &tag(name);
    keep::release(cache, Image { place, tag })
}

fn pinned(scene: &Scene) -> usize {
    let chunks = chunk_files(&scene.path("cache")).into_iter();
    let is_pinned = |path: &PathBuf| fs::metadata(path).unwrap().permissions().readonly();
    chunks.filter(is_pinned).count()
}

/// Names of files below a directory, with those of their directories.
fn names(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        match path.is_dir() {
            true => names.extend(names_below(&path).map(|below| format!("{name}/{below}"))),
            false => names.push(name.to_owned()),
        }
    }
    names.sort();
    names
}

fn names_below(directory: &Path) -> impl Iterator<Item = String> {
    names(directory).into_iter()
}

/// A machine without a network: the cache is all there is.
struct Island {
    device: ImageDevice,
    trained: Trained,
    _runtime: Runtime,
}

impl Island {
    fn new(scene: &Scene, bytes_max: u64) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let cache = cache(scene, bytes_max);
        let source: Arc<dyn Source> = Arc::new(keep::source(&cache, PLACE, None));
        let fetcher = Fetcher::new(runtime.handle().clone(), Some(cache), 1 << 20);
        let trust = scene.trust();
        let version = TagRecord::read(&*source, &tag("base:1"), &trust)
            .unwrap()
            .version();
        let manifest = Manifest::read(&*source, version, &trust).unwrap();
        let trained = Trained::open(&*source, version, &manifest, &trust).unwrap();
        let foresight = trained.foresight(&*source, vec!["boot".into()]);
        let device = ImageDevice::new(trained.index.clone(), source, fetcher).foreseen(foresight);
        Self {
            device,
            trained,
            _runtime: runtime,
        }
    }

    fn read(&self, extent: Extent) -> Option<Vec<u8>> {
        let mut bytes = vec![1; extent.len as usize];
        let read = self.device.read_at(extent.offset, &mut bytes);
        read.ok().map(|()| bytes)
    }
}

#[test]
fn an_image_that_is_kept_is_read_without_a_network() {
    let (scene, content) = published();
    let len = content.len() as u64;
    let reads = scattered(80, len, 20);
    scene.train(&[profile("boot", len, &reads)], &how());
    let server = Server::files(scene.images(), Duration::ZERO);
    let machine = Machine::far(&scene, &server, Some(cache(&scene, 100 << 20)));
    let report = keep_all(&scene, &machine, &Share::Everything).unwrap();
    assert_eq!(report.missing, []);
    assert_eq!(report.version, scene.version("base:1"));
    let mut again = server.counts();
    again.retain(|path, count| *count != 1 && path.ends_with(".cacnk"));
    assert!(
        again.is_empty(),
        "{again:?}, {:?}",
        machine.fetcher.counts()
    );
    // Once more: nothing is left to do but to look.
    let before = machine.fetcher.counts().fetched;
    assert_eq!(
        keep_all(&scene, &machine, &Share::Everything).unwrap(),
        report
    );
    assert_eq!(machine.fetcher.counts().fetched, before);
    drop(server);
    drop(machine);
    fs::rename(scene.images(), scene.path("gone")).unwrap();
    let island = Island::new(&scene, 100 << 20);
    assert!(island.read(Extent::new(0, len)).unwrap() == content);
    assert_eq!(island.trained.packs.len(), 1, "it is trained here, too");
    let opened = cache(&scene, 100 << 20);
    let still = missing(&opened, PLACE, "base:1").unwrap();
    assert_eq!(still, report);
    assert_eq!(keep::kept(&opened, PLACE).unwrap(), [tag("base:1")]);
    let other = missing(&opened, PLACE, "base:2");
    assert!(matches!(other, Err(DiskError::NotKept(_))));
}

#[test]
fn what_a_profile_needs_is_kept_and_the_rest_is_not() {
    let (scene, content) = published();
    let len = content.len() as u64;
    let reads = scattered(81, len, 20);
    scene.train(&[profile("boot", len, &reads)], &how());
    let server = Server::files(scene.images(), Duration::ZERO);
    let machine = Machine::far(&scene, &server, Some(cache(&scene, 100 << 20)));
    let unknown = keep_all(&scene, &machine, &Share::Profiles(vec!["office".into()]));
    assert!(matches!(unknown, Err(DiskError::NoProfile(_))));
    let share = Share::Profiles(vec!["boot".into()]);
    let report = keep_all(&scene, &machine, &share).unwrap();
    assert_eq!(report.missing, []);
    drop((server, machine));
    let island = Island::new(&scene, 100 << 20);
    for read in &reads {
        let expected = &content[read.offset as usize..read.end() as usize];
        assert!(island.read(*read).unwrap() == expected);
    }
    assert_eq!(
        island.read(Extent::new(0, len)),
        None,
        "not all of it is here"
    );
}

#[test]
fn when_the_network_is_cut_what_is_missing_is_said_exactly_and_fetched_the_next_time() {
    let (scene, content) = published();
    let all: BTreeSet<_> = scene.index("base:1").ids().iter().copied().collect();
    for percent in [0, 25, 50, 75] {
        let (directory, left) = (scene.images(), AtomicUsize::new(0));
        left.store(all.len() * percent / 100, Ordering::SeqCst);
        let server = Server::new(move |asked: &Asked| {
            let is_chunk = asked.path.ends_with(".cacnk");
            let down = |left: usize| left.checked_sub(1);
            if is_chunk
                && left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, down)
                    .is_err()
            {
                return Answer::status(403);
            }
            Answer::file(&directory, asked)
        });
        let machine = Machine::far(&scene, &server, Some(cache(&scene, 100 << 20)));
        let report = keep_all(&scene, &machine, &Share::Everything).unwrap();
        let missing: BTreeSet<_> = report.missing.iter().map(|m| m.spec.id).collect();
        let is_here = |id: &disk::ChunkId| {
            let file = disk::FileName::of_chunk(id);
            scene.path("cache").join(file.as_str()).exists()
        };
        let zero = disk::Digest::Sha512Half.id_of(&[0; 256 << 10]);
        let expected: BTreeSet<_> = all
            .iter()
            .copied()
            .filter(|id| *id != zero && !is_here(id))
            .collect();
        assert_eq!(missing, expected, "{percent} %");
        assert!(missing.len() >= all.len() * (100 - percent) / 100 - 2);
        assert!(
            report
                .missing
                .iter()
                .all(|missing| missing.reason.contains("403"))
        );
        // What is said to be missing, and nothing else, cannot be read.
        drop((server, machine));
        let island = Island::new(&scene, 100 << 20);
        for chunk in scene.index("base:1").chunks() {
            let read = island.read(chunk.extent);
            assert_eq!(read.is_none(), missing.contains(&chunk.id));
            let expected = &content[chunk.extent.offset as usize..chunk.extent.end() as usize];
            assert!(read.is_none_or(|bytes| bytes == expected));
        }
        drop(island);
        let server = Server::files(scene.images(), Duration::ZERO);
        let machine = Machine::far(&scene, &server, Some(cache(&scene, 100 << 20)));
        let report = keep_all(&scene, &machine, &Share::Everything).unwrap();
        assert_eq!(report.missing, []);
        let fetched = server.counts().into_iter();
        let fetched = fetched.filter(|(path, _)| path.ends_with(".cacnk")).count();
        assert_eq!(fetched, missing.len());
        drop(machine);
        fs::remove_dir_all(scene.path("cache")).unwrap();
    }
}

#[test]
fn what_is_pinned_stays_in_a_cache_that_is_full_until_it_is_released() {
    let scene = Scene::new();
    let content = noise(82, 640 * KIB);
    scene.put("base:1", &content);
    let other = noise(83, 2000 * KIB);
    scene.put("base:2", &other);
    let bytes_max = 900 * KIB;
    let machine = Machine::near(&scene, Some(cache(&scene, bytes_max)));
    let report = keep_all(&scene, &machine, &Share::Everything).unwrap();
    assert_eq!(report.missing, []);
    let index = Arc::new(scene.index("base:2"));
    let source = Arc::clone(&machine.source);
    let second = ImageDevice::new(index, source, machine.fetcher.clone());
    let mut bytes = vec![0; other.len()];
    second.read_at(0, &mut bytes).unwrap();
    assert!(bytes == other);
    assert!(machine.fetcher.finish(Duration::from_secs(20)));
    let opened: &Cache = machine.fetcher.cache().unwrap();
    assert!(opened.used_bytes().unwrap() <= bytes_max);
    let missing = || missing(opened, PLACE, "base:1").unwrap().missing;
    assert_eq!(missing(), []);
    // Damage is found, and put right in its place.
    let index = scene.index("base:1");
    let file = disk::FileName::of_chunk(&index.ids()[3]);
    let path = scene.path("cache").join(file.as_str());
    let good = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"damaged").unwrap();
    let mut read_only = fs::metadata(&path).unwrap().permissions();
    read_only.set_readonly(true);
    fs::set_permissions(&path, read_only).unwrap();
    let found: Vec<_> = missing().iter().map(|missing| missing.spec.id).collect();
    assert_eq!(found, [index.ids()[3]]);
    assert_eq!(
        keep_all(&scene, &machine, &Share::Everything)
            .unwrap()
            .missing,
        []
    );
    assert_eq!(fs::read(&path).unwrap(), good);
    assert_eq!(release(opened, PLACE, "base:1").unwrap(), []);
    assert!(matches!(
        release(opened, PLACE, "base:1"),
        Err(DiskError::NotKept(_))
    ));
    assert_eq!(pinned(&scene), 0);
}

#[test]
fn a_cache_that_is_too_small_says_for_what_there_is_no_room() {
    let scene = Scene::new();
    scene.put("base:1", &noise(84, 1280 * KIB));
    let machine = Machine::near(&scene, Some(cache(&scene, 600 * KIB)));
    let report = keep_all(&scene, &machine, &Share::Everything).unwrap();
    assert!(
        !report.missing.is_empty() && report.missing.len() < 20,
        "{report:?}"
    );
    let used = machine.fetcher.cache().unwrap().used_bytes().unwrap();
    assert!(used <= 600 * KIB);
    let without = Machine::near(&scene, None);
    let refused = keep_all(&scene, &without, &Share::Everything);
    assert!(matches!(refused, Err(DiskError::NoCache)));
}

#[test]
fn places_are_kept_apart_and_a_key_of_another_one_is_in_nobodys_way() {
    let (scene, other) = (Scene::new(), Scene::new());
    scene.put("base:1", &noise(90, 320 * KIB));
    other.put("base:1", &noise(91, 192 * KIB));
    let here = Machine::near(&scene, Some(cache(&scene, 100 << 20)));
    let there = Machine::near(&other, Some(cache(&scene, 100 << 20)));
    let all = &Share::Everything;
    keep_at(("prod", "base:1"), &scene, &here, all).unwrap();
    keep_at(("test", "base:1"), &other, &there, all).unwrap();
    let opened = cache(&scene, 100 << 20);
    for (place, scene) in [("prod", &scene), ("test", &other)] {
        let source = keep::source(&opened, place, None);
        let record = TagRecord::read(&source, &tag("base:1"), &scene.trust()).unwrap();
        assert_eq!(record.version(), scene.version("base:1"), "{place}");
        assert_eq!(missing(&opened, place, "base:1").unwrap().missing, []);
    }
    // Each is kept again and released, whoever has signed the other.
    keep_at(("prod", "base:1"), &scene, &here, all).unwrap();
    assert_eq!(pinned(&scene), 8);
    assert_eq!(release(&opened, "test", "base:1").unwrap(), []);
    assert_eq!(pinned(&scene), 5);
}

#[test]
fn what_cannot_be_read_keeps_what_is_pinned_and_is_said() {
    let scene = Scene::new();
    for (number, name) in ["base:1", "base:2", "base:3"].into_iter().enumerate() {
        scene.put(name, &noise(92 + number as u64, 128 * KIB));
    }
    let machine = Machine::near(&scene, Some(cache(&scene, 100 << 20)));
    let keep = |name| keep_at((PLACE, name), &scene, &machine, &Share::Everything).unwrap();
    for name in ["base:1", "base:2"] {
        assert_eq!(keep(name).unread, []);
    }
    let kept = scene.path("cache/kept");
    let note = kept.join(PLACE).join("pins/base@2");
    let manifest = kept.join(scene.version("base:2").file().as_str());
    let opened = cache(&scene, 100 << 20);
    for victim in [note, manifest] {
        let good = fs::read(&victim).unwrap();
        fs::write(&victim, b"damaged").unwrap();
        let report = keep("base:3");
        assert_eq!(report.missing, []);
        let unread = &report.unread[..];
        assert!(
            matches!(unread, [one] if one.tag == tag("base:2")),
            "{unread:?}"
        );
        assert_eq!(release(&opened, PLACE, "base:3").unwrap(), report.unread);
        assert_eq!(pinned(&scene), 6, "nobody knows which are needed");
        fs::write(&victim, good).unwrap();
    }
    assert_eq!(release(&opened, PLACE, "base:2").unwrap(), []);
    assert_eq!(pinned(&scene), 2);
}

#[test]
fn a_profile_that_there_is_not_is_not_noted() {
    let scene = Scene::new();
    scene.put("base:1", &noise(95, 128 * KIB));
    let machine = Machine::near(&scene, Some(cache(&scene, 100 << 20)));
    let unknown = keep_all(&scene, &machine, &Share::Profiles(vec!["office".into()]));
    assert!(matches!(unknown, Err(DiskError::NoProfile(_))));
    let opened = cache(&scene, 100 << 20);
    assert_eq!(keep::kept(&opened, PLACE).unwrap(), []);
}

#[test]
fn files_that_nothing_needs_any_more_go() {
    let (scene, content) = published();
    let len = content.len() as u64;
    let opened = cache(&scene, 100 << 20);
    let machine = Machine::near(&scene, Some(cache(&scene, 100 << 20)));
    let keep = || {
        let kept = keep_all(&scene, &machine, &Share::Everything).unwrap();
        assert_eq!((kept.missing, kept.unread), (vec![], vec![]));
        names(&scene.path("cache/kept")).len()
    };
    // A tag, a version, an index, a note, a lock.
    assert_eq!(keep(), 5);
    for seed in [96, 97] {
        let reads = scattered(seed, len, 20);
        scene.train(&[profile("boot", len, &reads)], &how());
        // A training, its index, and a pack.
        assert_eq!(keep(), 8);
    }
    scene.put("base:1", &noise(98, 128 * KIB));
    assert_eq!(keep(), 5);
    // What the release before has kept, and somebody else's.
    for name in ["tags/base@1.azt", "pins/base@1", "versions/a letter"] {
        let path = scene.path("cache/kept").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, b"x").unwrap();
    }
    assert_eq!(keep(), 6);
    release(&opened, PLACE, "base:1").unwrap();
    let left = names(&scene.path("cache/kept"));
    assert_eq!(left, ["lock", "versions/a letter"]);
    assert_eq!(names(&scene.path("cache/tmp")), [""; 0]);
}

#[test]
fn whoever_changes_what_is_kept_waits_for_his_turn() {
    let scene = Scene::new();
    scene.put("base:1", &noise(99, 128 * KIB));
    let machine = Machine::near(&scene, Some(cache(&scene, 100 << 20)));
    let opened = cache(&scene, 100 << 20);
    let lock = scene.path("cache/kept/lock");
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    let noted = scene.path("cache/kept").join(PLACE).join("pins/base@1");
    let keep = || keep_all(&scene, &machine, &Share::Everything).map(drop);
    let release = || release(&opened, PLACE, "base:1").map(drop);
    type Work<'a> = &'a (dyn Fn() -> Result<(), DiskError> + Sync);
    let works: [Work; 2] = [&keep, &release];
    for (work, is_noted_then) in works.into_iter().zip([true, false]) {
        let turn = File::create(&lock).unwrap();
        turn.lock().unwrap();
        std::thread::scope(|scope| {
            let working = scope.spawn(work);
            std::thread::sleep(Duration::from_millis(100));
            assert!(!working.is_finished());
            assert_eq!(noted.exists(), !is_noted_then);
            turn.unlock().unwrap();
            working.join().unwrap().unwrap();
        });
        assert_eq!(noted.exists(), is_noted_then);
    }
}

/// Bytes that this thread has removed before they were written to a disk; none where the kernel
/// does not count them.
fn cancelled_bytes() -> Option<u64> {
    let counts = fs::read_to_string("/proc/thread-self/io").ok()?;
    let count = counts.split("cancelled_write_bytes: ").nth(1)?;
    Some(count.trim().parse().unwrap())
}

#[test]
fn what_is_said_to_be_kept_is_durable() {
    let scene = Scene::new();
    scene.put("base:1", &noise(100, 640 * KIB));
    let machine = Machine::near(&scene, Some(cache(&scene, 100 << 20)));
    let report = keep_all(&scene, &machine, &Share::Everything).unwrap();
    assert_eq!(report.missing, []);
    let Some(before) = cancelled_bytes() else {
        eprintln!("skipped: the kernel does not count what was not written");
        return;
    };
    for directory in ["kept", "default.castr"] {
        fs::remove_dir_all(scene.path("cache").join(directory)).unwrap();
    }
    assert_eq!(cancelled_bytes().unwrap(), before);
}
