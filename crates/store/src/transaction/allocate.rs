//! Space that an object has before it is written.
//!
//! An allocation unit that an object has and that no checksum covers reads as zeros: so giving it
//! one is all there is to do. Who draws a unit has room for the records of its bytes promised with
//! it ([`crate::promises`]), so what is written there later finds everything that it takes.

use super::object::{pieces_of, slot_offset};
use super::{Purpose, Transaction};
use crate::core::Core;
use crate::key::Key;
use crate::record::{Home, Onode, Place};
use crate::reserve::{How, moment};
use crate::{Damage, StoreError};
use base::{Extent, ObjectId, Time};
use reservation::Interval;

/// What becomes of bytes that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Present {
    /// They stay.
    Kept,
    /// They become zeros; their space stays.
    Cleared,
}

impl Core {
    /// Gives an object the space for `extent`, and makes it that long if it is shorter. What it
    /// lacks it gets, all of it or nothing; if a reservation pays, a first part may be left.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Superseded`], [`StoreError::NoSpace`],
    /// [`StoreError::TooLong`], [`StoreError::Damaged`], those of [`Self::transact`].
    pub fn allocate(
        &mut self,
        now: Time,
        object: ObjectId,
        extent: Extent,
        present: Present,
        how: impl Into<How>,
    ) -> Result<(), StoreError> {
        let how = how.into();
        if how.payer.is_none() {
            self.check_space_for(now, object, extent)?;
        }
        let mut rest = extent;
        while !rest.is_empty() {
            rest = self.allocate_some(now, object, rest, (present, how))?;
        }
        Ok(())
    }

    /// One transaction of that; what is left.
    pub(crate) fn allocate_some(
        &mut self,
        now: Time,
        object: ObjectId,
        extent: Extent,
        (present, how): (Present, How),
    ) -> Result<Extent, StoreError> {
        let reached = self.transact(now, |t| {
            t.change_so(how);
            t.allocate(object, extent, present)
        })?;
        Ok(Extent::between(reached, extent.end()))
    }

    /// Whether what an object lacks of an extent could be there: so that a request for far too much
    /// takes nothing from others.
    pub(crate) fn check_space_for(
        &self,
        now: Time,
        object: ObjectId,
        extent: Extent,
    ) -> Result<(), StoreError> {
        let onode = self.onode(now, object)?;
        onode.check(&self.layout)?;
        let au_bytes = self.layout.au_bytes;
        let (first, end) = (extent.offset / au_bytes, extent.end().div_ceil(au_bytes));
        let Ok(last) = u32::try_from(end) else {
            return Err(StoreError::TooLong {
                bytes: extent.end(),
            });
        };
        let (from, to) = (
            Key::Place(onode.number, first as u32),
            Key::Place(onode.number, last),
        );
        let has = self.range(&from, &to, usize::MAX)?.len() as u64;
        let wanted = (end - first).saturating_sub(has);
        let always = Interval::unlimited(moment(now));
        let free = always.map_or(0, |always| self.reservable(always));
        // An object that shares an AU, or gets one to share, may need none.
        match wanted > free.saturating_add(1) {
            true => Err(StoreError::NoSpace { wanted, free }),
            false => Ok(()),
        }
    }
}

impl Transaction<'_> {
    /// Gives an object the space for a first part of `extent`; says up to where.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Superseded`], [`StoreError::NoSpace`],
    /// [`StoreError::TooLong`], [`StoreError::Damaged`].
    pub fn allocate(
        &mut self,
        object: ObjectId,
        extent: Extent,
        present: Present,
    ) -> Result<u64, StoreError> {
        self.serve(Purpose::Growth);
        let mut onode = self.onode_now(object)?;
        if extent.end() > self.object_bytes_max() {
            return Err(StoreError::TooLong {
                bytes: extent.end(),
            });
        }
        let size_bytes = onode.size_bytes.max(extent.end());
        let is_small = size_bytes <= self.packed_bytes_max();
        let mut reached = extent.end();
        match onode.home {
            Home::Packed(slot) if is_small => {
                let slot = self.grow_slot(onode.holder, slot, size_bytes)?;
                onode.home = Home::Packed(slot);
                if present == Present::Cleared {
                    let begin = slot_offset(slot);
                    self.clear_au(slot.au, Extent::new(begin + extent.offset, extent.len))?;
                }
            }
            Home::Packed(slot) => {
                self.unpack(&mut onode, slot)?;
                reached = self.allocate_own(&onode, extent, present)?;
            }
            Home::Own if is_small && onode.size_bytes == 0 => {
                let pieces = pieces_of(size_bytes);
                onode.home = Home::Packed(self.take_slot(onode.holder, pieces)?);
            }
            Home::Own => reached = self.allocate_own(&onode, extent, present)?,
            Home::Lost => return Err(Damage::Lost.into()),
        }
        onode.size_bytes = onode.size_bytes.max(reached);
        self.put(Key::Object(object), &onode);
        Ok(reached)
    }

    pub(super) fn allocate_own(
        &mut self,
        onode: &Onode,
        extent: Extent,
        present: Present,
    ) -> Result<u64, StoreError> {
        let au_bytes = self.core.layout.au_bytes;
        let first = extent.offset / au_bytes;
        let end = extent.end().div_ceil(au_bytes);
        let last = end.min(first + self.give_back_max() as u64);
        for index in first..last {
            let key = Key::Place(onode.number, index as u32);
            let Some(place) = self.record::<Place>(&key)? else {
                self.use_aus(onode.holder, 1)?;
                let au = self.draw_au(0, Vec::new())?;
                self.put(key, &Place { au });
                continue;
            };
            if present == Present::Cleared {
                let au = Extent::new(index * au_bytes, au_bytes);
                let here = au.intersection(extent);
                let own = self.unshare(key, place.au)?;
                self.clear_au(own, Extent::new(here.offset - au.offset, here.len))?;
            }
        }
        Ok(extent.end().min(last * au_bytes))
    }
}
