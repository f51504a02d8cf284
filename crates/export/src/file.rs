//! Open files: data, space, durability, copies.
//!
//! An open file carries the right that was judged when it was opened, as a descriptor does for a
//! local process; chmod afterwards takes nothing away. Reading therefore needs no identity.
//! Whatever changes the file is done as the caller, because the kernel looks at who writes: set-uid
//! bits fall unless root writes, reserved blocks and quotas are the writer's affair.
//!
//! The descriptor's file position is used by appending and by searching for holes only, and those
//! take turns at it; reads and writes name their offsets.

use crate::errno::fs_error;
use crate::stat::stat;
use crate::syncs::Syncs;
use crate::sys;
use crate::worker::Worker;
use base::limits::{COPY_BYTES_MAX, DATA_BYTES_MAX};
use base::{Access, Attributes, Extent, FsError, Principal};
use bytes::BytesMut;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::{Errno, IoSlice, ReadWriteFlags, retry_on_intr};
use std::sync::{Mutex, PoisonError};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// What for.
    pub access: Access,
    /// Cut to nothing first.
    pub truncate: bool,
    /// Every write goes to the end. A file with the append-only attribute opens for writing only
    /// so.
    pub append: bool,
}

impl OpenOptions {
    /// For `access` alone.
    #[must_use]
    pub fn new(access: Access) -> Self {
        Self {
            access,
            truncate: false,
            append: false,
        }
    }

    pub(crate) fn flags(self) -> OFlags {
        let access = match self.access {
            Access::Read | Access::Execute => OFlags::RDONLY,
            Access::Write => OFlags::WRONLY,
            Access::ReadWrite => OFlags::RDWR,
        };
        let flag = |wanted, flag| if wanted { flag } else { OFlags::empty() };
        access | flag(self.truncate, OFlags::TRUNC) | flag(self.append, OFlags::APPEND)
    }
}

/// Where written bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Offset of the first byte; not the one asked for if the file is open for appending.
    pub offset: u64,
    /// How many bytes were written. Fewer than asked for only if the next byte meets an error,
    /// which the next call will report.
    pub bytes: usize,
}

/// What happens to a run of a file's space (fallocate(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Space is reserved, and the file grows if the run passes its end.
    Extend,
    /// Space is reserved, and the file's size stays.
    KeepSize,
    /// Space is given back and reads as zeros; the size stays.
    PunchHole,
    /// The run reads as zeros with space reserved; the file grows if the run passes its end.
    Zero,
    /// The run reads as zeros with space reserved; the size stays.
    ZeroKeepSize,
    /// The run is cut out and what follows moves up.
    Collapse,
    /// What follows moves down and the run becomes a hole.
    Insert,
}

/// An open regular file. It may be shared between threads.
#[derive(Debug)]
pub struct OpenFile {
    fd: OwnedFd,
    options: OpenOptions,
    position: Mutex<()>,
    syncs: Syncs,
}

impl AsFd for OpenFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl OpenFile {
    pub(crate) fn new(fd: OwnedFd, options: OpenOptions) -> Self {
        Self {
            fd,
            options,
            position: Mutex::new(()),
            syncs: Syncs::default(),
        }
    }

    /// What the file is open for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.options.access
    }

    /// Whether every write goes to the end.
    #[must_use]
    pub fn only_appends(&self) -> bool {
        self.options.append
    }

    /// The file's attributes, also when it has no name any more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn attributes(&self) -> Result<Attributes, FsError> {
        Ok(stat(&self.fd)?.attributes)
    }

    /// Reads up to `len_max` bytes at `offset` behind what `out` already holds; fewer only at the
    /// end of the file. Returns how many.
    ///
    /// # Errors
    /// [`FsError::BadOpen`] if the file is not open for reading; [`FsError::Io`] and its kin only
    /// if nothing was read before the error.
    pub fn read_at(
        &self,
        offset: u64,
        len_max: usize,
        out: &mut BytesMut,
    ) -> Result<usize, FsError> {
        let mut read = 0;
        while read < len_max {
            let Some(position) = position(offset, read) else {
                break;
            };
            match sys::read_at(self.fd.as_fd(), position, len_max - read, out) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(Errno::INTR) => {}
                Err(_) if read > 0 => break,
                Err(errno) => return Err(fs_error(errno)),
            }
        }
        Ok(read)
    }

    /// Writes `data` at `offset`, or at the end if the file is open for appending.
    ///
    /// # Errors
    /// The kernel's answer to the caller, if nothing was written before it.
    pub fn write_at(
        &self,
        worker: &Worker,
        principal: &Principal,
        offset: u64,
        data: &[u8],
    ) -> Result<Written, FsError> {
        if self.options.append {
            return self.append(worker, principal, data);
        }
        let _caller = worker.assume(principal)?;
        let mut bytes = 0;
        while bytes < data.len() {
            let position = position(offset, bytes).ok_or(FsError::FileTooLarge)?;
            match rustix::io::pwrite(&self.fd, &data[bytes..], position) {
                Ok(0) => break,
                Ok(more) => bytes += more,
                Err(Errno::INTR) => {}
                Err(_) if bytes > 0 => break,
                Err(errno) => return Err(fs_error(errno)),
            }
        }
        Ok(Written { offset, bytes })
    }

    /// Writes `data` at the end of the file in one piece, wherever that is when the kernel holds
    /// the file's lock, and tells where it landed.
    ///
    /// # Errors
    /// The kernel's answer to the caller.
    pub fn append(
        &self,
        worker: &Worker,
        principal: &Principal,
        data: &[u8],
    ) -> Result<Written, FsError> {
        let _caller = worker.assume(principal)?;
        // With the offset -1 the write moves the file position behind its last byte. The position
        // is this descriptor's alone, so under the lock it tells where this write ended, whoever
        // else appends meanwhile.
        let _turn = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        let write = || {
            let data = [IoSlice::new(data)];
            rustix::io::pwritev2(&self.fd, &data, u64::MAX, ReadWriteFlags::APPEND)
        };
        let bytes = retry_on_intr(write).map_err(fs_error)?;
        let end = rustix::fs::tell(&self.fd).map_err(fs_error)?;
        Ok(Written {
            offset: end.saturating_sub(bytes as u64),
            bytes,
        })
    }

    /// Cuts the file to `size` bytes, or extends it with a hole.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if the file is not open for writing; else the kernel's.
    pub fn truncate(
        &self,
        worker: &Worker,
        principal: &Principal,
        size: u64,
    ) -> Result<(), FsError> {
        let _caller = worker.assume(principal)?;
        self.truncate_as_assumed(size)
    }

    pub(crate) fn truncate_as_assumed(&self, size: u64) -> Result<(), FsError> {
        if i64::try_from(size).is_err() {
            return Err(FsError::FileTooLarge);
        }
        retry_on_intr(|| rustix::fs::ftruncate(&self.fd, size)).map_err(fs_error)
    }

    /// Changes the space under `extent`.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] if the file system cannot; else the kernel's.
    pub fn allocate(
        &self,
        worker: &Worker,
        principal: &Principal,
        mode: AllocateMode,
        extent: Extent,
    ) -> Result<(), FsError> {
        let _caller = worker.assume(principal)?;
        let flags = match mode {
            AllocateMode::Extend => FallocateFlags::empty(),
            AllocateMode::KeepSize => FallocateFlags::KEEP_SIZE,
            AllocateMode::PunchHole => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            AllocateMode::Zero => FallocateFlags::ZERO_RANGE,
            AllocateMode::ZeroKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            AllocateMode::Collapse => FallocateFlags::COLLAPSE_RANGE,
            AllocateMode::Insert => FallocateFlags::INSERT_RANGE,
        };
        let allocate = || rustix::fs::fallocate(&self.fd, flags, extent.offset, extent.len);
        retry_on_intr(allocate).map_err(fs_error)
    }

    /// The first byte at or behind `offset` that is not in a hole.
    ///
    /// # Errors
    /// [`FsError::NoSuchAddress`] if there is none.
    pub fn seek_data(&self, offset: u64) -> Result<u64, FsError> {
        self.seek(SeekFrom::Data(offset))
    }

    /// The first byte at or behind `offset` that is in a hole; the end of the file counts as one.
    ///
    /// # Errors
    /// [`FsError::NoSuchAddress`] if `offset` is not in the file.
    pub fn seek_hole(&self, offset: u64) -> Result<u64, FsError> {
        self.seek(SeekFrom::Hole(offset))
    }

    fn seek(&self, to: SeekFrom) -> Result<u64, FsError> {
        let _turn = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        rustix::fs::seek(&self.fd, to).map_err(fs_error)
    }

    /// Makes the file durable; with `data_only` without the attributes that reading does not need.
    ///
    /// # Errors
    /// What the device reports, also of writes made long before. Afterwards nobody knows which of
    /// them are lost: what was not synced must be written again, and this says [`FsError::Io`]
    /// from then on.
    pub fn sync(&self, data_only: bool) -> Result<(), FsError> {
        self.syncs.sync(data_only, || {
            let flush = || match data_only {
                true => rustix::fs::fdatasync(&self.fd),
                false => rustix::fs::fsync(&self.fd),
            };
            retry_on_intr(flush).map_err(fs_error)
        })
    }

    /// Has a run of the file written to the device, and waits for that: who writes faster than the
    /// device takes it waits here and not in everybody's way. Nothing is durable by that.
    ///
    /// # Errors
    /// What the device reports. [`Self::sync`] through this descriptor may not report it again.
    pub fn write_out(&self, offset: u64, bytes: u64) -> Result<(), FsError> {
        let (Ok(offset), Ok(bytes)) = (i64::try_from(offset), i64::try_from(bytes)) else {
            return Err(FsError::Invalid);
        };
        match retry_on_intr(|| sys::write_out(self.fd.as_fd(), offset, bytes)) {
            // A file system without pages that could be written.
            Ok(()) | Err(Errno::INVAL | Errno::SPIPE | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(fs_error(errno)),
        }
    }

    /// Copies `from` of this file to `offset` of `to`, without moving the bytes through this
    /// process where the kernel can. Copies at most [`COPY_BYTES_MAX`] a call and returns how many
    /// bytes it was; zero at the end of this file. The caller goes on from there.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if the runs overlap in one file; else the kernel's.
    pub fn copy_range(
        &self,
        worker: &Worker,
        principal: &Principal,
        from: Extent,
        to: &Self,
        offset: u64,
    ) -> Result<u64, FsError> {
        let _caller = worker.assume(principal)?;
        let len = usize::try_from(from.len.min(COPY_BYTES_MAX)).unwrap_or(usize::MAX);
        let copy = || {
            let (mut source, mut target) = (from.offset, offset);
            let places = (Some(&mut source), Some(&mut target));
            rustix::fs::copy_file_range(&self.fd, places.0, &to.fd, places.1, len)
        };
        match retry_on_intr(copy) {
            Ok(bytes) => Ok(bytes as u64),
            // Other file systems and kernels without the call: one piece through memory.
            Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS) => {
                let len = len.min(DATA_BYTES_MAX as usize);
                let mut piece = BytesMut::with_capacity(len);
                self.read_at(from.offset, len, &mut piece)?;
                Ok(to.write_at(worker, principal, offset, &piece)?.bytes as u64)
            }
            Err(errno) => Err(fs_error(errno)),
        }
    }
}

/// `offset + done`, if a file can have a byte there.
fn position(offset: u64, done: usize) -> Option<u64> {
    offset
        .checked_add(done as u64)
        .filter(|position| i64::try_from(*position).is_ok())
}
