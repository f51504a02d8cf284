//! Where transactions wait for a committer, and where their outcomes wait for those who gave up.
//!
//! ```text
//!  commit ──► permits ──► queue ──► gather ──► committer ──► answer ──► commit returns
//!                                                              │  nobody waits any more
//!                                                              └──► kept until outcome(id) asks
//! ```
//! A committer answers each job once, and only with what is certain. What it does not know yet it
//! does not answer: whoever waits is told [`MetaError::Unknown`] after `META_TIME_MAX` and may ask
//! for the outcome later.

use crate::MetaError;
use crate::engine::Committed;
use crate::transaction::{Transaction, TransactionId};
use base::limits::{
    META_GATHER_TIME_MAX, META_GROUP_BYTES_MAX, META_GROUP_MAX, META_QUEUE_BYTES_MAX,
    META_QUEUE_MAX, META_TIME_MAX, META_UNKNOWN_MAX,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout, timeout_at};

/// Bytes of one permit: a semaphore counts to 2^29 or so, and bytes need not be exact.
const PERMIT_BYTES: usize = 1024;

/// How often a committer that is held up looks for jobs that have become late.
pub(crate) const LATE_INTERVAL: Duration = Duration::from_millis(250);
/// How much longer than a job's time its answer is waited for: a committer says of a late one that
/// it did not begin.
const LATE_TIME: Duration = Duration::from_secs(1);

/// What has become of a transaction.
pub(crate) type Outcome = Result<Committed, MetaError>;

/// A transaction that waits, with everything it holds.
pub(crate) struct Job {
    pub(crate) id: TransactionId,
    pub(crate) transaction: Transaction,
    /// Bytes of its keys and values.
    pub(crate) size_bytes: usize,
    /// After that nobody waits for it; it should not begin.
    pub(crate) deadline: Instant,
    answer: oneshot::Sender<Outcome>,
    _permits: (OwnedSemaphorePermit, OwnedSemaphorePermit),
}

impl Job {
    /// Says what has become of it.
    pub(crate) fn answer(self, outcome: Outcome) {
        // Nobody waits if the question was given up.
        let _ = self.answer.send(outcome);
    }

    pub(crate) fn is_late(&self) -> bool {
        self.deadline <= Instant::now()
    }
}

/// Where transactions are handed in.
pub(crate) struct Queue {
    /// None when it is closed.
    sender: Mutex<Option<mpsc::UnboundedSender<Job>>>,
    count: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    ids: AtomicU64,
    unknown: Mutex<BTreeMap<TransactionId, oneshot::Receiver<Outcome>>>,
}

/// Where a committer takes them from.
pub(crate) type Jobs = mpsc::UnboundedReceiver<Job>;

impl Queue {
    pub(crate) fn new() -> (Self, Jobs) {
        // What is in it is bounded by the permits that each job holds.
        let (sender, jobs) = mpsc::unbounded_channel();
        let queue = Self {
            sender: Mutex::new(Some(sender)),
            count: Arc::new(Semaphore::new(META_QUEUE_MAX)),
            bytes: Arc::new(Semaphore::new(META_QUEUE_BYTES_MAX / PERMIT_BYTES)),
            ids: AtomicU64::new(1),
            unknown: Mutex::default(),
        };
        (queue, jobs)
    }

    /// Hands a transaction in and waits for its outcome.
    pub(crate) async fn commit(&self, transaction: Transaction) -> Outcome {
        transaction.check()?;
        let size_bytes = transaction.size_bytes();
        let deadline = Instant::now() + META_TIME_MAX;
        let permits = timeout_at(deadline, self.permits(size_bytes)).await;
        let permits = permits.map_err(|_| {
            MetaError::Unavailable("too many transactions wait for their turn".to_owned())
        })??;
        let id = TransactionId(self.ids.fetch_add(1, Ordering::Relaxed));
        let (answer, answered) = oneshot::channel();
        let job = Job {
            id,
            transaction,
            size_bytes,
            deadline,
            answer,
            _permits: permits,
        };
        let sender = lock(&self.sender).clone().ok_or(MetaError::Closed)?;
        sender.send(job).map_err(|_| MetaError::Closed)?;
        drop(sender);
        self.wait(id, answered, deadline + LATE_TIME).await
    }

    async fn permits(
        &self,
        size_bytes: usize,
    ) -> Result<(OwnedSemaphorePermit, OwnedSemaphorePermit), MetaError> {
        let kib = size_bytes.div_ceil(PERMIT_BYTES).max(1);
        let kib = u32::try_from(kib).expect("META_TRANSACTION_BYTES_MAX is far below");
        let count = Arc::clone(&self.count).acquire_owned().await;
        let count = count.map_err(|_| MetaError::Closed)?;
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(kib).await;
        Ok((count, bytes.map_err(|_| MetaError::Closed)?))
    }

    async fn wait(
        &self,
        id: TransactionId,
        mut answered: oneshot::Receiver<Outcome>,
        deadline: Instant,
    ) -> Outcome {
        match timeout_at(deadline, &mut answered).await {
            Ok(Ok(outcome)) => outcome,
            // The committer has ended and dropped the job: it did not begin it, or could not find
            // out what became of it.
            Ok(Err(_)) => Err(MetaError::Unknown(id)),
            Err(_) => {
                let mut unknown = lock(&self.unknown);
                unknown.insert(id, answered);
                if unknown.len() > META_UNKNOWN_MAX {
                    unknown.pop_first();
                }
                Err(MetaError::Unknown(id))
            }
        }
    }

    /// Waits for the outcome of a transaction that was not answered in time.
    pub(crate) async fn outcome(&self, id: TransactionId) -> Outcome {
        let answered = lock(&self.unknown).remove(&id);
        let answered = answered.ok_or(MetaError::Forgotten(id))?;
        match self
            .wait(id, answered, Instant::now() + META_TIME_MAX)
            .await
        {
            // Nothing was put back: the committer has ended.
            Err(MetaError::Unknown(_)) if !lock(&self.unknown).contains_key(&id) => {
                Err(MetaError::Forgotten(id))
            }
            outcome => outcome,
        }
    }

    /// Transactions are not taken any more; those in the queue are still carried out, then the
    /// committer has no more.
    pub(crate) fn close(&self) {
        self.count.close();
        self.bytes.close();
        lock(&self.sender).take();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half changed under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many come together usually, and how long it pays to wait for them.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    count_before: usize,
    /// How long the last group took.
    pub(crate) time_before: Duration,
}

impl Gathering {
    /// The next group; none when the queue is closed and empty. Whoever was answered with the last
    /// group may be about to come back, so as many as were in that are waited for, but for no
    /// longer than half of what the last group took.
    pub(crate) async fn gather(&mut self, jobs: &mut Jobs) -> Option<Vec<Job>> {
        let first = jobs.recv().await?;
        let mut bytes = first.size_bytes;
        let mut group = vec![first];
        let end = Instant::now() + (self.time_before / 2).min(META_GATHER_TIME_MAX);
        while group.len() < META_GROUP_MAX && bytes < META_GROUP_BYTES_MAX {
            let job = match jobs.try_recv() {
                Ok(job) => job,
                Err(_) if group.len() >= self.count_before => break,
                Err(_) => {
                    let left = end.saturating_duration_since(Instant::now());
                    match timeout(left, jobs.recv()).await {
                        Ok(Some(job)) => job,
                        Ok(None) | Err(_) => break,
                    }
                }
            };
            bytes += job.size_bytes;
            group.push(job);
        }
        self.count_before = group.len();
        Some(group)
    }
}
