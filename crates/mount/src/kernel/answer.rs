//! What the file system answers, in types.

use super::abi::flags::{AttrFlags, FOpenFlags};
use super::abi::output;
use super::convert::{kind_bits, rdev_to_kernel, validity};
use super::request::{Fh, NodeId};
use base::{FileKind, Timestamp};
use rustix::fs::{major, minor};
use std::time::Duration;

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attr {
    /// `st_ino`: what applications see; need not be the node's number.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Last change of contents or attributes.
    pub ctime: Timestamp,
    /// Kind.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky.
    pub mode: u16,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file (as makedev(3) makes it), else 0.
    pub rdev: u64,
    /// Preferred I/O size in bytes. 0: the kernel's own.
    pub block_bytes: u32,
    /// Marks.
    pub flags: AttrFlags,
}

impl Attr {
    pub(crate) fn to_abi(self) -> output::AttrStruct {
        output::AttrStruct {
            ino: self.ino,
            size: self.size,
            blocks: self.blocks,
            atime: self.atime.seconds,
            mtime: self.mtime.seconds,
            ctime: self.ctime.seconds,
            atime_nanos: self.atime.nanos,
            mtime_nanos: self.mtime.nanos,
            ctime_nanos: self.ctime.nanos,
            mode: kind_bits(self.kind) | u32::from(self.mode),
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: rdev_to_kernel(self.rdev),
            block_bytes: self.block_bytes,
            flags: self.flags.bits(),
        }
    }
}

/// An inode found under a name. Each one that is handed out counts as one lookup, until forgotten.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Entry {
    /// The inode. 0 is none: see [`Replier::negative`](super::Replier::negative).
    pub node: NodeId,
    /// Tells apart two inodes that use one number one after the other.
    pub generation: u64,
    /// How long the name may be cached.
    pub entry_valid: Duration,
    /// How long the attributes may be cached.
    pub attr_valid: Duration,
    /// The attributes.
    pub attr: Attr,
}

impl Entry {
    pub(crate) fn to_abi(self) -> output::EntryOut {
        let (entry_valid, entry_valid_nanos) = validity(self.entry_valid);
        let (attr_valid, attr_valid_nanos) = validity(self.attr_valid);
        output::EntryOut {
            node: self.node.0,
            generation: self.generation,
            entry_valid,
            attr_valid,
            entry_valid_nanos,
            attr_valid_nanos,
            attr: self.attr.to_abi(),
        }
    }
}

/// An open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// What the kernel shall call it.
    pub fh: Fh,
    /// How the kernel shall treat it.
    pub flags: FOpenFlags,
    /// The backing file, with [`FOpenFlags::PASSTHROUGH`]; see
    /// [`Backing`](super::Backing).
    pub backing: Option<i32>,
}

impl Opened {
    /// An open file that the kernel treats as usual.
    #[must_use]
    pub fn new(fh: Fh, flags: FOpenFlags) -> Self {
        Self {
            fh,
            flags,
            backing: None,
        }
    }

    pub(crate) fn to_abi(self) -> output::OpenOut {
        output::OpenOut {
            handle: self.fh.0,
            open_flags: self.flags.bits(),
            backing: self.backing.unwrap_or(0),
        }
    }
}

/// Space and limits (statvfs(3)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Bytes in one unit of the three block counts.
    pub fragment_bytes: u32,
    /// Preferred I/O size in bytes.
    pub block_bytes: u32,
    /// Units in all.
    pub blocks: u64,
    /// Free units.
    pub blocks_free: u64,
    /// Free units for users without privilege.
    pub blocks_available: u64,
    /// Inodes in all.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_bytes_max: u32,
}

impl StatFs {
    pub(crate) fn to_abi(self) -> output::StatFsOut {
        output::StatFsOut {
            blocks: self.blocks,
            blocks_free: self.blocks_free,
            blocks_available: self.blocks_available,
            files: self.files,
            files_free: self.files_free,
            block_bytes: self.block_bytes,
            name_bytes_max: self.name_bytes_max,
            fragment_bytes: self.fragment_bytes,
            padding: 0,
            spare: [0; 6],
        }
    }
}

/// The basic fields of statx(2).
const STATX_BASIC_STATS: u32 = 0x07ff;
/// The time of birth.
const STATX_BTIME: u32 = 0x0800;

/// Attributes with what [`Attr`] has no room for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statx {
    /// What stat(2) knows.
    pub attr: Attr,
    /// Birth, where it is known.
    pub btime: Option<Timestamp>,
    /// `STATX_ATTR_*` that are set.
    pub attributes: u64,
    /// `STATX_ATTR_*` that are known.
    pub attributes_mask: u64,
}

impl Statx {
    pub(crate) fn to_abi(self, valid: Duration) -> output::StatxOut {
        let (attr_valid, attr_valid_nanos) = validity(valid);
        let attr = self.attr;
        let time = |time: Timestamp| output::SxTime {
            seconds: time.seconds,
            nanos: time.nanos,
            reserved: 0,
        };
        let kind = u16::try_from(kind_bits(attr.kind)).expect("the kinds have 16 bits");
        output::StatxOut {
            attr_valid,
            attr_valid_nanos,
            flags: 0,
            spare: [0; 2],
            stat: output::StatxStruct {
                mask: STATX_BASIC_STATS | self.btime.map_or(0, |_| STATX_BTIME),
                block_bytes: attr.block_bytes,
                attributes: self.attributes,
                links: attr.links,
                uid: attr.uid,
                gid: attr.gid,
                mode: kind | attr.mode,
                spare0: 0,
                ino: attr.ino,
                size: attr.size,
                blocks: attr.blocks,
                attributes_mask: self.attributes_mask,
                atime: time(attr.atime),
                btime: time(self.btime.unwrap_or_default()),
                ctime: time(attr.ctime),
                mtime: time(attr.mtime),
                rdev_major: major(attr.rdev),
                rdev_minor: minor(attr.rdev),
                ..Default::default()
            },
        }
    }
}
