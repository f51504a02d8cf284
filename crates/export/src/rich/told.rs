//! What the file system is told of a file whose truth is a rich ACL: the list, in an attribute, and
//! what mode and POSIX ACL can say of it.
//!
//! Programs of this machine go by mode and POSIX ACL. These allow nobody more than the list does,
//! nor, for a moment while they change, more than before and afterwards.

use super::edit::refused;
use super::view::{ACCESS, DEFAULT};
use super::{STORED, WRITING, target_of};
use crate::change::descriptor_path;
use crate::errno::fs_error;
use crate::export::Export;
use crate::stat::stat;
use crate::worker::{Assumed, Worker};
use acl::{RichAcl, Stored};
use base::{Attributes, FileKind, FsError, Handle, Principal};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{CWD, Mode, XattrFlags};
use rustix::io::Errno;
use std::ffi::CStr;

impl Export {
    /// Makes a list the truth of a file; see the order of writing in [`super`].
    pub(super) fn write_truth(
        &self,
        caller: &Assumed<'_>,
        fd: BorrowedFd<'_>,
        attributes: &Attributes,
        list: &RichAcl,
    ) -> Result<(), FsError> {
        let path = descriptor_path(fd);
        caller.with(WRITING, || {
            write(&path, &Stored::unsettled(list.clone()))?;
            // The list decides all the same, and whoever reads it has this done again.
            if let Err(error) = settle(&path, fd, attributes, list) {
                tracing::warn!(%error, "mode and POSIX ACL do not follow a rich ACL yet");
            }
            Ok(())
        })?
    }

    /// Tells the file system what it was to be told when the machine, or the telling, stopped half
    /// way; whether there was anything left to say.
    pub(super) fn settle_truth(&self, worker: &Worker, handle: &Handle) -> Result<bool, FsError> {
        let pin = self.resolve(&worker.assume(&Principal::root())?, handle)?;
        let fd = pin.as_fd();
        let _turn = self.rich.turn(handle);
        let attributes = stat(fd)?.attributes;
        let stored = self.read_own(fd, STORED)?;
        let stored = stored.and_then(|bytes| Stored::from_bytes(&bytes).ok());
        let unsettled = stored.filter(|stored| stored.is_unsettled());
        let Some(list) = unsettled.map(Stored::into_acl) else {
            return Ok(false);
        };
        // As in every edit, quota and reserved blocks are those of the file's owner.
        let owner = Principal::alone(attributes.uid, attributes.gid);
        let caller = worker.assume(&owner)?;
        let path = descriptor_path(fd);
        caller.with(WRITING, || settle(&path, fd, &attributes, &list))??;
        Ok(true)
    }

    /// Makes a list decide alone: the file system is told that nobody may do anything, until it is
    /// told more.
    pub(super) fn tell_nobody(
        &self,
        caller: &Assumed<'_>,
        fd: BorrowedFd<'_>,
        attributes: &Attributes,
        list: &RichAcl,
    ) -> Result<(), FsError> {
        let path = descriptor_path(fd);
        caller.with(WRITING, || {
            write(&path, &Stored::unsettled(list.clone()))?;
            chmod(&path, attributes.mode & !0o777)
        })?
    }
}

/// The second half of [`Export::write_truth`].
fn settle(
    path: &CStr,
    fd: BorrowedFd<'_>,
    attributes: &Attributes,
    list: &RichAcl,
) -> Result<(), FsError> {
    tell(path, attributes, Some(list))?;
    let mode = stat(fd)?.attributes.mode;
    write(path, &Stored::truth(list.clone(), mode))
}

/// Tells the file system what it may know of a list, and of what a directory's heirs have by it. Of
/// one that is too long for a POSIX ACL, or for the file system, it learns what its owner has, or
/// nothing.
pub(super) fn tell(
    path: &CStr,
    attributes: &Attributes,
    list: Option<&RichAcl>,
) -> Result<(), FsError> {
    let target = target_of(attributes);
    let below = list.and_then(|list| list.posix_below(&target).ok());
    let special = attributes.mode & !0o777;
    if attributes.kind == FileKind::Directory {
        match list.and_then(|list| list.default_told()) {
            Some(default) => {
                set(path, DEFAULT, &default.to_xattr()).or_else(|_| remove(path, DEFAULT))?;
            }
            None => remove(path, DEFAULT)?,
        }
    }
    let Some(below) = below else {
        return tell_mode(path, attributes, special);
    };
    let Some(access) = &below.access else {
        return tell_mode(path, attributes, special | below.mode);
    };
    let told = set(path, ACCESS, &access.to_xattr());
    told.or_else(|_| tell_mode(path, attributes, special | below.alone()))
}

/// Tells the file system that a new inode has these permission bits and no ACL.
pub(super) fn tell_alone(
    fd: BorrowedFd<'_>,
    attributes: &Attributes,
    mode: u16,
) -> Result<(), FsError> {
    let path = descriptor_path(fd);
    if attributes.kind == FileKind::Directory {
        remove(&path, DEFAULT)?;
    }
    tell_mode(&path, attributes, attributes.mode & !0o777 | mode)
}

/// A mode, and no ACL. In between nobody has what he has neither before nor afterwards: an ACL's
/// mask is not what the group has when the ACL goes, and where the mask is empty the kernel does
/// not look at the ACL at all.
pub(super) fn tell_mode(path: &CStr, attributes: &Attributes, mode: u16) -> Result<(), FsError> {
    if has_access(path) {
        chmod(path, mode & (attributes.mode | !0o777) & !0o077)?;
        remove(path, ACCESS)?;
    }
    chmod(path, mode)
}

/// Whether a file has a POSIX ACL; where that cannot be said, it is as if.
pub(super) fn has_access(path: &CStr) -> bool {
    let asked = rustix::fs::getxattr(path, ACCESS, &mut [0; 0]);
    !matches!(asked, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

/// Sets permission bits. Of set-user-ID, set-group-ID and sticky those stay that are wanted and
/// are still there: a write in between has taken them away.
fn chmod(path: &CStr, mode: u16) -> Result<(), FsError> {
    let now = rustix::fs::stat(path).map_err(fs_error)?.st_mode;
    let mode = Mode::from_raw_mode(u32::from(mode) & (now | 0o777));
    rustix::fs::chmodat(CWD, path, mode, rustix::fs::AtFlags::empty()).map_err(fs_error)
}

pub(super) fn write(path: &CStr, stored: &Stored) -> Result<(), FsError> {
    let bytes = stored.to_bytes().map_err(|error| refused(&error))?;
    set(path, STORED, &bytes)
}

pub(super) fn set(path: &CStr, name: &str, value: &[u8]) -> Result<(), FsError> {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).map_err(fs_error)
}

/// Removes an attribute that need not be there.
pub(super) fn remove(path: &CStr, name: &str) -> Result<(), FsError> {
    match rustix::fs::removexattr(path, name) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(fs_error(errno)),
    }
}
