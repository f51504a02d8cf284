//! Versions of images, and the names that point to them.
//!
//! A **version** is an image as it was published once: a [`Manifest`], signed and never changed,
//! named by the digest of its file. A **tag** is a name such as `base:1` that points to a version
//! and can be moved; its record remembers where it pointed before, so that going back is moving it
//! again. A tag's record says its own name: whoever can write to the web server cannot pass one
//! name's record off as another's. What he can do is to show an older record of the same name.

use crate::chunk::{ChunkId, Digest};
use crate::error::{Damage, DiskError};
use crate::index::Index;
use crate::name::{FileName, is_component};
use crate::signed::{self, Bytes32, Kind, SigningKey, Trust};
use crate::source::{Part, Source, SourceError, read_known};
use base::limits::{
    DISK_IMAGE_BYTES_MAX, DISK_NOTE_BYTES_MAX, DISK_PARENTS_MAX, DISK_RECORD_BYTES_MAX,
    DISK_TAG_HISTORY_MAX,
};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Longest half of a tag's name.
const TAG_PART_BYTES_MAX: usize = 64;

/// The digest (SHA-512/256) of a manifest's file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VersionId(pub Bytes32);

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ChunkId(self.0).fmt(f)
    }
}

impl fmt::Debug for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for VersionId {
    type Err = crate::chunk::NotAnId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(|id: ChunkId| Self(id.0))
    }
}

impl VersionId {
    /// Where its manifest lies.
    #[must_use]
    pub fn file(&self) -> FileName {
        FileName::made(format!("versions/{self}.azm"))
    }
}

/// A name of an image: `image:label`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag {
    image: Box<str>,
    label: Box<str>,
}

impl Tag {
    /// What is before the colon.
    #[must_use]
    pub fn image(&self) -> &str {
        &self.image
    }

    /// What is behind the colon.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Where its record lies.
    #[must_use]
    pub fn file(&self) -> FileName {
        FileName::made(format!("tags/{}@{}.azt", self.image, self.label))
    }

    /// Where an index of what it points to lies, for casync and desync. To casync a colon would
    /// mean another machine.
    #[must_use]
    pub fn index_file(&self) -> FileName {
        FileName::made(format!("{}@{}.caibx", self.image, self.label))
    }

    /// The tag whose record has this name in its directory.
    #[must_use]
    pub fn of_file(name: &str) -> Option<Self> {
        let (image, label) = name.strip_suffix(".azt")?.split_once('@')?;
        format!("{image}:{label}").parse().ok()
    }
}

impl FromStr for Tag {
    type Err = DiskError;

    fn from_str(text: &str) -> Result<Self, DiskError> {
        let is_part = |part: &str| {
            is_component(part) && part.len() <= TAG_PART_BYTES_MAX && !part.contains('@')
        };
        match text.split_once(':') {
            Some((image, label)) if is_part(image) && is_part(label) => Ok(Self {
                image: image.into(),
                label: label.into(),
            }),
            _ => Err(DiskError::Tag(text.chars().take(200).collect())),
        }
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.image, self.label)
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What one version is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Length of the image in bytes.
    pub image_bytes: u64,
    /// The digest (SHA-512/256) of the index file.
    pub index: Bytes32,
    /// Length of the index file in bytes.
    pub index_bytes: u64,
    /// The versions from which this one was made.
    pub parents: Vec<VersionId>,
    /// When it was published, in seconds since 1970.
    pub time: i64,
    /// Bytes that were added to the repository, as they are stored.
    pub new_bytes: u64,
    /// Chunks that were added to the repository.
    pub new_chunks: u64,
    /// What its publisher says.
    pub note: String,
}

impl Manifest {
    /// The file, and the version that it makes.
    #[must_use]
    pub fn sign(&self, key: &SigningKey) -> (VersionId, Vec<u8>) {
        let bytes = key.sign(Kind::Manifest, self);
        (VersionId(Digest::Sha512Half.id_of(&bytes).0), bytes)
    }

    /// Where the index lies.
    #[must_use]
    pub fn index_file(&self) -> FileName {
        FileName::made(format!("indexes/{}.caibx", ChunkId(self.index)))
    }

    /// Whether it can be read again.
    pub(crate) fn check_limits(&self) -> Result<(), DiskError> {
        if self.is_within_limits() {
            return Ok(());
        }
        Err(DiskError::Damaged {
            place: "a manifest with more bytes, parents or text than it can have".into(),
            damage: Damage::Record,
        })
    }

    fn is_within_limits(&self) -> bool {
        self.image_bytes <= DISK_IMAGE_BYTES_MAX
            && self.parents.len() <= DISK_PARENTS_MAX
            && self.note.len() <= DISK_NOTE_BYTES_MAX
    }

    /// Reads the manifest of a version.
    ///
    /// # Errors
    /// [`DiskError`], also if nobody who is trusted has signed it.
    pub fn read(source: &dyn Source, version: VersionId, trust: &Trust) -> Result<Self, DiskError> {
        let file = version.file();
        let bytes = read_known(source, &file, record(), version.0)?;
        let place = || format!("{file} at {}", source.place());
        let manifest: Self = signed::open_trusted(Kind::Manifest, &bytes, trust, place)?;
        if !manifest.is_within_limits() {
            return Err(damaged(source, &file, Damage::Record));
        }
        Ok(manifest)
    }

    /// Reads the index.
    ///
    /// # Errors
    /// [`DiskError`], also if it is not the index that the manifest means.
    pub fn read_index(&self, source: &dyn Source) -> Result<Index, DiskError> {
        let file = self.index_file();
        let damaged = |damage| damaged(source, &file, damage);
        let most = Index::file_bytes(base::limits::DISK_INDEX_CHUNKS_MAX);
        let bytes_max = self.index_bytes.min(most);
        let bytes = read_known(source, &file, Part::Whole { bytes_max }, self.index)?;
        let index = Index::from_bytes(&bytes).map_err(damaged)?;
        if index.image_bytes() != self.image_bytes {
            return Err(damaged(Damage::Foreign));
        }
        Ok(index)
    }
}

/// Where a tag points, and has pointed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagRecord {
    /// The tag.
    tag: String,
    /// One more with each move.
    pub moves: u64,
    /// Where it points, and where it did before; the newest first.
    pub entries: Vec<TagEntry>,
}

/// Where a tag pointed from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagEntry {
    /// To which version.
    pub version: VersionId,
    /// Since when, in seconds since 1970.
    pub time: i64,
}

impl TagRecord {
    /// Of a tag that is new.
    #[must_use]
    pub fn new(tag: &Tag, entry: TagEntry) -> Self {
        Self {
            tag: tag.to_string(),
            moves: 0,
            entries: vec![entry],
        }
    }

    /// The record after the tag was moved. The oldest entries are forgotten beyond what is kept.
    #[must_use]
    pub fn moved(mut self, entry: TagEntry) -> Self {
        self.moves += 1;
        self.entries.insert(0, entry);
        self.entries.truncate(DISK_TAG_HISTORY_MAX);
        self
    }

    /// Where it points.
    #[must_use]
    pub fn version(&self) -> VersionId {
        self.entries[0].version
    }

    /// The file.
    #[must_use]
    pub fn sign(&self, key: &SigningKey) -> Vec<u8> {
        key.sign(Kind::Tag, self)
    }

    /// Reads a tag's record.
    ///
    /// # Errors
    /// [`DiskError`], also if nobody who is trusted has signed it.
    pub fn read(source: &dyn Source, tag: &Tag, trust: &Trust) -> Result<Self, DiskError> {
        let file = tag.file();
        let bytes = source.read_now(&file, record())?;
        let place = || format!("{file} at {}", source.place());
        let found: Self = signed::open_trusted(Kind::Tag, &bytes, trust, place)?;
        if found.tag != tag.to_string() {
            return Err(damaged(source, &file, Damage::Foreign));
        }
        if found.entries.is_empty() || found.entries.len() > DISK_TAG_HISTORY_MAX {
            return Err(damaged(source, &file, Damage::Record));
        }
        Ok(found)
    }

    /// [`Self::read`]; none if there is no such tag.
    ///
    /// # Errors
    /// See [`Self::read`].
    pub fn find(source: &dyn Source, tag: &Tag, trust: &Trust) -> Result<Option<Self>, DiskError> {
        match Self::read(source, tag, trust) {
            Err(DiskError::Source(SourceError { refusal, .. })) if refusal.is_not_found() => {
                Ok(None)
            }
            found => found.map(Some),
        }
    }
}

const fn record() -> Part {
    Part::Whole {
        bytes_max: DISK_RECORD_BYTES_MAX,
    }
}

fn damaged(source: &dyn Source, file: &FileName, damage: Damage) -> DiskError {
    DiskError::Damaged {
        place: format!("{file} at {}", source.place()),
        damage,
    }
}

#[cfg(test)]
mod tests;
