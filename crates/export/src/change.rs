//! Changes of attributes.
//!
//! Linux has no call that changes several attributes at once, and callers rarely want it: chmod,
//! chown, truncate and utimensat come one at a time. When a request has several (an open that
//! truncates, an archiver that restores), they are made in the order in which each survives the
//! next: size first (it drops set-uid bits and moves the times), then owner (it drops set-uid
//! bits), then mode, then times. Before the first, a request of several parts is refused if the
//! caller does not own the inode and a part is for owners only; so it does not fail half way for a
//! reason that was there at the start.

use crate::errno::fs_error;
use crate::export::Export;
use crate::file::OpenFile;
use crate::rich::Asking;
use crate::stat::stat;
use crate::sys;
use crate::worker::{Assumed, Worker};
use base::{AttributeChange, Attributes, FsError, Handle, Principal, SetTime, mode};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid};
use rustix::io::retry_on_intr;
use rustix::path::DecInt;

impl Export {
    /// Changes attributes and returns all of them as they are afterwards. With `file`, an open file
    /// of the same inode, a new size needs no permission beyond that of the open, as in
    /// ftruncate(2), and the inode may have no name any more.
    ///
    /// # Errors
    /// The kernel's. Parts that come before the failing one stay changed; see the module's head for
    /// the order.
    pub fn set_attributes(
        &self,
        worker: &Worker,
        principal: &Principal,
        handle: &Handle,
        change: &AttributeChange,
        file: Option<&OpenFile>,
    ) -> Result<Attributes, FsError> {
        let caller = worker.assume(principal)?;
        if let Some(file) = file {
            self.apply(
                &caller,
                principal,
                (handle, file.as_fd()),
                change,
                Some(file),
            )?;
            return self.attributes_of(handle, file);
        }
        let pin = self.resolve(&caller, handle)?;
        self.apply(&caller, principal, (handle, pin.as_fd()), change, None)?;
        self.attributes_of(handle, &*pin)
    }

    fn apply(
        &self,
        caller: &Assumed<'_>,
        principal: &Principal,
        (handle, fd): (&Handle, BorrowedFd<'_>),
        change: &AttributeChange,
        file: Option<&OpenFile>,
    ) -> Result<(), FsError> {
        if self.rich_file(handle, fd)?.is_none() {
            return apply(caller, principal, fd, change, file);
        }
        let asking = Asking {
            caller,
            who: principal,
        };
        self.change_rich(asking, handle, fd, change, file)
    }
}

fn apply(
    caller: &Assumed<'_>,
    principal: &Principal,
    fd: BorrowedFd<'_>,
    change: &AttributeChange,
    file: Option<&OpenFile>,
) -> Result<(), FsError> {
    refuse_half_changes(principal, fd, change)?;
    if let Some(size) = change.size {
        match file {
            Some(file) => file.truncate_as_assumed(size)?,
            None => truncate(fd, size)?,
        }
    }
    if change.uid.is_some() || change.gid.is_some() {
        change_owner(fd, change.uid, change.gid)?;
    }
    if let Some(bits) = change.mode {
        change_mode(caller, fd, bits)?;
    }
    if change.accessed.is_some() || change.modified.is_some() {
        change_times(fd, change)?;
    }
    Ok(())
}

pub(crate) fn change_mode(
    caller: &Assumed<'_>,
    fd: BorrowedFd<'_>,
    bits: u16,
) -> Result<(), FsError> {
    let bits = Mode::from_raw_mode((bits & mode::ALL).into());
    // fchmodat(2) cannot name a descriptor before Linux 6.6; its name in /proc can.
    let number = DecInt::from_fd(fd);
    rustix::fs::chmodat(
        caller.descriptors(),
        number.as_c_str(),
        bits,
        AtFlags::empty(),
    )
    .map_err(fs_error)
}

pub(crate) fn change_times(fd: BorrowedFd<'_>, change: &AttributeChange) -> Result<(), FsError> {
    let times = Timestamps {
        last_access: time(change.accessed)?,
        last_modification: time(change.modified)?,
    };
    rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH).map_err(fs_error)
}

fn refuse_half_changes(
    principal: &Principal,
    fd: BorrowedFd<'_>,
    change: &AttributeChange,
) -> Result<(), FsError> {
    let explicit = |time| matches!(time, Some(SetTime::To(_)));
    let owner = change.uid.is_some() || change.gid.is_some();
    let times = change.accessed.is_some() || change.modified.is_some();
    let parts = [change.size.is_some(), owner, change.mode.is_some(), times];
    let for_owners =
        owner || change.mode.is_some() || explicit(change.accessed) || explicit(change.modified);
    let several = parts.iter().filter(|part| **part).count() > 1;
    if several && for_owners && principal.uid != 0 && stat(fd)?.attributes.uid != principal.uid {
        return Err(FsError::NotPermitted);
    }
    Ok(())
}

pub(crate) fn truncate(fd: BorrowedFd<'_>, size: u64) -> Result<(), FsError> {
    let path = descriptor_path(fd);
    retry_on_intr(|| sys::truncate(&path, size)).map_err(fs_error)
}

pub(crate) fn change_owner(
    fd: BorrowedFd<'_>,
    uid: Option<u32>,
    gid: Option<u32>,
) -> Result<(), FsError> {
    // The kernel's number for "stay as it is" is nobody's.
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(FsError::Invalid);
    }
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH).map_err(fs_error)
}

fn time(time: Option<SetTime>) -> Result<Timespec, FsError> {
    Ok(match time {
        None => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        Some(SetTime::Now) => Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        },
        // The two special numbers lie beyond a second, so a client cannot smuggle them in.
        Some(SetTime::To(t)) if t.nanos > 999_999_999 => return Err(FsError::Invalid),
        Some(SetTime::To(t)) => Timespec {
            tv_sec: t.seconds,
            tv_nsec: t.nanos.into(),
        },
    })
}

/// The name in `/proc` under which the calling thread can name a descriptor in calls that know only
/// paths.
pub(crate) fn descriptor_path(fd: impl AsFd) -> std::ffi::CString {
    let path = format!("/proc/thread-self/fd/{}", fd.as_fd().as_raw_fd());
    std::ffi::CString::new(path).expect("digits contain no NUL")
}
