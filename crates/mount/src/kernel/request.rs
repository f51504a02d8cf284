//! What the kernel asks, in types.
//!
//! One [`Operation`] variant per kind of request, with what it carries: flags become types, "this
//! field counts" bits become `Option`s, pairs of operations that differ only in age (RENAME and
//! RENAME2, the two COPY_FILE_RANGE) become one. Requests that nobody answers (forgets, interrupts)
//! and those that the session answers itself (the start, the end) are no operations: see
//! [`Message`](super::parse::Message).

use base::{FileKind, LockOwner, SetTime, Timestamp};
use bytes::Bytes;
use rustix::fs::{Access, FallocateFlags, OFlags, RenameFlags, StatxFlags, XattrFlags};
use std::fmt;

/// An inode as kernel and file system call it between them. The file system chooses the number;
/// 1 is the root. It need not be the `st_ino` that applications see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount.
    pub const ROOT: Self = Self(1);
}

/// The number of one request on one mount. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unique(pub u64);

/// An open file or directory as kernel and file system call it between them; chosen by the file
/// system when it answers the open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fh(pub u64);

macro_rules! number {
    ($($name:ident)*) => {
        $(impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        })*
    };
}
number! { NodeId Unique Fh }

/// One request that wants an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Its number, by which an interrupt names it.
    pub unique: Unique,
    /// The kernel has sent it before, to a process that ended without answering.
    pub resent: bool,
    /// The inode it is about; the directory where the operation names an entry.
    pub node: NodeId,
    /// The caller's file system uid.
    pub uid: u32,
    /// The caller's file system gid.
    pub gid: u32,
    /// The calling thread, 0 if there is none (write-back) or it is not visible from here.
    pub pid: u32,
    /// A supplementary group of the caller: the one that the parent directory has, if any. Only
    /// with [`CREATE_SUPP_GROUP`](super::InitFlags::CREATE_SUPP_GROUP), only at creation.
    pub groups: Vec<u32>,
    /// Labels for what is created. Only with
    /// [`SECURITY_CTX`](super::InitFlags::SECURITY_CTX).
    pub security: Vec<SecurityLabel>,
    /// What is asked.
    pub operation: Operation,
}

/// A label that a security module gives to what is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityLabel {
    /// The attribute's name, such as `security.selinux`.
    pub name: Bytes,
    /// Its value.
    pub value: Bytes,
}

/// What is asked. The inode is in [`Request::node`].
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Find an entry of a directory. Answer: entry or negative entry.
    Lookup {
        /// The entry. `.` and `..` come only with
        /// [`EXPORT_SUPPORT`](super::InitFlags::EXPORT_SUPPORT).
        name: Bytes,
    },
    /// Attributes. Answer: attr.
    GetAttr {
        /// The open file, if the caller has one.
        fh: Option<Fh>,
    },
    /// Change attributes. Answer: attr.
    SetAttr(SetAttr),
    /// Target of a symbolic link. Answer: target.
    ReadLink,
    /// Make a symbolic link. Answer: entry.
    Symlink {
        /// The new entry.
        name: Bytes,
        /// What it says.
        target: Bytes,
    },
    /// Make a file, fifo, socket or device. Answer: entry.
    MkNod {
        /// The new entry.
        name: Bytes,
        /// Its kind.
        kind: FileKind,
        /// Permission bits, the umask applied already unless
        /// [`DONT_MASK`](super::InitFlags::DONT_MASK) is in force.
        mode: u16,
        /// Device number as makedev(3) makes it.
        rdev: u64,
        /// The caller's umask.
        umask: u16,
    },
    /// Make a directory. Answer: entry.
    MkDir {
        /// The new entry.
        name: Bytes,
        /// As for `MkNod`.
        mode: u16,
        /// The caller's umask.
        umask: u16,
    },
    /// Remove an entry that is not a directory. Answer: done.
    Unlink {
        /// The entry.
        name: Bytes,
    },
    /// Remove an empty directory. Answer: done.
    RmDir {
        /// The entry.
        name: Bytes,
    },
    /// Move an entry. Answer: done.
    Rename {
        /// The entry.
        name: Bytes,
        /// The directory where it goes.
        new_parent: NodeId,
        /// Its name there.
        new_name: Bytes,
        /// `NOREPLACE`, `EXCHANGE`, `WHITEOUT`.
        flags: RenameFlags,
    },
    /// Make [`Request::node`], a directory, name `target` too. Answer: entry.
    Link {
        /// The inode that gets one more name.
        target: NodeId,
        /// The new entry.
        name: Bytes,
    },
    /// Open a file. Answer: opened.
    Open {
        /// As of open(2).
        flags: OFlags,
        /// `O_TRUNC` is set and the set-id bits must go.
        kill_suidgid: bool,
    },
    /// Read from a file. Answer: data, less than asked for only at the end (or with direct I/O).
    Read(Read),
    /// Write to a file. Answer: written.
    Write(Write),
    /// Space and limits. Answer: statfs.
    StatFs,
    /// The last descriptor of an open is gone. Answer: done; nobody waits for it.
    Release(Release),
    /// Make a file durable. Answer: done.
    Fsync {
        /// The open file.
        fh: Fh,
        /// fdatasync(2).
        data_only: bool,
    },
    /// Set an extended attribute. Answer: done.
    SetXattr {
        /// The attribute, with its prefix.
        name: Bytes,
        /// Its value.
        value: Bytes,
        /// `CREATE`, `REPLACE`.
        flags: XattrFlags,
        /// This is an access ACL and the set-group-id bit must go.
        acl_kill_sgid: bool,
    },
    /// Read an extended attribute. Answer: xattr.
    GetXattr {
        /// The attribute, with its prefix.
        name: Bytes,
        /// Room for the value; 0 asks for its size.
        size: u32,
    },
    /// List the names of extended attributes, each ended by NUL. Answer: xattr.
    ListXattr {
        /// Room for the list; 0 asks for its size.
        size: u32,
    },
    /// Remove an extended attribute. Answer: done.
    RemoveXattr {
        /// The attribute, with its prefix.
        name: Bytes,
    },
    /// A descriptor of an open file is closed: the moment to report errors of earlier writes and to
    /// drop the closing process's fcntl locks. Answer: done.
    Flush {
        /// The open file.
        fh: Fh,
        /// Whose fcntl locks end.
        lock_owner: LockOwner,
    },
    /// Open a directory. Answer: opened.
    OpenDir {
        /// As of open(2).
        flags: OFlags,
    },
    /// List a directory. Answer: directory.
    ReadDir(ReadDir),
    /// List a directory with attributes. Answer: directory.
    ReadDirPlus(ReadDir),
    /// The last descriptor of an open directory is gone. Answer: done; nobody waits for it.
    ReleaseDir {
        /// The open directory.
        fh: Fh,
        /// As of its open.
        flags: OFlags,
    },
    /// Make a directory durable. Answer: done.
    FsyncDir {
        /// The open directory.
        fh: Fh,
        /// fdatasync(2).
        data_only: bool,
    },
    /// Which lock is in the way of this one? Answer: lock.
    GetLk(LockRequest),
    /// Set or drop a lock. Answer: done, or EAGAIN when it is held and `wait` is not set.
    SetLk {
        /// The lock.
        lock: LockRequest,
        /// Wait until it can be had or the request is interrupted (answer EINTR then).
        wait: bool,
    },
    /// access(2), asked only without the mount option `default_permissions`. Answer: done.
    Access {
        /// What the caller wants to do.
        mask: Access,
    },
    /// Make a file and open it; open it if it exists and `O_EXCL` is not set. Answer: created.
    Create {
        /// The entry.
        name: Bytes,
        /// As for `MkNod`.
        mode: u16,
        /// The caller's umask.
        umask: u16,
        /// As of open(2).
        flags: OFlags,
        /// `O_TRUNC` is set and the set-id bits must go.
        kill_suidgid: bool,
    },
    /// Make a file without a name (`O_TMPFILE`) and open it. Answer: created.
    TmpFile {
        /// As for `MkNod`.
        mode: u16,
        /// The caller's umask.
        umask: u16,
        /// As of open(2).
        flags: OFlags,
    },
    /// Place of a block on the device below. Answer: block.
    BMap {
        /// The block in the file.
        block: u64,
        /// The size of a block.
        block_bytes: u32,
    },
    /// ioctl(2) whose number says how much data goes in and out. Answer: ioctl.
    Ioctl(Ioctl),
    /// poll(2). Answer: poll, or ENOSYS once and for all.
    Poll {
        /// The open file.
        fh: Fh,
        /// What to name when it becomes ready.
        poll_handle: PollHandle,
        /// Tell by [`Notifier::poll`](super::Notifier::poll) when it becomes ready.
        notify: bool,
        /// The events of interest (`POLL*`).
        events: u32,
    },
    /// fallocate(2). Answer: done.
    Fallocate {
        /// The open file.
        fh: Fh,
        /// Where.
        offset: u64,
        /// How much.
        length: u64,
        /// `KEEP_SIZE`, `PUNCH_HOLE`, `ZERO_RANGE`, ...
        mode: FallocateFlags,
    },
    /// The next data or hole. Answer: offset, or ENXIO.
    Lseek {
        /// The open file.
        fh: Fh,
        /// From where.
        offset: u64,
        /// Which of the two.
        whence: Whence,
    },
    /// copy_file_range(2) from [`Request::node`]. Answer: copied.
    CopyFileRange(CopyFileRange),
    /// syncfs(2). Answer: done.
    SyncFs,
    /// statx(2) with more than [`Operation::GetAttr`] can say. Answer: statx, or ENOSYS once and
    /// for all.
    Statx {
        /// The open file, if the caller has one.
        fh: Option<Fh>,
        /// `AT_STATX_*`.
        sync: u32,
        /// The fields of interest.
        mask: StatxFlags,
    },
}

/// Changes of attributes; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SetAttr {
    /// The open file, if the caller has one.
    pub fh: Option<Fh>,
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of contents.
    pub mtime: Option<SetTime>,
    /// Last change of contents or attributes; only with write-back caching.
    pub ctime: Option<Timestamp>,
    /// Who changes the size, for mandatory locks.
    pub lock_owner: Option<LockOwner>,
    /// The set-id bits must go with this change of size or owner. Only with
    /// [`HANDLE_KILLPRIV_V2`](super::InitFlags::HANDLE_KILLPRIV_V2).
    pub kill_suidgid: bool,
}

/// A read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Read {
    /// The open file.
    pub fh: Fh,
    /// Where.
    pub offset: u64,
    /// How much.
    pub size: u32,
    /// Who reads, for mandatory locks.
    pub lock_owner: Option<LockOwner>,
    /// As of open(2), as they are now.
    pub flags: OFlags,
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The open file; any open file of the inode if `from_cache`.
    pub fh: Fh,
    /// Where.
    pub offset: u64,
    /// What. Large data lies in the buffer that the device was read into: holding a part of it
    /// holds the whole, at most four times as much.
    pub data: Bytes,
    /// Write-back of cached pages, not an application's call: uid, gid and pid say nothing.
    pub from_cache: bool,
    /// The set-id bits must go.
    pub kill_suidgid: bool,
    /// Who writes, for mandatory locks.
    pub lock_owner: Option<LockOwner>,
    /// As of open(2), as they are now.
    pub flags: OFlags,
}

/// The end of an open file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Release {
    /// The open file.
    pub fh: Fh,
    /// As of its open.
    pub flags: OFlags,
    /// Whose flock lock ends.
    pub lock_owner: LockOwner,
    /// Flush first.
    pub flush: bool,
    /// The flock lock of `lock_owner` ends.
    pub flock_unlock: bool,
}

/// A page of a directory's listing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadDir {
    /// The open directory.
    pub fh: Fh,
    /// 0, or the offset that came with the last entry seen.
    pub offset: u64,
    /// Room for entries, in bytes.
    pub size: u32,
}

/// What a lock is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None: drop what is held.
    Unlock,
}

/// Which of the two kinds of locks that know nothing of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockFamily {
    /// fcntl(2): of a process or, as OFD lock, of an open file description; on a range.
    Posix,
    /// flock(2): of an open file description; on the whole file.
    Flock,
}

/// A lock on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// What it is good for.
    pub kind: LockKind,
    /// First byte.
    pub start: u64,
    /// Last byte; [`Lock::END`] for all that follow.
    pub end: u64,
    /// The process that holds it; 0 if it is not on this machine.
    pub pid: u32,
}

impl Lock {
    /// The last byte that a file can have.
    pub const END: u64 = i64::MAX.unsigned_abs();
}

/// A lock that someone wants, or wants to know about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LockRequest {
    /// The open file.
    pub fh: Fh,
    /// Who.
    pub owner: LockOwner,
    /// Which kind.
    pub family: LockFamily,
    /// What.
    pub lock: Lock,
}

/// An ioctl. The kernel has copied the caller's data in and will copy the answer out.
#[derive(Clone, Debug, PartialEq)]
pub struct Ioctl {
    /// The open file or directory.
    pub fh: Fh,
    /// The number.
    pub command: u32,
    /// The third argument as it was given, an address for most numbers.
    pub argument: u64,
    /// What the caller's memory holds there.
    pub input: Bytes,
    /// Room for an answer there.
    pub output_size: u32,
    /// `FUSE_IOCTL_*`: compatibility modes, and whether it is a directory.
    pub flags: u32,
}

/// What a waiting poll(2) is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PollHandle(pub u64);

/// What lseek(2) looks for. The kernel answers the other kinds itself, except that it asks for the
/// end when it does not trust the size it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The end of the file plus the offset.
    End,
    /// The next data at or after the offset.
    Data,
    /// The next hole at or after the offset; the end of the file counts as one.
    Hole,
}

/// A copy within the mount.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyFileRange {
    /// The open file to read.
    pub fh_in: Fh,
    /// From where.
    pub offset_in: u64,
    /// The inode to write.
    pub node_out: NodeId,
    /// The open file to write.
    pub fh_out: Fh,
    /// To where.
    pub offset_out: u64,
    /// How much.
    pub length: u64,
    /// As of copy_file_range(2); none is defined.
    pub flags: u64,
    /// The answer has room for 64 bits, so any `length` may be copied.
    pub wide: bool,
}
