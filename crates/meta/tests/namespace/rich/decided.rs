//! Decisions by rich ACLs.

use super::{AUDIT, BOB, CAROL, DENIED, STAFF, World, alice, bob, carol, rich, target};
use acl::{Ace, AceFlags, AceKind, Caller, RichAcl, Rights, Who};
use base::Principal;
use meta::namespace::{Access, Rights as Wanted, Turn};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const WRITING: Rights = Rights::WRITE_DATA.or(Rights::APPEND_DATA);

/// What is opened how, and what it takes.
const OPENS: [(Access, bool, Rights); 6] = [
    (Access::Read, false, Rights::READ_DATA),
    (Access::Write, false, WRITING),
    (Access::ReadWrite, false, Rights::READ_DATA.or(WRITING)),
    (Access::Execute, false, Rights::EXECUTE),
    (Access::Write, true, Rights::APPEND_DATA),
    (
        Access::ReadWrite,
        true,
        Rights::READ_DATA.or(Rights::APPEND_DATA),
    ),
];

fn any_who() -> impl Strategy<Value = Who> {
    prop_oneof![
        Just(Who::Owner),
        Just(Who::OwningGroup),
        Just(Who::Everyone),
        prop::sample::select(vec![BOB, CAROL]).prop_map(Who::User),
        prop::sample::select(vec![STAFF, AUDIT]).prop_map(Who::Group),
        Just(Who::Name {
            name: "nobody@nowhere".into(),
            is_group: false,
        }),
    ]
}

fn any_list() -> impl Strategy<Value = RichAcl> {
    let kind = prop_oneof![4 => Just(AceKind::Allow), 1 => Just(AceKind::Deny)];
    let rights = any::<u32>().prop_map(|bits| Rights::from_bits(bits & 0x1f_01ff).unwrap());
    let flags = prop_oneof![6 => Just(0), 1 => 0..16_u8];
    let ace = (kind, flags, rights, any_who())
        .prop_map(|(kind, flags, rights, who)| Ace {
            kind,
            flags: AceFlags::from_bits(flags).unwrap(),
            rights,
            who,
        })
        .boxed();
    // Some lie with the inode, some apart.
    let aces = prop_oneof![
        4 => prop::collection::vec(ace.clone(), 0..8),
        1 => prop::collection::vec(ace, 40..60),
    ];
    aces.prop_map(|aces| RichAcl::new(aces).unwrap())
}

/// The sets of reading, writing and executing that access(2) asks for.
fn wanted() -> impl Iterator<Item = (Wanted, Rights)> {
    (1..8_u8).map(|bits| {
        let wanted = Wanted {
            read: bits & 4 != 0,
            write: bits & 2 != 0,
            execute: bits & 1 != 0,
        };
        (wanted, acl::rights_to_access(wanted))
    })
}

#[test]
fn random_lists_decide_and_what_is_told_of_them_never_allows_more() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("meta");
    let world = std::cell::RefCell::new(Some(rich(World::at(&path))));
    world.borrow().as_ref().unwrap().open_top();
    let mut runner = TestRunner::new(Config::with_cases(96));
    let case = std::cell::Cell::new(0_u32);
    // Judged and refused, in all worlds.
    let counted = std::cell::Cell::new((0, 0));
    let count = |world: &World| {
        let (figures, before) = (world.namespace.rich_figures(), counted.get());
        counted.set((before.0 + figures.judged, before.1 + figures.refused));
    };
    let run = |(list, mode): (RichAcl, Option<u16>)| {
        case.set(case.get() + 1);
        // Now and then everything is read anew.
        if case.get().is_multiple_of(16) {
            count(world.borrow().as_ref().unwrap());
            world.take().unwrap().close();
            *world.borrow_mut() = Some(rich(World::at(&path)));
        }
        let world = world.borrow();
        let world = world.as_ref().unwrap();
        let name = format!("f{}", case.get());
        let file = world.made(&alice(), &world.top(), &name, 0o640);
        world.set_list(&alice(), &file.handle, &list).unwrap();
        let of = target(&file.attributes);
        let expected = match mode {
            Some(mode) => {
                let change = base::AttributeChange {
                    mode: Some(mode),
                    ..base::AttributeChange::default()
                };
                let changed = world.durably(|namespace, turn| {
                    let root = Principal::root();
                    namespace.set_attributes(turn, &root, &file.handle, &change, None)
                });
                changed.unwrap();
                list.with_shown_mode(mode, &of, true)
            }
            None => list,
        };
        decides(world, &file.handle, &expected, &of)
    };
    let changes = prop_oneof![3 => Just(None), 1 => (0..0o1000_u16).prop_map(Some)];
    runner.run(&(any_list(), changes), run).unwrap();
    let world = world.take().unwrap();
    world.checked();
    count(&world);
    let (judged, refused) = counted.get();
    assert!(judged > refused && refused > 0, "{refused} of {judged}");
}

/// A list decides about a file, and mode and POSIX ACL allow nobody more.
fn decides(
    world: &World,
    file: &base::Handle,
    list: &RichAcl,
    of: &acl::Target,
) -> Result<(), TestCaseError> {
    for who in [alice(), bob(), carol()] {
        let may = |rights| list.allows(&Caller::new(&who), of, rights);
        for (access, append, rights) in OPENS {
            let opened = world.open(&who, file, access, append);
            let expected = if may(rights) { Ok(()) } else { DENIED };
            prop_assert_eq!(opened, expected, "{:?} {} {}", access, append, who.uid);
        }
        for (wanted, rights) in wanted() {
            let check = || {
                world
                    .namespace
                    .check_access(&Turn::new(), &who, file, wanted)
            };
            prop_assert_eq!(check().is_ok(), may(rights), "{:?} {}", wanted, who.uid);
            world.namespace.set_rich(false);
            let told = check();
            world.namespace.set_rich(true);
            prop_assert!(may(rights) || told.is_err(), "{:?} {}", wanted, who.uid);
        }
    }
    Ok(())
}

#[test]
fn while_the_truth_is_posix_it_decides_and_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let world = World::at(&directory.path().join("meta"));
    world.open_top();
    let file = world.made(&alice(), &world.top(), "f", 0o640).handle;
    let value = "system.nfs4_acl";
    assert_eq!(
        world.xattr(&alice(), &file, value),
        Err(base::FsError::NotSupported)
    );
    let entries = ["A::OWNER@:rw"];
    let off = Err(base::FsError::NotSupported);
    assert_eq!(world.set(&alice(), &file, &entries), off);
    assert_eq!(world.go_back(&alice(), &file), off);
    world.namespace.set_rich(true);
    let shown = world.shown(&file).unwrap();
    let view = RichAcl::from_nfs4(&shown, &acl::UnixIds).unwrap();
    assert_eq!(world.open(&bob(), &file, Access::Read, false), Ok(()));
    assert_eq!(world.open(&carol(), &file, Access::Read, false), DENIED);
    // To set what is shown changes nothing, and is nobody's edit.
    assert_eq!(world.set_list(&alice(), &file, &view).map(drop), Ok(()));
    assert_eq!(world.namespace.edits_here().unwrap().0.edits, 0);
    let names = world.namespace.list_xattrs(&Turn::new(), &alice(), &file);
    assert_eq!(names.unwrap(), Vec::<Vec<u8>>::new());
    assert_eq!(world.set(&bob(), &file, &entries), super::REFUSED);
    assert_eq!(world.namespace.rich_figures().judged, 0);
}

#[test]
fn what_decides_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let world = rich(World::at(&directory.path().join("meta")));
    world.open_top();
    let at = world.made_directory(&alice(), "d", 0o755).handle;
    let file = world.made(&alice(), &at, "f", 0o600).handle;
    let explain = |rights| {
        let turn = Turn::new();
        let asked = (&file, Some(&at));
        let explained = world
            .namespace
            .explain(&turn, &alice(), asked, &bob(), rights);
        explained.unwrap()
    };
    let by = explain(Rights::READ_DATA);
    assert_eq!(
        (by.is_allowed, by.grounds),
        (false, acl::Grounds::GroupBits)
    );
    let by = explain(Rights::DELETE);
    assert!(!by.is_allowed && by.is_directorys);
    let entry = format!("A::{BOB}:rd");
    world
        .set(&alice(), &file, &["A::OWNER@:rwatTcCy", &entry])
        .unwrap();
    let by = explain(Rights::READ_DATA | Rights::DELETE);
    assert_eq!((by.is_allowed, by.origin), (true, acl::Origin::Rich));
    assert_eq!(by.entry, Some((1, entry)));
    let asked = world.namespace.explain(
        &Turn::new(),
        &carol(),
        (&file, None),
        &bob(),
        Rights::DELETE,
    );
    assert_eq!(asked.map(drop), DENIED, "she may not read the list");
}
