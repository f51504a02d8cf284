//! Decisions by rich ACLs: through the export they are those of the list, and what the kernel
//! allows the same users on the same file is never more.

use super::{
    BOB, CAROL, DENIED, NOTED, STAFF, WRITING, World, alice, bob, carol, list, target, value,
};
use crate::common::{LocalUser, Served, is_root, name};
use acl::{Caller, Origin, Rights};
use base::{
    Access, AttributeChange, FsError, Node, Principal, RenameMode, SetTime, Timestamp, XattrMode,
};
use export::{Create, Grounds, OpenOptions};
use rustix::fs::{Mode, OFlags};

const ACCESSES: [(Access, Rights); 3] = [
    (Access::Read, Rights::READ_DATA),
    (Access::Write, WRITING),
    (Access::ReadWrite, Rights::READ_DATA.or(WRITING)),
];

/// What an open by a process of this machine comes to.
fn open_locally(user: &LocalUser, world: &World, path: &str, access: Access) -> bool {
    let (path, flags) = (
        world.path(path),
        match access {
            Access::Read | Access::Execute => OFlags::RDONLY,
            Access::Write => OFlags::WRONLY,
            Access::ReadWrite => OFlags::RDWR,
        },
    );
    user.run(move || rustix::fs::open(path, flags, Mode::empty()).is_ok())
}

/// A number that looks drawn, from where it stands in a row.
fn drawn(seed: u64) -> u64 {
    let mixed = seed
        .wrapping_add(0x9e37_79b9_7f4a_7c15)
        .wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 31).wrapping_mul(0x94d0_49bb_1331_11eb) >> 17
}

#[test]
fn random_lists_decide_and_the_kernel_never_allows_more() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let file = world.file("f", "640");
    let whose = [
        "OWNER@",
        "GROUP@",
        "EVERYONE@",
        "2002",
        "2003",
        "3002",
        "nobody@nowhere",
    ];
    let mut allowed = 0;
    for case in 0..120 {
        let entry = |place: u64| {
            let draw = drawn(case * 16 + place);
            let who = whose[(draw % 7) as usize];
            let kind = if draw >> 8 & 3 == 0 { "D" } else { "A" };
            let flag = if who == "3002" { "g" } else { "" };
            let letters: String = ["r", "w", "a", "x", "d", "tcy"]
                .iter()
                .enumerate()
                .filter(|(bit, _)| draw >> (16 + bit) & 1 == 1)
                .map(|(_, letter)| *letter)
                .collect();
            format!("{kind}:{flag}:{who}:{letters}")
        };
        let entries: Vec<String> = (0..1 + drawn(case) % 6).map(entry).collect();
        let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
        world
            .set(&Principal::root(), &file, &entries)
            .expect("root may");
        let list = list(&file.attributes, &entries);
        for user in [&world.bob, &world.carol] {
            for (access, rights) in ACCESSES {
                let who = &user.principal;
                let right = list.allows(&Caller::new(who), &target(&file.attributes), rights);
                let served = world.open(who, &file.handle, access);
                let expected = if right { Ok(()) } else { DENIED };
                assert_eq!(served, expected, "{entries:?} {access:?} {}", who.uid);
                let locally = open_locally(user, &world, "f", access);
                assert!(right || !locally, "{entries:?} {access:?} {}", who.uid);
                allowed += usize::from(right);
            }
        }
    }
    assert!((100..620).contains(&allowed), "one-sided: {allowed}");
}

#[test]
fn rights_that_no_mode_knows_are_enforced() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let directory = world.directory("d", "755");
    let [one, two] = ["d/one", "d/two"].map(|path| world.file(path, "600"));
    // Bob may remove this file, and nothing else.
    world
        .set(&alice(), &one, &["A::2002:d", "A::OWNER@:rw"])
        .expect("hers");
    assert_eq!(world.open(&bob(), &one.handle, Access::Read), DENIED);
    assert_eq!(world.remove(&bob(), &directory.handle, "two"), DENIED);
    assert_eq!(world.remove(&carol(), &directory.handle, "one"), DENIED);
    assert_eq!(world.remove(&bob(), &directory.handle, "one"), Ok(()));
    // Carol may make files in the directory, and not directories, and remove nothing.
    let entries = ["A::2003:wx", "A::OWNER@:rwaxD", "A::EVERYONE@:rx"];
    world.set(&alice(), &directory, &entries).expect("hers");
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    let how = Create {
        mode: 0o644,
        umask: 0o22,
        exclusive: true,
        open: OpenOptions::new(Access::Write),
    };
    let made = export.create(worker, &carol(), &directory.handle, &name("three"), &how);
    assert_eq!(made.expect("she may").node.attributes.uid, CAROL);
    let made = export.create(worker, &bob(), &directory.handle, &name("four"), &how);
    assert_eq!(made.err(), Some(FsError::AccessDenied));
    let made = export.make_directory(worker, &carol(), &directory.handle, &name("sub"), 0o777, 0);
    assert_eq!(made.err(), Some(FsError::AccessDenied));
    assert_eq!(world.remove(&carol(), &directory.handle, "two"), DENIED);
    // Locally she may do none of it: write permission would be more than she has.
    let path = world.path("d/five");
    let made = world.carol.run(move || std::fs::write(path, "x").is_ok());
    assert!(!made);
    assert_eq!(world.open(&carol(), &two.handle, Access::Read), DENIED);
}

#[test]
fn renames_take_the_removal_here_and_the_name_there() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let [from, to] = ["from", "to"].map(|path| world.directory(path, "755"));
    world.file("from/f", "644");
    let rename = || {
        let (export, worker) = (&world.tree.export, &world.tree.worker);
        let (old, new) = (name("f"), name("g"));
        let (from, to) = (&from.handle, &to.handle);
        let renamed = export.rename(worker, &bob(), from, &old, to, &new, RenameMode::Replace);
        renamed.map(drop)
    };
    let owners = "A::OWNER@:rwaxD";
    let everyones = "A::EVERYONE@:rx";
    world
        .set(&alice(), &from, &["A::2002:Dx", owners, everyones])
        .expect("hers");
    assert_eq!(rename(), DENIED, "there he may not");
    world
        .set(&alice(), &to, &["A::2002:wx", owners, everyones])
        .expect("hers");
    assert_eq!(rename(), Ok(()));
    // Over another file it takes the removal of that, too.
    world.file("from/f", "644");
    assert_eq!(rename(), DENIED);
    world
        .set(&alice(), &world.tree.find("to/g"), &["A::2002:d", owners])
        .expect("hers");
    assert_eq!(rename(), Ok(()));
    assert_eq!(rename(), Err(FsError::NotFound));
}

#[test]
fn attributes_change_by_their_own_rights() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let file = world.file("f", "600");
    let change = |who: &Principal, change: AttributeChange| {
        let (export, worker) = (&world.tree.export, &world.tree.worker);
        let changed = export.set_attributes(worker, who, &file.handle, &change, None);
        changed.map(drop)
    };
    let mode = |mode| AttributeChange {
        mode: Some(mode),
        ..AttributeChange::default()
    };
    let time = AttributeChange {
        modified: Some(SetTime::To(Timestamp::default())),
        ..AttributeChange::default()
    };
    let own = |uid| AttributeChange {
        uid: Some(uid),
        ..AttributeChange::default()
    };
    let size = AttributeChange {
        size: Some(0),
        ..AttributeChange::default()
    };
    let not_permitted = Err(FsError::NotPermitted);
    world
        .set(
            &alice(),
            &file,
            &["A::2002:T", "A::2003:wao", "A::OWNER@:rw"],
        )
        .expect("hers");
    assert_eq!(change(&bob(), time.clone()), Ok(()));
    assert_eq!(change(&carol(), time), not_permitted);
    assert_eq!(change(&carol(), size.clone()), Ok(()));
    assert_eq!(change(&bob(), size), DENIED);
    assert_eq!(change(&bob(), mode(0o777)), not_permitted);
    assert_eq!(change(&bob(), own(BOB)), not_permitted);
    assert_eq!(
        change(&carol(), own(BOB)),
        not_permitted,
        "only for oneself"
    );
    assert_eq!(change(&carol(), own(CAROL)), Ok(()));
    assert_eq!(world.attributes(&file.handle).uid, CAROL);
    // What was the owner's is hers now.
    assert_eq!(world.open(&carol(), &file.handle, Access::Read), Ok(()));
    assert_eq!(world.open(&alice(), &file.handle, Access::Read), DENIED);
}

#[test]
fn chmod_takes_and_gives_back_and_the_list_stays() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let file = world.file("f", "600");
    let entries = [
        "A::2002:rwatcy",
        "A:g:3001:rtcy",
        "A::OWNER@:rwatTcCy",
        "A::EVERYONE@:tcy",
    ];
    let shown = world.set(&alice(), &file, &entries).expect("hers").mode;
    let opens = || {
        [
            (bob(), Access::Write),
            (bob(), Access::Read),
            (carol(), Access::Read),
        ]
        .map(|(who, access)| world.open(&who, &file.handle, access).is_ok())
    };
    let before = opens();
    assert_eq!(before, [true, true, false]);
    // Once through the server, and once by a program that knows nothing of it.
    for locally in [false, true] {
        for (mode, after) in [(0o604, [false, false, true]), (0o640, [false, true, false])] {
            let change = |mode: u16| {
                if locally {
                    world.locally(&format!("chmod {mode:o} f"));
                    return;
                }
                let change = AttributeChange {
                    mode: Some(mode),
                    ..AttributeChange::default()
                };
                let (export, worker) = (&world.tree.export, &world.tree.worker);
                let handle = &file.handle;
                export
                    .set_attributes(worker, &alice(), handle, &change, None)
                    .expect("hers");
            };
            change(mode);
            assert_eq!(opens(), after, "{mode:o} {locally}");
            change(shown);
            assert_eq!(opens(), before, "{mode:o} {locally}");
        }
    }
    let texts = world.get(&alice(), &file.handle).expect("hers");
    assert_eq!(texts, list_texts(&file, &entries));
}

fn list_texts(node: &Node, entries: &[&str]) -> Vec<String> {
    let list = list(&node.attributes, entries);
    list.aces()
        .iter()
        .map(|ace| ace.to_text(&acl::UnixIds))
        .collect()
}

#[test]
fn named_attributes_and_the_list_itself_have_rights_of_their_own() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let file = world.file("f", "644");
    let (export, worker) = (&world.tree.export, &world.tree.worker);
    world
        .set(
            &alice(),
            &file,
            &["A::2002:N", "A::2003:nc", "A::OWNER@:rwnNcC"],
        )
        .expect("hers");
    let set = |who: &Principal| {
        let (name, mode) = (b"user.k", XattrMode::Set);
        export
            .set_xattr(worker, who, &file.handle, name, b"v", mode)
            .map(drop)
    };
    let get = |who: &Principal| {
        let value = export.get_xattr(worker, who, &file.handle, b"user.k");
        value.map(drop)
    };
    assert_eq!(set(&carol()), DENIED);
    assert_eq!(set(&bob()), Ok(()));
    assert_eq!(get(&bob()), DENIED);
    assert_eq!(get(&carol()), Ok(()));
    assert_eq!(world.get(&bob(), &file.handle), Err(FsError::AccessDenied));
    assert!(world.get(&carol(), &file.handle).is_ok());
    let value = value(&file.attributes, &["A::2003:rw"]);
    let set = export.set_acl(worker, &carol(), &file.handle, &value, NOTED);
    assert_eq!(set.err(), Some(FsError::AccessDenied));
    // What lies beside the file is the server's alone, and a POSIX ACL would be a second truth.
    for name in [&b"security.azekura.acl"[..], b"security.azekura.posix"] {
        let root = Principal::root();
        let got = export.get_xattr(worker, &root, &file.handle, name);
        assert_eq!(got.err(), Some(FsError::NotSupported));
        let set = export.set_xattr(worker, &root, &file.handle, name, b"x", XattrMode::Set);
        assert_eq!(set.err(), Some(FsError::NotSupported));
    }
    let posix = b"system.posix_acl_access";
    let removed = export.remove_xattr(worker, &alice(), &file.handle, posix);
    assert_eq!(removed.err(), Some(FsError::NotSupported));
    let names = export
        .list_xattrs(worker, &alice(), &file.handle)
        .expect("hers");
    assert!(names.contains(&b"system.nfs4_acl".to_vec()), "{names:?}");
    assert!(
        !names
            .iter()
            .any(|name| name.starts_with(b"security.azekura"))
    );
}

#[test]
fn what_decides_is_named_with_its_entry() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let directory = world.directory("d", "755");
    let file = world.file("d/f", "640");
    world.locally("setfacl -m u:2002:r d/f");
    let explain = |who: &Principal, wanted| {
        let Served { export, worker, .. } = &world.tree;
        let place = (&file.handle, Some(&directory.handle));
        export
            .explain(worker, &alice(), place, who, wanted)
            .expect("hers")
    };
    let by = explain(&bob(), Rights::READ_DATA);
    assert_eq!(
        (by.is_allowed, by.origin, by.grounds),
        (true, Origin::Posix, Grounds::PosixEntry)
    );
    assert_eq!(by.entry, Some((1, "user:2002:r--".to_owned())));
    let by = explain(&bob(), Rights::DELETE);
    assert_eq!((by.is_allowed, by.grounds), (false, Grounds::GroupBits));
    assert!(by.is_directorys);
    world
        .set(&alice(), &file, &["A:g:3002:r", "A::2002:d", "D::2003:r"])
        .expect("hers");
    let by = explain(&bob(), Rights::DELETE);
    assert_eq!(
        (by.is_allowed, by.origin, by.grounds),
        (true, Origin::Rich, Grounds::RichEntry)
    );
    assert_eq!(by.entry, Some((1, "A::2002:d".to_owned())));
    assert!(!by.is_directorys);
    let by = explain(&carol(), Rights::READ_DATA);
    assert_eq!(
        (by.is_allowed, by.entry),
        (false, Some((2, "D::2003:r".to_owned())))
    );
    let by = explain(&Principal::root(), Rights::ALL);
    assert_eq!(
        (by.is_allowed, by.origin, by.grounds),
        (true, Origin::Rich, Grounds::Superuser)
    );
    let Served { export, worker, .. } = &world.tree;
    let asked = export.explain(worker, &carol(), (&file.handle, None), &bob(), Rights::ALL);
    assert_eq!(
        asked.err(),
        Some(FsError::AccessDenied),
        "who may not read the list"
    );
    assert_eq!(STAFF, 3001);
}
