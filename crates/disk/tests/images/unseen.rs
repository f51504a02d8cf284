//! Runs of a program that were not recorded: of the same version and of the next one.

use crate::common::{KIB, Scene, noise};
use crate::device::Machine;
use crate::server::Server;
use crate::training::{how, profile, published, scattered};
use base::{BlockDevice, Extent};
use disk::{Cache, Foresight, ImageDevice, Profile, Trained, train};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So long that what the processors do beside it hardly counts.
const DELAY: Duration = Duration::from_millis(100);
const LEN: u64 = 16_000 * KIB;

/// What one run of a program reads: nine of ten of the same places, in an order of its own, and one
/// place that no other run reads.
fn run(program: &[Extent], seed: u64) -> Vec<Extent> {
    let mut random = sim::Random::new(seed);
    let mut reads = program.to_vec();
    reads.retain(|_| random.below(10) > 0);
    reads.extend(scattered(seed, LEN, 1));
    for at in (1..reads.len()).rev() {
        reads.swap(at, random.below(at as u64 + 1) as usize);
    }
    reads
}

fn trained(scene: &Scene, name: &str) -> Trained {
    let source = scene.repository.source();
    let (version, manifest) = (scene.version(name), scene.manifest(name));
    Trained::open(source, version, &manifest, &scene.trust()).unwrap()
}

fn teach(scene: &Scene, name: &str, profiles: &[Profile]) {
    let version = scene.version(name);
    train(
        &scene.repository,
        version,
        profiles,
        &how(),
        &scene.key,
        &|_| {},
    )
    .unwrap();
}

/// For how long a run waits in all, with nothing here at first; every byte is right. Without a
/// version's name, nothing is foreseen.
fn waited(scene: &Scene, trained_as: Option<&str>, content: &[u8], reads: &[Extent]) -> Duration {
    let server = Server::files(scene.images(), DELAY);
    // What is fetched ahead in another order than it is read must have a place until then.
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), 100 << 20).unwrap();
    let machine = Machine::far(scene, &server, Some(cache));
    let source = Arc::clone(&machine.source);
    // Fronts of packs come before anything is read: that is waiting, too.
    let begun = Instant::now();
    let (index, foresight) = match trained_as {
        None => (Arc::new(scene.index("base:1")), Foresight::default()),
        Some(name) => {
            let trained = trained(scene, name);
            let foresight = trained.foresight(&*source, vec!["tool".into()]);
            (trained.index, foresight)
        }
    };
    let attached = begun.elapsed();
    let device = ImageDevice::new(index, source, machine.fetcher.clone()).foreseen(foresight);
    for read in reads {
        let mut bytes = vec![1; read.len as usize];
        device.read_at(read.offset, &mut bytes).unwrap();
        assert!(bytes == content[read.offset as usize..read.end() as usize]);
    }
    attached + device.uses().wait_time
}

/// How often a run may be timed.
const RUNS_MAX: usize = 3;

#[test]
fn a_run_that_nobody_has_recorded_waits_a_fifth_as_long_also_on_the_next_version() {
    let scene = Scene::new();
    let mut content = noise(50, LEN);
    scene.put("base:1", &content);
    let program = scattered(51, LEN, 100);
    let recorded = |seed| profile("tool", LEN, &run(&program, seed));
    teach(&scene, "base:1", &[recorded(1).merged(&recorded(2))]);
    let reads = run(&program, 3);

    let before = waited(&scene, None, &content, &reads);
    // Where other tests use the processors, some of the time is theirs.
    let least = |name: &str, content: &[u8]| {
        let run = || waited(&scene, Some(name), content, &reads);
        let mut after = run();
        for _ in 1..RUNS_MAX {
            if after * 5 > before {
                after = after.min(run());
            }
        }
        after
    };
    let after = least("base:1", &content);
    assert!(before > DELAY * 40, "{before:?}");
    assert!(after * 5 <= before, "{after:?} of {before:?}");

    // A hundredth of the image is another one, and nobody has recorded anything there.
    content[2_000_000..2_160_000].fill(9);
    scene.put("base:2", &content);
    let source = scene.repository.source();
    let version = scene.version("base:1");
    let training = disk::Training::find(source, version, &scene.trust()).unwrap();
    let profiles = training.unwrap().profiles(source).unwrap();
    teach(&scene, "base:2", &profiles);
    let next = least("base:2", &content);
    assert!(next * 5 <= before, "{next:?} of {before:?}");
}

#[test]
fn what_no_profile_has_brings_along_what_lies_around_it() {
    let (scene, content) = published();
    let len = content.len() as u64;
    // Each other block is one program's, and the others are read by somebody else, in no order.
    let blocks = |first: u64| {
        let blocks = (first..160).step_by(2);
        blocks.map(|block| Extent::new(block * 4 * KIB, 4 * KIB))
    };
    let known: Vec<_> = blocks(0).collect();
    scene.train(&[profile("tool", len, &known)], &how());
    let mut reads: Vec<_> = blocks(1).collect();
    let mut random = sim::Random::new(52);
    for at in (1..reads.len()).rev() {
        reads.swap(at, random.below(at as u64 + 1) as usize);
    }
    let server = Server::files(scene.images(), DELAY);
    let directory = tempfile::tempdir().unwrap();
    let cache = Cache::open(directory.path(), 100 << 20).unwrap();
    let machine = Machine::far(&scene, &server, Some(cache));
    let source = Arc::clone(&machine.source);
    let trained = scene.trained();
    let foresight = trained.foresight(&*source, Vec::new());
    let device = ImageDevice::new(trained.index, source, machine.fetcher.clone());
    let device = device.foreseen(foresight);
    for read in &reads {
        let mut bytes = vec![1; read.len as usize];
        device.read_at(read.offset, &mut bytes).unwrap();
        assert!(bytes == content[read.offset as usize..read.end() as usize]);
    }
    // Three chunks of the grid, in requests of which not all are under way at once. One by one it
    // would be one wait for each of the eighty blocks.
    let uses = device.uses();
    assert!(uses.waits <= 20, "{uses:?}");
    assert_eq!(device.ahead_counts().followed, 0);
}
