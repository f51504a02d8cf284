//! Extended attributes: those that an export serves, judged as the kernel judges them on ext4.
//!
//! ACLs lie in the inode, because most judgements need them; all others of an inode lie in one
//! record, which has a bound, as a file system's block has.

use super::acl::Acl;
use super::judge::{self, READ, WRITE};
use super::record::{Done, Inode, Xattrs};
use super::rich::NFS4;
use super::tree::Namespace;
use super::turn::Turn;
use super::work::{Stop, Work};
use acl::Rights;
use base::limits::{NAME_BYTES_MAX, NAMESPACE_XATTRS_BYTES_MAX, XATTR_BYTES_MAX};
use base::{FileKind, FsError, Handle, Principal, XattrMode, mode};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
pub(super) const CAPABILITY: &[u8] = b"security.capability";
const USER: &[u8] = b"user.";
const TRUSTED: &[u8] = b"trusted.";

fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

fn check(name: &[u8]) -> Result<(), FsError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(FsError::Range);
    }
    let is_served =
        is_acl(name) || name == CAPABILITY || name.starts_with(USER) || name.starts_with(TRUSTED);
    match is_served {
        true => Ok(()),
        false => Err(FsError::NotSupported),
    }
}

/// Whether `who` may read or write an attribute that is no ACL.
fn permits(
    work: &Work<'_>,
    inode: &Inode,
    who: &Principal,
    name: &[u8],
    wanted: u8,
) -> Result<(), Stop> {
    let (refused, rights) = match wanted {
        WRITE => (FsError::NotPermitted, Rights::WRITE_NAMED),
        _ => (FsError::NoData, Rights::READ_NAMED),
    };
    if name.starts_with(TRUSTED) && !judge::is_root(who) {
        return Err(refused.into());
    }
    if name.starts_with(USER) {
        if !matches!(inode.kind, FileKind::File | FileKind::Directory) {
            return Err(refused.into());
        }
        let is_sticky = inode.is_directory() && inode.mode & mode::STICKY != 0;
        if is_sticky && wanted == WRITE && !judge::is_owner(inode, who) {
            return Err(FsError::NotPermitted.into());
        }
        work.judge(inode, who, rights, wanted)?;
    }
    if name == CAPABILITY && wanted == WRITE && !judge::is_root(who) {
        return Err(FsError::NotPermitted.into());
    }
    match name == USER || name == TRUSTED {
        true => Err(FsError::Invalid.into()),
        false => Ok(()),
    }
}

impl Namespace {
    /// The value of an attribute.
    ///
    /// # Errors
    /// [`FsError::NoData`] if it is not there, [`FsError::NotSupported`] for names that are not
    /// served; else as the kernel judges.
    pub fn get_xattr(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
        name: &[u8],
    ) -> Result<Vec<u8>, FsError> {
        if name == NFS4 && self.is_rich() {
            return self.look(turn, |work| work.get_nfs4(&work.find(handle)?, who));
        }
        check(name)?;
        self.look(turn, |work| {
            let inode = work.find(handle)?;
            if is_acl(name) {
                if inode.kind == FileKind::Symlink {
                    return Err(FsError::NotSupported.into());
                }
                if name == DEFAULT
                    && let Some(rich) = work.rich(&inode)?
                {
                    let below = rich.list().and_then(|list| list.default_below());
                    return Ok(below.ok_or(FsError::NoData)?.to_xattr());
                }
                let acl = if name == ACCESS {
                    &inode.access
                } else {
                    &inode.default
                };
                return Ok(acl.as_ref().ok_or(FsError::NoData)?.encode());
            }
            permits(work, &inode, who, name, READ)?;
            let xattrs = work.xattrs(&inode)?;
            let found = xattrs.binary_search_by(|(other, _)| other.as_slice().cmp(name));
            let index = found.map_err(|_| FsError::NoData)?;
            Ok(xattrs[index].1.clone())
        })
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// See [`XattrMode`]; [`FsError::TooBig`], [`FsError::NoSpace`]; else as
    /// [`Namespace::get_xattr`].
    pub fn set_xattr(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), FsError> {
        check(name)?;
        if value.len() > XATTR_BYTES_MAX {
            return Err(FsError::TooBig);
        }
        self.change(turn, |work| {
            let inode = work.find(handle)?;
            if work.done_before().is_some() {
                return Ok(());
            }
            if is_acl(name) {
                let acl = Acl::decode(value)?;
                return work.set_acl(inode, who, name, acl);
            }
            if name == CAPABILITY && !is_capability(value) {
                return Err(FsError::Invalid.into());
            }
            permits(work, &inode, who, name, WRITE)?;
            let mut xattrs = (*work.xattrs(&inode)?).clone();
            let found = xattrs.binary_search_by(|(other, _)| other.as_slice().cmp(name));
            match (found, mode) {
                (Ok(_), XattrMode::Create) => return Err(FsError::Exists.into()),
                (Err(_), XattrMode::Replace) => return Err(FsError::NoData.into()),
                (Ok(index), _) => xattrs[index].1 = value.to_vec(),
                (Err(index), _) => xattrs.insert(index, (name.to_vec(), value.to_vec())),
            }
            let bytes = xattrs
                .iter()
                .map(|(name, value)| name.len() + value.len() + 8);
            if bytes.sum::<usize>() > NAMESPACE_XATTRS_BYTES_MAX {
                return Err(FsError::NoSpace.into());
            }
            work.changed_xattrs(inode, xattrs)
        })
    }

    /// The names of the attributes.
    ///
    /// # Errors
    /// See [`Namespace`].
    pub fn list_xattrs(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
    ) -> Result<Vec<Vec<u8>>, FsError> {
        self.look(turn, |work| {
            let inode = work.find(handle)?;
            let mut names = Vec::new();
            names.extend(inode.access.is_some().then(|| ACCESS.to_vec()));
            names.extend(inode.default.is_some().then(|| DEFAULT.to_vec()));
            let xattrs = work.xattrs(&inode)?;
            let is_shown = |name: &[u8]| judge::is_root(who) || !name.starts_with(TRUSTED);
            let shown = xattrs.iter().filter(|(name, _)| is_shown(name));
            names.extend(shown.map(|(name, _)| name.clone()));
            // A view is not listed: who copies all attributes would make it the copy's truth.
            names.extend(work.is_rich(&inode).then(|| NFS4.to_vec()));
            Ok(names)
        })
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// As [`Namespace::get_xattr`].
    pub fn remove_xattr(
        &self,
        turn: &Turn,
        who: &Principal,
        handle: &Handle,
        name: &[u8],
    ) -> Result<(), FsError> {
        check(name)?;
        self.change(turn, |work| {
            let inode = work.find(handle)?;
            if work.done_before().is_some() {
                return Ok(());
            }
            if is_acl(name) {
                return work.set_acl(inode, who, name, None);
            }
            permits(work, &inode, who, name, WRITE)?;
            let mut xattrs = (*work.xattrs(&inode)?).clone();
            let found = xattrs.binary_search_by(|(other, _)| other.as_slice().cmp(name));
            xattrs.remove(found.map_err(|_| FsError::NoData)?);
            work.changed_xattrs(inode, xattrs)
        })
    }
}

/// Whether this is a file's capability, of a version that Linux takes (capabilities(7)).
fn is_capability(value: &[u8]) -> bool {
    let version = value.split_first_chunk::<4>();
    let version = version.map(|(version, _)| u32::from_le_bytes(*version) & 0xff00_0000);
    matches!(
        (version, value.len()),
        (Some(0x0200_0000), 20) | (Some(0x0300_0000), 24)
    )
}

impl Work<'_> {
    fn changed_xattrs(&mut self, mut inode: Inode, xattrs: Xattrs) -> Result<(), Stop> {
        self.set_xattrs(&mut inode, xattrs);
        inode.changed = self.now();
        self.done(Done::Changed);
        self.put(inode)
    }

    fn set_acl(
        &mut self,
        mut inode: Inode,
        who: &Principal,
        name: &[u8],
        acl: Option<Acl>,
    ) -> Result<(), Stop> {
        // What a rich ACL takes the place of cannot be set: nobody would know what becomes of the
        // rest.
        if inode.kind == FileKind::Symlink || self.is_rich(&inode) {
            return Err(FsError::NotSupported.into());
        }
        if name == DEFAULT && !inode.is_directory() {
            return match acl {
                Some(_) => Err(FsError::AccessDenied.into()),
                None => Ok(()),
            };
        }
        if !judge::is_owner(&inode, who) {
            return Err(FsError::NotPermitted.into());
        }
        if let Some(acl) = &acl {
            acl.check()?;
        }
        match (name == DEFAULT, acl) {
            (true, acl) if acl.is_none() && inode.default.is_none() => return Ok(()),
            (true, acl) => inode.default = acl.map(Box::new),
            (false, None) if inode.access.is_none() => return Ok(()),
            (false, None) => inode.access = None,
            (false, Some(acl)) => {
                let (permissions, says_all) = acl.mode();
                inode.mode = judge::mode_with_acl(&inode, who, permissions);
                // What the mode says alone is not kept twice.
                inode.access = (!says_all).then(|| Box::new(acl));
            }
        }
        inode.changed = self.now();
        self.done(Done::Changed);
        self.put(inode)
    }
}
