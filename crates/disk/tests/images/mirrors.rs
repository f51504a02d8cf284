//! Several servers with the same files: slow, wrong, flapping, behind.

use crate::common::{Scene, noise};
use crate::device::Machine;
use crate::server::{Answer, Asked, Server};
use base::{BlockDevice, Extent};
use disk::source::{FetchError, MirrorCounts, Refusal, Wanted, fetch_chunk};
use disk::{Damage, FileName, Http, HttpOptions, Manifest, Mirrors, Source};
use std::cell::OnceCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

struct Site {
    mirrors: Mirrors,
    runtime: Runtime,
}

impl Site {
    fn new(servers: &[&Server]) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let mirrors = mirrors(servers, &runtime);
        Self { mirrors, runtime }
    }

    fn read(&self, file: &FileName, wanted: Wanted) -> Result<bytes::Bytes, Refusal> {
        let read = self.runtime.block_on(self.mirrors.read(file, wanted));
        read.map_err(|error| error.refusal)
    }

    fn counts(&self) -> Vec<MirrorCounts> {
        self.mirrors
            .counts()
            .into_iter()
            .map(|(_, counts)| counts)
            .collect()
    }
}

fn mirrors(servers: &[&Server], runtime: &Runtime) -> Mirrors {
    let options = HttpOptions {
        pause_time: Duration::from_millis(5),
        silence_time: Duration::from_millis(500),
        try_time: Duration::from_secs(1),
        ..HttpOptions::default()
    };
    let open = |server: &&Server| -> Arc<dyn Source> {
        Arc::new(Http::new(&server.url(), &options, runtime.handle().clone()).unwrap())
    };
    let sources = servers.iter().map(open).collect();
    Mirrors::new(sources, runtime.handle().clone()).unwrap()
}

fn scene() -> (Scene, Vec<u8>) {
    let scene = Scene::new();
    let content = noise(70, 1500 << 10);
    scene.put("base:1", &content);
    (scene, content)
}

fn path(scene: &Scene) -> PathBuf {
    scene.images()
}

/// All chunks of the image, by their names.
fn chunks(scene: &Scene) -> Vec<FileName> {
    let index = scene.index("base:1");
    index.ids().iter().map(FileName::of_chunk).collect()
}

#[test]
fn a_mirror_that_is_slow_is_not_waited_for_and_then_not_asked() {
    let (scene, _) = scene();
    let quick = Server::files(path(&scene), Duration::ZERO);
    let slow = Server::files(path(&scene), Duration::from_millis(900));
    let site = Site::new(&[&slow, &quick]);
    for file in chunks(&scene) {
        let read = site.read(&file, Wanted::whole(1 << 20)).unwrap();
        assert_eq!(
            read,
            std::fs::read(path(&scene).join(file.as_str())).unwrap()
        );
    }
    let counts = site.counts();
    assert!(counts[1].answers >= 20, "{counts:?}");
    assert!(slow.requests() <= 4, "{}", slow.requests());
}

#[test]
fn a_mirror_whose_bytes_are_wrong_is_marked_and_another_one_asked() {
    let (scene, content) = scene();
    let directory = path(&scene);
    let wrong = Server::new(move |asked: &Asked| {
        let mut answer = Answer::file(&directory, asked);
        if !asked.path.starts_with("/tags/") {
            answer.body[20] ^= 1;
        }
        answer
    });
    let right = Server::files(path(&scene), Duration::from_millis(1));
    let both = OnceCell::new();
    let machine = Machine::new(&scene, None, 1 << 20, |runtime| {
        let mirrors = both.get_or_init(|| mirrors(&[&wrong, &right], runtime));
        Arc::new(mirrors.clone())
    });
    // Also where no chunk is read.
    let version = scene.version("base:1");
    let manifest = Manifest::read(&*machine.source, version, &scene.trust()).unwrap();
    assert_eq!(
        manifest.read_index(&*machine.source).unwrap(),
        scene.index("base:1")
    );
    let len = content.len() as u64;
    for offset in (0..len).step_by(64 << 10) {
        let extent = Extent::new(offset, (64 << 10).min(len - offset));
        let mut bytes = vec![0; extent.len as usize];
        machine.device.read_at(offset, &mut bytes).unwrap();
        assert!(bytes == content[offset as usize..extent.end() as usize]);
    }
    // On a busy machine the right one may take long, and then the wrong one is asked as well.
    let seconds = both.get().unwrap().seconds();
    let requests = wrong.requests();
    assert!(requests as u64 <= 3 + seconds, "{requests}, {seconds}");
    // If all are wrong, that is what is said.
    let both = Site::new(&[&wrong, &wrong]);
    let spec = scene.index("base:1").spec(0);
    let fetched = both.runtime.block_on(fetch_chunk(&both.mirrors, spec));
    let is_damage = |error| {
        matches!(error, FetchError::Damaged { damage, .. } if {
            matches!(damage, Damage::Frame | Damage::Digest | Damage::ChunkShort(_))
        })
    };
    assert!(is_damage(fetched.unwrap_err()));
    assert_eq!(
        both.counts().iter().map(|mirror| mirror.wrong).sum::<u64>(),
        4
    );
}

#[test]
fn mirrors_that_fail_now_and_then_or_are_behind_are_made_up_for() {
    let (scene, _) = scene();
    let directory = path(&scene);
    // Every third answer is an error that does not get better; some files are not there yet.
    let flapping = Server::new(move |asked: &Asked| {
        let sum: usize = asked.path.bytes().map(usize::from).sum();
        match sum % 3 {
            0 => Answer::status(403),
            1 => Answer::status(404),
            _ => Answer::file(&directory, asked),
        }
    });
    let good = Server::files(path(&scene), Duration::from_millis(3));
    let site = Site::new(&[&flapping, &good]);
    for file in chunks(&scene) {
        let read = site.read(&file, Wanted::whole(1 << 20)).unwrap();
        assert_eq!(
            read,
            std::fs::read(path(&scene).join(file.as_str())).unwrap()
        );
    }
    // On a thread that waits, too.
    let file = &chunks(&scene)[0];
    let part = disk::source::Part::Extent(Extent::new(1, 10));
    assert_eq!(site.mirrors.read_now(file, part).unwrap().len(), 10);
}

#[test]
fn there_is_no_file_only_if_all_say_so() {
    let (scene, _) = scene();
    let missing = FileName::new("default.castr/none").unwrap();
    let good = Server::files(path(&scene), Duration::ZERO);
    let other = Server::files(path(&scene), Duration::ZERO);
    let broken = Server::new(|_: &Asked| Answer::status(403));
    let wanted = Wanted::whole(100);
    let both = Site::new(&[&good, &other]);
    assert_eq!(both.read(&missing, wanted), Err(Refusal::NotFound));
    for pair in [[&good, &broken], [&broken, &good]] {
        let site = Site::new(&pair);
        assert_eq!(site.read(&missing, wanted), Err(Refusal::Status(403)));
    }
    let runtime = &both.runtime;
    assert!(Mirrors::new(Vec::new(), runtime.handle().clone()).is_err());
    assert!(both.mirrors.place().contains(", "));
}

#[test]
fn a_mirror_that_goes_away_is_left_and_comes_back() {
    let (scene, _) = scene();
    let files = chunks(&scene);
    let gone = Server::files(path(&scene), Duration::ZERO);
    let stays = Server::files(path(&scene), Duration::from_millis(150));
    let site = Site::new(&[&gone, &stays]);
    for file in &files {
        site.read(file, Wanted::whole(1 << 20)).unwrap();
    }
    drop(gone);
    for file in &files[..10] {
        site.read(file, Wanted::whole(1 << 20)).unwrap();
    }
    let counts = site.counts();
    // It rests, and is not asked for each of the ten files.
    assert!((1..=6).contains(&counts[0].failed), "{counts:?}");
    assert_eq!(counts[1].failed, 0);
}
