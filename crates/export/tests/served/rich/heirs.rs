//! New files in directories with rich ACLs.

use super::{BOB, DENIED, NOTED, World, alice, bob, carol};
use crate::common::{is_root, name};
use base::{Access, FileKind, Handle, Node, Principal};
use export::{Create, OpenOptions};

fn create(world: &World, who: &Principal, parent: &Handle, file: &str, mode: u16) -> Node {
    let how = Create {
        mode,
        umask: 0o77,
        exclusive: true,
        open: OpenOptions::new(Access::ReadWrite),
    };
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    let made = export.create(worker, who, parent, &name(file), &how);
    let made = made.expect("who may");
    made.file
        .write_at(worker, who, 0, b"new")
        .expect("it is open for what was asked");
    made.node
}

#[test]
fn heirs_have_what_their_directory_says_under_the_mode_they_are_made_with() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let directory = world.directory("d", "700");
    let entries = [
        "A:fd:2002:rwaxDtcy",
        "A:f:2003:rtcy",
        "A::OWNER@:rwaxDtTcCy",
        "A:fi:OWNER@:rwatTcCy",
        "A::EVERYONE@:xtcy",
    ];
    world.set(&alice(), &directory, &entries).expect("hers");
    let file = create(&world, &bob(), &directory.handle, "f", 0o666);
    assert_eq!(file.attributes.uid, BOB);
    let texts = world.get(&bob(), &file.handle).expect("his");
    assert!(texts.contains(&"A:I:2003:rtcy".to_owned()), "{texts:?}");
    // The umask took nothing; who is spoken of has it, and nobody else.
    assert_eq!(world.open(&carol(), &file.handle, Access::Read), Ok(()));
    assert_eq!(world.open(&carol(), &file.handle, Access::Write), DENIED);
    assert_eq!(world.open(&alice(), &file.handle, Access::Read), DENIED);
    // Who makes a file for himself alone gets one.
    let secret = create(&world, &bob(), &directory.handle, "secret", 0o600);
    assert_eq!(world.open(&carol(), &secret.handle, Access::Read), DENIED);
    assert_eq!(secret.attributes.mode & 0o077, 0);

    let (export, worker) = (&world.tree.export, &world.tree.worker);
    let parent = &directory.handle;
    let sub = export.make_directory(worker, &bob(), parent, &name("sub"), 0o777, 0o77);
    let sub = sub.expect("he may");
    let texts = world.get(&bob(), &sub.handle).expect("his");
    assert_eq!(texts[0], "A:fdI:2002:rwaxDtcy", "{texts:?}");
    assert_eq!(texts[1], "A:fiI:2003:rtcy", "{texts:?}");
    let deep = create(&world, &bob(), &sub.handle, "deep", 0o644);
    assert_eq!(world.open(&carol(), &deep.handle, Access::Read), Ok(()));
    let fifo = export.make_node(
        worker,
        &bob(),
        parent,
        &name("fifo"),
        FileKind::Fifo,
        0o666,
        0,
        0,
    );
    let fifo = fifo.expect("he may");
    let texts = world.get(&bob(), &fifo.handle).expect("his");
    assert!(texts.contains(&"A:I:2003:rtcy".to_owned()), "{texts:?}");
}

#[test]
fn without_entries_for_heirs_mode_and_umask_say_everything() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let directory = world.directory("d", "700");
    world.locally("setfacl -d -m u:2003:rwx d");
    let entries = ["A::2002:rwaxDtcy", "A::OWNER@:rwaxDtTcCy"];
    world.set(&alice(), &directory, &entries).expect("hers");
    let file = create(&world, &bob(), &directory.handle, "f", 0o666);
    assert_eq!(file.attributes.mode, 0o600);
    let beside = world.locally("getfattr -d -m - d/f");
    assert_eq!(beside, "", "neither a list nor the default ACL from before");
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    let link = export.make_symlink(worker, &bob(), &directory.handle, &name("l"), b"f");
    assert_eq!(link.expect("he may").attributes.kind, FileKind::Symlink);
}

/// What programs of the machine make there, without the server.
#[test]
fn what_is_made_behind_the_servers_back_allows_nobody_more_than_an_heir() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let directory = world.directory("d", "777");
    world.locally("setfacl -d -m u::rwx,u:2002:rw,g::-,o::- d");
    let entries = [
        "A:fd:2003:rtcy",
        "A:fd:OWNER@:rwaxDtTcCy",
        "A::EVERYONE@:rwaxDtcy",
    ];
    world.set(&alice(), &directory, &entries).expect("hers");
    world.locally("umask 0; echo new > d/made; mkdir d/sub; echo new > d/sub/deep");
    for path in ["d/made", "d/sub/deep"] {
        let made = world.tree.find(path);
        assert_eq!(
            made.attributes.mode & 0o007,
            0,
            "{path}: {:o}",
            made.attributes.mode
        );
        assert_eq!(
            world.open(&bob(), &made.handle, Access::Read),
            DENIED,
            "{path}"
        );
    }
    // The way back is exact all the same.
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    let back = export.remove_acl(worker, &alice(), &directory.handle, NOTED);
    back.expect("she may go back");
    let shown = world.locally("getfacl -cdn d");
    assert!(
        shown.contains("user:2002:rw-") && shown.contains("other::---"),
        "{shown}"
    );

    // Of a directory that has something for directories alone, files take nothing.
    let entries = ["A:d:2003:rxtcy", "A::EVERYONE@:rwaxDtcy"];
    world.set(&alice(), &directory, &entries).expect("hers");
    let how = Create {
        mode: 0o666,
        umask: 0o22,
        exclusive: true,
        open: OpenOptions::new(Access::ReadWrite),
    };
    let own = export.create(worker, &bob(), &directory.handle, &name("own"), &how);
    assert_eq!(own.expect("he may").node.attributes.mode, 0o644);
    assert_eq!(world.locally("getfattr -d -m - d/own"), "");
    world.locally("umask 022; echo new > d/made-too");
    assert_eq!(world.tree.find("d/made-too").attributes.mode & 0o007, 0);
}
