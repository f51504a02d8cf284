//! Pieces of an image on their way into the repository.
//!
//! Workers, one for each core, read pieces, name them and compress those that are new; settlers
//! write and flush files, which is waiting and not computing, so there are more of them than cores
//! and the file system flushes several files with one commit. Between them is a queue of a few
//! dozen packed chunks: memory does not grow with the image.

use super::{Keeper, Repository, temporary, write_durably};
use crate::chunk::{ChunkId, Digest, Packer};
use crate::error::DiskError;
use crate::name::{CHUNKS, FileName};
use crate::source::Directory;
use base::Extent;
use base::limits::DISK_SETTLERS;
use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the image that have been dealt with, holes included.
    pub done_bytes: u64,
    /// All of them.
    pub total_bytes: u64,
    /// Bytes of chunks that are new in the repository, as they are stored.
    pub new_bytes: u64,
    /// How many these are.
    pub new_chunks: u64,
}

/// Reads a piece of the image; false if it is a hole, whose bytes need not be read.
pub(crate) type ReadPiece<'a> = dyn Fn(Extent, &mut [u8]) -> Result<bool, DiskError> + Sync + 'a;

/// Pieces to be stored.
pub(crate) struct Chunks<'a> {
    pub(crate) repository: &'a Repository,
    pub(crate) digest: Digest,
    /// Of zstd.
    pub(crate) level: i32,
    pub(crate) workers: usize,
    /// Nothing is written; everything is counted.
    pub(crate) dry_run: bool,
    pub(crate) pieces: &'a [Extent],
    pub(crate) read: &'a ReadPiece<'a>,
    pub(crate) progress: &'a (dyn Fn(Progress) + Sync),
}

/// What was stored.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    /// By piece.
    pub(crate) ids: Vec<ChunkId>,
    pub(crate) new_chunks: u64,
    pub(crate) new_bytes: u64,
}

/// What workers and settlers share.
struct Run<'a> {
    chunks: &'a Chunks<'a>,
    /// The piece that is next.
    next: AtomicUsize,
    is_over: AtomicBool,
    error: Mutex<Option<DiskError>>,
    /// What this run has met; the second of two equal pieces is not new.
    seen: Mutex<HashSet<ChunkId>>,
    /// The id of a piece of zeros of the usual length.
    zero: (u64, ChunkId),
    done_bytes: AtomicU64,
    total_bytes: u64,
    new_bytes: AtomicU64,
    new_chunks: AtomicU64,
}

/// A new chunk and its packed form.
type Packed = (ChunkId, Vec<u8>);

impl Chunks<'_> {
    /// Stores every piece that is not there yet; when it returns, all are durable.
    pub(crate) fn store(&self) -> Result<Stored, DiskError> {
        let longest = self.pieces.iter().map(|piece| piece.len).max().unwrap_or(0);
        let run = Run {
            chunks: self,
            next: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            error: Mutex::default(),
            seen: Mutex::default(),
            zero: (longest, self.digest.id_of(&vec![0; longest as usize])),
            done_bytes: AtomicU64::new(0),
            total_bytes: self.pieces.iter().map(|piece| piece.len).sum(),
            new_bytes: AtomicU64::new(0),
            new_chunks: AtomicU64::new(0),
        };
        let settlers = self.repository.settlers();
        let (sender, receiver) = sync_channel(settlers);
        let receiver = Mutex::new(receiver);
        let mut named = Vec::with_capacity(self.pieces.len());
        thread::scope(|scope| {
            for _ in 0..settlers {
                scope.spawn(|| run.settle(&receiver));
            }
            let workers: Vec<_> = (0..self.repository.workers(self.workers).max(1))
                .map(|_| {
                    let sender = sender.clone();
                    scope.spawn(|| run.work(sender))
                })
                .collect();
            drop(sender);
            for worker in workers {
                named.extend(worker.join().unwrap_or_default());
            }
        });
        if let Some(error) = run
            .error
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
        {
            return Err(error);
        }
        if let (Keeper::Directory(directory), false) = (&self.repository.keeper, self.dry_run) {
            let seen = run
                .seen
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner);
            flush_names(directory, &seen)?;
        }
        named.sort_unstable_by_key(|&(number, _)| number);
        assert_eq!(named.len(), self.pieces.len(), "every piece has a name");
        Ok(Stored {
            ids: named.into_iter().map(|(_, id)| id).collect(),
            new_chunks: run.new_chunks.into_inner(),
            new_bytes: run.new_bytes.into_inner(),
        })
    }
}

/// Makes the names of chunks durable: also of those that were there, because another publisher may
/// have put them there a moment ago and been killed since. As many directories at once as files
/// before, and for the same reason.
fn flush_names(directory: &Directory, ids: &HashSet<ChunkId>) -> Result<(), DiskError> {
    let path = |id: &ChunkId| directory.path_of(&FileName::of_chunk(id));
    let directories: BTreeSet<_> = ids
        .iter()
        .filter_map(|id| path(id).parent().map(Path::to_owned))
        .collect();
    let parent = directory.path().join(CHUNKS);
    let directories: Vec<_> = directories.into_iter().chain([parent]).collect();
    let next = AtomicUsize::new(0);
    let flush = || {
        while let Some(path) = directories.get(next.fetch_add(1, Ordering::Relaxed)) {
            let flushed = File::open(path).and_then(|directory| directory.sync_all());
            flushed.map_err(DiskError::file("flush", path))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let settlers: Vec<_> = (0..DISK_SETTLERS).map(|_| scope.spawn(flush)).collect();
        settlers
            .into_iter()
            .try_for_each(|settler| settler.join().expect("a flush does not panic"))
    })
}

impl Run<'_> {
    /// Names pieces until there are none left. The sender goes with its worker: settlers end when
    /// the last one has gone.
    fn work(&self, sender: SyncSender<Packed>) -> Vec<(usize, ChunkId)> {
        let mut named = Vec::new();
        let worked = self.work_through(&sender, &mut named);
        self.end_at(worked);
        named
    }

    fn work_through(
        &self,
        sender: &SyncSender<Packed>,
        named: &mut Vec<(usize, ChunkId)>,
    ) -> Result<(), DiskError> {
        let chunks = self.chunks;
        let path = || PathBuf::from(chunks.repository.source().place());
        let mut packer = Packer::new(chunks.level)
            .map_err(|error| DiskError::file("pack for", path())(error))?;
        let mut buffer = vec![0; self.zero.0 as usize];
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = chunks.pieces.get(number) else {
                return Ok(());
            };
            if self.is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            let bytes = &mut buffer[..piece.len as usize];
            let is_hole = !(chunks.read)(*piece, bytes)?;
            if is_hole {
                bytes.fill(0);
            }
            let id = if piece.len == self.zero.0 && (is_hole || is_zero(bytes)) {
                self.zero.1
            } else {
                chunks.digest.id_of(bytes)
            };
            named.push((number, id));
            if locked(&self.seen).insert(id) && !chunks.repository.has_chunk(&id)? {
                let packed = packer.pack(bytes);
                let packed = packed.map_err(|error| DiskError::file("pack for", path())(error))?;
                self.new_chunks.fetch_add(1, Ordering::Relaxed);
                self.new_bytes
                    .fetch_add(packed.len() as u64, Ordering::Relaxed);
                if !chunks.dry_run {
                    // Settlers that are gone have left their error.
                    let _ = sender.send((id, packed));
                }
            }
            self.done_bytes.fetch_add(piece.len, Ordering::Relaxed);
            (chunks.progress)(self.progress());
        }
    }

    fn progress(&self) -> Progress {
        Progress {
            done_bytes: self.done_bytes.load(Ordering::Relaxed),
            total_bytes: self.total_bytes,
            new_bytes: self.new_bytes.load(Ordering::Relaxed),
            new_chunks: self.new_chunks.load(Ordering::Relaxed),
        }
    }

    /// Writes chunks until the last worker has gone. After an error they are only taken out of the
    /// queue, so that nobody waits for room in it.
    fn settle(&self, receiver: &Mutex<Receiver<Packed>>) {
        loop {
            let received = locked(receiver).recv();
            let Ok((id, packed)) = received else {
                return;
            };
            if !self.is_over.load(Ordering::Relaxed) {
                self.end_at(self.put(&id, packed));
            }
        }
    }

    fn put(&self, id: &ChunkId, packed: Vec<u8>) -> Result<(), DiskError> {
        let file = FileName::of_chunk(id);
        let keeper = match &self.chunks.repository.keeper {
            Keeper::Directory(directory) => directory,
            Keeper::Bucket(bucket) => return bucket.put_immutable(&file, packed.into()),
        };
        let path = keeper.path_of(&file);
        let temporary = temporary(keeper);
        let directory = path.parent().expect("chunks lie in directories");
        let put = || -> io::Result<()> {
            write_durably(&temporary, &packed)?;
            match fs::rename(&temporary, &path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    fs::create_dir_all(directory)?;
                    fs::rename(&temporary, &path)
                }
                renamed => renamed,
            }
        };
        put().map_err(DiskError::file("write", path.clone()))
    }

    /// Keeps the first error, with which everything ends.
    fn end_at(&self, outcome: Result<(), DiskError>) {
        if let Err(error) = outcome {
            self.is_over.store(true, Ordering::Relaxed);
            locked(&self.error).get_or_insert(error);
        }
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<32>();
    words.iter().all(|word| *word == [0; 32]) && rest.iter().all(|byte| *byte == 0)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
