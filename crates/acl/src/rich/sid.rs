//! Security identifiers of Windows (MS-DTYP, section 2.4.2).

use crate::AclError;
use std::fmt;
use std::str::FromStr;

/// Most parts below the authority.
const PARTS_MAX: usize = 15;
const HEAD_BYTES: usize = 8;
const AUTHORITY_BYTES: usize = 6;
const REVISION: u8 = 1;
const PARTS: AclError = AclError::TooLarge {
    max: PARTS_MAX,
    what: "parts in a SID",
};

/// A security identifier: who somebody is, in any domain.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sid {
    authority: u64,
    parts: Box<[u32]>,
}

impl Sid {
    /// The one of an authority and what is below it.
    ///
    /// # Errors
    /// [`AclError::TooLarge`] for more than 15 parts, [`AclError::Malformed`] for an authority of
    /// more than 48 bits.
    pub fn new(authority: u64, parts: &[u32]) -> Result<Self, AclError> {
        if parts.len() > PARTS_MAX {
            return Err(PARTS);
        }
        if authority >> (8 * AUTHORITY_BYTES) != 0 {
            return Err(AclError::Malformed("an authority has 48 bits"));
        }
        Ok(Self {
            authority,
            parts: parts.into(),
        })
    }

    /// S-1-22-1-UID, which Samba uses for users that have nothing else.
    #[must_use]
    pub fn of_uid(uid: u32) -> Self {
        Self::known(UNIX, &[UNIX_USER, uid])
    }

    /// S-1-22-2-GID.
    #[must_use]
    pub fn of_gid(gid: u32) -> Self {
        Self::known(UNIX, &[UNIX_GROUP, gid])
    }

    /// S-1-1-0: everybody.
    #[must_use]
    pub fn everyone() -> Self {
        Self::known(1, &[0])
    }

    /// S-1-3-0: in an entry that is only inherited, the owner of the file that inherits it.
    #[must_use]
    pub fn creator_owner() -> Self {
        Self::known(CREATOR, &[0])
    }

    /// S-1-3-1: the same for its group.
    #[must_use]
    pub fn creator_group() -> Self {
        Self::known(CREATOR, &[1])
    }

    /// S-1-3-4: the owner, in place of what owners have anyway.
    #[must_use]
    pub fn owner_rights() -> Self {
        Self::known(CREATOR, &[4])
    }

    fn known(authority: u64, parts: &[u32]) -> Self {
        Self {
            authority,
            parts: parts.into(),
        }
    }

    /// The user, if it is S-1-22-1-UID.
    #[must_use]
    pub fn unix_uid(&self) -> Option<u32> {
        match (self.authority, &*self.parts) {
            (UNIX, &[UNIX_USER, uid]) => Some(uid),
            _ => None,
        }
    }

    /// The group, if it is S-1-22-2-GID.
    #[must_use]
    pub fn unix_gid(&self) -> Option<u32> {
        match (self.authority, &*self.parts) {
            (UNIX, &[UNIX_GROUP, gid]) => Some(gid),
            _ => None,
        }
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        HEAD_BYTES + 4 * self.parts.len()
    }

    /// Its binary form.
    #[expect(
        clippy::big_endian_bytes,
        reason = "the authority is, alone in this format"
    )]
    pub(crate) fn write(&self, bytes: &mut Vec<u8>) {
        let count = u8::try_from(self.parts.len()).expect("at most 15 parts");
        bytes.extend([REVISION, count]);
        bytes.extend(&self.authority.to_be_bytes()[8 - AUTHORITY_BYTES..]);
        for part in &self.parts {
            bytes.extend(part.to_le_bytes());
        }
    }

    /// The one at the beginning of `bytes`, and how long it is.
    pub(crate) fn read(bytes: &[u8]) -> Result<(Self, usize), AclError> {
        let (head, rest) = bytes
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or(AclError::Truncated)?;
        if head[0] != REVISION {
            return Err(AclError::UnknownVersion(u32::from(head[0])));
        }
        let count = usize::from(head[1]);
        if count > PARTS_MAX {
            return Err(PARTS);
        }
        let authority = head[2..]
            .iter()
            .fold(0, |all, byte| all << 8 | u64::from(*byte));
        let (parts, _) = rest.as_chunks::<4>();
        let parts = parts.get(..count).ok_or(AclError::Truncated)?;
        let parts = parts.iter().map(|part| u32::from_le_bytes(*part)).collect();
        let sid = Self { authority, parts };
        let bytes = sid.byte_len();
        Ok((sid, bytes))
    }
}

/// Authority of users and groups of Unix, and what is below it.
const UNIX: u64 = 22;
const UNIX_USER: u32 = 1;
const UNIX_GROUP: u32 = 2;
/// Authority of whom a file belongs to.
const CREATOR: u64 = 3;

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Windows writes an authority that has more than 32 bits in hexadecimal.
        match self.authority >> 32 {
            0 => write!(f, "S-1-{}", self.authority)?,
            _ => write!(f, "S-1-{:#014x}", self.authority)?,
        }
        self.parts.iter().try_for_each(|part| write!(f, "-{part}"))
    }
}

impl fmt::Debug for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Sid {
    type Err = AclError;

    fn from_str(text: &str) -> Result<Self, AclError> {
        let malformed = || AclError::Malformed("a SID is S-1-AUTHORITY-PART-...");
        let mut numbers = text.strip_prefix("S-1-").ok_or_else(malformed)?.split('-');
        let authority = numbers.next().ok_or_else(malformed)?;
        let authority = match authority.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => authority.parse(),
        };
        let parts = numbers.take(PARTS_MAX + 1).map(str::parse);
        let parts: Result<Vec<u32>, _> = parts.collect();
        let sid = Self::new(
            authority.map_err(|_| malformed())?,
            &parts.map_err(|_| malformed())?,
        )?;
        // Signs and leading zeroes would be further names of the same.
        match sid.to_string() == text {
            true => Ok(sid),
            false => Err(malformed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sid_is_its_text_and_its_bytes() {
        let cases: [(&str, &[u8]); 4] = [
            ("S-1-1-0", &[1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]),
            (
                "S-1-22-1-1000",
                &[1, 2, 0, 0, 0, 0, 0, 22, 1, 0, 0, 0, 232, 3, 0, 0],
            ),
            ("S-1-5", &[1, 0, 0, 0, 0, 0, 0, 5]),
            (
                "S-1-0x0100000000ff-7",
                &[1, 1, 1, 0, 0, 0, 0, 255, 7, 0, 0, 0],
            ),
        ];
        for (text, bytes) in cases {
            let sid: Sid = text.parse().expect("a SID");
            let mut written = Vec::new();
            sid.write(&mut written);
            assert_eq!(
                (sid.to_string().as_str(), written.as_slice()),
                (text, bytes)
            );
            assert_eq!(Sid::read(bytes), Ok((sid, bytes.len())));
            assert!(Sid::read(&bytes[..bytes.len() - 1]).is_err());
        }
        assert_eq!(Sid::of_uid(1000).to_string(), "S-1-22-1-1000");
        assert_eq!(Sid::of_gid(7).unix_gid(), Some(7));
        assert_eq!(Sid::of_gid(7).unix_uid(), None);
    }

    #[test]
    fn what_is_no_sid_is_refused() {
        let texts = [
            "",
            "S-1-",
            "S-2-1-0",
            "s-1-1-0",
            "S-1-+1-0",
            "S-1-1-01",
            "S-1-1-0 ",
            "S-1-1--1",
            "S-1-1-4294967296",
            "S-1-281474976710656",
            "S-1-0x1-0",
            "S-1-x",
        ];
        for text in texts {
            assert!(text.parse::<Sid>().is_err(), "{text}");
        }
        let long = format!("S-1-5{}", "-1".repeat(16));
        assert_eq!(long.parse::<Sid>(), Err(PARTS));
        assert!(Sid::read(&[2, 0, 0, 0, 0, 0, 0, 5]).is_err());
        let many = [&[1, 16, 0, 0, 0, 0, 0, 5][..], &[0; 64]].concat();
        assert_eq!(Sid::read(&many), Err(PARTS));
    }
}
