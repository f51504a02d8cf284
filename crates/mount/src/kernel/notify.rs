//! Telling the kernel what it did not ask for: that what it caches is no longer so.
//!
//! What a notification waits for inside the kernel decides from where it may be sent:
//!
//! * [`Notifier::inval_inode`] with a length waits for reads and writes of those pages that are
//!   under way, so the one who must answer them must not send it.
//! * [`Notifier::inval_entry`] and [`Notifier::delete`] lock the parent directory, which every
//!   request that makes, moves or removes an entry there holds until it is answered.
//! * [`Notifier::inc_epoch`] locks nothing and waits for nothing: it can be sent from anywhere, at
//!   the price of a new lookup for every name of the mount.

use super::abi::opcode::NotifyCode;
use super::abi::output::{self, OutHeader};
use super::device::Device;
use super::request::{NodeId, PollHandle};
use rustix::io::Errno;
use std::io::IoSlice;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Why a notification had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotifyError {
    /// The kernel does not know the inode or the entry (ENOENT): there was nothing to drop.
    #[error("the kernel does not know the inode or the entry")]
    Unknown,
    /// The kernel is too old for it.
    #[error("this kernel has no such notification")]
    Unsupported,
    /// The mount is gone or was aborted (ENODEV, ECONNABORTED, ENOTCONN).
    #[error("the mount is gone")]
    Gone,
    /// The kernel's own reason, such as ENOTEMPTY or EBUSY for [`Notifier::delete`].
    #[error("the kernel refused a notification: {0}")]
    Refused(Errno),
}

/// Notifies the kernel about one mount. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Arc<Device>,
}

impl Notifier {
    pub(crate) fn new(device: Arc<Device>) -> Self {
        Self { device }
    }

    /// Drops the cached attributes of an inode and its cached pages from `offset` on, `length`
    /// bytes or, if 0, all. A negative offset keeps the pages.
    ///
    /// # Errors
    /// [`NotifyError::Unknown`] if nothing of the inode is cached.
    pub fn inval_inode(&self, node: NodeId, offset: i64, length: i64) -> Result<(), NotifyError> {
        let body = output::NotifyInvalInodeOut {
            node: node.0,
            offset,
            len: length,
        };
        self.send(NotifyCode::InvalInode, &[body.as_bytes()])
    }

    /// Drops a name from the cache at once.
    ///
    /// # Errors
    /// [`NotifyError::Unknown`] if the parent or the name is not cached.
    pub fn inval_entry(&self, parent: NodeId, name: &[u8]) -> Result<(), NotifyError> {
        self.entry(parent, name, 0)
    }

    /// Has a cached name asked for again when it is used next. What uses it now goes on doing so:
    /// a mount or a working directory below it stays. Needs
    /// [`HAS_EXPIRE_ONLY`](super::InitFlags::HAS_EXPIRE_ONLY).
    ///
    /// # Errors
    /// [`NotifyError::Unknown`] if the parent or the name is not cached.
    pub fn expire_entry(&self, parent: NodeId, name: &[u8]) -> Result<(), NotifyError> {
        self.entry(parent, name, output::EXPIRE_ONLY)
    }

    fn entry(&self, parent: NodeId, name: &[u8], flags: u32) -> Result<(), NotifyError> {
        let body = output::NotifyInvalEntryOut {
            parent: parent.0,
            name_len: len(name)?,
            flags,
        };
        self.send(NotifyCode::InvalEntry, &[body.as_bytes(), name, b"\0"])
    }

    /// Says that `name`, if it stands for `child`, was removed: those who watch the directory
    /// (inotify(7)) hear of it.
    ///
    /// # Errors
    /// [`NotifyError::Unknown`] as above; [`NotifyError::Refused`] with ENOTEMPTY or EBUSY for a
    /// directory that the kernel sees in use.
    pub fn delete(&self, parent: NodeId, child: NodeId, name: &[u8]) -> Result<(), NotifyError> {
        let body = output::NotifyDeleteOut {
            parent: parent.0,
            child: child.0,
            name_len: len(name)?,
            padding: 0,
        };
        self.send(NotifyCode::Delete, &[body.as_bytes(), name, b"\0"])
    }

    /// Has every name of the mount asked for again when it is used next. Linux 6.16.
    ///
    /// # Errors
    /// [`NotifyError::Unsupported`] on an older kernel.
    pub fn inc_epoch(&self) -> Result<(), NotifyError> {
        self.send(NotifyCode::IncEpoch, &[])
    }

    /// Puts `data` into the page cache of an inode. The file grows by it if it was shorter.
    ///
    /// # Errors
    /// [`NotifyError::Unknown`] if the kernel does not know the inode; it must have been looked up.
    pub fn store(&self, node: NodeId, offset: u64, data: &[u8]) -> Result<(), NotifyError> {
        let body = output::NotifyStoreOut {
            node: node.0,
            offset,
            size: len(data)?,
            padding: 0,
        };
        self.send(NotifyCode::Store, &[body.as_bytes(), data])
    }

    /// Has inodes forgotten that nobody uses. Linux 6.18.
    ///
    /// # Errors
    /// [`NotifyError::Unsupported`] on an older kernel.
    pub fn prune(&self, nodes: &[NodeId]) -> Result<(), NotifyError> {
        let numbers: Vec<u64> = nodes.iter().map(|node| node.0).collect();
        let count = u32::try_from(nodes.len()).map_err(|_| NotifyError::Refused(Errno::TOOBIG))?;
        let body = output::NotifyPruneOut {
            count,
            padding: 0,
            spare: 0,
        };
        self.send(NotifyCode::Prune, &[body.as_bytes(), numbers.as_bytes()])
    }

    /// Wakes a poll(2).
    ///
    /// # Errors
    /// [`NotifyError::Gone`] at the end of the mount.
    pub fn poll(&self, handle: PollHandle) -> Result<(), NotifyError> {
        let body = output::NotifyPollOut {
            poll_handle: handle.0,
        };
        self.send(NotifyCode::Poll, &[body.as_bytes()])
    }

    fn send(&self, code: NotifyCode, body: &[&[u8]]) -> Result<(), NotifyError> {
        let len = size_of::<OutHeader>() + body.iter().map(|part| part.len()).sum::<usize>();
        let header = OutHeader {
            len: u32::try_from(len).map_err(|_| NotifyError::Refused(Errno::TOOBIG))?,
            error: code as i32,
            unique: 0,
        };
        let parts = std::iter::once(header.as_bytes()).chain(body.iter().copied());
        let parts: Vec<IoSlice<'_>> = parts.map(IoSlice::new).collect();
        self.device.send(&parts).map_err(|errno| match errno {
            Errno::NOENT => NotifyError::Unknown,
            // A code that a kernel does not know is an invalid argument to it. The others are
            // older than any kernel that a mount can be agreed on with.
            Errno::INVAL if matches!(code, NotifyCode::IncEpoch | NotifyCode::Prune) => {
                NotifyError::Unsupported
            }
            Errno::NODEV | Errno::CONNABORTED | Errno::NOTCONN | Errno::PERM => NotifyError::Gone,
            errno => NotifyError::Refused(errno),
        })
    }
}

fn len(bytes: &[u8]) -> Result<u32, NotifyError> {
    u32::try_from(bytes.len()).map_err(|_| NotifyError::Refused(Errno::TOOBIG))
}
