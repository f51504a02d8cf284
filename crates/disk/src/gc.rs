//! Collecting what nothing points to any more.
//!
//! **Roots** are what tags point to, and as much of what they pointed to before as is to be kept;
//! and every `.caibx` beside the directories, because casync and desync may have put it there. What
//! a root needs is kept. If a root cannot be read, nothing is deleted: a damaged index does not
//! make its chunks garbage.
//!
//! **Turns.** Roots are gone through beside publishers, which is the long part. Then the turn is
//! taken alone, only roots that have changed meanwhile are gone through, and the rest is deleted.
//! So nobody relies on a chunk at the moment when it goes: publishers hold their turn from before
//! they look for the first chunk until their tag points to the last.
//!
//! **Buckets** are not collected: they know no turns, so that a publisher might rely on a chunk at
//! the moment when it goes.
//!
//! **Trainings** of a version that is kept are roots as well: their indexes and packs are kept. The
//! chunks of a pack are copies, and need nothing.
//!
//! **Order.** Trainings and manifests go first, durably, then indexes, then chunks. A manifest that
//! is there therefore says that all its chunks are, whenever power is lost; commits rely on that.

use crate::chunk::ChunkId;
use crate::error::{Damage, DiskError};
use crate::index::Index;
use crate::manifest::{Manifest, TagRecord, VersionId};
use crate::name::{CHUNKS, FileName};
use crate::pack::PACKS;
use crate::repository::{
    INDEXES, Repository, VERSIONS, is_temporary_name, names_if_any, names_in, temporary_directory,
    turn_to_delete,
};
use crate::signed::Trust;
use crate::source::{Directory, Part, Source};
use crate::training::{TRAININGS, Training};
use base::limits::DISK_INDEX_CHUNKS_MAX;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is kept, and how it is collected.
#[derive(Clone, Copy, Debug)]
pub struct Collecting {
    /// Of each tag, how many of the versions that it pointed to last; the one that it points to
    /// is kept in any case.
    pub history: usize,
    /// How long to wait for publishers to finish.
    pub wait: Duration,
    /// Nothing is deleted; everything is counted.
    pub dry_run: bool,
}

impl Default for Collecting {
    fn default() -> Self {
        Self {
            history: usize::MAX,
            // Publishers who come meanwhile wait twice as long.
            wait: Duration::from_secs(30),
            dry_run: false,
        }
    }
}

/// What was deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Manifests, and the trainings of these versions.
    pub versions: u64,
    /// Indexes.
    pub indexes: u64,
    /// Packs.
    pub packs: u64,
    /// Chunks.
    pub chunks: u64,
    /// Files that publishers left over that were killed.
    pub left_over: u64,
    /// Bytes of all these.
    pub bytes: u64,
    /// Chunks that are needed.
    pub kept_chunks: u64,
}

/// Deletes what no root needs.
///
/// # Errors
/// [`DiskError::Busy`] if publishers did not finish in time; [`DiskError::OnlyInDirectory`]; any
/// error of a root that cannot be read. Nothing was deleted then.
pub fn collect(repository: &Repository, how: &Collecting) -> Result<Collected, DiskError> {
    let directory = repository.directory("collecting")?;
    let mut marked = Marked::default();
    marked.mark(repository, directory, how.history)?;
    let _turn = turn_to_delete(directory, how.wait)?;
    // What was a root a moment ago and is none any more is found the next time.
    marked.mark(repository, directory, how.history)?;
    let path = directory.path();
    let mut sweep = Sweep {
        dry_run: how.dry_run,
        bytes: 0,
    };
    let mut versions = 0;
    if path.join(TRAININGS).is_dir() {
        versions = sweep.files(&path.join(TRAININGS), |name| {
            let version = Training::version_of_file(name);
            version.is_some_and(|version| !marked.versions.contains_key(&version))
        })?;
    }
    versions += sweep.files(&path.join(VERSIONS), |name| {
        let version = name.strip_suffix(".azm").and_then(|id| id.parse().ok());
        version.is_some_and(|version: VersionId| !marked.versions.contains_key(&version))
    })?;
    let indexes = sweep.files(&path.join(INDEXES), |name| {
        let id = name.strip_suffix(".caibx").and_then(|id| id.parse().ok());
        id.is_some_and(|id: ChunkId| !marked.indexes.contains(&id))
    })?;
    let mut packs = 0;
    if path.join(PACKS).is_dir() {
        packs = sweep.files(&path.join(PACKS), |name| {
            let id = name.strip_suffix(".azp").and_then(|id| id.parse().ok());
            id.is_some_and(|id: ChunkId| !marked.packs.contains(&id))
        })?;
    }
    let mut chunks = 0;
    for name in names_in(directory, CHUNKS)? {
        let chunks_of = path.join(CHUNKS).join(name);
        if chunks_of.is_dir() {
            chunks += sweep.files(&chunks_of, |name| {
                let id = name.strip_suffix(".cacnk").and_then(|id| id.parse().ok());
                id.is_some_and(|id: ChunkId| !marked.chunks.contains(&id))
            })?;
        }
    }
    let left_over = sweep.files(&temporary_directory(directory), is_temporary_name)?;
    Ok(Collected {
        versions,
        indexes,
        packs,
        chunks,
        left_over,
        bytes: sweep.bytes,
        kept_chunks: marked.chunks.len() as u64,
    })
}

/// What roots need, as far as they have been gone through.
#[derive(Default)]
struct Marked {
    /// With the index of each.
    versions: HashMap<VersionId, ChunkId>,
    indexes: HashSet<ChunkId>,
    packs: HashSet<ChunkId>,
    chunks: HashSet<ChunkId>,
    /// Indexes of others that were gone through: inode, length and time.
    others: HashSet<(u64, u64, i64, i64)>,
}

impl Marked {
    fn mark(
        &mut self,
        repository: &Repository,
        directory: &Directory,
        history: usize,
    ) -> Result<(), DiskError> {
        for tag in repository.tags()? {
            // Whoever has signed it: somebody points there.
            let found = TagRecord::find(repository.source(), &tag, &Trust::Anybody)?;
            let Some(record) = found else {
                continue;
            };
            for (age, entry) in record.entries.iter().enumerate().take(history.max(1)) {
                self.mark_version(repository, entry.version, age > 0)?;
            }
        }
        self.mark_trainings(directory)?;
        self.mark_others(directory)
    }

    /// How the versions that are kept were trained; anew each time, because that changes.
    fn mark_trainings(&mut self, directory: &Directory) -> Result<(), DiskError> {
        for name in names_if_any(directory, TRAININGS)? {
            let version = Training::version_of_file(&name);
            let Some(version) = version.filter(|version| self.versions.contains_key(version))
            else {
                continue;
            };
            let source = directory;
            let Some(training) = Training::find(source, version, &Trust::Anybody)? else {
                continue;
            };
            self.packs
                .extend(training.packs().iter().map(|pack| ChunkId(pack.id)));
            if self.indexes.insert(ChunkId(training.index)) {
                let manifest = Manifest::read(source, version, &Trust::Anybody)?;
                let index = training.read_index(source, &manifest)?;
                self.chunks.extend(index.ids());
            }
        }
        Ok(())
    }

    /// What a tag pointed to earlier may have been collected, with less history kept.
    fn mark_version(
        &mut self,
        repository: &Repository,
        version: VersionId,
        may_be_gone: bool,
    ) -> Result<(), DiskError> {
        if self.versions.contains_key(&version) {
            return Ok(());
        }
        let manifest = match Manifest::read(repository.source(), version, &Trust::Anybody) {
            Err(DiskError::Source(error)) if may_be_gone && error.refusal.is_not_found() => {
                return Ok(());
            }
            manifest => manifest?,
        };
        let index_id = ChunkId(manifest.index);
        if !self.indexes.contains(&index_id) {
            let index = manifest.read_index(repository.source())?;
            self.chunks.extend(index.ids());
            self.indexes.insert(index_id);
        }
        self.versions.insert(version, index_id);
        Ok(())
    }

    /// Indexes under the names that casync and desync know.
    fn mark_others(&mut self, directory: &Directory) -> Result<(), DiskError> {
        for name in others(directory)? {
            let path = directory.path().join(&name);
            let stamp = fs::metadata(&path).map(|metadata| {
                let time = (metadata.mtime(), metadata.mtime_nsec());
                (metadata.ino(), metadata.len(), time.0, time.1)
            });
            let stamp = match stamp {
                // A tag was removed a moment ago.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                stamp => stamp.map_err(DiskError::file("look at", &path))?,
            };
            if self.others.contains(&stamp) {
                continue;
            }
            let index = read_other(directory, &name, &path)?;
            self.chunks.extend(index.ids());
            self.others.insert(stamp);
        }
        Ok(())
    }
}

/// The names of indexes beside the directories. One that is no text names a root as well as others.
fn others(directory: &Directory) -> Result<Vec<String>, DiskError> {
    let path = directory.path();
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(DiskError::file("list", path))? {
        let name = entry.map_err(DiskError::file("list", path))?.file_name();
        if name.as_encoded_bytes().ends_with(b".caibx") {
            let name = name.into_string().map_err(|name| DiskError::Damaged {
                place: path.join(name).display().to_string(),
                damage: Damage::Name,
            });
            names.push(name?);
        }
    }
    Ok(names)
}

fn read_other(directory: &Directory, name: &str, path: &Path) -> Result<Index, DiskError> {
    let damaged = |damage| DiskError::Damaged {
        place: path.display().to_string(),
        damage,
    };
    let file = FileName::new(name).map_err(|_| damaged(Damage::Name))?;
    let bytes_max = Index::file_bytes(DISK_INDEX_CHUNKS_MAX);
    let bytes = directory.read_now(&file, Part::Whole { bytes_max })?;
    Index::from_bytes(&bytes).map_err(damaged)
}

/// Deletes files, or counts them.
struct Sweep {
    dry_run: bool,
    bytes: u64,
}

impl Sweep {
    /// Deletes the files of a directory that are garbage by their names, durably.
    fn files(
        &mut self,
        directory: &Path,
        is_garbage: impl Fn(&str) -> bool,
    ) -> Result<u64, DiskError> {
        let mut count = 0;
        let failed = |path: &Path| DiskError::file("delete", path.to_owned());
        let entries = fs::read_dir(directory).map_err(failed(directory))?;
        for entry in entries {
            let entry = entry.map_err(failed(directory))?;
            let name = entry.file_name();
            if !name.to_str().is_some_and(&is_garbage) {
                continue;
            }
            let path: PathBuf = entry.path();
            let metadata = entry.metadata().map_err(failed(&path))?;
            if !metadata.is_file() {
                continue;
            }
            if !self.dry_run {
                fs::remove_file(&path).map_err(failed(&path))?;
            }
            self.bytes += metadata.len();
            count += 1;
        }
        // The order of deletions between directories must outlast a loss of power.
        if count > 0 && !self.dry_run {
            let flushed = fs::File::open(directory).and_then(|directory| directory.sync_all());
            flushed.map_err(failed(directory))?;
        }
        Ok(count)
    }
}
