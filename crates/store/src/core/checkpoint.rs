//! Checkpoints: what the log has becomes pieces in place and pages of the tree.
//!
//! Like a commit, a checkpoint has three steps, the long one of which needs nothing of the core.
//! *Freeze* puts the overlay under a new, empty one; the log from here on is not the checkpoint's.
//! *Carry out* writes pieces, pages and the superblock from what was frozen, on copies of the
//! tree's root and of the map of pages. *Finish* lets the core have these and forget the frozen
//! layer. In between, commits go on: records and pieces are looked up in the overlay, then in the
//! frozen layer, then in the tree.
//!
//! Three things must not happen meanwhile. A piece of the frozen layer must not be written over
//! bytes that came directly after it: AUs that are cut take no direct writes until the checkpoint
//! is finished. Space that was given back after the freeze must not become free by this checkpoint:
//! it stays in limbo. And the next checkpoint must find its pages when this one is done: see
//! [`room`](super::room).

use super::{Core, Due, Layer};
use crate::StoreError;
use crate::key::{Key, Value};
use crate::layout::{GROUP_BYTES, Layout, PIECE_BYTES, SPAN_BYTES, SUPERBLOCK_OFFSETS};
use crate::leaf::{GROUP_PIECES, Leaf, Sum};
use crate::log::entry::PieceAt;
use crate::pages::Pages;
use crate::planted::{Mistake, planted};
use crate::record;
use crate::superblock::Superblock;
use crate::tree::Tree;
use base::BlockDevice;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a changed record counts at least when it is judged how much there is to replay: to keep one
/// and to find its place takes the same however short it is in the log. Removals of the records of
/// an AU have 7 bytes there each and some hundred in memory: a third of a log of 192 MiB was 10
/// million of them, 0.9 GiB, and seconds to replay. Counted so it is one million.
const REPLAY_BYTES_COUNTED: u64 = 64;

/// What the core keeps of a checkpoint under way.
pub(super) struct Frozen {
    pub(super) layer: Arc<Layer>,
    /// AUs that were cut since: old pieces may still be written there.
    pub(super) cut: BTreeSet<u32>,
    /// Pages that the checkpoint allocates at most.
    pub(super) pages_max: usize,
    /// Pages that there are more when it is done.
    pub(super) growth_max: usize,
    /// AUs that the records had when it was frozen.
    taken: usize,
}

/// A checkpoint that is to be carried out.
pub(crate) struct Checkpoint {
    device: Arc<dyn BlockDevice>,
    layout: Layout,
    layer: Arc<Layer>,
    tree: Tree,
    pages: Pages,
    /// As it is going to be, but for what is known at the end.
    superblock: Superblock,
}

impl Core {
    /// Writes pieces into place and records into the tree, and lets the log begin anew.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`], [`StoreError::Damaged`], the device's;
    /// [`StoreError::Due`] if somebody else makes this core's checkpoints.
    pub fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.check_writable()?;
        if self.is_driven {
            return Err(StoreError::Due(Due::Checkpoint));
        }
        self.commit_batch()?;
        let carried_out = self.freeze().carry_out();
        self.finish_checkpoint(carried_out)
    }

    /// Begins a checkpoint of all that has an entry in the log. Every transaction has one, the last
    /// of them maybe in the entry that is being written; that must be durable before the checkpoint
    /// is carried out.
    pub(crate) fn freeze(&mut self) -> Checkpoint {
        assert!(!self.has_batch(), "all that is visible has an entry");
        assert!(self.frozen.is_none(), "one checkpoint after the other");
        let cost = self.make_record_room();
        self.give_record_aus_back();
        for (key, value) in self.space.freeze() {
            self.overlay.records.insert(key, Some(value));
        }
        let layer = Arc::new(std::mem::take(&mut self.overlay));
        self.frozen = Some(Frozen {
            layer: layer.clone(),
            cut: BTreeSet::new(),
            pages_max: cost.pages,
            growth_max: cost.growth,
            taken: self.pages.taken().len(),
        });
        Checkpoint {
            device: self.device.clone(),
            layout: self.layout,
            layer,
            tree: self.tree.clone(),
            pages: self.pages.clone(),
            superblock: Superblock {
                epoch: self.superblock.epoch + 1,
                log_head: self.log.next(),
                counters: self.counters,
                ..self.superblock.clone()
            },
        }
    }

    /// Takes over what a checkpoint has made, or is poisoned.
    ///
    /// # Errors
    /// Those of carrying it out.
    pub(crate) fn finish_checkpoint(
        &mut self,
        carried_out: Result<Checkpoint, StoreError>,
    ) -> Result<(), StoreError> {
        let done = self.poison_on_error(carried_out)?;
        let frozen = self.frozen.take().expect("a checkpoint was begun");
        let taken_since = self.pages.taken()[frozen.taken..].to_vec();
        self.pages = done.pages;
        for au in taken_since {
            self.pages.take_au(au);
        }
        self.tree = done.tree;
        self.space.superblock_is_durable();
        self.log.superblock_is_durable(done.superblock.log_head);
        self.superblock = done.superblock;
        Ok(())
    }

    /// Whether a checkpoint is under way.
    pub(crate) fn has_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Whether it is time for a checkpoint: the log says so, or what it has would take longer to
    /// replay, and more memory, than its bytes tell.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let counted_bytes = self.overlay.records.len() as u64 * REPLAY_BYTES_COUNTED;
        self.log.wants_checkpoint() || counted_bytes > self.layout.log_bytes / 3
    }

    /// A record as it was changed since the last checkpoint that is done; none if it is gone.
    pub(super) fn changed_record(&self, key: &Key) -> Option<&Value> {
        let frozen = || self.frozen.as_ref()?.layer.records.get(key);
        self.overlay.records.get(key).or_else(frozen)?.as_ref()
    }

    /// Writes a superblock and makes it durable.
    pub(super) fn write_superblock(&mut self, superblock: Superblock) -> Result<(), StoreError> {
        write_superblock(&*self.device, &superblock)?;
        self.log.superblock_is_durable(superblock.log_head);
        self.pages.superblock_is_durable();
        self.superblock = superblock;
        Ok(())
    }
}

impl Checkpoint {
    /// Writes everything and makes it durable; needs nothing of the core.
    pub(crate) fn carry_out(mut self) -> Result<Self, StoreError> {
        self.write_pieces()?;
        let records = &self.layer.records;
        let changes: Vec<_> = records
            .iter()
            .map(|(key, value)| (key, value.as_ref()))
            .collect();
        self.tree.apply(&mut self.pages, &changes)?;
        let page_map = self.pages.write_map(&*self.device)?;
        if !planted(Mistake::NoCheckpointFlush) {
            self.device.flush()?;
        }
        (self.superblock.root, self.superblock.height) = self.tree.root();
        self.superblock.page_map = Some(page_map);
        write_superblock(&*self.device, &self.superblock)?;
        self.pages.superblock_is_durable();
        Ok(self)
    }

    /// Writes the pieces that are still those that the records speak of.
    fn write_pieces(&self) -> Result<(), StoreError> {
        if planted(Mistake::PiecesNotWritten) {
            return Ok(());
        }
        let mut run = Run::new(self.device.clone());
        let mut leaf = None;
        for (at, bytes) in &self.layer.pieces {
            let key = leaf_key(*at);
            if leaf.as_ref().is_none_or(|(known, _)| *known != key) {
                let read = self.leaf(&key)?;
                leaf = Some((key, read));
            }
            let current = leaf
                .as_ref()
                .is_some_and(|(_, leaf)| sum_at(leaf, *at).fits(bytes))
                || planted(Mistake::StalePieces);
            if current && !bytes.is_empty() {
                let offset = self.layout.au_offset(at.au) + u64::from(at.piece) * PIECE_BYTES;
                // What is behind a short piece is nobody's; a whole block needs no read before.
                run.add(offset, bytes)?;
                run.bytes
                    .resize(run.bytes.len().next_multiple_of(PIECE_BYTES as usize), 0);
            }
        }
        run.finish()
    }

    fn leaf(&self, key: &Key) -> Result<Leaf, StoreError> {
        let value = match self.layer.records.get(key) {
            Some(value) => value.clone(),
            None => self.tree.get(key)?,
        };
        let leaf = value
            .map(|value| record::decode::<Leaf>(&value))
            .transpose()?;
        Ok(leaf.unwrap_or_default())
    }
}

/// Writes a superblock into its place and makes it durable.
pub(crate) fn write_superblock(
    device: &dyn BlockDevice,
    superblock: &Superblock,
) -> Result<(), StoreError> {
    let parity = superblock.epoch % 2;
    let parity = if planted(Mistake::OneSuperblock) {
        0
    } else {
        parity
    };
    let place = SUPERBLOCK_OFFSETS[parity as usize];
    device.write_at(place, &superblock.encode())?;
    if planted(Mistake::NoSuperblockFlush) {
        return Ok(());
    }
    Ok(device.flush()?)
}

/// The record with the checksum of a piece.
pub(crate) fn leaf_key(at: PieceAt) -> Key {
    let span = u64::from(at.piece) * PIECE_BYTES / SPAN_BYTES;
    Key::Leaf(
        at.au,
        u16::try_from(span).expect("an AU has at most 256 spans"),
    )
}

/// The checksum of a piece, if it has one of its own.
pub(crate) fn sum_at(leaf: &Leaf, at: PieceAt) -> Sum {
    let within = u64::from(at.piece) * PIECE_BYTES % SPAN_BYTES;
    let group = leaf.group((within / GROUP_BYTES) as usize);
    group.piece(at.piece as usize % GROUP_PIECES)
}

/// Writes side by side that are made one.
struct Run {
    device: Arc<dyn BlockDevice>,
    offset: u64,
    bytes: Vec<u8>,
}

impl Run {
    /// Longest write.
    const BYTES_MAX: usize = 1 << 20;

    fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self {
            device,
            offset: 0,
            bytes: Vec::new(),
        }
    }

    fn add(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let end = self.offset + self.bytes.len() as u64;
        if offset != end || self.bytes.len() >= Self::BYTES_MAX {
            self.write()?;
            self.offset = offset;
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn write(&mut self) -> Result<(), StoreError> {
        if !self.bytes.is_empty() {
            self.device.write_at(self.offset, &self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), StoreError> {
        self.write()
    }
}
