//! Turning rich ACLs on changes nothing by itself, and going back leaves nothing behind.

use super::{ALICE, AUDIT, BOB, DENIED, NOTED, World, alice, bob, carol};
use crate::common::is_root;
use base::{Access, FsError, Principal};
use export::RichFigures;

/// What the kernel has beside a file, byte by byte.
fn posix_of(world: &World, path: &str) -> String {
    world.locally(&format!(
        "stat -c '%a %u %g' {path}; getfattr -h -d -m system.posix -e hex {path}; \
         getfattr -h -d -m security.azekura -e hex {path}"
    ))
}

#[test]
fn what_is_shown_of_a_posix_acl_can_be_written_back_and_nothing_has_happened() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let file = world.file("f", "640");
    world.locally("setfacl -m u:2002:rw,g:3002:r f");
    let before = posix_of(&world, "f");
    let shown = world
        .get(&carol(), &file.handle)
        .expect("everybody may look");
    assert!(shown.contains(&"A::2002:rwatnNcy".to_owned()), "{shown:?}");
    let entries: Vec<&str> = shown.iter().map(String::as_str).collect();
    world.set(&alice(), &file, &entries).expect("her file");
    assert_eq!(posix_of(&world, "f"), before);
    assert_eq!(world.tree.export.rich_figures().edits, 0);
    assert_eq!(
        world.set(&bob(), &file, &["A::2002:rw"]),
        Err(FsError::NotPermitted)
    );
    assert_eq!(posix_of(&world, "f"), before);
}

#[test]
fn going_back_gives_the_posix_acls_from_before_byte_by_byte() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let (file, directory) = (world.file("f", "750"), world.directory("d", "2771"));
    world.locally(
        "setfacl -m u:2002:rw,g:3002:r,m::rx f; setfacl -m u:2002:rwx d; \
         setfacl -d -m u:2003:rx,o::- d",
    );
    for (node, path) in [(file, "f"), (directory, "d")] {
        let before = posix_of(&world, path);
        for entries in [
            &["A::2003:rwx", "A::EVERYONE@:r"][..],
            &["D::2002:r", "A::2003:r"],
        ] {
            world.set(&alice(), &node, entries).expect("hers");
            assert_ne!(posix_of(&world, path), before);
        }
        world.locally(&format!("chmod 700 {path}"));
        let (export, worker) = (&world.tree.export, &world.tree.worker);
        let refused = export.remove_acl(worker, &bob(), &node.handle, NOTED);
        assert_eq!(refused.err(), Some(FsError::AccessDenied));
        let (_, edit) = export
            .remove_acl(worker, &alice(), &node.handle, NOTED)
            .expect("hers");
        let path_told = edit.expect("something happened").path;
        assert!(path_told.ends_with(path), "{path_told}");
        assert_eq!(posix_of(&world, path), before);
        let (_, edit) = export
            .remove_acl(worker, &alice(), &node.handle, NOTED)
            .expect("hers");
        assert!(edit.is_none(), "there was nothing any more");
    }
}

#[test]
fn without_the_flag_nothing_is_shown_set_or_asked_for() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let file = world.file("f", "600");
    world.set(&alice(), &file, &["A::2002:rx"]).expect("hers");
    assert_eq!(world.open(&bob(), &file.handle, Access::Execute), Ok(()));
    world.tree.export.set_rich(false);
    let before = world.tree.export.rich_figures();
    assert_eq!(
        world.get(&alice(), &file.handle),
        Err(FsError::NotSupported)
    );
    assert_eq!(
        world.set(&alice(), &file, &["A::2002:rw"]),
        Err(FsError::NotSupported)
    );
    // What a POSIX ACL can say of the list stays in force, and no more.
    assert_eq!(world.open(&bob(), &file.handle, Access::Read), Ok(()));
    assert_eq!(world.open(&carol(), &file.handle, Access::Read), DENIED);
    assert_eq!(world.tree.export.rich_figures(), before);
    world.tree.export.set_rich(true);
    assert_eq!(world.open(&bob(), &file.handle, Access::Write), DENIED);
}

/// A user database with one user and one group.
struct Few;

impl export::Names for Few {
    fn find(&self, name: &str, is_group: bool) -> Option<acl::Id> {
        match (name, is_group) {
            ("carol", false) => Some(acl::Id::User(2003)),
            ("audit", true) => Some(acl::Id::Group(AUDIT)),
            _ => None,
        }
    }

    fn of_sid(&self, sid: &acl::Sid) -> Option<acl::Id> {
        (sid.to_string() == "S-1-5-21-7-8-9-2002").then_some(acl::Id::User(2002))
    }
}

#[test]
fn names_are_those_that_the_server_knows_and_others_are_nobodys() {
    if !is_root() {
        return;
    }
    let world = World::new();
    world.tree.export.set_names(std::sync::Arc::new(Few));
    let file = world.file("f", "600");
    let entries = [
        "A::carol:r",
        "A:g:audit:r",
        "A::bob@example.org:r",
        "A::audit:w",
    ];
    world.set(&alice(), &file, &entries).expect("hers");
    let shown = world.get(&alice(), &file.handle).expect("hers");
    assert_eq!(
        shown,
        [
            "A::2003:r",
            "A:g:3002:r",
            "A::bob@example.org:r",
            "A::audit:w"
        ]
    );
    assert_eq!(world.open(&carol(), &file.handle, Access::Read), Ok(()));
    // To set it once more in numbers is to set the same.
    let again: Vec<&str> = shown.iter().map(String::as_str).collect();
    world.set(&alice(), &file, &again).expect("hers");
    assert_eq!(world.tree.export.rich_figures().edits, 1);
}

#[test]
fn what_an_edit_means_is_said_with_it() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let file = world.file("f", "600");
    world.locally("setfacl -m g:3001:r,g:3002:w f");
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    let view = world.get(&alice(), &file.handle).expect("hers");
    let mut entries: Vec<&str> = view.iter().map(String::as_str).collect();
    entries.insert(0, "A::2003:x");
    let value = super::value(&file.attributes, &entries);
    let (_, edit) = export
        .set_acl(worker, &alice(), &file.handle, &value, NOTED)
        .expect("hers");
    let edit = edit.expect("it is another list");
    let gained: Vec<_> = edit
        .changes
        .iter()
        .map(|change| (change.who.clone(), change.gained))
        .collect();
    assert_eq!(gained, [(acl::Who::User(2003), acl::Rights::EXECUTE)]);
    // Bob is in both groups; what the kernel refused him at once he has from now on.
    assert_eq!(edit.widenings.len(), 1, "{:?}", edit.widenings);
    assert_eq!(world.open(&bob(), &file.handle, Access::ReadWrite), Ok(()));
    assert_eq!((BOB, AUDIT, ALICE), (2002, 3002, 2001));
}

#[test]
fn a_tree_without_rich_acls_costs_no_more_than_a_flag() {
    if !is_root() {
        return;
    }
    let world = World::new();
    world.tree.export.set_rich(false);
    let file = world.file("f", "644");
    world
        .open(&bob(), &file.handle, Access::Read)
        .expect("all may read");
    assert_eq!(world.tree.export.rich_figures(), RichFigures::default());
    let root = Principal::root();
    assert_eq!(world.open(&root, &file.handle, Access::Write), Ok(()));
}
