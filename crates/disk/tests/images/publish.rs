//! Publishing: what is new is written, what is there is not, and nothing half is ever seen.

use crate::common::{KIB, Scene, TIME, noise, sparse, tag};
use disk::{
    Damage, Digest, DiskError, Progress, Publishing, SigningKey, TagEntry, TagRecord, Trust,
    publish,
};
use std::fs;
use std::sync::Mutex;

#[test]
fn only_what_changed_is_new() {
    let scene = Scene::new();
    let mut content = noise(1, 1000 * KIB + 77);
    let first = scene.put("base:1", &content);
    assert_eq!((first.chunks, first.new_chunks), (16, 16));
    assert_eq!(scene.content("base:1"), content);
    assert_eq!(scene.files("default.castr"), 16);
    let again = scene.put("again:1", &content);
    assert_eq!(
        (again.chunks, again.new_chunks, again.new_bytes),
        (16, 0, 0)
    );

    content[500_000] ^= 1;
    content.extend(noise(2, 10));
    let second = scene.put("base:2", &content);
    assert_eq!((second.chunks, second.new_chunks), (16, 2));
    assert!(second.new_bytes < 130 * KIB && second.new_bytes > 50 * KIB);
    assert_eq!(scene.content("base:2"), content);
    assert_eq!(scene.files("tmp"), 0, "nothing is left over");
}

#[test]
fn holes_are_not_read_and_zeros_are_one_chunk() {
    let scene = Scene::new();
    let path = scene.path("sparse.raw");
    let data = noise(3, 64 * KIB);
    // A TiB would have too many chunks of 64 KiB; 4 GiB of holes are read in no time.
    sparse(&path, 4 << 30, &[(0, &data), (1 << 30, &[0; 65536])]);
    let how = Publishing {
        chunk_bytes: 512 << 10,
        ..Scene::how("sparse:1")
    };
    let published = scene.publish(&path, &how);
    assert_eq!((published.chunks, published.new_chunks), (8192, 2));
    assert_eq!(published.hole_bytes, (4 << 30) - 128 * KIB);
    let index = scene.index("sparse:1");
    assert_eq!(index.image_bytes(), 4 << 30);
    let zero = Digest::Sha512Half.id_of(&vec![0; 512 << 10]);
    assert_eq!(index.ids()[1..], vec![zero; 8191]);
    assert!(
        scene.repository.has_chunk(&zero).unwrap(),
        "casync wants it"
    );
}

#[test]
fn every_length_of_chunks_and_both_digests_are_published() {
    let content = noise(4, 1100 * KIB + 1);
    for (chunk_bytes, digest) in [
        (64 << 10, Digest::Sha512Half),
        (128 << 10, Digest::Sha256),
        (256 << 10, Digest::Sha512Half),
        (512 << 10, Digest::Sha256),
    ] {
        let scene = Scene::new();
        let how = Publishing {
            chunk_bytes,
            digest,
            workers: 3,
            ..Scene::how("a:1")
        };
        let published = scene.publish(&scene.image(&content), &how);
        assert_eq!(
            published.chunks,
            (1100 * KIB + 1).div_ceil(chunk_bytes.into())
        );
        assert_eq!(scene.index("a:1").digest(), digest);
        assert_eq!(scene.content("a:1"), content);
    }
    let scene = Scene::new();
    for chunk_bytes in [0, 4096, 100_000, 1 << 20] {
        let how = Publishing {
            chunk_bytes,
            ..Scene::how("a:1")
        };
        let refused = publish(
            &scene.repository,
            &scene.image(b"x"),
            &how,
            &scene.key,
            &|_| {},
        );
        assert!(
            matches!(refused, Err(DiskError::ChunkBytes(_))),
            "{refused:?}"
        );
    }
}

#[test]
fn an_empty_image_is_one() {
    let scene = Scene::new();
    let published = scene.put("empty:1", b"");
    assert_eq!((published.chunks, published.image_bytes), (0, 0));
    assert_eq!(scene.content("empty:1"), b"");
}

#[test]
fn a_dry_run_counts_and_writes_nothing() {
    let scene = Scene::new();
    let image = scene.image(&noise(5, 300 * KIB));
    let dry = Publishing {
        dry_run: true,
        ..Scene::how("base:1")
    };
    let counted = scene.publish(&image, &dry);
    assert_eq!(counted.version, None);
    assert_eq!(scene.files(""), 2, "two locks alone");
    let published = scene.publish(&image, &Scene::how("base:1"));
    assert_eq!(counted.new_bytes, published.new_bytes);
    assert_eq!(counted.new_chunks, published.new_chunks);
}

#[test]
fn progress_goes_from_nothing_to_everything() {
    let scene = Scene::new();
    let image = scene.image(&noise(6, 640 * KIB));
    let seen = Mutex::new(Vec::new());
    let note = |progress: Progress| seen.lock().unwrap().push(progress);
    let how = Scene::how("base:1");
    let published = publish(&scene.repository, &image, &how, &scene.key, &note).unwrap();
    let mut seen = seen.into_inner().unwrap();
    seen.sort_by_key(|progress| progress.done_bytes);
    assert_eq!(seen.len(), 10);
    let last = seen.last().unwrap();
    assert_eq!((last.done_bytes, last.total_bytes), (640 * KIB, 640 * KIB));
    assert_eq!(last.new_bytes, published.new_bytes);
}

#[test]
fn an_image_that_changes_meanwhile_is_not_published() {
    let scene = Scene::new();
    let image = scene.image(&noise(7, 640 * KIB));
    for length in [0, 650 * KIB] {
        let change = |_: Progress| {
            let file = fs::File::options().write(true).open(&image).unwrap();
            file.set_len(length).unwrap();
        };
        let how = Publishing {
            workers: 1,
            ..Scene::how("base:1")
        };
        let refused = publish(&scene.repository, &image, &how, &scene.key, &change);
        assert!(matches!(refused, Err(DiskError::Changed(_))), "{refused:?}");
        assert_eq!(scene.repository.tags().unwrap(), []);
        scene.image(&noise(7, 640 * KIB));
    }
}

#[test]
fn an_error_leaves_the_tag_where_it_was() {
    let scene = Scene::new();
    scene.put("base:1", &noise(8, 300 * KIB));
    let before = scene.version("base:1");
    let content = noise(9, 6400 * KIB);
    let id = Digest::Sha512Half.id_of(&content[5000 * 1024 / 65536 * 65536..][..65536]);
    // Something is where the directory of one of its chunks should be.
    let in_the_way = scene
        .images()
        .join("default.castr")
        .join(&id.to_string()[..4]);
    fs::write(&in_the_way, b"").unwrap();
    let (image, how) = (scene.image(&content), Scene::how("base:1"));
    let refused = publish(&scene.repository, &image, &how, &scene.key, &|_| {});
    assert!(
        matches!(refused, Err(DiskError::File { .. })),
        "{refused:?}"
    );
    assert_eq!(scene.version("base:1"), before);
    fs::remove_file(in_the_way).unwrap();
    let published = scene.publish(&image, &how);
    assert!(
        published.new_chunks < 100,
        "the first attempt's chunks are used"
    );
    assert_eq!(scene.content("base:1"), content);
}

#[test]
fn publishers_beside_each_other_share_chunks() {
    let scene = Scene::new();
    let common = noise(10, 1280 * KIB);
    std::thread::scope(|scope| {
        for number in 0..4_u8 {
            let (scene, common) = (&scene, &common);
            scope.spawn(move || {
                for round in 0..3_u8 {
                    let path = scene.path(&format!("image-{number}"));
                    let mut content = common.clone();
                    content[usize::from(round) * 70_000] = number;
                    fs::write(&path, &content).unwrap();
                    // One tag that all of them move, and one of its own.
                    scene.publish(&path, &Scene::how("all:1"));
                    scene.publish(&path, &Scene::how(&format!("own:{number}")));
                    assert_eq!(scene.content(&format!("own:{number}")), content);
                }
            });
        }
    });
    let last = scene.content("all:1");
    assert_eq!(last[150_000..], common[150_000..]);
    let source = scene.repository.source();
    let record = TagRecord::read(source, &tag("all:1"), &scene.trust()).unwrap();
    assert!(record.moves >= 3, "{record:?}");
    assert_eq!(scene.files("tmp"), 0);
}

#[test]
fn versions_know_their_parents_and_tags_go_back() {
    let scene = Scene::new();
    let one = noise(11, 100 * KIB);
    let two = noise(12, 100 * KIB);
    let first = scene.put("base:latest", &one).version.unwrap();
    let second = scene.put("base:latest", &two).version.unwrap();
    assert_eq!(scene.manifest("base:latest").parents, [first]);
    assert_eq!(scene.manifest("base:latest").time, TIME);
    let source = scene.repository.source();
    let record = TagRecord::read(source, &tag("base:latest"), &scene.trust()).unwrap();
    let versions: Vec<_> = record.entries.iter().map(|entry| entry.version).collect();
    assert_eq!(versions, [second, first]);

    let back = TagEntry {
        version: first,
        time: TIME + 1,
    };
    let moved = scene
        .repository
        .move_tag(&tag("base:latest"), back, &scene.key, &scene.trust());
    assert_eq!(moved.unwrap().moves, 2);
    assert_eq!(scene.content("base:latest"), one);
    let index = fs::read(scene.images().join("base@latest.caibx")).unwrap();
    assert_eq!(index, scene.index("base:latest").to_bytes());

    assert_eq!(scene.repository.tags().unwrap(), [tag("base:latest")]);
    scene.repository.remove_tag(&tag("base:latest")).unwrap();
    assert_eq!(scene.repository.tags().unwrap(), []);
    let missing = scene.repository.remove_tag(&tag("base:latest"));
    assert!(
        matches!(missing, Err(DiskError::File { .. })),
        "{missing:?}"
    );
}

#[test]
fn nobody_moves_a_tag_of_somebody_whom_he_does_not_trust() {
    let scene = Scene::new();
    let version = scene.put("base:1", b"mine").version;
    let other = SigningKey::open_or_create(&scene.path("other")).unwrap();
    let image = scene.image(b"theirs");
    let refused = publish(
        &scene.repository,
        &image,
        &Scene::how("base:1"),
        &other,
        &|_| {},
    );
    assert!(
        matches!(refused, Err(DiskError::Untrusted { .. })),
        "{refused:?}"
    );
    assert_eq!(Some(scene.version("base:1")), version);
    let how = Publishing {
        trust: Trust::Keys(vec![scene.key.public()]),
        ..Scene::how("base:1")
    };
    publish(&scene.repository, &image, &how, &other, &|_| {}).unwrap();
    let source = scene.repository.source();
    let record = TagRecord::read(source, &tag("base:1"), &Trust::Keys(vec![other.public()]));
    assert_eq!(record.unwrap().entries.len(), 2);
}

#[test]
fn what_a_manifest_cannot_say_is_refused_before_anything_is_read() {
    let scene = Scene::new();
    let how = Publishing {
        note: "x".repeat(1025),
        ..Scene::how("base:1")
    };
    let refused = publish(
        &scene.repository,
        &scene.image(b"x"),
        &how,
        &scene.key,
        &|_| {},
    );
    let Err(DiskError::Damaged { damage, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(damage, Damage::Record);
    assert_eq!(scene.files("default.castr"), 0);
}
