//! POSIX ACLs: bytes, validity, the kernel's decision, chmod and inheritance.

use crate::world::{self, NAMED, OTHER, OWNER, OWNING_GROUP, acl, seven};
use acl::{AclError, Caller, PosixAcl, PosixEntry, PosixFile, PosixGround, PosixWho};
use base::Principal;
use base::limits::POSIX_ACL_ENTRIES_MAX;
use proptest::prelude::*;

const KINDS: [PosixWho; 6] = [
    PosixWho::Owner,
    PosixWho::User(NAMED),
    PosixWho::OwningGroup,
    PosixWho::Group(11),
    PosixWho::Mask,
    PosixWho::Others,
];

fn named() -> PosixAcl {
    acl(&[
        (PosixWho::Owner, 6),
        (PosixWho::User(0x0102_0304), 7),
        (PosixWho::OwningGroup, 4),
        (PosixWho::Group(11), 0),
        (PosixWho::Mask, 5),
        (PosixWho::Others, 0),
    ])
}

#[test]
fn an_acl_is_its_bytes() {
    #[rustfmt::skip]
    let golden = [
        2, 0, 0, 0,
        1, 0, 6, 0, 255, 255, 255, 255,
        2, 0, 7, 0, 4, 3, 2, 1,
        4, 0, 4, 0, 255, 255, 255, 255,
        8, 0, 0, 0, 11, 0, 0, 0,
        16, 0, 5, 0, 255, 255, 255, 255,
        32, 0, 0, 0, 255, 255, 255, 255,
    ];
    assert_eq!(named().to_xattr(), golden);
    assert_eq!(PosixAcl::from_xattr(&golden), Ok(Some(named())));
    assert_eq!(PosixAcl::from_xattr(&golden[..4]), Ok(None));
    for end in (0..4).chain(5..12) {
        let cut = PosixAcl::from_xattr(&golden[..end]);
        assert_eq!(cut, Err(AclError::Truncated), "{end}");
    }
    let unknown = PosixAcl::from_xattr(&[3, 0, 0, 0]);
    assert_eq!(unknown, Err(AclError::UnknownVersion(3)));
}

#[test]
fn more_bits_kinds_or_entries_than_there_are_make_no_acl() {
    let value = named().to_xattr();
    for (offset, byte) in [(4, 3), (4, 0), (5, 1), (6, 8), (7, 1)] {
        let mut altered = value.clone();
        altered[offset] = byte;
        let read = PosixAcl::from_xattr(&altered);
        assert!(
            matches!(read, Err(AclError::Malformed(_))),
            "{offset}: {read:?}"
        );
    }
    let mut nobody = value.clone();
    nobody[16..20].fill(255);
    assert!(PosixAcl::from_xattr(&nobody).is_err());

    let mut most = vec![(PosixWho::Owner, 7)];
    most.extend((0..POSIX_ACL_ENTRIES_MAX - 4).map(|uid| (PosixWho::User(uid as u32), 7)));
    most.extend([PosixWho::OwningGroup, PosixWho::Mask, PosixWho::Others].map(|who| (who, 7)));
    let most = acl(&most);
    let value = most.to_xattr();
    assert_eq!(PosixAcl::from_xattr(&value), Ok(Some(most)));
    let beyond = [&value[..12], &value[12..20], &value[12..]].concat();
    let read = PosixAcl::from_xattr(&beyond);
    assert!(matches!(read, Err(AclError::TooLarge { .. })), "{read:?}");
}

/// What the kernel takes, told as a pattern: one owner, users, one owning group, groups, a mask if
/// there are users or groups (or without a need), one for others.
fn is_valid(kinds: &[usize]) -> bool {
    let text: String = kinds
        .iter()
        .map(|kind| char::from(b"oughmx"[*kind]))
        .collect();
    let Some(rest) = text
        .strip_prefix('o')
        .and_then(|rest| rest.strip_suffix('x'))
    else {
        return false;
    };
    let rest = rest.trim_start_matches('u');
    let Some(rest) = rest.strip_prefix('g') else {
        return false;
    };
    let rest = rest.trim_start_matches('h');
    rest == "m" || (rest.is_empty() && !text.contains(['u', 'h']))
}

#[test]
fn exactly_what_the_kernel_takes_is_an_acl() {
    for length in 0..8_u32 {
        for number in 0..6_usize.pow(length) {
            let kinds: Vec<_> = (0..length)
                .map(|place| number / 6_usize.pow(place) % 6)
                .collect();
            let entries = kinds.iter().map(|kind| PosixEntry {
                who: KINDS[*kind],
                bits: 7,
            });
            let made = PosixAcl::new(entries.collect());
            assert_eq!(made.is_ok(), is_valid(&kinds), "{kinds:?}");
        }
    }
}

/// Each of 2^21 ACLs, of which the owner's bits count for the owner alone and the others' bits for
/// all others: so each of 16 principals asks 2^18 of them, and each of 8 owners 2^21 / 8.
#[test]
fn every_decision_is_the_kernels() {
    let principals = world::principals();
    for bits in 0..1_u32 << 21 {
        let owners_bits = bits & 7;
        let entries = seven(bits);
        let (mode, _) = acl(&entries).mode();
        let list = acl(&entries);
        let file = PosixFile {
            uid: OWNER,
            gid: OWNING_GROUP,
            mode,
            access: Some(&list),
        };
        for (index, who) in principals.iter().enumerate() {
            let is_asked = match who.uid {
                OWNER => bits as usize / 8 % 8 == index,
                _ => owners_bits == 0,
            };
            if !is_asked {
                continue;
            }
            let caller = Caller::new(who);
            let expected = world::kernel(&entries, mode, OWNER, OWNING_GROUP, who);
            let found = (0..8).fold(0, |all, wanted| {
                all | u8::from(file.allows(&caller, wanted)) << wanted
            });
            assert_eq!(found, expected, "{entries:?} {who:?}");
        }
    }
}

#[test]
fn a_mode_without_an_acl_is_asked_class_by_class() {
    for mode in 0..0o1000 {
        let file = PosixFile {
            uid: OWNER,
            gid: OWNING_GROUP,
            mode,
            access: None,
        };
        for who in world::principals() {
            let expected = world::kernel(&[], mode, OWNER, OWNING_GROUP, &who);
            for wanted in 0..8 {
                let allowed = file.allows(&Caller::new(&who), wanted);
                assert_eq!(allowed, expected >> wanted & 1 == 1, "{mode:o} {who:?}");
            }
        }
    }
}

#[test]
fn an_empty_mask_hides_the_acl() {
    let entries = [
        (PosixWho::Owner, 6),
        (PosixWho::User(NAMED), 6),
        (PosixWho::OwningGroup, 0),
        (PosixWho::Mask, 0),
        (PosixWho::Others, 4),
    ];
    let list = acl(&entries);
    let file = |access| PosixFile {
        uid: OWNER,
        gid: OWNING_GROUP,
        mode: list.mode().0,
        access: Some(access),
    };
    let who = Principal::alone(NAMED, 99);
    let decision = file(&list).decide(&Caller::new(&who), 4);
    assert_eq!(
        (decision.is_allowed, decision.ground),
        (true, PosixGround::OthersBits)
    );
    let narrow = list.with_mode(0o624);
    let file = PosixFile {
        mode: 0o624,
        ..file(&narrow)
    };
    let decision = file.decide(&Caller::new(&who), 4);
    assert_eq!(
        (decision.is_allowed, decision.ground),
        (false, PosixGround::Entry(1))
    );
}

#[test]
fn one_entry_must_allow_all_that_is_asked_for() {
    let list = acl(&[
        (PosixWho::Owner, 6),
        (PosixWho::OwningGroup, 4),
        (PosixWho::Group(11), 2),
        (PosixWho::Mask, 6),
        (PosixWho::Others, 0),
    ]);
    let file = PosixFile {
        uid: OWNER,
        gid: OWNING_GROUP,
        mode: list.mode().0,
        access: Some(&list),
    };
    let who = Principal::new(OTHER, OWNING_GROUP, vec![11]);
    let caller = Caller::new(&who);
    assert!(file.allows(&caller, 4) && file.allows(&caller, 2));
    let both = file.decide(&caller, 6);
    assert_eq!((both.is_allowed, both.ground), (false, PosixGround::Groups));
}

pub(crate) fn any_acl() -> impl Strategy<Value = Vec<(PosixWho, u8)>> {
    let users = prop::collection::vec((0..6_u32, 0..8_u8), 0..6);
    let groups = prop::collection::vec((8..14_u32, 0..8_u8), 0..6);
    (users, groups, any::<[u8; 3]>(), prop::option::of(0..8_u8)).prop_map(
        |(users, groups, [owner, group, others], mask)| {
            let mask = match users.is_empty() && groups.is_empty() {
                true => mask,
                false => mask.or(Some(7)),
            };
            let mut entries = vec![(PosixWho::Owner, owner & 7)];
            entries.extend(
                users
                    .iter()
                    .map(|(uid, bits)| (PosixWho::User(*uid), *bits)),
            );
            entries.push((PosixWho::OwningGroup, group & 7));
            entries.extend(
                groups
                    .iter()
                    .map(|(gid, bits)| (PosixWho::Group(*gid), *bits)),
            );
            entries.extend(mask.map(|mask| (PosixWho::Mask, mask)));
            entries.push((PosixWho::Others, others & 7));
            entries
        },
    )
}

proptest! {
    /// Doubles and entries for the owner, for whom there are no textbook rules, included.
    #[test]
    fn long_lists_are_judged_as_the_kernel_does(
        entries in any_acl(),
        uid in 0..7_u32,
        groups in prop::collection::vec(8..15_u32, 0..5),
        wanted in 0..8_u8,
    ) {
        let list = acl(&entries);
        let mode = list.mode().0;
        let file = PosixFile { uid: OWNER, gid: OWNING_GROUP, mode, access: Some(&list) };
        let who = Principal::new(uid, 99, groups);
        let expected = world::kernel(&entries, mode, OWNER, OWNING_GROUP, &who);
        prop_assert_eq!(file.allows(&Caller::new(&who), wanted), expected >> wanted & 1 == 1);
    }

    #[test]
    fn what_is_written_is_read(entries in any_acl()) {
        let list = acl(&entries);
        prop_assert_eq!(PosixAcl::from_xattr(&list.to_xattr()), Ok(Some(list)));
    }

    #[test]
    fn no_bytes_do_harm(bytes in prop::collection::vec(0..40_u8, 0..80)) {
        if let Ok(Some(list)) = PosixAcl::from_xattr(&bytes) {
            prop_assert_eq!(list.to_xattr(), bytes);
        }
    }

    /// An ACL and its mode agree after chmod, which changes nothing else, and which is undone by
    /// the mode from before.
    #[test]
    fn chmod_sets_the_mode_and_can_be_undone(entries in any_acl(), mode in 0..0o1000_u16) {
        let list = acl(&entries);
        let changed = list.with_mode(mode);
        prop_assert_eq!(changed.mode().0, mode);
        prop_assert_eq!(changed.with_mode(list.mode().0), list.clone());
        for (before, after) in list.entries().iter().zip(changed.entries()) {
            let of_mode = match before.who {
                PosixWho::Owner | PosixWho::Mask | PosixWho::Others => true,
                PosixWho::OwningGroup => list.mask().is_none(),
                _ => false,
            };
            prop_assert!(of_mode || before == after);
        }
    }

    /// A new file has no right that its directory's default ACL or its creator's mode withholds.
    #[test]
    fn an_inherited_acl_is_cut_by_the_mode(entries in any_acl(), mode in 0..0o10000_u16) {
        let list = acl(&entries);
        let (inherited, after) = list.inherited(mode);
        let (permissions, says_all) = list.mode();
        prop_assert_eq!(after, mode & (permissions | !0o777));
        match inherited {
            None => prop_assert!(says_all),
            Some(inherited) => {
                prop_assert_eq!(inherited.clone(), list.with_mode(after));
                prop_assert_eq!(inherited.mode(), (after & 0o777, false));
            }
        }
    }
}
