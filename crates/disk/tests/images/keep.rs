//! Images that are kept: read without any network, and what is missing is said exactly.

use crate::common::{KIB, Scene, noise, tag};
use crate::device::{Machine, cache, chunk_files};
use crate::server::{Answer, Asked, Server};
use crate::training::{how, profile, published, scattered};
use base::{BlockDevice, Extent};
use disk::{
    Cache, DiskError, Fetcher, ImageDevice, KeptReport, Manifest, Share, Source, TagRecord,
    Trained, keep,
};
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

fn keep_all(scene: &Scene, machine: &Machine, share: &Share) -> Result<KeptReport, DiskError> {
    let (fetcher, source) = (&machine.fetcher, &machine.source);
    keep::keep(
        fetcher,
        source,
        &tag("base:1"),
        share,
        &scene.trust(),
        &|_, _| {},
    )
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
        let source: Arc<dyn Source> = Arc::new(keep::source(&cache, None));
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
    let still = keep::missing(&opened, &tag("base:1"), &scene.trust()).unwrap();
    assert_eq!(still, report);
    assert_eq!(keep::kept(&opened).unwrap(), [tag("base:1")]);
    let other = keep::missing(&opened, &tag("base:2"), &scene.trust());
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
    let trust = scene.trust();
    let missing = || {
        keep::missing(opened, &tag("base:1"), &trust)
            .unwrap()
            .missing
    };
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
    keep::release(opened, &tag("base:1"), &trust).unwrap();
    assert!(matches!(
        keep::release(opened, &tag("base:1"), &trust),
        Err(DiskError::NotKept(_))
    ));
    let pinned = chunk_files(&scene.path("cache")).into_iter();
    let is_pinned =
        |path: &std::path::PathBuf| fs::metadata(path).unwrap().permissions().readonly();
    assert_eq!(pinned.filter(is_pinned).count(), 0);
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
