//! Where an object has data, and where it has holes.
//!
//! A hole is what no checksum covers: bytes that were never written, or were cleared since. It is
//! told from data in pieces of 4 KiB, by the records alone. Allocation units that were drawn ahead
//! ([`Core::allocate`]) are holes until they are written. What cannot be told, because a record is
//! damaged, counts as data: whoever reads it hears of the damage.

use crate::content::{GroupAt, View};
use crate::core::Core;
use crate::key::Key;
use crate::layout::{PIECE_BYTES, SPAN_BYTES};
use crate::leaf::{GROUP_PIECES, Group};
use crate::record::{Home, Place};
use crate::transaction::object::slot_offset;
use crate::{Damage, StoreError};
use base::limits::STORE_SEEK_SPANS_MAX;
use base::{Extent, ObjectId, Time};

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Bytes that were written.
    Data,
    /// Bytes that were not.
    Hole,
}

/// Where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sought {
    /// Here, at or after the offset.
    At(u64),
    /// Not before this offset: from there on nothing was looked at.
    NotBefore(u64),
    /// Nowhere: there are no data up to the object's end.
    Nowhere,
}

impl Core {
    /// The next data or hole of an object at or after `offset`. What lies behind its end is a hole.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Damaged`] if the object's own record is.
    pub fn seek(
        &self,
        now: Time,
        object: ObjectId,
        offset: u64,
        wanted: Wanted,
    ) -> Result<Sought, StoreError> {
        let onode = self.onode(now, object)?;
        onode.check(&self.layout)?;
        let there = Extent::between(offset, onode.size_bytes);
        if there.is_empty() {
            return Ok(behind(offset, wanted));
        }
        match onode.home {
            Home::Packed(slot) => {
                let begin = slot_offset(slot);
                let within = Extent::new(begin + there.offset, there.len);
                Ok(match seek_in_au(self, slot.au, within, wanted) {
                    Some(at) => Sought::At(at - begin),
                    None => behind(there.end(), wanted),
                })
            }
            Home::Own => self.seek_own(onode.number, there, wanted),
            Home::Lost => Err(Damage::Lost.into()),
        }
    }

    fn seek_own(&self, number: u64, there: Extent, wanted: Wanted) -> Result<Sought, StoreError> {
        let au_bytes = self.layout.au_bytes;
        let spans = au_bytes.div_ceil(SPAN_BYTES);
        let aus_max = (STORE_SEEK_SPANS_MAX as u64 / spans).max(1);
        let first = there.offset / au_bytes;
        let end = there.end().div_ceil(au_bytes);
        let from = Key::Place(number, first as u32);
        let to = Key::Place(number, u32::try_from(end).unwrap_or(u32::MAX));
        let places = self.range(&from, &to, aus_max as usize)?;
        let is_all = (places.len() as u64) < aus_max;
        let mut next = there.offset;
        for (key, value) in places {
            let Key::Place(_, index) = key else {
                return Err(Damage::Record.into());
            };
            let place: Place = crate::record::decode(&value)?;
            let au = Extent::new(u64::from(index) * au_bytes, au_bytes);
            if wanted == Wanted::Hole && au.offset > next {
                return Ok(Sought::At(next));
            }
            let here = au.intersection(there);
            let within = Extent::new(here.offset - au.offset, here.len);
            if let Some(at) = seek_in_au(self, place.au, within, wanted) {
                return Ok(Sought::At(au.offset + at));
            }
            next = here.end();
        }
        Ok(match wanted {
            _ if !is_all && next < there.end() => Sought::NotBefore(next),
            Wanted::Hole => Sought::At(next),
            Wanted::Data => Sought::Nowhere,
        })
    }
}

/// The first piece of `extent` of an AU that is what is wanted; where it begins, or the extent
/// does.
pub(crate) fn seek_in_au(
    view: &(impl View + ?Sized),
    au: u32,
    extent: Extent,
    wanted: Wanted,
) -> Option<u64> {
    let mut known = None;
    for at in GroupAt::each(au, extent) {
        let key = at.key();
        let leaf = match known.take() {
            Some((same, leaf)) if same == key => leaf,
            _ => view.view_leaf(&key).ok(),
        };
        for (piece, from, _) in at.pieces() {
            let has_data = leaf.as_ref().is_none_or(|leaf| {
                let group = leaf.group(at.index());
                has_data(group, piece)
            });
            if has_data == (wanted == Wanted::Data) {
                let pieces = u64::from(at.group) * GROUP_PIECES as u64 + piece as u64;
                return Some(pieces * PIECE_BYTES + from as u64);
            }
        }
        known = Some((key, leaf));
    }
    None
}

/// What is behind the last byte.
fn behind(end: u64, wanted: Wanted) -> Sought {
    match wanted {
        Wanted::Hole => Sought::At(end),
        Wanted::Data => Sought::Nowhere,
    }
}

fn has_data(group: &Group, piece: usize) -> bool {
    match group {
        Group::Empty => false,
        Group::Coarse(sum) => (piece as u64) * PIECE_BYTES < u64::from(sum.len),
        Group::Fine(_) => group.piece(piece).len > 0,
        Group::Lost => true,
    }
}
