//! Opening a device and making one.
//!
//! A file is made under no name (`O_TMPFILE`) and gets its name when it is whole: who is killed on
//! the way leaves nothing behind, and a name that exists is never taken. File systems that cannot
//! do that get a name at once, which is removed when something fails.

use super::error::OpenError;
use super::{AlignedBuffer, BLOCK_BYTES, FileDevice};
use base::limits::DEVICE_LOCK_TIME_MAX;
use base::{BlockDevice, Extent};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How to open a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceOptions {
    /// Only read, beside others who only read.
    pub read_only: bool,
    /// Go through the page cache even where that could be avoided.
    pub through_cache: bool,
    /// Discard what is trimmed. Only for a block device whose discarded space nobody else gets;
    /// without effect on a file.
    pub discard: bool,
}

/// Is told bytes done and bytes in all; `Break` cancels.
pub type Progress<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// Bytes of one write when a device is written from end to end: enough to saturate any disk, a
/// good number of steps for a progress bar.
const FILL_BYTES: usize = 4 << 20;
/// How often a device that somebody has is tried again.
const LOCK_AGAIN_INTERVAL: Duration = Duration::from_millis(10);

impl FileDevice {
    /// Opens a file or a block device. If somebody has it, it waits for a moment: what a killed
    /// process had under way may hold the lock longer than the process lived.
    ///
    /// # Errors
    /// [`OpenError::InUse`] after `DEVICE_LOCK_TIME_MAX`, [`OpenError::NotADevice`],
    /// [`OpenError::System`].
    pub fn open(path: &Path, options: DeviceOptions) -> Result<Self, OpenError> {
        let end = Instant::now() + DEVICE_LOCK_TIME_MAX;
        loop {
            match Self::open_now(path, options) {
                Err(OpenError::InUse { .. }) if Instant::now() < end => {
                    thread::sleep(LOCK_AGAIN_INTERVAL);
                }
                opened => return opened,
            }
        }
    }

    fn open_now(path: &Path, options: DeviceOptions) -> Result<Self, OpenError> {
        let failed = |what| move |errno| system(what, path, errno);
        let kind = |stat: &fs::Stat| FileType::from_raw_mode(stat.st_mode);
        let stat = fs::stat(path).map_err(failed("open"))?;
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        flags |= if options.read_only {
            OFlags::RDONLY
        } else {
            OFlags::RDWR
        };
        if kind(&stat) == FileType::BlockDevice && !options.read_only {
            flags |= OFlags::EXCL;
        }
        if !matches!(kind(&stat), FileType::BlockDevice | FileType::RegularFile) {
            return Err(OpenError::NotADevice { path: path.into() });
        }
        let file = fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::BUSY => OpenError::InUse { path: path.into() },
            errno => system("open", path, errno),
        })?;
        lock(&file, path, options.read_only)?;
        let opened = fs::fstat(&file).map_err(failed("inspect"))?;
        if kind(&opened) != kind(&stat) {
            return Err(OpenError::NotADevice { path: path.into() });
        }
        let is_block_device = kind(&opened) == FileType::BlockDevice;
        let len_bytes = if is_block_device {
            super::sys::block_device_len_bytes(file.as_fd()).map_err(failed("measure"))?
        } else {
            opened.st_size.unsigned_abs()
        };
        Ok(Self::new(
            file,
            path.into(),
            is_block_device,
            len_bytes,
            options,
        ))
    }

    /// Makes a file of `len_bytes` zeros, every one of them written, and opens it. Neither an error
    /// nor the death of the process leaves anything behind.
    ///
    /// # Errors
    /// [`OpenError::Exists`], [`OpenError::Length`], [`OpenError::Cancelled`],
    /// [`OpenError::System`], among them too little space.
    pub fn create(
        path: &Path,
        len_bytes: u64,
        options: DeviceOptions,
        progress: &mut Progress<'_>,
    ) -> Result<Self, OpenError> {
        if len_bytes == 0 || !len_bytes.is_multiple_of(u64::from(BLOCK_BYTES)) {
            return Err(OpenError::Length { len_bytes });
        }
        if path.symlink_metadata().is_ok() {
            return Err(OpenError::Exists { path: path.into() });
        }
        let (file, is_named) = make(path)?;
        let made = finish(&file, path, len_bytes, is_named, options, progress);
        if made.is_err() && is_named {
            // The name was made here and the lock is ours. If it stays, the error already says
            // that something is wrong with this place.
            let _ = fs::unlink(path);
        }
        made?;
        Ok(Self::new(file, path.into(), false, len_bytes, options))
    }

    /// Makes the file longer; the new bytes are written zeros. A block device that has grown by
    /// itself is measured anew. The new length is returned.
    ///
    /// # Errors
    /// [`OpenError::Cannot`] if it is open for reading only; else as [`Self::create`], and the
    /// length stays.
    pub fn grow(&self, len_bytes: u64, progress: &mut Progress<'_>) -> Result<u64, OpenError> {
        let old_bytes = self.len_bytes();
        let path = self.path();
        let failed = |what| move |errno| system(what, path, errno);
        if self.is_read_only() {
            return Err(OpenError::Cannot {
                path: path.into(),
                what: "made longer",
            });
        }
        if self.is_block_device() {
            let len = super::sys::block_device_len_bytes(self.file()).map_err(failed("measure"))?;
            self.set_len_bytes(len);
            return Ok(self.len_bytes());
        }
        if len_bytes < old_bytes || !len_bytes.is_multiple_of(u64::from(BLOCK_BYTES)) {
            return Err(OpenError::Length { len_bytes });
        }
        let added = Extent::between(old_bytes, len_bytes);
        if !added.is_empty() {
            self.ensure_room(len_bytes)?;
            if let Err(error) = self.lengthen(added, progress) {
                if !matches!(error, OpenError::Cancelled) {
                    // Some file systems give out what there is before they say that it is too
                    // little. What cannot be cut off is taken in by the next try.
                    let _ = fs::ftruncate(self.file(), old_bytes);
                }
                return Err(error);
            }
            self.set_len_bytes(len_bytes);
        }
        Ok(len_bytes)
    }

    /// Whether the file system has space for a file of `len_bytes`, as far as that is known before.
    ///
    /// # Errors
    /// [`OpenError::System`].
    pub fn ensure_room(&self, len_bytes: u64) -> Result<(), OpenError> {
        let failed = |errno| system("allocate space for", self.path(), errno);
        let more = len_bytes.saturating_sub(self.len_bytes());
        let stat = fs::fstatvfs(self.file()).map_err(failed)?;
        match stat.f_bavail.saturating_mul(stat.f_frsize) < more {
            true => Err(failed(Errno::NOSPC)),
            false => Ok(()),
        }
    }

    fn lengthen(&self, added: Extent, progress: &mut Progress<'_>) -> Result<(), OpenError> {
        let path = self.path();
        let failed = |what| move |errno| system(what, path, errno);
        fs::fallocate(
            self.file(),
            FallocateFlags::empty(),
            added.offset,
            added.len,
        )
        .map_err(failed("allocate space for"))?;
        fill(&self.file(), path, added, progress)?;
        fs::fsync(self.file()).map_err(failed("flush"))
    }

    /// Writes zeros over `extent`: what a new block device needs before it is measured, and what
    /// makes its old content disappear.
    ///
    /// # Errors
    /// [`OpenError::Cancelled`], [`OpenError::System`].
    pub fn fill(&self, extent: Extent, progress: &mut Progress<'_>) -> Result<(), OpenError> {
        if self.is_read_only() {
            return Err(OpenError::Cannot {
                path: self.path().into(),
                what: "written",
            });
        }
        fill(&self.file(), self.path(), extent, progress)
    }
}

pub(super) fn system(what: &'static str, path: &Path, errno: Errno) -> OpenError {
    OpenError::System {
        what,
        path: path.into(),
        source: errno.into(),
    }
}

fn lock(file: &OwnedFd, path: &Path, is_shared: bool) -> Result<(), OpenError> {
    let lock = match is_shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    fs::flock(file, lock).map_err(|errno| match errno {
        Errno::WOULDBLOCK => OpenError::InUse { path: path.into() },
        errno => system("lock", path, errno),
    })
}

/// A new file in the directory of `path`, and whether it has its name already.
fn make(path: &Path) -> Result<(OwnedFd, bool), OpenError> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match fs::open(directory_of(path), flags | OFlags::TMPFILE, mode) {
        Ok(file) => Ok((file, false)),
        // Kernels and file systems that do not know the flag open the directory itself, in vain.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
            let file = fs::open(path, flags | OFlags::CREATE | OFlags::EXCL, mode);
            Ok((file.map_err(|errno| name_error(path, errno))?, true))
        }
        Err(errno) => Err(system("create", path, errno)),
    }
}

fn name_error(path: &Path, errno: Errno) -> OpenError {
    match errno {
        Errno::EXIST => OpenError::Exists { path: path.into() },
        errno => system("create", path, errno),
    }
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent.into(),
        _ => ".".into(),
    }
}

/// Locks, allocates, writes and names a new file, durably.
fn finish(
    file: &OwnedFd,
    path: &Path,
    len_bytes: u64,
    is_named: bool,
    options: DeviceOptions,
    progress: &mut Progress<'_>,
) -> Result<(), OpenError> {
    let failed = |what| move |errno| system(what, path, errno);
    lock(file, path, false)?;
    fs::fallocate(file, FallocateFlags::empty(), 0, len_bytes)
        .map_err(failed("allocate space for"))?;
    if !options.through_cache {
        // Filling a device is no reason to empty everybody's cache.
        super::file::pass_by_cache(file);
    }
    fill(file, path, Extent::new(0, len_bytes), progress)?;
    fs::fsync(file).map_err(failed("flush"))?;
    if !is_named {
        let source = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::linkat(CWD, source, CWD, path, AtFlags::SYMLINK_FOLLOW)
            .map_err(|errno| name_error(path, errno))?;
    }
    let directory = directory_of(path);
    let directory = fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
    directory
        .and_then(fs::fsync)
        .map_err(failed("flush the directory of"))
}

fn fill(
    file: &impl AsFd,
    path: &Path,
    extent: Extent,
    progress: &mut Progress<'_>,
) -> Result<(), OpenError> {
    let zeros = AlignedBuffer::new(FILL_BYTES);
    let mut done = 0;
    while done < extent.len {
        let piece =
            usize::try_from(extent.len - done).map_or(FILL_BYTES, |rest| rest.min(FILL_BYTES));
        let written = match rustix::io::pwrite(file, &zeros[..piece], extent.offset + done) {
            Ok(0) => return Err(system("write", path, Errno::IO)),
            Ok(written) => written as u64,
            Err(Errno::INTR) => 0,
            Err(errno) => return Err(system("write", path, errno)),
        };
        done += written;
        if progress(done, extent.len).is_break() {
            return Err(OpenError::Cancelled);
        }
    }
    Ok(())
}
