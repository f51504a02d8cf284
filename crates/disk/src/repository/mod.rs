//! A repository in a local directory or a bucket, written to.
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
//! **Turns**, in a directory. Publishers hold `lock` together, each for as long as it may rely on a
//! chunk that no tag reaches yet; who deletes holds it alone. Both pass `lock.next` on the way, so
//! that publishers without end do not keep the other from ever having his turn. Tags are moved by
//! one at a time (`tags.lock`). All are locks of the kernel: whoever is killed gives them back.
//!
//! **In a bucket** there are no turns, and neither `tmp/` nor locks: see [`crate::bucket`].

mod store;
mod turn;

pub(crate) use store::Chunks;
pub use store::Progress;
pub(crate) use turn::Turn;

use crate::bucket::{Bucket, Stamp, Upload};
use crate::chunk::{ChunkId, Digest};
use crate::error::DiskError;
use crate::index::Index;
use crate::manifest::{Manifest, Tag, TagEntry, TagRecord, VersionId};
use crate::name::{CHUNKS, FileName};
use crate::signed::{SigningKey, Trust};
use crate::source::{Directory, Source};
use base::limits::DISK_SETTLERS;
use bytes::Bytes;
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

/// Of a tag that others move as well, before it is given up.
const TAG_TRIES_MAX: u32 = 10;

/// A repository that can be written to.
#[derive(Clone, Debug)]
pub struct Repository {
    keeper: Keeper,
}

/// Who keeps its files.
#[derive(Clone, Debug)]
enum Keeper {
    Directory(Directory),
    Bucket(Bucket),
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

    /// The repository in this directory. What is usually empty is made if it is missing: programs
    /// that copy repositories to buckets and back leave it out.
    ///
    /// # Errors
    /// [`DiskError::File`] if there is none.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, DiskError> {
        let path = path.into();
        let is_one = path.join(VERSIONS).is_dir() && path.join(TAGS).is_dir();
        if is_one && !path.join(TEMPORARY).exists() {
            // Where that fails, looking for it does, too, and says why.
            let _ = fs::create_dir(path.join(TEMPORARY));
        }
        for directory in DIRECTORIES {
            let directory = path.join(directory);
            let found = fs::read_dir(&directory);
            found.map_err(DiskError::file(
                "open the repository's directory",
                directory,
            ))?;
        }
        Ok(Self {
            keeper: Keeper::Directory(Directory::new(path)),
        })
    }

    /// The repository in a bucket, which need not have anything yet.
    #[must_use]
    pub fn in_bucket(bucket: Bucket) -> Self {
        Self {
            keeper: Keeper::Bucket(bucket),
        }
    }

    /// As what it is read.
    #[must_use]
    pub fn source(&self) -> &dyn Source {
        match &self.keeper {
            Keeper::Directory(directory) => directory,
            Keeper::Bucket(bucket) => bucket,
        }
    }

    /// Its directory, for what only works in one.
    ///
    /// # Errors
    /// [`DiskError::OnlyInDirectory`] says what does.
    pub(crate) fn directory(&self, what: &'static str) -> Result<&Directory, DiskError> {
        match &self.keeper {
            Keeper::Directory(directory) => Ok(directory),
            Keeper::Bucket(bucket) => Err(DiskError::OnlyInDirectory {
                what,
                place: bucket.place().to_owned(),
            }),
        }
    }

    /// How many threads write to it at once: those that wait for a line are more.
    pub(crate) fn workers(&self, wanted: usize) -> usize {
        match &self.keeper {
            Keeper::Directory(_) => wanted,
            Keeper::Bucket(_) => wanted.max(DISK_SETTLERS),
        }
    }

    /// Whether a chunk is there. Its bytes are not looked at.
    ///
    /// # Errors
    /// [`DiskError::File`].
    pub fn has_chunk(&self, id: &ChunkId) -> Result<bool, DiskError> {
        let file = FileName::of_chunk(id);
        let path = match &self.keeper {
            Keeper::Directory(directory) => directory.path_of(&file),
            Keeper::Bucket(bucket) => return bucket.has(&file),
        };
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
        let names = match &self.keeper {
            Keeper::Directory(directory) => names_in(directory, TAGS)?,
            Keeper::Bucket(bucket) => bucket.names_in(TAGS)?,
        };
        let mut tags: Vec<_> = names.iter().filter_map(|name| Tag::of_file(name)).collect();
        tags.sort();
        Ok(tags)
    }

    /// Writes a file that never changes: whole and durable under its name, or an error.
    pub(crate) fn put(&self, file: &FileName, bytes: &[u8]) -> Result<(), DiskError> {
        match &self.keeper {
            Keeper::Directory(directory) => put(directory, file, bytes),
            Keeper::Bucket(bucket) => bucket.put_immutable(file, Bytes::copy_from_slice(bytes)),
        }
    }

    /// By what [`Self::put_if`] knows that a file is as it was. Taken before it is read.
    pub(crate) fn stamp(&self, file: &FileName) -> Result<Option<Stamp>, DiskError> {
        match &self.keeper {
            // The caller has the turn.
            Keeper::Directory(_) => Ok(None),
            Keeper::Bucket(bucket) => bucket.stamp(file).map(Some),
        }
    }

    /// Writes a file that changes, in a directory that may be missing; false if somebody else has
    /// changed it since.
    pub(crate) fn put_if(
        &self,
        file: &FileName,
        stamp: Option<Stamp>,
        bytes: &[u8],
    ) -> Result<bool, DiskError> {
        match (&self.keeper, stamp) {
            (Keeper::Bucket(bucket), Some(stamp)) => {
                bucket.put_if(file, stamp, Bytes::copy_from_slice(bytes))
            }
            _ => {
                let written = self.put_written(file, |file| file.write_all(bytes));
                written.map(|()| true)
            }
        }
    }

    /// [`Self::put`] for a file that is written piece by piece, in a directory that may be missing.
    pub(crate) fn put_written(
        &self,
        file: &FileName,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), DiskError> {
        let directory = match &self.keeper {
            Keeper::Directory(directory) => directory,
            Keeper::Bucket(bucket) => {
                let mut upload = Upload::new(bucket, file);
                let written = write(&mut upload);
                let path = || PathBuf::from(format!("{}/{file}", bucket.place()));
                written.map_err(|error| DiskError::file("write", path())(error))?;
                return upload.finish();
            }
        };
        let path = directory.path_of(file);
        let temporary = temporary(directory);
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
        let _turn = self.turn_at_tags()?;
        // What a tag points to is there and is what it says.
        let manifest = Manifest::read(self.source(), entry.version, trust)?;
        for _ in 0..TAG_TRIES_MAX {
            let stamp = self.stamp(&tag.file())?;
            let record = match TagRecord::find(self.source(), tag, trust)? {
                None => TagRecord::new(tag, entry),
                Some(record) if record.version() == entry.version => record,
                Some(record) => record.moved(entry),
            };
            if self.put_if(&tag.file(), stamp, &record.sign(key))? {
                self.put_index_for_others(tag, &manifest)?;
                return Ok(record);
            }
        }
        Err(self.contested(tag.file()))
    }

    /// As [`Self::move_tag`], for who adds nothing else: what the tag is to point to is not
    /// collected meanwhile.
    ///
    /// # Errors
    /// As [`Self::move_tag`]; [`DiskError::Busy`] if something is collected for longer than `wait`.
    pub fn point_tag(
        &self,
        tag: &Tag,
        entry: TagEntry,
        (key, trust): (&SigningKey, &Trust),
        wait: Duration,
    ) -> Result<TagRecord, DiskError> {
        let _turn = self.turn_to_add(wait)?;
        self.move_tag(tag, entry, key, trust)
    }

    pub(crate) fn contested(&self, file: FileName) -> DiskError {
        DiskError::Contested {
            file,
            place: self.source().place(),
        }
    }

    fn turn_at_tags(&self) -> Result<Option<Turn>, DiskError> {
        self.turn(|path| Turn::alone(&path.join("tags.lock"), TAG_TIME_MAX))
    }

    /// Forgets a tag. What it points to stays until it is collected.
    ///
    /// # Errors
    /// [`DiskError::File`].
    pub fn remove_tag(&self, tag: &Tag) -> Result<(), DiskError> {
        let directory = match &self.keeper {
            Keeper::Directory(directory) => directory,
            Keeper::Bucket(bucket) => {
                bucket.remove(&tag.file())?;
                return bucket.remove(&tag.index_file());
            }
        };
        let _turn = self.turn_at_tags()?;
        let path = directory.path_of(&tag.file());
        let removed = fs::remove_file(&path).and_then(|()| flush_directory(&path));
        removed.map_err(DiskError::file("remove", path))?;
        let path = directory.path_of(&tag.index_file());
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(DiskError::file("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    /// The index under the tag's name, where casync and desync look for it.
    fn put_index_for_others(&self, tag: &Tag, manifest: &Manifest) -> Result<(), DiskError> {
        let (from, to) = (manifest.index_file(), tag.index_file());
        let directory = match &self.keeper {
            Keeper::Directory(directory) => directory,
            Keeper::Bucket(bucket) => return bucket.copy(&from, &to),
        };
        let (from, to) = (directory.path_of(&from), directory.path_of(&to));
        let temporary = temporary(directory);
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
    pub(crate) fn turn_to_add(&self, wait: Duration) -> Result<Option<Turn>, DiskError> {
        self.turn(|path| {
            let _next = Turn::alone(&path.join("lock.next"), wait)?;
            Turn::shared(&path.join("lock"), wait)
        })
    }

    /// The turn of the one who trains: after another one, whose profiles he keeps.
    pub(crate) fn turn_to_train(&self, wait: Duration) -> Result<Option<Turn>, DiskError> {
        self.turn(|path| Turn::alone(&path.join("train.lock"), wait))
    }

    /// In a bucket there are no turns, and nobody needs one.
    fn turn(
        &self,
        take: impl FnOnce(&Path) -> Result<Turn, DiskError>,
    ) -> Result<Option<Turn>, DiskError> {
        match &self.keeper {
            Keeper::Directory(directory) => take(directory.path()).map(Some),
            Keeper::Bucket(_) => Ok(None),
        }
    }
}

/// The turn of the one who deletes. Who comes while he waits is behind him.
pub(crate) fn turn_to_delete(directory: &Directory, wait: Duration) -> Result<Turn, DiskError> {
    let _next = Turn::alone(&directory.path().join("lock.next"), wait)?;
    Turn::alone(&directory.path().join("lock"), wait)
}

/// [`names_in`] for a directory that only those repositories have that need it.
pub(crate) fn names_if_any(directory: &Directory, name: &str) -> Result<Vec<String>, DiskError> {
    match directory.path().join(name).is_dir() {
        true => names_in(directory, name),
        false => Ok(Vec::new()),
    }
}

/// The names in one of a repository's directories; those that no repository has are left out.
pub(crate) fn names_in(directory: &Directory, name: &str) -> Result<Vec<String>, DiskError> {
    let path = directory.path().join(name);
    let names = fs::read_dir(&path).and_then(|entries| {
        let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
        names.filter_map(Result::transpose).collect()
    });
    names.map_err(DiskError::file("list", path))
}

fn put(directory: &Directory, file: &FileName, bytes: &[u8]) -> Result<(), DiskError> {
    let path = directory.path_of(file);
    let temporary = temporary(directory);
    let put = || -> io::Result<()> {
        write_durably(&temporary, bytes)?;
        rename(&temporary, &path)?;
        flush_directory(&path)
    };
    put().map_err(DiskError::file("write", path))
}

/// Where files lie that are not whole yet.
pub(crate) fn temporary_directory(directory: &Directory) -> PathBuf {
    directory.path().join(TEMPORARY)
}

/// A name for one of them.
fn temporary(directory: &Directory) -> PathBuf {
    temporary_directory(directory).join(temporary_name())
}

/// A name that nobody else takes, on this machine or another.
pub(crate) fn temporary_name() -> String {
    let number = RandomState::new().hash_one(std::process::id());
    format!("{}-{number:016x}", std::process::id())
}

/// Whether [`temporary_name`] has made a name: what is called otherwise is somebody else's.
pub(crate) fn is_temporary_name(name: &str) -> bool {
    name.split_once('-').is_some_and(|(process, number)| {
        let is_number = !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
        let is_hash = number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_number && is_hash
    })
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
pub(crate) fn flush_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().expect("a repository's files lie below it");
    File::open(directory)?.sync_all()
}
