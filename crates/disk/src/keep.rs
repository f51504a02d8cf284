//! Keeping an image, or what its profiles need, for use without a network.
//!
//! ```text
//! kept/versions/, indexes/, packs/    files of all repositories, named by what they are; of packs
//!                                     only the fronts
//! kept/<place>/tags/, trainings/      files of one repository
//! kept/<place>/pins/<image>@<label>   what is kept of it
//! kept/lock                           whose turn it is to change these
//! ```
//!
//! Chunks lie in the cache as others do, pinned, so that they are not removed when it is full.
//! First the files are kept, then what is to be kept is noted, then chunks are fetched: whoever is
//! interrupted goes on where it ended. Nothing is called kept unless it was read from the cache and
//! had its digest, and nothing before it is durable; what is missing is said chunk by chunk.
//!
//! What no note needs goes, chunks and files, if all notes can be read. If one cannot, what it
//! needs is not known: everything stays, and whoever asked is told.

mod shelf;

use crate::cache::Cache;
use crate::chunk::ChunkSpec;
use crate::error::DiskError;
use crate::fetch::Fetcher;
use crate::index::Index;
use crate::manifest::{Manifest, Tag, TagRecord, VersionId};
use crate::name::{FileName, is_component};
use crate::pack::Pack;
use crate::repository::Turn;
use crate::signed::Trust;
use crate::source::{Directory, Kept, Part, Source, fetch_chunk};
use crate::training::{Trained, Training};
use base::Extent;
use base::limits::{DISK_INDEX_CHUNKS_MAX, DISK_REQUESTS_MAX};
use shelf::{Needed, Note, Staged};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Threads that fetch, and chunks that each has under way: as many requests as there may be.
const FETCHERS: usize = 4;
const PORTION: usize = DISK_REQUESTS_MAX / FETCHERS;
/// How long the last chunks may take to be written into the cache.
const FINISH_TIME_MAX: Duration = Duration::from_secs(60);

const RECORD: Part = Part::Whole {
    bytes_max: base::limits::DISK_RECORD_BYTES_MAX,
};
const INDEX: Part = Part::Whole {
    bytes_max: Index::file_bytes(DISK_INDEX_CHUNKS_MAX),
};

/// An image of which something is kept, or is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image<'a> {
    /// What tells its repository from others, such as a digest of its address. It can be a part of
    /// the name of a file.
    pub place: &'a str,
    /// Its name there.
    pub tag: &'a Tag,
}

/// What is to be kept of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Share {
    /// All of it.
    Everything,
    /// What these profiles need.
    Profiles(Vec<String>),
}

/// A chunk that is not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Where the image has it first.
    pub extent: Extent,
    /// What it is.
    pub spec: ChunkSpec,
    /// Why it is not here, for people.
    pub reason: String,
}

/// What is kept of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptReport {
    /// Which version.
    pub version: VersionId,
    /// Chunks that are to be kept, each once, without those of zeros.
    pub chunks: u64,
    /// Bytes of these, as they are on the disk.
    pub bytes: u64,
    /// Those that are not here, in the order of the image. If there are none, no network is needed.
    pub missing: Vec<Missing>,
    /// What is kept besides and cannot be read. If there is any, nothing was unpinned.
    pub unread: Vec<Unread>,
}

/// An image that is kept and of which it cannot be known what it needs, until it is kept again or
/// released.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// See [`Image::place`].
    pub place: String,
    /// Its name there.
    pub tag: Tag,
    /// Why not, for people.
    pub reason: String,
}

/// How far it is: chunks that are here, and all.
pub type KeepProgress<'a> = dyn Fn(u64, u64) + Sync + 'a;

/// What is kept of a place in a cache, in front of the repository, or alone.
///
/// # Panics
/// If `place` cannot be a part of the name of a file.
#[must_use]
pub fn source(cache: &Cache, place: &str, far: Option<Arc<dyn Source>>) -> Kept {
    assert!(is_component(place), "{place:?} is no name of a place");
    let kept = cache.kept();
    let own = Directory::new(kept.join(place));
    Kept::new(Directory::new(kept), own, far)
}

/// Fetches what is to be kept of an image, and pins it. What was kept of this tag before and is not
/// wanted any more is unpinned.
///
/// # Errors
/// [`DiskError`] if the image cannot be opened, or the cache not be used. Chunks that could not be
/// fetched, or for which there is no room, are no error: they are in the report.
pub fn keep(
    fetcher: &Fetcher,
    far: &Arc<dyn Source>,
    image: Image<'_>,
    share: &Share,
    trust: &Trust,
    progress: &KeepProgress<'_>,
) -> Result<KeptReport, DiskError> {
    let cache = fetcher.cache().ok_or(DiskError::NoCache)?;
    let note = keep_files(cache, &**far, image, share, trust)?;
    let wanted = wanted_of(cache, image, &note, trust)?;
    // What is here stays, and what cannot be read is fetched.
    let mut absent = Vec::new();
    for (spec, _) in &wanted.order {
        if cache.read(spec).is_none() || !cache.pin(&spec.id)? {
            absent.push(*spec);
        }
    }
    cache.await_pinned(absent.iter().map(|spec| spec.id).collect());
    let here = (wanted.order.len() - absent.len()) as u64;
    let reasons = fetch_all(fetcher, far, &absent, here, &|done| {
        progress(done, wanted.order.len() as u64);
    });
    cache.await_pinned(HashSet::new());
    let mut report = wanted.report(note.version, &reasons, |spec| cache.pin(&spec.id))?;
    cache.flush()?;
    report.unread = remove_unneeded(cache, &shelf::turn(cache)?)?;
    Ok(report)
}

/// What is missing of an image that is kept, without asking anybody.
///
/// # Errors
/// [`DiskError::NotKept`] if nothing of it was ever kept; [`DiskError`].
pub fn missing(cache: &Cache, image: Image<'_>, trust: &Trust) -> Result<KeptReport, DiskError> {
    let note = shelf::read_note(cache, image)?;
    let note = note.ok_or_else(|| DiskError::NotKept(image.tag.to_string()))?;
    let wanted = wanted_of(cache, image, &note, trust)?;
    let is_here = |spec: &ChunkSpec| Ok(cache.read(spec).is_some());
    wanted.report(note.version, &HashMap::new(), is_here)
}

/// Keeps an image no longer. Its chunks stay until there is no room for them. Says what else is
/// kept and cannot be read: if there is any, everything stays pinned.
///
/// # Errors
/// [`DiskError::NotKept`] if nothing of it is; [`DiskError`].
pub fn release(cache: &Cache, image: Image<'_>) -> Result<Vec<Unread>, DiskError> {
    let turn = shelf::turn(cache)?;
    let path = shelf::note_path(cache, image);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(DiskError::NotKept(image.tag.to_string()));
        }
        removed => removed.map_err(DiskError::file("remove", path))?,
    }
    remove_unneeded(cache, &turn)
}

/// Tags of a place of which something is kept.
///
/// # Errors
/// [`DiskError::File`].
pub fn kept(cache: &Cache, place: &str) -> Result<Vec<Tag>, DiskError> {
    shelf::tags(cache, place)
}

/// Keeps the files of a version, and notes what is to be kept of it.
fn keep_files(
    cache: &Cache,
    far: &dyn Source,
    image: Image<'_>,
    share: &Share,
    trust: &Trust,
) -> Result<Note, DiskError> {
    let near = source(cache, image.place, None);
    let mut staged = Staged::new(cache);
    let copy = |staged: &mut Staged<'_>, file: &FileName, part: Part| {
        let bytes = far.read_now(file, part)?;
        staged.put(near.path_of(file), &bytes)
    };
    // Each is looked at before it takes the place of what is here.
    let version = TagRecord::read(far, image.tag, trust)?.version();
    let manifest = Manifest::read(far, version, trust)?;
    manifest.read_index(far)?;
    copy(&mut staged, &version.file(), RECORD)?;
    copy(&mut staged, &manifest.index_file(), INDEX)?;
    let training = Training::find(far, version, trust);
    match &training {
        Ok(Some(training)) => {
            check_profiles(training.packs(), share)?;
            training.read_index(far, &manifest)?;
            copy(&mut staged, &training.index_file(), INDEX)?;
            for pack in training.packs() {
                pack.read_front(far)?;
                let front = Part::Extent(Extent::new(0, pack.front_bytes));
                copy(&mut staged, &pack.file(), front)?;
            }
            copy(&mut staged, &Training::file_of(version), RECORD)?;
        }
        // What is here of its training may be what could not be read there.
        Err(error @ DiskError::Source(_)) => {
            tracing::warn!(%error, "the version is kept as it was trained before, if it was");
            let kept = Training::find(&near, version, trust).ok().flatten();
            check_profiles(kept.as_ref().map_or(&[], Training::packs), share)?;
        }
        Ok(None) | Err(_) => {
            if let Err(error) = &training {
                tracing::warn!(%error, "the version is kept as it was not trained");
            }
            check_profiles(&[], share)?;
            staged.remove(near.path_of(&Training::file_of(version)));
        }
    }
    copy(&mut staged, &image.tag.file(), RECORD)?;
    let profiles = match share {
        Share::Everything => None,
        Share::Profiles(names) => Some(names.clone()),
    };
    let note = Note { version, profiles };
    staged.settle(image, &note)?;
    Ok(note)
}

/// Nothing is noted of a profile that there is not.
fn check_profiles(packs: &[Pack], share: &Share) -> Result<(), DiskError> {
    let Share::Profiles(names) = share else {
        return Ok(());
    };
    let has = |name: &String| packs.iter().any(|pack| pack.profile == *name);
    match names.iter().find(|name| !has(name)) {
        Some(unknown) => Err(DiskError::NoProfile(unknown.clone())),
        None => Ok(()),
    }
}

/// Chunks that are to be kept, each once, with its first place.
struct Wanted {
    order: Vec<(ChunkSpec, Extent)>,
}

/// Of an image whose files are kept.
fn wanted_of(
    cache: &Cache,
    image: Image<'_>,
    note: &Note,
    trust: &Trust,
) -> Result<Wanted, DiskError> {
    let near = source(cache, image.place, None);
    let manifest = Manifest::read(&near, note.version, trust)?;
    let trained = Trained::open(&near, note.version, &manifest, trust)?;
    wanted(&near, note, &trained)
}

fn wanted(near: &dyn Source, note: &Note, trained: &Trained) -> Result<Wanted, DiskError> {
    let only = match &note.profiles {
        None => None,
        Some(names) => {
            let mut specs = HashSet::new();
            for name in names {
                let pack = trained.packs.iter().find(|pack| pack.profile == *name);
                let pack = pack.ok_or_else(|| DiskError::NoProfile(name.clone()))?;
                let front = pack.read_front(near)?;
                specs.extend(front.chunks().iter().map(|chunk| chunk.spec));
            }
            Some(specs)
        }
    };
    let zeros = trained.index.zeros();
    let mut seen = HashSet::new();
    let mut order = Vec::new();
    for number in 0..trained.index.chunk_count() {
        let spec = trained.index.spec(number);
        let is_wanted = only.as_ref().is_none_or(|only| only.contains(&spec));
        if is_wanted && !zeros.has(&spec) && seen.insert(spec) {
            order.push((spec, trained.index.chunk(number).extent));
        }
    }
    Ok(Wanted { order })
}

impl Wanted {
    fn report(
        self,
        version: VersionId,
        reasons: &HashMap<ChunkSpec, String>,
        is_here: impl Fn(&ChunkSpec) -> Result<bool, DiskError>,
    ) -> Result<KeptReport, DiskError> {
        let mut report = KeptReport {
            version,
            chunks: self.order.len() as u64,
            bytes: self.order.iter().map(|(_, extent)| extent.len).sum(),
            missing: Vec::new(),
            unread: Vec::new(),
        };
        for (spec, extent) in self.order {
            if !is_here(&spec)? {
                let reason = reasons.get(&spec).cloned();
                let reason = reason.unwrap_or_else(|| "it is not in the cache".into());
                report.missing.push(Missing {
                    extent,
                    spec,
                    reason,
                });
            }
        }
        Ok(report)
    }
}

/// Fetches chunks into the cache; says why some of them did not come.
fn fetch_all(
    fetcher: &Fetcher,
    far: &Arc<dyn Source>,
    specs: &[ChunkSpec],
    here: u64,
    progress: &(dyn Fn(u64) + Sync),
) -> HashMap<ChunkSpec, String> {
    // What is in memory comes from there, and does not come into the cache by that.
    let in_memory: Vec<_> = specs
        .iter()
        .filter(|spec| fetcher.remembers(spec))
        .collect();
    let portions: Vec<_> = specs.chunks(PORTION).collect();
    let next = AtomicUsize::new(0);
    let done = AtomicU64::new(here);
    progress(here);
    let work = || {
        let mut reasons = Vec::new();
        while let Some(portion) = portions.get(next.fetch_add(1, Ordering::Relaxed)) {
            // Each error by itself: the others of the portion have come.
            if fetcher.get(far, portion).is_err() {
                for spec in *portion {
                    if let Err(error) = fetcher.get(far, std::slice::from_ref(spec)) {
                        reasons.push((*spec, error.to_string()));
                    }
                }
            }
            let more = portion.len() as u64;
            progress(done.fetch_add(more, Ordering::Relaxed) + more);
        }
        reasons
    };
    let mut reasons: HashMap<_, _> = thread::scope(|scope| {
        let workers: Vec<_> = (0..FETCHERS).map(|_| scope.spawn(work)).collect();
        let reasons = workers.into_iter().map(|worker| worker.join());
        reasons.flat_map(Result::unwrap_or_default).collect()
    });
    fetcher.finish(FINISH_TIME_MAX);
    let Some(cache) = fetcher.cache() else {
        return reasons;
    };
    for spec in in_memory.into_iter().filter(|spec| !cache.has(&spec.id)) {
        if let Err(reason) = fetch_again(fetcher, far, spec, cache) {
            reasons.insert(*spec, reason);
        }
    }
    for spec in specs.iter().filter(|spec| !cache.has(&spec.id)) {
        let no_room = || "there is no room for it in the cache".to_owned();
        reasons.entry(*spec).or_insert_with(no_room);
    }
    reasons
}

/// Fetches a chunk for the cache alone.
fn fetch_again(
    fetcher: &Fetcher,
    far: &Arc<dyn Source>,
    spec: &ChunkSpec,
    cache: &Cache,
) -> Result<(), String> {
    let fetched = fetcher.runtime().block_on(fetch_chunk(&**far, *spec));
    let fetched = fetched.map_err(|error| error.to_string())?;
    let kept = cache.insert(&spec.id, &fetched.packed);
    // Without room it is not there, and that is seen.
    kept.map(|_| ()).map_err(|error| error.to_string())
}

/// Unpins chunks that no note needs, and removes such files; none if a note cannot be read.
fn remove_unneeded(cache: &Cache, _turn: &Turn) -> Result<Vec<Unread>, DiskError> {
    let mut needed = Needed::default();
    let mut unread = Vec::new();
    for place in shelf::places(cache)? {
        for tag in shelf::tags(cache, &place)? {
            let image = Image {
                place: &place,
                tag: &tag,
            };
            if let Err(error) = needed.add(cache, image) {
                let (place, reason) = (place.clone(), error.to_string());
                unread.push(Unread { place, tag, reason });
            }
        }
    }
    if unread.is_empty() {
        cache.unpin_others(&needed.chunks)?;
        needed.remove_others(cache)?;
    }
    Ok(unread)
}
