//! Changes that are asked for twice are made once, whoever is the manager by then.

use crate::world::{World, name, root};
use base::{FileKind, FsError, RequestId, SessionId};
use meta::namespace::{Identity, RenameMode, Turn};

const SESSION: SessionId = SessionId([3; 16]);

fn turn(request: u64, step: u8) -> Turn {
    let turn = Turn::new();
    turn.begin(Some(Identity {
        session: SESSION,
        request: RequestId(request),
        step,
    }));
    turn
}

/// Creates, renames, removes; the answers of a second asking are those of the first.
#[test]
fn what_is_asked_for_again_after_a_restart_is_not_done_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let world = World::at(&path);
    let make = |world: &World, turn: &Turn, file: &str| {
        let (top, kind) = (world.top(), FileKind::File);
        world
            .namespace
            .make_node(turn, &root(), &top, &name(file), kind, 0o600, 0, 0)
    };
    let (one, two) = (turn(1, 0), turn(1, 1));
    let made = make(&world, &one, "a").unwrap();
    let other = make(&world, &two, "b").unwrap();
    world.namespace.wait_here(&two).unwrap();
    let renaming = |world: &World, turn: &Turn| {
        let (top, mode) = (world.top(), RenameMode::Replace);
        world
            .namespace
            .rename(turn, &root(), &top, &name("a"), &top, &name("c"), mode)
    };
    let three = turn(2, 0);
    assert!(renaming(&world, &three).unwrap().moved.is_some());
    world.namespace.wait_here(&three).unwrap();
    world.close();
    let world = World::at(&path);
    assert_eq!(make(&world, &turn(1, 0), "a").unwrap().handle, made.handle);
    assert_eq!(make(&world, &turn(1, 1), "b").unwrap(), other);
    assert_eq!(make(&world, &turn(1, 2), "b").err(), Some(FsError::Exists));
    assert_eq!(renaming(&world, &turn(2, 0)).unwrap().moved, None);
    assert_eq!(renaming(&world, &turn(3, 0)).err(), Some(FsError::NotFound));
    assert_eq!(world.checked().names, 2);
    // What is settled is forgotten, and may happen again.
    world
        .namespace
        .settle(SESSION, |request| request <= RequestId(1))
        .unwrap();
    assert_eq!(make(&world, &turn(1, 0), "b").err(), Some(FsError::Exists));
    assert_eq!(renaming(&world, &turn(2, 0)).unwrap().moved, None);
    world.checked();
    world.close();
    let world = World::at(&path);
    assert_eq!(make(&world, &turn(1, 0), "b").err(), Some(FsError::Exists));
    assert_eq!(renaming(&world, &turn(2, 0)).unwrap().moved, None);
    let later = base::Timestamp {
        seconds: i64::MAX,
        nanos: 0,
    };
    world.namespace.forget_requests_before(later).unwrap();
    assert_eq!(renaming(&world, &turn(2, 0)).err(), Some(FsError::NotFound));
    world.checked();
    world.close();
}
