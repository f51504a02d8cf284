//! What new files and directories get from the list of their directory.

use crate::lists::{any_list, granted, had, target};
use crate::world::{self, NAMED};
use acl::{Ace, AceFlags, Caller, RichAcl, Rights, Target, Who};
use base::Principal;
use proptest::prelude::*;

fn heir(is_directory: bool) -> Target {
    Target {
        is_directory,
        ..target()
    }
}

fn with(flags: &[AceFlags], who: Who, rights: Rights) -> Ace {
    let flags = flags
        .iter()
        .fold(AceFlags::NONE, |all, flag| all.with(*flag));
    Ace {
        flags,
        ..Ace::allow(who, rights)
    }
}

const FILES: AceFlags = AceFlags::FILE_INHERIT;
const DIRECTORIES: AceFlags = AceFlags::DIRECTORY_INHERIT;
const ONCE: AceFlags = AceFlags::NO_PROPAGATE;
const ONLY: AceFlags = AceFlags::INHERIT_ONLY;
const WAS: AceFlags = AceFlags::INHERITED;

type Flags = &'static [AceFlags];

/// Flags of an entry, and those of a file's and of a directory's that inherit it.
const PASSED_ON: [(Flags, Option<Flags>, Option<Flags>); 10] = [
    (&[], None, None),
    (&[ONLY], None, None),
    (&[FILES], Some(&[WAS]), Some(&[FILES, ONLY, WAS])),
    (&[FILES, ONLY], Some(&[WAS]), Some(&[FILES, ONLY, WAS])),
    (&[FILES, ONCE], Some(&[WAS]), None),
    (&[DIRECTORIES], None, Some(&[DIRECTORIES, WAS])),
    (&[DIRECTORIES, ONLY], None, Some(&[DIRECTORIES, WAS])),
    (&[DIRECTORIES, ONCE], None, Some(&[WAS])),
    (
        &[FILES, DIRECTORIES, ONLY],
        Some(&[WAS]),
        Some(&[FILES, DIRECTORIES, WAS]),
    ),
    (
        &[FILES, DIRECTORIES, ONCE, ONLY],
        Some(&[WAS]),
        Some(&[WAS]),
    ),
];

#[test]
fn entries_are_passed_on_as_their_flags_say() {
    for (flags, of_file, of_directory) in PASSED_ON {
        let list = RichAcl::new(vec![with(flags, Who::Owner, Rights::READ_DATA)]);
        let list = list.expect("a list");
        for (is_directory, expected) in [(false, of_file), (true, of_directory)] {
            let inherited = list.inherited(&heir(is_directory), 0o777, 0o022);
            let last = inherited
                .as_ref()
                .and_then(|list| list.aces().last().cloned());
            let expected = expected.map(|flags| with(flags, Who::Owner, Rights::READ_DATA));
            assert_eq!(last, expected, "{flags:?} {is_directory}");
        }
    }
}

#[test]
fn a_file_that_is_made_for_its_owner_alone_is() {
    let list = RichAcl::new(vec![
        with(&[FILES], Who::User(NAMED), Rights::ALL),
        with(&[FILES], Who::Everyone, Rights::READ_DATA | Rights::DELETE),
    ]);
    let made = list.expect("a list").inherited(&heir(false), 0o600, 0);
    let made = made.expect("it inherits");
    assert_eq!(made.mode(&heir(false)), 0o400);
    for who in world::principals() {
        let has = granted(&made, &heir(false), &who);
        if who.uid != target().uid {
            assert!(Rights::LOOK.contains(has), "{who:?} {has}");
        }
    }
    // Whoever may change the ACL can open it to what is inherited, and no wider.
    let opened = made.with_mode(0o660, &heir(false));
    let named = Principal::alone(NAMED, 99);
    let allows = |wanted| opened.allows(&Caller::new(&named), &heir(false), wanted);
    assert!(!allows(Rights::WRITE_DATA), "the mode at creation stays");
}

#[test]
fn a_directory_that_only_passes_on_has_what_its_mode_says() {
    let list = RichAcl::new(vec![with(&[FILES], Who::User(NAMED), Rights::ALL)]);
    let made = list.expect("a list").inherited(&heir(true), 0o777, 0o027);
    let made = made.expect("it inherits");
    assert_eq!(made.mode(&heir(true)), 0o750);
    let file = made
        .inherited(&heir(false), 0o666, 0o077)
        .expect("it inherits");
    assert_eq!(file.aces().len(), 1);
    assert_eq!(file.mode(&heir(false)), 0o060);
}

/// What a caller's class has in a mode, by what it shows.
fn bits(rights: Rights, is_directory: bool) -> u16 {
    let mut write = Rights::WRITE_DATA | Rights::APPEND_DATA;
    if is_directory {
        write |= Rights::DELETE_CHILD;
    }
    let bit = |any, bit| if rights.intersects(any) { bit } else { 0 };
    bit(Rights::READ_DATA, 4) | bit(write, 2) | bit(Rights::EXECUTE, 1)
}

proptest! {
    /// With all bits an heir has exactly what its entries say, and with fewer never more.
    #[test]
    fn a_mode_only_takes_away(
        list in any_list(),
        mode in 0..0o1000_u16,
        is_directory in any::<bool>(),
    ) {
        let heir = heir(is_directory);
        let Some(all) = list.inherited(&heir, 0o777, 0) else {
            return Ok(());
        };
        let some = list.inherited(&heir, mode, 0).expect("it inherits as before");
        let may_all = (mode >> 6 | mode >> 3 | mode) & 7;
        for who in world::principals() {
            let says = had(all.aces(), &heir, &who);
            let has = granted(&some, &heir, &who);
            prop_assert_eq!(granted(&all, &heir, &who), says);
            if some.aces().len() == all.aces().len() {
                prop_assert!(says.contains(has), "{:?} {} {}", who, says, has);
            }
            prop_assert_eq!(bits(has, is_directory) & !may_all, 0);
            let class = if who.uid == heir.uid { mode >> 6 } else { mode >> 3 | mode };
            prop_assert_eq!(bits(has, is_directory) & !class, 0, "{:?}", who);
        }
        let after = some.with_mode(0o751, &heir).with_mode(some.mode(&heir), &heir);
        prop_assert_eq!(after, some, "chmod is undone");
    }
}
