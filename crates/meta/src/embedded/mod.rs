//! One file on redb, for one process.
//!
//! ```text
//!  commit ──► queue ──► committer (a thread): conditions and changes of a group, one after the
//!                       other, in one transaction of redb; its commit is one flush
//!                         │
//!                         ├─► the new state, for reads         snapshot.rs
//!                         ├─► its record in the change log     log.rs
//!                         └─► answers
//! ```
//! * **Group commit** is ours: redb has one writer and a flush per commit, so whoever comes while
//!   one is under way shares the next.
//! * **Reads** see the last state that is durable and never wait for the committer. A single entry
//!   is read at once, in the calling task: a few pages, mostly from memory. Ranges are read by
//!   threads that may block.
//! * **A failed write or flush poisons** the engine: the group's transactions and all later ones
//!   are [`MetaError::Poisoned`], reads go on from the last durable state as far as redb still
//!   reads the file. Opening it again shows what became of the group.
//! * **Seats** belong to this process, which locks the file: opening it vacates them all. Within
//!   the process they end by being resigned, dropped or deposed.
//!
//! Opening after a crash takes redb as long as it takes to read the file once, unless the last
//! commit was one that notes what is free: [`Embedded::close`] ends with such a one.

mod apply;
mod committer;
mod format;
mod log;
mod seat;
mod snapshot;
#[cfg(test)]
mod tests;

use crate::engine::{Answer, Committed, Engine, Entry, Leader, Page, Revision, Status};
use crate::leadership::{Leadership, check_seat};
use crate::queue::Queue;
use crate::transaction::{Condition, Transaction, TransactionId, check_key};
use crate::watch::Watch;
use crate::{KeyRange, MetaError, space};
use base::limits::{META_PAGE_ENTRIES_MAX, META_READS_MAX, META_TIME_MAX};
use committer::Committer;
pub use format::META_FORMAT_VERSION;
use log::{Log, LogSource};
use seat::EmbeddedSeat;
use snapshot::{Snapshot, Snapshots};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// A metadata engine in a file. Dropped, it commits what is in its queue and ends; the file is free
/// when its watches and leaderships are gone, too.
pub struct Embedded {
    shared: Arc<Shared>,
    committer: Option<JoinHandle<()>>,
}

struct Shared {
    path: PathBuf,
    queue: Queue,
    snapshots: Snapshots,
    log: Log,
    reads: Arc<Semaphore>,
    /// Why it takes no changes any more.
    failure: OnceLock<String>,
    transactions: AtomicU64,
    groups: AtomicU64,
}

impl Embedded {
    /// Opens the engine in the file `path`, or makes one if there is no such file. Takes as long as
    /// reading the file once if it was not closed.
    ///
    /// # Errors
    /// [`MetaError::InUse`], [`MetaError::Newer`], [`MetaError::Foreign`], [`MetaError::Damaged`],
    /// [`MetaError::Unavailable`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Arc<Self>, MetaError> {
        let path = path.as_ref().to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let database = format::open(&path)?;
            Self::start(path, database)
        });
        opened
            .await
            .map_err(|_| MetaError::Unavailable("opening was given up".to_owned()))?
    }

    fn start(path: PathBuf, database: redb::Database) -> Result<Arc<Self>, MetaError> {
        let opened = format::prepare(&database)?;
        let (queue, jobs) = Queue::new();
        let shared = Arc::new(Shared {
            path,
            queue,
            snapshots: Snapshots::new(Snapshot::take(&database, opened.revision)?),
            log: Log::new(&opened),
            reads: Arc::new(Semaphore::new(META_READS_MAX)),
            failure: OnceLock::new(),
            transactions: AtomicU64::new(0),
            groups: AtomicU64::new(0),
        });
        let committer = Committer::new(database, opened, Arc::clone(&shared));
        let committer = std::thread::Builder::new()
            .name("meta-commit".to_owned())
            .spawn(move || committer.run(jobs))
            .map_err(|error| MetaError::Unavailable(error.to_string()))?;
        Ok(Arc::new(Self {
            shared,
            committer: Some(committer),
        }))
    }

    /// Commits what is in the queue and ends; what comes later is [`MetaError::Closed`].
    pub async fn close(&self) {
        self.shared.close();
        let mut is_over = self.shared.log.news();
        let _ = timeout(META_TIME_MAX, is_over.wait_for(|news| news.is_over)).await;
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.shared.close();
        if let Some(committer) = self.committer.take() {
            // It ends after at most the groups that are in the queue, so that the file can be
            // opened again at once. A panic in it was reported by itself.
            let _ = committer.join();
        }
    }
}

impl Shared {
    fn close(&self) {
        self.queue.close();
        self.reads.close();
    }

    /// Says that nothing can be made durable any more, and returns it as an error.
    fn poison(&self, failure: &str) -> MetaError {
        let failure = self.failure.get_or_init(|| failure.to_owned());
        MetaError::Poisoned(failure.clone())
    }

    fn get(&self, key: &[u8]) -> Result<(Option<Entry>, Revision), MetaError> {
        if self.reads.is_closed() {
            return Err(MetaError::Closed);
        }
        let snapshot = self.snapshots.latest();
        Ok((snapshot.get(key)?, snapshot.revision()))
    }

    async fn commit(&self, transaction: Transaction) -> Result<Committed, MetaError> {
        if let Some(failure) = self.failure.get() {
            return Err(MetaError::Poisoned(failure.clone()));
        }
        self.queue.commit(transaction).await
    }

    async fn range(
        self: &Arc<Self>,
        range: &KeyRange,
        entries_max: usize,
        at: Option<Revision>,
    ) -> Result<Page, MetaError> {
        let range = space::entries(range);
        range.check()?;
        let entries_max = entries_max.clamp(1, META_PAGE_ENTRIES_MAX);
        let permit = timeout(META_TIME_MAX, Arc::clone(&self.reads).acquire_owned()).await;
        let permit = permit
            .map_err(|_| MetaError::Unavailable("too many ranges are read at once".to_owned()))?
            .map_err(|_| MetaError::Closed)?;
        let snapshot = self.snapshots.at(at)?;
        let shared = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || {
            let page = snapshot.page(&range, entries_max);
            drop(permit);
            let page = page?;
            if page.has_more {
                shared.snapshots.keep(&snapshot);
            }
            Ok(page)
        });
        reading.await.map_err(|_| MetaError::Closed)?
    }

    fn watch(self: &Arc<Self>, range: KeyRange, after: Revision) -> Box<LogSource> {
        Box::new(LogSource::new(Arc::clone(self), range, after))
    }

    async fn lead(self: &Arc<Self>, seat: &str, holder: &str) -> Result<Leadership, MetaError> {
        check_seat(seat, holder)?;
        let since = Instant::now();
        let key = space::seat(seat);
        let mut taking = Transaction::new();
        taking.conditions.push(Condition::Absent(key.clone()));
        let taking = taking.put_stored(key.clone(), holder);
        let epoch = match self.commit(taking).await {
            Ok(committed) => committed.revision,
            Err(MetaError::Conflict { .. }) => {
                let holder = self.get(&key)?.0.map(|entry| entry.value);
                return Err(MetaError::Held {
                    seat: seat.to_owned(),
                    holder: holder
                        .map_or_else(String::new, |name| String::from_utf8_lossy(&name).into()),
                });
            }
            Err(error) => return Err(error),
        };
        let keeping = EmbeddedSeat::new(Arc::clone(self), seat, epoch);
        let changes = self.watch(space::only(&key), epoch);
        Ok(Leadership::keep(seat, epoch, since, keeping, changes))
    }

    async fn depose(&self, seat: &str, epoch: Revision) -> Result<(), MetaError> {
        let key = space::seat(seat);
        let mut leaving = Transaction::new();
        let held = Condition::WrittenAt(key.clone(), epoch);
        leaving.conditions.push(held);
        match self.commit(leaving.delete_stored(key)).await {
            Ok(_) | Err(MetaError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn status(&self) -> Status {
        Status {
            engine: "embedded",
            revision: self.snapshots.latest().revision(),
            size_bytes: std::fs::metadata(&self.path).map_or(0, |metadata| metadata.len()),
            transactions: self.transactions.load(Ordering::Relaxed),
            groups: self.groups.load(Ordering::Relaxed),
            failure: self.failure.get().cloned(),
        }
    }
}

impl Engine for Embedded {
    fn get<'a>(&'a self, key: &'a [u8]) -> Answer<'a, (Option<Entry>, Revision)> {
        Box::pin(async move {
            let stored = space::entry(key);
            check_key(&stored)?;
            let (entry, revision) = self.shared.get(&stored)?;
            let entry = entry.map(|entry| Entry {
                key: key.to_vec(),
                ..entry
            });
            Ok((entry, revision))
        })
    }

    fn range<'a>(
        &'a self,
        range: &'a KeyRange,
        entries_max: usize,
        at: Option<Revision>,
    ) -> Answer<'a, Page> {
        Box::pin(self.shared.range(range, entries_max, at))
    }

    fn commit(&self, transaction: Transaction) -> Answer<'_, Committed> {
        Box::pin(self.shared.commit(transaction))
    }

    fn outcome(&self, transaction: TransactionId) -> Answer<'_, Committed> {
        Box::pin(self.shared.queue.outcome(transaction))
    }

    fn watch<'a>(&'a self, range: &'a KeyRange, after: Revision) -> Answer<'a, Watch> {
        Box::pin(async move {
            let range = space::entries(range);
            range.check()?;
            Ok(Watch::new(self.shared.watch(range, after)))
        })
    }

    fn lead<'a>(&'a self, seat: &'a str, holder: &'a str) -> Answer<'a, Leadership> {
        Box::pin(self.shared.lead(seat, holder))
    }

    fn leader<'a>(&'a self, seat: &'a str) -> Answer<'a, Option<Leader>> {
        Box::pin(async move {
            let (entry, _) = self.shared.get(&space::seat(seat))?;
            Ok(entry.map(|entry| Leader {
                holder: String::from_utf8_lossy(&entry.value).into(),
                epoch: entry.revision,
            }))
        })
    }

    fn depose<'a>(&'a self, seat: &'a str, epoch: Revision) -> Answer<'a, ()> {
        Box::pin(self.shared.depose(seat, epoch))
    }

    fn status(&self) -> Answer<'_, Status> {
        Box::pin(async { Ok(self.shared.status()) })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Nothing is left half changed under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
