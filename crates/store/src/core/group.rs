//! Group commit: the batch becomes one entry of the log.
//!
//! It has three steps, so that whoever drives the core can let go of it during the second one:
//! *begin* takes the batch and makes the entry, *write* makes it durable and needs nothing of the
//! core, *finish* says what came of it. Transactions in between are the next batch. No second
//! entry is begun before the first is finished.

use super::{Core, Due};
use crate::StoreError;
use crate::device::AlignedBuffer;
use crate::log::entry::EntryWriter;
use crate::planted::{Mistake, planted};
use base::{BlockDevice, DeviceError};
use std::sync::Arc;

/// An entry of the log that is to be made durable.
pub(crate) struct Group {
    device: Arc<dyn BlockDevice>,
    offset: u64,
    bytes: AlignedBuffer,
    /// Data was written in place, which the entry speaks of.
    is_direct: bool,
}

impl Group {
    /// Makes it durable; needs nothing of the core.
    pub(crate) fn write(&self) -> Result<(), StoreError> {
        let write = |offset, bytes: &[u8]| self.device.write_at(offset, bytes);
        self.write_by(write, || self.device.flush())
    }

    /// As [`Self::write`], with another way to the device for the entry itself. Its flush need not
    /// cover anything else: data that the entry speaks of has had one before.
    pub(crate) fn write_by(
        &self,
        write: impl FnOnce(u64, &[u8]) -> Result<(), DeviceError>,
        flush: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), StoreError> {
        if self.is_direct && !planted(Mistake::NoDataFlush) {
            self.device.flush()?;
        }
        write(self.offset, &self.bytes)?;
        if planted(Mistake::NoEntryFlush) {
            return Ok(());
        }
        Ok(flush()?)
    }
}

impl Core {
    /// Makes durable whatever transactions have ended before.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`], the device's, and those of a checkpoint if one is due.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        self.commit_batch()?;
        if self.wants_checkpoint() {
            self.checkpoint()?;
        }
        Ok(())
    }

    pub(super) fn commit_batch(&mut self) -> Result<(), StoreError> {
        match self.begin_commit()? {
            Some(group) => {
                let written = group.write();
                self.finish_commit(written)
            }
            None => Ok(()),
        }
    }

    /// Makes an entry of the batch; none if the batch is empty.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`]; [`StoreError::Due`] if the log has no room beside the checkpoint
    /// under way.
    pub(crate) fn begin_commit(&mut self) -> Result<Option<Group>, StoreError> {
        self.check_writable()?;
        assert!(self.committing.is_none(), "one entry after the other");
        if self.batch.records.is_empty() && self.batch.pieces.is_empty() {
            return Ok(None);
        }
        let is_beside = self.frozen.is_some();
        let len_max = self.batch.bytes + super::ENTRY_HEADER_BYTES;
        if is_beside && !self.log.has_room_beside_checkpoint(len_max) {
            return Err(StoreError::Due(Due::Checkpoint));
        }
        let batch = std::mem::take(&mut self.batch);
        let mut entry = EntryWriter::new(&self.counters, len_max);
        for key in &batch.records {
            entry.record(key, self.changed_record(key));
        }
        for at in &batch.pieces {
            if let Some(bytes) = self.piece(*at) {
                entry.piece(*at, bytes);
            }
        }
        let (offset, bytes) = self.log.append(&entry.finish());
        self.committing = Some(batch.cut);
        Ok(Some(Group {
            device: self.device.clone(),
            offset,
            bytes,
            is_direct: batch.is_direct,
        }))
    }

    /// Says what came of the entry that was begun last.
    ///
    /// # Errors
    /// Those of `written`; the store is poisoned then.
    pub(crate) fn finish_commit(
        &mut self,
        written: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let cut = self.committing.take().expect("an entry was begun");
        if let Some(frozen) = &mut self.frozen {
            // The checkpoint may still write the old pieces of these AUs.
            frozen.cut.extend(cut);
        }
        self.poison_on_error(written)
    }

    /// Whether the batch is worth an entry though nobody waits for it.
    pub(crate) fn is_batch_large(&self) -> bool {
        self.batch.bytes > self.log.body_bytes_max() / 2
    }

    /// Whether transactions have ended that no entry has.
    pub(crate) fn has_batch(&self) -> bool {
        !self.batch.records.is_empty() || !self.batch.pieces.is_empty()
    }
}
