//! Checking: is everything there that tags point to, and is it what it should be?
//!
//! Works on any source, also on a web server: tags are named by the caller, because a web server
//! does not list them.

use crate::chunk::{ChunkSpec, packed_bytes_max, unpack};
use crate::error::DiskError;
use crate::manifest::{Manifest, Tag, TagRecord};
use crate::name::FileName;
use crate::repository::Repository;
use crate::signed::Trust;
use crate::source::{Part, Source};
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
        match specs(source, tag, &how.trust) {
            Ok(specs) => {
                report.versions += 1;
                for spec in specs {
                    chunks.entry(spec).or_insert(tag);
                }
            }
            Err(error) => report.add(Finding {
                file: tag.file(),
                problem: error.to_string(),
                tag: tag.clone(),
                chunk: None,
            }),
        }
    }
    if how.read_chunks {
        let chunks: Vec<_> = chunks.into_iter().collect();
        read_all(source, &chunks, how.workers, progress, &mut report);
    }
    report
}

fn specs(source: &dyn Source, tag: &Tag, trust: &Trust) -> Result<Vec<ChunkSpec>, DiskError> {
    let version = TagRecord::read(source, tag, trust)?.version();
    let index = Manifest::read(source, version, trust)?.read_index(source)?;
    Ok((0..index.chunk_count())
        .map(|number| index.spec(number))
        .collect())
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
/// True if it was removed.
///
/// # Errors
/// [`DiskError::Busy`], [`DiskError::File`].
pub fn remove_damaged(
    repository: &Repository,
    spec: &ChunkSpec,
    wait: Duration,
) -> Result<bool, DiskError> {
    let _turn = repository.turn_to_delete(wait)?;
    let path = repository.path_of(&FileName::of_chunk(&spec.id));
    if !path.exists() || read(repository.source(), spec).is_ok() {
        return Ok(false);
    }
    let removed = std::fs::remove_file(&path);
    removed.map_err(DiskError::file("remove", path))?;
    Ok(true)
}
