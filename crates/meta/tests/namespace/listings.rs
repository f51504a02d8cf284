//! Large directories: cookies that stay, memory that is bounded, what is not in memory.

use crate::world::{World, options, root, runtime};
use base::{FileKind, Handle, Name};
use meta::namespace::{NamespaceOptions, Turn};
use meta::{Embedded, Engine};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

fn create(world: &World, parent: &Handle, names: impl Iterator<Item = String>) {
    let turn = Turn::new();
    for file in names {
        let (file, kind) = (Name::new(file).unwrap(), FileKind::File);
        let made = world
            .namespace
            .make_node(&turn, &root(), parent, &file, kind, 0o644, 0, 0);
        made.unwrap();
    }
    world.namespace.wait_here(&turn).unwrap();
}

/// Lists a directory page by page; `between` is done after each.
fn list(
    world: &World,
    directory: &Handle,
    page_max: usize,
    mut between: impl FnMut(usize),
) -> BTreeMap<String, u32> {
    let (mut found, mut cookie, mut pages) = (BTreeMap::new(), 0, 0);
    loop {
        let turn = Turn::new();
        let page =
            world
                .namespace
                .read_directory(&turn, &root(), directory, cookie, page_max, true);
        let page = page.unwrap();
        assert!(page.entries.len() <= page_max && (page.end || !page.entries.is_empty()));
        for entry in &page.entries {
            assert!(entry.cookie > cookie, "cookies grow");
            cookie = entry.cookie;
            assert_eq!(entry.node.as_ref().unwrap().attributes.inode, entry.inode);
            *found.entry(entry.name.to_string()).or_default() += 1;
        }
        if page.end {
            return found;
        }
        pages += 1;
        between(pages);
    }
}

#[test]
fn what_is_there_throughout_is_listed_once_while_names_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let mut world = World::at(&path);
    let crowd = world.directory(&world.top(), "crowd").handle;
    create(
        &world,
        &crowd,
        (0..3000).map(|index| format!("stays{index}")),
    );
    create(&world, &crowd, (0..300).map(|index| format!("goes{index}")));
    // With everything in memory, and with nothing.
    for round in 0..2 {
        let found = list(&world, &crowd, 100, |page| {
            let turn = Turn::new();
            let gone = Name::new(format!("goes{}", 150 * round + page)).unwrap();
            world
                .namespace
                .unlink(&turn, &root(), &crowd, &gone)
                .unwrap();
            create(
                &world,
                &crowd,
                std::iter::once(format!("comes{round}-{page}")),
            );
        });
        for index in 0..3000 {
            assert_eq!(found.get(&format!("stays{index}")), Some(&1), "{index}");
        }
        assert!(found.values().all(|times| *times == 1));
        world.checked();
        if round == 0 {
            world.close();
            world = World::at(&path);
        }
    }
    world.close();
}

/// Memory for a few hundred names; every operation has to read, and everything is right.
#[test]
fn a_directory_that_does_not_fit_into_memory_is_listed_changed_and_found() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let engine: Arc<dyn Engine> = runtime
        .block_on(Embedded::open(directory.path().join("meta")))
        .unwrap();
    let options = NamespaceOptions {
        cache_entries_max: 600,
        ..options()
    };
    let world = World::on(runtime, engine, options);
    let crowd = world.directory(&world.top(), "crowd").handle;
    for part in 0..20 {
        create(
            &world,
            &crowd,
            (0..250).map(|index| format!("{part}-{index}")),
        );
        // What is not durable is kept; nothing is under way now.
        assert!(
            world.namespace.cached() < 1500,
            "{} in memory",
            world.namespace.cached()
        );
    }
    let found = list(&world, &crowd, 200, |_| {
        assert!(
            world.namespace.cached() < 1500,
            "{} in memory",
            world.namespace.cached()
        );
    });
    assert_eq!((found.len(), found.values().sum()), (5000, 5000));
    let turn = Turn::new();
    for index in (0..250).step_by(50) {
        let file = Name::new(format!("7-{index}")).unwrap();
        let there = world
            .namespace
            .lookup(&turn, &root(), &crowd, &file)
            .unwrap();
        let attributes = world
            .namespace
            .attributes(&turn, &root(), &there.handle)
            .unwrap();
        assert_eq!(attributes, there.attributes);
        world
            .namespace
            .unlink(&turn, &root(), &crowd, &file)
            .unwrap();
        let missing = Name::new(format!("8-{index}x")).unwrap();
        assert!(
            world
                .namespace
                .lookup(&turn, &root(), &crowd, &missing)
                .is_err()
        );
    }
    assert_eq!(list(&world, &crowd, 4096, |_| {}).len(), 4995);
    assert_eq!(world.checked().names, 4996);
    world.close();
}

/// What it costs is printed: threads that each make files by the hundred, then everything listed
/// with attributes from memory.
#[test]
fn threads_that_make_files_by_the_hundred_share_transactions() {
    const THREADS: usize = 4;
    const FILES: usize = 2000;
    let directory = tempfile::tempdir().unwrap();
    let world = World::at(&directory.path().join("meta"));
    let crowds = (0..THREADS).map(|crowd| format!("crowd{crowd}"));
    let crowds: Vec<_> = crowds
        .map(|crowd| world.directory(&world.top(), &crowd).handle)
        .collect();
    let before = world.runtime.block_on(world.engine.status()).unwrap();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for crowd in &crowds {
            let world = &world;
            scope.spawn(move || {
                for hundred in 0..FILES / 100 {
                    create(
                        world,
                        crowd,
                        (0..100).map(|index| format!("{hundred}-{index}")),
                    );
                }
            });
        }
    });
    let (took, count) = (begin.elapsed(), THREADS * FILES);
    let after = world.runtime.block_on(world.engine.status()).unwrap();
    let transactions = after.transactions - before.transactions;
    let begin = Instant::now();
    let listed: usize = crowds
        .iter()
        .map(|crowd| list(&world, crowd, 4096, |_| {}).len())
        .sum();
    let listing = begin.elapsed();
    println!("{count} files in {took:?}, {transactions} transactions; listed in {listing:?}");
    assert_eq!(listed, count);
    // Two keys a file, 118 a transaction, and some that are not full.
    assert!(transactions < count as u64 / 25, "{transactions}");
    assert_eq!(world.checked().inodes, (count + THREADS + 1) as u64);
    world.close();
}
