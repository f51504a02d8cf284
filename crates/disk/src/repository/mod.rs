//! A repository in a local directory, written to.
//!
//! ```text
//! default.castr/abcd/abcd....cacnk    chunks
//! indexes/<digest>.caibx              indexes by digest: a manifest names one
//! versions/<digest>.azm               manifests
//! trainings/<version>.azn             how a version is cut for its profiles; packs of these
//! packs/<digest>.azp                  chunks of a profile in one file
//! tags/<image>@<label>.azt            where names point; the roots of all that is kept
//! <image>@<label>.caibx               the same of what a tag points to, for casync and desync
//! tmp/                                files that are not whole yet
//! lock, lock.next, tags.lock,         whose turn it is
//! train.lock
//! ```
//!
//! A file appears whole and durable under its name or not at all: it is written in `tmp/`, flushed
//! and renamed. Chunks come first, then the index, the manifest, and last the tag; whenever power
//! is lost, every tag points to a version of which everything is there. What was not finished is
//! garbage, which [`crate::gc`] collects.
//!
//! **Turns.** Publishers hold `lock` together, each for as long as it may rely on a chunk that no
//! tag reaches yet; who deletes holds it alone. Both pass `lock.next` on the way, so that
//! publishers without end do not keep the other from ever having his turn. Tags are moved by one at
//! a time (`tags.lock`). All are locks of the kernel: whoever is killed gives them back.

mod store;
mod turn;

pub(crate) use store::Chunks;
pub use store::Progress;
pub(crate) use turn::Turn;

use crate::chunk::{ChunkId, Digest};
use crate::error::DiskError;
use crate::index::Index;
use crate::manifest::{Manifest, Tag, TagEntry, TagRecord, VersionId};
use crate::name::{CHUNKS, FileName};
use crate::signed::{SigningKey, Trust};
use crate::source::Directory;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

const TEMPORARY: &str = "tmp";
pub(crate) const TAGS: &str = "tags";
pub(crate) const VERSIONS: &str = "versions";
pub(crate) const INDEXES: &str = "indexes";
/// Directories that every repository has.
const DIRECTORIES: [&str; 5] = [CHUNKS, INDEXES, VERSIONS, TAGS, TEMPORARY];
/// Moving a tag is a few files; who has its turn longer is stuck.
const TAG_TIME_MAX: Duration = Duration::from_secs(30);

/// A repository in a local directory.
#[derive(Clone, Debug)]
pub struct Repository {
    directory: Directory,
}

impl Repository {
    /// The repository in this directory; what is missing is made.
    ///
    /// # Errors
    /// [`DiskError::File`].
    pub fn create(path: impl Into<PathBuf>) -> Result<Self, DiskError> {
        let path = path.into();
        for directory in DIRECTORIES {
            let directory = path.join(directory);
            let made = fs::create_dir_all(&directory);
            made.map_err(DiskError::file("make the directory", directory))?;
        }
        Self::open(path)
    }

    /// The repository in this directory.
    ///
    /// # Errors
    /// [`DiskError::File`] if there is none.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DiskError> {
        let path = path.into();
        for directory in DIRECTORIES {
            let directory = path.join(directory);
            let found = fs::read_dir(&directory);
            found.map_err(DiskError::file(
                "open the repository's directory",
                directory,
            ))?;
        }
        Ok(Self {
            directory: Directory::new(path),
        })
    }

    /// As what it is read.
    #[must_use]
    pub fn source(&self) -> &Directory {
        &self.directory
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path_of(&self, file: &FileName) -> PathBuf {
        self.directory.path_of(file)
    }

    /// Whether a chunk is there. Its bytes are not looked at.
    ///
    /// # Errors
    /// [`DiskError::File`].
    pub fn has_chunk(&self, id: &ChunkId) -> Result<bool, DiskError> {
        let path = self.path_of(&FileName::of_chunk(id));
        match fs::metadata(&path) {
            Ok(metadata) => Ok(metadata.is_file() && metadata.len() > 0),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(DiskError::file("look for the chunk", path)(error)),
        }
    }

    /// All tags, in order.
    ///
    /// # Errors
    /// [`DiskError::File`].
    pub fn tags(&self) -> Result<Vec<Tag>, DiskError> {
        let names = self.names_in(TAGS)?;
        let mut tags: Vec<_> = names.iter().filter_map(|name| Tag::of_file(name)).collect();
        tags.sort();
        Ok(tags)
    }

    /// [`Self::names_in`] for a directory that only those repositories have that need it.
    pub(crate) fn names_if_any(&self, directory: &str) -> Result<Vec<String>, DiskError> {
        if self.path().join(directory).is_dir() {
            self.names_in(directory)
        } else {
            Ok(Vec::new())
        }
    }

    /// The names in one of its directories; those that no repository has are left out.
    pub(crate) fn names_in(&self, directory: &str) -> Result<Vec<String>, DiskError> {
        let path = self.path().join(directory);
        let names = fs::read_dir(&path).and_then(|entries| {
            let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
            names.filter_map(Result::transpose).collect()
        });
        names.map_err(DiskError::file("list", path))
    }

    /// Writes a file: whole and durable under its name, or an error.
    pub(crate) fn put(&self, file: &FileName, bytes: &[u8]) -> Result<(), DiskError> {
        let path = self.path_of(file);
        let temporary = self.temporary();
        let put = || -> io::Result<()> {
            write_durably(&temporary, bytes)?;
            rename(&temporary, &path)?;
            flush_directory(&path)
        };
        put().map_err(DiskError::file("write", path))
    }

    /// [`Self::put`] for a file that is written piece by piece, in a directory that may be missing.
    pub(crate) fn put_written(
        &self,
        file: &FileName,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<(), DiskError> {
        let path = self.path_of(file);
        let temporary = self.temporary();
        let put = || -> io::Result<()> {
            let mut file = File::create_new(&temporary)?;
            write(&mut file).and_then(|()| file.sync_data())?;
            let directory = path.parent().expect("a repository's files lie below it");
            fs::create_dir_all(directory)?;
            rename(&temporary, &path)?;
            flush_directory(&path)?;
            // The directory may be new, and so must last itself.
            flush_directory(directory)
        };
        let written = put();
        if written.is_err() {
            // The first error is the one to tell; what is left lies in the directory for that.
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(DiskError::file("write", path))
    }

    /// A name for a file that is not whole yet.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.path().join(TEMPORARY).join(temporary_name())
    }

    /// Points a tag to a version, whose index is `index`.
    ///
    /// # Errors
    /// [`DiskError`], also if the tag is there and was not signed by somebody in `trust`.
    pub fn move_tag(
        &self,
        tag: &Tag,
        entry: TagEntry,
        key: &SigningKey,
        trust: &Trust,
    ) -> Result<TagRecord, DiskError> {
        let _turn = Turn::alone(&self.path().join("tags.lock"), TAG_TIME_MAX)?;
        let found = TagRecord::find(&self.directory, tag, trust)?;
        // What a tag points to is there and is what it says.
        let manifest = Manifest::read(&self.directory, entry.version, trust)?;
        let record = match found {
            None => TagRecord::new(tag, entry),
            Some(record) if record.version() == entry.version => record,
            Some(record) => record.moved(entry),
        };
        self.put(&tag.file(), &record.sign(key))?;
        self.put_index_for_others(tag, &manifest)?;
        Ok(record)
    }

    /// Forgets a tag. What it points to stays until it is collected.
    ///
    /// # Errors
    /// [`DiskError::File`].
    pub fn remove_tag(&self, tag: &Tag) -> Result<(), DiskError> {
        let _turn = Turn::alone(&self.path().join("tags.lock"), TAG_TIME_MAX)?;
        let path = self.path_of(&tag.file());
        let removed = fs::remove_file(&path).and_then(|()| flush_directory(&path));
        removed.map_err(DiskError::file("remove", path))?;
        let path = self.path_of(&tag.index_file());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(DiskError::file("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    /// The index under the tag's name, where casync and desync look for it.
    fn put_index_for_others(&self, tag: &Tag, manifest: &Manifest) -> Result<(), DiskError> {
        let from = self.path_of(&manifest.index_file());
        let to = self.path_of(&tag.index_file());
        let temporary = self.temporary();
        let put = || -> io::Result<()> {
            // Not every file system knows links.
            if fs::hard_link(&from, &temporary).is_err() {
                write_durably(&temporary, &fs::read(&from)?)?;
            }
            rename(&temporary, &to)?;
            flush_directory(&to)
        };
        put().map_err(DiskError::file("write", to.clone()))
    }

    /// Writes an index and a manifest that names it, and points a tag there.
    pub(crate) fn add_version(
        &self,
        index: &Index,
        manifest: &mut Manifest,
        tag: &Tag,
        key: &SigningKey,
        trust: &Trust,
    ) -> Result<VersionId, DiskError> {
        let bytes = index.to_bytes();
        manifest.image_bytes = index.image_bytes();
        manifest.index = Digest::Sha512Half.id_of(&bytes).0;
        manifest.index_bytes = bytes.len() as u64;
        self.put(&manifest.index_file(), &bytes)?;
        let (version, bytes) = manifest.sign(key);
        self.put(&version.file(), &bytes)?;
        let entry = TagEntry {
            version,
            time: manifest.time,
        };
        self.move_tag(tag, entry, key, trust)?;
        Ok(version)
    }

    /// A turn for somebody who adds chunks, beside others who do.
    pub(crate) fn turn_to_add(&self, wait: Duration) -> Result<Turn, DiskError> {
        let _next = Turn::alone(&self.path().join("lock.next"), wait)?;
        Turn::shared(&self.path().join("lock"), wait)
    }

    /// The turn of the one who trains: after another one, whose profiles he keeps.
    pub(crate) fn turn_to_train(&self, wait: Duration) -> Result<Turn, DiskError> {
        Turn::alone(&self.path().join("train.lock"), wait)
    }

    /// The turn of the one who deletes. Who comes while he waits is behind him.
    pub(crate) fn turn_to_delete(&self, wait: Duration) -> Result<Turn, DiskError> {
        let _next = Turn::alone(&self.path().join("lock.next"), wait)?;
        Turn::alone(&self.path().join("lock"), wait)
    }

    pub(crate) fn temporary_directory(&self) -> PathBuf {
        self.path().join(TEMPORARY)
    }
}

/// A name that nobody else takes, on this machine or another.
pub(crate) fn temporary_name() -> String {
    let number = RandomState::new().hash_one(std::process::id());
    format!("{}-{number:016x}", std::process::id())
}

/// Writes a new file and flushes it.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_data());
    if written.is_err() {
        // The first error is the one to tell; what is left lies in the directory for that.
        let _ = fs::remove_file(path);
    }
    written
}

/// Renames a temporary file. Between two links of one file that does nothing, and the first stays.
fn rename(temporary: &Path, path: &Path) -> io::Result<()> {
    let renamed = fs::rename(temporary, path);
    // In the usual case it is not there any more.
    let _ = fs::remove_file(temporary);
    renamed
}

/// Flushes the directory of a file, so that its name lasts.
fn flush_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().expect("a repository's files lie below it");
    File::open(directory)?.sync_all()
}
