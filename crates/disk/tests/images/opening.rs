//! Opening a version: few steps of asking, and nothing believed that would not be one by one.

use crate::common::{Scene, sparse};
use crate::server::{Answer, Asked, Server};
use crate::training::{how, profile, published, scattered};
use disk::{
    Directory, DiskError, FileName, Foresight, Http, HttpOptions, Pack, Plan, Source, Trained,
    Training,
};
use std::collections::BTreeSet;
use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// How long an answer is held back for requests that should come meanwhile.
const HOLD_TIME: Duration = Duration::from_secs(5);

/// An image that was trained for two programs.
fn trained() -> (Scene, Training) {
    let (scene, content) = published();
    let len = content.len() as u64;
    let profiles = [("a", 80), ("b", 81)];
    let profiles = profiles.map(|(name, seed)| profile(name, len, &scattered(seed, len, 10)));
    scene.train(&profiles, &how());
    let source = scene.repository.source();
    let training = Training::find(source, scene.version("base:1"), &scene.trust()).unwrap();
    (scene, training.unwrap())
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn open(scene: &Scene, source: &dyn Source) -> Result<(Trained, Foresight), DiskError> {
    let version = scene.version("base:1");
    Trained::open_at_once(source, version, &scene.trust(), vec!["b".into()])
}

fn names(foresight: &Foresight) -> Vec<&str> {
    foresight.plans.iter().map(Plan::name).collect()
}

#[test]
fn what_is_known_by_name_is_asked_for_at_once() {
    let (scene, training) = trained();
    let path = |file: FileName| format!("/{file}");
    // The manifest is not waited for, and neither of the others for each other.
    let mut together: BTreeSet<_> = training.packs().iter().map(|p| path(p.file())).collect();
    together.insert(path(training.index_file()));
    together.insert(path(scene.version("base:1").file()));
    assert_eq!(together.len(), 4);
    let (directory, all) = (scene.images(), together.clone());
    let seen: Mutex<BTreeSet<String>> = Mutex::default();
    let server = Server::new(move |asked: &Asked| {
        seen.lock().unwrap().insert(asked.path.clone());
        let deadline = Instant::now() + HOLD_TIME;
        while all.contains(&asked.path) && !seen.lock().unwrap().is_superset(&all) {
            if Instant::now() > deadline {
                return Answer::status(404);
            }
            thread::sleep(Duration::from_millis(2));
        }
        Answer::file(&directory, asked)
    });
    let runtime = runtime();
    let options = HttpOptions::default();
    let http = Http::new(&server.url(), &options, runtime.handle().clone()).unwrap();
    let (trained, foresight) = open(&scene, &http).unwrap();
    assert_eq!(*trained.index, *scene.trained().index);
    assert_eq!(trained.packs, training.packs());
    assert_eq!(names(&foresight), ["a", "b"]);
    assert_eq!(foresight.follow, ["b"]);
    assert!(foresight.sequential && !foresight.rest);
    // And each once: these, and the training's record.
    together.insert(path(Training::file_of(scene.version("base:1"))));
    let counts = server.counts();
    assert!(counts.keys().eq(&together), "{counts:?}");
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}

/// An image of nothing with an index of 41 KiB.
fn long() -> Scene {
    let scene = Scene::new();
    let image = scene.path("image.raw");
    sparse(&image, 64 << 20, &[(9 << 20, b"a byte")]);
    scene.publish(&image, &Scene::how("base:1"));
    scene
}

#[test]
fn a_long_index_comes_in_pieces_at_once() {
    let scene = long();
    let index = scene.manifest("base:1").index_file();
    let (path, directory) = (format!("/{index}"), scene.images());
    let length = fs::metadata(directory.join(index.as_str())).unwrap().len();
    let ranges: Arc<Mutex<Vec<(u64, u64)>>> = Arc::default();
    let seen = Arc::clone(&ranges);
    let server = Server::new(move |asked: &Asked| {
        if asked.path == path {
            let range = asked.range.unwrap_or((0, length - 1));
            seen.lock().unwrap().push(range);
            // None is answered before all were asked for.
            let deadline = Instant::now() + HOLD_TIME;
            while seen.lock().unwrap().len() < 4 && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
        }
        Answer::file(&directory, asked)
    });
    let runtime = runtime();
    let options = HttpOptions::default();
    let http = Http::new(&server.url(), &options, runtime.handle().clone()).unwrap();
    let (trained, _) = open(&scene, &http).unwrap();
    assert_eq!(*trained.index, scene.index("base:1"));
    let mut ranges = ranges.lock().unwrap().clone();
    ranges.sort_unstable();
    assert_eq!(ranges.len(), 4, "{ranges:?}");
    // Each byte once, and no piece longer than a new connection carries at once.
    let mut end = 0;
    for (first, last) in ranges {
        assert_eq!(first, end);
        end = last + 1;
        assert!(end - first <= 12 << 10);
    }
    assert_eq!(end, length);
}

#[test]
fn a_long_index_is_right_whatever_becomes_of_its_pieces() {
    let scene = long();
    let index = scene.manifest("base:1").index_file();
    let expected = scene.index("base:1");
    type Spoil = fn(&mut Answer, &Asked);
    let spoils: [(&str, Spoil); 3] = [
        ("a piece that fails", |answer, asked| {
            if asked.range.is_some_and(|(first, _)| first > 20_000) {
                *answer = Answer::status(403);
            }
        }),
        ("a piece that is wrong", |answer, asked| {
            if asked.range.is_some_and(|(first, _)| first > 20_000) {
                answer.body[7] ^= 1;
            }
        }),
        ("no ranges", |_, _| {}),
    ];
    for (name, spoil) in spoils {
        let (path, directory) = (format!("/{index}"), scene.images());
        let server = Server::new(move |asked: &Asked| {
            let range = asked.range.filter(|_| name != "no ranges");
            let asking = Asked {
                path: asked.path.clone(),
                headers: String::new(),
                range,
                ..*asked
            };
            let mut answer = Answer::file(&directory, &asking);
            if asked.path == path {
                spoil(&mut answer, asked);
            }
            answer
        });
        let runtime = runtime();
        let options = HttpOptions::default();
        let http = Http::new(&server.url(), &options, runtime.handle().clone()).unwrap();
        let (trained, _) = open(&scene, &http).unwrap();
        assert_eq!(*trained.index, expected, "{name}");
    }
}

#[test]
fn what_was_asked_for_early_is_believed_no_earlier() {
    let (scene, training) = trained();
    let source = Directory::new(scene.images());
    let plain = scene.index("base:1");
    let version = scene.version("base:1");
    let fronts: Vec<_> = training.packs().iter().map(Pack::file).collect();
    let damage = |file: &FileName, judge: &dyn Fn(Result<(Trained, Foresight), String>)| {
        let path = scene.images().join(file.as_str());
        let good = fs::read(&path).unwrap();
        let mut flipped = good.clone();
        flipped[training.packs()[0].front_bytes.min(good.len() as u64) as usize / 2] ^= 1;
        for bad in [&flipped[..], &good[..10], b"", b"nonsense"] {
            fs::write(&path, bad).unwrap();
            judge(open(&scene, &source).map_err(|error| error.to_string()));
        }
        fs::remove_file(&path).unwrap();
        judge(open(&scene, &source).map_err(|error| error.to_string()));
        fs::write(&path, good).unwrap();
    };
    damage(&version.file(), &|opened| {
        let error = opened.map(drop).unwrap_err();
        assert!(error.contains(version.file().as_str()), "{error}");
    });
    for file in [Training::file_of(version), training.index_file()] {
        damage(&file, &|opened| {
            let (trained, foresight) = opened.unwrap();
            assert_eq!(*trained.index, plain, "{file}");
            assert!(trained.packs.is_empty() && foresight.plans.is_empty());
        });
    }
    damage(&fronts[0], &|opened| {
        let (trained, foresight) = opened.unwrap();
        assert_ne!(*trained.index, plain);
        assert_eq!(names(&foresight), ["b"]);
    });
    let (trained, foresight) = open(&scene, &source).unwrap();
    assert_eq!(*trained.index, *scene.trained().index);
    assert_eq!(names(&foresight), ["a", "b"]);
}
