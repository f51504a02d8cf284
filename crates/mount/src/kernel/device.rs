//! Descriptors of `/dev/fuse`.
//!
//! Each thread reads from a descriptor of its own, so that they do not contend for one queue of
//! requests being worked on; a reply must go to the descriptor that its request came from.
//! Notifications may go to any.

use super::sys;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Where the kernel's half of FUSE is found.
pub(crate) const PATH: &str = "/dev/fuse";

/// A descriptor that belongs to one mount.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
}

/// What reading the device brings.
pub(crate) enum Received {
    /// A message of so many bytes.
    Message(usize),
    /// The connection has ended: the mount is gone, or it still stands and answers nothing but
    /// errors. The error does not tell: who is reading the last request of a mount that goes gets
    /// that of an aborted one.
    Ended,
}

impl Device {
    /// A fresh descriptor, of no mount yet.
    pub(crate) fn open() -> Result<Self, Errno> {
        // Read and write: requests are read, replies written.
        let fd = rustix::fs::open(PATH, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { fd })
    }

    /// A descriptor that was mounted by someone else.
    pub(crate) fn from_fd(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// One more descriptor of the same mount.
    pub(crate) fn try_clone(&self) -> Result<Self, Errno> {
        let new = Self::open()?;
        sys::clone_device(&new.fd, self.fd.as_fd())?;
        Ok(new)
    }

    /// Waits for a message and reads it into `buffer`, whose size must be what was agreed on.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Received, Errno> {
        loop {
            return match rustix::io::read(&self.fd, &mut *buffer) {
                Ok(len) => Ok(Received::Message(len)),
                Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Received::Ended),
                // ENOENT: the request was taken back while it was being read.
                Err(Errno::INTR | Errno::NOENT | Errno::AGAIN) => continue,
                Err(errno) => Err(errno),
            };
        }
    }

    /// Sends a reply or a notification, which is one write and thus all or nothing.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>]) -> Result<(), Errno> {
        loop {
            return match rustix::io::writev(&self.fd, parts) {
                Err(Errno::INTR) => continue,
                Err(errno) => Err(errno),
                Ok(_) => Ok(()),
            };
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
