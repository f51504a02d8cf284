//! What lies beside a file: damaged, half written, changed behind the server's back.

use super::{ALICE, CAROL, DENIED, NOTED, STAFF, World, alice, bob, carol};
use crate::common::{Mounted, Served, is_root};
use acl::{PosixAcl, PosixEntry, PosixWho, RichAcl, Stored};
use base::{Access, AttributeChange, FsError, Node, Principal};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(super) const STORED: &str = "security.azekura.acl";

fn read(path: PathBuf) -> Vec<u8> {
    let mut value = Vec::with_capacity(65536);
    let spare = rustix::buffer::spare_capacity(&mut value);
    rustix::fs::getxattr(path, STORED, spare).expect("it is there");
    value
}

fn write(world: &World, path: &str, value: Vec<u8>) {
    let path = world.path(path);
    world.root.run(move || {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(path, STORED, &value, flags).expect("root may");
    });
}

#[test]
fn a_stored_list_that_cannot_be_read_allows_nothing_and_can_be_replaced() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let file = world.file("f", "666");
    world
        .set(&alice(), &file, &["A::2002:rw", "A::EVERYONE@:rtcy"])
        .expect("hers");
    let good = read(world.path("f"));
    let cut = good[..good.len() - 3].to_vec();
    let mut newer = good.clone();
    newer[2] = 9;
    for bad in [cut, newer, b"nonsense".to_vec(), vec![]] {
        write(&world, "f", bad.clone());
        for who in [alice(), bob(), carol()] {
            for access in [Access::Read, Access::Write, Access::Execute] {
                assert_eq!(world.open(&who, &file.handle, access), DENIED, "{bad:?}");
            }
        }
        assert_eq!(
            world.open(&Principal::root(), &file.handle, Access::Read),
            Ok(())
        );
        assert_eq!(world.get(&alice(), &file.handle), Err(FsError::Io));
        assert_eq!(
            world.set(&bob(), &file, &["A::2002:r"]),
            Err(FsError::AccessDenied)
        );
        // Nor does half of a change happen.
        let before = world.attributes(&file.handle);
        for change in [
            mode_and_group(Some(0o4777), None),
            mode_and_group(None, Some(STAFF)),
        ] {
            assert_eq!(
                world.change(&alice(), &file.handle, &change),
                Err(FsError::Io)
            );
        }
        assert_eq!(world.attributes(&file.handle), before);
    }
    world
        .set(&alice(), &file, &["A::2002:r"])
        .expect("its owner may");
    assert_eq!(world.open(&bob(), &file.handle, Access::Read), Ok(()));
    write(&world, "f", b"nonsense".to_vec());
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    export
        .remove_acl(worker, &alice(), &file.handle, NOTED)
        .expect("its owner may go back");
    assert_eq!(world.attributes(&file.handle).mode, 0o666);
    assert_eq!(world.open(&carol(), &file.handle, Access::Write), Ok(()));
}

fn mode_and_group(mode: Option<u16>, gid: Option<u32>) -> AttributeChange {
    AttributeChange {
        mode,
        gid,
        ..AttributeChange::default()
    }
}

/// Programs of the machine, which go by mode and POSIX ACL, while a file gets a list, gets another
/// owner, and goes back: Carol has nothing before and nothing afterwards, and finds no moment.
#[test]
fn nobody_has_in_between_what_he_has_neither_before_nor_after() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let file = world.file("f", "600");
    world.locally("setfacl -m u:2003:rw,g::-,m::- f; chmod 755 .");
    let lists = [
        [
            "A::OWNER@:rwatTnNcCoy",
            "A:g:GROUP@:rwatncy",
            "D::EVERYONE@:rwa",
        ],
        ["D::2003:rwa", "A::OWNER@:rwatTnNcCoy", "A:g:GROUP@:rwatncy"],
    ];
    let (tries, seen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let is_over = Arc::new(AtomicBool::new(false));
    let trying = world.carol.begin({
        let (tries, seen, is_over) = (tries.clone(), seen.clone(), is_over.clone());
        let path = world.path("f");
        move || {
            while !is_over.load(Ordering::Relaxed) {
                seen.fetch_add(std::fs::File::open(&path).is_ok().into(), Ordering::Relaxed);
                tries.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    let root = Principal::root();
    for round in 0..600 {
        let list = &lists[round % 2];
        world.set(&root, &file, list).expect("root may");
        for uid in [CAROL, ALICE].into_iter().filter(|_| round % 2 == 1) {
            let change = AttributeChange {
                uid: Some(uid),
                ..AttributeChange::default()
            };
            world
                .change(&root, &file.handle, &change)
                .expect("root may");
        }
        let back = export.remove_acl(worker, &root, &file.handle, NOTED);
        back.expect("root may");
    }
    is_over.store(true, Ordering::Relaxed);
    trying.recv().expect("she ends");
    assert!(tries.load(Ordering::Relaxed) > 1000);
    assert_eq!(seen.load(Ordering::Relaxed), 0, "times she was let in");
}

/// What a crash leaves between the steps of an edit ([`the order of writing`] in the crate).
#[test]
fn whatever_a_crash_leaves_of_an_edit_is_one_of_the_two_truths() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let file = world.file("f", "604");
    world.locally("setfacl -m u:2002:r f");
    let posix = world.locally("getfacl -n f | tee before");
    let opens = || {
        [bob(), carol()].map(|who| {
            [Access::Read, Access::Write]
                .map(|access| world.open(&who, &file.handle, access).is_ok())
        })
    };
    let before = opens();
    let entries = ["D::2003:r", "A::2002:rwa", "A::EVERYONE@:r"];
    world.set(&alice(), &file, &entries).expect("hers");
    let after = opens();
    assert_eq!(
        (before, after),
        ([[true, false]; 2], [[true, true], [false, false]])
    );
    let settled = read(world.path("f"));
    let list = Stored::from_bytes(&settled)
        .expect("it was written")
        .into_acl();
    let unsettled = Stored::unsettled(list).to_bytes().expect("small");
    // After the first step: what was before is kept, and the POSIX ACL is the truth.
    world.locally(&format!(
        "setfattr -x {STORED} f; setfacl --set-file=before f"
    ));
    assert_eq!(world.locally("getfacl -n f"), posix);
    assert_eq!(opens(), before);
    // After the second: the list decides, whatever the mode says.
    write(&world, "f", unsettled);
    assert_eq!(opens(), after);
    // In the middle of the third.
    world.locally("setfacl -b f; chmod 666 f");
    assert_eq!(opens(), after);
    // Whoever goes on finds it, and can go back.
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    let back = || export.remove_acl(worker, &alice(), &file.handle, NOTED);
    back().expect("hers");
    assert_eq!(opens(), before);
    // In the way back, where the list had to leave its room: nobody is let in until somebody goes
    // back once more.
    world.set(&alice(), &file, &entries).expect("hers");
    let empty = RichAcl::new(Vec::new()).expect("it is short");
    let empty = Stored::unsettled(empty).to_bytes().expect("small");
    write(&world, "f", empty);
    assert_eq!(opens(), [[false; 2]; 2]);
    back().expect("hers");
    assert_eq!(opens(), before);
    assert_eq!(world.locally("getfacl -n f"), posix);
}

#[test]
fn no_answer_is_older_than_a_change_behind_the_servers_back() {
    if !is_root() {
        return;
    }
    no_answer_is_older_than_a_change(&World::new());
}

/// As ext4 keeps them in inodes of 128 bytes.
#[test]
fn no_answer_is_older_where_times_of_change_are_whole_seconds() {
    if !is_root() {
        return;
    }
    let small = ["-q", "-I", "128"];
    if let Some(mounted) = Mounted::image("mkfs.ext4", &small, 16 << 20, "noatime") {
        no_answer_is_older_than_a_change(&World::at(|| Served::at(&mounted.path)));
    }
}

fn no_answer_is_older_than_a_change(world: &World) {
    let file = world.file("f", "600");
    world
        .set(&alice(), &file, &["A::2002:r", "A::OWNER@:rw"])
        .expect("hers");
    let with = read(world.path("f"));
    world
        .set(&alice(), &file, &["A::2003:r", "A::OWNER@:rw"])
        .expect("hers");
    let without = read(world.path("f"));
    // In quick succession, so that several changes fall into one tick of the file system's clock;
    // and now and then with a rest, so that answers are kept.
    for round in 0..300 {
        let (value, expected) = match round % 2 {
            0 => (with.clone(), [Ok(()), DENIED]),
            _ => (without.clone(), [DENIED, Ok(())]),
        };
        write(world, "f", value);
        for _ in 0..2 {
            let found = [bob(), carol()].map(|w| world.open(&w, &file.handle, Access::Read));
            assert_eq!(found, expected, "{round}");
        }
        if round % 10 == 0 {
            std::thread::sleep(std::time::Duration::from_millis(25));
            let found = [bob(), carol()].map(|w| world.open(&w, &file.handle, Access::Read));
            assert_eq!(found, expected, "{round}");
        }
    }
    world.locally(&format!("setfattr -x {STORED} f; chmod 604 f"));
    assert_eq!(world.open(&carol(), &file.handle, Access::Read), Ok(()));
    assert_eq!(world.attributes(&file.handle).uid, ALICE);
}

/// A block of 1 KiB is all that ext4 has for attributes.
const SMALL: [&str; 7] = [
    "-q",
    "-b",
    "1024",
    "-I",
    "256",
    "-O",
    "^has_journal,^ea_inode",
];

/// Sets a list that gives so many users something.
fn set_for(world: &World, node: &Node, users: u32) -> Result<(), FsError> {
    let entries: Vec<String> = (0..users)
        .map(|uid| format!("A::{}:rwa", 10_000 + uid))
        .collect();
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    world.set(&alice(), node, &entries).map(drop)
}

#[test]
fn lists_that_the_file_system_does_not_take_change_nothing() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::image("mkfs.ext4", &SMALL, 16 << 20, "noatime") else {
        return;
    };
    let world = World::at(|| Served::at(&mounted.path));
    let file = world.file("f", "640");
    world.locally("setfacl -m u:2002:r f");
    let all = "stat -c %a f; getfattr -d -m - -e hex f";
    let before = world.locally(all);
    assert_eq!(set_for(&world, &file, 400), Err(FsError::NoSpace));
    assert_eq!(world.locally(all), before);
    assert_eq!(world.open(&bob(), &file.handle, Access::Read), Ok(()));
    // One that fits while its POSIX ACL does not: programs of this machine are told nothing.
    set_for(&world, &file, 75).expect("it fits");
    let who = Principal::alone(10_074, 1);
    assert_eq!(world.open(&who, &file.handle, Access::Read), Ok(()));
    assert_eq!(world.open(&carol(), &file.handle, Access::Read), DENIED);
    assert_eq!(world.attributes(&file.handle).mode & 0o077, 0);
    world.make_read_only();
    assert_eq!(
        world.set(&alice(), &file, &["A::7:r"]),
        Err(FsError::ReadOnly)
    );
    assert_eq!(world.open(&who, &file.handle, Access::Read), Ok(()));
    assert_eq!(
        world.open(&who, &file.handle, Access::Write),
        Err(FsError::ReadOnly)
    );
}

#[test]
fn the_way_back_is_there_where_a_list_has_taken_the_room_of_what_was_before() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::image("mkfs.ext4", &SMALL, 16 << 20, "noatime") else {
        return;
    };
    let world = World::at(|| Served::at(&mounted.path));
    let file = world.file("f", "640");
    let users: Vec<String> = (2002..2032).map(|uid| format!("u:{uid}:rw")).collect();
    // The mask is not what the group may.
    world.locally(&format!("setfacl -m g::-,{} f", users.join(",")));
    let all = || world.locally("stat -c %a f; getfattr -d -m - -e hex f | sort");
    let before = all();
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    let back = || {
        export
            .remove_acl(worker, &alice(), &file.handle, NOTED)
            .map(drop)
    };
    world.set(&alice(), &file, &["A::2003:r"]).expect("hers");
    set_for(&world, &file, 70).expect("the POSIX ACL is small now");
    back().expect("it is possible");
    assert_eq!(all(), before);
    // Others have taken the room: nothing has happened, and it is possible again afterwards.
    world.set(&alice(), &file, &["A::2003:r"]).expect("hers");
    world.locally("setfattr -n user.filler -v $(printf %0500d 0) f");
    let rich = all();
    assert_eq!(back(), Err(FsError::NoSpace));
    assert_eq!(all(), rich);
    assert_eq!(world.open(&carol(), &file.handle, Access::Read), Ok(()));
    assert_eq!(world.open(&bob(), &file.handle, Access::Read), DENIED);
    world.locally("setfattr -x user.filler f");
    back().expect("it is possible");
    assert_eq!(all(), before);
}

/// As much room as others may leave to a directory, which has two POSIX ACLs to go back to.
#[test]
fn a_way_back_that_finds_no_room_half_way_leaves_the_list_of_a_directory() {
    if !is_root() {
        return;
    }
    let Some(mounted) = Mounted::image("mkfs.ext4", &SMALL, 16 << 20, "noatime") else {
        return;
    };
    let world = World::at(|| Served::at(&mounted.path));
    let directory = world.directory("d", "750");
    let users = |from: u32| {
        let users = (from..from + 20).map(|uid| format!("u:{uid}:rwx"));
        users.collect::<Vec<_>>().join(",")
    };
    world.locally(&format!("setfacl -m {} d", users(2002)));
    world.locally(&format!("setfacl -d -m {} d", users(3002)));
    let all = || world.locally("stat -c %a d; getfattr -d -m - -e hex d | sort");
    let before = all();
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    let back = || {
        export
            .remove_acl(worker, &alice(), &directory.handle, NOTED)
            .map(drop)
    };
    let (mut failed, mut done) = (0, 0);
    for bytes in (8..900).step_by(8) {
        set_for(&world, &directory, 14).expect("the POSIX ACLs are small now");
        let filler = format!("setfattr -n user.filler -v $(printf %0{bytes}d 0) d 2>&1 || true");
        if !world.locally(&filler).is_empty() {
            // As much as there is room for.
            break;
        }
        let rich = all();
        match back() {
            Ok(()) => done += 1,
            Err(error) => {
                assert_eq!(error, FsError::NoSpace);
                assert_eq!(all(), rich, "{bytes}");
                failed += 1;
            }
        }
        world.locally("setfattr -x user.filler d");
        back().expect("there is room again");
        assert_eq!(all(), before, "{bytes}");
    }
    assert!(failed > 0 && done > 0, "{failed} and {done}");
}

/// Bob may read, and so many others.
fn long(users: u32) -> Vec<u8> {
    let entry = |who, bits| PosixEntry { who, bits };
    let mut entries = vec![entry(PosixWho::Owner, 6), entry(PosixWho::User(2002), 4)];
    entries.extend((0..users).map(|user| entry(PosixWho::User(10_000 + user), 4)));
    entries.push(entry(PosixWho::OwningGroup, 0));
    entries.push(entry(PosixWho::Mask, 7));
    entries.push(entry(PosixWho::Others, 0));
    PosixAcl::new(entries).expect("in order").to_xattr()
}

#[test]
fn what_is_too_long_for_an_attribute_is_said_and_changes_nothing() {
    if !is_root() {
        return;
    }
    // It keeps POSIX ACLs of some five thousand entries.
    let Some(mounted) = Mounted::image("mkfs.xfs", &["-q"], 320 << 20, "noatime") else {
        return;
    };
    let world = World::at(|| Served::at(&mounted.path));
    let (file, directory) = (world.file("f", "640"), world.directory("d", "750"));
    let (top, acl) = (world.tree.path.clone(), long(5000));
    world.root.run(move || {
        let (access, default) = ("system.posix_acl_access", "system.posix_acl_default");
        for (path, name) in [("f", access), ("d", access), ("d", default)] {
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(top.join(path), name, &acl, flags).expect("root may");
        }
    });
    let all = || world.locally("stat -c %a f d; getfattr -d -m - -e hex f d | sort | sha256sum");
    let before = all();
    // Five thousand entries of NFSv4 are more than 64 KiB. The kernel judges as ever.
    for node in [&file, &directory] {
        assert_eq!(world.get(&alice(), &node.handle), Err(FsError::TooBig));
    }
    assert_eq!(world.open(&bob(), &file.handle, Access::Read), Ok(()));
    assert_eq!(world.open(&carol(), &file.handle, Access::Read), DENIED);
    // One of the two can be kept beside a rich ACL, to go back to; both together cannot.
    let entries = ["A::2003:r", "A::OWNER@:rw"];
    assert_eq!(
        world.set(&alice(), &directory, &entries),
        Err(FsError::TooBig)
    );
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    let set = |value: &[u8]| {
        export
            .set_acl(worker, &alice(), &file.handle, value, NOTED)
            .map(drop)
    };
    assert_eq!(set(&[0; 65_537]), Err(FsError::TooBig), "no attribute");
    assert_eq!(all(), before);
    world.set(&alice(), &file, &entries).expect("hers");
    assert_eq!(world.open(&carol(), &file.handle, Access::Read), Ok(()));
    assert_eq!(world.open(&bob(), &file.handle, Access::Read), DENIED);
    let back = export.remove_acl(worker, &alice(), &file.handle, NOTED);
    back.expect("hers");
    assert_eq!(all(), before);
}
