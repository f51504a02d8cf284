//! POSIX ACLs as Linux has them: what is valid, how they and a mode follow each other. The rules
//! are those of the kernel's `posix_acl.c` (POSIX 1003.1e draft 17, sections 23.1.5 and 23.1.7).
//!
//! An ACL without a mask, user or group is said by the mode alone; Linux does not keep it then, and
//! no ACL at all is the same ([`PosixAcl::of_mode`]).

mod judge;
mod xattr;

pub use judge::{PosixDecision, PosixFile, PosixGround};

use crate::AclError;
use base::limits::POSIX_ACL_ENTRIES_MAX;
use serde::{Deserialize, Serialize};

/// What an entry of a POSIX ACL can allow.
pub mod bits {
    /// Reading, or listing a directory.
    pub const READ: u8 = 4;
    /// Writing, or changing a directory's names.
    pub const WRITE: u8 = 2;
    /// Executing, or looking a name up in a directory.
    pub const EXECUTE: u8 = 1;
    /// All three.
    pub const ALL: u8 = 7;
}

/// Whom an entry speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PosixWho {
    /// The file's owner.
    Owner,
    /// A user.
    User(u32),
    /// The file's group.
    OwningGroup,
    /// A group.
    Group(u32),
    /// Nobody: the most that users and groups can have.
    Mask,
    /// Everybody else.
    Others,
}

/// One entry: whom it speaks of, and which of [`bits`] it allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PosixEntry {
    /// Whom it speaks of.
    pub who: PosixWho,
    /// What it allows.
    pub bits: u8,
}

/// A valid ACL, in the kernel's order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<PosixEntry>", into = "Vec<PosixEntry>")]
pub struct PosixAcl(Vec<PosixEntry>);

impl PosixAcl {
    /// An ACL of entries that are in order and complete, exactly as the kernel sees it.
    ///
    /// # Errors
    /// [`AclError::Malformed`] if the kernel would refuse them, [`AclError::TooLarge`] beyond what
    /// an extended attribute holds.
    pub fn new(entries: Vec<PosixEntry>) -> Result<Self, AclError> {
        if entries.len() > POSIX_ACL_ENTRIES_MAX {
            return Err(TOO_MANY);
        }
        // The kernel goes through the kinds one after the other; several users or groups follow in
        // any order. It does not look for doubles.
        let mut next = 0;
        let mut has_named = false;
        for entry in &entries {
            if entry.bits > bits::ALL {
                return Err(AclError::Malformed("an entry allows what there is not"));
            }
            let (allowed, after) = match entry.who {
                PosixWho::Owner => (next == 0, 1),
                PosixWho::User(_) => (next == 1, 1),
                PosixWho::OwningGroup => (next == 1, 2),
                PosixWho::Group(_) => (next == 2, 2),
                PosixWho::Mask => (next == 2, 3),
                PosixWho::Others => (next == 3 || (next == 2 && !has_named), 4),
            };
            if matches!(entry.who, PosixWho::User(NOBODY) | PosixWho::Group(NOBODY)) {
                return Err(AclError::Malformed("an entry for nobody's number"));
            }
            has_named |= entry.is_named();
            if !allowed {
                return Err(AclError::Malformed("entries are out of order"));
            }
            next = after;
        }
        match next == 4 {
            true => Ok(Self(entries)),
            false => Err(AclError::Malformed("entries are missing")),
        }
    }

    /// The ACL that says what permission bits say.
    #[must_use]
    pub fn of_mode(mode: u16) -> Self {
        let entry = |who, class| PosixEntry {
            who,
            bits: class_bits(mode, class),
        };
        Self(vec![
            entry(PosixWho::Owner, OWNER),
            entry(PosixWho::OwningGroup, GROUP),
            entry(PosixWho::Others, OTHERS),
        ])
    }

    /// The entries: owner, users, owning group, groups, mask if any, others.
    #[must_use]
    pub fn entries(&self) -> &[PosixEntry] {
        &self.0
    }

    /// What users and groups can have at most; `None` for an ACL without a mask.
    #[must_use]
    pub fn mask(&self) -> Option<u8> {
        let before_others = self.0.len().checked_sub(2)?;
        let entry = self.0[before_others];
        (entry.who == PosixWho::Mask).then_some(entry.bits)
    }

    /// Permission bits that say the same, and whether they say all.
    #[must_use]
    pub fn mode(&self) -> (u16, bool) {
        let mut mode = 0;
        let mut says_all = true;
        for entry in &self.0 {
            let bits = u16::from(entry.bits);
            match entry.who {
                PosixWho::Owner => mode |= bits << OWNER,
                PosixWho::OwningGroup => mode |= bits << GROUP,
                PosixWho::Others => mode |= bits,
                PosixWho::Mask => {}
                PosixWho::User(_) | PosixWho::Group(_) => says_all = false,
            }
        }
        match self.mask() {
            Some(mask) => (mode & !(7 << GROUP) | u16::from(mask) << GROUP, false),
            None => (mode, says_all),
        }
    }

    /// The ACL after chmod(2).
    #[must_use]
    pub fn with_mode(&self, mode: u16) -> Self {
        let mut after = self.clone();
        for (entry, class) in after.entries_of_mode() {
            entry.bits = class_bits(mode, class);
        }
        after
    }

    /// What an inode that is made with `mode` gets from its directory's default ACL: an ACL, if the
    /// mode alone does not say it, and its mode. The umask plays no part.
    #[must_use]
    pub fn inherited(&self, mode: u16) -> (Option<Self>, u16) {
        let mut acl = self.clone();
        let mut after = mode;
        for (entry, class) in acl.entries_of_mode() {
            entry.bits &= class_bits(mode, class);
            after = after & !(7 << class) | u16::from(entry.bits) << class;
        }
        let needs_acl = acl.0.len() > MODE_ENTRIES;
        (needs_acl.then_some(acl), after)
    }

    /// The entries that the mode repeats, with where it does.
    fn entries_of_mode(&mut self) -> impl Iterator<Item = (&mut PosixEntry, u16)> {
        let has_mask = self.mask().is_some();
        self.0.iter_mut().filter_map(move |entry| {
            let class = match entry.who {
                PosixWho::Owner => OWNER,
                PosixWho::Mask => GROUP,
                PosixWho::OwningGroup if !has_mask => GROUP,
                PosixWho::Others => OTHERS,
                _ => return None,
            };
            Some((entry, class))
        })
    }
}

impl TryFrom<Vec<PosixEntry>> for PosixAcl {
    type Error = AclError;

    fn try_from(entries: Vec<PosixEntry>) -> Result<Self, AclError> {
        Self::new(entries)
    }
}

impl From<PosixAcl> for Vec<PosixEntry> {
    fn from(acl: PosixAcl) -> Self {
        acl.0
    }
}

impl PosixEntry {
    /// Whether it speaks of a user or group by number.
    fn is_named(self) -> bool {
        matches!(self.who, PosixWho::User(_) | PosixWho::Group(_))
    }
}

/// What entries without a user or group have in that field, and nobody's number.
const NOBODY: u32 = u32::MAX;
/// Entries of an ACL that a mode says.
const MODE_ENTRIES: usize = 3;
const TOO_MANY: AclError = AclError::TooLarge {
    max: POSIX_ACL_ENTRIES_MAX,
    what: "entries",
};

/// Where a class has its bits in a mode.
pub(crate) const OWNER: u16 = 6;
pub(crate) const GROUP: u16 = 3;
pub(crate) const OTHERS: u16 = 0;

/// What a mode allows a class.
pub(crate) fn class_bits(mode: u16, class: u16) -> u8 {
    (mode >> class & 7) as u8
}
