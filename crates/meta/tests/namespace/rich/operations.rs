//! What operations take where a rich ACL is the truth, as on exports.

use super::{ALICE, BOB, CAROL, DENIED, REFUSED, World, alice, bob, carol, rich};
use base::{AttributeChange, FileKind, FsError, Handle, Principal, SetTime, Timestamp, XattrMode};
use meta::namespace::{Access, Create, OpenOptions, RenameMode, Turn};

use crate::world::name;

fn world(directory: &tempfile::TempDir) -> World {
    let world = rich(World::at(&directory.path().join("meta")));
    world.open_top();
    world
}

fn create(world: &World, who: &Principal, at: &Handle, file: &str) -> Result<(), FsError> {
    let how = Create {
        mode: 0o666,
        umask: 0o22,
        exclusive: true,
        open: OpenOptions::new(Access::Write),
        cuts: None,
        layout: None,
    };
    world.durably(|namespace, turn| namespace.create(turn, who, at, &name(file), &how).map(drop))
}

#[test]
fn rights_that_no_mode_knows_are_enforced() {
    let directory = tempfile::tempdir().unwrap();
    let world = world(&directory);
    let at = world.made_directory(&alice(), "d", 0o755).handle;
    let [one, two] = ["one", "two"].map(|file| world.made(&alice(), &at, file, 0o600).handle);
    // Bob may remove this file, and nothing else.
    world
        .set(&alice(), &one, &["A::2002:d", "A::OWNER@:rw"])
        .unwrap();
    assert_eq!(world.open(&bob(), &one, Access::Read, false), DENIED);
    assert_eq!(world.remove(&bob(), &at, "two"), DENIED);
    assert_eq!(world.remove(&carol(), &at, "one"), DENIED);
    assert_eq!(world.remove(&bob(), &at, "one"), Ok(()));
    // Carol may make files in the directory, and not directories, and remove nothing.
    let entries = ["A::2003:wx", "A::OWNER@:rwaxD", "A::EVERYONE@:rx"];
    world.set(&alice(), &at, &entries).unwrap();
    assert_eq!(create(&world, &carol(), &at, "three"), Ok(()));
    assert_eq!(create(&world, &bob(), &at, "four"), DENIED);
    let made = world.durably(|namespace, turn| {
        namespace.make_directory(turn, &carol(), &at, &name("sub"), 0o777, 0)
    });
    assert_eq!(made.map(drop), DENIED);
    assert_eq!(world.remove(&carol(), &at, "two"), DENIED);
    assert_eq!(
        world.remove(&carol(), &at, "three"),
        DENIED,
        "not even hers"
    );
    assert_eq!(world.open(&carol(), &two, Access::Read, false), DENIED);
    // In a sticky directory the right to remove what is in it is not enough.
    let entries = ["A::2002:xD", "A::OWNER@:rwaxD", "A::EVERYONE@:rx"];
    world.set(&alice(), &at, &entries).unwrap();
    let sticky = AttributeChange {
        mode: Some(world.attributes(&at).mode | 0o1000),
        ..AttributeChange::default()
    };
    let changed = world
        .durably(|namespace, turn| namespace.set_attributes(turn, &alice(), &at, &sticky, None));
    changed.unwrap();
    assert_eq!(world.remove(&bob(), &at, "two"), REFUSED);
    world.checked();
}

#[test]
fn renames_take_the_removal_here_and_the_name_there() {
    let directory = tempfile::tempdir().unwrap();
    let world = world(&directory);
    let [from, to] = ["from", "to"].map(|at| world.made_directory(&alice(), at, 0o755).handle);
    world.made(&alice(), &from, "f", 0o644);
    let rename = || {
        let renamed = world.durably(|namespace, turn| {
            let (old, new) = (name("f"), name("g"));
            namespace.rename(turn, &bob(), &from, &old, &to, &new, RenameMode::Replace)
        });
        renamed.map(drop)
    };
    let owners = "A::OWNER@:rwaxD";
    let everyones = "A::EVERYONE@:rx";
    let set = |at: &Handle, entries: &[&str]| world.set(&alice(), at, entries).unwrap();
    set(&from, &["A::2002:Dx", owners, everyones]);
    assert_eq!(rename(), DENIED, "there he may not");
    set(&to, &["A::2002:wx", owners, everyones]);
    assert_eq!(rename(), Ok(()));
    // Over another file it takes the removal of that, too.
    world.made(&alice(), &from, "f", 0o644);
    assert_eq!(rename(), DENIED);
    set(
        &world.find(&to, "g").unwrap().handle,
        &["A::2002:d", owners],
    );
    assert_eq!(rename(), Ok(()));
    assert_eq!(rename(), Err(FsError::NotFound));
    world.checked();
}

#[test]
fn attributes_change_by_their_own_rights() {
    let directory = tempfile::tempdir().unwrap();
    let world = world(&directory);
    let file = world.made(&alice(), &world.top(), "f", 0o600).handle;
    let change = |who: &Principal, change: AttributeChange| {
        let changed = world
            .durably(|namespace, turn| namespace.set_attributes(turn, who, &file, &change, None));
        changed.map(drop)
    };
    let of = AttributeChange::default;
    let mode = |mode| AttributeChange {
        mode: Some(mode),
        ..of()
    };
    let time = AttributeChange {
        modified: Some(SetTime::To(Timestamp::default())),
        ..of()
    };
    let own = |uid| AttributeChange {
        uid: Some(uid),
        ..of()
    };
    let size = AttributeChange {
        size: Some(7),
        ..of()
    };
    let named = |who: &Principal| {
        world.durably(|namespace, turn| {
            namespace.set_xattr(turn, who, &file, b"user.a", b"1", XattrMode::Set)
        })
    };
    world
        .set(
            &alice(),
            &file,
            &["A::2002:T", "A::2003:CoN", "A::OWNER@:rwatTcCy"],
        )
        .unwrap();
    assert_eq!(change(&bob(), time.clone()), Ok(()));
    assert_eq!(change(&carol(), time), REFUSED);
    assert_eq!(change(&bob(), size.clone()), DENIED);
    assert_eq!(change(&alice(), size), Ok(()));
    assert_eq!(change(&bob(), mode(0o640)), REFUSED);
    assert_eq!((named(&bob()), named(&carol())), (DENIED, Ok(())));
    assert_eq!(change(&carol(), own(BOB)), REFUSED, "not for others");
    assert_eq!(change(&alice(), own(ALICE)), Ok(()));
    assert_eq!(change(&carol(), own(CAROL)), Ok(()));
    assert_eq!(world.attributes(&file).uid, CAROL);
    // The entry for the owner is about her now.
    assert_eq!(world.open(&carol(), &file, Access::Read, false), Ok(()));
    assert_eq!(world.open(&alice(), &file, Access::Read, false), DENIED);
    let nobody = change(&Principal::root(), own(u32::MAX));
    assert_eq!(nobody, Err(FsError::Invalid));
    world.checked();
}

#[test]
fn new_files_inherit_and_the_umask_plays_no_part() {
    let directory = tempfile::tempdir().unwrap();
    let world = world(&directory);
    let at = world.made_directory(&alice(), "d", 0o755).handle;
    let entries = [
        "A:fd:2003:rwax",
        "A::OWNER@:rwaxD",
        "A:d:OWNER@:rwaxDtTcC",
        "A:f:OWNER@:rwatTcC",
        "A::EVERYONE@:rx",
    ];
    world.set(&alice(), &at, &entries).unwrap();
    let file = world.made(&alice(), &at, "f", 0o666);
    assert_eq!(
        world.open(&carol(), &file.handle, Access::ReadWrite, false),
        Ok(())
    );
    assert_eq!(
        world.open(&bob(), &file.handle, Access::Read, false),
        DENIED
    );
    // Who creates a file for himself alone gets one.
    let own = world.made(&alice(), &at, "own", 0o600);
    assert_eq!(
        world.open(&carol(), &own.handle, Access::Read, false),
        DENIED
    );
    let made = world.durably(|namespace, turn| {
        namespace.make_directory(turn, &alice(), &at, &name("sub"), 0o777, 0o77)
    });
    let sub = made.unwrap().handle;
    let below = world.made(&alice(), &sub, "f", 0o666);
    assert_eq!(
        world.open(&carol(), &below.handle, Access::Read, false),
        Ok(())
    );
    // A default ACL says of it what it can, to programs that know no other.
    let default = world
        .xattr(&bob(), &at, "system.posix_acl_default")
        .unwrap();
    let default = acl::PosixAcl::from_xattr(&default).unwrap().unwrap();
    let carols = |entry: &&acl::PosixEntry| entry.who == acl::PosixWho::User(CAROL);
    assert_eq!(default.entries().iter().find(carols).unwrap().bits, 7);
    // A symbolic link inherits nothing, and a file that inherits nothing goes by its mode.
    world.set(&alice(), &at, &["A::OWNER@:rwaxD"]).unwrap();
    let plain = world.made(&alice(), &at, "plain", 0o644);
    let names = world
        .namespace
        .list_xattrs(&Turn::new(), &alice(), &plain.handle);
    assert_eq!(names.unwrap(), Vec::<Vec<u8>>::new());
    let link = world.durably(|namespace, turn| {
        namespace.make_symlink(turn, &alice(), &at, &name("link"), b"f")
    });
    assert_eq!(link.unwrap().attributes.kind, FileKind::Symlink);
    // What never had another truth keeps what could be said.
    assert_eq!(world.go_back(&alice(), &file.handle), Ok(()));
    assert_eq!(
        world.open(&carol(), &file.handle, Access::ReadWrite, false),
        Ok(())
    );
    world.checked();
}

#[test]
fn a_posix_acl_is_shown_of_a_rich_one_and_cannot_be_set_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let world = world(&directory);
    let file = world.made(&alice(), &world.top(), "f", 0o640).handle;
    world
        .set(
            &alice(),
            &file,
            &["A::2003:r", "A::OWNER@:rwa", "D::EVERYONE@:x"],
        )
        .unwrap();
    let access = "system.posix_acl_access";
    let shown = world.xattr(&bob(), &file, access).unwrap();
    let set = |who: &Principal| {
        world.durably(|namespace, turn| {
            let name = access.as_bytes();
            namespace.set_xattr(turn, who, &file, name, &shown, XattrMode::Set)
        })
    };
    assert_eq!(set(&alice()), Err(FsError::NotSupported));
    let below = acl::PosixAcl::from_xattr(&shown).unwrap().unwrap();
    let carols = |entry: &&acl::PosixEntry| entry.who == acl::PosixWho::User(CAROL);
    assert_eq!(below.entries().iter().find(carols).unwrap().bits, 4);
    world.go_back(&alice(), &file).unwrap();
    assert_eq!(world.attributes(&file).mode & 0o777, 0o640);
    assert_eq!(world.xattr(&bob(), &file, access), Err(FsError::NoData));
    assert_eq!(set(&alice()), Ok(()));
}

#[test]
fn who_may_only_append_opens_to_append_and_changes_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let world = world(&directory);
    let file = world.made(&alice(), &world.top(), "log", 0o600).handle;
    world
        .set(&alice(), &file, &["A::2002:ra", "A::OWNER@:rwatTcCy"])
        .unwrap();
    assert_eq!(world.open(&bob(), &file, Access::Write, false), DENIED);
    assert_eq!(world.open(&bob(), &file, Access::Write, true), Ok(()));
    assert_eq!(world.open(&bob(), &file, Access::ReadWrite, true), Ok(()));
    let options = OpenOptions {
        append: true,
        ..OpenOptions::new(Access::Write)
    };
    let turn = Turn::new();
    let opened = world
        .namespace
        .open_file(&turn, &bob(), &file, options)
        .unwrap();
    assert!(opened.only_appends() && !opened.writes());
    let size = AttributeChange {
        size: Some(0),
        ..AttributeChange::default()
    };
    let cut = |through| {
        let cut = (world.namespace).set_attributes(&turn, &bob(), &file, &size, through);
        cut.map(drop)
    };
    assert_eq!(cut(Some(&opened)), Err(FsError::Invalid));
    assert_eq!(cut(None), DENIED);
    let truncates = OpenOptions {
        truncate: true,
        ..options
    };
    let emptied = world.namespace.open_file(&turn, &bob(), &file, truncates);
    assert_eq!(emptied.map(drop), DENIED);
    world.namespace.wait_here(&turn).unwrap();
}

#[test]
fn chmod_of_a_list_that_no_posix_acl_holds_keeps_its_users() {
    let directory = tempfile::tempdir().unwrap();
    let world = world(&directory);
    let file = world.made(&alice(), &world.top(), "f", 0o600).handle;
    let users = (5000..5600).map(|uid| format!("A::{uid}:rwa"));
    let entries: Vec<String> = std::iter::once("A::OWNER@:rwatTnNcCy".to_owned())
        .chain(users)
        .collect();
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    world.set(&alice(), &file, &entries).unwrap();
    let chmod = |mode| {
        let change = AttributeChange {
            mode: Some(mode),
            ..AttributeChange::default()
        };
        let changed = world.durably(|namespace, turn| {
            namespace.set_attributes(turn, &alice(), &file, &change, None)
        });
        changed.unwrap();
    };
    let named = Principal::alone(5599, 5599);
    let may = || world.open(&named, &file, Access::ReadWrite, false);
    assert_eq!(
        world.attributes(&file).mode & 0o777,
        0o600,
        "what its owner has"
    );
    assert_eq!(may(), Ok(()));
    // The classes of the others are left as they were seen, and then not.
    for (mode, expected) in [
        (0o700, Ok(())),
        (0o600, Ok(())),
        (0o640, DENIED),
        (0o600, Ok(())),
    ] {
        chmod(mode);
        assert_eq!(may(), expected, "{mode:o}");
    }
}
