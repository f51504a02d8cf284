//! Places of appends: given once, kept over restarts, and what becomes of them.

use crate::world::{VOLUME, World, name, options, root, runtime};
use base::{AttributeChange, Extent, FileKind, FsError, Handle, RequestId, SessionId};
use meta::namespace::{
    Chore, Identity, NAMESPACE_FORMAT_VERSION, Namespace, Placed, Turn, What, Written,
};
use meta::{Embedded, Engine, KeyRange, Transaction};
use std::sync::Arc;

fn place(world: &World, file: &Handle, bytes: u64) -> Placed {
    let placed = world.durably(|names, turn| names.extend(turn, &root(), file, bytes));
    placed.unwrap()
}

fn left(world: &World, file: &Handle, place: u64) -> (u64, Vec<Extent>) {
    let left = world.namespace.left(&Turn::new(), file, place).unwrap();
    (left.generation, left.parts)
}

fn resize(world: &World, file: &Handle, size: u64) {
    let change = AttributeChange {
        size: Some(size),
        ..Default::default()
    };
    let resized =
        world.durably(|names, turn| names.set_attributes(turn, &root(), file, &change, None));
    assert_eq!(resized.unwrap().size, size);
}

/// Nobody waits any longer for what is being appended.
fn show(world: &World, file: &Handle) {
    let shown = world.durably(|names, turn| names.show_places(turn, file, u64::MAX));
    shown.unwrap();
}

fn data(generation: u64, extent: Extent, place: Option<u64>) -> Written {
    Written {
        generation,
        end: extent.end(),
        extent,
        what: What::Data,
        place,
    }
}

#[test]
fn a_place_is_there_until_it_is_written_also_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let mut world = World::at(&path);
    let file = world.file(&world.top(), "log").handle;
    let first = place(&world, &file, 10);
    let second = place(&world, &file, 10);
    assert_eq!((first.begin, second.begin), (0, 10));
    show(&world, &file);
    resize(&world, &file, 15);
    world.close();
    world = World::at(&path);
    let whole = Extent::new(0, 10);
    assert_eq!(left(&world, &file, first.place), (1, vec![whole]));
    let cut = (1, vec![Extent::new(10, 5)]);
    assert_eq!(left(&world, &file, second.place), cut);
    let wrote = |written: &Written| {
        world.durably(|names, turn| names.wrote(turn, &root(), &file, written).map(|it| it.size))
    };
    let late = data(0, whole, Some(first.place));
    assert_eq!(wrote(&late), Err(FsError::WouldBlock));
    assert_eq!(wrote(&data(1, whole, Some(first.place))), Ok(15));
    assert_eq!(left(&world, &file, first.place), (1, Vec::new()));
    assert_eq!(left(&world, &file, second.place), cut);
    world.checked();
    world.close();
}

#[test]
fn a_file_is_as_long_as_what_was_appended_without_a_gap() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let mut world = World::at(&path);
    let file = world.file(&world.top(), "log").handle;
    let size = |world: &World| {
        let attributes = world.namespace.attributes(&Turn::new(), &root(), &file);
        attributes.unwrap().size
    };
    let wrote = |world: &World, placed: &Placed| {
        let extent = Extent::new(placed.begin, 10);
        let written = data(placed.generation, extent, Some(placed.place));
        world.durably(|names, turn| {
            names
                .wrote(turn, &root(), &file, &written)
                .map(|it| it.size)
        })
    };
    let [first, second] = [(); 2].map(|()| place(&world, &file, 10));
    assert_eq!((second.begin, second.attributes.size), (10, 0));
    // The second is there and the first is not, also when another manager is asked.
    assert_eq!(wrote(&world, &second), Err(FsError::WouldBlock));
    world.close();
    world = World::at(&path);
    assert_eq!(size(&world), 0);
    assert_eq!(wrote(&world, &first), Ok(10));
    assert_eq!(size(&world), 10);
    assert_eq!(wrote(&world, &second), Ok(20));
    // What is cut where everybody sees the end has nothing behind it.
    let third = place(&world, &file, 10);
    assert_eq!((third.begin, size(&world)), (20, 20));
    resize(&world, &file, 20);
    assert_eq!(left(&world, &file, third.place), (1, Vec::new()));
    // What is to be longer comes after what is being appended.
    let fourth = place(&world, &file, 10);
    let longer = AttributeChange {
        size: Some(25),
        ..Default::default()
    };
    let resized =
        world.durably(|names, turn| names.set_attributes(turn, &root(), &file, &longer, None));
    assert_eq!(resized.map(drop), Err(FsError::WouldBlock));
    assert_eq!(size(&world), 20);
    // Unless nobody waits any longer: then it is seen before it is there.
    show(&world, &file);
    assert_eq!(size(&world), 30);
    resize(&world, &file, 25);
    let rest = Extent::new(20, 5);
    assert_eq!(left(&world, &file, fourth.place), (2, vec![rest]));
    world.checked();
    world.close();
}

#[test]
fn who_writes_where_something_was_appended_goes_behind_it_once() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::at(&directory.path().join("meta"));
    let file = world.file(&world.top(), "log").handle;
    let placed = place(&world, &file, 10);
    let there = Extent::new(8, 10);
    let wrote = |names: &Namespace, turn: &Turn, written: &Written| {
        let wrote = names.wrote(turn, &root(), &file, written);
        wrote.map(|attributes| attributes.size)
    };
    // Space that is given changes no bytes.
    let space = Written {
        what: What::Space,
        ..data(0, there, None)
    };
    // The append comes first, if it comes.
    for early in [&space, &data(0, there, None)] {
        let waits = world.durably(|names, turn| wrote(names, turn, early));
        assert_eq!(waits, Err(FsError::WouldBlock));
        let is_met = world.namespace.is_met(&Turn::new(), &file, early);
        assert_eq!(is_met, Ok(false));
    }
    show(&world, &file);
    assert_eq!(
        world.durably(|names, turn| wrote(names, turn, &space)),
        Ok(18)
    );
    let written = data(0, there, None);
    let refused = world.durably(|names, turn| wrote(names, turn, &written));
    assert_eq!(refused, Err(FsError::WouldBlock));
    let overtake = || {
        world.durably(|names, turn| {
            assert_eq!(names.is_met(turn, &file, &written), Ok(true));
            names.overtake(turn, &root(), &file, &written).unwrap().size
        })
    };
    assert_eq!(overtake(), 18);
    assert_eq!(
        left(&world, &file, placed.place),
        (1, vec![Extent::new(0, 8)])
    );
    let again = data(1, there, None);
    assert_eq!(
        world.durably(|names, turn| wrote(names, turn, &again)),
        Ok(18)
    );
    // Elsewhere nothing is in the way, and where the rest of it goes something is.
    let before = data(1, Extent::new(7, 1), None);
    let is_met = world.namespace.is_met(&Turn::new(), &file, &before);
    assert_eq!(is_met, Ok(true));
    let chores = world.namespace.chores(0, 100);
    let chores = world.runtime.block_on(chores).unwrap();
    let [(_, Chore::Cut { layout, size, .. })] = &chores[..] else {
        panic!("{chores:?}");
    };
    assert_eq!((layout.generation, *size), (1, 18), "nothing is cut off");
    world.close();
}

#[test]
fn who_makes_a_file_longer_waits_for_no_append_that_was_begun_later() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::at(&directory.path().join("meta"));
    let file = world.file(&world.top(), "log").handle;
    let names = &world.namespace;
    let turn = Turn::new();
    let tell = |placed: &Placed| {
        let extent = Extent::new(placed.begin, 10);
        let written = data(placed.generation, extent, Some(placed.place));
        let told = world.durably(|names, turn| names.wrote(turn, &root(), &file, &written));
        told.unwrap().size
    };
    let first = place(&world, &file, 10);
    let far = data(0, Extent::new(100, 10), None);
    let behind = names.waits(&turn, &file, &far).unwrap();
    assert_eq!(behind, Some(first.place));
    turn.wait_through(behind);
    let second = place(&world, &file, 10);
    let early = names.wrote(&turn, &root(), &file, &far);
    assert_eq!(early.map(drop), Err(FsError::WouldBlock));
    assert_eq!(tell(&first), 10);
    // The file is so long, but nobody is shown what is not there.
    assert_eq!(names.waits(&turn, &file, &far), Ok(None));
    assert_eq!(names.wrote(&turn, &root(), &file, &far).unwrap().size, 10);
    turn.wait_through(None);
    let unseen = names.is_behind(&turn, &file, far.end).unwrap();
    assert_eq!(unseen, Some(second.place));
    let third = place(&world, &file, 10);
    assert_eq!(third.begin, 110, "what is appended now lies behind it");
    assert_eq!(tell(&second), 110);
    assert_eq!(names.is_behind(&turn, &file, far.end), Ok(None));
    // Nobody is shown more than what was waited for.
    turn.wait_through(Some(third.place));
    let fourth = place(&world, &file, 10);
    names.show_places(&turn, &file, u64::MAX).unwrap();
    let shown = names.attributes(&turn, &root(), &file).unwrap();
    assert_eq!((shown.size, fourth.begin), (120, 120));
    names.wait_here(&turn).unwrap();
    world.checked();
    world.close();
}

#[test]
fn an_append_that_cannot_be_written_is_as_if_it_had_never_been_unless_something_is_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let mut world = World::at(&path);
    let file = world.file(&world.top(), "log").handle;
    let give_up = |world: &World, place: u64, can_be_cut: bool| {
        let given_up = world.durably(|names, turn| names.give_up(turn, &file, place, can_be_cut));
        given_up.unwrap().size
    };
    let tell = |world: &World, placed: &Placed, generation: u64| {
        let extent = Extent::new(placed.begin, 10);
        let written = data(generation, extent, Some(placed.place));
        let told = world.durably(|names, turn| names.wrote(turn, &root(), &file, &written));
        told.map(|attributes| attributes.size)
    };
    let first = place(&world, &file, 10);
    assert_eq!(tell(&world, &first, 0), Ok(10));
    let failed = place(&world, &file, 10);
    assert_eq!(give_up(&world, failed.place, true), 10);
    // Whatever is asked again, or comes late, changes nothing any more; nor for the next manager.
    assert_eq!(give_up(&world, failed.place, true), 10);
    assert_eq!(tell(&world, &failed, 0), Err(FsError::WouldBlock));
    world.close();
    world = World::at(&path);
    assert_eq!(give_up(&world, failed.place, true), 10);
    let [failed, next] = [(); 2].map(|()| place(&world, &file, 10));
    assert_eq!((failed.begin, failed.generation), (10, 1));
    // Nobody waits for it, but what is behind it stays where it is.
    assert_eq!(tell(&world, &next, 1), Err(FsError::WouldBlock));
    assert_eq!(give_up(&world, failed.place, true), 20);
    assert_eq!(tell(&world, &next, 1), Ok(30));
    // A file that cannot be cut has zeros there, as if the machine had died.
    let failed = place(&world, &file, 10);
    assert_eq!(give_up(&world, failed.place, false), 40);
    // Who has made a file so long finds it so.
    let failed = place(&world, &file, 10);
    let turn = Turn::new();
    turn.wait_through(Some(next.place));
    let size = AttributeChange {
        size: Some(50),
        ..Default::default()
    };
    let sized = (world.namespace).set_attributes(&turn, &root(), &file, &size, None);
    assert_eq!(sized.unwrap().size, 50);
    assert_eq!(give_up(&world, failed.place, true), 50);
    world.checked();
    world.close();
}

#[test]
fn a_place_that_is_asked_for_again_is_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let mut world = World::at(&path);
    let file = world.file(&world.top(), "log").handle;
    let ask = |world: &World| {
        let turn = Turn::new();
        turn.begin(Some(Identity {
            session: SessionId([3; 16]),
            request: RequestId(1),
            step: 0,
        }));
        let placed = world.namespace.extend(&turn, &root(), &file, 10).unwrap();
        world.namespace.wait_here(&turn).unwrap();
        placed
    };
    let placed = ask(&world);
    show(&world, &file);
    resize(&world, &file, 4);
    world.close();
    world = World::at(&path);
    let again = ask(&world);
    assert_eq!(
        (again.place, again.generation, again.begin),
        (placed.place, placed.generation, placed.begin)
    );
    assert_eq!(again.attributes.size, 4);
    world.close();
}

/// The entry whose value begins with the version.
fn constants(engine: &dyn Engine, world: &tokio::runtime::Runtime) -> (Vec<u8>, Vec<u8>) {
    let page = world.block_on(engine.range(&KeyRange::all(), 1000, None));
    let mut entries = page.unwrap().entries.into_iter();
    let found = entries.find(|entry| entry.key.len() == 6 && entry.key.ends_with(b"c"));
    let found = found.unwrap();
    (found.key, found.value)
}

#[test]
fn a_volume_of_version_1_is_opened_and_is_of_version_2_then() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let world = World::at(&path);
    let file = world.file(&world.top(), "old");
    world.close();
    let runtime = runtime();
    let engine: Arc<dyn Engine> = runtime.block_on(Embedded::open(&path)).unwrap();
    let set = |version: u8| {
        let (key, mut value) = constants(&*engine, &runtime);
        value[0] = version;
        let setting = Transaction::new().put(key, value);
        runtime.block_on(engine.commit(setting)).unwrap();
    };
    set(1);
    let world = World::on(runtime.clone(), engine.clone(), options());
    let found =
        world.durably(|names, turn| names.lookup(turn, &root(), &world.top(), &name("old")));
    assert_eq!(found.unwrap().handle, file.handle);
    assert_eq!(found_version(&engine, &runtime), NAMESPACE_FORMAT_VERSION);
    let made = world.durably(|names, turn| {
        let (top, kind) = (world.top(), FileKind::File);
        names.make_node(turn, &root(), &top, &name("new"), kind, 0o644, 0, 0)
    });
    made.unwrap();
    world.runtime.block_on(world.namespace.close());
    set(NAMESPACE_FORMAT_VERSION as u8 + 1);
    let newer = runtime.block_on(meta::namespace::check(&*engine, VOLUME));
    let newer = format!("{newer:?}");
    assert!(newer.contains("Newer"), "{newer}");
}

fn found_version(engine: &Arc<dyn Engine>, runtime: &tokio::runtime::Runtime) -> u64 {
    u64::from(constants(&**engine, runtime).1[0])
}
