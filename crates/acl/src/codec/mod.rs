//! The bytes of rich ACLs, drawn in `docs/formats/acl.md`.
//!
//! | module | for whom |
//! |---|---|
//! | `nfs4` | `system.nfs4_acl`, as nfs4_getfacl(1) and Samba read it |
//! | `descriptor` | Windows: a self-relative security descriptor |
//! | `stored` | ourselves: what lies beside a file |
//! | `before` | ourselves: mode and POSIX ACLs from before, to go back to |
//!
//! Every decoder takes any bytes at all. It looks at no more than an extended attribute can hold,
//! takes no memory that the bytes do not stand for, and refuses what it does not understand: an
//! entry that was left out could have been the one that denies.

mod before;
mod descriptor;
mod nfs4;
mod stored;

pub(crate) use nfs4::{name_of, who_named};

pub use before::Before;
pub use descriptor::Descriptor;
pub use stored::{Source, Stored};

use crate::AclError;
use base::limits::XATTR_BYTES_MAX;

const BYTES: AclError = AclError::TooLarge {
    max: XATTR_BYTES_MAX,
    what: "bytes",
};

/// No more than an extended attribute holds.
fn bounded(bytes: &[u8]) -> Result<&[u8], AclError> {
    match bytes.len() > XATTR_BYTES_MAX {
        true => Err(BYTES),
        false => Ok(bytes),
    }
}

/// What is left to read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], AclError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(AclError::Truncated)?;
        self.0 = rest;
        Ok(*field)
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], AclError> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(AclError::Truncated)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn u8(&mut self) -> Result<u8, AclError> {
        self.take().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, AclError> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, AclError> {
        self.take().map(u32::from_le_bytes)
    }
}
