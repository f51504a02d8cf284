//! What an entry of a rich ACL can allow: the 14 rights that NFSv4 (RFC 8881, section 6.2.1.3.1)
//! and Windows (MS-DTYP, section 2.4.3) have in common, with the same numbers.

use std::fmt;
use std::ops::{BitAnd, BitOr, BitOrAssign, Not, Sub};

/// A set of rights.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rights(u32);

impl Rights {
    /// No right.
    pub const NONE: Self = Self(0);
    /// Reading a file's bytes, listing a directory.
    pub const READ_DATA: Self = Self(1);
    /// Writing a file's bytes, making files in a directory.
    pub const WRITE_DATA: Self = Self(2);
    /// Writing behind a file's end, making directories in a directory.
    pub const APPEND_DATA: Self = Self(4);
    /// Reading named attributes.
    pub const READ_NAMED: Self = Self(8);
    /// Writing named attributes.
    pub const WRITE_NAMED: Self = Self(0x10);
    /// Running a file, looking a name up in a directory.
    pub const EXECUTE: Self = Self(0x20);
    /// Removing whatever is in a directory.
    pub const DELETE_CHILD: Self = Self(0x40);
    /// Reading attributes.
    pub const READ_ATTRIBUTES: Self = Self(0x80);
    /// Changing times.
    pub const WRITE_ATTRIBUTES: Self = Self(0x100);
    /// Removing this one.
    pub const DELETE: Self = Self(0x1_0000);
    /// Reading the ACL.
    pub const READ_ACL: Self = Self(0x2_0000);
    /// Changing the ACL, and the mode with it.
    pub const WRITE_ACL: Self = Self(0x4_0000);
    /// Changing owner and group.
    pub const WRITE_OWNER: Self = Self(0x8_0000);
    /// Using it as a thing to wait for.
    pub const SYNCHRONIZE: Self = Self(0x10_0000);
    /// Every right.
    pub const ALL: Self = Self(LOW | HIGH);

    /// What everybody has where POSIX judges: looking at a file is nobody's privilege.
    pub const LOOK: Self = Self(Self::READ_ATTRIBUTES.0 | Self::READ_ACL.0 | Self::SYNCHRONIZE.0);
    /// What an owner has beyond that where POSIX judges.
    pub const OWN: Self = Self(Self::WRITE_ATTRIBUTES.0 | Self::WRITE_ACL.0);

    /// The number, as on the wire.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// `None` for bits without a meaning.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Option<Self> {
        match bits & !(LOW | HIGH) {
            0 => Some(Self(bits)),
            _ => None,
        }
    }

    /// Both.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether any of `other` is in it.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether there is no right in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The 14 bits without the gap between them.
    pub(crate) const fn packed(self) -> u16 {
        (self.0 & LOW | (self.0 & HIGH) >> GAP) as u16
    }

    /// From those, of which there are no more than 14.
    pub(crate) const fn unpacked(bits: u16) -> Self {
        let bits = bits as u32;
        Self(bits & LOW | (bits << GAP) & HIGH)
    }
}

/// File rights.
const LOW: u32 = 0x1ff;
/// Standard rights.
const HIGH: u32 = 0x1f_0000;
const GAP: u32 = 7;

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Rights {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for Rights {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Sub for Rights {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl Not for Rights {
    type Output = Self;

    fn not(self) -> Self {
        Self::ALL - self
    }
}

/// One letter for each right, as nfs4_getfacl(1) has them.
pub(super) const LETTERS: [(Rights, char); 14] = [
    (Rights::READ_DATA, 'r'),
    (Rights::WRITE_DATA, 'w'),
    (Rights::APPEND_DATA, 'a'),
    (Rights::EXECUTE, 'x'),
    (Rights::DELETE, 'd'),
    (Rights::DELETE_CHILD, 'D'),
    (Rights::READ_ATTRIBUTES, 't'),
    (Rights::WRITE_ATTRIBUTES, 'T'),
    (Rights::READ_NAMED, 'n'),
    (Rights::WRITE_NAMED, 'N'),
    (Rights::READ_ACL, 'c'),
    (Rights::WRITE_ACL, 'C'),
    (Rights::WRITE_OWNER, 'o'),
    (Rights::SYNCHRONIZE, 'y'),
];

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = LETTERS.iter().filter(|(right, _)| self.contains(*right));
        letters.map(|(_, letter)| letter).collect::<String>().fmt(f)
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_fourteen_rights() {
        let all = LETTERS
            .iter()
            .fold(Rights::NONE, |all, (right, _)| all | *right);
        assert_eq!((all, Rights::ALL.bits().count_ones()), (Rights::ALL, 14));
        assert_eq!(Rights::ALL.bits(), 0x1f_01ff);
        assert_eq!(Rights::from_bits(0x200), None);
        assert_eq!(Rights::ALL.to_string(), "rwaxdDtTnNcCoy");
    }

    #[test]
    fn rights_are_packed_into_fourteen_bits() {
        for bits in 0..1_u16 << 14 {
            assert_eq!(Rights::unpacked(bits).packed(), bits);
        }
        assert_eq!(Rights::ALL.packed(), 0x3fff);
    }
}
