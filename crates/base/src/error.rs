//! The answers with which a file operation can fail.

use serde::{Deserialize, Serialize};

/// Why a file operation failed, in POSIX's vocabulary. The server's operating system decides it,
/// the wire carries it, and only the mount turns it back into a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[repr(u8)]
pub enum FsError {
    /// EPERM
    #[error("operation not permitted")]
    NotPermitted,
    /// ENOENT
    #[error("no such file or directory")]
    NotFound,
    /// EIO
    #[error("input/output error")]
    Io,
    /// ENXIO
    #[error("no such device or address")]
    NoSuchAddress,
    /// E2BIG
    #[error("argument too large")]
    TooBig,
    /// EBADF
    #[error("not open for this operation")]
    BadOpen,
    /// EAGAIN
    #[error("try again")]
    WouldBlock,
    /// ENOMEM
    #[error("out of memory at the server")]
    NoMemory,
    /// EACCES
    #[error("permission denied")]
    AccessDenied,
    /// EBUSY
    #[error("busy")]
    Busy,
    /// EEXIST
    #[error("already exists")]
    Exists,
    /// EXDEV
    #[error("crosses file systems")]
    CrossDevice,
    /// ENODEV
    #[error("no such device")]
    NoDevice,
    /// ENOTDIR
    #[error("not a directory")]
    NotDirectory,
    /// EISDIR
    #[error("is a directory")]
    IsDirectory,
    /// EINVAL
    #[error("invalid argument")]
    Invalid,
    /// EMFILE, ENFILE: the server's table of open files is full
    #[error("too many open files at the server")]
    TooManyOpen,
    /// ETXTBSY
    #[error("program is running")]
    TextBusy,
    /// EFBIG
    #[error("file too large")]
    FileTooLarge,
    /// ENOSPC
    #[error("no space left")]
    NoSpace,
    /// EROFS
    #[error("read-only file system")]
    ReadOnly,
    /// EMLINK
    #[error("too many links")]
    TooManyLinks,
    /// ERANGE
    #[error("result too large for the buffer")]
    Range,
    /// EDEADLK
    #[error("would deadlock")]
    Deadlock,
    /// ENAMETOOLONG
    #[error("name too long")]
    NameTooLong,
    /// ENOLCK
    #[error("no more locks")]
    NoLocks,
    /// ENOSYS
    #[error("not implemented")]
    NotImplemented,
    /// ENOTEMPTY
    #[error("directory not empty")]
    NotEmpty,
    /// ELOOP
    #[error("too many levels of symbolic links")]
    Loop,
    /// ENODATA
    #[error("no such attribute")]
    NoData,
    /// EOVERFLOW
    #[error("value too large")]
    Overflow,
    /// EOPNOTSUPP
    #[error("not supported by the server's file system")]
    NotSupported,
    /// ETIMEDOUT: the server did not answer within the stated time
    #[error("the server did not answer in time")]
    TimedOut,
    /// ESTALE: the handle names nothing any more
    #[error("stale file handle")]
    Stale,
    /// EDQUOT
    #[error("quota exceeded")]
    QuotaExceeded,
    /// ECANCELED: the client took the request back before it was begun
    #[error("cancelled")]
    Cancelled,
    /// EINTR
    #[error("interrupted")]
    Interrupted,
}
