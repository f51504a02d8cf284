//! Rich ACLs as less than they are: modes and POSIX ACLs that allow nobody more.

use crate::lists::{any_list, each_list, granted, target};
use crate::posix::any_acl;
use crate::rich::entries;
use crate::world::{self, OWNER, OWNING_GROUP, acl};
use acl::{
    Ace, AceFlags, AceKind, Caller, PosixAcl, PosixFile, RichAcl, Rights, Target, Truth, Who, bits,
    changes, widenings,
};
use base::Principal;
use proptest::prelude::*;

/// Whatever the kernel allows by what is below a list, the list allows.
fn check(list: &RichAcl, target: &Target) -> Result<(), TestCaseError> {
    let below = list.posix_below(target).expect("short");
    if let Some(access) = &below.access {
        prop_assert_eq!(access.mode(), (below.mode, false));
    }
    check_below(list, target, (below.mode, below.access.as_ref()), 0)
}

/// The same of a mode and a POSIX ACL, but for these bits.
fn check_below(
    list: &RichAcl,
    target: &Target,
    (mode, access): (u16, Option<&PosixAcl>),
    besides: u8,
) -> Result<(), TestCaseError> {
    let file = PosixFile {
        uid: target.uid,
        gid: target.gid,
        mode,
        access,
    };
    for who in world::principals() {
        let has = granted(list, target, &who);
        let caller = Caller::new(&who);
        for (bit, needs) in [
            (bits::READ, Rights::READ_DATA),
            (bits::WRITE, Rights::WRITE_DATA | Rights::APPEND_DATA),
            (bits::EXECUTE, Rights::EXECUTE),
        ] {
            let is_write = target.is_directory && bit == bits::WRITE;
            let needs = if is_write {
                needs | Rights::DELETE_CHILD
            } else {
                needs
            };
            let is_sound = !file.allows(&caller, bit) || has.contains(needs) || besides & bit != 0;
            prop_assert!(
                is_sound,
                "{:o} {:?} {} {:?} {}",
                mode,
                access,
                bit,
                who,
                has
            );
        }
    }
    Ok(())
}

#[test]
fn nothing_below_a_short_list_allows_more() {
    let entries = entries([Rights::READ_DATA, Rights::EXECUTE]);
    each_list(&entries, 3, |list| {
        check(list, &target()).unwrap_or_else(|error| panic!("{list:?}: {error}"));
    });
}

#[test]
fn an_empty_mask_does_not_hide_who_is_denied_something() {
    let list = RichAcl::new(vec![
        Ace::deny(Who::User(2), Rights::ALL),
        Ace::deny(Who::OwningGroup, Rights::ALL),
        Ace::allow(Who::Everyone, Rights::READ_DATA),
    ]);
    let below = list.expect("a list").posix_below(&target()).expect("short");
    assert_eq!(below.mode & 0o077, 0o044);
    let mask = below.access.expect("a user has an entry").mask();
    assert_eq!(mask, Some(bits::READ));
}

/// What an heir is made with in a directory, by whom it may be, over a server and by a program of
/// its machine: the second gets no more.
fn check_heir(list: &RichAcl, heir: &Target, mode: u16, umask: u16) -> Result<(), TestCaseError> {
    let own = || {
        RichAcl::view(
            &PosixFile {
                mode: mode & !umask,
                access: None,
                ..of(heir)
            },
            None,
            heir.is_directory,
        )
    };
    let over_a_server = list.inherited(heir, mode, umask).unwrap_or_else(own);
    let (access, mode) = match list.default_told() {
        Some(default) => default.inherited(mode),
        None => (None, mode & !umask),
    };
    // Linux looks at no POSIX ACL whose mask is empty. So who asks for a mode with nothing for the
    // group gives what others have to users and groups with an entry, too, and no more than that.
    let is_passed_over = access
        .as_ref()
        .is_some_and(|access| access.mask() == Some(0));
    let others = match is_passed_over {
        true => u8::try_from(mode & 0o007).expect("three bits"),
        false => 0,
    };
    check_below(&over_a_server, heir, (mode, access.as_ref()), others)
}

/// Of a mode that leaves the group something, however little, the entries count.
#[test]
fn only_a_mode_with_nothing_for_the_group_passes_over_who_is_denied_something() {
    let flags = AceFlags::FILE_INHERIT.with(AceFlags::DIRECTORY_INHERIT);
    let inherited = |ace| Ace { flags, ..ace };
    let list = RichAcl::new(vec![
        inherited(Ace::deny(Who::User(2), Rights::ALL)),
        inherited(Ace::allow(Who::Everyone, Rights::ALL)),
    ]);
    let default = list.expect("a list").default_told().expect("it inherits");
    let denied = Principal::new(2, 99, Vec::new());
    for (mode, has) in [
        (0o604, true),
        (0o614, false),
        (0o644, false),
        (0o600, false),
    ] {
        let (access, mode) = default.inherited(mode);
        let file = PosixFile {
            mode,
            access: access.as_ref(),
            ..of(&target())
        };
        assert_eq!(
            file.allows(&Caller::new(&denied), bits::READ),
            has,
            "{mode:o}"
        );
    }
}

fn of(target: &Target) -> PosixFile<'static> {
    PosixFile {
        uid: target.uid,
        gid: target.gid,
        mode: 0,
        access: None,
    }
}

#[test]
fn where_one_kind_inherits_the_other_is_not_open_past_the_umask() {
    let heir = |is_directory| Target {
        is_directory,
        ..target()
    };
    let inherits = |kind, flags: &[AceFlags]| Ace {
        kind,
        flags: flags
            .iter()
            .fold(AceFlags::NONE, |all, flag| all.with(*flag)),
        ..Ace::allow(
            Who::Group(11),
            Rights::READ_DATA | Rights::WRITE_DATA | Rights::APPEND_DATA,
        )
    };
    let (files, directories) = (AceFlags::FILE_INHERIT, AceFlags::DIRECTORY_INHERIT);
    for (kind, flags, is_told) in [
        (AceKind::Allow, &[directories][..], true),
        (AceKind::Allow, &[files, AceFlags::NO_PROPAGATE], true),
        (AceKind::Allow, &[files], true),
        (AceKind::Audit, &[files, directories], false),
        (AceKind::Allow, &[files, directories], true),
    ] {
        let list = RichAcl::new(vec![inherits(kind, flags)]).expect("a list");
        assert_eq!(list.default_told().is_some(), is_told, "{flags:?}");
        for is_directory in [false, true] {
            check_heir(&list, &heir(is_directory), 0o666, 0o077)
                .unwrap_or_else(|error| panic!("{list:?}: {error}"));
        }
    }
}

/// Whoever owns the directory: the owner of what is made in it is who made it.
#[test]
fn who_is_denied_something_in_his_directory_is_denied_it_in_what_others_make_there() {
    let flags = AceFlags::FILE_INHERIT.with(AceFlags::DIRECTORY_INHERIT);
    let inherited = |ace| Ace { flags, ..ace };
    let list = RichAcl::new(vec![
        inherited(Ace::deny(Who::User(OWNER), Rights::WRITE_DATA)),
        inherited(Ace::allow(Who::Everyone, Rights::ALL)),
    ]);
    let list = list.expect("a list");
    for uid in [OWNER, 4242] {
        let heir = Target { uid, ..target() };
        check_heir(&list, &heir, 0o666, 0).unwrap_or_else(|error| panic!("{uid}: {error}"));
    }
    let told = list.default_told().expect("it inherits");
    assert_eq!(told.mode().0 & 0o707, 0o507, "{told:?}");
}

proptest! {
    #[test]
    fn nothing_made_below_a_list_allows_more(
        list in any_list(),
        maker in 0..world::principals().len(),
        mode in 0..0o1000_u16,
        umask in prop::sample::select(&[0, 0o022, 0o027, 0o077][..]),
        is_directory in any::<bool>(),
    ) {
        let maker = &world::principals()[maker];
        let heir = Target { uid: maker.uid, gid: maker.gid, is_directory };
        check_heir(&list, &heir, mode, umask)?;
    }

    #[test]
    fn nothing_below_a_list_allows_more(
        list in any_list(),
        chmod in prop::option::of(0..0o1000_u16),
        is_directory in any::<bool>(),
    ) {
        let target = Target { is_directory, ..target() };
        let list = chmod.map_or(list.clone(), |mode| list.with_mode(mode, &target));
        check(&list, &target)?;
        prop_assert_eq!(list.posix_below(&target).expect("short").mode & !list.mode(&target)
            & 0o707, 0);
    }

    /// Down from a view is the POSIX ACL again, as far as anybody can tell.
    #[test]
    fn a_view_is_exactly_what_is_below_it(
        entries in any_acl(),
        uid in 0..7_u32,
        groups in prop::collection::vec(8..15_u32, 0..5),
    ) {
        let list = acl(&entries);
        let file = PosixFile {
            uid: OWNER,
            gid: OWNING_GROUP,
            mode: list.mode().0,
            access: Some(&list),
        };
        let view = RichAcl::view(&file, None, false);
        let below = view.posix_below(&target()).expect("short");
        let again = PosixFile { mode: below.mode, access: below.access.as_ref(), ..file };
        let who = Principal::new(uid, 99, groups);
        let caller = Caller::new(&who);
        let is_group = |who: &acl::PosixWho| match who {
            acl::PosixWho::Group(gid) => Some(*gid),
            acl::PosixWho::OwningGroup => Some(OWNING_GROUP),
            _ => None,
        };
        let mut gids: Vec<_> = entries.iter().filter_map(|(who, _)| is_group(who)).collect();
        let count = gids.len();
        gids.sort_unstable();
        gids.dedup();
        for wanted in 0..8 {
            let is_below = again.allows(&caller, wanted);
            let is_allowed = file.allows(&caller, wanted);
            // Two entries for a group would have to be one, and the first is.
            match gids.len() == count {
                true => prop_assert_eq!(is_below, is_allowed),
                false => prop_assert!(is_allowed || !is_below),
            }
        }
    }

    /// In the order of Windows a list says the same, here and to its heirs.
    #[test]
    fn another_order_changes_nothing(
        list in any_list(),
        chmod in prop::option::of(0..0o1000_u16),
        is_directory in any::<bool>(),
    ) {
        let list = chmod.map_or(list.clone(), |mode| list.with_mode(mode, &target()));
        let Some(canonical) = list.canonical() else {
            let denies = |ace: &Ace| ace.kind == AceKind::Deny;
            let inherited = |ace: &Ace| ace.flags.contains(acl::AceFlags::INHERITED);
            prop_assert!(list.aces().iter().any(|ace| denies(ace) || inherited(ace)));
            return Ok(());
        };
        prop_assert!(canonical.is_canonical());
        prop_assert_eq!(canonical.canonical(), Some(canonical.clone()));
        let target = Target { is_directory, ..target() };
        crate::lists::decide_alike(&list, &canonical, &target)?;
        let (mut one, mut two) = (list, canonical);
        for _ in 0..3 {
            for is_directory in [false, true] {
                let heir = Target { is_directory, ..target };
                let [a, b] = [&one, &two].map(|list| list.inherited(&heir, 0o777, 0));
                let [a, b] = [a, b].map(Option::unwrap_or_default);
                crate::lists::decide_alike(&a, &b, &heir)?;
            }
            let heir = Target { is_directory: true, ..target };
            let next = |list: &RichAcl| list.inherited(&heir, 0o777, 0).unwrap_or_default();
            [one, two] = [next(&one), next(&two)];
        }
    }

    /// Two lists differ for somebody in no group or one exactly if that is listed.
    #[test]
    fn a_change_is_listed_for_whom_it_concerns(before in any_list(), after in any_list()) {
        let is_here = |ace: &&Ace| {
            ace.kind != AceKind::Audit && !ace.flags.contains(acl::AceFlags::INHERIT_ONLY)
        };
        let listed = changes(&Truth::Rich(&before), &Truth::Rich(&after), &target());
        for uid in world::USERS {
            for gid in [99, 10, 11, 12] {
                let is_plain = gid == 99 || uid == world::OTHER;
                let spoken = [&before, &after].iter().any(|list| {
                    let mut here = list.aces().iter().filter(is_here);
                    here.any(|ace| ace.who == Who::User(uid))
                });
                if !is_plain || (gid != 99 && spoken) {
                    continue;
                }
                let who = Principal::alone(uid, gid);
                let had = granted(&before, &target(), &who);
                let has = granted(&after, &target(), &who);
                let name = match (uid, gid) {
                    (OWNER, _) => Who::Owner,
                    (_, OWNING_GROUP) => Who::OwningGroup,
                    (_, 99) if spoken => Who::User(uid),
                    (_, 99) => Who::Everyone,
                    (_, gid) => Who::Group(gid),
                };
                let is_listed = listed.iter().find(|change| change.who == name);
                let (gained, lost) = is_listed.map_or((Rights::NONE, Rights::NONE), |change| {
                    (change.gained, change.lost)
                });
                // A group without an entry has no line of its own; it is anybody else.
                if is_listed.is_some() || !matches!(name, Who::Group(_)) {
                    prop_assert_eq!((gained, lost), (has - had, had - has), "{:?}", name);
                }
            }
        }
    }

    /// A view that becomes the truth changes something exactly for who is in one of the pairs.
    #[test]
    fn what_gets_wider_is_listed(
        entries in any_acl(),
        uid in 2..7_u32,
        groups in prop::collection::vec(8..15_u32, 0..5),
    ) {
        let list = acl(&entries);
        let file = PosixFile {
            uid: OWNER,
            gid: OWNING_GROUP,
            mode: list.mode().0,
            access: Some(&list),
        };
        let view = RichAcl::view(&file, None, false);
        let truth = RichAcl::new(view.aces().to_vec()).expect("a list");
        let who = Principal::new(uid, 99, groups);
        let caller = Caller::new(&who);
        let gets_wider = (0..8_u8).any(|wanted| {
            let bit = |bit, right| if wanted & bit != 0 { right } else { Rights::NONE };
            let wants = bit(4, Rights::READ_DATA) | bit(2, Rights::WRITE_DATA)
                | bit(1, Rights::EXECUTE);
            let allows = truth.allows(&caller, &target(), wants);
            assert!(allows || !file.allows(&caller, wanted));
            allows && !file.allows(&caller, wanted)
        });
        let is_in = |group: &Who| match group {
            Who::Group(gid) => who.is_member(*gid),
            _ => who.is_member(OWNING_GROUP),
        };
        let has_entry = entries.iter().any(|(entry, _)| *entry == acl::PosixWho::User(uid));
        let mut listed = widenings(&file).filter(|pair| pair.groups.iter().all(is_in));
        // Unless a third group of theirs allows it anyway.
        let is_new = |pair: acl::Widening| !file.allows(&caller, pair.bits);
        prop_assert_eq!(gets_wider, !has_entry && listed.any(is_new));
        let nothing = changes(&Truth::Posix(file), &Truth::Rich(&truth), &target());
        prop_assert!(nothing.is_empty(), "each right by itself stays: {:?}", nothing);
    }
}

#[test]
fn a_list_is_put_into_windows_order_where_that_is_the_same() {
    let read = Rights::READ_DATA;
    let list = |aces: &[Ace]| RichAcl::new(aces.to_vec()).expect("a list");
    let other_user = list(&[
        Ace::allow(Who::User(1), read),
        Ace::deny(Who::User(2), read),
    ]);
    let canonical = other_user.canonical().expect("they are two users");
    assert_eq!(canonical.aces()[0].who, Who::User(2));
    let decided = [
        Ace::allow(Who::Everyone, read),
        Ace::deny(Who::User(2), read | Rights::EXECUTE),
    ];
    let canonical = list(&decided).canonical().expect("reading is decided");
    assert_eq!(
        canonical.aces()[0],
        Ace::deny(Who::User(2), Rights::EXECUTE)
    );
    let needed = [
        Ace::allow(Who::User(1), read),
        Ace::deny(Who::Group(7), read),
    ];
    assert_eq!(
        list(&needed).canonical(),
        None,
        "the user may be in the group"
    );
    let heirs = acl::AceFlags::FILE_INHERIT.with(acl::AceFlags::DIRECTORY_INHERIT);
    let passed_on = [
        Ace {
            flags: heirs.with(acl::AceFlags::NO_PROPAGATE),
            ..Ace::allow(Who::Everyone, read)
        },
        Ace {
            flags: heirs,
            ..Ace::deny(Who::User(2), read)
        },
    ];
    let canonical = list(&passed_on).canonical();
    assert_eq!(canonical, None, "only the denial reaches heirs of heirs");
}
