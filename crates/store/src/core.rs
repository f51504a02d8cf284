//! The store as a state machine over a device: no threads, no clock.
//!
//! State is in three layers, each over the next: what a transaction has changed so far, what was
//! changed since the last checkpoint, and the tree. A transaction that ends well moves its layer
//! into the second one and its changes into the *batch*; a commit makes the batch one entry of the
//! log.
//!
//! ```text
//! transaction -> batch --commit--> log --checkpoint--> pieces in place, tree, superblock
//! ```
//!
//! Order of a commit: data that was written in place (never over live bytes) is flushed, then the
//! entry is written and flushed. A commit whose data is all in its entry needs one flush. Order of
//! a checkpoint: the batch is committed; pieces, pages and the map of pages are written and
//! flushed; then the superblock is written and flushed. After a write or flush of these failed the
//! store is poisoned: what the device holds is not known any more, so nothing is called durable
//! again.

mod checkpoint;
mod group;
mod grow;
mod merge;
mod open;
mod records;
mod room;

use crate::StoreError;
use crate::key::{Key, Value};
use crate::layout::Layout;
use crate::log::Log;
use crate::log::entry::{PieceAt, piece_len, record_len};
use crate::lost::Lost;
use crate::pages::Pages;
use crate::planted::{Mistake, planted};
use crate::promises::Promises;
use crate::record;
use crate::space::Space;
use crate::superblock::{CAPABILITY_BYTES_MAX, Counters, LogHead, Superblock};
use crate::transaction::{Staged, Transaction};
use crate::tree::{Load, Tree};
use base::{BlockDevice, Extent, Time};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use checkpoint::Frozen;
pub(crate) use checkpoint::{Checkpoint, leaf_key, sum_at, write_superblock};
use merge::Fronts;
#[cfg(test)]
pub(crate) use merge::take_looks;
pub use open::{Format, Options};
pub(crate) use open::{check_len, superblock_of};
pub(crate) use records::Records;

/// Records and pieces as they are now, over what lies below.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    pub(crate) records: Records,
    pub(crate) pieces: BTreeMap<PieceAt, Arc<[u8]>>,
    /// Records that are put and not removed, and their bytes.
    puts: usize,
    put_bytes: usize,
}

/// What was changed since the last commit.
#[derive(Debug, Default)]
struct Batch {
    records: BTreeSet<Key>,
    pieces: BTreeSet<PieceAt>,
    /// No less than the entry's body will have.
    bytes: usize,
    /// Data was written in place.
    is_direct: bool,
    /// AUs with bytes that are live for as long as this is not durable.
    cut: BTreeSet<u32>,
}

/// What has to be done before a transaction can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The batch is full.
    Commit,
    /// Pages of records are scarce, or the log is full.
    Checkpoint,
}

/// A store on a device.
pub struct Core {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) layout: Layout,
    superblock: Superblock,
    log: Log,
    pub(crate) tree: Tree,
    pub(crate) pages: Pages,
    pub(crate) space: Space,
    pub(crate) overlay: Layer,
    /// What a checkpoint under way is made of; between the overlay and the tree.
    frozen: Option<Frozen>,
    batch: Batch,
    /// The AUs that were cut in the batch whose entry is being written, if one is.
    committing: Option<BTreeSet<u32>>,
    /// Commits and checkpoints are carried out by somebody else: what needs one first says so.
    pub(crate) is_driven: bool,
    pub(crate) counters: Counters,
    /// The number of the clone that is being made.
    pub(crate) cloning: Option<u64>,
    /// The epoch in which it was tried last to get AUs back from the records.
    room_tried_at: Option<u64>,
    /// The least room that the records have had since then, in pages.
    room_left: usize,
    is_poisoned: bool,
    /// Opened for reading: nothing is written, not even a superblock.
    is_read_only: bool,
    pub(crate) promises: Promises,
    /// Records that are gone for good.
    pub(crate) lost: Lost,
    /// Where lists begin that are consumed from their front.
    fronts: Fronts,
    /// That of the newest superblock.
    format_version: u16,
    /// It was opened with one superblock, because the other one was not intact.
    is_one_superblock_lost: bool,
}

/// Where the space is, in allocation units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// All of them.
    pub total: u64,
    /// Nobody's.
    pub free: u64,
    /// Given back, free after the next superblock.
    pub limbo: u64,
    /// Taken by records.
    pub records: u64,
    /// With bytes of objects.
    pub used: u64,
}

impl Core {
    /// Runs `change` as one transaction: all of it happens or, if it fails, nothing. It is visible
    /// at once, and durable with the next commit.
    ///
    /// # Errors
    /// What `change` says, [`StoreError::TooMuch`], [`StoreError::Poisoned`], and those of a commit
    /// if the batch was full.
    pub fn transact<T>(
        &mut self,
        now: Time,
        mut change: impl FnMut(&mut Transaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.advance(now);
        let mut result = self.try_transact(&mut change);
        for _ in 0..ROOM_TRIES_MAX {
            match &result {
                // What was deleted still counts until its AUs are given back.
                Err(StoreError::Used { .. }) if !self.is_driven && self.reclaim_dead()? => {}
                // Those AUs are free when checkpoints are done, each of which frees some.
                Err(StoreError::NoSpace { .. }) if !self.is_driven && self.make_free()? => {}
                _ => break,
            }
            result = self.try_transact(&mut change);
        }
        result
    }

    /// Runs `change`, and runs into what is there.
    pub(crate) fn try_transact<T>(
        &mut self,
        change: &mut impl FnMut(&mut Transaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.check_writable()?;
        let mut transaction = Transaction::new(self);
        let answer = change(&mut transaction);
        let staged = transaction.finish();
        let kept = answer.and_then(|answer| self.keep(staged).map(|()| answer));
        self.space.settle(kept.is_ok());
        kept
    }

    /// Makes a transaction's changes visible and part of the batch, or fails without a trace.
    fn keep(&mut self, staged: Staged) -> Result<(), StoreError> {
        let record_bytes = staged.layer.record_bytes();
        let bytes = record_bytes + staged.layer.piece_bytes();
        let bytes_max = self.log.body_bytes_max() - ENTRY_HEADER_BYTES;
        if bytes > bytes_max {
            return Err(StoreError::TooMuch { bytes, bytes_max });
        }
        if self.batch.bytes + bytes > bytes_max {
            if self.is_driven {
                return Err(StoreError::Due(Due::Commit));
            }
            self.commit()?;
        }
        let turned = self.turn_pools(&staged)?;
        if let Err(error) = self.ensure_record_room(staged.layer.load(), staged.purpose()) {
            self.promises.undo(turned);
            return Err(error);
        }
        self.promises.finish(turned);
        self.batch.bytes += bytes;
        self.batch.is_direct |= staged.is_direct;
        self.batch.cut.extend(staged.cut);
        self.batch
            .records
            .extend(staged.layer.records.keys().cloned());
        self.batch.pieces.extend(staged.layer.pieces.keys());
        for (key, value) in staged.layer.records {
            self.put_over(key, value);
        }
        self.overlay.pieces.extend(staged.layer.pieces);
        for au in staged.given_back {
            self.space.give_back(au);
        }
        self.counters = staged.counters;
        Ok(())
    }

    /// Gives a record these contents for whoever looks from now on, or removes it.
    fn put_over(&mut self, key: Key, value: Option<Value>) {
        if value.is_some() {
            self.fronts.on_put(&key);
        }
        self.overlay.put(key, value);
    }

    /// Whether writes are refused since the device failed.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.is_poisoned
    }

    /// The latest time that the store has heard of.
    #[must_use]
    pub fn now(&self) -> Time {
        self.counters.now
    }

    /// Where everything lies.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The newest superblock.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The version of the format that the store on the device is of: an older one stays that until
    /// it is opened for writing.
    #[must_use]
    pub fn format_version(&self) -> u16 {
        self.format_version
    }

    /// Replaces what is known of the device; durable in both superblocks when it returns.
    ///
    /// # Errors
    /// [`StoreError::Sizes`] if it is too long, those of [`Self::checkpoint`].
    pub fn set_capability(&mut self, capability: Vec<u8>) -> Result<(), StoreError> {
        self.check_writable()?;
        if capability.len() > CAPABILITY_BYTES_MAX {
            return Err(StoreError::Sizes("the capability table is too long"));
        }
        self.superblock.capability = capability;
        self.checkpoint()?;
        self.checkpoint()
    }

    /// The longest run of free space on the device.
    #[must_use]
    pub fn free_run(&self) -> Extent {
        let Layout { au_bytes, .. } = self.layout;
        let (mut longest, mut run) = (Extent::default(), Extent::default());
        for au in (0..self.layout.au_count).filter(|au| self.space.is_free(*au)) {
            let here = Extent::new(self.layout.au_offset(au), au_bytes);
            run = match run.end() == here.offset {
                true => Extent::between(run.offset, here.end()),
                false => here,
            };
            if run.len > longest.len {
                longest = run;
            }
        }
        longest
    }

    /// What the next checkpoint's superblock is made from.
    pub(crate) fn superblock_mut(&mut self) -> &mut Superblock {
        &mut self.superblock
    }

    /// Whether one of the two superblocks was not intact when the store was opened: a loss of power
    /// leaves the newer one so, and so does a disk that forgets.
    #[must_use]
    pub fn is_one_superblock_lost(&self) -> bool {
        self.is_one_superblock_lost
    }

    /// Whether a checkpoint that is begun now would make allocation units free.
    pub(crate) fn has_limbo(&self) -> bool {
        self.space.has_limbo() && !self.has_frozen()
    }

    /// Where the space is.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let total = u64::from(self.layout.au_count);
        let (free, limbo) = (self.space.free_count(), self.space.limbo_count());
        let records = self.pages.taken().len() as u64;
        Usage {
            total,
            free,
            limbo,
            records,
            // Records that contradict each other may come to more.
            used: total.saturating_sub(free + limbo + records),
        }
    }

    /// Bytes of the log that would be replayed after a crash now.
    #[must_use]
    pub fn replay_bytes(&self) -> u64 {
        self.log.live_bytes()
    }

    /// How many entries the log has had since the store was formatted, of those that are durable
    /// for certain. It never goes back, whatever happens to the process or to the power: a store
    /// that has had fewer than it once had is an older state of itself, a copy that was put back or
    /// a device that has forgotten writes. A repair that gives entries up counts them all the same.
    #[must_use]
    pub fn durable_sequence(&self) -> u64 {
        // One that could not be written is counted as well.
        let uncertain = self.committing.is_some() || self.is_poisoned;
        let head = self.superblock.log_head.sequence;
        let next = self.log.next().sequence;
        next.saturating_sub(uncertain.into()).max(head)
    }

    /// From where to where the log is that would be replayed after a crash now.
    pub(crate) fn durable_log(&self) -> (LogHead, LogHead) {
        let mut end = self.log.next();
        // The entry that is being written may not be there yet.
        end.sequence -= u64::from(self.committing.is_some());
        (self.superblock.log_head, end)
    }

    /// Most bytes of data that a write sends through the log instead of into place: of a small log
    /// a 67th, so that one entry has several of them.
    pub(crate) fn deferred_bytes_max(&self) -> usize {
        DEFERRED_BYTES_MAX.min(self.log.body_bytes_max() / 4)
    }

    /// Whether bytes of this AU are live in what is durable, and not in what is visible.
    pub(crate) fn is_cut(&self, au: u32) -> bool {
        let contains = |cut: &BTreeSet<u32>| cut.contains(&au) && !planted(Mistake::CutIsForgotten);
        contains(&self.batch.cut)
            || self.committing.as_ref().is_some_and(contains)
            || self
                .frozen
                .as_ref()
                .is_some_and(|frozen| contains(&frozen.cut))
    }

    /// A piece that is not in its place yet, or not known to be.
    pub(crate) fn piece(&self, at: PieceAt) -> Option<&Arc<[u8]>> {
        let frozen = || self.frozen.as_ref()?.layer.pieces.get(&at);
        self.overlay.pieces.get(&at).or_else(frozen)
    }

    /// A record's contents.
    pub(crate) fn value(&self, key: &Key) -> Result<Option<Value>, StoreError> {
        let frozen = || self.frozen.as_ref()?.layer.records.get(key);
        match self.overlay.records.get(key).or_else(frozen) {
            Some(value) => Ok(value.clone()),
            None => match self.tree.get(key)? {
                None => self.lost.check(key).map(|()| None),
                found => Ok(found),
            },
        }
    }

    /// A record.
    pub(crate) fn record<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>, StoreError> {
        self.value(key)?
            .map(|value| record::decode(&value))
            .transpose()
    }

    pub(crate) fn check_writable(&self) -> Result<(), StoreError> {
        if self.is_read_only {
            Err(StoreError::ReadOnly)
        } else if self.is_poisoned {
            Err(StoreError::Poisoned)
        } else {
            Ok(())
        }
    }

    fn poison_on_error<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        self.is_poisoned |= result.is_err() && !planted(Mistake::NotPoisoned);
        result
    }
}

/// Most bytes of one write that go through the log: at 64 KiB writing twice costs less than the
/// second flush that data in place needs.
const DEFERRED_BYTES_MAX: usize = 64 << 10;
/// How often a change is tried again when others' space has been given back for it.
const ROOM_TRIES_MAX: u32 = 8;
/// Length and counters before an entry's changes.
const ENTRY_HEADER_BYTES: usize = 28;

impl Layer {
    /// Gives a record these contents, or removes it.
    pub(crate) fn put(&mut self, key: Key, value: Option<Value>) {
        let key_bytes = record_len(&key, None);
        if let Some(value) = &value {
            self.puts += 1;
            self.put_bytes += key_bytes + value.len();
        }
        if let Some(Some(before)) = self.records.insert(key, value) {
            self.puts -= 1;
            self.put_bytes -= key_bytes + before.len();
        }
    }

    /// What the records are for a checkpoint.
    pub(crate) fn load(&self) -> Load {
        Load {
            changes: self.records.len(),
            puts: self.puts,
            put_bytes: self.put_bytes,
        }
    }

    /// Bytes that the records take in an entry; in a page it is no more.
    fn record_bytes(&self) -> usize {
        let records = self.records.iter();
        records
            .map(|(key, value)| record_len(key, value.as_ref()))
            .sum()
    }

    /// Bytes that the pieces take in an entry.
    fn piece_bytes(&self) -> usize {
        self.pieces
            .values()
            .map(|bytes| piece_len(bytes.len()))
            .sum()
    }
}
