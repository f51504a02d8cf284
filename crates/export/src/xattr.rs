//! Extended attributes.
//!
//! Served are the names whose meaning is the same on both sides of a line and for which the kernel
//! judges the caller; all others answer as a file system that does not have them:
//!
//! | name | who |
//! |---|---|
//! | `user.*` | as the file's permissions say |
//! | `system.posix_acl_access`, `system.posix_acl_default` | the owner changes, everybody reads |
//! | `security.capability` | root changes, everybody reads |
//! | `trusted.*` | root only |
//!
//! Labels of the server's own security modules (`security.selinux`, `security.ima`) are nobody
//! else's business.

use crate::change::descriptor_path;
use crate::errno::fs_error;
use crate::export::Export;
use crate::worker::Worker;
use base::limits::{NAME_BYTES_MAX, XATTR_BYTES_MAX, XATTR_LIST_BYTES_MAX};
use base::{Attributes, FsError, Handle, Principal, XattrMode};
use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// Room for most values on the first try: an ACL of 500 entries.
const VALUE_BYTES_USUAL: usize = 4096;

fn is_served(name: &[u8]) -> bool {
    match name {
        b"system.posix_acl_access" | b"system.posix_acl_default" | b"security.capability" => true,
        _ => name.starts_with(b"user.") || name.starts_with(b"trusted."),
    }
}

fn check(name: &[u8]) -> Result<(), FsError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(FsError::Range);
    }
    if is_served(name) {
        Ok(())
    } else {
        Err(FsError::NotSupported)
    }
}

impl Export {
    /// The value of an attribute.
    ///
    /// # Errors
    /// [`FsError::NoData`] if it is not there, [`FsError::NotSupported`] for names that are not
    /// served; else the kernel's.
    pub fn get_xattr(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
        name: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        check(name)?;
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        let path = descriptor_path(&*pin);
        read_growing(XATTR_BYTES_MAX, |out| {
            rustix::fs::getxattr(&*path, name, rustix::buffer::spare_capacity(out))
        })
    }

    /// Sets an attribute; returns the inode's attributes afterwards.
    ///
    /// # Errors
    /// See [`XattrMode`]; [`FsError::TooBig`]; else as [`Export::get_xattr`].
    pub fn set_xattr(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<Attributes, FsError> {
        check(name)?;
        if value.len() > XATTR_BYTES_MAX {
            return Err(FsError::TooBig);
        }
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        let flags = match mode {
            XattrMode::Set => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        rustix::fs::setxattr(&*descriptor_path(&*pin), name, value, flags).map_err(fs_error)?;
        self.attributes_of(handle, &*pin)
    }

    /// The names of the attributes that are served.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] if the file system has none; else the kernel's.
    pub fn list_xattrs(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
    ) -> Result<Vec<Vec<u8>>, FsError> {
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        let path = descriptor_path(&*pin);
        let list = read_growing(XATTR_LIST_BYTES_MAX, |out| {
            rustix::fs::listxattr(&*path, rustix::buffer::spare_capacity(out))
        })?;
        let names = list.split(|byte| *byte == 0).filter(|name| is_served(name));
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    /// Removes an attribute; returns the inode's attributes afterwards.
    ///
    /// # Errors
    /// As [`Export::get_xattr`].
    pub fn remove_xattr(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
        name: &[u8],
    ) -> Result<Attributes, FsError> {
        check(name)?;
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        rustix::fs::removexattr(&*descriptor_path(&*pin), name).map_err(fs_error)?;
        self.attributes_of(handle, &*pin)
    }
}

/// Calls with the usual room first, and with all that Linux allows if that was not enough.
fn read_growing<T>(
    bytes_max: usize,
    call: impl Fn(&mut Vec<u8>) -> Result<T, Errno>,
) -> Result<Vec<u8>, FsError> {
    let mut out = Vec::with_capacity(VALUE_BYTES_USUAL);
    match call(&mut out) {
        Err(Errno::RANGE) => {
            out.reserve_exact(bytes_max);
            call(&mut out).map_err(fs_error)?;
        }
        result => drop(result.map_err(fs_error)?),
    }
    out.shrink_to_fit();
    Ok(out)
}
