//! Checking: is everything there that tags point to, and is it what it should be?
//!
//! Trainings are checked as well: index, fronts of packs, and the chunks of the trained index. What
//! a pack has behind its front is looked at by whoever reads it.
//!
//! Works on any source, also on a web server: tags are named by the caller, because a web server
//! does not list them.

use crate::chunk::{ChunkSpec, packed_bytes_max, unpack};
use crate::error::DiskError;
use crate::index::Index;
use crate::manifest::{Manifest, Tag, TagRecord};
use crate::name::FileName;
use crate::repository::{Repository, turn_to_delete};
use crate::signed::Trust;
use crate::source::{Part, Refusal, Source};
use crate::training::Training;
use base::limits::DISK_FINDINGS_MAX;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How thoroughly.
#[derive(Clone, Debug)]
pub struct Checking {
    /// Whose records are believed.
    pub trust: Trust,
    /// Whether chunks are read; without it only tags, manifests and indexes are.
    pub read_chunks: bool,
    /// Threads that read.
    pub workers: usize,
}

/// What is wrong with one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which.
    pub file: FileName,
    /// What, for people.
    pub problem: String,
    /// The first tag that needs it.
    pub tag: Tag,
    /// The chunk, if it is one.
    pub chunk: Option<ChunkSpec>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Versions that were looked at.
    pub versions: u64,
    /// Chunks that were read; each once.
    pub chunks: u64,
    /// Bytes of these, as they are stored.
    pub bytes: u64,
    /// What is wrong, in order of files; not more than are kept.
    pub findings: Vec<Finding>,
    /// How many findings there were.
    pub finding_count: u64,
}

impl Report {
    fn add(&mut self, finding: Finding) {
        self.finding_count += 1;
        if self.findings.len() < DISK_FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Checks what tags point to. `progress` is told chunks read and chunks in all.
pub fn check(
    source: &dyn Source,
    tags: &[Tag],
    how: &Checking,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Report {
    let mut report = Report::default();
    // With the tag for which each is needed first.
    let mut chunks = BTreeMap::new();
    for tag in tags {
        let mut found = |file: FileName, error: DiskError| {
            report.add(Finding {
                file,
                problem: error.to_string(),
                tag: tag.clone(),
                chunk: None,
            });
        };
        let indexes = match indexes(source, tag, &how.trust, &mut found) {
            Ok(indexes) => indexes,
            Err(error) => {
                found(tag.file(), error);
                continue;
            }
        };
        report.versions += 1;
        for index in indexes {
            for number in 0..index.chunk_count() {
                chunks.entry(index.spec(number)).or_insert(tag);
            }
        }
    }
    if how.read_chunks {
        let chunks: Vec<_> = chunks.into_iter().collect();
        read_all(source, &chunks, how.workers, progress, &mut report);
    }
    report
}

/// The indexes of what a tag points to: the manifest's, and the one that was trained. What is wrong
/// with a training is a finding, and the image can be read all the same.
fn indexes(
    source: &dyn Source,
    tag: &Tag,
    trust: &Trust,
    found: &mut dyn FnMut(FileName, DiskError),
) -> Result<Vec<Index>, DiskError> {
    let version = TagRecord::read(source, tag, trust)?.version();
    let manifest = Manifest::read(source, version, trust)?;
    let mut indexes = vec![manifest.read_index(source)?];
    let training = match Training::find(source, version, trust) {
        Ok(None) => return Ok(indexes),
        Ok(Some(training)) => training,
        Err(error) => {
            found(Training::file_of(version), error);
            return Ok(indexes);
        }
    };
    match training.read_index(source, &manifest) {
        Ok(index) => indexes.push(index),
        Err(error) => found(training.index_file(), error),
    }
    for pack in training.packs() {
        if let Err(error) = pack.read_front(source) {
            found(pack.file(), error);
        }
    }
    Ok(indexes)
}

fn read_all(
    source: &dyn Source,
    chunks: &[(ChunkSpec, &Tag)],
    workers: usize,
    progress: &(dyn Fn(u64, u64) + Sync),
    report: &mut Report,
) {
    let next = AtomicUsize::new(0);
    let bytes = AtomicU64::new(0);
    let findings = Mutex::new(BTreeMap::new());
    let work = || {
        while let Some((spec, tag)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
            match read(source, spec) {
                Ok(read) => drop(bytes.fetch_add(read, Ordering::Relaxed)),
                Err(problem) => {
                    let finding = Finding {
                        file: FileName::of_chunk(&spec.id),
                        problem,
                        tag: (*tag).clone(),
                        chunk: Some(*spec),
                    };
                    let mut findings = findings.lock().unwrap_or_else(PoisonError::into_inner);
                    findings.insert(*spec, finding);
                }
            }
            let done = next.load(Ordering::Relaxed).min(chunks.len());
            progress(done as u64, chunks.len() as u64);
        }
    };
    thread::scope(|scope| {
        for _ in 0..workers.max(1) {
            scope.spawn(work);
        }
    });
    report.chunks = chunks.len() as u64;
    report.bytes = bytes.into_inner();
    let findings = findings
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    findings
        .into_values()
        .for_each(|finding| report.add(finding));
}

/// Reads and verifies a chunk; says how many bytes were read, or what is wrong.
fn read(source: &dyn Source, spec: &ChunkSpec) -> Result<u64, String> {
    let bytes_max = packed_bytes_max(spec.len_bytes);
    let file = FileName::of_chunk(&spec.id);
    let packed = source.read_now(&file, Part::Whole { bytes_max });
    let packed = packed.map_err(|error| error.refusal.to_string())?;
    unpack(spec, &packed).map_err(|damage| damage.to_string())?;
    Ok(packed.len() as u64)
}

/// Removes a damaged chunk, so that whoever publishes an image that has it stores it again: what is
/// there is otherwise not written a second time. One that is good stays, whoever says otherwise.
/// True if it was removed. One that cannot be read stays: that says nothing of what it has.
///
/// # Errors
/// [`DiskError::Busy`], [`DiskError::File`], [`DiskError::OnlyInDirectory`], [`DiskError::Source`].
pub fn remove_damaged(
    repository: &Repository,
    spec: &ChunkSpec,
    wait: Duration,
) -> Result<bool, DiskError> {
    let directory = repository.directory("removing chunks")?;
    let _turn = turn_to_delete(directory, wait)?;
    let file = FileName::of_chunk(&spec.id);
    let path = directory.path_of(&file);
    let bytes_max = packed_bytes_max(spec.len_bytes);
    match directory.read_now(&file, Part::Whole { bytes_max }) {
        Ok(packed) if unpack(spec, &packed).is_ok() => return Ok(false),
        // Longer than any form of it.
        Ok(_) => {}
        Err(error) if matches!(error.refusal, Refusal::TooLong { .. }) => {}
        Err(error) if error.refusal.is_not_found() => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    let removed = std::fs::remove_file(&path);
    removed.map_err(DiskError::file("remove", path))?;
    Ok(true)
}
