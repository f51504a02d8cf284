//! Layout training: a version is cut along what its profiles touch.
//!
//! A file system's blocks have 4 KiB, chunks a hundred times that: of a chunk that is fetched, a
//! boot uses half, and a program that reads files here and there a sixth (the paper's Table 1). The
//! paper's remedy is to move the blocks that a boot needs to the head of the disk (section 4), for
//! one file system and one boot. Here nothing is moved. Chunks are cut where a profile begins or
//! ends to touch the image, so that what is hot fills whole chunks; an index may cut where it likes
//! and stays one that casync reads. The chunks of each profile are put into a [`Pack`] as well.
//!
//! **A training does not make a version.** What an image is does not change by how it is cut:
//! overlays, tags and the index under the tag's name stay as they are. A [`Training`] is a signed
//! record beside the manifest, under the version's name. It says which index to read instead, and
//! which packs there are. Whoever does not find it, or does not believe it, reads the manifest's.
//!
//! **Several profiles.** The index is cut along all of them, always from the manifest's index: a
//! profile more or less leaves no cuts behind. Where the grid cut, the trained index cuts too, so
//! that cold chunks are those of other versions.

mod cut;
mod opening;
mod record;

pub(crate) use record::TRAININGS;
pub use record::{Trained, Training};

use crate::chunk::{ChunkSpec, Zeros, packed_bytes_max, unpack};
use crate::error::DiskError;
use crate::index::Index;
use crate::manifest::{Manifest, VersionId};
use crate::name::FileName;
use crate::pack::{self, Pack};
use crate::profile::Profile;
use crate::recent::Recent;
use crate::repository::{Chunks, Progress, Repository};
use crate::signed::{SigningKey, Trust};
use crate::source::{Part, Source};
use base::Extent;
use base::limits::DISK_PACKS_MAX;
use bytes::Bytes;
use cut::Cut;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Chunks of the image that are kept unpacked while pieces of them are read.
const MEMORY_BYTES_MAX: u64 = 64 << 20;

/// How a version is trained.
#[derive(Clone, Debug)]
pub struct HowToTrain {
    /// Whether chunks are cut. Without it profiles are given packs of the chunks that there are.
    pub cut: bool,
    /// Profiles that the version has and that are not wanted any more, by name.
    pub forget: Vec<String>,
    /// Of zstd, 1 to 19.
    pub level: i32,
    /// Threads that compress.
    pub workers: usize,
    /// Now, in seconds since 1970.
    pub time: i64,
    /// Whose versions and trainings are believed, beside one's own.
    pub trust: Trust,
    /// How long to wait for somebody who deletes.
    pub wait: Duration,
    /// Nothing is written; everything is counted.
    pub dry_run: bool,
}

impl HowToTrain {
    /// With what is usual, at a time in seconds since 1970.
    #[must_use]
    pub fn new(time: i64) -> Self {
        Self {
            cut: true,
            forget: Vec::new(),
            level: 3,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            time,
            trust: Trust::Keys(Vec::new()),
            wait: Duration::from_secs(60),
            dry_run: false,
        }
    }
}

/// What a training came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainingReport {
    /// Names of all profiles that the version has now.
    pub profiles: Vec<String>,
    /// Chunks of the trained index, repeated ones included.
    pub chunks: u64,
    /// Chunks of the manifest's index that were cut.
    pub cut_chunks: u64,
    /// Chunks that the repository did not have.
    pub new_chunks: u64,
    /// What these take there, in bytes.
    pub new_bytes: u64,
    /// What all packs take, in bytes; 0 after a dry run.
    pub pack_bytes: u64,
}

/// Gives a version these profiles, beside those that it has; one of the same name is replaced. An
/// image that is read meanwhile stays readable.
///
/// # Errors
/// [`DiskError`]. The version is then trained as it was.
pub fn train(
    repository: &Repository,
    version: VersionId,
    profiles: &[Profile],
    how: &HowToTrain,
    key: &SigningKey,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<TrainingReport, DiskError> {
    // One training after the other: each has the profiles of the one before. It waits before it is
    // in the way of whoever deletes.
    let _alone = repository.turn_to_train(how.wait)?;
    let _turn = repository.turn_to_add(how.wait)?;
    let trust = how.trust.with(key.public());
    let source = repository.source();
    let manifest = Manifest::read(source, version, &trust)?;
    let plain = manifest.read_index(source)?;
    let stamp = repository.stamp(&Training::file_of(version))?;
    let before = Training::find(source, version, &trust)?;
    let profiles = all_profiles(source, before.as_ref(), profiles, how, plain.image_bytes())?;
    let cut = if how.cut {
        Cut::along(&plain, &profiles)
    } else {
        Cut::default()
    };
    let contents = Contents::new(source, &plain);
    let read = |piece: Extent, bytes: &mut [u8]| contents.read(piece, bytes).map(|()| true);
    let stored = Chunks {
        repository,
        digest: plain.digest(),
        level: how.level,
        workers: how.workers,
        dry_run: how.dry_run,
        pieces: cut.pieces(),
        read: &read,
        progress,
    }
    .store()?;
    let index = cut.index(&plain, &stored.ids)?;
    let mut report = TrainingReport {
        profiles: profiles.iter().map(|p| p.name().to_owned()).collect(),
        chunks: index.chunk_count() as u64,
        cut_chunks: cut.chunk_count() as u64,
        new_chunks: stored.new_chunks,
        new_bytes: stored.new_bytes,
        pack_bytes: 0,
    };
    if how.dry_run {
        return Ok(report);
    }
    let packs = write_packs(repository, &index, &profiles)?;
    report.pack_bytes = packs.iter().map(|pack| pack.bytes).sum();
    let training = Training::new(version, before.as_ref(), how.time, packs);
    training.put(repository, stamp, &index, key)?;
    Ok(report)
}

/// The profiles of the training before that stay, and the new ones.
fn all_profiles(
    source: &dyn Source,
    before: Option<&Training>,
    new: &[Profile],
    how: &HowToTrain,
    image_bytes: u64,
) -> Result<Vec<Profile>, DiskError> {
    let mut profiles = Vec::new();
    for pack in before.map_or(&[][..], Training::packs) {
        let is_replaced = new.iter().any(|profile| profile.name() == pack.profile);
        if !is_replaced && !how.forget.contains(&pack.profile) {
            profiles.push(pack.read_front(source)?.profile().clone());
        }
    }
    for profile in new {
        profiles.retain(|known: &Profile| known.name() != profile.name());
        profiles.push(profile.fitted(image_bytes));
    }
    if profiles.len() > DISK_PACKS_MAX {
        return Err(DiskError::TooManyProfiles(DISK_PACKS_MAX));
    }
    Ok(profiles)
}

fn write_packs(
    repository: &Repository,
    index: &Index,
    profiles: &[Profile],
) -> Result<Vec<Pack>, DiskError> {
    let zeros = index.zeros();
    let mut packs = Vec::with_capacity(profiles.len());
    for profile in profiles {
        let mut seen = HashSet::new();
        let specs: Vec<ChunkSpec> = profile
            .chunks(index)
            .into_iter()
            .map(|number| index.spec(number))
            .filter(|spec| !zeros.has(spec) && seen.insert(*spec))
            .collect();
        packs.push(pack::write(repository, index.digest(), profile, &specs)?);
    }
    Ok(packs)
}

/// The bytes of an image, for many threads.
struct Contents<'a> {
    source: &'a dyn Source,
    index: &'a Index,
    zeros: Zeros,
    recent: Mutex<Recent>,
}

impl<'a> Contents<'a> {
    fn new(source: &'a dyn Source, index: &'a Index) -> Self {
        Self {
            source,
            index,
            zeros: index.zeros(),
            recent: Mutex::new(Recent::new(MEMORY_BYTES_MAX)),
        }
    }

    fn read(&self, extent: Extent, into: &mut [u8]) -> Result<(), DiskError> {
        for number in self.index.chunks_of(extent) {
            let placed = self.index.chunk(number).extent;
            let both = placed.intersection(extent);
            let into = &mut into[(both.offset - extent.offset) as usize..][..both.len as usize];
            let spec = self.index.spec(number);
            if self.zeros.has(&spec) {
                into.fill(0);
                continue;
            }
            let bytes = self.chunk(&spec)?;
            into.copy_from_slice(&bytes[(both.offset - placed.offset) as usize..][..into.len()]);
        }
        Ok(())
    }

    fn chunk(&self, spec: &ChunkSpec) -> Result<Bytes, DiskError> {
        let recent = || self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = recent().get(spec) {
            return Ok(bytes);
        }
        let file = FileName::of_chunk(&spec.id);
        let bytes_max = packed_bytes_max(spec.len_bytes);
        let packed = self.source.read_now(&file, Part::Whole { bytes_max })?;
        let bytes = unpack(spec, &packed).map_err(|damage| DiskError::Damaged {
            place: format!("{file} at {}", self.source.place()),
            damage,
        })?;
        recent().insert(*spec, bytes.clone());
        Ok(bytes)
    }
}
