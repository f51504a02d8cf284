//! What a file is: kind, owner, size, times.

use serde::{Deserialize, Serialize};

/// Bits of [`Attributes::mode`] (inode(7)).
pub mod mode {
    /// Set-user-ID.
    pub const SETUID: u16 = 0o4000;
    /// Set-group-ID.
    pub const SETGID: u16 = 0o2000;
    /// Sticky.
    pub const STICKY: u16 = 0o1000;
    /// All bits that a mode can have.
    pub const ALL: u16 = 0o7777;
}

/// The kind of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
}

/// Seconds since 1970 (negative before) and nanoseconds (below 10^9).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Timestamp {
    /// Whole seconds.
    pub seconds: i64,
    /// The rest, 0 to 999,999,999.
    pub nanos: u32,
}

/// The attributes of one inode at one moment (statx(2)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Kind.
    pub kind: FileKind,
    /// Permission bits with set-id and sticky, without the kind.
    pub mode: u16,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Inode number at the server.
    pub inode: u64,
    /// Device number of a device file (as makedev(3) makes it), else 0.
    pub device: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated units of 512 bytes.
    pub blocks: u64,
    /// Preferred I/O size in bytes.
    pub block_size: u32,
    /// Last read.
    pub accessed: Timestamp,
    /// Last change of contents.
    pub modified: Timestamp,
    /// Last change of contents or attributes. Two states with equal `changed` are taken to be one.
    pub changed: Timestamp,
    /// Birth, where the file system keeps it.
    pub created: Option<Timestamp>,
    /// Whether it is protected beyond its mode (immutable or append-only, chattr(1)): whether it
    /// can be removed, only its file system can say.
    pub protected: bool,
}

/// A new value for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SetTime {
    /// The server's clock.
    Now,
    /// This.
    To(Timestamp),
}

/// The attributes that a request changes; `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttributeChange {
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncation or extension with a hole.
    pub size: Option<u64>,
    /// Last read.
    pub accessed: Option<SetTime>,
    /// Last change of contents.
    pub modified: Option<SetTime>,
}

impl AttributeChange {
    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Size and use of a file system (statvfs(3)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystemStat {
    /// Bytes in one unit of the three block counts.
    pub block_size: u32,
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
    pub name_max: u32,
}
