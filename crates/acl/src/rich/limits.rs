//! The mode of a file that has a rich ACL.
//!
//! # What it shows
//!
//! For each class the most that anybody in it can have ([`RichAcl::mode`]), as the mask of a POSIX
//! ACL is shown in the group's place. The owner is alone in his class; the group's is who is in the
//! owning group or has an entry of his own; others are all others.
//!
//! # What chmod does
//!
//! The list stays as it is, and so chmod can be undone: back to the mode from before, and
//! everything is as before. What chmod says lies over the list as limits. A class whose bits it
//! leaves alone keeps all it had. One whose bits it narrows has no more than they say, also of
//! rights that no mode speaks of. Owner and others have at least what it says; to the group's
//! class, in which many have entries of their own, it gives nothing. The idea of masks beside an
//! unchanged list is richacl's (Grünbacher); it lets a chmod of one class take rights from another,
//! which this does not.
//!
//! A list that says what a mode says is one: chmod makes it the list of the other mode.
//!
//! A file system that is told of a list shows less than its mode where it must
//! ([`RichAcl::posix_below`]), and chmod is called by who has seen that. A class whose bits are as
//! they were seen is one that is left alone ([`RichAcl::with_shown_mode`]).
//!
//! # At creation
//!
//! The mode that a file is created with lies as a ceiling over what it inherits, in the same way,
//! except that it gives nothing to anybody.

use super::{Ace, AceKind, RichAcl, Rights, Target, Who};
use crate::posix::{GROUP, OTHERS, OWNER, bits, class_bits};
use crate::view;
use std::collections::BTreeMap;

/// Permission bits of a mode.
pub(crate) const PERMISSIONS: u16 = 0o777;

/// Whose bits of a mode are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Owner,
    Group,
    Others,
}

impl Class {
    fn of(self, mode: u16) -> u8 {
        class_bits(
            mode,
            match self {
                Self::Owner => OWNER,
                Self::Group => GROUP,
                Self::Others => OTHERS,
            },
        )
    }

    /// What the class has beside the bits that a mode gives it.
    fn beside(self) -> Rights {
        match self {
            Self::Owner => Rights::LOOK | Rights::OWN,
            Self::Group | Self::Others => Rights::LOOK,
        }
    }
}

/// What lies over a list. There are none where they would change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Limits {
    /// The mode of the list alone, when the first limit was put over it.
    pub(crate) list_mode: u16,
    /// The mode at creation; all bits if it took nothing.
    pub(crate) ceiling: u16,
    /// What chmod said.
    pub(crate) changed: Option<u16>,
}

/// What limits make of a list for one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Rights that are allowed whatever the list says.
    pub(crate) given: Rights,
    /// Rights that the list decides about; all others but the given ones are denied.
    pub(crate) reachable: Rights,
}

impl Share {
    /// What there is without limits.
    pub(crate) const WHOLE: Self = Self {
        given: Rights::NONE,
        reachable: Rights::ALL,
    };
}

impl Limits {
    fn mode(self) -> u16 {
        self.changed.unwrap_or(self.list_mode & self.ceiling)
    }

    /// Whether there is anything that limits.
    fn limits_something(self) -> bool {
        self.changed.is_some() || self.list_mode & !self.ceiling != 0
    }

    /// Whether limits like these are ever made.
    pub(crate) fn is_real(self) -> bool {
        self.limits_something() && self.changed != Some(self.list_mode & self.ceiling)
    }

    /// What a class has of a list.
    pub(crate) fn share(self, class: Class, aces: &[Ace], target: &Target) -> Share {
        let of_mode = |bits| mode_rights(bits, target.is_directory);
        let ceiling = class.of(self.ceiling);
        let listed = class.of(self.list_mode);
        let mut share = Share::WHOLE;
        if listed & !ceiling != 0 {
            share.reachable = of_mode(ceiling) | class.beside();
        }
        let before = listed & ceiling;
        let Some(after) = self.changed.map(|mode| class.of(mode)) else {
            return share;
        };
        let narrows = before & !after != 0;
        if narrows {
            let kept = match class {
                Class::Owner => Rights::NONE,
                Class::Group => of_mode(after) | class.beside(),
                Class::Others => class.beside(),
            };
            share.reachable = share.reachable & kept;
        }
        if after != before && class != Class::Group {
            share.given = of_mode(after);
            if class == Class::Owner {
                share.given |= class.beside();
            }
            // What is denied to somebody unknown is not given to anybody.
            share.given = share.given - denied_to_unknown(aces);
        }
        share
    }
}

impl RichAcl {
    /// The permission bits that the file shows: for each class the most that anybody in it can
    /// have.
    #[must_use]
    pub fn mode(&self, target: &Target) -> u16 {
        match self.limits {
            Some(limits) => limits.mode(),
            None => mode_above(&self.aces, target),
        }
    }

    /// The list after chmod(2); only the permission bits of `mode` count.
    ///
    /// # Panics
    /// If the list is a view: there the POSIX ACL is what changes.
    #[must_use]
    pub fn with_mode(&self, mode: u16, target: &Target) -> Self {
        assert_eq!(
            self.origin,
            super::Origin::Rich,
            "a view has no mode of its own"
        );
        let mode = mode & PERMISSIONS;
        let mut after = self.clone();
        if self.says_a_mode(target) {
            after.aces = view::of_mode(mode, target.is_directory);
            return after;
        }
        let mut limits = self.limits.unwrap_or_else(|| Limits {
            list_mode: mode_above(&self.aces, target),
            ceiling: PERMISSIONS,
            changed: None,
        });
        let unchanged = limits.list_mode & limits.ceiling;
        limits.changed = (mode != unchanged).then_some(mode);
        after.limits = limits.limits_something().then_some(limits);
        after
    }

    /// The list after chmod(2) by somebody who was shown what the file system was told: classes
    /// whose bits are those that the list without any chmod shows there are as without one. If the
    /// list takes a POSIX ACL and the file has none (`has_access`), there was no room for it, and
    /// what is shown is what the owner has.
    ///
    /// # Panics
    /// If the list is a view.
    #[must_use]
    pub fn with_shown_mode(&self, mode: u16, target: &Target, has_access: bool) -> Self {
        let mut base = self.clone();
        if let Some(limits) = &mut base.limits {
            limits.changed = None;
        }
        base.limits = base.limits.filter(|limits| limits.limits_something());
        let own = base.mode(target);
        let shown = match base.posix_below(target) {
            Ok(below) if below.access.is_none() || has_access => below.mode,
            Ok(below) => below.alone(),
            // Of a list that is too long for it the file system is told nothing.
            Err(_) => 0,
        };
        let class = |mask: u16| match mode & mask == shown & mask {
            true => own & mask,
            false => mode & mask,
        };
        base.with_mode(class(0o700) | class(0o070) | class(0o007), target)
    }

    /// The list under the mode that a file is created with.
    pub(crate) fn under(mut self, mode: u16, target: &Target) -> Self {
        let limits = Limits {
            list_mode: mode_above(&self.aces, target),
            ceiling: mode & PERMISSIONS,
            changed: None,
        };
        self.limits = limits.limits_something().then_some(limits);
        self
    }

    /// Whether the list is the one of a mode, so that it need not be kept.
    #[must_use]
    pub fn says_a_mode(&self, target: &Target) -> bool {
        let mode = || mode_above(&self.aces, target);
        self.limits.is_none()
            && self.aces.len() <= view::MODE_ACES_MAX
            && self.aces == view::of_mode(mode(), target.is_directory)
    }
}

/// The rights that permission bits stand for.
pub(crate) fn mode_rights(mode_bits: u8, is_directory: bool) -> Rights {
    let mut rights = Rights::NONE;
    if mode_bits & bits::READ != 0 {
        rights |= Rights::READ_DATA | Rights::READ_NAMED;
    }
    if mode_bits & bits::WRITE != 0 {
        rights |= Rights::WRITE_DATA | Rights::APPEND_DATA | Rights::WRITE_NAMED;
        if is_directory {
            rights |= Rights::DELETE_CHILD;
        }
    }
    if mode_bits & bits::EXECUTE != 0 {
        rights |= Rights::EXECUTE;
    }
    rights
}

/// The bits that show that somebody has some of these rights to a file's bytes.
fn bits_above(rights: Rights, is_directory: bool) -> u8 {
    let mut writing = Rights::WRITE_DATA | Rights::APPEND_DATA;
    if is_directory {
        writing |= Rights::DELETE_CHILD;
    }
    let bit = |right, bit| if rights.intersects(right) { bit } else { 0 };
    bit(Rights::READ_DATA, bits::READ)
        | bit(writing, bits::WRITE)
        | bit(Rights::EXECUTE, bits::EXECUTE)
}

fn denied_to_unknown(aces: &[Ace]) -> Rights {
    let unknown = aces
        .iter()
        .filter(|ace| ace.is_effective() && ace.kind == AceKind::Deny && ace.who.is_unknown());
    unknown.fold(Rights::NONE, |all, ace| all | ace.rights)
}

/// What somebody has who meets some entries: what was allowed, unless it was denied before.
#[derive(Clone, Copy, Default)]
struct Most {
    allowed: Rights,
    denied: Rights,
}

impl Most {
    fn meets(&mut self, ace: &Ace) {
        match ace.kind {
            AceKind::Allow => self.allowed |= ace.rights - self.denied,
            _ => self.denied |= ace.rights,
        }
    }
}

/// For each class the most that anybody in it can have. Who is in which group is not known; so the
/// owner may be in every group that something is allowed to, and in none that it is denied to.
fn mode_above(aces: &[Ace], target: &Target) -> u16 {
    let (mut owner, mut others) = (Most::default(), Most::default());
    let mut group: BTreeMap<&Who, Most> = BTreeMap::from([(&Who::OwningGroup, Most::default())]);
    let plain = |who| plain(who, target);
    let effective = aces.iter().filter(|ace| ace.is_effective());
    for ace in effective.clone() {
        if matches!(plain(&ace.who), Who::User(_) | Who::Group(_)) {
            group.insert(&ace.who, Most::default());
        }
    }
    for ace in effective {
        let allows = ace.kind == AceKind::Allow;
        let who = plain(&ace.who);
        match who {
            Who::Owner => owner.meets(ace),
            Who::OwningGroup | Who::Group(_) | Who::User(_) => {
                if allows && !matches!(who, Who::User(_)) {
                    owner.meets(ace);
                }
                group.entry(who).or_default().meets(ace);
            }
            _ if who.is_unknown() && allows => {}
            _ => {
                let all = group.values_mut().chain([&mut owner, &mut others]);
                all.for_each(|most| most.meets(ace));
            }
        }
    }
    let group = group
        .values()
        .fold(Rights::NONE, |all, most| all | most.allowed);
    let bits = |rights| u16::from(bits_above(rights, target.is_directory));
    bits(owner.allowed) << OWNER | bits(group) << GROUP | bits(others.allowed)
}

/// Whom an entry means for a file: its owner and group are themselves, also by number.
pub(crate) fn plain<'a>(who: &'a Who, target: &Target) -> &'a Who {
    match who {
        Who::OwnerRights => &Who::Owner,
        Who::User(uid) if *uid == target.uid => &Who::Owner,
        Who::Group(gid) if *gid == target.gid => &Who::OwningGroup,
        _ => who,
    }
}
