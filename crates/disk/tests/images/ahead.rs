//! Fetching ahead: few waits, right bytes whatever the pack is, and never in the way of a read.

use crate::common::{KIB, Scene, noise};
use crate::device::{Machine, cache};
use crate::server::{Answer, Asked, Server};
use crate::training::{how, profile, published, scattered};
use base::{BlockDevice, Extent};
use disk::{AheadCounts, Cache, Foresight, ImageDevice, Plan, Source};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const DELAY: Duration = Duration::from_millis(50);

/// An image that was trained for the reads of one program.
struct Trained {
    scene: Scene,
    content: Vec<u8>,
    reads: Vec<Extent>,
}

impl Trained {
    fn new() -> Self {
        let (scene, content) = published();
        let len = content.len() as u64;
        let reads = scattered(40, len, 60);
        scene.train(&[profile("boot", len, &reads)], &how());
        Self {
            scene,
            content,
            reads,
        }
    }

    fn directory(&self) -> PathBuf {
        self.scene.images()
    }

    /// A machine, and the image on it, fetched ahead along its profile.
    fn attach(&self, server: &Server, cache: Option<Cache>) -> (Machine, ImageDevice) {
        let machine = Machine::far(&self.scene, server, cache);
        let device = self.foreseen(&machine);
        (machine, device)
    }

    fn foreseen(&self, machine: &Machine) -> ImageDevice {
        let trained = self.scene.trained();
        let foresight = trained.foresight(&*machine.source, vec!["boot".into()]);
        let (source, fetcher) = (Arc::clone(&machine.source), machine.fetcher.clone());
        ImageDevice::new(trained.index, source, fetcher).foreseen(foresight)
    }

    /// Does what the profile was recorded of; every byte is right.
    fn replay(&self, device: &ImageDevice) {
        for read in &self.reads {
            check(device, &self.content, *read);
        }
    }

    fn cache(&self) -> Option<Cache> {
        Some(cache(&self.scene, 100 << 20))
    }
}

fn check(device: &ImageDevice, content: &[u8], read: Extent) {
    let mut bytes = vec![1; read.len as usize];
    device.read_at(read.offset, &mut bytes).unwrap();
    let expected = &content[read.offset as usize..read.end() as usize];
    assert!(bytes == expected, "{read}");
}

/// Waits until what is fetched ahead has come to something.
fn settle(device: &ImageDevice, is_done: impl Fn(&AheadCounts) -> bool) -> AheadCounts {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let counts = device.ahead_counts();
        if is_done(&counts) {
            return counts;
        }
        assert!(Instant::now() < deadline, "{counts:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn chunk_requests(server: &Server) -> usize {
    let counts = server.counts();
    let chunks = counts.iter().filter(|(path, _)| path.ends_with(".cacnk"));
    chunks.map(|(_, count)| count).sum()
}

/// How many requests the first run of a trained program takes.
fn first_run() -> usize {
    let trained = Trained::new();
    let server = Server::files(trained.directory(), DELAY);
    let (machine, device) = trained.attach(&server, trained.cache());
    trained.replay(&device);
    // No chunk by itself, and each byte of the pack once.
    assert_eq!(chunk_requests(&server), 0);
    let (counts, uses) = (machine.fetcher.counts(), device.uses());
    let pack = &trained.scene.trained().packs[0];
    assert_eq!(counts.run_bytes, pack.bytes - pack.front_bytes);
    assert_eq!(counts.inflated_bytes, uses.inflated_bytes);
    assert_eq!(uses.fill_rate(), Some(1.0));
    assert_eq!(device.ahead_counts().used_chunks, counts.from_runs);
    // One wait after the other would be one for each of the sixty reads.
    assert!(uses.waits <= 12, "{uses:?}");
    drop((device, machine));
    // The next time there is nothing left to fetch.
    let before = server.requests();
    let (_machine, device) = trained.attach(&server, trained.cache());
    trained.replay(&device);
    assert_eq!(server.requests(), before + 1, "the pack's front");
    assert_eq!(device.uses().waits, 0);
    before
}

#[test]
fn what_a_program_reads_comes_with_a_pack_in_few_round_trips() {
    // As much is asked for at once as came in the time of an answer: beside others who use the
    // machine that is less, so requests are counted again.
    let mut runs = Vec::new();
    let is_few = |requests: &usize| *requests <= 16;
    while runs.len() < 3 && !runs.last().is_some_and(is_few) {
        runs.push(first_run());
    }
    assert!(runs.last().is_some_and(is_few), "{runs:?}");
}

#[test]
fn whatever_a_pack_is_the_bytes_are_right() {
    let trained = Trained::new();
    let pack = trained.scene.trained().packs[0].clone();
    let (front_bytes, file) = (pack.front_bytes as usize, format!("/{}", pack.file()));
    type Damage = Box<dyn Fn(&mut Vec<u8>) + Send + Sync>;
    let damages: [(&str, Damage); 6] = [
        ("missing", Box::new(|_| ())),
        ("empty", Box::new(Vec::clear)),
        (
            "only its front",
            Box::new(move |bytes| bytes.truncate(front_bytes)),
        ),
        ("cut", Box::new(|bytes| bytes.truncate(bytes.len() - 1))),
        (
            "changed in its front",
            Box::new(move |bytes| bytes[front_bytes / 2] ^= 1),
        ),
        (
            "changed in its chunks",
            Box::new(move |bytes| {
                let all = bytes[front_bytes..].iter_mut().step_by(9000);
                all.for_each(|byte| *byte ^= 1);
            }),
        ),
    ];
    for (name, damage) in damages {
        let (directory, path) = (trained.directory(), file.clone());
        let server = Server::new(move |asked: &Asked| {
            if asked.path != path {
                return Answer::file(&directory, asked);
            }
            let mut bytes = fs::read(directory.join(&path[1..])).unwrap();
            damage(&mut bytes);
            match asked.range {
                _ if name == "missing" => Answer::status(404),
                Some((first, last)) if (last as usize) < bytes.len() => Answer {
                    status: 206,
                    headers: format!("Content-Range: bytes {first}-{last}/{}\r\n", bytes.len()),
                    ..Answer::body(&bytes[first as usize..=last as usize])
                },
                _ => Answer::status(416),
            }
        });
        let (machine, device) = trained.attach(&server, trained.cache());
        trained.replay(&device);
        let counts = machine.fetcher.counts();
        assert!(counts.fetched > 0, "{name}: by chunks");
        let files = server.counts().into_keys();
        let chunks = files.filter(|path| path.ends_with(".cacnk")).count();
        assert!(counts.fetched <= chunks as u64, "{name}: each once");
        drop((device, machine));
        fs::remove_dir_all(trained.scene.path("cache")).unwrap();
    }
}

#[test]
fn a_server_without_ranges_sends_the_pack_once() {
    let trained = Trained::new();
    let directory = trained.directory();
    let server = Server::new(move |asked: &Asked| {
        let whole = Asked {
            range: None,
            path: asked.path.clone(),
            headers: String::new(),
            ..*asked
        };
        Answer::file(&directory, &whole)
    });
    let (_machine, device) = trained.attach(&server, None);
    trained.replay(&device);
    assert_eq!(chunk_requests(&server), 0);
    assert_eq!(
        server.requests(),
        2,
        "the front, and the rest: {:?}",
        server.counts()
    );
}

#[test]
fn a_profile_is_followed_when_it_is_recognised() {
    let (scene, content) = published();
    let len = content.len() as u64;
    // Both begin with what every mount reads.
    let mount = scattered(50, len, 6);
    let programs = [51, 52].map(|seed| [mount.clone(), scattered(seed, len, 30)].concat());
    let profiles = [("a", &programs[0]), ("b", &programs[1])];
    scene.train(
        &profiles.map(|(name, reads)| profile(name, len, reads)),
        &how(),
    );
    let server = Server::files(scene.images(), Duration::ZERO);
    let machine = Machine::far(&scene, &server, Some(cache(&scene, 100 << 20)));
    let trained = scene.trained();
    let foresight = trained.foresight(&*machine.source, Vec::new());
    let source = Arc::clone(&machine.source);
    let index = Arc::clone(&trained.index);
    let device = ImageDevice::new(index, source, machine.fetcher.clone()).foreseen(foresight);
    for read in &mount {
        check(&device, &content, *read);
    }
    assert_eq!(device.ahead_counts().followed, 0);
    for read in &programs[1][6..12] {
        check(&device, &content, *read);
    }
    assert_eq!(device.ahead_counts().followed, 1);
    // Only b's pack is read.
    let [a, b] = [0, 1].map(|at| format!("/{}", trained.packs[at].file()));
    settle(&device, |_| server.counts()[&b] > 1);
    settle(&device, |counts| counts.bytes > trained.packs[1].bytes / 4);
    assert_eq!(server.counts()[&a], 1, "its front");
    assert!(!device.follow("c"));
    assert!(device.follow("a"));
    assert_eq!(device.ahead_counts().followed, 2);
}

#[test]
fn a_profile_without_a_pack_is_followed_by_chunks() {
    let (scene, content) = published();
    let len = content.len() as u64;
    let reads = scattered(60, len, 20);
    let server = Server::files(scene.images(), DELAY);
    let machine = Machine::far(&scene, &server, Some(cache(&scene, 100 << 20)));
    let index = Arc::new(scene.index("base:1"));
    let foresight = Foresight {
        plans: vec![Plan::of_profile(&profile("boot", len, &reads), &index)],
        follow: vec!["boot".into()],
        ..Foresight::default()
    };
    let source = Arc::clone(&machine.source);
    let device = ImageDevice::new(index, source, machine.fetcher.clone()).foreseen(foresight);
    let (first, rest) = reads.split_at(4);
    first
        .iter()
        .for_each(|read| check(&device, &content, *read));
    // What is to come ahead comes while nothing is read, however busy the machine is.
    let (mut fetched, mut before) = (machine.fetcher.counts().fetched, 0);
    while fetched != before {
        std::thread::sleep(20 * DELAY);
        (before, fetched) = (fetched, machine.fetcher.counts().fetched);
    }
    rest.iter().for_each(|read| check(&device, &content, *read));
    let uses = device.uses();
    assert!(uses.waits <= 6, "{uses:?}");
    // On a busy machine an answer may come too late and be asked for again; a chunk comes once.
    assert!(machine.fetcher.counts().fetched <= server.counts().len() as u64);
    assert!(server.in_flight_most() <= 33, "{}", server.in_flight_most());
}

#[test]
fn what_is_read_from_front_to_back_is_under_way_before_it_is_asked_for() {
    let scene = Scene::new();
    let content = noise(61, 8000 * KIB);
    scene.put("base:1", &content);
    let server = Server::files(scene.images(), Duration::from_millis(20));
    let machine = Machine::far(&scene, &server, Some(cache(&scene, 100 << 20)));
    let foresight = Foresight {
        sequential: true,
        ..Foresight::default()
    };
    let device = machine.device.clone().foreseen(foresight);
    let mut extents = (0..8000 * KIB).step_by(64 << 10);
    extents.all(|offset| {
        check(&device, &content, Extent::new(offset, 64 << 10));
        true
    });
    let uses = device.uses();
    // On a busy machine an answer may come too late and be asked for again; a chunk comes once.
    assert!(chunk_requests(&server) >= 125);
    let asked = server.counts().into_keys();
    assert_eq!(asked.filter(|path| path.ends_with(".cacnk")).count(), 125);
    assert_eq!(machine.fetcher.counts().fetched, 125);
    assert!(uses.waits < 60, "125 chunks, one after the other: {uses:?}");
    assert!(server.in_flight_most() >= 4, "{}", server.in_flight_most());
    let counts = device.ahead_counts();
    assert!(counts.used_chunks > 60, "{counts:?}");
    // Reads that are no stream are not followed by anything.
    let machine = Machine::far(&scene, &server, None);
    let foresight = Foresight {
        sequential: true,
        ..Foresight::default()
    };
    let device = machine.device.clone().foreseen(foresight);
    let mut random = sim::Random::new(62);
    for _ in 0..20 {
        check(
            &device,
            &content,
            Extent::new(random.below(7900 * KIB), 4096),
        );
    }
    let counts = device.ahead_counts();
    assert!(counts.chunks <= 40, "{counts:?}");
}

#[test]
fn the_rest_of_an_image_comes_while_it_is_used_if_that_is_wanted() {
    let scene = Scene::new();
    let content = noise(63, 8000 * KIB);
    scene.put("base:1", &content);
    // Long enough that the line counts, and not how fast a busy machine works.
    let server = Server::files(scene.images(), Duration::from_millis(80));
    let whole = Foresight {
        rest: true,
        ..Foresight::default()
    };
    let machine = Machine::far(&scene, &server, Some(cache(&scene, 100 << 20)));
    let device = machine.device.clone().foreseen(whole.clone());
    check(&device, &content, Extent::new(5000 * KIB, 4096));
    let deadline = Instant::now() + Duration::from_secs(30);
    while machine.fetcher.counts().fetched < 125 {
        assert!(Instant::now() < deadline, "{:?}", machine.counts());
        std::thread::sleep(Duration::from_millis(5));
    }
    // What has come is in the cache a little later.
    assert!(machine.fetcher.finish(Duration::from_secs(20)));
    // On a busy machine an answer may come too late and be asked for again; a chunk comes once.
    let asked = server.counts().into_keys();
    assert_eq!(asked.filter(|path| path.ends_with(".cacnk")).count(), 125);
    assert!(server.in_flight_most() > 8, "{}", server.in_flight_most());
    let waits = device.uses().waits;
    let before = server.requests();
    check(&device, &content, Extent::new(0, 8000 * KIB));
    assert_eq!((device.uses().waits, server.requests()), (waits, before));
    drop((device, machine));
    // Not into more than half of the cache, and not where there is none.
    let small = Cache::open(scene.path("small"), 2 << 20).unwrap();
    for (cache, most) in [(Some(small), 20), (None, 1)] {
        let machine = Machine::far(&scene, &server, cache);
        let device = machine.device.clone().foreseen(whole.clone());
        check(&device, &content, Extent::new(5000 * KIB, 4096));
        let (mut fetched, mut before) = (machine.fetcher.counts().fetched, 0);
        while fetched != before {
            std::thread::sleep(Duration::from_millis(500));
            (before, fetched) = (fetched, machine.fetcher.counts().fetched);
        }
        assert!(fetched <= most, "{fetched} of {most}");
    }
}

#[test]
fn machines_that_share_a_cache_fetch_a_pack_once_together() {
    let trained = Trained::new();
    let server = Server::files(trained.directory(), Duration::from_millis(100));
    let attach = || {
        let (machine, device) = trained.attach(&server, trained.cache());
        trained.replay(&device);
        let counts = machine.fetcher.counts();
        counts.fetched + counts.from_runs
    };
    let fetched: u64 = std::thread::scope(|scope| {
        let machines: Vec<_> = (0..3).map(|_| scope.spawn(attach)).collect();
        machines
            .into_iter()
            .map(|machine| machine.join().unwrap())
            .sum()
    });
    let pack = &trained.scene.trained().packs[0];
    let front = pack.read_front(trained.scene.repository.source());
    assert_eq!(fetched, front.unwrap().chunks().len() as u64);
}

#[test]
fn without_a_cache_no_more_is_fetched_ahead_than_half_of_the_memory() {
    let (scene, content) = published();
    let len = content.len() as u64;
    let all = [Extent::new(0, len)];
    scene.train(&[profile("all", len, &all)], &how());
    let server = Server::files(scene.images(), Duration::ZERO);
    // It has 1 MiB of memory.
    let machine = Machine::far(&scene, &server, None);
    let trained = scene.trained();
    let foresight = trained.foresight(&*machine.source, vec!["all".into()]);
    let source = Arc::clone(&machine.source);
    let index = trained.index;
    let device = ImageDevice::new(index, source, machine.fetcher.clone()).foreseen(foresight);
    settle(&device, |counts| counts.chunks > 0 && counts.bytes > 0);
    std::thread::sleep(Duration::from_millis(50));
    let counts = device.ahead_counts();
    assert!(counts.chunks * 256 * KIB <= (1 << 20), "{counts:?}");
    // It goes on as chunks are read.
    for offset in (0..len - 4096).step_by(4096) {
        check(&device, &content, Extent::new(offset, 4096));
    }
    let counts = device.ahead_counts();
    assert!(counts.used_chunks >= 8, "{counts:?}");
}

#[test]
fn who_waits_is_served_before_what_can_wait() {
    let trained = Trained::new();
    let directory = trained.directory();
    let packs = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&packs);
    // Packs do not come at all.
    let server = Server::new(move |asked: &Asked| {
        let is_run = asked.path.ends_with(".azp") && asked.range.is_some_and(|(at, _)| at > 0);
        if is_run {
            counting.fetch_add(1, Ordering::SeqCst);
        }
        Answer {
            is_silent: is_run,
            ..Answer::file(&directory, asked)
        }
    });
    let machine = Machine::impatient(&trained.scene, &server, None);
    let device = trained.foreseen(&machine);
    let hot = profile("boot", trained.content.len() as u64, &trained.reads).hot();
    let cold = (0..700 * KIB)
        .step_by(4096)
        .map(|offset| Extent::new(offset, 4096))
        .filter(|extent| !hot.overlaps(*extent));
    for extent in cold.take(20) {
        check(&device, &trained.content, extent);
    }
    assert!(packs.load(Ordering::SeqCst) > 0);
    assert_eq!(machine.fetcher.counts().from_runs, 0);
    // And what was to come with the pack comes by itself, after a while.
    check(&device, &trained.content, trained.reads[0]);
}

#[test]
fn when_the_runtime_ends_reads_end_too() {
    let trained = Trained::new();
    let server = Server::files(trained.directory(), Duration::from_millis(20));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let options = disk::HttpOptions::default();
    let handle = runtime.handle().clone();
    let source: Arc<dyn Source> =
        Arc::new(disk::Http::new(&server.url(), &options, handle.clone()).unwrap());
    let fetcher = disk::Fetcher::new(handle, None, 16 << 20);
    let image = trained.scene.trained();
    let foresight = image.foresight(&*source, Vec::new());
    let device = ImageDevice::new(image.index, source, fetcher).foreseen(foresight);
    drop(runtime);
    assert!(device.follow("boot"));
    let mut bytes = vec![0; 4096];
    for read in &trained.reads {
        // Zeros are known; nothing else can be read.
        let _ = device.read_at(read.offset, &mut bytes);
    }
    assert_eq!(device.ahead_counts().bytes, 0);
}
