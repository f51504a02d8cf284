//! Checkpoints: what the log has becomes pieces in place and pages of the tree.

use super::Core;
use crate::StoreError;
use crate::key::Key;
use crate::layout::{GROUP_BYTES, PAGE_BYTES, PIECE_BYTES, SPAN_BYTES, SUPERBLOCK_OFFSETS};
use crate::leaf::{GROUP_PIECES, Leaf, Sum};
use crate::log::entry::PieceAt;
use crate::space::MAP_AUS;
use crate::superblock::Superblock;
use crate::tree;
use base::BlockDevice;
use std::sync::Arc;

impl Core {
    /// Writes pieces into place and records into the tree, and lets the log begin anew.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`], [`StoreError::Damaged`], the device's.
    pub fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.check_writable()?;
        if !self.batch.records.is_empty() || !self.batch.pieces.is_empty() {
            self.commit()?;
        }
        let done = self.write_checkpoint();
        self.poison_on_error(done)
    }

    fn write_checkpoint(&mut self) -> Result<(), StoreError> {
        self.write_pieces()?;
        for (key, value) in self.space.take_changed() {
            self.overlay.records.insert(key, Some(value));
        }
        let records = &self.overlay.records;
        let changes: Vec<_> = records
            .iter()
            .map(|(key, value)| (key, value.as_ref()))
            .collect();
        self.tree.apply(&mut self.pages, &changes)?;
        let page_map = self.pages.write_map(&*self.device)?;
        self.device.flush()?;
        let (root, height) = self.tree.root();
        self.write_superblock(Superblock {
            epoch: self.superblock.epoch + 1,
            root,
            height,
            page_map: Some(page_map),
            log_head: self.log.next(),
            counters: self.counters,
            ..self.superblock.clone()
        })?;
        self.space.superblock_is_durable();
        self.overlay.records.clear();
        self.overlay_bytes = 0;
        self.overlay.pieces.clear();
        Ok(())
    }

    /// Writes a superblock and makes it durable.
    pub(super) fn write_superblock(&mut self, superblock: Superblock) -> Result<(), StoreError> {
        let place = SUPERBLOCK_OFFSETS[(superblock.epoch % 2) as usize];
        self.device.write_at(place, &superblock.encode())?;
        self.device.flush()?;
        self.log.superblock_is_durable(superblock.log_head);
        self.pages.superblock_is_durable();
        self.superblock = superblock;
        Ok(())
    }

    /// Writes the pieces that are still those that the records speak of.
    fn write_pieces(&mut self) -> Result<(), StoreError> {
        let mut run = Run::new(self.device.clone());
        let mut leaf = None;
        for (at, bytes) in &self.overlay.pieces {
            let key = leaf_key(*at);
            if leaf.as_ref().is_none_or(|(known, _)| *known != key) {
                let read = self.record::<Leaf>(&key)?.unwrap_or_default();
                leaf = Some((key, read));
            }
            let current = leaf
                .as_ref()
                .is_some_and(|(_, leaf)| sum_at(leaf, *at).fits(bytes));
            if current && !bytes.is_empty() {
                let offset = self.layout.au_offset(at.au) + u64::from(at.piece) * PIECE_BYTES;
                run.add(offset, bytes)?;
            }
        }
        run.finish()
    }

    /// Sees to it that the next checkpoint finds the pages that it needs if it has so many more
    /// records, with so many more bytes: by a checkpoint that frees pages, or by taking AUs.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] if that does not help; those of a checkpoint.
    pub(super) fn ensure_record_room(
        &mut self,
        records: usize,
        bytes: usize,
    ) -> Result<(), StoreError> {
        let mut checkpoints = 0;
        while self.pages.free_count() < self.pages_wanted(records, bytes) {
            // A checkpoint makes the next one small again: where AUs are scarce, that comes first.
            let is_scarce = self.space.free_count() < u64::from(self.layout.au_count / 8);
            let is_large = is_scarce && self.overlay.records.len() > RECORDS_BEFORE_CHECKPOINT;
            if let Some(au) = (!is_large).then(|| self.space.draw_for_records()).flatten() {
                self.pages.take_au(au);
                self.update_capacity();
            } else if checkpoints < 3 {
                // The pages of the records before the last two checkpoints become free.
                self.checkpoint()?;
                checkpoints += 1;
            } else {
                return Err(StoreError::NoSpace { wanted: 1, free: 0 });
            }
        }
        Ok(())
    }

    /// Pages that a checkpoint may need that has so much more.
    fn pages_wanted(&self, records: usize, bytes: usize) -> usize {
        let map_parts = self.layout.au_count.div_ceil(MAP_AUS) as usize;
        let records = records + self.overlay.records.len() + map_parts;
        let (_, height) = self.tree.root();
        let live = self.pages.live_count();
        // What has to be written anew is at most all that there is, cut in two once, and what
        // comes.
        let new = bytes + self.overlay_bytes + map_parts * MAP_RECORD_BYTES;
        let grown = 2 * live + 4 * new.div_ceil(PAGE_BYTES as usize) + 16;
        let pages = tree::pages_max(records, height).min(grown);
        pages + self.pages.map_pages(live) + 1
    }
}

/// Changed records that are worth a checkpoint before the records' room grows for them.
const RECORDS_BEFORE_CHECKPOINT: usize = 512;
/// Bytes of a part of the map of AUs in a page.
const MAP_RECORD_BYTES: usize = MAP_AUS as usize / 8 + 8;

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
