//! Answers.
//!
//! A [`Replier`] is the right and the duty to answer one request. It can go to another thread or
//! task; answering consumes it, and one that is dropped answers EIO, so nobody waits for ever for
//! an answer that was forgotten.

use super::abi::output::{self, OutHeader};
use super::answer::{Attr, Entry, Opened, StatFs, Statx};
use super::convert::validity;
use super::device::Device;
use super::directory::{DirectoryBuilder, DirectoryPlusBuilder};
use super::request::{Lock, Unique};
use bytes::Bytes;
use rustix::io::Errno;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{Immutable, IntoBytes};

/// Most parts of one reply: writev(2) takes 1,024, one of which is the header.
const PARTS_MAX: usize = 1023;

/// Whether anybody took an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The kernel has it.
    Taken,
    /// The request is gone: aborted, or the mount is. What the answer granted (a lookup, an open
    /// file, a lock) was not taken and will not be given back by the kernel.
    Gone,
}

/// Answers one request, once.
#[derive(Debug)]
pub struct Replier {
    device: Option<Arc<Device>>,
    unique: Unique,
}

impl Replier {
    pub(crate) fn new(device: Arc<Device>, unique: Unique) -> Self {
        Self {
            device: Some(device),
            unique,
        }
    }

    /// The request that it answers.
    #[must_use]
    pub fn unique(&self) -> Unique {
        self.unique
    }

    /// Failure.
    pub fn error(self, errno: Errno) -> Delivery {
        self.fail(errno)
    }

    /// Success without more to say.
    pub fn done(self) -> Delivery {
        self.send(&[])
    }

    /// An entry that was found or made. Counts as one lookup of its inode if it is taken.
    pub fn entry(self, entry: &Entry) -> Delivery {
        self.structure(&entry.to_abi())
    }

    /// There is no such entry, and that may be cached.
    pub fn negative(self, valid: Duration) -> Delivery {
        let (entry_valid, entry_valid_nanos) = validity(valid);
        self.structure(&output::EntryOut {
            entry_valid,
            entry_valid_nanos,
            ..Default::default()
        })
    }

    /// Attributes, and how long they may be cached.
    pub fn attr(self, attr: &Attr, valid: Duration) -> Delivery {
        let (attr_valid, attr_valid_nanos) = validity(valid);
        let attr = attr.to_abi();
        self.structure(&output::AttrOut {
            attr_valid,
            attr_valid_nanos,
            dummy: 0,
            attr,
        })
    }

    /// Attributes of statx(2), and how long they may be cached.
    pub fn statx(self, statx: &Statx, valid: Duration) -> Delivery {
        self.structure(&statx.to_abi(valid))
    }

    /// Where a symbolic link leads: 1 to 4,095 bytes.
    pub fn target(self, target: &[u8]) -> Delivery {
        self.send(&[IoSlice::new(target)])
    }

    /// An open file or directory. If it is gone, no release follows.
    pub fn opened(self, opened: &Opened) -> Delivery {
        self.structure(&opened.to_abi())
    }

    /// An entry that was found or made, and opened.
    pub fn created(self, entry: &Entry, opened: &Opened) -> Delivery {
        self.structure(&output::CreateOut {
            entry: entry.to_abi(),
            open: opened.to_abi(),
        })
    }

    /// What was read: at most as much as was asked for.
    pub fn data(self, data: &[u8]) -> Delivery {
        self.send(&[IoSlice::new(data)])
    }

    /// What was read, in parts that follow each other.
    pub fn data_parts(self, parts: &[Bytes]) -> Delivery {
        if parts.len() > PARTS_MAX {
            let whole: Vec<u8> = parts.iter().flatten().copied().collect();
            return self.data(&whole);
        }
        let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        self.send(&parts)
    }

    /// What was read, in slices that follow each other; at most 1,023.
    pub fn data_slices(self, slices: &[IoSlice<'_>]) -> Delivery {
        self.send(slices)
    }

    /// How much was written or, with [`CopyFileRange`](super::CopyFileRange) that is not wide,
    /// copied.
    pub fn written(self, size: u32) -> Delivery {
        self.structure(&output::WriteOut { size, padding: 0 })
    }

    /// How much was copied. `wide` as in the request; without it, no more than 4 GiB can be told.
    pub fn copied(self, copied: u64, wide: bool) -> Delivery {
        if wide {
            self.structure(&output::CopyFileRangeOut { copied })
        } else {
            self.written(u32::try_from(copied).unwrap_or(u32::MAX))
        }
    }

    /// Space and limits.
    pub fn statfs(self, statfs: &StatFs) -> Delivery {
        self.structure(&statfs.to_abi())
    }

    /// An extended attribute's value, or a list of names, for a request with room for `room` bytes:
    /// with no room its size is told; with too little the answer is ERANGE.
    pub fn xattr(self, value: &[u8], room: u32) -> Delivery {
        let Ok(size) = u32::try_from(value.len()) else {
            return self.fail(Errno::TOOBIG);
        };
        match room {
            0 => self.structure(&output::GetXattrOut { size, padding: 0 }),
            _ if size > room => self.fail(Errno::RANGE),
            _ => self.data(value),
        }
    }

    /// The size of an extended attribute's value or list, for a request without room.
    pub fn xattr_size(self, size: u32) -> Delivery {
        self.structure(&output::GetXattrOut { size, padding: 0 })
    }

    /// A lock that is in the way, or one of kind [`Unlock`](super::LockKind::Unlock) if none is.
    pub fn lock(self, lock: &Lock) -> Delivery {
        let lock = super::abi::input::FileLock {
            start: lock.start,
            end: lock.end,
            kind: lock.kind.number(),
            pid: lock.pid,
        };
        self.structure(&output::LkOut { lock })
    }

    /// Where data or a hole begins.
    pub fn offset(self, offset: u64) -> Delivery {
        self.structure(&output::LseekOut { offset })
    }

    /// A page of a directory's listing.
    pub fn directory(self, page: &DirectoryBuilder) -> Delivery {
        self.data(page.as_bytes())
    }

    /// A page of a directory's listing with attributes. Its entries count as lookups if taken.
    pub fn directory_plus(self, page: &DirectoryPlusBuilder) -> Delivery {
        self.data(page.as_bytes())
    }

    /// Success of an ioctl: what it returns (not negative) and what goes to the caller's memory.
    pub fn ioctl(self, result: i32, output: &[u8]) -> Delivery {
        let header = output::IoctlOut {
            result,
            flags: 0,
            in_iovecs: 0,
            out_iovecs: 0,
        };
        self.send(&[IoSlice::new(header.as_bytes()), IoSlice::new(output)])
    }

    /// The events that have occurred (`POLL*`).
    pub fn poll(self, events: u32) -> Delivery {
        self.structure(&output::PollOut { events, padding: 0 })
    }

    /// The place of a block on the device below.
    pub fn block(self, block: u64) -> Delivery {
        self.structure(&output::BMapOut { block })
    }

    pub(crate) fn structure<T: IntoBytes + Immutable>(self, body: &T) -> Delivery {
        self.send(&[IoSlice::new(body.as_bytes())])
    }

    fn send(mut self, body: &[IoSlice<'_>]) -> Delivery {
        let device = self.device.take().expect("answering consumes");
        send(&device, self.unique, 0, body)
    }

    fn fail(mut self, errno: Errno) -> Delivery {
        let device = self.device.take().expect("answering consumes");
        send(&device, self.unique, -errno.raw_os_error(), &[])
    }
}

impl Drop for Replier {
    fn drop(&mut self) {
        if let Some(device) = self.device.take() {
            tracing::error!(unique = self.unique.0, "a request was dropped unanswered");
            send(&device, self.unique, -Errno::IO.raw_os_error(), &[]);
        }
    }
}

fn send(device: &Device, unique: Unique, error: i32, body: &[IoSlice<'_>]) -> Delivery {
    let len = size_of::<OutHeader>() + body.iter().map(|part| part.len()).sum::<usize>();
    let header = OutHeader {
        len: u32::try_from(len).unwrap_or(u32::MAX),
        error,
        unique: unique.0,
    };
    let sent = match body {
        [] => device.send(&[IoSlice::new(header.as_bytes())]),
        [only] => device.send(&[IoSlice::new(header.as_bytes()), *only]),
        _ => {
            let mut parts = Vec::with_capacity(1 + body.len());
            parts.push(IoSlice::new(header.as_bytes()));
            parts.extend_from_slice(body);
            device.send(&parts)
        }
    };
    match sent {
        Ok(()) => Delivery::Taken,
        Err(Errno::NOENT | Errno::NODEV | Errno::CONNABORTED) => Delivery::Gone,
        Err(errno) => {
            // The kernel refused the answer as such, which is a bug here or in the file system. It
            // may keep the request then, so the caller is freed with an error.
            tracing::error!(unique = unique.0, %errno, len, "the kernel refused an answer");
            let eio = -Errno::IO.raw_os_error();
            if error != eio {
                send(device, unique, eio, &[]);
            }
            Delivery::Gone
        }
    }
}

#[cfg(test)]
mod tests;
