//! What a file's mode and POSIX ACLs were before it got a rich ACL, as bytes beside it. The ACLs
//! are kept as the kernel gave them, so that what is put back is the same to the byte.
//!
//! Drawn in `docs/formats/acl.md`.

use super::bounded;
use base::limits::XATTR_BYTES_MAX;

/// The only one there has been.
const BEFORE_FORMAT: u8 = 1;
const MAGIC: [u8; 2] = *b"AP";
const HEAD_BYTES: usize = 16;
/// Where the checksum is, which is over everything but itself.
const CHECKSUM: std::ops::Range<usize> = 4..8;
/// An ACL that is not there.
const NONE: u32 = u32::MAX;

/// What a file's mode and POSIX ACLs were before it got its first rich ACL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// Permission bits.
    pub mode: u16,
    /// Value of `system.posix_acl_access`.
    pub access: Option<Vec<u8>>,
    /// Value of `system.posix_acl_default`.
    pub default: Option<Vec<u8>>,
}

impl Before {
    /// `None` if it is too large for an attribute.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let length = |acl: &Option<Vec<u8>>| match acl {
            Some(acl) => u32::try_from(acl.len()).ok(),
            None => Some(NONE),
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend([BEFORE_FORMAT, 0]);
        bytes.extend([0; 4]);
        bytes.extend(self.mode.to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend(length(&self.access)?.to_le_bytes());
        bytes.extend(self.access.iter().flatten());
        bytes.extend(self.default.iter().flatten());
        if self.default.is_some() {
            bytes[3] = 1;
        }
        let sum = checksum(&bytes);
        bytes[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
        (bytes.len() <= XATTR_BYTES_MAX).then_some(bytes)
    }

    /// `None` if it is damaged, of a newer release, or larger than an attribute.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bounded(bytes).ok()?.split_first_chunk::<HEAD_BYTES>()?;
        let sum = u32::from_le_bytes(head[CHECKSUM].try_into().ok()?);
        let is_ours = head[..2] == MAGIC && head[2] == BEFORE_FORMAT && sum == checksum(bytes);
        let mode = u16::from_le_bytes([head[8], head[9]]);
        let has_default = match head[3] {
            0 => false,
            1 => true,
            _ => return None,
        };
        if !is_ours || mode & !0o777 != 0 || head[10..12] != [0, 0] {
            return None;
        }
        let length = u32::from_le_bytes(head[12..16].try_into().ok()?);
        let (access, default) = match length {
            NONE => (None, rest),
            length => {
                let (access, default) = rest.split_at_checked(length as usize)?;
                (Some(access.to_vec()), default)
            }
        };
        if !has_default && !default.is_empty() {
            return None;
        }
        Some(Self {
            mode,
            access,
            default: has_default.then(|| default.to_vec()),
        })
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let before = crc32c::crc32c(&bytes[..CHECKSUM.start]);
    crc32c::crc32c_append(before, &bytes[CHECKSUM.end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Before {
        Before {
            mode: 0o640,
            access: Some(vec![2, 0, 0, 0, 9]),
            default: Some(vec![]),
        }
    }

    #[test]
    fn bytes_are_as_they_are_drawn() {
        let bytes = sample().to_bytes().expect("small");
        assert_eq!(bytes[..4], *b"AP\x01\x01");
        assert_eq!(bytes[8..], [0xa0, 1, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 9]);
        assert_eq!(bytes[4..8], [0xf4, 0x71, 0xcd, 0x4b], "{bytes:02x?}");
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        for access in [None, Some(vec![]), Some(vec![7; 300])] {
            for default in [None, Some(vec![]), Some(vec![8; 20])] {
                let before = Before {
                    mode: 0o751,
                    access: access.clone(),
                    default,
                };
                let bytes = before.to_bytes().expect("small");
                assert_eq!(Before::from_bytes(&bytes), Some(before));
            }
        }
        let bytes = sample().to_bytes().expect("small");
        for index in 0..bytes.len() {
            for bit in 0..8 {
                let mut altered = bytes.clone();
                altered[index] ^= 1 << bit;
                assert_eq!(Before::from_bytes(&altered), None, "{index}.{bit}");
            }
            assert_eq!(Before::from_bytes(&bytes[..index]), None, "{index}");
        }
        let large = Before {
            access: Some(vec![0; XATTR_BYTES_MAX]),
            ..sample()
        };
        assert_eq!(large.to_bytes(), None);
    }
}
