//! Opening a device and making one.
//!
//! A file is made under no name (`O_TMPFILE`) and gets its name when it is whole, or when there is
//! something in it: who is killed on the way leaves nothing behind, and a name that exists is never
//! taken. On file systems that cannot do that it has a name beside that one until then
//! ([`beside`]), which is removed when something fails, and by who tries it again after a kill.

use super::error::OpenError;
use super::{AlignedBuffer, BLOCK_BYTES, FileDevice, loops};
use base::limits::DEVICE_LOCK_TIME_MAX;
use base::{BlockDevice, Extent};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{
    self, AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags,
};
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
        Self::open_within(path, options, DEVICE_LOCK_TIME_MAX)
    }

    /// The same, with more patience.
    ///
    /// # Errors
    /// [`OpenError::InUse`] after `time_max`, and those of [`Self::open`].
    pub fn open_within(
        path: &Path,
        options: DeviceOptions,
        time_max: Duration,
    ) -> Result<Self, OpenError> {
        let end = Instant::now() + time_max;
        loop {
            match Self::open_now(path, options) {
                Err(OpenError::InUse { .. }) if Instant::now() < end => {
                    thread::sleep(LOCK_AGAIN_INTERVAL);
                }
                opened => return opened,
            }
        }
    }

    pub(super) fn open_now(path: &Path, options: DeviceOptions) -> Result<Self, OpenError> {
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
        if is_block_device && !options.read_only && is_read_only(&opened) {
            // The system opens it for writing all the same, and refuses each write.
            return Err(system("open", path, Errno::ROFS));
        }
        loops::check(path, &opened, options.read_only)?;
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
        let device = Self::create_unnamed(path, len_bytes, options, progress)?;
        device.give_name()?;
        Ok(device)
    }

    /// As [`Self::create`], of a file that has its name from [`Self::give_name`] on: until then,
    /// the end of the process, however it comes, is the end of the file.
    ///
    /// # Errors
    /// As [`Self::create`].
    pub fn create_unnamed(
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
        let (file, name) = make(path)?;
        let written = write_all(&file, path, len_bytes, options, progress);
        if let (Err(_), Name::Beside(other)) = (&written, &name) {
            // The name was made here and the lock is ours. If it stays, the error already says
            // that something is wrong with this place.
            let _ = fs::unlink(other);
        }
        written?;
        Ok(Self::new(file, path.into(), false, len_bytes, options).with_name(name))
    }

    /// Gives a file that was made without its name this name, durably. Does nothing if it has it.
    ///
    /// # Errors
    /// [`OpenError::Exists`] if another one has the name by now, [`OpenError::System`].
    pub fn give_name(&self) -> Result<(), OpenError> {
        let path = self.path();
        let mut name = self.name();
        let named = match &*name {
            Name::Own => return Ok(()),
            Name::None => {
                let source = format!("/proc/self/fd/{}", self.file().as_raw_fd());
                fs::linkat(CWD, source, CWD, path, AtFlags::SYMLINK_FOLLOW)
            }
            Name::Beside(other) => rename(other, path),
        };
        named.map_err(|errno| name_error(path, errno))?;
        *name = Name::Own;
        drop(name);
        let directory = directory_of(path);
        let directory = fs::open(directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        directory
            .and_then(fs::fsync)
            .map_err(|errno| system("flush the directory of", path, errno))
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

/// Under which name a file that is a device lies.
#[derive(Debug)]
pub(super) enum Name {
    /// Its own.
    Own,
    /// None yet: it goes with its last descriptor.
    None,
    /// Another one for the time being.
    Beside(PathBuf),
}

/// A new file in the directory of `path`, and its name for the time being.
fn make(path: &Path) -> Result<(OwnedFd, Name), OpenError> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match fs::open(directory_of(path), flags | OFlags::TMPFILE, mode) {
        Ok(file) => {
            lock(&file, path, false)?;
            Ok((file, Name::None))
        }
        // Kernels and file systems that do not know the flag open the directory itself, in vain.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
            let name = beside(path);
            Ok((make_beside(path, &name)?, Name::Beside(name)))
        }
        Err(errno) => Err(system("create", path, errno)),
    }
}

/// Gives a file another name that nobody has.
fn rename(from: &Path, to: &Path) -> Result<(), Errno> {
    match fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // File systems that do not know the flag know links, or there is no way.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::linkat(CWD, from, CWD, to, AtFlags::empty())?;
            fs::unlink(from)
        }
        renamed => renamed,
    }
}

/// The name that a file has before its own, where it needs one.
pub(super) fn beside(path: &Path) -> PathBuf {
    let own = path.file_name().unwrap_or_default().to_string_lossy();
    directory_of(path).join(format!(".{own}.azekura-unfinished"))
}

/// A new file of that name. One that is there was left by somebody who was killed, unless somebody
/// is at it now.
pub(super) fn make_beside(path: &Path, name: &Path) -> Result<OwnedFd, OpenError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let create = || fs::open(name, flags | OFlags::CREATE | OFlags::EXCL, mode);
    let file = match create() {
        Err(Errno::EXIST) => {
            let left = fs::open(name, flags, mode).map_err(|errno| name_error(name, errno))?;
            lock(&left, path, false)?;
            fs::unlink(name).map_err(|errno| system("remove", name, errno))?;
            create().map_err(|errno| name_error(name, errno))?
        }
        other => other.map_err(|errno| name_error(path, errno))?,
    };
    lock(&file, path, false)?;
    Ok(file)
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

/// Allocates and writes a new file, durably.
fn write_all(
    file: &OwnedFd,
    path: &Path,
    len_bytes: u64,
    options: DeviceOptions,
    progress: &mut Progress<'_>,
) -> Result<(), OpenError> {
    let failed = |what| move |errno| system(what, path, errno);
    fs::fallocate(file, FallocateFlags::empty(), 0, len_bytes)
        .map_err(failed("allocate space for"))?;
    if !options.through_cache {
        // Filling a device is no reason to empty everybody's cache.
        super::file::pass_by_cache(file);
    }
    fill(file, path, Extent::new(0, len_bytes), progress)?;
    fs::fsync(file).map_err(failed("flush"))
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

/// Whether a block device can only be read. What the system does not tell counts as no.
fn is_read_only(device: &fs::Stat) -> bool {
    let (major, minor) = (fs::major(device.st_rdev), fs::minor(device.st_rdev));
    std::fs::read(format!("/sys/dev/block/{major}:{minor}/ro")).is_ok_and(|ro| ro.starts_with(b"1"))
}
