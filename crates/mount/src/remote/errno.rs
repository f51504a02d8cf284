//! Our errors as the kernel's numbers. The only place that knows both.

use base::{FsError, NameError};
use rustix::io::Errno;

/// The number for an error.
pub(super) fn errno(error: FsError) -> Errno {
    match error {
        FsError::NotPermitted => Errno::PERM,
        FsError::NotFound => Errno::NOENT,
        FsError::Io => Errno::IO,
        FsError::NoSuchAddress => Errno::NXIO,
        FsError::TooBig => Errno::TOOBIG,
        FsError::BadOpen => Errno::BADF,
        FsError::WouldBlock => Errno::AGAIN,
        FsError::NoMemory => Errno::NOMEM,
        FsError::AccessDenied => Errno::ACCESS,
        FsError::Busy => Errno::BUSY,
        FsError::Exists => Errno::EXIST,
        FsError::CrossDevice => Errno::XDEV,
        FsError::NoDevice => Errno::NODEV,
        FsError::NotDirectory => Errno::NOTDIR,
        FsError::IsDirectory => Errno::ISDIR,
        FsError::Invalid => Errno::INVAL,
        FsError::TooManyOpen => Errno::NFILE,
        FsError::TextBusy => Errno::TXTBSY,
        FsError::FileTooLarge => Errno::FBIG,
        FsError::NoSpace => Errno::NOSPC,
        FsError::ReadOnly => Errno::ROFS,
        FsError::TooManyLinks => Errno::MLINK,
        FsError::Range => Errno::RANGE,
        FsError::Deadlock => Errno::DEADLK,
        FsError::NameTooLong => Errno::NAMETOOLONG,
        FsError::NoLocks => Errno::NOLCK,
        FsError::NotImplemented => Errno::NOSYS,
        FsError::NotEmpty => Errno::NOTEMPTY,
        FsError::Loop => Errno::LOOP,
        FsError::NoData => Errno::NODATA,
        FsError::Overflow => Errno::OVERFLOW,
        FsError::NotSupported => Errno::OPNOTSUPP,
        FsError::TimedOut => Errno::TIMEDOUT,
        FsError::Stale => Errno::STALE,
        FsError::QuotaExceeded => Errno::DQUOT,
        FsError::Cancelled => Errno::CANCELED,
        FsError::Interrupted => Errno::INTR,
    }
}

/// The number for a name that cannot be.
pub(super) fn name_errno(error: NameError) -> Errno {
    match error {
        NameError::TooLong => Errno::NAMETOOLONG,
        NameError::Reserved | NameError::Separator => Errno::INVAL,
    }
}
