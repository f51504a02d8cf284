//! An image read on demand: right bytes or an error, each chunk fetched once, in bounded space.

use crate::common::{KIB, Scene, noise};
use crate::server::{Answer, Asked, Server};
use base::{BlockDevice, DeviceError, Extent};
use disk::{
    Cache, Digest, Directory, FetchCounts, Fetcher, FileName, Http, HttpOptions, ImageDevice,
    Publishing, Source,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A machine that reads an image: a runtime, a fetcher, perhaps a cache.
pub(crate) struct Machine {
    pub(crate) device: ImageDevice,
    pub(crate) fetcher: Fetcher,
    pub(crate) source: Arc<dyn Source>,
    /// Ends last.
    _runtime: Runtime,
}

impl Machine {
    pub(crate) fn new(
        scene: &Scene,
        cache: Option<Cache>,
        memory_bytes_max: u64,
        open: impl Fn(&Runtime) -> Arc<dyn Source>,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let fetcher = Fetcher::new(runtime.handle().clone(), cache, memory_bytes_max);
        let index = Arc::new(scene.index("base:1"));
        let source = open(&runtime);
        let device = ImageDevice::new(index, Arc::clone(&source), fetcher.clone());
        Self {
            device,
            fetcher,
            source,
            _runtime: runtime,
        }
    }

    /// Reads from `server`, which a busy machine may let answer late: nothing is asked for twice
    /// for that.
    pub(crate) fn far(scene: &Scene, server: &Server, cache: Option<Cache>) -> Self {
        Self::of(scene, server, cache, HttpOptions::default())
    }

    /// Reads from `server`, and asks again soon if that is silent.
    pub(crate) fn impatient(scene: &Scene, server: &Server, cache: Option<Cache>) -> Self {
        let options = HttpOptions {
            silence_time: Duration::from_millis(300),
            try_time: Duration::from_millis(600),
            ..HttpOptions::default()
        };
        Self::of(scene, server, cache, options)
    }

    fn of(scene: &Scene, server: &Server, cache: Option<Cache>, options: HttpOptions) -> Self {
        let url = server.url();
        let options = HttpOptions {
            pause_time: Duration::from_millis(10),
            ..options
        };
        Self::new(scene, cache, 1 << 20, |runtime| {
            Arc::new(Http::new(&url, &options, runtime.handle().clone()).unwrap())
        })
    }

    pub(crate) fn near(scene: &Scene, cache: Option<Cache>) -> Self {
        Self::near_with_memory(scene, cache, 1 << 20)
    }

    pub(crate) fn near_with_memory(scene: &Scene, cache: Option<Cache>, bytes_max: u64) -> Self {
        let path = scene.images();
        Self::new(scene, cache, bytes_max, |_| Arc::new(Directory::new(&path)))
    }

    pub(crate) fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![1; len as usize];
        self.device.read_at(offset, &mut bytes).map(|()| bytes)
    }

    pub(crate) fn counts(&self) -> FetchCounts {
        self.fetcher.counts()
    }
}

pub(crate) fn cache(scene: &Scene, bytes_max: u64) -> Cache {
    Cache::open(scene.path("cache"), bytes_max).unwrap()
}

impl Drop for Machine {
    /// As a program that ends in good order.
    fn drop(&mut self) {
        assert!(self.fetcher.finish(Duration::from_secs(20)));
    }
}

/// An image with data, zeros and an end off every grid; and its content.
pub(crate) fn published() -> (Scene, Vec<u8>) {
    let scene = Scene::new();
    let mut content = noise(20, 900 * KIB);
    content.resize(2000 << 10, 0);
    content.extend(noise(21, 500 * KIB + 100));
    scene.put("base:1", &content);
    (scene, content)
}

pub(crate) fn chunk_files(directory: &Path) -> Vec<PathBuf> {
    let chunks = directory.join("default.castr");
    let entries = |path: &Path| {
        fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    };
    let mut files: Vec<_> = entries(&chunks)
        .flat_map(|path| entries(&path).collect::<Vec<_>>())
        .collect();
    files.sort();
    files
}

#[test]
fn every_read_is_what_the_image_has() {
    let (scene, content) = published();
    let server = Server::files(scene.images(), Duration::ZERO);
    let machine = Machine::far(&scene, &server, Some(cache(&scene, 100 << 20)));
    let len = machine.device.len_bytes();
    assert_eq!(len, (content.len() as u64).next_multiple_of(512));
    let mut padded = content;
    padded.resize(len as usize, 0);
    let mut random = sim::Random::new(5);
    for _ in 0..300 {
        let offset = random.below(len);
        let most = if random.chance(0.1) { 1 << 20 } else { 9000 };
        let read = random.below(most).min(len - offset);
        let expected = &padded[offset as usize..][..read as usize];
        assert_eq!(
            machine.read(offset, read).unwrap(),
            expected,
            "{offset}+{read}"
        );
    }
    assert_eq!(machine.read(0, len).unwrap(), padded);
    let holes = machine.device.holes(Extent::new(0, len)).unwrap();
    assert!(holes.bytes() >= 64 * KIB, "{holes:?}");
    for hole in holes.iter() {
        let place = hole.offset as usize..hole.end() as usize;
        assert!(padded[place].iter().all(|byte| *byte == 0), "{hole}");
    }
    assert!(machine.device.holes(Extent::new(0, len + 1)).is_err());
    assert!(matches!(
        machine.read(len, 1),
        Err(DeviceError::Outside { .. })
    ));
    assert!(matches!(
        machine.read(u64::MAX, 1),
        Err(DeviceError::Outside { .. })
    ));
    let device = &machine.device;
    assert!(matches!(
        device.write_at(0, b"x"),
        Err(DeviceError::ReadOnly)
    ));
    assert!(matches!(
        device.trim(Extent::new(0, 1)),
        Err(DeviceError::ReadOnly)
    ));
    assert!(device.write_zeros(Extent::new(0, 1)).is_err());
    device.flush().unwrap();
    // Every chunk once, and the one of zeros never.
    let zero = FileName::of_chunk(&Digest::Sha512Half.id_of(&[0; 65536]));
    let counts = server.counts();
    assert!(!counts.contains_key(&format!("/{zero}")));
    assert!(counts.values().all(|&count| count == 1), "{counts:?}");
    assert_eq!(counts.len() + 1, scene.files("default.castr"));
}

#[test]
fn a_read_has_all_its_chunks_under_way_at_once() {
    let (scene, content) = published();
    let delay = Duration::from_millis(100);
    let server = Server::files(scene.images(), delay);
    let machine = Machine::far(&scene, &server, None);
    let started = Instant::now();
    assert_eq!(machine.read(0, 900 * KIB).unwrap(), content[..900 << 10]);
    assert!(server.in_flight_most() >= 12, "{}", server.in_flight_most());
    // One after the other they would take 1.5 s.
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn a_chunk_is_fetched_once_for_all_threads_processes_and_restarts() {
    let (scene, content) = published();
    let server = Server::files(scene.images(), Duration::from_millis(20));
    // Locks belong to open files, not to processes: two caches here are as two processes'.
    let machines: Vec<_> = (0..3)
        .map(|_| Machine::far(&scene, &server, Some(cache(&scene, 100 << 20))))
        .collect();
    std::thread::scope(|scope| {
        for machine in &machines {
            for thread in 0..3 {
                let content = &content;
                scope.spawn(move || {
                    let mut random = sim::Random::new(thread);
                    for _ in 0..20 {
                        let offset = random.below(content.len() as u64 - 5000);
                        let expected = &content[offset as usize..][..5000];
                        assert_eq!(machine.read(offset, 5000).unwrap(), expected);
                    }
                    assert_eq!(machine.read(0, 2_000_000).unwrap(), content[..2_000_000]);
                });
            }
        }
    });
    assert!(
        server.counts().values().all(|&count| count == 1),
        "{:?}",
        server.counts()
    );
    let fetched: u64 = machines
        .iter()
        .map(|machine| machine.counts().fetched)
        .sum();
    assert_eq!(fetched as usize, server.requests());
    drop(machines);
    let before = server.requests();
    let again = Machine::far(&scene, &server, Some(cache(&scene, 100 << 20)));
    assert_eq!(again.read(0, 2_000_000).unwrap(), content[..2_000_000]);
    assert_eq!(server.requests(), before);
    assert_eq!(
        fs::read_dir(scene.path("cache/fetching")).unwrap().count(),
        0
    );
}

#[test]
fn what_is_cached_is_read_without_a_server_and_the_rest_is_an_error() {
    let (scene, content) = published();
    let server = Server::files(scene.images(), Duration::ZERO);
    let machine = Machine::far(&scene, &server, Some(cache(&scene, 100 << 20)));
    machine.read(0, 128 * KIB).unwrap();
    drop(machine);
    let machine = Machine::far(&scene, &server, Some(cache(&scene, 100 << 20)));
    drop(server);
    assert_eq!(machine.read(0, 128 * KIB).unwrap(), content[..128 << 10]);
    assert_eq!(
        machine.read(1000 * KIB, 64 * KIB).unwrap(),
        [0; 64 << 10],
        "zeros are known"
    );
    let error = machine.read(100 * KIB, 64 * KIB).unwrap_err();
    assert!(matches!(error, DeviceError::Failed { .. }), "{error}");
}

#[test]
fn whichever_byte_of_the_cache_is_damaged_no_wrong_byte_is_served() {
    let scene = Scene::new();
    let mut content = vec![7; 64 << 10];
    content.extend(b"another".repeat(9000));
    content.extend(noise(22, 150));
    let how = Publishing {
        level: 19,
        ..Scene::how("base:1")
    };
    scene.publish(&scene.image(&content), &how);
    // Without memory, so that every read is one of the cache.
    let machine = Machine::near_with_memory(&scene, Some(cache(&scene, 1 << 20)), 0);
    machine.read(0, content.len() as u64).unwrap();
    let finish = || assert!(machine.fetcher.finish(Duration::from_secs(20)));
    finish();
    let files = chunk_files(&scene.path("cache"));
    assert_eq!(files.len(), 2);
    let mut healed = 0;
    for file in &files {
        let good = fs::read(file).unwrap();
        for at in 0..=good.len() {
            let damaged = if at < good.len() {
                let mut flipped = good.clone();
                flipped[at] ^= 0x10;
                flipped
            } else {
                good[..at / 2].to_vec()
            };
            fs::write(file, damaged).unwrap();
            let before = machine.counts().fetched;
            assert_eq!(
                machine.read(0, content.len() as u64).unwrap(),
                content,
                "byte {at}"
            );
            finish();
            let fetched = machine.counts().fetched - before;
            healed += fetched;
            // zstd has bits that nobody reads; whatever else was wrong is put right.
            let is_good = fs::read(file).unwrap() == good;
            assert!(is_good || fetched == 0, "byte {at} is healed");
        }
    }
    println!("{healed} chunks fetched again");
    assert!(healed > 150, "{healed}");
}

#[test]
fn a_cache_never_has_more_than_it_may() {
    let (scene, content) = published();
    // Room for about five of 23 chunks.
    let bytes_max = 300 * KIB;
    let machines: Vec<_> = (0..2)
        .map(|_| Machine::near(&scene, Some(cache(&scene, bytes_max))))
        .collect();
    std::thread::scope(|scope| {
        for machine in &machines {
            let (scene, content) = (&scene, &content);
            scope.spawn(move || {
                let mut random = sim::Random::new(9);
                for _ in 0..60 {
                    let offset = random.below(content.len() as u64 - 5000);
                    let expected = &content[offset as usize..][..5000];
                    assert_eq!(machine.read(offset, 5000).unwrap(), expected);
                    let cached = chunk_files(&scene.path("cache"));
                    let lengths = cached.iter().filter_map(|path| fs::metadata(path).ok());
                    let bytes: u64 = lengths.map(|metadata| metadata.len()).sum();
                    assert!(bytes <= bytes_max, "{bytes}");
                }
            });
        }
    });
    let used = machines[0].fetcher.cache().unwrap().used_bytes().unwrap();
    assert!(used <= bytes_max && used > bytes_max / 3, "{used}");
    assert_eq!(machines[0].counts().not_kept, 0);
    drop(machines);
    // With less room than before, it is made when the cache is opened.
    let smaller = cache(&scene, 100 * KIB);
    assert!(smaller.used_bytes().unwrap() <= 100 * KIB);
    drop(smaller);
    let machine = Machine::near(&scene, Some(cache(&scene, 1)));
    assert_eq!(machine.read(0, 900 * KIB).unwrap(), content[..900 << 10]);
}

#[test]
fn what_was_used_last_is_kept() {
    let (scene, content) = published();
    let machine = Machine::near(&scene, Some(cache(&scene, 100 << 20)));
    machine.read(0, 640 * KIB).unwrap();
    drop(machine);
    let files = chunk_files(&scene.path("cache"));
    assert_eq!(files.len(), 10);
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    for file in &files {
        fs::File::open(file)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
    }
    // Two of them are used now; then there is room for four.
    let machine = Machine::near(&scene, Some(cache(&scene, 100 << 20)));
    machine.read(64 * KIB, 128 * KIB).unwrap();
    drop(machine);
    let machine = Machine::near(&scene, Some(cache(&scene, 4 * 68 * KIB)));
    assert_eq!(
        machine.read(64 * KIB, 128 * KIB).unwrap(),
        content[64 << 10..192 << 10]
    );
    assert_eq!(machine.counts().fetched, 0);
}

#[test]
fn what_a_killed_process_leaves_is_removed_and_counted() {
    let (scene, _) = published();
    let machine = Machine::near(&scene, Some(cache(&scene, 100 << 20)));
    machine.read(0, 640 * KIB).unwrap();
    drop(machine);
    let used = cache(&scene, 100 << 20).used_bytes().unwrap();
    let id = "ab".repeat(32);
    let foreign = ["tmp/letter.txt", "fetching/aa"];
    for name in ["tmp/4711-0123456789abcdef", &format!("fetching/{id}")] {
        fs::write(scene.path("cache").join(name), [0; 100]).unwrap();
    }
    for name in foreign {
        fs::write(scene.path("cache").join(name), "somebody else's").unwrap();
    }
    for usage in [&b""[..], b"nonsense, and more of it", &[0xff; 12], &[0; 12]] {
        fs::write(scene.path("cache/usage"), usage).unwrap();
        let opened = cache(&scene, 100 << 20);
        assert_eq!(opened.used_bytes().unwrap(), used);
        // Damaged while it is used.
        fs::write(scene.path("cache/usage"), usage).unwrap();
        assert_eq!(opened.used_bytes().unwrap(), used);
    }
    for name in foreign {
        fs::remove_file(scene.path("cache").join(name)).unwrap();
    }
    assert_eq!(fs::read_dir(scene.path("cache/tmp")).unwrap().count(), 0);
    assert_eq!(
        fs::read_dir(scene.path("cache/fetching")).unwrap().count(),
        0
    );
}

#[test]
fn a_cache_that_takes_nothing_keeps_nobody_from_reading() {
    let (scene, content) = published();
    let machine = Machine::near(&scene, Some(cache(&scene, 100 << 20)));
    for directory in ["tmp", "fetching"] {
        fs::remove_dir(scene.path("cache").join(directory)).unwrap();
    }
    let len = content.len() as u64;
    assert_eq!(machine.read(0, len).unwrap(), content);
    drop(machine);
    assert_eq!(chunk_files(&scene.path("cache")).len(), 0);
}

#[test]
fn a_wrong_server_is_an_error_and_never_a_wrong_byte() {
    let (scene, content) = published();
    let directory = scene.images();
    let mut random = sim::Random::new(3);
    let seed = random.next_u64();
    let server = Server::new(move |asked: &Asked| {
        let mut answer = Answer::file(&directory, asked);
        let sum: usize = asked.path.bytes().map(usize::from).sum();
        match (sum + seed as usize + asked.before) % 5 {
            0 => answer.body[7] ^= 1,
            1 => answer.cut_at = Some(answer.body.len() / 2),
            2 => answer = Answer::status(500),
            3 => answer.body = vec![0; 1 << 20],
            _ => {}
        }
        answer
    });
    let machine = Machine::impatient(&scene, &server, Some(cache(&scene, 100 << 20)));
    let (mut right, mut errors) = (0, 0);
    for offset in (0..content.len() as u64 - 5000).step_by(5000) {
        match machine.read(offset, 5000) {
            Ok(bytes) => {
                assert_eq!(bytes, content[offset as usize..][..5000]);
                right += 1;
            }
            Err(DeviceError::Failed { .. }) => errors += 1,
            Err(other) => panic!("{other}"),
        }
    }
    println!("{right} reads, {errors} errors");
    assert!(right > 100, "{right}");
}
