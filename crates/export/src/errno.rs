//! The one place where the kernel's numbers become [`FsError`].

use base::FsError;
use rustix::io::Errno;

/// What the kernel's `errno` means to a client. A number without a meaning there is an input/output
/// error to the client and a line in the log for the administrator.
pub(crate) fn fs_error(errno: Errno) -> FsError {
    match errno {
        Errno::PERM => FsError::NotPermitted,
        Errno::NOENT => FsError::NotFound,
        Errno::IO => FsError::Io,
        Errno::NXIO => FsError::NoSuchAddress,
        Errno::TOOBIG => FsError::TooBig,
        Errno::BADF => FsError::BadOpen,
        Errno::AGAIN => FsError::WouldBlock,
        Errno::NOMEM => FsError::NoMemory,
        // Encrypted directories whose key is not loaded cannot be used by anyone.
        Errno::ACCESS | Errno::NOKEY => FsError::AccessDenied,
        Errno::BUSY => FsError::Busy,
        Errno::EXIST => FsError::Exists,
        Errno::XDEV => FsError::CrossDevice,
        Errno::NODEV => FsError::NoDevice,
        Errno::NOTDIR => FsError::NotDirectory,
        Errno::ISDIR => FsError::IsDirectory,
        // A directory that folds case refuses names that are not text; a pipe cannot seek.
        Errno::INVAL | Errno::ILSEQ | Errno::SPIPE => FsError::Invalid,
        Errno::MFILE | Errno::NFILE => FsError::TooManyOpen,
        Errno::TXTBSY => FsError::TextBusy,
        Errno::FBIG => FsError::FileTooLarge,
        Errno::NOSPC => FsError::NoSpace,
        Errno::ROFS => FsError::ReadOnly,
        Errno::MLINK => FsError::TooManyLinks,
        Errno::RANGE => FsError::Range,
        Errno::DEADLK => FsError::Deadlock,
        Errno::NAMETOOLONG => FsError::NameTooLong,
        Errno::NOLCK => FsError::NoLocks,
        Errno::NOSYS => FsError::NotImplemented,
        Errno::NOTEMPTY => FsError::NotEmpty,
        Errno::LOOP => FsError::Loop,
        Errno::NODATA => FsError::NoData,
        Errno::OVERFLOW => FsError::Overflow,
        Errno::OPNOTSUPP => FsError::NotSupported,
        Errno::TIMEDOUT => FsError::TimedOut,
        Errno::STALE => FsError::Stale,
        Errno::DQUOT => FsError::QuotaExceeded,
        Errno::CANCELED => FsError::Cancelled,
        Errno::INTR => FsError::Interrupted,
        // EUCLEAN and EBADMSG (damaged metadata), EREMOTEIO, ESHUTDOWN and whatever comes next.
        other => {
            tracing::warn!(
                errno = other.raw_os_error(),
                "{other}: reported as input/output error"
            );
            FsError::Io
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_but_the_unknown_has_its_own_number() {
        let mut seen = std::collections::HashMap::new();
        for raw in 1..=133 {
            let error = fs_error(Errno::from_raw_os_error(raw));
            seen.entry(error).or_insert_with(Vec::new).push(raw);
        }
        assert_eq!(seen[&FsError::NoSpace], [libc::ENOSPC]);
        assert_eq!(seen[&FsError::QuotaExceeded], [libc::EDQUOT]);
        assert_eq!(seen[&FsError::AccessDenied], [libc::EACCES, libc::ENOKEY]);
        assert_eq!(seen[&FsError::NotPermitted], [libc::EPERM]);
        assert!(seen[&FsError::Io].contains(&libc::EIO));
        assert!(seen[&FsError::Io].contains(&libc::EUCLEAN));
    }
}
