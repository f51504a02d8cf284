//! States for readers: the last durable one, and those of pages that have more after them.

use super::format::{ENTRIES, LOG, NUMBERS, OLDEST, entry, group, redb_error, there};
use super::lock;
use crate::engine::{Entry, Page, Revision};
use crate::{Changes, KeyRange, MetaError, space};
use base::limits::{META_PAGE_BYTES_MAX, META_SNAPSHOT_TIME_MAX, META_SNAPSHOTS_MAX};
use redb::{Database, ReadOnlyTable, ReadableDatabase};
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A state that does not change.
pub(super) struct Snapshot {
    revision: Revision,
    /// Its log has everything after this.
    oldest: Revision,
    entries: ReadOnlyTable<&'static [u8], &'static [u8]>,
    log: ReadOnlyTable<u64, &'static [u8]>,
}

impl Snapshot {
    /// The last durable state, which is known to be of this revision.
    pub(super) fn take(database: &Database, revision: Revision) -> Result<Self, MetaError> {
        let reading = database.begin_read().map_err(redb_error)?;
        let numbers = reading.open_table(NUMBERS).map_err(redb_error)?;
        Ok(Self {
            revision,
            oldest: Revision(there(&numbers, OLDEST)?),
            entries: reading.open_table(ENTRIES).map_err(redb_error)?,
            log: reading.open_table(LOG).map_err(redb_error)?,
        })
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    /// The entry with this key, as it is stored.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Entry>, MetaError> {
        let stored = self.entries.get(key).map_err(redb_error)?;
        stored.map(|stored| entry(key, stored.value())).transpose()
    }

    /// A page of a range of stored keys; its entries have those of the program.
    pub(super) fn page(&self, range: &KeyRange, entries_max: usize) -> Result<Page, MetaError> {
        let end = range.end().map_or(Bound::Unbounded, Bound::Excluded);
        let bounds = (Bound::Included(range.start()), end);
        let mut rows = self.entries.range::<&[u8]>(bounds).map_err(redb_error)?;
        let mut page = Page {
            entries: Vec::new(),
            has_more: false,
            revision: self.revision,
        };
        let mut bytes = 0;
        while page.entries.len() < entries_max && bytes < META_PAGE_BYTES_MAX {
            let Some(row) = rows.next() else {
                return Ok(page);
            };
            let (key, stored) = row.map_err(redb_error)?;
            bytes += key.value().len() + stored.value().len();
            page.entries
                .push(entry(space::key(key.value()), stored.value())?);
        }
        page.has_more = rows.next().is_some();
        Ok(page)
    }

    /// The first group of the log that has something after `after`; [`MetaError::HistoryLost`] if
    /// others before it were struck.
    pub(super) fn changes(
        &self,
        after: Revision,
    ) -> Result<Option<(Revision, Vec<Changes>)>, MetaError> {
        if self.oldest > after {
            let oldest = self.oldest;
            return Err(MetaError::HistoryLost { oldest });
        }
        group(&self.log, after)
    }
}

/// The states that can be read.
pub(super) struct Snapshots {
    latest: Mutex<Arc<Snapshot>>,
    kept: Mutex<VecDeque<Kept>>,
}

struct Kept {
    snapshot: Arc<Snapshot>,
    last_page: Instant,
}

impl Snapshots {
    pub(super) fn new(snapshot: Snapshot) -> Self {
        Self {
            latest: Mutex::new(Arc::new(snapshot)),
            kept: Mutex::default(),
        }
    }

    pub(super) fn latest(&self) -> Arc<Snapshot> {
        Arc::clone(&lock(&self.latest))
    }

    /// From now on this one is the latest.
    pub(super) fn publish(&self, snapshot: Snapshot) {
        *lock(&self.latest) = Arc::new(snapshot);
        self.forget();
    }

    /// The latest state, or the one of this revision.
    pub(super) fn at(&self, at: Option<Revision>) -> Result<Arc<Snapshot>, MetaError> {
        let latest = self.latest();
        let Some(at) = at.filter(|at| *at != latest.revision) else {
            return Ok(latest);
        };
        self.forget();
        let kept = lock(&self.kept);
        let found = kept.iter().find(|kept| kept.snapshot.revision == at);
        match found {
            Some(kept) => Ok(Arc::clone(&kept.snapshot)),
            None => Err(MetaError::HistoryLost {
                oldest: latest.revision,
            }),
        }
    }

    /// Keeps a state for the next page; the one that was read longest ago makes room.
    pub(super) fn keep(&self, snapshot: &Arc<Snapshot>) {
        let mut kept = lock(&self.kept);
        kept.retain(|kept| kept.snapshot.revision != snapshot.revision);
        kept.push_back(Kept {
            snapshot: Arc::clone(snapshot),
            last_page: Instant::now(),
        });
        if kept.len() > META_SNAPSHOTS_MAX {
            kept.pop_front();
        }
    }

    /// Lets go of what nobody has read for long.
    fn forget(&self) {
        let mut kept = lock(&self.kept);
        while kept
            .front()
            .is_some_and(|kept| kept.last_page.elapsed() > META_SNAPSHOT_TIME_MAX)
        {
            kept.pop_front();
        }
    }
}
