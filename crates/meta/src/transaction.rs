//! Transactions: what must hold, what is changed, who may.
//!
//! A transaction is checked when it is committed, before anything is asked of an engine. No key is
//! changed twice in one, not by a range deletion either: the order of the changes within a
//! transaction then means nothing, in no engine.

use crate::engine::Revision;
use crate::leadership::Leadership;
use crate::{KeyRange, MetaError, space};
use base::limits::{
    META_KEY_BYTES_MAX, META_OPERATIONS_MAX, META_TRANSACTION_BYTES_MAX, META_VALUE_BYTES_MAX,
};
use std::collections::BTreeSet;
use std::fmt;

/// Names a transaction of one engine while that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransactionId(pub(crate) u64);

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What must hold for a transaction to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is no entry with this key.
    Absent(Vec<u8>),
    /// There is one.
    Present(Vec<u8>),
    /// There is one, and it was written at this revision.
    WrittenAt(Vec<u8>, Revision),
    /// No key of the range has an entry.
    Empty(KeyRange),
}

/// What a transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Key and value.
    Put(Vec<u8>, Vec<u8>),
    /// The entry with this key, if there is one.
    Delete(Vec<u8>),
    /// All entries of the range; up to `META_RANGE_DELETE_MAX` of them.
    DeleteRange(KeyRange),
}

/// The seat and the epoch that must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guard {
    pub(crate) seat: String,
    pub(crate) epoch: Revision,
}

/// Conditions and changes that happen at once or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    pub(crate) guard: Option<Guard>,
    /// With keys as the engines store them: [`space`].
    pub(crate) conditions: Vec<Condition>,
    pub(crate) changes: Vec<Change>,
}

impl Transaction {
    /// Without conditions and changes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// It happens only while this leadership lasts.
    #[must_use]
    pub fn guarded_by(mut self, leadership: &Leadership) -> Self {
        self.guard = Some(leadership.guard());
        self
    }

    /// It happens only if this holds.
    #[must_use]
    pub fn when(mut self, condition: Condition) -> Self {
        self.conditions.push(match condition {
            Condition::Absent(key) => Condition::Absent(space::entry(&key)),
            Condition::Present(key) => Condition::Present(space::entry(&key)),
            Condition::WrittenAt(key, at) => Condition::WrittenAt(space::entry(&key), at),
            Condition::Empty(range) => Condition::Empty(space::entries(&range)),
        });
        self
    }

    /// Writes an entry.
    #[must_use]
    pub fn put(mut self, key: impl AsRef<[u8]>, value: impl Into<Vec<u8>>) -> Self {
        let key = space::entry(key.as_ref());
        self.changes.push(Change::Put(key, value.into()));
        self
    }

    /// Deletes an entry, if there is one.
    #[must_use]
    pub fn delete(mut self, key: impl AsRef<[u8]>) -> Self {
        let key = space::entry(key.as_ref());
        self.changes.push(Change::Delete(key));
        self
    }

    /// Deletes all entries of a range.
    #[must_use]
    pub fn delete_range(mut self, range: &KeyRange) -> Self {
        let range = space::entries(range);
        self.changes.push(Change::DeleteRange(range));
        self
    }

    /// Writes an entry at a key as the engines store it.
    pub(crate) fn put_stored(mut self, key: Vec<u8>, value: impl Into<Vec<u8>>) -> Self {
        self.changes.push(Change::Put(key, value.into()));
        self
    }

    /// Deletes an entry at a key as the engines store it.
    pub(crate) fn delete_stored(mut self, key: Vec<u8>) -> Self {
        self.changes.push(Change::Delete(key));
        self
    }

    /// Bytes of its keys and values, which have a bound.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let bounds = |range: &KeyRange| range.start().len() + range.end().map_or(0, <[u8]>::len);
        let conditions = self.conditions.iter().map(|condition| match condition {
            Condition::Absent(key) | Condition::Present(key) => key.len(),
            Condition::WrittenAt(key, _) => key.len() + size_of::<Revision>(),
            Condition::Empty(range) => bounds(range),
        });
        let changes = self.changes.iter().map(|change| match change {
            Change::Put(key, value) => key.len() + value.len(),
            Change::Delete(key) => key.len(),
            Change::DeleteRange(range) => bounds(range),
        });
        conditions.sum::<usize>() + changes.sum::<usize>()
    }

    /// Whether every engine could carry it out.
    pub(crate) fn check(&self) -> Result<(), MetaError> {
        bounded("conditions", self.conditions.len(), META_OPERATIONS_MAX)?;
        bounded("changes", self.changes.len(), META_OPERATIONS_MAX)?;
        let size = self.size_bytes();
        bounded("bytes in a transaction", size, META_TRANSACTION_BYTES_MAX)?;
        for condition in &self.conditions {
            match condition {
                Condition::Absent(key) | Condition::Present(key) => check_key(key)?,
                Condition::WrittenAt(key, _) => check_key(key)?,
                Condition::Empty(range) => range.check()?,
            }
        }
        let mut keys = BTreeSet::new();
        let mut ranges: Vec<&KeyRange> = Vec::new();
        for change in &self.changes {
            let is_new = match change {
                Change::Put(key, value) => {
                    bounded("bytes in a value", value.len(), META_VALUE_BYTES_MAX)?;
                    check_key(key)?;
                    keys.insert(key)
                }
                Change::Delete(key) => {
                    check_key(key)?;
                    keys.insert(key)
                }
                Change::DeleteRange(range) => {
                    range.check()?;
                    let is_new = !ranges.iter().any(|other| other.meets(range));
                    ranges.push(range);
                    is_new
                }
            };
            if !is_new {
                return Err(MetaError::Invalid("a key is changed twice"));
            }
        }
        let is_in_range = |key: &Vec<u8>| ranges.iter().any(|range| range.contains(key));
        match keys.into_iter().any(is_in_range) {
            true => Err(MetaError::Invalid("a key is changed twice")),
            false => Ok(()),
        }
    }
}

fn bounded(what: &'static str, size: usize, size_max: usize) -> Result<(), MetaError> {
    match size > size_max {
        true => Err(MetaError::TooLarge {
            what,
            size,
            size_max,
        }),
        false => Ok(()),
    }
}

/// Whether this can be a key, as the engines store it.
pub(crate) fn check_key(key: &[u8]) -> Result<(), MetaError> {
    if key.len() <= space::TAG_BYTES {
        return Err(MetaError::Invalid("a key has at least one byte"));
    }
    bounded(
        "bytes in a key",
        key.len() - space::TAG_BYTES,
        META_KEY_BYTES_MAX,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_twice(transaction: &Transaction) -> bool {
        matches!(
            transaction.check(),
            Err(MetaError::Invalid("a key is changed twice"))
        )
    }

    #[test]
    fn no_key_is_changed_twice() {
        let new = Transaction::new;
        assert!(is_twice(&new().put(b"a", b"1").put(b"a", b"2")));
        assert!(is_twice(&new().put(b"a", b"1").delete(b"a")));
        let range = KeyRange::prefix(*b"a");
        assert!(is_twice(&new().put(b"ab", b"1").delete_range(&range)));
        assert!(is_twice(&new().delete_range(&range).put(b"ab", b"1")));
        let all = KeyRange::all();
        assert!(is_twice(&new().delete_range(&range).delete_range(&all)));
        assert!(!is_twice(&new().delete_range(&range).put(b"b", b"1")));
    }

    #[test]
    fn bounds_are_checked_before_anything_is_asked_of_an_engine() {
        let what = |transaction: Transaction| match transaction.check() {
            Err(MetaError::TooLarge { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        let new = Transaction::new;
        let long = vec![b'k'; META_KEY_BYTES_MAX + 1];
        assert_eq!(what(new().delete(&long)), "bytes in a key");
        assert_eq!(what(new().when(Condition::Absent(long))), "bytes in a key");
        let value = vec![0; META_VALUE_BYTES_MAX + 1];
        assert_eq!(what(new().put(b"k", value)), "bytes in a value");
        let numbered = |index: usize| index.to_string();
        let many = (0..=META_OPERATIONS_MAX).fold(new(), |all, at| all.delete(numbered(at)));
        assert_eq!(what(many), "changes");
        let large = (0..10).fold(new(), |all, at| {
            all.put(numbered(at), vec![0; META_VALUE_BYTES_MAX])
        });
        assert_eq!(what(large), "bytes in a transaction");
        assert!(matches!(
            new().put(b"", b"").check(),
            Err(MetaError::Invalid(_))
        ));
    }
}
