//! An overlay in a sparse file, locked while it is open.

use super::head::{HEAD_BYTES, Head};
use super::{Overlay, backing_bytes, format};
use crate::error::{Damage, DiskError};
use crate::manifest::VersionId;
use crate::repository::{Turn, temporary_name};
use base::limits::DISK_OVERLAY_LOCK_TIME_MAX;
use base::{BlockDevice, DeviceAction, DeviceError, Extent};
use rustix::fs::{CWD, FallocateFlags, RenameFlags, fallocate, renameat_with};
use rustix::io::Errno;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A file as a device; its length does not change while it is open.
#[derive(Debug)]
struct SparseFile {
    file: File,
    len_bytes: u64,
    /// Keeps others from opening it.
    _turn: Turn,
}

/// Opens the overlay in a file, over `base`, which is `version`.
///
/// # Errors
/// [`DiskError::Busy`] if it is open elsewhere, [`DiskError::Damaged`] if it is over something
/// else, [`DiskError::File`].
pub fn open(
    path: &Path,
    base: Arc<dyn BlockDevice>,
    version: VersionId,
) -> Result<Overlay, DiskError> {
    let backing = SparseFile::open(path)?;
    Overlay::on(Arc::new(backing), base, version).map_err(|error| match error {
        DiskError::Damaged { damage, .. } => DiskError::Damaged {
            place: path.display().to_string(),
            damage,
        },
        other => other,
    })
}

/// Over which version the overlay in a file is, and the length of its image in bytes. It may be
/// open elsewhere.
///
/// # Errors
/// [`DiskError::Damaged`], [`DiskError::File`].
pub fn is_over(path: &Path) -> Result<(VersionId, u64), DiskError> {
    let file = File::open(path).map_err(DiskError::file("open", path))?;
    let mut bytes = vec![0; HEAD_BYTES];
    let read = file.read_exact_at(&mut bytes, 0);
    let damaged = |damage| DiskError::Damaged {
        place: path.display().to_string(),
        damage,
    };
    read.map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(Damage::NotARecord),
        _ => DiskError::file("read", path)(error),
    })?;
    let head = Head::from_bytes(&bytes).map_err(damaged)?;
    Ok((head.version, head.image_bytes))
}

/// Makes an empty overlay over a version; one that is there is thrown away with all that was
/// written. It is the one or the other whenever power is lost. This is how a disk is reset, and
/// rolled back to another version.
///
/// # Errors
/// [`DiskError::Busy`] if it is open, [`DiskError::File`].
pub fn create(path: &Path, image_bytes: u64, version: VersionId) -> Result<(), DiskError> {
    let _turn = match path.exists() {
        true => Some(locked(path, Duration::ZERO)?.1),
        false => None,
    };
    put(path, image_bytes, version, |temporary| {
        fs::rename(temporary, path)
    })
}

/// Makes an empty overlay over a version where there is none; one that somebody else has made
/// meanwhile stays, and is his until he closes it.
///
/// # Errors
/// [`DiskError::File`].
pub fn create_unless_there(
    path: &Path,
    image_bytes: u64,
    version: VersionId,
) -> Result<(), DiskError> {
    put(path, image_bytes, version, |temporary| {
        let flags = RenameFlags::NOREPLACE;
        let named = match renameat_with(CWD, temporary, CWD, path, flags) {
            Ok(()) => return Ok(()),
            // Not every file system can do that.
            Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(temporary, path),
            Err(errno) => Err(errno.into()),
        };
        match named {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => fs::remove_file(temporary),
        }
    })
}

/// Makes it under another name, and has `name` give it its own.
fn put(
    path: &Path,
    image_bytes: u64,
    version: VersionId,
    name: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), DiskError> {
    let directory: PathBuf = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => ".".into(),
    };
    let temporary = directory.join(format!(".{}.new", temporary_name()));
    let made = make(&temporary, image_bytes, version).and_then(|()| {
        let named = name(&temporary).and_then(|()| File::open(&directory)?.sync_all());
        named.map_err(DiskError::file("make", path))
    });
    if made.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&temporary);
    }
    made
}

/// The file that a path names, locked. Whoever had the lock before may have put another file in its
/// place: then it is that one.
fn locked(path: &Path, wait: Duration) -> Result<(File, Turn), DiskError> {
    let until = Instant::now() + wait;
    loop {
        let file = File::options().read(true).write(true).open(path);
        let file = file.map_err(DiskError::file("open", path))?;
        let turn = Turn::alone(path, until.saturating_duration_since(Instant::now()))?;
        let inode = |metadata: io::Result<Metadata>| metadata.map(|metadata| metadata.ino());
        let opened = inode(file.metadata()).map_err(DiskError::file("open", path))?;
        let held = turn.inode().map_err(DiskError::file("lock", path))?;
        let named = inode(fs::metadata(path)).ok();
        if held == opened && named == Some(held) {
            return Ok((file, turn));
        }
    }
}

fn make(path: &Path, image_bytes: u64, version: VersionId) -> Result<(), DiskError> {
    let file = File::create_new(path).map_err(DiskError::file("make", path))?;
    let sized = file.set_len(backing_bytes(image_bytes));
    sized.map_err(DiskError::file("make", path))?;
    let backing = SparseFile::open(path)?;
    format(&backing, image_bytes, version)?;
    // The length, too.
    file.sync_all().map_err(DiskError::file("flush", path))
}

impl SparseFile {
    fn open(path: &Path) -> Result<Self, DiskError> {
        let (file, turn) = locked(path, DISK_OVERLAY_LOCK_TIME_MAX)?;
        let length = file.metadata().map_err(DiskError::file("measure", path))?;
        Ok(Self {
            file,
            len_bytes: length.len(),
            _turn: turn,
        })
    }
}

fn failed(action: DeviceAction, extent: Extent) -> impl FnOnce(io::Error) -> DeviceError {
    move |source| DeviceError::Failed {
        action,
        extent,
        source,
    }
}

impl BlockDevice for SparseFile {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let extent = self.extent_at(offset, into.len())?;
        let read = self.file.read_exact_at(into, offset);
        read.map_err(failed(DeviceAction::Read, extent))
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        let extent = self.extent_at(offset, from.len())?;
        let written = self.file.write_all_at(from, offset);
        written.map_err(failed(DeviceAction::Write, extent))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let flushed = self.file.sync_data();
        flushed.map_err(failed(DeviceAction::Flush, Extent::default()))
    }

    fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check_inside(extent)?;
        if extent.is_empty() {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, extent.offset, extent.len) {
            // A file system that cannot give space back keeps it.
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(failed(DeviceAction::Trim, extent)(errno.into())),
        }
    }
}
