//! Rich ACLs over the small world, and NFSv4's rule about them, told right by right and not as a
//! walk.

use crate::world::{self, GROUPS, NAMED, OTHER, OWNER, OWNING_GROUP};
use acl::{Ace, AceFlags, AceKind, Caller, RichAcl, Rights, Target, Who};
use base::Principal;
use proptest::prelude::*;

pub(crate) fn target() -> Target {
    Target {
        uid: OWNER,
        gid: OWNING_GROUP,
        is_directory: false,
    }
}

/// Each right by itself.
pub(crate) fn rights() -> impl Iterator<Item = Rights> {
    (0..32).filter_map(|bit| Rights::from_bits(1 << bit))
}

/// NFSv4's rule about one right: the first entry that speaks of the caller and of it.
pub(crate) fn allows_one(aces: &[Ace], target: &Target, who: &Principal, right: Rights) -> bool {
    let owns = who.uid == target.uid;
    let here =
        |ace: &&Ace| ace.kind != AceKind::Audit && !ace.flags.contains(AceFlags::INHERIT_ONLY);
    let is_own = right == Rights::READ_ACL || right == Rights::WRITE_ACL;
    let mut heres = aces.iter().filter(here);
    if owns && is_own && !heres.any(|ace| ace.who == Who::OwnerRights) {
        return true;
    }
    let speaks = |ace: &&Ace| match &ace.who {
        Who::Everyone => true,
        Who::Owner | Who::OwnerRights => owns,
        Who::OwningGroup => who.is_member(target.gid),
        Who::User(uid) => who.uid == *uid,
        Who::Group(gid) => who.is_member(*gid),
        Who::Sid(_) | Who::Name { .. } => ace.kind == AceKind::Deny,
    };
    let of_right = |ace: &&Ace| ace.rights.contains(right);
    let first = aces.iter().filter(here).filter(speaks).find(of_right);
    first.is_some_and(|ace| ace.kind == AceKind::Allow)
}

/// All rights that a caller has.
pub(crate) fn had(aces: &[Ace], target: &Target, who: &Principal) -> Rights {
    let allowed = rights().filter(|right| allows_one(aces, target, who, *right));
    allowed.fold(Rights::NONE, |all, right| all | right)
}

/// All rights that a caller is found to have.
pub(crate) fn granted(list: &RichAcl, target: &Target, who: &Principal) -> Rights {
    let caller = Caller::new(who);
    let allowed = rights().filter(|right| list.allows(&caller, target, *right));
    allowed.fold(Rights::NONE, |all, right| all | right)
}

/// Two lists say the same about everybody in the small world.
pub(crate) fn decide_alike(a: &RichAcl, b: &RichAcl, target: &Target) -> Result<(), TestCaseError> {
    for who in world::principals() {
        let caller = Caller::new(&who);
        for right in rights() {
            prop_assert_eq!(
                a.allows(&caller, target, right),
                b.allows(&caller, target, right),
                "{:?} {:?}",
                who,
                right
            );
        }
    }
    Ok(())
}

/// Bytes of the table of those without a number, at most.
pub(crate) fn unknown_bytes(list: &RichAcl) -> usize {
    let bytes = list.aces().iter().map(|ace| match &ace.who {
        Who::Sid(sid) => 2 + sid.byte_len(),
        Who::Name { name, .. } => 2 + name.len(),
        _ => 0,
    });
    bytes.sum()
}

pub(crate) fn any_who() -> impl Strategy<Value = Who> {
    prop_oneof![
        3 => Just(Who::Owner),
        3 => Just(Who::OwningGroup),
        3 => Just(Who::Everyone),
        1 => Just(Who::OwnerRights),
        4 => prop::sample::select(vec![OWNER, NAMED, OTHER]).prop_map(Who::User),
        4 => prop::sample::select(GROUPS.to_vec()).prop_map(Who::Group),
        1 => Just(Who::Sid("S-1-5-21-9-9-9-500".parse().expect("a SID"))),
        1 => ("[a-z]{1,6}@[a-z]{1,4}", any::<bool>()).prop_map(|(name, is_group)| Who::Name {
            name: name.into(),
            is_group,
        }),
    ]
}

pub(crate) fn any_rights() -> impl Strategy<Value = Rights> {
    prop_oneof![
        prop::sample::select(rights().collect::<Vec<_>>()),
        any::<u32>().prop_map(|bits| Rights::from_bits(bits & 0x1f_01ff).expect("known ones")),
    ]
}

pub(crate) fn any_ace() -> impl Strategy<Value = Ace> {
    let kind = prop_oneof![
        6 => Just(AceKind::Allow),
        4 => Just(AceKind::Deny),
        1 => Just(AceKind::Audit),
    ];
    let flags = prop_oneof![3 => Just(0), 1 => any::<u8>().prop_map(|bits| bits & 0xbf)];
    (kind, flags, any_rights(), any_who()).prop_map(|(kind, flags, rights, who)| Ace {
        kind,
        flags: AceFlags::from_bits(flags).expect("known ones"),
        rights,
        who,
    })
}

pub(crate) fn any_list() -> impl Strategy<Value = RichAcl> {
    let aces = prop::collection::vec(any_ace(), 0..8);
    aces.prop_map(|aces| RichAcl::new(aces).expect("a list"))
}

/// All lists of up to `length` of these entries.
pub(crate) fn each_list(entries: &[Ace], length: usize, mut look: impl FnMut(&RichAcl)) {
    for length in 0..=length {
        for number in 0..entries.len().pow(length as u32) {
            let places = (0..length as u32).map(|place| number / entries.len().pow(place));
            let aces = places.map(|place| entries[place % entries.len()].clone());
            look(&RichAcl::new(aces.collect()).expect("a list"));
        }
    }
}
