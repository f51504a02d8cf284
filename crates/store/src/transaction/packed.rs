//! Packed AUs: several small objects in one.
//!
//! A small object has some adjacent pieces of a packed AU. All its bytes go through the log, so a
//! piece can have another owner as soon as the deletion of the one before is in the same log. An AU
//! whose last object went is given back.

use super::Transaction;
use crate::StoreError;
use crate::bitmap::Bitmap;
use crate::key::{Key, VALUE_BYTES_MAX};
use crate::layout::PIECE_BYTES;
use crate::record::{AuRecord, Slot};
use crate::{Damage, record};
use base::Extent;

/// AUs with room that are looked at before a new one is drawn.
const CANDIDATES_MAX: usize = 8;
/// Pieces of a packed AU: their bits are one record. The rest of an AU of 64 MiB stays empty.
const PACKED_PIECES_MAX: usize = 8192;
const _: () = assert!(PACKED_PIECES_MAX / 8 + 64 <= VALUE_BYTES_MAX);

impl Transaction<'_> {
    /// Finds so many adjacent free pieces, in a new AU if need be.
    pub(super) fn take_slot(&mut self, holder: u64, pieces: u16) -> Result<Slot, StoreError> {
        let with_room = self.range(
            &Key::Room(holder, 0),
            &Key::Room(holder, u32::MAX),
            CANDIDATES_MAX,
        )?;
        for (key, value) in with_room {
            let (Key::Room(_, au), Ok(room)) = (key, record::decode::<u16>(&value)) else {
                return Err(Damage::Record.into());
            };
            if room >= pieces
                && let Some(slot) = self.take_slot_in(au, pieces)?
            {
                return Ok(slot);
            }
        }
        let bytes = self.pieces_of_packed().div_ceil(8);
        self.use_aus(holder, 1)?;
        let au = self.draw_au(holder, vec![0; bytes])?;
        Ok(self
            .take_slot_in(au, pieces)?
            .expect("a new AU is larger than any slot"))
    }

    fn take_slot_in(&mut self, au: u32, pieces: u16) -> Result<Option<Slot>, StoreError> {
        let mut record = self.packed(au)?;
        let taken = self.taken(&record)?;
        let mut first = 0;
        while let Some(at) = taken.next_clear(first).filter(|at| *at >= first) {
            let end = at + usize::from(pieces);
            if end > taken.len() {
                return Ok(None);
            }
            match (at..end).find(|piece| taken.get(*piece)) {
                Some(other) => first = other,
                None => {
                    let slot = Slot {
                        au,
                        piece: at as u16,
                        pieces,
                    };
                    record.users = record.users.checked_add(1).ok_or(Damage::Record)?;
                    self.mark(slot, record, taken, true);
                    return Ok(Some(slot));
                }
            }
            if first >= taken.len() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Gives pieces back, and their AU if nobody has any of it.
    pub(super) fn give_slot_back(&mut self, slot: Slot) -> Result<(), StoreError> {
        if usize::from(slot.piece) + usize::from(slot.pieces) > self.pieces_of_packed() {
            return Err(Damage::Record.into());
        }
        let mut record = self.packed(slot.au)?;
        record.users = record.users.checked_sub(1).ok_or(Damage::Record)?;
        if record.users == 0 {
            self.remove(Key::Room(record.holder, slot.au));
            self.use_aus(record.holder, -1)?;
            return self.give_au_back(slot.au);
        }
        let first = u64::from(slot.piece) * PIECE_BYTES;
        let bytes = Extent::new(first, u64::from(slot.pieces) * PIECE_BYTES);
        match self.clear_au(slot.au, bytes) {
            // Nobody can have these pieces as long as the AU's checksums are lost.
            Err(StoreError::Damaged(Damage::Lost)) => {
                self.put(Key::Au(slot.au), &record);
                return Ok(());
            }
            other => other?,
        }
        let taken = self.taken(&record)?;
        self.mark(slot, record, taken, false);
        Ok(())
    }

    fn packed(&self, au: u32) -> Result<AuRecord, StoreError> {
        let record: Option<AuRecord> = self.record(&Key::Au(au))?;
        let record = record.filter(|record| !record.taken.is_empty());
        record.ok_or(Damage::Record.into())
    }

    fn taken(&self, record: &AuRecord) -> Result<Bitmap, StoreError> {
        let mut taken = Bitmap::new(self.pieces_of_packed());
        let fits = taken.set_bytes(0, &record.taken);
        fits.then_some(taken).ok_or(Damage::Record.into())
    }

    /// Pieces of a packed AU that small objects can have.
    fn pieces_of_packed(&self) -> usize {
        let pieces = self.core.layout.au_bytes / PIECE_BYTES;
        (pieces as usize).min(PACKED_PIECES_MAX)
    }

    fn mark(&mut self, slot: Slot, mut record: AuRecord, mut taken: Bitmap, to: bool) {
        for piece in usize::from(slot.piece)..usize::from(slot.piece + slot.pieces) {
            taken.set(piece, to);
        }
        record.taken = taken.bytes(0, taken.len());
        self.put(Key::Au(slot.au), &record);
        let room =
            u16::try_from(taken.clear_count()).expect("a packed AU has at most 8,192 pieces");
        if room == 0 {
            self.remove(Key::Room(record.holder, slot.au));
        } else {
            self.put(Key::Room(record.holder, slot.au), &room);
        }
    }
}
