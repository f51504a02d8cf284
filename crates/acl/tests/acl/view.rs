//! A POSIX ACL as a rich one: every request gets the kernel's answer.

use crate::lists::{allows_one, rights};
use crate::posix::any_acl;
use crate::world::{self, OWNER, OWNING_GROUP, acl, seven};
use acl::{
    Ace, AceFlags, Caller, Origin, PosixAcl, PosixFile, PosixWho, RichAcl, Rights, Target, Who,
    bits,
};
use base::Principal;
use proptest::prelude::*;
use std::collections::HashMap;

const TARGET: Target = Target {
    uid: OWNER,
    gid: OWNING_GROUP,
    is_directory: false,
};

fn file(mode: u16, access: Option<&PosixAcl>) -> PosixFile<'_> {
    PosixFile {
        uid: OWNER,
        gid: OWNING_GROUP,
        mode,
        access,
    }
}

/// What a view says to each principal about each of the eight requests, as a bit for each; and how
/// many of them are allowed only by the rule of NFSv4 alone.
fn verdicts(view: &RichAcl, principals: &[Principal]) -> (Vec<u8>, u64) {
    let plain = RichAcl::new(view.aces().to_vec()).expect("a list");
    let (mut all, mut more) = (Vec::new(), 0);
    for who in principals {
        let caller = Caller::new(who);
        let mut allowed = 0;
        for wanted in 0..8_u8 {
            let bit = |bit, right| {
                if wanted & bit != 0 {
                    right
                } else {
                    Rights::NONE
                }
            };
            let wants = bit(bits::READ, Rights::READ_DATA)
                | bit(bits::WRITE, Rights::WRITE_DATA)
                | bit(bits::EXECUTE, Rights::EXECUTE);
            let is_allowed = view.allows(&caller, &TARGET, wants);
            let is_by_plain = plain.allows(&caller, &TARGET, wants);
            assert!(is_by_plain || !is_allowed, "{view:?} {who:?}");
            allowed |= u8::from(is_allowed) << wanted;
            more += u64::from(is_by_plain && !is_allowed);
        }
        all.push(allowed);
    }
    (all, more)
}

/// Verdicts about the entries that they depend on.
#[derive(Default)]
struct Judged(HashMap<u32, (Vec<Ace>, Vec<u8>, u64)>);

impl Judged {
    /// Compares what is found with the kernel's answers; how many would be too wide by the rule of
    /// NFSv4 alone. Under one key there is one list.
    fn judge(
        &mut self,
        key: u32,
        aces: &[Ace],
        view: &RichAcl,
        principals: &[Principal],
        expected: &[u8],
    ) -> u64 {
        let (judged, found, more) = self.0.entry(key).or_insert_with(|| {
            let (found, more) = verdicts(view, principals);
            (aces.to_vec(), found, more)
        });
        assert_eq!(
            (judged.as_slice(), found.as_slice()),
            (aces, expected),
            "{view:?}"
        );
        *more
    }
}

/// What is left of an ACL's bits under its mask, with a bit more if that is empty.
fn under_mask(bits: u32) -> u32 {
    let mask = bits >> 15 & 7;
    let named = mask << 3 | mask << 6 | mask << 9 | mask << 12;
    let ends = 7 | 7 << 18;
    match mask {
        0 => bits & ends | 1 << 21,
        _ => bits & (ends | named),
    }
}

/// Each of 2^21 ACLs, 24 principals, 7 requests (and the empty one). Views that are equal are
/// judged once; that they are, and have one answer of the kernel's, is looked at for each. To all
/// but the owner those are equal that differ in the owner's entries, which speak of nobody else.
#[test]
fn every_view_is_judged_as_the_kernel_judges() {
    let (owners, others): (Vec<_>, Vec<_>) = world::principals()
        .into_iter()
        .partition(|who| who.uid == OWNER);
    let (mut judged_owners, mut judged_others) = (Judged::default(), Judged::default());
    let mut more = 0;
    for rest in 0..1_u32 << 18 {
        let entries = seven(rest << 3);
        let (mode, _) = acl(&entries).mode();
        let kernel = |who| world::kernel(&entries, mode, OWNER, OWNING_GROUP, who);
        let expected_others: Vec<_> = others.iter().map(kernel).collect();
        for owner in 0..8_u8 {
            let bits = rest << 3 | u32::from(owner);
            let list = acl(&seven(bits));
            let view = RichAcl::view(&file(list.mode().0, Some(&list)), None, false);
            let owners_entries = view.aces().iter().take_while(|ace| ace.who == Who::Owner);
            let tail = &view.aces()[owners_entries.count()..];
            more += judged_others.judge(
                under_mask(rest << 3),
                tail,
                &view,
                &others,
                &expected_others,
            );
            let expected = [world::requests_within(owner); 8];
            more += judged_owners.judge(under_mask(bits), view.aces(), &view, &owners, &expected);
        }
    }
    // So many answers of 352,321,536 would be too wide by the rule of NFSv4 alone.
    assert_eq!(more, 1_121_280);
}

/// What bit of a mode a right needs; `None` for those that no mode speaks of.
fn bit_of(right: Rights, is_directory: bool) -> Option<u8> {
    match right {
        Rights::READ_DATA | Rights::READ_NAMED => Some(bits::READ),
        Rights::WRITE_DATA | Rights::APPEND_DATA | Rights::WRITE_NAMED => Some(bits::WRITE),
        Rights::DELETE_CHILD if is_directory => Some(bits::WRITE),
        Rights::EXECUTE => Some(bits::EXECUTE),
        _ => None,
    }
}

/// The kernel's answer to a request for rights, from its answers about bits.
fn kernel_allows(allowed: u8, owns: bool, wanted: Rights, is_directory: bool) -> bool {
    let (mut asked, mut is_possible) = (0, true);
    for right in rights().filter(|right| wanted.contains(*right)) {
        match bit_of(right, is_directory) {
            Some(bit) => asked |= bit,
            None if Rights::LOOK.contains(right) => {}
            None => is_possible &= owns && Rights::OWN.contains(right),
        }
    }
    is_possible && allowed >> asked & 1 == 1
}

#[test]
fn views_of_modes_deny_only_what_somebody_behind_is_allowed() {
    let view = |mode| {
        let view = RichAcl::view(&file(mode, None), None, false);
        let text = view.aces().iter().map(|ace| {
            let who = match ace.who {
                Who::Owner => "owner",
                Who::OwningGroup => "group",
                _ => "all",
            };
            format!("{:?} {who} {}", ace.kind, ace.rights)
        });
        text.collect::<Vec<_>>()
    };
    assert_eq!(
        view(0o640),
        [
            "Allow owner rwatTnNcCy",
            "Allow group rtncy",
            "Allow all tcy"
        ]
    );
    assert_eq!(
        view(0o406),
        [
            "Deny owner waN",
            "Allow owner rtTncCy",
            "Allow group tcy",
            "Deny group rwanN",
            "Allow all rwatnNcy"
        ]
    );
}

#[test]
fn a_default_acl_is_there_for_heirs_alone() {
    let default = acl(&[
        (PosixWho::Owner, 7),
        (PosixWho::User(2), 7),
        (PosixWho::OwningGroup, 5),
        (PosixWho::Mask, 5),
        (PosixWho::Others, 0),
    ]);
    let alone = RichAcl::view(&file(0o750, None), None, true);
    let both = RichAcl::view(&file(0o750, None), Some(&default), true);
    let (here, heirs) = both.aces().split_at(alone.aces().len());
    assert_eq!(here, alone.aces());
    assert_eq!(both.origin(), Origin::Posix);
    let only = AceFlags::INHERIT_ONLY.with(AceFlags::FILE_INHERIT);
    let only = only.with(AceFlags::DIRECTORY_INHERIT);
    assert!(
        heirs.len() == 4 && heirs.iter().all(|ace| ace.flags == only),
        "{heirs:?}"
    );
    // The mask is in the entries, and what the user is denied is what somebody behind may do.
    assert_eq!(
        heirs[1],
        Ace {
            flags: only,
            ..Ace::allow(
                Who::User(2),
                Rights::LOOK | Rights::READ_DATA | Rights::READ_NAMED | Rights::EXECUTE
            )
        }
    );
}

proptest! {
    /// Doubles, entries for the owner and rights that no mode speaks of included.
    #[test]
    fn every_request_for_rights_gets_the_kernels_answer(
        entries in any_acl(),
        uid in 0..7_u32,
        groups in prop::collection::vec(8..15_u32, 0..5),
        wanted in crate::lists::any_rights(),
        more in crate::lists::any_rights(),
        is_directory in any::<bool>(),
    ) {
        let list = acl(&entries);
        let mode = list.mode().0;
        let file = file(mode, Some(&list));
        let who = Principal::new(uid, 99, groups);
        let caller = Caller::new(&who);
        let allowed = world::kernel(&entries, mode, OWNER, OWNING_GROUP, &who);
        let view = RichAcl::view(&file, None, is_directory);
        let target = Target { is_directory, ..TARGET };
        for wanted in [wanted, wanted & more, wanted & Rights::LOOK] {
            let expected = kernel_allows(allowed, uid == OWNER, wanted, is_directory);
            let of_view = view.allows(&caller, &target, wanted);
            let of_file = file.allows_rights(&caller, is_directory, wanted);
            prop_assert_eq!((of_view, of_file), (expected, expected), "{:?} {}", view, wanted);
        }
    }

    /// By the rule of NFSv4 alone a view says the same about each right by itself.
    #[test]
    fn each_right_by_itself_is_judged_by_any_reader_as_by_the_kernel(
        entries in any_acl(),
        uid in 0..7_u32,
        groups in prop::collection::vec(8..15_u32, 0..5),
    ) {
        let list = acl(&entries);
        let mode = list.mode().0;
        let who = Principal::new(uid, 99, groups);
        let allowed = world::kernel(&entries, mode, OWNER, OWNING_GROUP, &who);
        let view = RichAcl::view(&file(mode, Some(&list)), None, false);
        for right in rights() {
            let expected = kernel_allows(allowed, uid == OWNER, right, false);
            prop_assert_eq!(allows_one(view.aces(), &TARGET, &who, right), expected, "{}", right);
        }
    }
}
