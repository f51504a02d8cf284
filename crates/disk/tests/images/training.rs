//! Images that were trained: the same bytes, cut along what is read.

use crate::casync::casync;
use crate::common::{KIB, Scene, noise, tag};
use crate::device::Machine;
use base::{BlockDevice, Extent};
use disk::gc::{Collecting, collect};
use disk::profile::UNIT_BYTES;
use disk::{
    DiskError, HowToTrain, ImageDevice, Index, Profile, SigningKey, Trace, Trained, Training,
    TrainingReport, Trust, train,
};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

/// Extents of 4 to 24 KiB here and there, in no order, as programs read files.
pub(crate) fn scattered(seed: u64, image_bytes: u64, count: usize) -> Vec<Extent> {
    let mut random = sim::Random::new(seed);
    let units = image_bytes / UNIT_BYTES - 6;
    let extent = |_| {
        let offset = random.below(units) * UNIT_BYTES;
        Extent::new(offset, random.within(1..7) * UNIT_BYTES)
    };
    (0..count).map(extent).collect()
}

/// What is recorded when these extents are read.
pub(crate) fn profile(name: &str, image_bytes: u64, reads: &[Extent]) -> Profile {
    let mut trace = Trace::new(image_bytes);
    for (number, read) in reads.iter().enumerate() {
        trace.on_read(Duration::from_millis(20 * number as u64), *read);
    }
    Profile::new(name, &trace).unwrap()
}

impl Scene {
    pub(crate) fn train(&self, profiles: &[Profile], how: &HowToTrain) -> TrainingReport {
        let version = self.version("base:1");
        train(&self.repository, version, profiles, how, &self.key, &|_| {}).unwrap()
    }

    pub(crate) fn trained(&self) -> Trained {
        let source = self.repository.source();
        let manifest = self.manifest("base:1");
        Trained::open(source, self.version("base:1"), &manifest, &self.trust()).unwrap()
    }

    fn training(&self) -> Option<Training> {
        let source = self.repository.source();
        Training::find(source, self.version("base:1"), &self.trust()).unwrap()
    }
}

pub(crate) fn how() -> HowToTrain {
    HowToTrain::new(crate::common::TIME + 100)
}

/// Data, zeros, and an end off every grid.
pub(crate) fn published() -> (Scene, Vec<u8>) {
    let scene = Scene::new();
    let mut content = noise(30, 3000 * KIB);
    content[700 << 10..1200 << 10].fill(0);
    content.extend(b"the end");
    let how = disk::Publishing {
        chunk_bytes: 256 << 10,
        ..Scene::how("base:1")
    };
    scene.publish(&scene.image(&content), &how);
    (scene, content)
}

/// A machine that reads the trained image from the repository's directory.
fn trained_machine(scene: &Scene) -> (Machine, ImageDevice) {
    let machine = Machine::near(scene, None);
    let source = Arc::clone(&machine.source);
    let trained = scene.trained();
    let device = ImageDevice::new(trained.index, source, machine.fetcher.clone());
    let device = device.cut_from(trained.uncut);
    (machine, device)
}

fn read(device: &ImageDevice, extent: Extent) -> Vec<u8> {
    let mut bytes = vec![1; extent.len as usize];
    device.read_at(extent.offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_trained_image_has_the_same_bytes_for_us_and_for_casync() {
    let (scene, content) = published();
    let before = scene.version("base:1");
    let others = fs::read(scene.images().join("base@1.caibx")).unwrap();
    let reads = scattered(1, content.len() as u64, 40);
    let report = scene.train(&[profile("boot", content.len() as u64, &reads)], &how());
    assert_eq!(report.profiles, ["boot"]);
    assert!(
        report.cut_chunks >= 10 && report.new_chunks > 40,
        "{report:?}"
    );
    // Neither the version nor what casync finds under the tag's name is another one.
    assert_eq!(scene.version("base:1"), before);
    let same = fs::read(scene.images().join("base@1.caibx")).unwrap();
    assert_eq!(same, others);
    assert_eq!(scene.content("base:1"), content);
    let trained = scene.trained();
    assert_eq!(trained.index.chunk_count() as u64, report.chunks);
    let (_machine, device) = trained_machine(&scene);
    let whole = Extent::new(0, content.len() as u64);
    assert_eq!(read(&device, whole), content);
    let index = scene
        .images()
        .join(scene.training().unwrap().index_file().as_str());
    let path = |name: &str| scene.path(name).to_str().unwrap().to_owned();
    let store = format!("--store={}", path("images/default.castr"));
    let arguments = ["extract", &store, index.to_str().unwrap(), &path("out.raw")];
    if casync(&arguments).is_some() {
        assert!(fs::read(path("out.raw")).unwrap() == content);
    }
}

#[test]
fn what_a_profile_reads_fills_its_chunks() {
    let (scene, content) = published();
    let reads = scattered(2, content.len() as u64, 60);
    let plain = Machine::near(&scene, None);
    for extent in &reads {
        let expected = &content[extent.offset as usize..extent.end() as usize];
        assert_eq!(read(&plain.device, *extent), expected);
    }
    let recorded = Profile::new("boot", &plain.device.trace()).unwrap();
    assert_eq!(
        recorded.hot(),
        profile("boot", content.len() as u64, &reads).hot()
    );
    let fill = plain.device.uses().fill_rate().unwrap();
    assert!(fill < 0.5, "an untrained image: {fill}");
    scene.train(&[recorded], &how());
    let (_machine, device) = trained_machine(&scene);
    for extent in &reads {
        let expected = &content[extent.offset as usize..extent.end() as usize];
        assert_eq!(read(&device, *extent), expected);
    }
    let uses = device.uses();
    assert_eq!(uses.fill_rate(), Some(1.0), "{uses:?}");
    assert!(
        uses.touched_bytes < uses.asked_bytes,
        "some were zeros, or read twice"
    );
}

#[test]
fn profiles_are_added_replaced_and_forgotten() {
    let (scene, content) = published();
    let len = content.len() as u64;
    let boot = profile("boot", len, &scattered(3, len, 20));
    let tool = profile("tool", len, &scattered(4, len, 10));
    assert_eq!(
        scene.train(std::slice::from_ref(&boot), &how()).profiles,
        ["boot"]
    );
    let first = scene.training().unwrap();
    assert_eq!(
        scene.train(std::slice::from_ref(&tool), &how()).profiles,
        ["boot", "tool"]
    );
    let second = scene.training().unwrap();
    assert_eq!((first.count, second.count), (1, 2));
    for (pack, profile) in second.packs().iter().zip([&boot, &tool]) {
        let front = pack.read_front(scene.repository.source()).unwrap();
        assert_eq!(front.profile(), profile);
        let index = scene.trained().index;
        let specs: Vec<_> = profile
            .chunks(&index)
            .iter()
            .map(|&at| index.spec(at))
            .collect();
        let packed: Vec<_> = front.chunks().iter().map(|chunk| chunk.spec).collect();
        assert!(specs.len() > packed.len(), "without those of zeros");
        assert!(packed.iter().all(|spec| specs.contains(spec)));
        let length = fs::metadata(scene.images().join(pack.file().as_str()));
        assert_eq!(length.unwrap().len(), pack.bytes);
    }
    let other = profile("tool", len, &scattered(5, len, 10));
    assert_eq!(
        scene.train(std::slice::from_ref(&other), &how()).profiles,
        ["boot", "tool"]
    );
    let forgetful = HowToTrain {
        forget: vec!["boot".into()],
        ..how()
    };
    let report = scene.train(&[], &forgetful);
    assert_eq!(report.profiles, ["tool"]);
    // No cut of what was forgotten is left.
    let fresh = Scene::new();
    let publishing = disk::Publishing {
        chunk_bytes: 256 << 10,
        ..Scene::how("base:1")
    };
    fresh.publish(&fresh.image(&content), &publishing);
    fresh.train(&[other], &how());
    assert_eq!(scene.trained().index, fresh.trained().index);
}

#[test]
fn who_reads_a_training_that_was_collected_reads_the_version() {
    let (scene, content) = published();
    let len = content.len() as u64;
    scene.train(&[profile("boot", len, &scattered(8, len, 20))], &how());
    let (_machine, device) = trained_machine(&scene);
    let part = &content[..1000 << 10];
    assert!(read(&device, Extent::new(0, 1000 * KIB)) == part);
    let forgetful = HowToTrain {
        forget: vec!["boot".into()],
        ..how()
    };
    scene.train(&[], &forgetful);
    let gone = collect(&scene.repository, &Collecting::default()).unwrap();
    assert!(gone.chunks > 20, "{gone:?}");
    assert!(read(&device, Extent::new(0, len)) == content);
}

#[test]
fn without_cuts_a_profile_has_a_pack_of_the_chunks_that_there_are() {
    let (scene, content) = published();
    let len = content.len() as u64;
    let boot = profile("boot", len, &scattered(6, len, 5));
    let uncut = HowToTrain {
        cut: false,
        ..how()
    };
    let dry = HowToTrain {
        dry_run: true,
        ..how()
    };
    let tried = scene.train(std::slice::from_ref(&boot), &dry);
    assert_eq!(scene.training(), None);
    let report = scene.train(std::slice::from_ref(&boot), &uncut);
    assert_eq!((report.cut_chunks, report.new_chunks), (0, 0));
    assert!(report.pack_bytes > 0);
    assert_eq!(*scene.trained().index, scene.index("base:1"));
    let cut = scene.train(&[boot], &how());
    assert_eq!(
        (cut.new_chunks, cut.new_bytes),
        (tried.new_chunks, tried.new_bytes)
    );
}

#[test]
fn a_training_that_is_damaged_or_of_somebody_else_is_passed_over() {
    let (scene, content) = published();
    let len = content.len() as u64;
    scene.train(&[profile("boot", len, &scattered(7, len, 20))], &how());
    let plain = scene.index("base:1");
    assert_ne!(*scene.trained().index, plain);
    let record = Training::file_of(scene.version("base:1"));
    let index = scene.training().unwrap().index_file();
    for file in [record, index] {
        let path = scene.images().join(file.as_str());
        let good = fs::read(&path).unwrap();
        let mut flipped = good.clone();
        flipped[good.len() / 2] ^= 1;
        for bad in [&flipped[..], &good[..good.len() - 1], b"", b"nonsense"] {
            fs::write(&path, bad).unwrap();
            let trained = scene.trained();
            assert_eq!(*trained.index, plain, "{file}");
            assert!(trained.packs.is_empty());
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(*scene.trained().index, plain);
        fs::write(&path, good).unwrap();
        assert_ne!(*scene.trained().index, plain);
    }
    // Somebody else's, who is trusted by nobody here.
    let other = SigningKey::open_or_create(&scene.path("other")).unwrap();
    let how = HowToTrain {
        trust: Trust::Anybody,
        ..how()
    };
    let version = scene.version("base:1");
    train(&scene.repository, version, &[], &how, &other, &|_| {}).unwrap();
    assert_eq!(*scene.trained().index, plain);
}

#[test]
fn a_check_finds_what_is_wrong_with_a_training() {
    let (scene, content) = published();
    let len = content.len() as u64;
    scene.train(&[profile("boot", len, &scattered(11, len, 10))], &how());
    let checking = disk::check::Checking {
        trust: scene.trust(),
        read_chunks: true,
        workers: 2,
    };
    let check = || {
        let source = scene.repository.source();
        disk::check::check(source, &[tag("base:1")], &checking, &|_, _| {})
    };
    let good = check();
    assert_eq!(good.finding_count, 0);
    let plain: std::collections::BTreeSet<_> =
        scene.index("base:1").ids().iter().copied().collect();
    assert!(
        good.chunks > plain.len() as u64,
        "those of the trained index, too"
    );
    let training = scene.training().unwrap();
    let record = Training::file_of(scene.version("base:1"));
    for file in [training.packs()[0].file(), training.index_file(), record] {
        let path = scene.images().join(file.as_str());
        let good = fs::read(&path).unwrap();
        fs::write(&path, b"damaged").unwrap();
        let report = check();
        let files: Vec<_> = report
            .findings
            .iter()
            .map(|finding| &finding.file)
            .collect();
        assert_eq!(files, [&file]);
        assert_eq!(report.versions, 1, "it can be read all the same");
        fs::write(&path, good).unwrap();
    }
}

#[test]
fn a_profile_is_carried_over_to_the_next_version() {
    let (scene, mut content) = published();
    let len = content.len() as u64;
    let reads = scattered(8, len, 30);
    scene.train(&[profile("boot", len, &reads)], &how());
    // A hundredth of the image is another one, and it is longer.
    content[300_000..330_000].fill(9);
    content.resize(content.len() + 100_000, 7);
    let publishing = disk::Publishing {
        chunk_bytes: 256 << 10,
        ..Scene::how("base:2")
    };
    scene.publish(&scene.image(&content), &publishing);
    let source = scene.repository.source();
    let profiles = scene.training().unwrap().profiles(source).unwrap();
    assert_eq!(profiles.len(), 1);
    let version = scene.version("base:2");
    let report = train(
        &scene.repository,
        version,
        &profiles,
        &how(),
        &scene.key,
        &|_| {},
    );
    // What both versions have is cut the same, so it is there.
    assert!(report.unwrap().new_chunks < 12);
    let manifest = scene.manifest("base:2");
    let trained = Trained::open(source, version, &manifest, &scene.trust()).unwrap();
    let (machine, _) = trained_machine(&scene);
    let device = ImageDevice::new(
        trained.index,
        machine.source.clone(),
        machine.fetcher.clone(),
    );
    for extent in &reads {
        let expected = &content[extent.offset as usize..extent.end() as usize];
        assert_eq!(read(&device, *extent), expected);
    }
    assert!(device.uses().fill_rate().unwrap() > 0.95);
}

#[test]
fn trainings_are_kept_with_their_version_and_collected_with_it() {
    let (scene, content) = published();
    let len = content.len() as u64;
    let boot = profile("boot", len, &scattered(9, len, 20));
    scene.train(std::slice::from_ref(&boot), &how());
    let collecting = Collecting::default();
    let collected = collect(&scene.repository, &collecting).unwrap();
    assert_eq!(
        (collected.chunks, collected.packs, collected.indexes),
        (0, 0, 0)
    );
    let (_machine, device) = trained_machine(&scene);
    assert_eq!(read(&device, Extent::new(0, len)), content);
    // Another profile in its place: what the first one needed alone goes.
    let other = profile("boot", len, &scattered(10, len, 20));
    scene.train(&[other], &how());
    let collected = collect(&scene.repository, &collecting).unwrap();
    assert_eq!((collected.packs, collected.indexes), (1, 1));
    assert!(collected.chunks > 10, "{collected:?}");
    let (_machine, device) = trained_machine(&scene);
    assert_eq!(read(&device, Extent::new(0, len)), content);
    assert_eq!(scene.content("base:1"), content);
    // A training that cannot be read makes nothing garbage.
    let record = scene
        .images()
        .join(Training::file_of(scene.version("base:1")).as_str());
    let good = fs::read(&record).unwrap();
    fs::write(&record, b"damaged").unwrap();
    assert!(matches!(
        collect(&scene.repository, &collecting),
        Err(DiskError::Damaged { .. })
    ));
    fs::write(&record, good).unwrap();
    scene.repository.remove_tag(&tag("base:1")).unwrap();
    let collected = collect(&scene.repository, &collecting).unwrap();
    assert_eq!((collected.versions, collected.packs), (2, 1));
    assert_eq!(collected.kept_chunks, 0);
    assert_eq!(scene.files("default.castr") + scene.files("trainings"), 0);
}

#[test]
fn more_profiles_than_a_version_can_have_are_refused() {
    let scene = Scene::new();
    scene.put("base:1", &noise(31, 64 * KIB));
    let version = scene.version("base:1");
    let profiles: Vec<_> = (0..65)
        .map(|number| profile(&format!("p{number}"), 64 << 10, &[]))
        .collect();
    let trained = |profiles: &[Profile]| {
        train(
            &scene.repository,
            version,
            profiles,
            &how(),
            &scene.key,
            &|_| {},
        )
    };
    assert!(matches!(
        trained(&profiles),
        Err(DiskError::TooManyProfiles(64))
    ));
    assert_eq!(trained(&profiles[..64]).unwrap().profiles.len(), 64);
    let read = Index::from_bytes(&scene.trained().index.to_bytes()).unwrap();
    assert_eq!(read, scene.index("base:1"));
}
