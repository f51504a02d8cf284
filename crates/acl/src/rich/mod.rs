//! Rich ACLs: the lists of NFSv4 (RFC 8881, section 6) and Windows (MS-DTYP, section 2.4), as one.
//!
//! A list is read from its beginning; each entry that speaks of the caller allows or denies some
//! rights, and the first one that speaks of a right decides about it ([`RichAcl::decide`]).
//!
//! Three things lie beside the entries. The *origin* says whether the list is the truth or a view
//! of a POSIX ACL; a view is judged by a stricter rule, because the kernel is ([`Origin`]). The
//! *limits* are what chmod and the mode at creation have put over the list, which itself stays as
//! it was. The *control* bits are carried for Windows.

mod effective;
mod heir;
mod judge;
pub(crate) mod limits;
mod order;
mod rights;
mod sid;
mod text;

pub use judge::{Decision, Ground, Target};
pub use rights::Rights;
pub use sid::Sid;

use crate::AclError;
use crate::identity::is_special_sid;
use base::limits::{PRINCIPAL_BYTES_MAX, RICH_ACL_ENTRIES_MAX};
use limits::Limits;

/// Whom an entry speaks of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    /// The file's owner, whoever that is.
    Owner,
    /// The file's group.
    OwningGroup,
    /// Everybody, owner and group included.
    Everyone,
    /// The owner, in place of the rights that owners have anyway (S-1-3-4 of Windows).
    OwnerRights,
    /// A user.
    User(u32),
    /// A group.
    Group(u32),
    /// Somebody known to Windows whom nobody here can be found to be.
    Sid(Sid),
    /// A name of NFSv4 whom nobody here can be found to be.
    Name {
        /// What stands before and behind the `@`.
        name: Box<str>,
        /// Whether it was said to be a group.
        is_group: bool,
    },
}

impl Who {
    /// Whether it is kept as itself because nobody knows who that is.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Sid(_) | Self::Name { .. })
    }

    /// Whether this is the only way to say who that is.
    fn is_itself(&self) -> bool {
        match self {
            Self::Sid(sid) => !is_special_sid(sid),
            Self::Name { name, .. } => {
                (1..=PRINCIPAL_BYTES_MAX).contains(&name.len()) && !name.contains('\0')
            }
            _ => true,
        }
    }
}

/// What an entry does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum AceKind {
    /// Its rights are allowed.
    Allow = 0,
    /// Its rights are denied.
    Deny = 1,
    /// Their use is written down.
    Audit = 2,
}

/// How an entry is inherited, and which uses an audit entry means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AceFlags(u8);

impl AceFlags {
    /// None.
    pub const NONE: Self = Self(0);
    /// New files have it.
    pub const FILE_INHERIT: Self = Self(1);
    /// New directories have it, and pass it on.
    pub const DIRECTORY_INHERIT: Self = Self(2);
    /// New directories do not pass it on.
    pub const NO_PROPAGATE: Self = Self(4);
    /// It says nothing about the directory that it is in.
    pub const INHERIT_ONLY: Self = Self(8);
    /// Of an audit entry: uses that were allowed.
    pub const SUCCESSFUL: Self = Self(0x10);
    /// Of an audit entry: uses that were not.
    pub const FAILED: Self = Self(0x20);
    /// It was inherited.
    pub const INHERITED: Self = Self(0x80);
    /// All of them.
    pub const ALL: Self = Self(0xbf);
    /// All that an entry has for its heirs.
    pub const INHERITANCE: Self = Self(0xf);

    /// The number, as in NFSv4.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// `None` for bits without a meaning.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits & !Self::ALL.0 {
            0 => Some(Self(bits)),
            _ => None,
        }
    }

    /// Whether all of `other` are in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// An entry of a rich ACL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ace {
    /// What it does.
    pub kind: AceKind,
    /// How it is inherited.
    pub flags: AceFlags,
    /// About what.
    pub rights: Rights,
    /// About whom.
    pub who: Who,
}

impl Ace {
    /// An entry that allows, without flags.
    #[must_use]
    pub fn allow(who: Who, rights: Rights) -> Self {
        Self::new(AceKind::Allow, who, rights)
    }

    /// An entry that denies, without flags.
    #[must_use]
    pub fn deny(who: Who, rights: Rights) -> Self {
        Self::new(AceKind::Deny, who, rights)
    }

    fn new(kind: AceKind, who: Who, rights: Rights) -> Self {
        Self {
            kind,
            flags: AceFlags::NONE,
            rights,
            who,
        }
    }

    /// Whether new files or directories have it.
    pub(crate) fn is_inheritable(&self) -> bool {
        let heirs = AceFlags::FILE_INHERIT.with(AceFlags::DIRECTORY_INHERIT);
        self.flags.without(heirs) != self.flags
    }

    /// Whether it says something about the file that it is in, as one that allows or denies.
    #[must_use]
    pub fn is_effective(&self) -> bool {
        self.kind != AceKind::Audit && !self.flags.contains(AceFlags::INHERIT_ONLY)
    }
}

/// Which of a file's two lists is the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The mode and the POSIX ACL; the rich one is a view of it. Among entries for groups one must
    /// allow all that is still asked for when it is read, as the kernel demands of one entry.
    Posix,
    /// The rich ACL. Entries for groups add up.
    #[default]
    Rich,
}

/// What Windows keeps beside a list; no decision depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Control {
    /// Changes of the parent's list are passed on to this one by whoever changes that.
    pub auto_inherited: bool,
    /// They are not.
    pub protected: bool,
    /// The list was not made by somebody but by default.
    pub defaulted: bool,
}

/// A rich ACL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RichAcl {
    pub(crate) aces: Vec<Ace>,
    pub(crate) origin: Origin,
    pub(crate) control: Control,
    pub(crate) limits: Option<Limits>,
}

impl RichAcl {
    /// A list that is the truth about its file.
    ///
    /// # Errors
    /// [`AclError::TooLarge`]; [`AclError::Malformed`] for an unknown principal who has no name, a
    /// name of more than [`PRINCIPAL_BYTES_MAX`] bytes, or a SID that stands for a class of
    /// callers.
    pub fn new(aces: Vec<Ace>) -> Result<Self, AclError> {
        if aces.len() > RICH_ACL_ENTRIES_MAX {
            return Err(TOO_MANY);
        }
        if aces.iter().any(|ace| !ace.who.is_itself()) {
            return Err(AclError::Malformed("an entry of nobody in particular"));
        }
        Ok(Self {
            aces,
            ..Self::default()
        })
    }

    /// The same list with other control bits.
    #[must_use]
    pub fn with_control(self, control: Control) -> Self {
        Self { control, ..self }
    }

    /// The entries, in the order in which they are read.
    #[must_use]
    pub fn aces(&self) -> &[Ace] {
        &self.aces
    }

    /// Whether it is the truth or a view.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// What Windows keeps beside the list.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control
    }
}

const TOO_MANY: AclError = AclError::TooLarge {
    max: RICH_ACL_ENTRIES_MAX,
    what: "entries",
};
