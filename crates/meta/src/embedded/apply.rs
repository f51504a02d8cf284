//! One transaction in the tables: conditions, then changes, all or none.

use super::format::{redb_error, revision_of, stored};
use crate::engine::Revision;
use crate::transaction::{Change, Condition, Transaction};
use crate::{Changed, KeyRange, MetaError, space};
use base::limits::META_RANGE_DELETE_MAX;
use redb::{ReadableTable, Table};
use std::ops::Bound;

pub(super) type Entries<'a> = Table<'a, &'static [u8], &'static [u8]>;

/// Why a transaction is not carried out.
pub(super) enum Stop {
    /// It says so itself, and has changed nothing.
    Answer(MetaError),
    /// The file failed; nothing of its group can be trusted.
    Failure(MetaError),
}

fn failure(error: impl Into<redb::Error>) -> Stop {
    Stop::Failure(redb_error(error))
}

/// Carries it out at revision `at`, if all conditions hold in the state before.
pub(super) fn apply(
    transaction: Transaction,
    at: Revision,
    entries: &mut Entries<'_>,
) -> Result<Vec<Changed>, Stop> {
    let before = Revision(at.0 - 1);
    check(&transaction, before, entries)?;
    let mut deleted = Vec::new();
    for change in &transaction.changes {
        if let Change::DeleteRange(range) = change {
            keys_of(range, entries, &mut deleted)?;
        }
    }
    let mut changed = Vec::with_capacity(transaction.changes.len() + deleted.len());
    for key in deleted {
        entries.remove(key.as_slice()).map_err(failure)?;
        changed.push(Changed::Deleted(key));
    }
    for change in transaction.changes {
        match change {
            Change::Put(key, value) => {
                let bytes = stored(at, &value);
                entries
                    .insert(key.as_slice(), bytes.as_slice())
                    .map_err(failure)?;
                changed.push(Changed::Put(key, value));
            }
            Change::Delete(key) => {
                let was_there = entries.remove(key.as_slice()).map_err(failure)?.is_some();
                if was_there {
                    changed.push(Changed::Deleted(key));
                }
            }
            Change::DeleteRange(_) => {}
        }
    }
    Ok(changed)
}

fn check(transaction: &Transaction, at: Revision, entries: &Entries<'_>) -> Result<(), Stop> {
    if let Some(guard) = &transaction.guard
        && written_at(&space::seat(&guard.seat), entries)? != Some(guard.epoch)
    {
        return Err(Stop::Answer(MetaError::Deposed {
            seat: guard.seat.clone(),
            epoch: guard.epoch,
        }));
    }
    for (index, condition) in transaction.conditions.iter().enumerate() {
        let holds = match condition {
            Condition::Absent(key) => written_at(key, entries)?.is_none(),
            Condition::Present(key) => written_at(key, entries)?.is_some(),
            Condition::WrittenAt(key, at) => written_at(key, entries)? == Some(*at),
            Condition::Empty(range) => rows(range, entries)?.next().is_none(),
        };
        if !holds {
            return Err(Stop::Answer(MetaError::Conflict {
                condition: index,
                at,
            }));
        }
    }
    Ok(())
}

fn written_at(key: &[u8], entries: &Entries<'_>) -> Result<Option<Revision>, Stop> {
    let stored = entries.get(key).map_err(failure)?;
    let revision = stored.map(|stored| revision_of(stored.value()));
    revision.transpose().map_err(Stop::Failure)
}

fn rows<'a>(
    range: &KeyRange,
    entries: &'a Entries<'_>,
) -> Result<redb::Range<'a, &'static [u8], &'static [u8]>, Stop> {
    let end = range.end().map_or(Bound::Unbounded, Bound::Excluded);
    let bounds = (Bound::Included(range.start()), end);
    entries.range::<&[u8]>(bounds).map_err(failure)
}

/// Adds the keys of a range, unless that are more than one transaction may delete.
fn keys_of(range: &KeyRange, entries: &Entries<'_>, keys: &mut Vec<Vec<u8>>) -> Result<(), Stop> {
    for row in rows(range, entries)? {
        keys.push(row.map_err(failure)?.0.value().to_vec());
        if keys.len() > META_RANGE_DELETE_MAX {
            return Err(Stop::Answer(MetaError::TooLarge {
                what: "entries in the ranges that are deleted",
                size: keys.len(),
                size_max: META_RANGE_DELETE_MAX,
            }));
        }
    }
    Ok(())
}
