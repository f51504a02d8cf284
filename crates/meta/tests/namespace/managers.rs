//! Several managers and failing engines: the guard, the chain, what is lost and said to be.

use crate::gate::Gate;
use crate::world::{VOLUME, World, list, name, options, root, runtime};
use crate::worlds::{Cluster, Prefix};
use base::{FileKind, FsError};
use meta::namespace::{Namespace, NamespaceError, NamespaceOptions, Turn, check, make};
use meta::{Embedded, Engine, Etcd, MetaError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

fn create(namespace: &Namespace, turn: &Turn, file: &str) -> Result<(), FsError> {
    let (top, kind) = (namespace.root().clone(), FileKind::File);
    let made = namespace.make_node(turn, &root(), &top, &name(file), kind, 0o644, 0, 0);
    made.map(drop)
}

pub(crate) fn gated(path: &Path) -> (World, Arc<Gate>) {
    let runtime = runtime();
    let engine: Arc<dyn Engine> = runtime.block_on(Embedded::open(path)).unwrap();
    let gate = Gate::before(engine);
    let engine: Arc<dyn Engine> = Arc::clone(&gate) as Arc<dyn Engine>;
    (World::on(runtime, engine, options()), gate)
}

/// Its changes were worked out while it had the seat and come to the engine when the next manager
/// has it, who has changed nothing yet.
#[test]
fn a_deposed_manager_changes_nothing_though_nobody_else_has() {
    let directory = tempfile::tempdir().unwrap();
    let (world, gate) = gated(&directory.path().join("meta"));
    let turn = Turn::new();
    create(&world.namespace, &turn, "before").unwrap();
    world.namespace.wait_here(&turn).unwrap();
    gate.open(false);
    let turn = Turn::new();
    create(&world.namespace, &turn, "after").unwrap();
    let epoch = world.leadership.epoch();
    let deposing = world.engine.depose(world.leadership.seat(), epoch);
    world.runtime.block_on(deposing).unwrap();
    let next = world
        .runtime
        .block_on(world.engine.lead("namespace", "next"))
        .unwrap();
    gate.open(true);
    let waited = world.namespace.wait_here(&turn);
    assert!(
        matches!(
            &waited,
            Err(NamespaceError::Lost(MetaError::Deposed { .. }))
        ),
        "{waited:?}"
    );
    let later = create(&world.namespace, &Turn::new(), "later");
    assert_eq!(later.err(), Some(FsError::WouldBlock));
    let opening = Namespace::open(Arc::clone(&world.engine), Arc::new(next), options());
    let second = world.runtime.block_on(opening).unwrap();
    let found = |file: &str| {
        let top = second.root().clone();
        second.lookup(&Turn::new(), &root(), &top, &name(file))
    };
    assert!(found("before").is_ok());
    assert_eq!(found("after").err(), Some(FsError::NotFound));
    let report = world
        .runtime
        .block_on(check(&*world.engine, VOLUME))
        .unwrap();
    assert_eq!((report.findings, report.names), (Vec::new(), 1));
}

/// Many batches are under way; one of them is not carried out, those behind it would be.
#[test]
fn nothing_happens_behind_a_batch_that_did_not_and_everybody_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let (world, gate) = gated(&directory.path().join("meta"));
    let (kept, lost) = (Turn::new(), Turn::new());
    world.file(&world.top(), "kept");
    gate.open(false);
    gate.turn_away(1);
    for file in 0..1000 {
        create(&world.namespace, &lost, &format!("lost{file}")).unwrap();
    }
    // What was seen of it is not true either.
    let seen = Turn::new();
    let found = world
        .namespace
        .lookup(&seen, &root(), &world.top(), &name("lost900"));
    found.unwrap();
    gate.open(true);
    for turn in [&lost, &seen] {
        let waited = world.namespace.wait_here(turn);
        assert!(
            matches!(
                &waited,
                Err(NamespaceError::Lost(MetaError::Unavailable(_)))
            ),
            "{waited:?}"
        );
    }
    create(&world.namespace, &kept, "later").unwrap();
    world.namespace.wait_here(&kept).unwrap();
    assert!(world.namespace.wait_here(&lost).is_err());
    let there = list(&world.namespace, &Turn::new(), &root(), &world.top()).unwrap();
    let mut there: Vec<_> = there.iter().map(|entry| entry.name.to_string()).collect();
    there.sort();
    assert_eq!(there, ["kept", "later"]);
    assert_eq!(world.checked().names, 2);
    world.close();
}

/// Two managers that both believe to have a seat, each another one: only the chain is left.
#[test]
fn whoever_has_read_an_older_state_changes_nothing_and_reads_anew() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::at(&directory.path().join("meta"));
    let other = world
        .runtime
        .block_on(world.engine.lead("another", "other"))
        .unwrap();
    let opening = Namespace::open(Arc::clone(&world.engine), Arc::new(other), options());
    let other = world.runtime.block_on(opening).unwrap();
    let turn = Turn::new();
    create(&world.namespace, &turn, "one").unwrap();
    world.namespace.wait_here(&turn).unwrap();
    let turn = Turn::new();
    create(&other, &turn, "two").unwrap();
    create(&other, &turn, "three").unwrap();
    let waited = other.wait_here(&turn);
    assert!(
        matches!(
            &waited,
            Err(NamespaceError::Lost(MetaError::Conflict { .. }))
        ),
        "{waited:?}"
    );
    // It has read anew: it sees what the first has done, and its own changes happen.
    assert_eq!(
        create(&other, &Turn::new(), "one").err(),
        Some(FsError::Exists)
    );
    let turn = Turn::new();
    create(&other, &turn, "two").unwrap();
    // This one was lost with it, or has come after it has read anew.
    let three = create(&other, &turn, "three");
    assert!(matches!(three, Ok(_) | Err(FsError::Exists)), "{three:?}");
    other.wait_here(&turn).unwrap();
    let report = world
        .runtime
        .block_on(check(&*world.engine, VOLUME))
        .unwrap();
    assert_eq!((report.findings, report.names), (Vec::new(), 3));
    world.runtime.block_on(other.close());
}

/// One member: what many threads do at once is there, and a second manager goes on.
#[test]
fn a_namespace_over_etcd_goes_from_manager_to_manager() {
    let Some(cluster) = Cluster::begin(1, &|_| Vec::new()) else {
        return;
    };
    let prefix = Prefix::of(Arc::new(cluster));
    let runtime = runtime();
    let open = || -> Arc<dyn Engine> { runtime.block_on(Etcd::open(prefix.options())).unwrap() };
    let single = || NamespaceOptions {
        in_flight_max: 1,
        ..options()
    };
    let world = World::on(Arc::clone(&runtime), open(), single());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let world = &world;
            scope.spawn(move || {
                for request in 0..5 {
                    let turn = Turn::new();
                    for step in 0..40 {
                        let file = format!("{thread}-{request}-{step}");
                        create(&world.namespace, &turn, &file).unwrap();
                    }
                    world.namespace.wait_here(&turn).unwrap();
                }
            });
        }
    });
    let status = runtime.block_on(world.engine.status()).unwrap();
    println!("{} transactions for 800 files", status.transactions);
    assert!(status.transactions < 200, "{}", status.transactions);
    assert_eq!(world.checked().names, 800);
    world.close();
    let world = World::on(Arc::clone(&runtime), open(), single());
    let turn = Turn::new();
    let top = world.top();
    for file in ["0-0-0", "3-4-39"] {
        world
            .namespace
            .unlink(&turn, &root(), &top, &name(file))
            .unwrap();
    }
    world.namespace.wait_here(&turn).unwrap();
    let page = world
        .namespace
        .read_directory(&turn, &root(), &top, 0, 1000, true)
        .unwrap();
    assert_eq!((page.entries.len(), page.end), (798, true));
    assert_eq!(world.checked().names, 798);
    world.close();
}

#[test]
fn a_volume_is_made_once_and_others_of_the_engine_are_not_touched() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::at(&directory.path().join("meta"));
    let now = base::Timestamp::default();
    let made = |volume| {
        world
            .runtime
            .block_on(make(&*world.engine, volume, (1, 2), now))
    };
    assert!(matches!(made(VOLUME), Err(NamespaceError::Exists(VOLUME))));
    let second = base::VolumeId([10; 16]);
    let unknown = world.runtime.block_on(check(&*world.engine, second));
    assert!(matches!(unknown, Err(NamespaceError::Unknown(volume)) if volume == second));
    made(second).unwrap();
    world.file(&world.top(), "a");
    let report = world
        .runtime
        .block_on(check(&*world.engine, second))
        .unwrap();
    assert_eq!(
        (report.findings, report.inodes, report.names),
        (Vec::new(), 1, 0)
    );
    assert_eq!(world.checked().names, 1);
    world.close();
}

/// A file whose disk is full or gone: nothing is answered that is not there afterwards.
#[test]
fn after_the_engine_is_closed_nothing_is_said_to_be_durable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let runtime = runtime();
    let embedded = runtime.block_on(Embedded::open(&path)).unwrap();
    let engine: Arc<dyn Engine> = Arc::clone(&embedded) as Arc<dyn Engine>;
    let world = World::on(Arc::clone(&runtime), engine, options());
    world.file(&world.top(), "a");
    runtime.block_on(embedded.close());
    let turn = Turn::new();
    if create(&world.namespace, &turn, "b").is_ok() {
        assert!(world.namespace.wait_here(&turn).is_err());
    }
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(
        create(&world.namespace, &Turn::new(), "c").err(),
        Some(FsError::WouldBlock)
    );
    assert!(world.namespace.failure().is_some());
}
