//! The running kernel's decision (`acl_permission_check` in `namei.c`, `posix_acl_permission`), for
//! a caller without capabilities. Root is not thought of here: whoever has CAP_DAC_OVERRIDE is not
//! judged by an ACL.
//!
//! Two things are not as the draft has them, and both matter:
//!
//! * A mode whose group bits are empty hides the ACL. As these bits are the mask, users and groups
//!   with entries of their own then have what others have.
//! * One entry must allow all that is asked for. Who is in a group that may read and in another
//!   that may write can open a file for reading, and for writing, but not for both.

use super::{GROUP, OTHERS, OWNER, PosixAcl, PosixWho, bits, class_bits};
use crate::Caller;

/// What the kernel judges a file by.
#[derive(Clone, Copy, Debug)]
pub struct PosixFile<'a> {
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Its mode; bits beyond the nine of permissions play no part.
    pub mode: u16,
    /// Its access ACL, if it has one.
    pub access: Option<&'a PosixAcl>,
}

/// What was decided, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PosixDecision {
    /// Whether all that was asked for is allowed.
    pub is_allowed: bool,
    /// What decided.
    pub ground: PosixGround,
}

/// What a decision was taken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PosixGround {
    /// The owner's bits of the mode.
    OwnerBits,
    /// The group's bits of the mode.
    GroupBits,
    /// The bits of others in the mode.
    OthersBits,
    /// The entry of the ACL with this index, under the mask unless it is the one of others.
    Entry(usize),
    /// The caller is in groups with entries, none of which allows it all.
    Groups,
}

impl PosixFile<'_> {
    /// Whether a caller may do all of `wanted`, which is some of [`bits`].
    #[must_use]
    pub fn allows(&self, caller: &Caller<'_>, wanted: u8) -> bool {
        self.decide(caller, wanted).is_allowed
    }

    /// As [`PosixFile::allows`], with what decided.
    #[must_use]
    pub fn decide(&self, caller: &Caller<'_>, wanted: u8) -> PosixDecision {
        let by_mode = |class, ground| PosixDecision {
            is_allowed: contains(class_bits(self.mode, class), wanted),
            ground,
        };
        if caller.uid() == self.uid {
            return by_mode(OWNER, PosixGround::OwnerBits);
        }
        match self.access {
            Some(acl) if class_bits(self.mode, GROUP) != 0 => judge(acl, self.gid, caller, wanted),
            _ if caller.is_member(self.gid) => by_mode(GROUP, PosixGround::GroupBits),
            _ => by_mode(OTHERS, PosixGround::OthersBits),
        }
    }
}

/// What an ACL says to somebody who is not the owner.
fn judge(acl: &PosixAcl, group: u32, caller: &Caller<'_>, wanted: u8) -> PosixDecision {
    let by_entry = |index, allowed| PosixDecision {
        is_allowed: contains(allowed, wanted),
        ground: PosixGround::Entry(index),
    };
    let mask = acl.mask().unwrap_or(bits::ALL);
    let mut is_in_a_group = false;
    for (index, entry) in acl.entries().iter().enumerate() {
        match entry.who {
            PosixWho::User(uid) if caller.uid() == uid => {
                return by_entry(index, entry.bits & mask);
            }
            PosixWho::OwningGroup if caller.is_member(group) => is_in_a_group = true,
            PosixWho::Group(gid) if caller.is_member(gid) => is_in_a_group = true,
            PosixWho::Others if !is_in_a_group => return by_entry(index, entry.bits),
            _ => continue,
        }
        // The first group that allows it all decides, and the mask may still be against it.
        if contains(entry.bits, wanted) && entry.who != PosixWho::Others {
            return by_entry(index, entry.bits & mask);
        }
    }
    PosixDecision {
        is_allowed: false,
        ground: PosixGround::Groups,
    }
}

fn contains(allowed: u8, wanted: u8) -> bool {
    allowed & wanted == wanted
}
