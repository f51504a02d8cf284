//! Chunks kept on a local disk: bounded, shared between processes, believed only when verified.
//!
//! ```text
//! default.castr/abcd/abcd....cacnk    chunks as they came; casync can use it as a store
//! tmp/                                files that are not whole yet
//! fetching/                           who fetches what: one locked file each
//! kept/                               files of repositories that are kept with their chunks
//! usage                               how many bytes there are; locked by who changes that
//! lock                                held by everybody who uses the cache
//! ```
//!
//! * **Verified.** What is read is unpacked and has the digest of its name, or it is removed and
//!   as good as not there. So nothing needs to be flushed: what a loss of power tears is fetched
//!   again. Only what is kept for use without a network is.
//! * **Bounded.** Bytes are counted before they are written, in turn. When they would not fit, the
//!   directory is gone through and what was used longest ago is removed. A use sets the file's time
//!   of modification, at most once a minute.
//! * **Pinned.** What is kept for use without a network ([`crate::keep`]) is not removed: its file
//!   is one that nobody may write, its owner included. What is damaged there is replaced in its
//!   place.
//! * **Shared.** Who fetches a chunk locks a file of its name; others wait for the chunk instead of
//!   fetching it. Locks are the kernel's: who is killed gives them back. Who opens a cache that
//!   nobody else uses counts anew and removes what was left over.

use crate::chunk::{ChunkId, ChunkSpec, packed_bytes_max, unpack};
use crate::error::DiskError;
use crate::name::{CHUNKS, FileName};
use crate::repository::{Turn, is_temporary_name, temporary_name};
use crate::source::{Directory, Part, Source};
use base::limits::DISK_CACHE_TURN_TIME_MAX;
use bytes::Bytes;
use rustix::fs::syncfs;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

const TEMPORARY: &str = "tmp";
const FETCHING: &str = "fetching";
const KEPT: &str = "kept";
/// That its owner may write a file; a pinned chunk's may not.
const OWNER_WRITES: u32 = 0o200;
/// What one entry takes: its bytes, in blocks of this length.
const BLOCK_BYTES: u64 = 4096;
/// A use within this time of the one before is not noted.
const USE_INTERVAL: Duration = Duration::from_secs(60);

/// A directory of verified chunks.
#[derive(Debug)]
pub struct Cache {
    directory: Directory,
    bytes_max: u64,
    /// Chunks that are pinned as soon as they come.
    awaited: Mutex<HashSet<ChunkId>>,
    _used: Turn,
}

/// The right to fetch a chunk that others wait for, until it is dropped.
#[derive(Debug)]
pub(crate) struct FetchLock {
    path: PathBuf,
    _turn: Turn,
}

impl Drop for FetchLock {
    fn drop(&mut self) {
        // The lock goes after the name; who has opened it meanwhile sees that it is gone.
        let _ = fs::remove_file(&self.path);
    }
}

/// One chunk in the cache, for whoever removes some.
struct Entry {
    used: SystemTime,
    bytes: u64,
    is_pinned: bool,
    path: PathBuf,
}

impl Cache {
    /// The cache in this directory, which is made if it is not there. It keeps at most `bytes_max`.
    ///
    /// # Errors
    /// [`DiskError::File`], [`DiskError::Busy`].
    pub fn open(path: impl Into<PathBuf>, bytes_max: u64) -> Result<Self, DiskError> {
        let path = path.into();
        for directory in [CHUNKS, TEMPORARY, FETCHING] {
            let directory = path.join(directory);
            let made = fs::create_dir_all(&directory);
            made.map_err(DiskError::file("make the directory", directory))?;
        }
        let lock = path.join("lock");
        if let Ok(alone) = Turn::alone(&lock, Duration::ZERO) {
            tidy_up(&path).map_err(DiskError::file("tidy up", &path))?;
            drop(alone);
        }
        let cache = Self {
            directory: Directory::new(&path),
            bytes_max,
            awaited: Mutex::default(),
            _used: Turn::shared(&lock, DISK_CACHE_TURN_TIME_MAX)?,
        };
        let _turn = cache.turn()?;
        let fitted = cache.count(None).and_then(|used| cache.make_room(used, 0));
        fitted.map_err(DiskError::file("count the bytes of", path))?;
        Ok(cache)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// How many bytes it may have.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// How many bytes it has now.
    ///
    /// # Errors
    /// [`DiskError`].
    pub fn used_bytes(&self) -> Result<u64, DiskError> {
        let _turn = self.turn()?;
        let counted = self.count(None);
        counted.map_err(DiskError::file("count the bytes of", self.path()))
    }

    /// Whether there is something under the chunk's name.
    pub(crate) fn has(&self, id: &ChunkId) -> bool {
        self.path_of(id).exists()
    }

    /// A chunk, verified. What is damaged is removed.
    pub(crate) fn read(&self, spec: &ChunkSpec) -> Option<Bytes> {
        let file = FileName::of_chunk(&spec.id);
        let bytes_max = packed_bytes_max(spec.len_bytes);
        let packed = self.directory.read_now(&file, Part::Whole { bytes_max });
        let unpacked = match packed {
            Ok(packed) => unpack(spec, &packed).ok(),
            Err(error) if error.refusal.is_not_found() => return None,
            Err(_) => None,
        };
        if unpacked.is_none() {
            tracing::warn!(chunk = %spec.id, "damaged in the cache; it is fetched again");
            // If it cannot be removed, or is pinned, it is replaced.
            if !self.is_pinned(&spec.id) {
                let _ = fs::remove_file(self.path_of(&spec.id));
            }
        } else {
            note_use(&self.path_of(&spec.id));
        }
        unpacked
    }

    /// Keeps a chunk that was verified. False if it does not fit.
    pub(crate) fn insert(&self, id: &ChunkId, packed: &[u8]) -> Result<bool, DiskError> {
        let path = self.path_of(id);
        let bytes = size(packed.len() as u64);
        if bytes > self.bytes_max {
            return Ok(false);
        }
        let _turn = self.turn()?;
        let insert = || -> io::Result<bool> {
            let old = fs::metadata(&path).ok();
            let before = old.as_ref().map_or(0, |old| size(old.len()));
            let used = self.count(None)?.saturating_sub(before);
            let used = self.make_room(used, bytes)?;
            if used + bytes > self.bytes_max {
                // The rest is pinned.
                return Ok(false);
            }
            // Counted first: who is killed here has counted too much, and that is put right.
            self.count(Some(used + bytes))?;
            let temporary = self.path().join(TEMPORARY).join(temporary_name());
            let directory = path.parent().expect("chunks lie in directories");
            let written = fs::write(&temporary, packed)
                .and_then(|()| match &old {
                    _ if self.awaited().contains(id) => set_pinned(&temporary, true),
                    Some(old) => fs::set_permissions(&temporary, old.permissions()),
                    None => Ok(()),
                })
                .and_then(|()| fs::create_dir_all(directory))
                .and_then(|()| fs::rename(&temporary, &path));
            if written.is_err() {
                let _ = fs::remove_file(&temporary);
            }
            written.map(|()| true)
        };
        insert().map_err(DiskError::file("keep", path.clone()))
    }

    /// Keeps a chunk until it is unpinned. False if it is not here.
    pub(crate) fn pin(&self, id: &ChunkId) -> Result<bool, DiskError> {
        let path = self.path_of(id);
        let _turn = self.turn()?;
        match set_pinned(&path, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            pinned => pinned.map(|()| true).map_err(DiskError::file("pin", path)),
        }
    }

    /// These chunks are pinned as soon as they come, from now on.
    pub(crate) fn await_pinned(&self, ids: HashSet<ChunkId>) {
        *self.awaited() = ids;
    }

    fn awaited(&self) -> MutexGuard<'_, HashSet<ChunkId>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_pinned(&self, id: &ChunkId) -> bool {
        fs::metadata(self.path_of(id)).is_ok_and(|metadata| is_pinned(&metadata))
    }

    /// Unpins all chunks but these.
    pub(crate) fn unpin_others(&self, ids: &HashSet<ChunkId>) -> Result<(), DiskError> {
        let unpin = || -> io::Result<()> {
            for entry in entries(self.path())? {
                let name = entry.path.file_stem().and_then(|name| name.to_str());
                let id = name.and_then(|name| name.parse::<ChunkId>().ok());
                if entry.is_pinned && !id.is_some_and(|id| ids.contains(&id)) {
                    set_pinned(&entry.path, false)?;
                }
            }
            Ok(())
        };
        let _turn = self.turn()?;
        unpin().map_err(DiskError::file("unpin chunks of", self.path()))
    }

    /// Makes durable what was written: chunks, and that they are pinned.
    pub(crate) fn flush(&self) -> Result<(), DiskError> {
        let flush = || -> io::Result<()> { Ok(syncfs(File::open(self.path())?)?) };
        flush().map_err(DiskError::file("flush", self.path()))
    }

    /// Where files of repositories are kept with their chunks.
    pub(crate) fn kept(&self) -> PathBuf {
        self.path().join(KEPT)
    }

    /// Where files are written before they are whole.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.path().join(TEMPORARY).join(temporary_name())
    }

    /// The right to fetch a chunk; none if somebody else has it.
    pub(crate) fn lock_fetch(&self, id: &ChunkId) -> Result<Option<FetchLock>, DiskError> {
        let path = self.path().join(FETCHING).join(id.to_string());
        loop {
            let turn = match Turn::alone(&path, Duration::ZERO) {
                Ok(turn) => turn,
                Err(DiskError::Busy { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            // Whoever had it before may have removed the name that was opened here.
            let named = fs::metadata(&path).map(|metadata| metadata.ino()).ok();
            let held = turn.inode().map_err(DiskError::file("lock", &path))?;
            if named == Some(held) {
                return Ok(Some(FetchLock { path, _turn: turn }));
            }
        }
    }

    fn path_of(&self, id: &ChunkId) -> PathBuf {
        self.directory.path_of(&FileName::of_chunk(id))
    }

    fn turn(&self) -> Result<Turn, DiskError> {
        Turn::alone(&self.path().join("usage"), DISK_CACHE_TURN_TIME_MAX)
    }

    /// How many bytes there are, after they have been set to `bytes` if given. If nobody knows,
    /// they are counted. The caller has the turn.
    fn count(&self, bytes: Option<u64>) -> io::Result<u64> {
        let path = self.path().join("usage");
        let mut file = File::options().read(true).write(true).open(path)?;
        let bytes = match bytes {
            Some(bytes) => bytes,
            None => {
                let mut record = Vec::new();
                Read::by_ref(&mut file).take(13).read_to_end(&mut record)?;
                if let Some(bytes) = usage(&record) {
                    return Ok(bytes);
                }
                entries(self.path())?.iter().map(|entry| entry.bytes).sum()
            }
        };
        let number = bytes.to_le_bytes();
        let record = [&number[..], &crc32c::crc32c(&number).to_le_bytes()].concat();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&record)?;
        file.set_len(record.len() as u64)?;
        Ok(bytes)
    }

    /// Removes what was used longest ago until so many bytes more fit, and an eighth besides, so
    /// that the directory is not gone through for each. Says how many bytes are left: more, if so
    /// much is pinned.
    fn make_room(&self, used: u64, bytes: u64) -> io::Result<u64> {
        if used + bytes <= self.bytes_max {
            return Ok(used);
        }
        let mut entries = entries(self.path())?;
        let mut used: u64 = entries.iter().map(|entry| entry.bytes).sum();
        entries.retain(|entry| !entry.is_pinned);
        entries.sort_by_key(|entry| entry.used);
        let target = (self.bytes_max - self.bytes_max / 8).min(self.bytes_max - bytes);
        for entry in entries {
            if used <= target {
                break;
            }
            fs::remove_file(&entry.path)?;
            used -= entry.bytes;
        }
        self.count(Some(used))
    }
}

fn size(bytes: u64) -> u64 {
    bytes.next_multiple_of(BLOCK_BYTES)
}

/// The number in a usage file, if it is whole.
fn usage(record: &[u8]) -> Option<u64> {
    let (number, crc) = record.split_first_chunk::<8>()?;
    (crc == crc32c::crc32c(number).to_le_bytes()).then(|| u64::from_le_bytes(*number))
}

/// Sets the time of a use, if the last one is not a moment ago. A wrong time makes a chunk go
/// sooner or later than it should, and that is all.
fn note_use(path: &Path) {
    let note = || -> io::Result<()> {
        let file = File::open(path)?;
        let (now, used) = (SystemTime::now(), file.metadata()?.modified()?);
        if now.duration_since(used).is_ok_and(|age| age > USE_INTERVAL) {
            file.set_modified(now)?;
        }
        Ok(())
    };
    let _ = note();
}

fn is_pinned(metadata: &fs::Metadata) -> bool {
    metadata.permissions().mode() & OWNER_WRITES == 0
}

fn set_pinned(path: &Path, pinned: bool) -> io::Result<()> {
    let mut permissions = fs::metadata(path)?.permissions();
    let mode = permissions.mode();
    permissions.set_mode(if pinned {
        mode & !OWNER_WRITES
    } else {
        mode | OWNER_WRITES
    });
    fs::set_permissions(path, permissions)
}

/// All chunks of a cache.
fn entries(path: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for directory in fs::read_dir(path.join(CHUNKS))? {
        for entry in fs::read_dir(directory?.path())? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            entries.push(Entry {
                used: metadata.modified()?,
                bytes: size(metadata.len()),
                is_pinned: is_pinned(&metadata),
                path: entry.path(),
            });
        }
    }
    Ok(entries)
}

/// What others have left over who are not there any more.
fn tidy_up(path: &Path) -> io::Result<()> {
    type IsOwn = fn(&str) -> bool;
    let is_own: [(&str, IsOwn); 2] = [
        (TEMPORARY, is_temporary_name),
        (FETCHING, |name| name.parse::<ChunkId>().is_ok()),
    ];
    for (directory, is_own) in is_own {
        for entry in fs::read_dir(path.join(directory))? {
            let entry = entry?;
            // Whoever gave a directory with other things in it keeps them.
            if entry.file_name().to_str().is_some_and(is_own) {
                fs::remove_file(entry.path())?;
            }
        }
    }
    // Counted anew by the first who asks.
    match fs::remove_file(path.join("usage")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
