//! Changes on their way to the engine: batches, what is durable, what was lost.
//!
//! ```text
//!  change ──► open batch ──full──► sealed batches ──► committer ──► engine ──► durable
//!               └───────── nothing under way ────────────┘
//! ```
//! A batch is one transaction: the last value of each key that its changes have written. Its number
//! is its place in a chain: it deletes the head record of the batch before, which must be there,
//! and writes its own. So batches happen in order or not at all, whoever sends them, and several
//! can be under way.

use super::record::Head;
use crate::MetaError;
use base::limits::{
    META_OPERATIONS_MAX, NAMESPACE_BATCH_BYTES_MAX, NAMESPACE_BATCHES_MAX,
    NAMESPACE_PENDING_BYTES_MAX,
};
use std::collections::{BTreeMap, VecDeque};

/// Keys that the chain needs in each batch: the head before and its own.
const CHAIN_KEYS: usize = 2;
/// Keys of a batch.
pub(super) const BATCH_KEYS_MAX: usize = META_OPERATIONS_MAX - CHAIN_KEYS;

/// A key and its new value; none if it is deleted.
pub(super) type Write = (Vec<u8>, Option<Vec<u8>>);

/// Changes that happen at once.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) number: u64,
    pub(super) writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
    /// As it is after them.
    pub(super) head: Head,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            next: super::record::ROOT + 1,
            inodes: 1,
            now: 0,
        }
    }
}

/// Whether changes are taken.
#[derive(Clone, Debug)]
pub(super) enum Status {
    Running,
    /// A batch has failed; everything is read anew.
    Reloading,
    /// For ever not.
    Over(MetaError),
}

#[derive(Debug)]
pub(super) struct Pipe {
    open: Batch,
    sealed: VecDeque<Batch>,
    /// Every batch up to this one is durable or lost.
    durable: u64,
    /// Batches that never happened, or of which that is not known: from, to, why.
    lost: Vec<(u64, u64, MetaError)>,
    /// Bytes of batches that are not durable.
    pending_bytes: usize,
    /// Batches that were sealed and are not durable.
    pending: VecDeque<(u64, usize)>,
    pub(super) status: Status,
}

impl Pipe {
    /// Goes on after the batch `last`.
    pub(super) fn new(last: u64) -> Self {
        Self {
            open: Batch {
                number: last + 1,
                ..Batch::default()
            },
            sealed: VecDeque::new(),
            durable: last,
            lost: Vec::new(),
            pending_bytes: 0,
            pending: VecDeque::new(),
            status: Status::Running,
        }
    }

    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    /// The last batch that has anything in it.
    pub(super) fn newest(&self) -> u64 {
        match self.open.writes.is_empty() {
            true => self.open.number - 1,
            false => self.open.number,
        }
    }

    /// Whether there is room for another change.
    pub(super) fn has_room(&self) -> bool {
        self.pending.len() < NAMESPACE_BATCHES_MAX
            && self.pending_bytes < NAMESPACE_PENDING_BYTES_MAX
    }

    /// Takes one change; says which batch it is in. `head` is as it was before the change.
    pub(super) fn write(&mut self, writes: Vec<Write>, head: Head) -> u64 {
        let size = |(key, value): &Write| key.len() + value.as_ref().map_or(0, Vec::len);
        let bytes: usize = writes.iter().map(size).sum();
        let is_new = |(key, _): &&Write| !self.open.writes.contains_key(key);
        let keys = self.open.writes.len() + writes.iter().filter(is_new).count();
        assert!(writes.len() <= BATCH_KEYS_MAX, "a change has few keys");
        if keys > BATCH_KEYS_MAX || self.open.bytes + bytes > NAMESPACE_BATCH_BYTES_MAX {
            self.seal(head);
        }
        self.open.bytes += bytes;
        self.pending_bytes += bytes;
        self.open.writes.extend(writes);
        self.open.number
    }

    fn seal(&mut self, head: Head) {
        if self.open.writes.is_empty() {
            return;
        }
        let next = Batch {
            number: self.open.number + 1,
            ..Batch::default()
        };
        let mut full = std::mem::replace(&mut self.open, next);
        full.head = head;
        self.pending.push_back((full.number, full.bytes));
        self.sealed.push_back(full);
    }

    /// The next batch to be sent; one that is not full only if nothing is under way.
    pub(super) fn take(&mut self, is_idle: bool, head: Head) -> Option<Batch> {
        if self.sealed.is_empty() && is_idle {
            self.seal(head);
        }
        self.sealed.pop_front()
    }

    /// A batch has become durable.
    pub(super) fn made_durable(&mut self, batch: u64) {
        self.durable = batch;
        while let Some((number, bytes)) = self.pending.front().copied()
            && number <= batch
        {
            self.pending.pop_front();
            self.pending_bytes -= bytes;
        }
    }

    /// Nothing that is not durable will happen.
    pub(super) fn lose(&mut self, why: &MetaError) {
        let newest = self.newest();
        if newest > self.durable {
            self.lost.push((self.durable + 1, newest, why.clone()));
        }
        let lost = std::mem::take(&mut self.lost);
        *self = Self {
            lost,
            ..Self::new(newest)
        };
    }

    /// Goes on behind what the engine has.
    pub(super) fn go_on(&mut self, found: u64) {
        let lost = std::mem::take(&mut self.lost);
        *self = Self {
            lost,
            ..Self::new(self.durable.max(found))
        };
    }

    /// Whether all of `first..=last` is durable; none if that is still open.
    pub(super) fn outcome(&self, first: u64, last: u64) -> Option<Result<(), MetaError>> {
        let meets = |(from, to, _): &&(u64, u64, MetaError)| *from <= last && first <= *to;
        if let Some((_, _, why)) = self.lost.iter().find(meets) {
            return Some(Err(why.clone()));
        }
        (last <= self.durable).then_some(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str) -> Vec<Write> {
        vec![(key.into(), Some(vec![0; 10]))]
    }

    #[test]
    fn a_batch_has_the_last_value_of_each_key_and_closes_when_it_is_full() {
        let mut pipe = Pipe::new(6);
        assert_eq!(pipe.write(put("a"), Head::default()), 7);
        assert_eq!(pipe.write(vec![("a".into(), None)], Head::default()), 7);
        for key in 1..BATCH_KEYS_MAX {
            assert_eq!(pipe.write(put(&key.to_string()), Head::default()), 7);
        }
        assert!(pipe.take(false, Head::default()).is_none());
        assert_eq!(pipe.write(put("a"), Head::default()), 7);
        assert_eq!(pipe.write(put("b"), Head::default()), 8);
        let full = pipe.take(false, Head::default()).unwrap();
        assert_eq!((full.number, full.writes.len()), (7, BATCH_KEYS_MAX));
        assert!(pipe.take(false, Head::default()).is_none());
        assert_eq!(pipe.take(true, Head::default()).unwrap().number, 8);
        assert!(pipe.take(true, Head::default()).is_none());
    }

    #[test]
    fn who_depends_on_what_was_lost_is_told_for_ever() {
        let mut pipe = Pipe::new(0);
        pipe.write(put("a"), Head::default());
        pipe.take(true, Head::default()).unwrap();
        pipe.write(put("b"), Head::default());
        assert!(pipe.outcome(1, 1).is_none());
        pipe.made_durable(1);
        assert!(pipe.outcome(1, 1).unwrap().is_ok() && pipe.outcome(1, 2).is_none());
        pipe.lose(&MetaError::Closed);
        pipe.go_on(1);
        assert_eq!(pipe.write(put("c"), Head::default()), 3);
        pipe.take(true, Head::default()).unwrap();
        pipe.made_durable(3);
        assert!(pipe.outcome(3, 3).unwrap().is_ok());
        assert!(pipe.outcome(1, 1).unwrap().is_ok());
        assert!(pipe.outcome(1, 3).unwrap().is_err() && pipe.outcome(2, 2).unwrap().is_err());
    }

    #[test]
    fn there_is_room_for_so_many_batches() {
        let mut pipe = Pipe::new(0);
        for number in 1..=NAMESPACE_BATCHES_MAX as u64 {
            assert!(pipe.has_room());
            pipe.write(put("a"), Head::default());
            assert_eq!(pipe.take(true, Head::default()).unwrap().number, number);
        }
        assert!(!pipe.has_room());
        pipe.made_durable(1);
        assert!(pipe.has_room());
    }
}
