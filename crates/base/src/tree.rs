//! Words of a tree of files that is served by handle, whatever it lies in: a directory of a file
//! system, or the namespace of a parallel volume.

use crate::{Attributes, FileKind, Handle, Name};

/// An inode: its handle and what it was like when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its handle.
    pub handle: Handle,
    /// Its attributes.
    pub attributes: Attributes,
}

/// What a caller wants to be allowed, as in access(2). All false asks only whether the inode is
/// there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// To read a file or list a directory.
    pub read: bool,
    /// To write a file or change a directory.
    pub write: bool,
    /// To run a file or search a directory.
    pub execute: bool,
}

/// What an open file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    ReadWrite,
    /// Reading on behalf of a kernel that runs the file as a program: judged by the right to
    /// execute, as locally, where a program without read permission can be run but not copied. The
    /// client can copy it nevertheless, so offer this only to clients that act for all users.
    Execute,
}

/// What a rename does about a name that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// The inode there loses the name.
    Replace,
    /// The rename fails with [`FsError::Exists`](crate::FsError::Exists).
    NoReplace,
    /// The two change places.
    Exchange,
}

/// The inodes that a rename concerned, as they are afterwards; `None` where that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// What has the new name now.
    pub moved: Option<Node>,
    /// What lost the new name, or with [`RenameMode::Exchange`] has the old one now.
    pub replaced: Option<Node>,
}

/// What setting an extended attribute does about one that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Creates or replaces.
    Set,
    /// Fails with [`FsError::Exists`](crate::FsError::Exists) if it is there.
    Create,
    /// Fails with [`FsError::NoData`](crate::FsError::NoData) if it is not there.
    Replace,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name.
    pub name: Name,
    /// Where the listing goes on behind this entry.
    pub cookie: u64,
    /// Inode number, as the directory says.
    pub inode: u64,
    /// Kind, where the directory says it.
    pub kind: Option<FileKind>,
    /// Handle and attributes, if asked for and to be had: not for mount points, and not for callers
    /// who may list but not search the directory.
    pub node: Option<Node>,
}

/// A part of a directory's listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryPage {
    /// Entries in the order of their cookies, without `.` and `..`.
    pub entries: Vec<DirectoryEntry>,
    /// Whether there are no more.
    pub end: bool,
}
