//! Publishing: an image file becomes chunks, an index, a manifest and a tag.
//!
//! Source: LB-CAS, section 2 (fixed pieces, stored by digest); what a version shares with what is
//! there costs nothing but reading it.

use crate::chunk::Digest;
use crate::error::DiskError;
use crate::holes;
use crate::index::{ChunkSizes, Index};
use crate::manifest::{Manifest, Tag, TagRecord, VersionId};
use crate::repository::{Chunks, Progress, Repository};
use crate::signed::{SigningKey, Trust};
use base::Extent;
use base::limits::DISK_INDEX_CHUNKS_MAX;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

/// Lengths of chunks that are published: the paper's.
pub const CHUNK_BYTES: [u32; 4] = [64 << 10, 128 << 10, 256 << 10, 512 << 10];
/// The one that is taken if nobody says otherwise.
pub const CHUNK_BYTES_DEFAULT: u32 = 256 << 10;

/// How an image is published.
#[derive(Clone, Debug)]
pub struct Publishing {
    /// Its name.
    pub tag: Tag,
    /// One of [`CHUNK_BYTES`].
    pub chunk_bytes: u32,
    /// By what chunks are named.
    pub digest: Digest,
    /// Of zstd, 1 to 19.
    pub level: i32,
    /// Threads that compress.
    pub workers: usize,
    /// From which versions it was made; none: from the one that the tag points to, if any.
    pub parents: Option<Vec<VersionId>>,
    /// What there is to say about it.
    pub note: String,
    /// Now, in seconds since 1970.
    pub time: i64,
    /// Whose tags may be moved, beside one's own.
    pub trust: Trust,
    /// How long to wait for somebody who deletes.
    pub wait: Duration,
    /// Nothing is written; everything is counted.
    pub dry_run: bool,
}

impl Publishing {
    /// With what is usual, at a time in seconds since 1970.
    #[must_use]
    pub fn new(tag: Tag, time: i64) -> Self {
        Self {
            tag,
            chunk_bytes: CHUNK_BYTES_DEFAULT,
            digest: Digest::default(),
            level: 3,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            parents: None,
            note: String::new(),
            time,
            trust: Trust::Keys(Vec::new()),
            wait: Duration::from_secs(60),
            dry_run: false,
        }
    }

    /// The keys of `trust` and one's own.
    pub(crate) fn trust(&self, key: &SigningKey) -> Trust {
        self.trust.with(key.public())
    }

    /// The parents that were said, or the version that the tag points to.
    pub(crate) fn parents(
        &self,
        repository: &Repository,
        trust: &Trust,
    ) -> Result<Vec<VersionId>, DiskError> {
        if let Some(parents) = &self.parents {
            return Ok(parents.clone());
        }
        let found = TagRecord::find(repository.source(), &self.tag, trust)?;
        Ok(found.iter().map(TagRecord::version).collect())
    }
}

/// What was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The new version; none after a dry run.
    pub version: Option<VersionId>,
    /// Length of the image in bytes.
    pub image_bytes: u64,
    /// Chunks of the image, repeated ones included.
    pub chunks: u64,
    /// Chunks that the repository did not have.
    pub new_chunks: u64,
    /// What they take there, in bytes.
    pub new_bytes: u64,
    /// Bytes of the image that are holes of its file and were not read.
    pub hole_bytes: u64,
}

/// Publishes an image file or block device.
///
/// # Errors
/// [`DiskError`]. The tag then points to where it did; chunks that were written stay until they are
/// collected or the next attempt finds them there.
pub fn publish(
    repository: &Repository,
    image: &Path,
    how: &Publishing,
    key: &SigningKey,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Published, DiskError> {
    if !CHUNK_BYTES.contains(&how.chunk_bytes) {
        return Err(DiskError::ChunkBytes(how.chunk_bytes));
    }
    let _turn = repository.turn_to_add(how.wait)?;
    let trust = how.trust(key);
    let parents = how.parents(repository, &trust)?;
    manifest(how, parents.clone(), 0, 0).check_limits()?;
    let failed = |action| DiskError::file(action, image);
    let file = File::open(image).map_err(failed("open"))?;
    let before = file.metadata().map_err(failed("open"))?;
    let image_bytes = holes::length(&file).map_err(failed("measure"))?;
    let data = holes::data(&file, image_bytes).map_err(failed("find the holes of"))?;
    let pieces = grid(image_bytes, how.chunk_bytes)?;
    let read = |piece: Extent, bytes: &mut [u8]| {
        if !data.overlaps(piece) {
            return Ok(false);
        }
        let read = file.read_exact_at(bytes, piece.offset);
        read.map(|()| true).map_err(|error| shrunk(image, error))
    };
    let stored = Chunks {
        repository,
        digest: how.digest,
        level: how.level,
        workers: how.workers,
        dry_run: how.dry_run,
        pieces: &pieces,
        read: &read,
        progress,
    }
    .store()?;
    let after = file.metadata().map_err(failed("open"))?;
    if stamp(&before) != stamp(&after) {
        return Err(DiskError::Changed(image.to_owned()));
    }
    let mut published = Published {
        version: None,
        image_bytes,
        chunks: pieces.len() as u64,
        new_chunks: stored.new_chunks,
        new_bytes: stored.new_bytes,
        hole_bytes: image_bytes - data.bytes(),
    };
    if how.dry_run {
        return Ok(published);
    }
    let chunks = pieces.iter().map(|piece| piece.end()).zip(stored.ids);
    let index = Index::new(how.digest, ChunkSizes::fixed(how.chunk_bytes), chunks)
        .expect("a grid within the limits is an index");
    let mut manifest = manifest(how, parents, stored.new_chunks, stored.new_bytes);
    let version = repository.add_version(&index, &mut manifest, &how.tag, key, &trust)?;
    published.version = Some(version);
    Ok(published)
}

/// A manifest without what its index says.
pub(crate) fn manifest(
    how: &Publishing,
    parents: Vec<VersionId>,
    new_chunks: u64,
    new_bytes: u64,
) -> Manifest {
    Manifest {
        image_bytes: 0,
        index: [0; 32],
        index_bytes: 0,
        parents,
        time: how.time,
        new_bytes,
        new_chunks,
        note: how.note.clone(),
    }
}

fn grid(image_bytes: u64, chunk_bytes: u32) -> Result<Vec<Extent>, DiskError> {
    let chunk_bytes = u64::from(chunk_bytes);
    let count = image_bytes.div_ceil(chunk_bytes);
    if count > DISK_INDEX_CHUNKS_MAX as u64 {
        return Err(DiskError::ImageTooLong(image_bytes));
    }
    let image = Extent::new(0, image_bytes);
    let pieces = (0..count).map(|number| Extent::new(number * chunk_bytes, chunk_bytes));
    Ok(pieces.map(|piece| piece.intersection(image)).collect())
}

fn shrunk(image: &Path, error: io::Error) -> DiskError {
    match error.kind() {
        ErrorKind::UnexpectedEof => DiskError::Changed(image.to_owned()),
        _ => DiskError::file("read", image)(error),
    }
}

/// By what a change of a file is noticed. A block device has none of it.
fn stamp(metadata: &Metadata) -> (u64, i64, i64, i64, i64) {
    let (mtime, ctime) = (metadata.mtime(), metadata.ctime());
    (
        metadata.len(),
        mtime,
        metadata.mtime_nsec(),
        ctime,
        metadata.ctime_nsec(),
    )
}
