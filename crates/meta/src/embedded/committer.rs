//! The thread that commits: one group after the other, each with one flush.

use super::Shared;
use super::apply::{Stop, apply};
use super::format::{ENTRIES, LOG, NUMBERS, OLDEST, Opened, REVISION, redb_error, set};
use super::log::{Group, Groups, encode};
use super::snapshot::Snapshot;
use crate::engine::{Committed, Revision};
use crate::queue::{Gathering, Job, Jobs, Outcome};
use crate::transaction::Transaction;
use crate::{Changes, MetaError};
use redb::{Database, WriteTransaction};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio::runtime;

/// What the thread owns.
pub(super) struct Committer {
    database: Database,
    revision: Revision,
    groups: Groups,
    shared: Arc<Shared>,
}

/// A group in the tables, not durable yet.
struct Staged {
    /// What each transaction is answered when it is.
    outcomes: Vec<Outcome>,
    revision: Revision,
    changes: Vec<Changes>,
}

impl Committer {
    pub(super) fn new(database: Database, opened: Opened, shared: Arc<Shared>) -> Self {
        Self {
            revision: opened.revision,
            groups: Groups::new(&opened),
            database,
            shared,
        }
    }

    /// Commits until the queue is closed and empty.
    pub(super) fn run(mut self, mut jobs: Jobs) {
        let waiting = runtime::Builder::new_current_thread().enable_time().build();
        match waiting {
            Ok(waiting) => {
                let mut gathering = Gathering::default();
                while let Some(group) = waiting.block_on(gathering.gather(&mut jobs)) {
                    let begin = Instant::now();
                    self.commit(group);
                    gathering.time_before = begin.elapsed();
                }
            }
            Err(error) => {
                self.shared.poison(&error.to_string());
            }
        }
        self.note_what_is_free();
        self.shared.log.end();
    }

    /// The last commit notes what is free, so that the next opening need not find it out.
    fn note_what_is_free(&self) {
        if self.shared.failure.get().is_some() {
            return;
        }
        // Without it the next opening takes longer and finds the same.
        if let Ok(mut writing) = self.database.begin_write() {
            writing.set_quick_repair(true);
            let _ = writing.commit();
        }
    }

    /// Commits one group and answers its jobs.
    fn commit(&mut self, mut group: Vec<Job>) {
        // What nobody waits for any more does not begin.
        let transactions = group.iter_mut().map(|job| {
            let transaction = std::mem::take(&mut job.transaction);
            (!job.is_late()).then_some(transaction)
        });
        let transactions = transactions.collect();
        let outcomes = match self.shared.failure.get() {
            Some(failure) => Err(MetaError::Poisoned(failure.clone())),
            None => self.carry_out(transactions),
        };
        match outcomes {
            Ok(outcomes) => {
                for (job, outcome) in group.into_iter().zip(outcomes) {
                    job.answer(outcome);
                }
            }
            Err(error) => {
                let failure = error.to_string();
                for job in group {
                    job.answer(Err(self.shared.poison(&failure)));
                }
            }
        }
    }

    /// Carries transactions out, none in the place of one that is too late, and makes them durable.
    /// On an error the file has failed.
    fn carry_out(
        &mut self,
        transactions: Vec<Option<Transaction>>,
    ) -> Result<Vec<Outcome>, MetaError> {
        let writing = self.database.begin_write().map_err(redb_error)?;
        let staged = self.stage(&writing, transactions)?;
        if staged.changes.is_empty() {
            writing.abort().map_err(redb_error)?;
            return Ok(staged.outcomes);
        }
        let record = encode(&staged.changes);
        let group = Group {
            after: self.revision,
            last: staged.revision,
            changes: staged.changes,
            size_bytes: record.len(),
        };
        self.log(&writing, group.last, &record)?;
        writing.commit().map_err(redb_error)?;
        let snapshot = Snapshot::take(&self.database, group.last)?;
        self.revision = group.last;
        self.shared.snapshots.publish(snapshot);
        self.shared.log.publish(group, self.groups.oldest);
        let committed = staged.outcomes.iter().filter(|outcome| outcome.is_ok());
        let counters = &self.shared;
        let count = committed.count() as u64;
        counters.transactions.fetch_add(count, Ordering::Relaxed);
        counters.groups.fetch_add(1, Ordering::Relaxed);
        Ok(staged.outcomes)
    }

    /// Carries transactions out in the table, one after the other.
    fn stage(
        &self,
        writing: &WriteTransaction,
        transactions: Vec<Option<Transaction>>,
    ) -> Result<Staged, MetaError> {
        let mut entries = writing.open_table(ENTRIES).map_err(redb_error)?;
        let mut staged = Staged {
            outcomes: Vec::with_capacity(transactions.len()),
            revision: self.revision,
            changes: Vec::new(),
        };
        for transaction in transactions {
            let outcome = match transaction {
                None => Err(MetaError::Unavailable(
                    "its turn came too late, after others".to_owned(),
                )),
                Some(transaction) => {
                    let next = Revision(staged.revision.0 + 1);
                    let is_change = !transaction.changes.is_empty();
                    match apply(transaction, next, &mut entries) {
                        Ok(changed) if is_change => {
                            staged.revision = next;
                            staged.changes.push(Changes {
                                revision: next,
                                changed,
                            });
                            Ok(Committed { revision: next })
                        }
                        Ok(_) => Ok(Committed {
                            revision: staged.revision,
                        }),
                        Err(Stop::Answer(error)) => Err(error),
                        Err(Stop::Failure(error)) => return Err(error),
                    }
                }
            };
            staged.outcomes.push(outcome);
        }
        Ok(staged)
    }

    /// Writes the record of a group and strikes those that it has no room beside.
    fn log(
        &mut self,
        writing: &WriteTransaction,
        last: Revision,
        record: &[u8],
    ) -> Result<(), MetaError> {
        let mut log = writing.open_table(LOG).map_err(redb_error)?;
        log.insert(last.0, record).map_err(redb_error)?;
        let struck = self.groups.push(last, record.len());
        for group in &struck {
            log.remove(group.0).map_err(redb_error)?;
        }
        let mut numbers = writing.open_table(NUMBERS).map_err(redb_error)?;
        if !struck.is_empty() {
            set(&mut numbers, OLDEST, self.groups.oldest.0)?;
        }
        set(&mut numbers, REVISION, last.0)
    }
}
