//! The decision: NFSv4's (RFC 8881, section 6.2.1) and Windows' (MS-DTYP, section 2.5.3.2), which
//! are the same. The first entry that speaks of the caller and of a right decides about that right;
//! what no entry speaks of is denied. Root is not thought of here.
//!
//! What is not said there:
//!
//! * Owners may read and change the ACL whatever it says, unless an entry for the owner's rights
//!   says what they may instead. So nobody is locked out of his own file.
//! * An entry that *denies* something to somebody unknown denies it to everybody: the caller may be
//!   him, or in that group. One that allows speaks of nobody.
//! * In a view of a POSIX ACL one entry for a group must allow all that is still asked for. That is
//!   all it takes to be exactly as strict as the kernel; a list of NFSv4 alone cannot say it,
//!   because it decides about each right by itself.

use super::limits::{Class, Share};
use super::{Ace, AceFlags, AceKind, Origin, RichAcl, Rights, Who};
use crate::Caller;

/// The file that is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// What was decided, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether all that was asked for is allowed.
    pub is_allowed: bool,
    /// The rights that decided: those that are denied, or all that was asked for.
    pub rights: Rights,
    /// What decided; of what allows, the last part.
    pub ground: Ground,
}

/// What a decision was taken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// The entry with this index.
    Entry(usize),
    /// Owners may do that.
    Owner,
    /// What chmod, or the mode at creation, has put over the list.
    Mode,
    /// No entry speaks of it.
    Nothing,
}

impl RichAcl {
    /// Whether a caller may do all of `wanted` with a file that has this list, and what decided.
    #[must_use]
    pub fn decide(&self, caller: &Caller<'_>, target: &Target, wanted: Rights) -> Decision {
        let mut ground = Ground::Nothing;
        let mut open = wanted;
        if caller.uid() == target.uid && open.intersects(OWNERS) && !self.names_owner_rights() {
            open = open - OWNERS;
            ground = Ground::Owner;
        }
        if let Some(limits) = &self.limits {
            let class = self.class_of(caller, target);
            let Share { given, reachable } = limits.share(class, &self.aces, target);
            if open.intersects(given) {
                open = open - given;
                ground = Ground::Mode;
            }
            if !reachable.contains(open) {
                return denied(open - reachable, Ground::Mode);
            }
        }
        for (index, ace) in self.aces.iter().enumerate() {
            if open.is_empty() {
                break;
            }
            if !ace.is_effective() || !ace.speaks_of(caller, target) {
                continue;
            }
            match ace.kind {
                AceKind::Allow if self.counts(ace, open) => {
                    if open.intersects(ace.rights) {
                        ground = Ground::Entry(index);
                    }
                    open = open - ace.rights;
                }
                AceKind::Deny if open.intersects(ace.rights) => {
                    return denied(open & ace.rights, Ground::Entry(index));
                }
                _ => {}
            }
        }
        match open.is_empty() {
            true => Decision {
                is_allowed: true,
                rights: wanted,
                ground,
            },
            false => denied(open, Ground::Nothing),
        }
    }

    /// As [`RichAcl::decide`], without what decided.
    #[must_use]
    pub fn allows(&self, caller: &Caller<'_>, target: &Target, wanted: Rights) -> bool {
        self.decide(caller, target, wanted).is_allowed
    }

    /// The first entry that wants a use to be written down: `wanted` was asked for, and allowed or
    /// not.
    #[must_use]
    pub fn audit(
        &self,
        caller: &Caller<'_>,
        target: &Target,
        wanted: Rights,
        is_allowed: bool,
    ) -> Option<usize> {
        let outcome = match is_allowed {
            true => AceFlags::SUCCESSFUL,
            false => AceFlags::FAILED,
        };
        self.aces.iter().position(|ace| {
            ace.kind == AceKind::Audit
                && ace.flags.contains(outcome)
                && !ace.flags.contains(AceFlags::INHERIT_ONLY)
                && ace.rights.intersects(wanted)
                && ace.speaks_of(caller, target)
        })
    }

    /// Whether an allowing entry that speaks of the caller takes part.
    fn counts(&self, ace: &Ace, open: Rights) -> bool {
        match self.origin {
            Origin::Rich => true,
            Origin::Posix => {
                !matches!(ace.who, Who::OwningGroup | Who::Group(_)) || ace.rights.contains(open)
            }
        }
    }

    fn names_owner_rights(&self) -> bool {
        let mut effective = self.aces.iter().filter(|ace| ace.is_effective());
        effective.any(|ace| ace.who == Who::OwnerRights)
    }

    /// Whose bits of a mode are a caller's.
    fn class_of(&self, caller: &Caller<'_>, target: &Target) -> Class {
        let is_named = |ace: &Ace| {
            ace.is_effective()
                && matches!(ace.who, Who::User(_) | Who::Group(_))
                && ace.speaks_of(caller, target)
        };
        if caller.uid() == target.uid {
            Class::Owner
        } else if caller.is_member(target.gid) || self.aces.iter().any(is_named) {
            Class::Group
        } else {
            Class::Others
        }
    }
}

impl Ace {
    /// Whether it speaks of a caller.
    fn speaks_of(&self, caller: &Caller<'_>, target: &Target) -> bool {
        match self.who {
            Who::Everyone => true,
            Who::Owner | Who::OwnerRights => caller.uid() == target.uid,
            Who::OwningGroup => caller.is_member(target.gid),
            Who::User(uid) => caller.uid() == uid,
            Who::Group(gid) => caller.is_member(gid),
            Who::Sid(_) | Who::Name { .. } => self.kind != AceKind::Allow,
        }
    }
}

/// What owners may do anyway.
const OWNERS: Rights = Rights::READ_ACL.or(Rights::WRITE_ACL);

fn denied(rights: Rights, ground: Ground) -> Decision {
    Decision {
        is_allowed: false,
        rights,
        ground,
    }
}
