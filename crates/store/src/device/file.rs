//! A raw block device or a file that is used like one.
//!
//! Past the cache, the kernel takes whole blocks from aligned memory only. What comes aligned is
//! handed on as it is; anything else goes through a buffer, and a write of part of a block reads
//! the block first. Two such writes of one block must not be carried out at once, or the later one
//! would undo the earlier: they take turns.

use super::open::Name;
use super::{AlignedBuffer, BLOCK_BYTES, DeviceOptions, sys};
use base::{BlockDevice, DeviceAction, DeviceError, Extent};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{self, FlockOperation, OFlags};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A raw block device or a file that is used like one. Locked while it is open.
#[derive(Debug)]
pub struct FileDevice {
    file: OwnedFd,
    path: PathBuf,
    is_block_device: bool,
    is_direct: bool,
    options: DeviceOptions,
    len_bytes: AtomicU64,
    flush_has_failed: AtomicBool,
    /// Whose turn it is to change part of a block.
    patching: Mutex<()>,
    name: Mutex<Name>,
}

/// Turns `O_DIRECT` on if a block can then still be read. Not every file system that accepts the
/// flag can do with it what it says.
pub(super) fn pass_by_cache(file: &OwnedFd) -> bool {
    let Ok(flags) = fs::fcntl_getfl(file) else {
        return false;
    };
    if fs::fcntl_setfl(file, flags | OFlags::DIRECT).is_err() {
        return false;
    }
    let mut block = AlignedBuffer::new(BLOCK_BYTES as usize);
    let works = rustix::io::pread(file, &mut block[..], 0).is_ok();
    works || {
        // The flag just taken is given back by the same call.
        let _ = fs::fcntl_setfl(file, flags);
        false
    }
}

impl FileDevice {
    pub(super) fn new(
        file: OwnedFd,
        path: PathBuf,
        is_block_device: bool,
        len_bytes: u64,
        options: DeviceOptions,
    ) -> Self {
        let device = Self {
            is_direct: !options.through_cache && pass_by_cache(&file),
            file,
            path,
            is_block_device,
            options,
            len_bytes: AtomicU64::new(0),
            flush_has_failed: AtomicBool::new(false),
            patching: Mutex::new(()),
            name: Mutex::new(Name::Own),
        };
        device.set_len_bytes(len_bytes);
        device
    }

    /// The same under another name, or none.
    pub(super) fn with_name(self, name: Name) -> Self {
        *self.name() = name;
        self
    }

    pub(super) fn name(&self) -> MutexGuard<'_, Name> {
        self.name.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a block device; else it is a file.
    #[must_use]
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Whether the page cache is passed by.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Whether it was opened for reading only.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.options.read_only
    }

    /// What it is and how it is used, for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let kind = if self.is_block_device {
            "block device"
        } else {
            "file"
        };
        let cache = match (self.is_direct, self.options.through_cache) {
            (true, _) => "O_DIRECT",
            (false, true) => "through the page cache as asked",
            (false, false) => "through the page cache: no O_DIRECT here",
        };
        let discards = if self.discards() { ", discards" } else { "" };
        let read_only = if self.options.read_only {
            ", read-only"
        } else {
            ""
        };
        format!("{kind}, {cache}{discards}{read_only}")
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// A device whose last block is incomplete is used without it.
    pub(super) fn set_len_bytes(&self, len_bytes: u64) {
        self.len_bytes
            .store(len_bytes - len_bytes % BLOCK, Ordering::Release);
    }

    fn discards(&self) -> bool {
        self.is_block_device && self.options.discard && !self.options.read_only
    }

    /// The answer to a flush that the system has carried out with this outcome. After one failure
    /// there is no success any more: Linux reports a lost write once and then forgets it.
    pub(super) fn settle_flush(&self, outcome: Result<(), Errno>) -> Result<(), DeviceError> {
        let failed = |source| failed(DeviceAction::Flush, Extent::default(), source);
        if let Err(errno) = outcome {
            self.flush_has_failed.store(true, Ordering::Release);
            return Err(failed(errno.into()));
        }
        if self.flush_has_failed.load(Ordering::Acquire) {
            return Err(failed(io::Error::other("an earlier flush has failed")));
        }
        Ok(())
    }

    /// Whether the kernel can be given this memory for these bytes.
    fn takes(&self, offset: u64, bytes: &[u8]) -> bool {
        let numbers = offset | bytes.len() as u64 | bytes.as_ptr().addr() as u64;
        !self.is_direct || numbers.is_multiple_of(BLOCK)
    }

    fn read_whole(&self, mut offset: u64, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            match rustix::io::pread(&self.file, &mut *into, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    offset += read as u64;
                    into = &mut into[read..];
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn write_whole(&self, mut offset: u64, mut from: &[u8]) -> io::Result<()> {
        while !from.is_empty() {
            match rustix::io::pwrite(&self.file, from, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    offset += written as u64;
                    from = &from[written..];
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Writes bytes that do not fill their blocks, or that lie in memory the kernel does not take.
    fn patch(&self, extent: Extent, from: &[u8]) -> io::Result<()> {
        let whole = blocks_around(extent);
        let mut buffer = AlignedBuffer::new(whole.len as usize);
        let start = (extent.offset - whole.offset) as usize;
        let _turn = self.patching.lock().unwrap_or_else(PoisonError::into_inner);
        if whole != extent {
            let last = buffer.len() - BLOCK as usize;
            self.read_whole(whole.offset, &mut buffer[..BLOCK as usize])?;
            if last > 0 {
                self.read_whole(whole.offset + last as u64, &mut buffer[last..])?;
            }
        }
        buffer[start..start + from.len()].copy_from_slice(from);
        self.write_whole(whole.offset, &buffer)
    }
}

fn blocks_around(extent: Extent) -> Extent {
    let start = extent.offset - extent.offset % BLOCK;
    Extent::between(start, extent.end().next_multiple_of(BLOCK))
}

pub(super) fn failed(action: DeviceAction, extent: Extent, source: io::Error) -> DeviceError {
    DeviceError::Failed {
        action,
        extent,
        source,
    }
}

impl Drop for FileDevice {
    /// The lock would last as long as anybody, such as a child between fork and exec, has a copy of
    /// the descriptor.
    fn drop(&mut self) {
        if let Name::Beside(other) = &*self.name() {
            // It never became what it was to be. If the name stays, the next try removes it.
            let _ = fs::unlink(other);
        }
        // Closing it unlocks as well, if later.
        let _ = fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl BlockDevice for FileDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes.load(Ordering::Acquire)
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let extent = self.extent_at(offset, into.len())?;
        let done = if extent.is_empty() {
            Ok(())
        } else if self.takes(offset, into) {
            self.read_whole(offset, into)
        } else {
            let whole = blocks_around(extent);
            let mut buffer = AlignedBuffer::new(whole.len as usize);
            let start = (offset - whole.offset) as usize;
            self.read_whole(whole.offset, &mut buffer)
                .map(|()| into.copy_from_slice(&buffer[start..start + into.len()]))
        };
        done.map_err(|error| failed(DeviceAction::Read, extent, error))
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        let extent = self.extent_at(offset, from.len())?;
        if self.options.read_only {
            return Err(DeviceError::ReadOnly);
        }
        let done = if extent.is_empty() {
            Ok(())
        } else if self.takes(offset, from) {
            self.write_whole(offset, from)
        } else {
            self.patch(extent, from)
        };
        done.map_err(|error| failed(DeviceAction::Write, extent, error))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.options.read_only {
            return Ok(());
        }
        self.settle_flush(fs::fdatasync(&self.file))
    }

    fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check_inside(extent)?;
        if self.options.read_only {
            return Err(DeviceError::ReadOnly);
        }
        // Whole blocks only: what is beside them is still needed.
        let start = extent.offset.next_multiple_of(BLOCK);
        let inner = Extent::between(start, extent.end() - extent.end() % BLOCK);
        if !self.discards() || inner.is_empty() {
            return Ok(());
        }
        match sys::discard(self.file(), inner) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(failed(DeviceAction::Trim, inner, errno.into())),
        }
    }
}
