//! Which directory a tree is, so that another one at its path is noticed.
//!
//! # What is compared
//!
//! Device numbers and numbers of mounts change with every start of a machine. What stays is
//!
//! * the kind of the file system, as statfs(2) numbers it;
//! * its UUID: from the kernel where it says one (Linux 6.9), of XFS from XFS itself;
//! * its `f_fsid`, where that is made from the UUID (ext2 to ext4, Btrfs) and not from a device;
//! * the kernel's handle of the top directory: the inode's number and generation. Handles of
//!   clients rest on it, too.
//!
//! What one of the two sides does not know is not compared. A copy of a file system block by block
//! is the same one.
//!
//! A *file system in memory* (tmpfs) is empty and has another UUID after each mount. Another one in
//! its place is therefore taken for it; within one and the same, the directory must be the same.

use crate::sys;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::fmt::{self, Write};
use std::path::PathBuf;
use std::str::FromStr;

const EXT: u64 = 0xef53;
const BTRFS: u64 = 0x9123_683e;
const XFS: u64 = 0x5846_5342;
const TMPFS: u64 = 0x0102_1994;
const RAMFS: u64 = 0x8584_58f6;

const UUID_BYTES: usize = 16;

/// See the module's head. Its text is for state files:
/// `type=ef53 uuid=0f7c... fsid=9a5d... top=1:02000000...`, all of it hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootIdentity {
    kind: u64,
    uuid: Option<[u8; UUID_BYTES]>,
    fsid: Option<u64>,
    handle_kind: u32,
    handle: Vec<u8>,
}

/// How the directory at a path differs from the one that is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    /// It lies in another file system.
    #[error("another file system is there")]
    FileSystem,
    /// It is another one of the same file system.
    #[error("another directory is there")]
    Directory,
    /// The path, which was a real one, leads over a symbolic link.
    #[error("a symbolic link leads to {}", .0.display())]
    Link(PathBuf),
}

impl RootIdentity {
    /// That of an open directory with this handle.
    pub(crate) fn of(top: BorrowedFd<'_>, handle: &sys::KernelHandle) -> Result<Self, Errno> {
        let kind = u64::try_from(rustix::fs::fstatfs(top)?.f_type);
        let kind = kind.map_err(|_| Errno::OVERFLOW)?;
        let uuid = match (sys::file_system_uuid(top), kind) {
            (None, XFS) => sys::xfs_uuid(top),
            (uuid, _) => uuid,
        };
        let fsid = match kind {
            EXT | BTRFS | TMPFS => Some(rustix::fs::fstatvfs(top)?.f_fsid),
            _ => None,
        };
        Ok(Self {
            kind,
            uuid: uuid.filter(|uuid| uuid.iter().any(|byte| *byte != 0)),
            fsid: fsid.filter(|id| *id != 0),
            handle_kind: handle.kind().cast_unsigned(),
            handle: handle.as_bytes().to_vec(),
        })
    }

    fn is_in_memory(&self) -> bool {
        matches!(self.kind, TMPFS | RAMFS)
    }

    /// Whether no other directory of the machine is taken for it: then any path may lead there.
    pub(crate) fn is_certain(&self) -> bool {
        !self.is_in_memory() && (self.uuid.is_some() || self.fsid.is_some())
    }

    /// Whether `found` lies in the same file system; `None` if that cannot be said.
    fn same_file_system(&self, found: &Self) -> Option<bool> {
        let uuid = self.uuid.zip(found.uuid).map(|(a, b)| a == b);
        uuid.or_else(|| self.fsid.zip(found.fsid).map(|(a, b)| a == b))
    }

    /// How `found` differs from what is known, if it is another directory.
    pub(crate) fn difference(&self, found: &Self) -> Option<Difference> {
        let same = match self.kind == found.kind {
            true => self.same_file_system(found),
            false => return Some(Difference::FileSystem),
        };
        if self.is_in_memory() && same != Some(true) {
            return None;
        }
        if same == Some(false) {
            return Some(Difference::FileSystem);
        }
        let is_other = (self.handle_kind, &self.handle) != (found.handle_kind, &found.handle);
        is_other.then_some(Difference::Directory)
    }
}

impl fmt::Display for RootIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "type={:x}", self.kind)?;
        if let Some(uuid) = &self.uuid {
            write!(f, " uuid={}", hex(uuid))?;
        }
        if let Some(fsid) = self.fsid {
            write!(f, " fsid={fsid:x}")?;
        }
        write!(f, " top={:x}:{}", self.handle_kind, hex(&self.handle))
    }
}

/// The text is none of an identity.
#[derive(Debug, thiserror::Error)]
#[error("this is no identity of a directory")]
pub struct NoIdentity;

impl FromStr for RootIdentity {
    type Err = NoIdentity;

    fn from_str(text: &str) -> Result<Self, NoIdentity> {
        let number = |text: &str| u64::from_str_radix(text, 16).map_err(|_| NoIdentity);
        let (mut kind, mut uuid, mut fsid, mut top) = (None, None, None, None);
        for word in text.split(' ') {
            let (key, value) = word.split_once('=').ok_or(NoIdentity)?;
            match key {
                "type" => kind = Some(number(value)?),
                "fsid" => fsid = Some(number(value)?),
                "uuid" => {
                    let bytes = unhex(value).and_then(|bytes| bytes.try_into().ok());
                    uuid = Some(bytes.ok_or(NoIdentity)?);
                }
                "top" => top = value.split_once(':'),
                // A newer program's.
                _ => {}
            }
        }
        let (handle_kind, handle) = top.ok_or(NoIdentity)?;
        Ok(Self {
            kind: kind.ok_or(NoIdentity)?,
            uuid,
            fsid,
            handle_kind: u32::from_str_radix(handle_kind, 16).map_err(|_| NoIdentity)?,
            handle: unhex(handle).ok_or(NoIdentity)?,
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()
    };
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(kind: u64, uuid: Option<u8>, fsid: Option<u64>, inode: u8) -> RootIdentity {
        RootIdentity {
            kind,
            uuid: uuid.map(|byte| [byte; UUID_BYTES]),
            fsid,
            handle_kind: 1,
            handle: vec![inode, 0, 0, 0, 9, 9, 9, 9],
        }
    }

    #[test]
    fn another_file_system_or_directory_is_another_root() {
        let root = known(EXT, Some(1), Some(7), 2);
        let of = |found| root.difference(&found);
        assert_eq!(of(root.clone()), None);
        let other = Some(Difference::FileSystem);
        assert_eq!(of(known(EXT, Some(2), Some(7), 2)), other);
        assert_eq!(of(known(XFS, Some(1), None, 2)), other);
        assert_eq!(of(known(EXT, None, Some(8), 2)), other);
        let directory = Some(Difference::Directory);
        assert_eq!(of(known(EXT, Some(1), Some(7), 3)), directory);
        // An older kernel says less.
        assert_eq!(of(known(EXT, None, Some(7), 2)), None);
        assert_eq!(of(known(EXT, None, None, 2)), None);
        assert_eq!(of(known(EXT, None, None, 3)), directory);
    }

    #[test]
    fn a_file_system_in_memory_is_the_same_after_it_was_mounted_anew() {
        let root = known(TMPFS, Some(1), Some(7), 2);
        let of = |found| root.difference(&found);
        assert_eq!(of(known(TMPFS, Some(2), Some(8), 5)), None);
        let directory = Some(Difference::Directory);
        assert_eq!(of(known(TMPFS, Some(1), Some(7), 5)), directory);
        let other = Some(Difference::FileSystem);
        assert_eq!(of(known(EXT, Some(1), Some(7), 2)), other);
        assert!(!root.is_certain() && known(EXT, Some(1), None, 2).is_certain());
        assert!(!known(XFS, None, None, 2).is_certain());
    }

    #[test]
    fn an_identity_comes_back_from_its_text() {
        for (uuid, fsid) in [(Some(0xa5), Some(u64::MAX)), (Some(3), None), (None, None)] {
            let root = known(EXT, uuid, fsid, 2);
            let text = root.to_string();
            assert_eq!(text.parse::<RootIdentity>().expect("its own"), root);
            let newer = format!("{text} later=1");
            assert_eq!(newer.parse::<RootIdentity>().expect("more"), root);
        }
        let none = [
            "",
            "type=1",
            "type=1 top=1",
            "top=1:02",
            "type=1 top=1:0",
            "x",
        ];
        let short = [
            "type=1 uuid=00 top=1:02",
            "type=-1 top=1:02",
            "type=1 top=1:+2",
        ];
        for text in none.iter().chain(&short) {
            assert!(text.parse::<RootIdentity>().is_err(), "{text}");
        }
    }
}
