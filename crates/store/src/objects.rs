//! The store's objects, seen from outside: reading, listing, and changes of any size.
//!
//! Each change here is one transaction, or several where one would be more than an entry of the log
//! holds: a long write over live bytes, a long truncation. In between, the object has the first
//! part of the change.

use crate::StoreError;
use crate::content::{self, View};
use crate::core::Core;
use crate::key::Key;
use crate::layout::{Layout, PIECE_BYTES};
use crate::leaf::Leaf;
use crate::log::entry::PieceAt;
use crate::read::Plan;
use crate::record::{Home, Onode, Place};
use crate::transaction::object::slot_offset;
use base::{Extent, ObjectId, Time};
use std::sync::Arc;

/// What a store says of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Which.
    pub object: ObjectId,
    /// Its length.
    pub size_bytes: u64,
}

impl View for Core {
    fn view_leaf(&self, key: &Key) -> Result<Leaf, StoreError> {
        let leaf: Leaf = self.record(key)?.unwrap_or_default();
        leaf.check()?;
        Ok(leaf)
    }

    fn view_piece(&self, at: PieceAt) -> Option<Arc<[u8]>> {
        self.overlay.pieces.get(&at).cloned()
    }

    fn view_layout(&self) -> &Layout {
        &self.layout
    }
}

impl Core {
    /// Makes an object without bytes.
    ///
    /// # Errors
    /// [`StoreError::Exists`], those of [`Self::transact`].
    pub fn create(&mut self, now: Time, object: ObjectId) -> Result<(), StoreError> {
        self.transact(now, |t| t.create(object))
    }

    /// Writes `data` at `offset`.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::NoSpace`], [`StoreError::TooLong`],
    /// [`StoreError::Damaged`], those of [`Self::transact`]. Then a first part of it may be
    /// written.
    pub fn write(
        &mut self,
        now: Time,
        object: ObjectId,
        offset: u64,
        data: &[u8],
    ) -> Result<(), StoreError> {
        match self.transact(now, |t| t.write(object, offset, data)) {
            Err(StoreError::TooMuch { .. }) if data.len() as u64 > PIECE_BYTES => {
                let (first, second) = data.split_at(data.len() / 2);
                self.write(now, object, offset, first)?;
                self.write(now, object, offset + first.len() as u64, second)
            }
            other => other,
        }
    }

    /// Makes the object so long.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::TooLong`], [`StoreError::Damaged`], those of
    /// [`Self::transact`].
    pub fn truncate(
        &mut self,
        now: Time,
        object: ObjectId,
        size_bytes: u64,
    ) -> Result<(), StoreError> {
        while !self.transact(now, |t| t.truncate(object, size_bytes))? {}
        Ok(())
    }

    /// Makes bytes of the object zeros and gives back what whole AUs that frees.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Damaged`], those of [`Self::transact`].
    pub fn punch(&mut self, now: Time, object: ObjectId, hole: Extent) -> Result<(), StoreError> {
        while !self.transact(now, |t| t.punch(object, hole))? {}
        Ok(())
    }

    /// Removes the object.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Damaged`], those of [`Self::transact`].
    pub fn delete(&mut self, now: Time, object: ObjectId) -> Result<(), StoreError> {
        self.transact(now, |t| t.delete(object))
    }

    /// Gives back AUs of deleted objects until there are none left.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], those of [`Self::transact`].
    pub fn reclaim(&mut self, now: Time) -> Result<(), StoreError> {
        while self.has_dead()? {
            self.transact(now, |t| t.reclaim())?;
        }
        Ok(())
    }

    fn has_dead(&self) -> Result<bool, StoreError> {
        Ok(!self
            .range(&Key::Dead(0), &Key::Dead(u64::MAX), 1)?
            .is_empty())
    }

    /// Reads from `offset` on, as much as there is and `bytes` has room for; says how much.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Damaged`] if what is there is not what was written.
    pub fn read(
        &self,
        object: ObjectId,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, StoreError> {
        let onode = self.onode(object)?;
        let asked = Extent::new(offset, bytes.len() as u64);
        let there = asked.intersection(Extent::new(0, onode.size_bytes));
        let mut plan = Plan::default();
        match onode.home {
            Home::Packed(slot) => {
                let within = Extent::new(slot_offset(slot) + there.offset, there.len);
                content::plan(self, slot.au, within, 0, &mut plan)?;
            }
            Home::Own => self.plan_own(onode.number, there, &mut plan)?,
        }
        let bytes = &mut bytes[..there.len as usize];
        plan.carry_out(&*self.device, bytes)?;
        Ok(bytes.len())
    }

    fn plan_own(&self, number: u64, there: Extent, plan: &mut Plan) -> Result<(), StoreError> {
        let au_bytes = self.layout.au_bytes;
        let mut offset = there.offset;
        while offset < there.end() {
            let au = Extent::new(offset / au_bytes * au_bytes, au_bytes);
            let here = au.intersection(Extent::between(offset, there.end()));
            let key = Key::Place(number, (au.offset / au_bytes) as u32);
            if let Some(place) = self.record::<Place>(&key)? {
                let within = Extent::new(here.offset - au.offset, here.len);
                let into = (here.offset - there.offset) as usize;
                content::plan(self, place.au, within, into, plan)?;
            }
            offset = here.end();
        }
        Ok(())
    }

    /// What there is to say of an object.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Damaged`], the device's.
    pub fn info(&self, object: ObjectId) -> Result<ObjectInfo, StoreError> {
        let size_bytes = self.onode(object)?.size_bytes;
        Ok(ObjectInfo { object, size_bytes })
    }

    /// The objects from `from` on, at most `count_max`, in order of their identities.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], the device's.
    pub fn list(&self, from: ObjectId, count_max: usize) -> Result<Vec<ObjectInfo>, StoreError> {
        let end = Key::Attribute(0, Vec::new());
        let records = self.range(&Key::Object(from), &end, count_max)?;
        let mut found = Vec::with_capacity(records.len());
        for (key, value) in records {
            if let Key::Object(object) = key {
                let onode: Onode = crate::record::decode(&value)?;
                let size_bytes = onode.size_bytes;
                found.push(ObjectInfo { object, size_bytes });
            }
        }
        Ok(found)
    }

    pub(crate) fn onode(&self, object: ObjectId) -> Result<Onode, StoreError> {
        let onode = self.record(&Key::Object(object))?;
        onode.ok_or(StoreError::NotFound(object))
    }
}
