//! The kernel's extended attributes `system.posix_acl_access` and `system.posix_acl_default`: a
//! version and entries of eight bytes, little-endian.

use super::{NOBODY, PosixAcl, PosixEntry, PosixWho, TOO_MANY};
use crate::AclError;
use base::limits::POSIX_ACL_ENTRIES_MAX;

/// The only one that Linux has ever had.
const VERSION: u32 = 2;
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

impl PosixAcl {
    /// The value of an extended attribute; `None` for one without entries, which setxattr(2) takes
    /// as a removal.
    ///
    /// # Errors
    /// [`AclError::UnknownVersion`], [`AclError::Truncated`], [`AclError::TooLarge`], and as
    /// [`PosixAcl::new`].
    pub fn from_xattr(value: &[u8]) -> Result<Option<Self>, AclError> {
        let (version, entries) = value.split_first_chunk().ok_or(AclError::Truncated)?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(AclError::UnknownVersion(version));
        }
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        if !rest.is_empty() {
            return Err(AclError::Truncated);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        if entries.len() > POSIX_ACL_ENTRIES_MAX {
            return Err(TOO_MANY);
        }
        let entries: Result<_, _> = entries.iter().map(decode_entry).collect();
        Self::new(entries?).map(Some)
    }

    /// As an extended attribute.
    #[must_use]
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut value = Vec::with_capacity(HEAD_BYTES + self.0.len() * ENTRY_BYTES);
        value.extend(VERSION.to_le_bytes());
        for entry in &self.0 {
            let (tag, id): (u16, u32) = match entry.who {
                PosixWho::Owner => (0x01, NOBODY),
                PosixWho::User(uid) => (0x02, uid),
                PosixWho::OwningGroup => (0x04, NOBODY),
                PosixWho::Group(gid) => (0x08, gid),
                PosixWho::Mask => (0x10, NOBODY),
                PosixWho::Others => (0x20, NOBODY),
            };
            value.extend(tag.to_le_bytes());
            value.extend(u16::from(entry.bits).to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }
}

fn decode_entry(bytes: &[u8; ENTRY_BYTES]) -> Result<PosixEntry, AclError> {
    let tag = u16::from_le_bytes([bytes[0], bytes[1]]);
    let bits = u16::from_le_bytes([bytes[2], bytes[3]]);
    let id = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let who = match tag {
        0x01 => PosixWho::Owner,
        0x02 => PosixWho::User(id),
        0x04 => PosixWho::OwningGroup,
        0x08 => PosixWho::Group(id),
        0x10 => PosixWho::Mask,
        0x20 => PosixWho::Others,
        _ => return Err(AclError::Malformed("an entry of an unknown kind")),
    };
    // Too many bits stay too many.
    let bits = u8::try_from(bits).unwrap_or(u8::MAX);
    Ok(PosixEntry { who, bits })
}
