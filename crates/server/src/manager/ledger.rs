//! The ledger in the metadata engine: writing batches, reading everything.

use super::book::{Book, Change};
use super::record::{self, LIMITS, ROWS, Row, RowError};
use base::TicketId;
use base::limits::{META_PAGE_ENTRIES_MAX, RESERVE_RECORDS_MAX, RESERVE_TIME_MAX};
use meta::{Engine, KeyRange, Leadership, MetaError, Transaction};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use wire::message::ReserveLimits;

/// How long to wait before asking again what became of a transaction.
const OUTCOME_INTERVAL: Duration = Duration::from_millis(200);

/// Why the ledger cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] MetaError),
    /// An entry.
    #[error("entry {key} of the ledger of reservations: {why}")]
    Entry {
        /// Its key, in hexadecimal.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// There are more than a manager keeps.
    #[error("the ledger has more than {RESERVE_RECORDS_MAX} reservations")]
    TooMany,
}

/// See the module's head.
pub(crate) struct Ledger {
    engine: Arc<dyn Engine>,
    seat: Leadership,
}

impl Ledger {
    pub(crate) fn new(engine: Arc<dyn Engine>, seat: Leadership) -> Self {
        Self { engine, seat }
    }

    /// Whether nobody else is the manager yet.
    pub(crate) fn is_trusted(&self) -> bool {
        self.seat.is_trusted()
    }

    /// Waits until that is not so any more.
    pub(crate) async fn deposed(&self) {
        self.seat.lost().await;
    }

    /// Leaves the seat to another.
    pub(crate) async fn resign(self) {
        self.seat.resign().await;
    }

    /// Makes changes durable, all of them or none.
    ///
    /// # Errors
    /// The engine's; [`has_certainly_not_happened`] says of each whether nothing was written.
    pub(crate) async fn write(&self, changes: &[Change]) -> Result<(), MetaError> {
        if changes.is_empty() {
            return Ok(());
        }
        let transaction = entries(changes).into_iter().fold(
            Transaction::new(),
            |all, (key, value)| match value {
                Some(value) => all.put(key, value),
                None => all.delete(key),
            },
        );
        let written = self.engine.commit(transaction.guarded_by(&self.seat)).await;
        let id = match written {
            Ok(_) => return Ok(()),
            Err(MetaError::Unknown(id)) => id,
            Err(error) => return Err(error),
        };
        let deadline = Instant::now() + RESERVE_TIME_MAX;
        loop {
            match self.engine.outcome(id).await {
                Ok(_) => return Ok(()),
                Err(MetaError::Unknown(_)) if Instant::now() < deadline => {
                    tokio::time::sleep(OUTCOME_INTERVAL).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads everything into a new book.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub(crate) async fn read(
        &self,
        book: impl FnOnce(ReserveLimits) -> Book,
    ) -> Result<Book, LedgerError> {
        let (limits, _) = self.engine.get(&LIMITS).await?;
        let limits = match limits {
            Some(entry) => value(&entry.key, &entry.value)?,
            None => ReserveLimits::default(),
        };
        let mut book = book(limits);
        let mut range = KeyRange::prefix(ROWS);
        let mut state = None;
        let mut count = 0;
        loop {
            let page = self
                .engine
                .range(&range, META_PAGE_ENTRIES_MAX, state)
                .await?;
            for entry in &page.entries {
                let id =
                    record::id_of(&entry.key).ok_or_else(|| wrong(&entry.key, "no identity"))?;
                let row: Row = value(&entry.key, &entry.value)?;
                book.restore(id, row)
                    .map_err(|why| wrong(&entry.key, why))?;
                count += 1;
            }
            if count > RESERVE_RECORDS_MAX {
                return Err(LedgerError::TooMany);
            }
            match page.entries.last() {
                Some(last) if page.has_more => range = range.after(&last.key),
                _ => return Ok(book),
            }
            state = Some(page.revision);
        }
    }
}

/// Whether an error says that nothing has happened and never will.
pub(crate) fn has_certainly_not_happened(error: &MetaError) -> bool {
    match error {
        MetaError::Unknown(_)
        | MetaError::Poisoned(_)
        | MetaError::Forgotten(_)
        // Nothing was written, and nothing will be any more.
        | MetaError::Deposed { .. }
        | MetaError::Closed => false,
        _ => true,
    }
}

/// What a batch comes to: for each key what it has at the end, or that it has nothing.
fn entries(changes: &[Change]) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let entries = changes.iter().map(|change| match change {
        Change::Row { id, after, .. } => (record::key(*id), after.as_deref().map(record::encode)),
        Change::Limits { after, .. } => (LIMITS.to_vec(), Some(record::encode(after))),
    });
    // Later ones take the place of earlier ones.
    entries.collect()
}

fn value<T: record::Value>(key: &[u8], bytes: &[u8]) -> Result<T, LedgerError> {
    record::decode(bytes).map_err(|error: RowError| wrong(key, error.to_string()))
}

fn wrong(key: &[u8], why: impl Into<String>) -> LedgerError {
    let key = match record::id_of(key) {
        Some(TicketId(id)) => crate::data::to_hex(&id),
        None => crate::data::to_hex(key),
    };
    LedgerError::Entry {
        key,
        why: why.into(),
    }
}
