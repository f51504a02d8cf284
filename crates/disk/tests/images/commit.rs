//! Changes on an image become its next version, and are thrown away.

use crate::common::{KIB, Scene, noise, tag};
use base::{BlockDevice, Extent};
use disk::overlay::{create, create_unless_there, is_over, open};
use disk::{
    Directory, DiskError, Fetcher, ImageDevice, Overlay, Published, TagEntry, VersionId, commit,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .unwrap()
}

fn base(scene: &Scene, runtime: &Runtime, name: &str) -> Arc<dyn BlockDevice> {
    let fetcher = Fetcher::new(runtime.handle().clone(), None, 1 << 20);
    let source = Arc::new(Directory::new(scene.images()));
    Arc::new(ImageDevice::new(
        Arc::new(scene.index(name)),
        source,
        fetcher,
    ))
}

fn over(scene: &Scene, runtime: &Runtime, name: &str) -> Overlay {
    let base = base(scene, runtime, name);
    open(&scene.path("overlay"), base, scene.version(name)).unwrap()
}

fn reset(scene: &Scene, runtime: &Runtime, name: &str) {
    let len_bytes = base(scene, runtime, name).len_bytes();
    create(&scene.path("overlay"), len_bytes, scene.version(name)).unwrap();
}

fn committed(scene: &Scene, overlay: &Overlay, name: &str) -> Published {
    commit(
        &scene.repository,
        overlay,
        &Scene::how(name),
        &scene.key,
        &|_| {},
    )
    .unwrap()
}

#[test]
fn a_commit_writes_what_changed_and_nothing_else() {
    let (scene, runtime) = (Scene::new(), runtime());
    let mut content = noise(30, 2000 * KIB + 100);
    scene.put("base:1", &content);
    reset(&scene, &runtime, "base:1");
    let overlay = over(&scene, &runtime, "base:1");
    assert_eq!(
        overlay.len_bytes(),
        (2000 * KIB + 100).next_multiple_of(512)
    );
    for (offset, bytes) in [
        (0, noise(31, 10)),
        (300_000, noise(32, 200 * KIB)),
        (content.len() as u64 - 5, noise(33, 5)),
    ] {
        overlay.write_at(offset, &bytes).unwrap();
        content[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    overlay.trim(Extent::new(1 << 20, 64 * KIB)).unwrap();
    content[1 << 20..][..64 << 10].fill(0);
    // Written again as it was: the chunk is the same.
    overlay
        .write_at(900_000, &content[900_000..900_100])
        .unwrap();
    overlay.flush().unwrap();

    let published = committed(&scene, &overlay, "base:2");
    // The first, four that the long write touches, the trimmed one, the last.
    assert_eq!(published.new_chunks, 7, "{published:?}");
    assert_eq!(scene.content("base:2"), content);
    assert_eq!(scene.manifest("base:2").parents, [scene.version("base:1")]);
    assert_eq!(
        committed(&scene, &overlay, "base:3").new_chunks,
        0,
        "once more"
    );
    drop(overlay);

    reset(&scene, &runtime, "base:2");
    let overlay = over(&scene, &runtime, "base:2");
    let mut read = vec![0; content.len()];
    overlay.read_at(0, &mut read).unwrap();
    assert_eq!(read, content);
    assert!(overlay.changed().is_empty());
}

#[test]
fn a_commit_cuts_where_its_base_does() {
    let (scene, runtime) = (Scene::new(), runtime());
    let content = noise(34, 640 * KIB);
    scene.put("base:1", &content);
    let grid = scene.index("base:1");
    reset(&scene, &runtime, "base:1");
    let overlay = over(&scene, &runtime, "base:1");
    overlay.write_at(130_000, &[9; 3000]).unwrap();
    committed(&scene, &overlay, "base:2");
    let index = scene.index("base:2");
    let ends = |index: &disk::Index| {
        index
            .chunks()
            .map(|chunk| chunk.extent.end())
            .collect::<Vec<_>>()
    };
    assert_eq!(ends(&index), ends(&grid));
    let differing = (0..10).filter(|&number| index.ids()[number] != grid.ids()[number]);
    assert_eq!(differing.collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn nobody_has_an_overlay_open_that_another_has_thrown_away() {
    let (scene, runtime) = (Scene::new(), runtime());
    scene.put("base:1", &noise(37, 300 * KIB));
    let (version, path) = (scene.version("base:1"), scene.path("overlay"));
    let len_bytes = base(&scene, &runtime, "base:1").len_bytes();
    create(&path, len_bytes, version).unwrap();
    // Odd while the overlay is open.
    let opened = AtomicU64::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let Ok(overlay) = open(&path, base(&scene, &runtime, "base:1"), version) else {
                    continue;
                };
                opened.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(2));
                opened.fetch_add(1, Ordering::SeqCst);
                drop(overlay);
            }
        });
        let mut thrown_away = 0;
        while thrown_away < 300 {
            let before = opened.load(Ordering::SeqCst);
            let made = create(&path, len_bytes, version);
            let after = opened.load(Ordering::SeqCst);
            thrown_away += u32::from(made.is_ok());
            let was_open = before == after && before % 2 == 1;
            assert!(made.is_err() || !was_open, "it was open meanwhile");
            create_unless_there(&path, len_bytes, version).unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
    });
    assert!(opened.load(Ordering::SeqCst) > 20);
}

#[test]
fn changes_survive_closing_and_are_thrown_away_at_once() {
    let (scene, runtime) = (Scene::new(), runtime());
    scene.put("base:1", &noise(35, 300 * KIB));
    let first = scene.version("base:1");
    scene.put("base:2", &noise(36, 300 * KIB));
    reset(&scene, &runtime, "base:1");
    let overlay = over(&scene, &runtime, "base:1");
    overlay.write_at(70_000, b"changed").unwrap();
    overlay.flush().unwrap();
    let busy = open(
        &scene.path("overlay"),
        base(&scene, &runtime, "base:1"),
        first,
    );
    assert!(matches!(busy, Err(DiskError::Busy { .. })), "{busy:?}");
    let busy = create(&scene.path("overlay"), 300 * KIB, first);
    assert!(matches!(busy, Err(DiskError::Busy { .. })), "{busy:?}");
    let len_bytes = overlay.len_bytes();
    let over_what = is_over(&scene.path("overlay")).unwrap();
    assert_eq!(over_what, (first, len_bytes), "said beside who has it open");
    std::fs::write(scene.path("other"), b"something else").unwrap();
    let error = is_over(&scene.path("other")).unwrap_err();
    assert!(matches!(error, DiskError::Damaged { .. }), "{error}");
    std::fs::remove_file(scene.path("other")).unwrap();
    drop(overlay);
    let changed = |overlay: &Overlay| {
        let mut read = [0; 7];
        overlay.read_at(70_000, &mut read).unwrap();
        read == *b"changed"
    };
    assert!(changed(&over(&scene, &runtime, "base:1")));
    let other = open(
        &scene.path("overlay"),
        base(&scene, &runtime, "base:2"),
        scene.version("base:2"),
    );
    assert!(matches!(other, Err(DiskError::Damaged { .. })), "{other:?}");
    reset(&scene, &runtime, "base:2");
    assert!(
        !changed(&over(&scene, &runtime, "base:2")),
        "rolled to another version"
    );
    assert_eq!(
        std::fs::read_dir(scene.directory.path()).unwrap().count(),
        4
    );
}

#[test]
fn a_commit_needs_the_version_that_it_is_over() {
    let (scene, runtime) = (Scene::new(), runtime());
    scene.put("base:1", &noise(37, 300 * KIB));
    let base = base(&scene, &runtime, "base:1");
    let unknown = VersionId([1; 32]);
    create(&scene.path("overlay"), base.len_bytes(), unknown).unwrap();
    let overlay = open(&scene.path("overlay"), base, unknown).unwrap();
    let how = Scene::how("base:2");
    let refused = commit(&scene.repository, &overlay, &how, &scene.key, &|_| {});
    assert!(matches!(refused, Err(DiskError::Source(_))), "{refused:?}");
    // Nor can a tag be moved to it.
    let entry = TagEntry {
        version: unknown,
        time: 0,
    };
    let moved = scene
        .repository
        .move_tag(&tag("base:1"), entry, &scene.key, &scene.trust());
    assert!(moved.is_err());
}
