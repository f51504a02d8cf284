//! Inodes without a name stay while somebody has them open; stores hear of what they have to do.

use crate::gate::Gate;
use crate::managers::gated;
use crate::world::{World, name, root};
use base::{AttributeChange, Extent, FileKind, FsError, Handle};
use meta::namespace::{Access, Chore, Create, Held, Layout, OpenOptions, Turn, What, Written};
use std::time::{Duration, Instant};

fn eventually(holds: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

fn chores(world: &World) -> Vec<(u64, Chore)> {
    world.runtime.block_on(world.namespace.sync_all()).unwrap();
    world
        .runtime
        .block_on(world.namespace.chores(0, 100))
        .unwrap()
}

#[test]
fn an_open_file_outlives_its_last_name_and_then_its_objects_are_to_be_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let world = World::at(&path);
    let (top, turn) = (world.top(), Turn::new());
    let file = world.file(&top, "a");
    let open = |options| {
        world
            .namespace
            .open_file(&turn, &root(), &file.handle, options)
    };
    let one = open(OpenOptions::new(Access::ReadWrite)).unwrap();
    let two = open(OpenOptions::new(Access::Read)).unwrap();
    let layout = world.namespace.layout_of(&turn, &file.handle).unwrap();
    let gone = world
        .namespace
        .unlink(&turn, &root(), &top, &name("a"))
        .unwrap()
        .unwrap();
    assert_eq!(gone.attributes.links, 0);
    assert_eq!((world.checked().orphans, chores(&world).len()), (1, 0));
    let change = AttributeChange {
        size: Some(7),
        ..Default::default()
    };
    let set = |file| {
        world
            .namespace
            .set_attributes(&turn, &root(), &gone.handle, &change, file)
    };
    assert_eq!(set(Some(&one)).unwrap().size, 7);
    assert_eq!(set(Some(&two)).err(), Some(FsError::Invalid));
    assert_eq!(world.namespace.attributes_of(&turn, &two).unwrap().size, 7);
    drop(one);
    assert_eq!(world.checked().orphans, 1);
    drop(two);
    assert!(eventually(|| world.checked().orphans == 0));
    let attributes = world.namespace.attributes(&turn, &root(), &gone.handle);
    assert_eq!(attributes.err(), Some(FsError::Stale));
    let all = chores(&world);
    let gone = Layout {
        generation: layout.generation + 1,
        ..layout
    };
    let cut = Chore::Cut {
        inode: file.attributes.inode,
        layout: gone.clone(),
        size: 0,
    };
    assert_eq!(
        all.iter()
            .map(|(_, chore)| chore.clone())
            .collect::<Vec<_>>(),
        [cut, Chore::Delete(gone)]
    );
    let numbers = all.iter().map(|(number, _)| *number);
    world
        .namespace
        .chores_done(&turn, &numbers.collect::<Vec<_>>())
        .unwrap();
    assert_eq!(chores(&world), []);
    world.checked();
    world.close();
}

/// After a crash those who had it open are gone, too; nothing is forgotten.
#[test]
fn orphans_of_a_manager_that_is_gone_are_collected_unless_they_are_held_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let world = World::at(&path);
    let (top, turn) = (world.top(), Turn::new());
    let files = ["a", "b"].map(|file| world.file(&top, file).handle);
    let held = files
        .clone()
        .map(|file| world.namespace.hold(&turn, &root(), &file).unwrap());
    for file in ["a", "b"] {
        world
            .namespace
            .unlink(&turn, &root(), &top, &name(file))
            .unwrap();
    }
    assert_eq!(world.checked().orphans, 2);
    // As after the death of the process: the file as it is while it is in use.
    let copy = directory.path().join("copy");
    std::fs::copy(&path, &copy).unwrap();
    let after = World::at(&copy);
    let again = after.namespace.hold(&turn, &root(), &files[0]).unwrap();
    let collect = || {
        after
            .runtime
            .block_on(after.namespace.collect_orphans())
            .unwrap()
    };
    assert_eq!((collect(), collect(), after.checked().orphans), (1, 0, 1));
    drop(again);
    assert!(eventually(|| after.checked().orphans == 0));
    assert_eq!(chores(&after).len(), 2);
    after.close();
    drop(held);
    world.close();
}

/// A file that is held and has no name any more.
fn nameless(world: &World, file: &str) -> Held {
    let (top, turn) = (world.top(), Turn::new());
    let made = world.file(&top, file);
    let held = world.namespace.hold(&turn, &root(), &made.handle).unwrap();
    let gone = world.namespace.unlink(&turn, &root(), &top, &name(file));
    gone.unwrap();
    world.namespace.wait_here(&turn).unwrap();
    held
}

/// A change that the engine does not carry out, after what happens meanwhile.
fn lose(world: &World, gate: &Gate, meanwhile: impl FnOnce()) {
    gate.open(false);
    let (top, turn, kind) = (world.top(), Turn::new(), FileKind::File);
    let file = name("lost");
    let made = world
        .namespace
        .make_node(&turn, &root(), &top, &file, kind, 0o644, 0, 0);
    made.unwrap();
    meanwhile();
    gate.open(true);
    assert!(world.namespace.wait_here(&turn).is_err());
}

#[test]
fn what_is_let_go_of_while_the_namespace_is_read_anew_is_collected_later() {
    let directory = tempfile::tempdir().unwrap();
    let (world, gate) = gated(&directory.path().join("meta"));
    let held = nameless(&world, "a");
    gate.blind(true);
    gate.turn_away(1);
    lose(&world, &gate, || {});
    drop(held);
    std::thread::sleep(Duration::from_millis(100));
    gate.blind(false);
    assert!(eventually(|| world.checked().orphans == 0));
    world.close();
}

#[test]
fn what_was_collected_by_a_change_that_is_lost_is_collected_again() {
    let directory = tempfile::tempdir().unwrap();
    let (world, gate) = gated(&directory.path().join("meta"));
    let held = nameless(&world, "a");
    gate.turn_away(1);
    drop(held);
    assert!(eventually(|| world.checked().orphans == 0));
    world.close();
}

#[test]
fn whoever_has_orphans_collected_is_told_when_some_are_left() {
    let directory = tempfile::tempdir().unwrap();
    let (world, gate) = gated(&directory.path().join("meta"));
    let held = nameless(&world, "a");
    let (seat, epoch) = (world.leadership.seat(), world.leadership.epoch());
    lose(&world, &gate, || {
        let deposing = world.engine.depose(seat, epoch);
        world.runtime.block_on(deposing).unwrap();
    });
    drop(held);
    let collected = world.runtime.block_on(world.namespace.collect_orphans());
    assert!(collected.is_err(), "{collected:?}");
    assert_eq!(world.checked().orphans, 1);
}

fn up_to(end: u64) -> Written {
    Written {
        generation: 0,
        end,
        extent: Extent::new(0, end),
        what: What::Data,
        place: None,
    }
}

#[test]
fn what_is_cut_off_is_to_be_cut_off_at_the_stores_and_what_lies_behind_the_end_as_well() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::at(&directory.path().join("meta"));
    let (top, turn) = (world.top(), Turn::new());
    let file = world.file(&top, "a");
    let wrote = world
        .namespace
        .wrote(&turn, &root(), &file.handle, &up_to(5_000_000))
        .unwrap();
    assert_eq!(
        (wrote.size, wrote.blocks),
        (5_000_000, (3 * (1 << 20) + 1_855_488) / 512)
    );
    let again = world
        .namespace
        .wrote(&turn, &root(), &file.handle, &up_to(10))
        .unwrap();
    assert_eq!(again.size, 5_000_000);
    assert!(again.modified > wrote.modified);
    for size in [6_000_000, 4000] {
        let change = AttributeChange {
            size: Some(size),
            ..Default::default()
        };
        let set = world
            .namespace
            .set_attributes(&turn, &root(), &file.handle, &change, None);
        assert_eq!(set.unwrap().size, size);
    }
    let all = chores(&world);
    let cuts = all.iter().map(|(_, chore)| match chore {
        Chore::Cut {
            inode,
            layout,
            size,
        } => (*inode, layout.generation, *size),
        other => panic!("{other:?}"),
    });
    let inode = file.attributes.inode;
    let expected = [(inode, 1, 5_000_000), (inode, 2, 4000)];
    assert_eq!(cuts.collect::<Vec<_>>(), expected);
    let late = world
        .namespace
        .wrote(&turn, &root(), &file.handle, &up_to(10));
    assert_eq!(late.err(), Some(FsError::WouldBlock));
    world.checked();
    world.close();
}

/// The stores are told before a file is cut, and hear of another one than has the name by then.
#[test]
fn a_creation_cuts_no_file_but_the_one_that_it_was_to_cut() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::at(&directory.path().join("meta"));
    let (top, turn) = (world.top(), Turn::new());
    let [meant, other] = ["meant", "other"].map(|file| world.file(&top, file).handle);
    for file in [&meant, &other] {
        let wrote = world.namespace.wrote(&turn, &root(), file, &up_to(10));
        assert_eq!(wrote.unwrap().size, 10);
    }
    let create = |file, cuts: Option<&Handle>, truncate| {
        let open = OpenOptions {
            truncate,
            ..OpenOptions::new(Access::Write)
        };
        let how = Create {
            mode: 0o644,
            umask: 0,
            exclusive: false,
            open,
            cuts: cuts.cloned(),
            layout: None,
        };
        let made = world
            .namespace
            .create(&turn, &root(), &top, &name(file), &how);
        made.map(|made| (made.node.attributes.size, made.created))
    };
    let before = world.namespace.layout_of(&turn, &other).unwrap();
    for cuts in [None, Some(&meant)] {
        assert_eq!(create("other", cuts, true), Err(FsError::WouldBlock));
        assert_eq!(world.find(&top, "other").unwrap().attributes.size, 10);
        assert_eq!(world.namespace.layout_of(&turn, &other), Ok(before.clone()));
        assert_eq!(create("other", cuts, false), Ok((10, false)));
    }
    assert_eq!(chores(&world), []);
    // What is made is not cut, and neither is the file that had the name before.
    assert_eq!(create("new", Some(&meant), true), Ok((0, true)));
    assert_eq!(create("other", Some(&other), true), Ok((0, false)));
    assert_eq!(world.find(&top, "meant").unwrap().attributes.size, 10);
    assert_eq!(chores(&world).len(), 1);
    world.checked();
    world.close();
}
