//! Collecting garbage beside publishers, checking, and putting damage right.

use crate::common::{KIB, Scene, TIME, noise, tag};
use crate::server::Server;
use disk::check::{Checking, Report, check, remove_damaged};
use disk::gc::{Collected, Collecting, collect};
use disk::{Damage, DiskError, FileName, Http, HttpOptions, TagEntry, Trust};
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

fn collected(scene: &Scene, history: usize) -> Collected {
    let how = Collecting {
        history,
        ..Collecting::default()
    };
    collect(&scene.repository, &how).unwrap()
}

fn checked(scene: &Scene) -> Report {
    let how = Checking {
        trust: scene.trust(),
        read_chunks: true,
        workers: 2,
    };
    let tags = scene.repository.tags().unwrap();
    check(scene.repository.source(), &tags, &how, &|_, _| {})
}

#[test]
fn what_no_tag_needs_goes_and_nothing_else() {
    let scene = Scene::new();
    let one = noise(40, 640 * KIB);
    let mut two = one.clone();
    two[0] ^= 1;
    scene.put("base:1", &one);
    scene.put("base:2", &two);
    assert_eq!(collected(&scene, 1).chunks, 0);
    scene.repository.remove_tag(&tag("base:1")).unwrap();
    let left = scene.images().join("tmp/12-0123456789abcdef");
    fs::write(left, b"over").unwrap();
    fs::write(scene.images().join("tmp/letter"), b"somebody else's").unwrap();
    let dry = Collecting {
        dry_run: true,
        ..Collecting::default()
    };
    let counted = collect(&scene.repository, &dry).unwrap();
    assert_eq!(scene.files("default.castr"), 11);
    let done = collected(&scene, 1);
    assert_eq!(counted, done);
    assert_eq!(
        (done.versions, done.indexes, done.chunks, done.left_over),
        (1, 1, 1, 1)
    );
    assert!(done.bytes > 50 * KIB && done.kept_chunks == 10, "{done:?}");
    assert_eq!(scene.content("base:2"), two);
    assert_eq!(scene.files("default.castr"), 10);
    scene.repository.remove_tag(&tag("base:2")).unwrap();
    collected(&scene, 1);
    fs::remove_file(scene.images().join("tmp/letter")).unwrap();
    for directory in ["default.castr", "versions", "indexes", "tags", "tmp"] {
        assert_eq!(scene.files(directory), 0, "{directory}");
    }
}

#[test]
fn as_much_history_is_kept_as_was_said() {
    let scene = Scene::new();
    let contents: Vec<_> = (0..4).map(|seed| noise(50 + seed, 100 * KIB)).collect();
    let versions: Vec<_> = contents
        .iter()
        .map(|content| scene.put("base:1", content).version.unwrap())
        .collect();
    assert_eq!(collected(&scene, usize::MAX).versions, 0);
    assert_eq!(collected(&scene, 2).versions, 2);
    // The tag still remembers the others, which are gone.
    assert_eq!(collected(&scene, usize::MAX).versions, 0);
    let back = |version| {
        let entry = TagEntry {
            version,
            time: TIME,
        };
        scene
            .repository
            .move_tag(&tag("base:1"), entry, &scene.key, &scene.trust())
    };
    assert!(matches!(back(versions[1]), Err(DiskError::Source(_))));
    back(versions[2]).unwrap();
    assert_eq!(scene.content("base:1"), contents[2]);
    assert_eq!(
        collected(&scene, 0).versions,
        1,
        "at least what it points to is kept"
    );
    assert_eq!(scene.content("base:1"), contents[2]);
}

#[test]
fn a_copy_that_has_only_files_is_collected_and_published_to() {
    let scene = Scene::new();
    for seed in 0..3 {
        scene.put("base:1", &noise(80 + seed, 100 * KIB));
    }
    // As programs for buckets copy: neither empty directories, nor empty files.
    fs::remove_dir(scene.path("images/tmp")).unwrap();
    for lock in ["lock", "lock.next", "tags.lock"] {
        fs::remove_file(scene.path("images").join(lock)).unwrap();
    }
    let repository = disk::Repository::open(scene.images()).unwrap();
    let how = Collecting {
        history: 1,
        ..Collecting::default()
    };
    assert_eq!(collect(&repository, &how).unwrap().versions, 2);
    scene.put("base:1", &noise(80, 100 * KIB));
    assert_eq!(checked(&scene).finding_count, 0);
    fs::create_dir(scene.path("none")).unwrap();
    let none = disk::Repository::open(scene.path("none"));
    assert!(none.is_err() && !scene.path("none/tmp").exists());
}

#[test]
fn indexes_of_casync_are_roots_and_what_is_damaged_keeps_everything() {
    let scene = Scene::new();
    scene.put("base:1", &noise(60, 300 * KIB));
    let path = |name: &str| scene.images().join(name);
    let index = scene.index("base:1");
    fs::write(path("theirs.caibx"), index.to_bytes()).unwrap();
    scene.repository.remove_tag(&tag("base:1")).unwrap();
    let done = collected(&scene, 1);
    assert_eq!((done.versions, done.chunks, done.kept_chunks), (1, 0, 5));
    // Now it cannot be read; what it needs cannot be known.
    fs::write(path("theirs.caibx"), &index.to_bytes()[..200]).unwrap();
    let refused = collect(&scene.repository, &Collecting::default());
    let Err(DiskError::Damaged { damage, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(damage, Damage::Index("its frame"));
    fs::remove_file(path("theirs.caibx")).unwrap();
    // Nor what is needed by an index whose name is no text.
    let munich = scene.images().join(OsStr::from_bytes(b"M\xfcnchen.caibx"));
    fs::write(&munich, index.to_bytes()).unwrap();
    let refused = collect(&scene.repository, &Collecting::default());
    let Err(DiskError::Damaged { damage, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(damage, Damage::Name);
    assert_eq!(scene.files("default.castr"), 5);
    fs::remove_file(munich).unwrap();
    for victim in ["tags", "versions", "indexes"] {
        scene.put("base:1", &noise(61, 300 * KIB));
        let name = fs::read_dir(path(victim))
            .unwrap()
            .next()
            .unwrap()
            .unwrap()
            .path();
        let good = fs::read(&name).unwrap();
        fs::write(&name, &good[1..]).unwrap();
        let before = scene.files("");
        let refused = collect(&scene.repository, &Collecting::default());
        assert!(
            matches!(refused, Err(DiskError::Damaged { .. })),
            "{victim}: {refused:?}"
        );
        assert_eq!(scene.files(""), before);
        fs::write(&name, good).unwrap();
    }
}

#[test]
fn every_image_stays_whole_while_garbage_is_collected_beside_publishers() {
    let scene = Scene::new();
    let pieces: Vec<_> = (0..12).map(|seed| noise(200 + seed, 64 * KIB)).collect();
    let is_over = AtomicBool::new(false);
    let removed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let publishers: Vec<_> = (0..3_u64)
            .map(|number| {
                let (scene, pieces) = (&scene, &pieces);
                scope.spawn(move || {
                    let mut random = sim::Random::new(number);
                    let name = format!("image:{number}");
                    let path = scene.path(&format!("raw-{number}"));
                    for _ in 0..15 {
                        // Chunks that come and go, so that one publisher's garbage is another's
                        // new image.
                        let count = random.within(1..5);
                        let content: Vec<u8> = (0..count)
                            .flat_map(|_| random.pick(pieces).clone())
                            .collect();
                        fs::write(&path, &content).unwrap();
                        scene.publish(&path, &Scene::how(&name));
                        assert_eq!(scene.content(&name), content);
                    }
                })
            })
            .collect();
        let (scene, is_over, removed) = (&scene, &is_over, &removed);
        scope.spawn(move || {
            while !is_over.load(Ordering::SeqCst) {
                removed.fetch_add(collected(scene, 1).chunks, Ordering::SeqCst);
            }
        });
        let outcomes: Vec<_> = publishers.into_iter().map(|thread| thread.join()).collect();
        is_over.store(true, Ordering::SeqCst);
        outcomes.into_iter().for_each(|outcome| outcome.unwrap());
    });
    let removed = removed.into_inner();
    println!("{removed} chunks were collected");
    assert!(removed > 10, "{removed}");
    assert_eq!(checked(&scene).finding_count, 0);
}

#[test]
fn after_any_history_there_is_what_tags_need_and_nothing_else() {
    for seed in 0..3 {
        let scene = Scene::new();
        let mut random = sim::Random::new(seed);
        let pieces: Vec<_> = (0..5).map(|piece| noise(80 + piece, 64 * KIB)).collect();
        let names = ["a:1", "a:2", "b:1"];
        let mut naive: BTreeMap<&str, Vec<u8>> = BTreeMap::new();
        for _ in 0..14 {
            let name = *random.pick(&names);
            match random.below(4) {
                0 | 1 => {
                    let count = random.below(4);
                    let content: Vec<_> = (0..count)
                        .flat_map(|_| random.pick(&pieces).clone())
                        .collect();
                    scene.put(name, &content);
                    naive.insert(name, content);
                }
                2 => {
                    let removed = scene.repository.remove_tag(&tag(name));
                    assert_eq!(removed.is_ok(), naive.remove(name).is_some());
                }
                _ => {
                    collected(&scene, 1);
                    let needed: HashSet<_> = naive
                        .values()
                        .flat_map(|content| content.chunks(64 << 10))
                        .collect();
                    assert_eq!(scene.files("default.castr"), needed.len(), "{seed}");
                    assert_eq!(scene.files("tags"), naive.len());
                }
            }
            for (name, content) in &naive {
                assert_eq!(&scene.content(name), content, "{seed}");
            }
        }
    }
}

#[test]
fn who_deletes_waits_for_publishers_and_not_for_ever() {
    let scene = Scene::new();
    let image = scene.image(&noise(90, 100 * KIB));
    let how = Collecting {
        wait: Duration::from_millis(20),
        ..Collecting::default()
    };
    let tried = |_| {
        let refused = collect(&scene.repository, &how);
        assert!(
            matches!(refused, Err(DiskError::Busy { .. })),
            "{refused:?}"
        );
    };
    let publishing = Scene::how("base:1");
    disk::publish(&scene.repository, &image, &publishing, &scene.key, &tried).unwrap();
    collect(&scene.repository, &how).unwrap();
}

#[test]
fn a_chunk_that_cannot_be_read_is_not_removed_for_it_may_be_good() {
    let scene = Scene::new();
    scene.put("base:1", &noise(100, 640 * KIB));
    let index = scene.index("base:1");
    let file = FileName::of_chunk(&index.ids()[7]);
    let chunk = scene.images().join(file.as_str());
    fs::remove_file(&chunk).unwrap();
    std::os::unix::fs::symlink(&chunk, &chunk).unwrap();
    let wait = Duration::from_secs(1);
    let refused = remove_damaged(&scene.repository, &index.spec(7), wait);
    assert!(matches!(refused, Err(DiskError::Source(_))), "{refused:?}");
    assert!(chunk.is_symlink());
}

#[test]
fn a_check_names_what_is_missing_and_damaged_and_publishing_again_puts_it_right() {
    let scene = Scene::new();
    let content = noise(100, 640 * KIB);
    scene.put("base:1", &content);
    scene.put("base:2", b"small");
    let report = checked(&scene);
    assert_eq!(
        (report.versions, report.chunks, report.finding_count),
        (2, 11, 0)
    );
    assert!(report.bytes > 400 * KIB);
    let index = scene.index("base:1");
    let path = |number: usize| {
        let file = FileName::of_chunk(&index.ids()[number]);
        scene.images().join(file.as_str())
    };
    fs::remove_file(path(2)).unwrap();
    let mut damaged = fs::read(path(7)).unwrap();
    damaged[100] ^= 4;
    fs::write(path(7), damaged).unwrap();
    let report = checked(&scene);
    assert_eq!(report.finding_count, 2);
    let mut numbers = Vec::new();
    for finding in &report.findings {
        assert_eq!(finding.tag, tag("base:1"));
        let spec = finding.chunk.unwrap();
        numbers.push(index.ids().iter().position(|id| *id == spec.id).unwrap());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, [2, 7]);

    // The same over a web server.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::files(scene.images(), Duration::ZERO);
    let http = Http::new(
        &server.url(),
        &HttpOptions::default(),
        runtime.handle().clone(),
    );
    let how = Checking {
        trust: scene.trust(),
        read_chunks: true,
        workers: 2,
    };
    let tags = scene.repository.tags().unwrap();
    let far = check(&http.unwrap(), &tags, &how, &|_, _| {});
    assert_eq!(far.findings, report.findings);

    let wait = Duration::from_secs(1);
    let remove = |number| remove_damaged(&scene.repository, &index.spec(number), wait).unwrap();
    assert_eq!(
        [2, 7, 3].map(remove),
        [false, true, false],
        "a good one stays"
    );
    assert_eq!(scene.put("base:1", &content).new_chunks, 2);
    assert_eq!(checked(&scene).finding_count, 0);

    let nobody = Checking {
        trust: Trust::Keys(Vec::new()),
        ..how
    };
    let source = scene.repository.source();
    assert_eq!(check(source, &tags, &nobody, &|_, _| {}).finding_count, 2);
}
