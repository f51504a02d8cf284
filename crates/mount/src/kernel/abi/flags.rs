//! Bits of the protocol, as types.

use bitflags::bitflags;

bitflags! {
    /// What the kernel offers at the start and the file system accepts (`FUSE_*` of INIT). Bits 32
    /// and up travel in a second field.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InitFlags: u64 {
        /// Several reads of one file handle may be under way at once.
        const ASYNC_READ = 1 << 0;
        /// fcntl locks are asked for here instead of being kept by the kernel.
        const POSIX_LOCKS = 1 << 1;
        /// `O_TRUNC` comes with the open instead of as a change of size before it.
        const ATOMIC_O_TRUNC = 1 << 3;
        /// Lookups of `.` and `..` are answered, so that NFS can export the mount.
        const EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than one page.
        const BIG_WRITES = 1 << 5;
        /// The umask is not applied by the kernel but sent along.
        const DONT_MASK = 1 << 6;
        /// flock locks are asked for here instead of being kept by the kernel.
        const FLOCK_LOCKS = 1 << 10;
        /// ioctl on directories.
        const HAS_IOCTL_DIR = 1 << 11;
        /// A new modification time or size drops the cached pages of a file.
        const AUTO_INVAL_DATA = 1 << 12;
        /// Listings with attributes.
        const DO_READDIRPLUS = 1 << 13;
        /// The kernel chooses between listings with and without attributes.
        const READDIRPLUS_AUTO = 1 << 14;
        /// Direct I/O of an application with several requests at once.
        const ASYNC_DIO = 1 << 15;
        /// Written pages stay in the kernel for a while; size and times are then its own.
        const WRITEBACK_CACHE = 1 << 16;
        /// ENOSYS to an open means: never ask again.
        const NO_OPEN_SUPPORT = 1 << 17;
        /// Lookups and listings of one directory may run at once.
        const PARALLEL_DIROPS = 1 << 18;
        /// The file system drops set-id bits on write, truncate and change of owner.
        const HANDLE_KILLPRIV = 1 << 19;
        /// The kernel judges by POSIX ACLs that it reads as attributes.
        const POSIX_ACL = 1 << 20;
        /// Reading the device after an abort is told from reading it after an unmount.
        const ABORT_ERROR = 1 << 21;
        /// Requests of more than 32 pages.
        const MAX_PAGES = 1 << 22;
        /// Targets of symbolic links are cached.
        const CACHE_SYMLINKS = 1 << 23;
        /// ENOSYS to an opendir means: never ask again.
        const NO_OPENDIR_SUPPORT = 1 << 24;
        /// Cached pages are dropped only when told so.
        const EXPLICIT_INVAL_DATA = 1 << 25;
        /// Entries can be mounts of their own with their own device number.
        const SUBMOUNTS = 1 << 27;
        /// As `HANDLE_KILLPRIV`, with the kernel saying per request whether the caller may keep the
        /// bits.
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        /// Setting an attribute carries flags.
        const SETXATTR_EXT = 1 << 29;
        /// The second field of flags exists.
        const INIT_EXT = 1 << 30;
        /// The security context of what is created comes along.
        const SECURITY_CTX = 1 << 32;
        /// A group of the caller that matches the parent directory comes along at creation.
        const CREATE_SUPP_GROUP = 1 << 34;
        /// Entries can be expired instead of dropped.
        const HAS_EXPIRE_ONLY = 1 << 35;
        /// Shared mappings of files with direct I/O.
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        /// Reads and writes that go past this process to another file.
        const PASSTHROUGH = 1 << 37;
        /// Never export by NFS.
        const NO_EXPORT_SUPPORT = 1 << 38;
        /// Requests can be asked for again by a new process.
        const HAS_RESEND = 1 << 39;
        /// Mounts with mapped identities.
        const ALLOW_IDMAP = 1 << 40;
        /// Requests over io_uring.
        const OVER_IO_URING = 1 << 41;
        /// The kernel aborts the connection when a request takes too long.
        const REQUEST_TIMEOUT = 1 << 42;
        /// Whatever a newer kernel offers.
        const _ = !0;
    }
}

bitflags! {
    /// How the kernel treats an open file (`FOPEN_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct FOpenFlags: u32 {
        /// Reads and writes pass by the page cache.
        const DIRECT_IO = 1 << 0;
        /// Pages cached before this open stay.
        const KEEP_CACHE = 1 << 1;
        /// No seeking.
        const NONSEEKABLE = 1 << 2;
        /// The listing of this directory may be cached.
        const CACHE_DIR = 1 << 3;
        /// No file position at all.
        const STREAM = 1 << 4;
        /// No flush at close.
        const NOFLUSH = 1 << 5;
        /// Direct writes to one file may run at once.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
        /// Reads and writes go to the backing file given with the answer.
        const PASSTHROUGH = 1 << 7;
    }
}

bitflags! {
    /// Marks of one inode (`FUSE_ATTR_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AttrFlags: u32 {
        /// The root of another file system.
        const SUBMOUNT = 1 << 0;
    }
}

bitflags! {
    /// Which fields of a SETATTR count.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct SetAttrValid: u32 {
        const MODE = 1 << 0;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        const HANDLE = 1 << 6;
        const ATIME_NOW = 1 << 7;
        const MTIME_NOW = 1 << 8;
        const LOCK_OWNER = 1 << 9;
        const CTIME = 1 << 10;
        const KILL_SUIDGID = 1 << 11;
    }
}

/// GETATTR and STATX: the handle counts.
pub(crate) const GETATTR_HANDLE: u32 = 1 << 0;
/// RELEASE: flush as well.
pub(crate) const RELEASE_FLUSH: u32 = 1 << 0;
/// RELEASE: drop the flock lock of `lock_owner`.
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// Locks: flock(2), not fcntl(2).
pub(crate) const LK_FLOCK: u32 = 1 << 0;
/// WRITE: from the page cache, long after the application's call.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// WRITE: the lock owner counts.
pub(crate) const WRITE_LOCKOWNER: u32 = 1 << 1;
/// WRITE: drop the set-id bits.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// READ: the lock owner counts.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
/// FSYNC: the data only.
pub(crate) const FSYNC_DATA_ONLY: u32 = 1 << 0;
/// OPEN and CREATE: drop the set-id bits because of `O_TRUNC`.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// SETXATTR: a new access ACL drops the set-group-id bit.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// POLL: tell when it becomes ready.
pub(crate) const POLL_SCHEDULE_NOTIFY: u32 = 1 << 0;
