//! Keeping an image, or what its profiles need, for use without a network.
//!
//! ```text
//! kept/tags/, versions/, indexes/,    files of the repository, as they are there;
//!      trainings/, packs/             of packs only the fronts
//! kept/pins/<image>@<label>           what is kept of it
//! ```
//!
//! Chunks lie in the cache as others do, pinned, so that they are not removed when it is full.
//! First the files are kept, then what is to be kept is noted, then chunks are fetched: whoever is
//! interrupted goes on where it ended. Nothing is called kept unless it was read from the cache and
//! had its digest; what is missing is said chunk by chunk.

use crate::cache::Cache;
use crate::chunk::{ChunkId, ChunkSpec};
use crate::error::{Damage, DiskError};
use crate::fetch::Fetcher;
use crate::index::Index;
use crate::manifest::{Manifest, Tag, TagRecord, VersionId};
use crate::name::FileName;
use crate::signed::Trust;
use crate::source::{Directory, Kept, Once, Part, Source, fetch_chunk};
use crate::training::{Trained, Training};
use base::Extent;
use base::limits::{DISK_INDEX_CHUNKS_MAX, DISK_REQUESTS_MAX};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const PINS: &str = "pins";
/// A note's file: a version and the names of all profiles that it can have.
const NOTE_BYTES_MAX: u64 = 16 << 10;
/// Threads that fetch, and chunks that each has under way: as many requests as there may be.
const FETCHERS: usize = 4;
const PORTION: usize = DISK_REQUESTS_MAX / FETCHERS;
/// How long the last chunks may take to be written into the cache.
const FINISH_TIME_MAX: Duration = Duration::from_secs(60);

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
}

/// What is noted of an image that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    version: VersionId,
    /// None: everything.
    profiles: Option<Vec<String>>,
}

/// How far it is: chunks that are here, and all.
pub type KeepProgress<'a> = dyn Fn(u64, u64) + Sync + 'a;

/// What is kept in a cache, in front of a repository, or alone.
#[must_use]
pub fn source(cache: &Cache, far: Option<Arc<dyn Source>>) -> Kept {
    Kept::new(Directory::new(cache.kept()), far)
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
    tag: &Tag,
    share: &Share,
    trust: &Trust,
    progress: &KeepProgress<'_>,
) -> Result<KeptReport, DiskError> {
    let cache = fetcher.cache().ok_or(DiskError::NoCache)?;
    let once = Once::new(Arc::clone(far), u64::MAX);
    let note = keep_files(cache, &once, tag, share, trust)?;
    drop(once);
    let near = source(cache, None);
    let wanted = wanted(&near, &note, trust)?;
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
    let report = wanted.report(note.version, &reasons, |spec| cache.pin(&spec.id))?;
    unpin_unwanted(cache, trust)?;
    Ok(report)
}

/// What is missing of an image that is kept, without asking anybody.
///
/// # Errors
/// [`DiskError::NotKept`] if nothing of it was ever kept; [`DiskError`].
pub fn missing(cache: &Cache, tag: &Tag, trust: &Trust) -> Result<KeptReport, DiskError> {
    let note = read_note(cache, tag)?.ok_or_else(|| DiskError::NotKept(tag.to_string()))?;
    let wanted = wanted(&source(cache, None), &note, trust)?;
    let is_here = |spec: &ChunkSpec| Ok(cache.read(spec).is_some());
    wanted.report(note.version, &HashMap::new(), is_here)
}

/// Keeps an image no longer. Its chunks stay until there is no room for them.
///
/// # Errors
/// [`DiskError`], also if another image that is kept cannot be read: then everything stays pinned.
pub fn release(cache: &Cache, tag: &Tag, trust: &Trust) -> Result<(), DiskError> {
    let path = note_path(cache, tag);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(DiskError::NotKept(tag.to_string()));
        }
        removed => removed.map_err(DiskError::file("remove", path))?,
    }
    unpin_unwanted(cache, trust)
}

/// Tags of which something is kept.
///
/// # Errors
/// [`DiskError::File`].
pub fn kept(cache: &Cache) -> Result<Vec<Tag>, DiskError> {
    let path = cache.kept().join(PINS);
    let entries = match fs::read_dir(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(DiskError::file("list", &path))?,
    };
    let mut tags = Vec::new();
    for entry in entries {
        let name = entry.map_err(DiskError::file("list", &path))?.file_name();
        let tag = name.to_str().and_then(|name| name.split_once('@'));
        tags.extend(tag.and_then(|(image, label)| format!("{image}:{label}").parse().ok()));
    }
    tags.sort();
    Ok(tags)
}

/// Keeps the files of a version, and notes what is to be kept of it.
fn keep_files(
    cache: &Cache,
    far: &dyn Source,
    tag: &Tag,
    share: &Share,
    trust: &Trust,
) -> Result<Note, DiskError> {
    // Each is looked at before it takes the place of what is here.
    let version = TagRecord::read(far, tag, trust)?.version();
    let manifest = Manifest::read(far, version, trust)?;
    manifest.read_index(far)?;
    let record = Part::Whole {
        bytes_max: base::limits::DISK_RECORD_BYTES_MAX,
    };
    let index = Part::Whole {
        bytes_max: Index::file_bytes(DISK_INDEX_CHUNKS_MAX),
    };
    copy(cache, far, &version.file(), record)?;
    copy(cache, far, &manifest.index_file(), index)?;
    match Training::find(far, version, trust) {
        Ok(Some(training)) => {
            training.read_index(far, &manifest)?;
            copy(cache, far, &training.index_file(), index)?;
            for pack in training.packs() {
                pack.read_front(far)?;
                let front = Part::Extent(Extent::new(0, pack.front_bytes));
                copy(cache, far, &pack.file(), front)?;
            }
            copy(cache, far, &Training::file_of(version), record)?;
        }
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "the version is kept as it was not trained"),
    }
    copy(cache, far, &tag.file(), record)?;
    let profiles = match share {
        Share::Everything => None,
        Share::Profiles(names) => Some(names.clone()),
    };
    let note = Note { version, profiles };
    let bytes = postcard::to_stdvec(&note).expect("a note is plain data");
    put(cache, &note_path(cache, tag), &bytes)?;
    Ok(note)
}

fn copy(cache: &Cache, far: &dyn Source, file: &FileName, part: Part) -> Result<(), DiskError> {
    let bytes = far.read_now(file, part)?;
    put(cache, &Directory::new(cache.kept()).path_of(file), &bytes)
}

fn put(cache: &Cache, path: &PathBuf, bytes: &[u8]) -> Result<(), DiskError> {
    let temporary = cache.temporary();
    let put = || -> io::Result<()> {
        fs::create_dir_all(path.parent().expect("files lie in directories"))?;
        fs::write(&temporary, bytes)?;
        fs::rename(&temporary, path)
    };
    let written = put();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(DiskError::file("keep", path))
}

fn note_path(cache: &Cache, tag: &Tag) -> PathBuf {
    let name = format!("{}@{}", tag.image(), tag.label());
    cache.kept().join(PINS).join(name)
}

fn read_note(cache: &Cache, tag: &Tag) -> Result<Option<Note>, DiskError> {
    let path = note_path(cache, tag);
    let bytes = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes.map_err(DiskError::file("read", &path))?,
    };
    let note = (bytes.len() as u64 <= NOTE_BYTES_MAX)
        .then(|| postcard::from_bytes(&bytes).ok())
        .flatten();
    note.map(Some).ok_or_else(|| DiskError::Damaged {
        place: path.display().to_string(),
        damage: Damage::Record,
    })
}

/// Chunks that are to be kept, each once, with its first place.
struct Wanted {
    order: Vec<(ChunkSpec, Extent)>,
}

fn wanted(near: &dyn Source, note: &Note, trust: &Trust) -> Result<Wanted, DiskError> {
    let manifest = Manifest::read(near, note.version, trust)?;
    let trained = Trained::open(near, note.version, &manifest, trust)?;
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

/// Unpins what no note wants.
fn unpin_unwanted(cache: &Cache, trust: &Trust) -> Result<(), DiskError> {
    let near = source(cache, None);
    let mut ids: HashSet<ChunkId> = HashSet::new();
    for tag in kept(cache)? {
        if let Some(note) = read_note(cache, &tag)? {
            let wanted = wanted(&near, &note, trust)?;
            ids.extend(wanted.order.iter().map(|(spec, _)| spec.id));
        }
    }
    cache.unpin_others(&ids)
}
