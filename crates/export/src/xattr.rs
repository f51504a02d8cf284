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
//! | `system.nfs4_acl`, where rich ACLs are on | see `rich` |
//!
//! A POSIX ACL of a file whose truth is a rich ACL shows what that can say in one, and cannot be
//! set: nobody would know what becomes of the rest.
//!
//! Labels of the server's own security modules (`security.selinux`, `security.ima`) are nobody
//! else's business.

use crate::cache::Pin;
use crate::change::descriptor_path;
use crate::errno::fs_error;
use crate::export::Export;
use crate::rich::{NFS4, Way, by_way};
use crate::stat::stat;
use crate::worker::Worker;
use acl::Rights;
use base::limits::{NAME_BYTES_MAX, XATTR_BYTES_MAX, XATTR_LIST_BYTES_MAX};
use base::{Attributes, FileKind, FsError, Handle, Principal, XattrMode};
use rustix::fd::AsFd;
use rustix::fs::XattrFlags;
use rustix::io::Errno;

const POSIX_DEFAULT: &[u8] = b"system.posix_acl_default";
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
        if name == NFS4 && self.is_rich() {
            let caller = worker.assume(principal)?;
            let pin = self.resolve(&caller, handle)?;
            return self.get_nfs4(principal, handle, &*pin);
        }
        check(name)?;
        let caller = worker.assume(principal)?;
        let pin = self.resolve(&caller, handle)?;
        if name == POSIX_DEFAULT
            && let Some(rich) = self.rich_file(handle, &*pin)?
        {
            return rich.default_below().ok_or(FsError::NoData);
        }
        let way = self.named_way(principal, handle, &pin, name, Rights::READ_NAMED)?;
        let path = descriptor_path(&*pin);
        by_way(&caller, way, || {
            read_growing(XATTR_BYTES_MAX, |out| {
                rustix::fs::getxattr(&*path, name, rustix::buffer::spare_capacity(out))
            })
        })
    }

    /// Who judges the use of an attribute.
    fn named_way(
        &self,
        principal: &Principal,
        handle: &Handle,
        pin: &Pin,
        name: &[u8],
        wanted: Rights,
    ) -> Result<Way, FsError> {
        match name.starts_with(b"user.") {
            true => {
                let way = self.way(principal, handle, pin, wanted)?;
                if way == Way::Past && wanted == Rights::WRITE_NAMED {
                    check_kept(principal, &stat(pin)?.attributes)?;
                }
                Ok(way)
            }
            false => Ok(Way::Kernel),
        }
    }

    /// Refuses what a rich ACL takes the place of.
    fn check_posix(&self, handle: &Handle, pin: &Pin, name: &[u8]) -> Result<(), FsError> {
        let is_posix = name == POSIX_DEFAULT || name == b"system.posix_acl_access";
        match is_posix && self.rich_file(handle, pin)?.is_some() {
            true => Err(FsError::NotSupported),
            false => Ok(()),
        }
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
        // Not in the moment in which a list leaves its room to what takes its place.
        let _turn = self.is_rich().then(|| self.rich.turn(handle));
        self.check_posix(handle, &pin, name)?;
        let way = self.named_way(principal, handle, &pin, name, Rights::WRITE_NAMED)?;
        let set = || {
            by_way(&caller, way, || {
                rustix::fs::setxattr(&*descriptor_path(&*pin), name, value, flags).map_err(fs_error)
            })
        };
        match set() {
            // A file has room for so many bytes of attributes; what is only a copy gives way.
            Err(FsError::NoSpace) if self.yield_room(&caller, pin.as_fd())? => set(),
            outcome => outcome,
        }?;
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
        // A view is not listed: who copies all attributes would make it the copy's truth.
        let rich = self.rich_file(handle, &*pin)?.map(|_| NFS4);
        Ok(names.chain(rich).map(<[u8]>::to_vec).collect())
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
        // Not in the moment in which a list leaves its room to what takes its place.
        let _turn = self.is_rich().then(|| self.rich.turn(handle));
        self.check_posix(handle, &pin, name)?;
        let way = self.named_way(principal, handle, &pin, name, Rights::WRITE_NAMED)?;
        by_way(&caller, way, || {
            rustix::fs::removexattr(&*descriptor_path(&*pin), name).map_err(fs_error)
        })?;
        self.attributes_of(handle, &*pin)
    }
}

/// A sticky directory keeps its attributes for its owner, as it does where the kernel judges.
fn check_kept(who: &Principal, directory: &Attributes) -> Result<(), FsError> {
    let is_directory = directory.kind == FileKind::Directory;
    let owner = (directory.mode, directory.uid);
    match is_directory {
        true => acl::judge_sticky(who, owner, directory.uid),
        false => Ok(()),
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
