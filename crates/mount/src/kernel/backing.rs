//! Files that the kernel reads and writes in place of ours, without asking.

use super::device::Device;
use super::sys;
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Registers files for opens that are passed through. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Backings {
    device: Arc<Device>,
}

impl Backings {
    pub(crate) fn new(device: Arc<Device>) -> Self {
        Self { device }
    }

    /// Registers `file`, which must be open for what the opens shall do with it.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN or without [`PASSTHROUGH`](super::InitFlags::PASSTHROUGH) in
    /// force, ELOOP for a file of a stacked file system, EOPNOTSUPP for one that cannot be read and
    /// written so, EINVAL on an old kernel.
    pub fn register(&self, file: impl AsFd) -> Result<Backing, Errno> {
        let file: BorrowedFd<'_> = file.as_fd();
        let number = sys::open_backing(&self.device, file)?;
        Ok(Backing {
            device: Arc::clone(&self.device),
            number,
        })
    }
}

/// A registered file. Dropping it takes the registration back; opens that use it are not affected.
#[derive(Debug)]
pub struct Backing {
    device: Arc<Device>,
    number: i32,
}

impl Backing {
    /// What the answer to an open names.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.number
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // After the end of the mount the kernel has dropped it already.
        if let Err(errno) = sys::close_backing(&self.device, self.number) {
            tracing::debug!(%errno, number = self.number, "closing a backing file");
        }
    }
}
