//! The decision about rich ACLs, and what a mode lays over them.

use crate::lists::{self, allows_one, any_list, any_rights, each_list, granted, had, target};
use crate::world::{self, GROUPS, NAMED, OWNER, OWNING_GROUP};
use acl::{
    Ace, AceFlags, AceKind, Asked, Caller, Ground, Judged, RichAcl, Rights, Target, UnixIds, Who,
};
use base::Principal;
use proptest::prelude::*;

/// Allowing and denying entries over a small set of rights, and everybody they can speak of.
pub(crate) fn entries(rights: [Rights; 2]) -> Vec<Ace> {
    let unknown = "S-1-5-21-1-2-3-4".parse().expect("a SID");
    let whos = [
        Who::Owner,
        Who::OwningGroup,
        Who::Everyone,
        Who::User(NAMED),
        Who::Group(GROUPS[1]),
        Who::Sid(unknown),
    ];
    let sets = [rights[0], rights[1], rights[0] | rights[1]];
    let all = whos.iter().flat_map(|who| {
        sets.into_iter().flat_map(move |rights| {
            [
                Ace::allow(who.clone(), rights),
                Ace::deny(who.clone(), rights),
            ]
        })
    });
    all.collect()
}

/// Principals without the third group, of which no entry speaks.
fn callers() -> Vec<Principal> {
    let mut all = world::principals();
    all.retain(|who| !who.is_member(GROUPS[2]));
    all
}

#[test]
fn every_short_list_is_judged_right_by_right() {
    let (read, run) = (Rights::READ_DATA, Rights::EXECUTE);
    let principals = callers();
    let callers: Vec<_> = principals
        .iter()
        .map(|who| (who, Caller::new(who)))
        .collect();
    let mut lists = 0_u32;
    let mut check = |list: &RichAcl| {
        lists += 1;
        for (who, caller) in &callers {
            let allows = |right| allows_one(list.aces(), &target(), who, right);
            let (reads, runs) = (allows(read), allows(run));
            for (wanted, expected) in [(read, reads), (run, runs), (read | run, reads && runs)] {
                let decision = list.decide(caller, &target(), wanted);
                assert_eq!(decision.is_allowed, expected, "{list:?} {who:?} {wanted}");
            }
        }
    };
    let all = entries([read, run]);
    each_list(&all, 3, &mut check);
    // An entry about both is two about one each.
    let single: Vec<_> = all
        .into_iter()
        .filter(|ace| ace.rights != read | run)
        .collect();
    each_list(&single, 4, &mut check);
    assert_eq!(
        lists,
        36_u32.pow(3) + 36 * 36 + 36 + 1 + 24_u32.pow(4) + 24_u32.pow(3) + 24 * 24 + 25
    );
}

#[test]
fn a_decision_names_the_entry_that_decided() {
    let list = RichAcl::new(vec![
        Ace::allow(Who::User(NAMED), Rights::READ_DATA),
        Ace::deny(Who::Group(11), Rights::READ_DATA | Rights::WRITE_DATA),
        Ace::allow(Who::Everyone, Rights::WRITE_DATA | Rights::EXECUTE),
    ]);
    let list = list.expect("a list");
    let decide = |uid, gid, wanted| {
        let who = Principal::alone(uid, gid);
        let decision = list.decide(&Caller::new(&who), &target(), wanted);
        (decision.is_allowed, decision.ground, decision.rights)
    };
    let both = Rights::READ_DATA | Rights::WRITE_DATA;
    assert_eq!(decide(NAMED, 99, both), (true, Ground::Entry(2), both));
    assert_eq!(
        decide(NAMED, 11, both),
        (false, Ground::Entry(1), Rights::WRITE_DATA)
    );
    assert_eq!(
        decide(NAMED, 99, Rights::DELETE),
        (false, Ground::Nothing, Rights::DELETE)
    );
    assert_eq!(
        decide(OWNER, 99, Rights::WRITE_ACL),
        (true, Ground::Owner, Rights::WRITE_ACL)
    );
    assert_eq!(
        decide(NAMED, 99, Rights::NONE),
        (true, Ground::Nothing, Rights::NONE)
    );
    let closed = list.with_mode(0o700, &target());
    let who = Principal::alone(NAMED, 99);
    let decision = closed.decide(&Caller::new(&who), &target(), both);
    assert_eq!(
        (decision.is_allowed, decision.ground),
        (false, Ground::Mode)
    );
}

#[test]
fn an_entry_for_the_owners_rights_takes_the_place_of_what_owners_have() {
    let list = RichAcl::new(vec![Ace::allow(Who::OwnerRights, Rights::READ_ACL)]);
    let list = list.expect("a list");
    let who = Principal::alone(OWNER, 99);
    assert!(list.allows(&Caller::new(&who), &target(), Rights::READ_ACL));
    assert!(!list.allows(&Caller::new(&who), &target(), Rights::WRITE_ACL));
}

#[test]
fn uses_are_written_down_if_an_entry_says_so() {
    let audit = |flags| Ace {
        kind: AceKind::Audit,
        flags,
        ..Ace::allow(Who::Group(11), Rights::WRITE_DATA)
    };
    let list = RichAcl::new(vec![audit(AceFlags::FAILED), audit(AceFlags::SUCCESSFUL)]);
    let list = list.expect("a list");
    let (member, other) = (Principal::alone(NAMED, 11), Principal::alone(NAMED, 12));
    let of = |who, wanted, allowed| list.audit(&Caller::new(who), &target(), wanted, allowed);
    assert_eq!(of(&member, Rights::WRITE_DATA, true), Some(1));
    assert_eq!(
        of(&member, Rights::WRITE_DATA | Rights::READ_DATA, false),
        Some(0)
    );
    assert_eq!(of(&member, Rights::READ_DATA, true), None);
    assert_eq!(of(&other, Rights::WRITE_DATA, true), None);
    assert!(!list.allows(&Caller::new(&member), &target(), Rights::WRITE_DATA));
}

/// A caller's bits of a mode.
fn class_bits(aces: &[Ace], target: &Target, who: &Principal, mode: u16) -> u16 {
    let is_named = aces.iter().any(|ace| match ace.who {
        _ if ace.kind == AceKind::Audit || ace.flags.contains(AceFlags::INHERIT_ONLY) => false,
        Who::User(uid) => who.uid == uid,
        Who::Group(gid) => who.is_member(gid),
        _ => false,
    });
    if who.uid == target.uid {
        mode >> 6 & 7
    } else if is_named || who.is_member(target.gid) {
        mode >> 3 & 7
    } else {
        mode & 7
    }
}

/// The bits of a mode that show these rights.
fn shown(rights: Rights, is_directory: bool) -> u16 {
    let bit = |any: &[Rights], bit| match any.iter().any(|right| rights.contains(*right)) {
        true => bit,
        false => 0,
    };
    let write = [
        Rights::WRITE_DATA,
        Rights::APPEND_DATA,
        Rights::DELETE_CHILD,
    ];
    let write = if is_directory {
        &write[..]
    } else {
        &write[..2]
    };
    bit(&[Rights::READ_DATA], 4) | bit(write, 2) | bit(&[Rights::EXECUTE], 1)
}

/// What chmod promises, for one list and mode.
fn check_chmod(list: &RichAcl, target: &Target, mode: u16) -> Result<(), TestCaseError> {
    let before = list.mode(target);
    let after = list.with_mode(mode, target);
    prop_assert_eq!(after.mode(target), mode);
    prop_assert_eq!(after.with_mode(before, target), list.clone(), "undone");
    let effective = RichAcl::new(after.effective(target)).expect("a list");
    let denies_unknown = |ace: &Ace| ace.who.is_unknown() && ace.kind == AceKind::Deny;
    let keeps = list.says_a_mode(target);
    for who in callers() {
        let class = |mode| class_bits(list.aces(), target, &who, mode);
        let (had_before, has) = (granted(list, target, &who), granted(&after, target, &who));
        prop_assert_eq!(
            shown(has, target.is_directory) & !class(mode),
            0,
            "{:?}",
            who
        );
        if class(mode) == class(before) && !keeps {
            prop_assert_eq!(has, had_before, "left alone: {:?}", who);
        }
        let is_member = who.is_member(target.gid);
        let gets_it = who.uid == target.uid || (class(0o070) == 0 && !is_member);
        if gets_it && class(mode) != class(before) && !list.aces().iter().any(denies_unknown) {
            prop_assert_eq!(
                shown(has, target.is_directory),
                class(mode),
                "given: {:?}",
                who
            );
        }
        if !gets_it && !keeps {
            prop_assert!(had_before.contains(has), "{:?}", who);
        }
        let says = granted(&effective, target, &who);
        match who.uid == target.uid {
            true => prop_assert!(has.contains(says), "{:?} {} {}", who, has, says),
            false => prop_assert_eq!(says, has, "{:?}", who),
        }
    }
    Ok(())
}

#[test]
fn chmod_keeps_its_promises_on_every_short_list() {
    let entries = entries([Rights::READ_DATA, Rights::EXECUTE]);
    each_list(&entries, 2, |list| {
        for number in 0..64_u16 {
            // Reading and running, for each class.
            let bits =
                |class: u16| number >> (2 * class) & 1 | (number >> (2 * class + 1) & 1) << 2;
            let mode = bits(2) << 6 | bits(1) << 3 | bits(0);
            check_chmod(list, &target(), mode).unwrap_or_else(|error| {
                panic!("{list:?} {mode:o}: {error}");
            });
        }
    });
}

proptest! {
    #[test]
    fn long_lists_are_judged_right_by_right(
        list in any_list(),
        wanted in any_rights(),
        is_directory in any::<bool>(),
    ) {
        let target = Target { is_directory, ..target() };
        for who in world::principals() {
            let expected = had(list.aces(), &target, &who).contains(wanted);
            prop_assert_eq!(list.allows(&Caller::new(&who), &target, wanted), expected);
        }
    }

    #[test]
    fn a_mode_shows_all_that_anybody_has(list in any_list(), is_directory in any::<bool>()) {
        let target = Target { is_directory, ..target() };
        let mode = list.mode(&target);
        for who in world::principals() {
            let shows = shown(had(list.aces(), &target, &who), is_directory);
            let class = class_bits(list.aces(), &target, &who, mode);
            prop_assert_eq!(shows & !class, 0, "{:o} {:?}", mode, who);
        }
    }

    #[test]
    fn chmod_keeps_its_promises(
        list in any_list(),
        mode in 0..0o1000_u16,
        is_directory in any::<bool>(),
    ) {
        let target = Target { is_directory, ..target() };
        check_chmod(&list, &target, mode)?;
        // A second change is judged by the list, not by the first.
        let once = list.with_mode(mode, &target);
        let twice = once.with_mode(0o640, &target).with_mode(mode, &target);
        prop_assert_eq!(twice, once);
    }
}

proptest! {
    #[test]
    fn chmod_by_who_saw_what_the_file_system_was_told_keeps_its_promises(
        list in any_list(),
        mode in 0..0o1000_u16,
        is_directory in any::<bool>(),
        has_room in any::<bool>(),
    ) {
        let target = Target { is_directory, ..target() };
        let below = list.posix_below(&target).expect("it is short");
        let has_access = below.access.is_some() && has_room;
        let seen = match below.access {
            Some(_) if !has_room => below.alone(),
            _ => below.mode,
        };
        let after = |list: &RichAcl, mode| list.with_shown_mode(mode, &target, has_access);
        prop_assert_eq!(after(&list, seen), list.clone(), "nothing was said");
        let changed = after(&list, mode);
        for who in callers() {
            let class = |mode| class_bits(list.aces(), &target, &who, mode);
            let (had, has) = (granted(&list, &target, &who), granted(&changed, &target, &who));
            if class(mode) == class(seen) {
                let is_same = had == has || list.says_a_mode(&target);
                prop_assert!(is_same, "left alone: {:?}", who);
            } else {
                let shows = shown(has, is_directory);
                prop_assert_eq!(shows & !class(mode), 0, "taken: {:?}", who);
            }
        }
        if !list.says_a_mode(&target) {
            prop_assert_eq!(after(&changed, seen), list, "undone");
            let again = after(&after(&changed, 0o640), mode);
            prop_assert_eq!(again, changed, "judged by the list, not by the first change");
        }
    }
}

/// Also where chmod has put a mode over it, which is shown as entries.
#[test]
fn what_decides_is_an_entry_of_the_list_as_it_is_shown() {
    let (read, run) = (Rights::READ_DATA, Rights::EXECUTE);
    let principals = callers();
    let mut shown_elsewhere = 0_u32;
    each_list(&entries([read, run]), 2, |list| {
        for mode in [None, Some(0o750), Some(0o640), Some(0o705)] {
            let list = mode.map_or_else(|| list.clone(), |mode| list.with_mode(mode, &target()));
            let shown = list.effective(&target());
            let asked = Asked {
                by: Judged::Rich(Some(&list)),
                target: target(),
                mode: list.mode(&target()),
            };
            for who in &principals {
                let explained = asked.explain(None, who, read);
                let caller = Caller::new(who);
                let decision = list.decide(&caller, &target(), read);
                assert_eq!(explained.is_allowed, decision.is_allowed || who.uid == 0);
                let Some((place, text)) = explained.entry else {
                    continue;
                };
                let entry = shown.get(place as usize).map(|ace| ace.to_text(&UnixIds));
                // To its owner a list can give more than entries can say.
                if who.uid != OWNER {
                    assert_eq!(entry.as_ref(), Some(&text), "{list:?} {who:?}");
                }
                let stored = list.aces().get(place as usize);
                let stored = stored.map(|ace| ace.to_text(&UnixIds));
                shown_elsewhere += u32::from(stored != Some(text));
            }
        }
    });
    assert!(shown_elsewhere > 1_000, "{shown_elsewhere}");
}

#[test]
fn a_list_of_a_mode_becomes_that_of_another() {
    for mode in 0..0o1000 {
        for is_directory in [false, true] {
            let target = Target {
                is_directory,
                ..target()
            };
            let made = RichAcl::default().with_mode(mode, &target);
            assert!(!made.says_a_mode(&target) || made.mode(&target) == mode);
            let list = RichAcl::new(made.effective(&target)).expect("a list");
            for who in callers() {
                let class = class_bits(&[], &target, &who, mode);
                let has = shown(had(list.aces(), &target, &who), is_directory);
                // The group's class of an empty list has nothing that chmod could give.
                let expected =
                    if class == mode >> 3 & 7 && who.uid != OWNER && who.is_member(OWNING_GROUP) {
                        0
                    } else {
                        class
                    };
                assert_eq!(has, expected, "{mode:o} {who:?}");
            }
        }
    }
    assert!(lists::rights().count() == 14);
}
