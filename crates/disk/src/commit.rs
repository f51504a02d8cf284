//! Committing: what was written onto a version becomes the next one.
//!
//! Only chunks that have a changed block are read, named and stored; the index is the base's with
//! other ids in these places, wherever it cuts. So the time follows what changed, not the image.

use crate::error::DiskError;
use crate::manifest::Manifest;
use crate::overlay::Overlay;
use crate::publish::{Published, Publishing, manifest};
use crate::repository::{Chunks, Progress, Repository};
use crate::signed::SigningKey;
use base::{BlockDevice, Extent};
use std::collections::BTreeSet;

/// Publishes what an overlay shows as a version whose parent is the overlay's. Nobody writes to the
/// overlay meanwhile. It stays as it is: over its old version, with its changes.
///
/// The lengths of chunks and the digest are those of the old version, which must be in this
/// repository: what did not change is not copied.
///
/// # Errors
/// [`DiskError`]. The tag then points to where it did.
pub fn commit(
    repository: &Repository,
    overlay: &Overlay,
    how: &Publishing,
    key: &SigningKey,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Published, DiskError> {
    let _turn = repository.turn_to_add(how.wait)?;
    let trust = how.trust(key);
    // A manifest that is there says that its chunks are: whoever collects removes it first.
    let base = Manifest::read(repository.source(), overlay.version(), &trust)?;
    let index = base.read_index(repository.source())?;
    let parents = how.parents.clone();
    let parents = parents.unwrap_or_else(|| vec![overlay.version()]);
    let mut next = manifest(how, parents, 0, 0);
    next.check_limits()?;
    let _frozen = overlay.freeze();
    let changed = overlay.changed();
    let numbers: BTreeSet<_> = changed
        .iter()
        .flat_map(|run| index.chunks_of(run))
        .collect();
    let pieces: Vec<_> = numbers
        .iter()
        .map(|&number| index.chunk(number).extent)
        .collect();
    let read = |piece: Extent, bytes: &mut [u8]| {
        overlay.read_at(piece.offset, bytes)?;
        Ok(true)
    };
    let stored = Chunks {
        repository,
        digest: index.digest(),
        level: how.level,
        workers: how.workers,
        dry_run: how.dry_run,
        pieces: &pieces,
        read: &read,
        progress,
    }
    .store()?;
    let mut published = Published {
        version: None,
        image_bytes: index.image_bytes(),
        chunks: index.chunk_count() as u64,
        new_chunks: stored.new_chunks,
        new_bytes: stored.new_bytes,
        hole_bytes: 0,
    };
    if how.dry_run {
        return Ok(published);
    }
    let index = index.with_ids(numbers.into_iter().zip(stored.ids));
    next.new_chunks = stored.new_chunks;
    next.new_bytes = stored.new_bytes;
    let version = repository.add_version(&index, &mut next, &how.tag, key, &trust)?;
    published.version = Some(version);
    Ok(published)
}
