//! The store's objects, seen from outside: reading, listing, and changes of any size.
//!
//! Each change here is one transaction, or several where one would be more than an entry of the log
//! holds: a long write over live bytes, a long truncation. In between, the object has the first
//! part of the change.

use crate::content::{self, View};
use crate::core::Core;
use crate::key::Key;
use crate::layout::{Layout, PIECE_BYTES};
use crate::leaf::Leaf;
use crate::log::entry::PieceAt;
use crate::read::Plan;
use crate::record::{Holder, Home, Onode, Place};
use crate::reserve::{self, How, Payer, Terms};
use crate::transaction::object::slot_offset;
use crate::{Damage, StoreError};
use base::{Extent, ObjectId, Time};
use reservation::Moment;
use std::sync::Arc;

/// What a store says of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Which.
    pub object: ObjectId,
    /// Its length.
    pub size_bytes: u64,
    /// When its time is over, as far as is known now.
    pub end: Moment,
    /// The reservation whose space it has, if any.
    pub reservation: Option<u64>,
    /// How often its lifetime was renewed.
    pub renewals: u32,
    /// What comes by an older layout than one of this generation is refused.
    pub generation: u64,
    /// The store's record of it was lost: it cannot be read, and its length is not known.
    pub is_lost: bool,
}

/// Some objects, and from where to go on.
pub type Page = (Vec<ObjectInfo>, Option<ObjectId>);

impl View for Core {
    fn view_leaf(&self, key: &Key) -> Result<Leaf, StoreError> {
        let leaf: Leaf = self.record(key)?.unwrap_or_default();
        leaf.check()?;
        Ok(leaf)
    }

    fn view_piece(&self, at: PieceAt) -> Option<Arc<[u8]>> {
        self.piece(at).cloned()
    }

    fn view_layout(&self) -> &Layout {
        &self.layout
    }
}

impl Core {
    /// Makes an object without bytes.
    ///
    /// # Errors
    /// [`StoreError::Exists`], [`StoreError::NotHeld`], [`StoreError::Used`],
    /// [`StoreError::Lifetime`], those of [`Self::transact`].
    pub fn create(&mut self, now: Time, object: ObjectId, terms: Terms) -> Result<(), StoreError> {
        self.create_from(now, object, terms, None)
    }

    /// As [`Self::create`], of an object without a reservation whose space one pays.
    ///
    /// # Errors
    /// Those of [`Self::create`].
    pub fn create_from(
        &mut self,
        now: Time,
        object: ObjectId,
        terms: Terms,
        payer: Option<Payer>,
    ) -> Result<(), StoreError> {
        self.transact(now, |t| {
            t.pay(payer);
            t.create(object, terms)
        })
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
        self.write_from(now, object, offset, data, None)
    }

    /// As [`Self::write`]: by a layout of some generation, or into an object without a reservation
    /// whose growth one pays.
    ///
    /// # Errors
    /// Those of [`Self::write`]; [`StoreError::Superseded`] if the object was cut since;
    /// [`StoreError::Used`] and [`StoreError::NotHeld`] if who pays is a limit.
    pub fn write_from(
        &mut self,
        now: Time,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        how: impl Into<How>,
    ) -> Result<(), StoreError> {
        let how = how.into();
        let (mut rest, mut offset, mut part_max) = (data, offset, usize::MAX);
        loop {
            let at = (object, offset);
            let written = self.write_some(now, at, rest, how, &mut part_max)?;
            rest = &rest[written..];
            offset += written as u64;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Writes a first part of `data` in one transaction, says how much: all of it, at most
    /// `part_max` bytes, or less if that is too much for one; then `part_max` becomes less, too.
    ///
    /// # Errors
    /// Those of [`Self::write`]; nothing is written then.
    pub(crate) fn write_some(
        &mut self,
        now: Time,
        (object, offset): (ObjectId, u64),
        data: &[u8],
        how: How,
        part_max: &mut usize,
    ) -> Result<usize, StoreError> {
        loop {
            let len = data.len().min(*part_max);
            let written = self.transact(now, |t| {
                t.change_so(how);
                t.write(object, offset, &data[..len])
            });
            match written {
                Err(StoreError::TooMuch { .. }) if len as u64 > PIECE_BYTES => {
                    *part_max = half(offset, len);
                }
                written => return written.map(|()| len),
            }
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

    /// Makes the object at most so long, and refuses from now on what comes by an older layout
    /// than one of this generation; makes it if it is not there. One that is of this generation
    /// already, or of a later one, stays as it is.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], those of [`Self::transact`].
    pub fn cut(
        &mut self,
        now: Time,
        object: ObjectId,
        size_bytes: u64,
        generation: u64,
    ) -> Result<(), StoreError> {
        while !self.transact(now, |t| t.cut(object, size_bytes, generation))? {}
        Ok(())
    }

    /// Makes bytes of the object zeros and gives back what whole AUs that frees.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Damaged`], those of [`Self::transact`].
    pub fn punch(&mut self, now: Time, object: ObjectId, hole: Extent) -> Result<(), StoreError> {
        self.punch_so(now, object, hole, How::default())
    }

    /// As [`Self::punch`], by a layout of some generation.
    ///
    /// # Errors
    /// Those of [`Self::punch`]; [`StoreError::Superseded`] if the object was cut since.
    pub fn punch_so(
        &mut self,
        now: Time,
        object: ObjectId,
        hole: Extent,
        how: How,
    ) -> Result<(), StoreError> {
        let punched = |t: &mut crate::Transaction<'_>| {
            t.change_so(how);
            t.punch(object, hole)
        };
        while !self.transact(now, punched)? {}
        Ok(())
    }

    /// Removes the object.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Damaged`], those of [`Self::transact`].
    pub fn delete(&mut self, now: Time, object: ObjectId) -> Result<(), StoreError> {
        self.transact(now, |t| t.delete(object))
    }

    /// Reads from `offset` on, as much as there is and `bytes` has room for; says how much.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::Damaged`] if what is there is not what was written.
    pub fn read(
        &self,
        now: Time,
        object: ObjectId,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, StoreError> {
        let (plan, len) = self.plan_read(now, object, offset, bytes.len())?;
        let bytes = &mut bytes[..len];
        plan.carry_out(&*self.device, bytes)?;
        Ok(len)
    }

    /// How to read up to `len` bytes from `offset` on, and how many there are.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Damaged`] if a record is, the device's.
    pub(crate) fn plan_read(
        &self,
        now: Time,
        object: ObjectId,
        offset: u64,
        len: usize,
    ) -> Result<(Plan, usize), StoreError> {
        let onode = self.onode(now, object)?;
        onode.check(&self.layout)?;
        let asked = Extent::new(offset, len as u64);
        let there = asked.intersection(Extent::new(0, onode.size_bytes));
        let mut plan = Plan::default();
        match onode.home {
            Home::Lost => return Err(Damage::Lost.into()),
            _ if there.is_empty() => {}
            Home::Packed(slot) => {
                let within = Extent::new(slot_offset(slot) + there.offset, there.len);
                content::plan(self, slot.au, within, 0, &mut plan)?;
            }
            Home::Own => self.plan_own(onode.number, there, &mut plan)?,
        }
        Ok((plan, there.len as usize))
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
    pub fn info(&self, now: Time, object: ObjectId) -> Result<ObjectInfo, StoreError> {
        let onode = self.onode(now, object)?;
        let holder: Option<Holder> = self.record(&Key::Holder(onode.holder))?;
        let last = holder.map_or(onode.end, |holder| holder.interval.end());
        Ok(ObjectInfo {
            object,
            size_bytes: onode.size_bytes,
            end: onode.end.min(last),
            reservation: Some(onode.holder).filter(|holder| !reserve::is_pool(*holder)),
            renewals: onode.renewals,
            generation: onode.generation,
            is_lost: onode.home == Home::Lost,
        })
    }

    /// The objects from `from` on, in order of their identities, and where to go on; none at the
    /// end. A page has at most `count_max`, fewer where some are past their time.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], the device's.
    pub fn list(&self, now: Time, from: ObjectId, count_max: usize) -> Result<Page, StoreError> {
        let end = Key::Attribute(0, Vec::new());
        let mut records = self.range(&Key::Object(from), &end, count_max.saturating_add(1))?;
        let next = match records.get(count_max) {
            Some((Key::Object(object), _)) => Some(*object),
            _ => None,
        };
        records.truncate(count_max);
        let mut objects = Vec::with_capacity(records.len());
        for (key, _) in records {
            let Key::Object(object) = key else {
                continue;
            };
            match self.info(now, object) {
                Ok(info) => objects.push(info),
                Err(StoreError::Expired(_)) => {}
                Err(other) => return Err(other),
            }
        }
        Ok((objects, next))
    }

    pub(crate) fn onode(&self, now: Time, object: ObjectId) -> Result<Onode, StoreError> {
        let onode: Option<Onode> = self.record(&Key::Object(object))?;
        let onode = onode.ok_or(StoreError::NotFound(object))?;
        let holder = self.record(&Key::Holder(onode.holder))?;
        reserve::check_alive(object, &onode, holder, now.max(self.now()))?;
        Ok(onode)
    }
}

/// About half of so many bytes from an offset on, up to where a piece ends if one does there.
fn half(offset: u64, len: usize) -> usize {
    let middle = offset + len as u64 / 2;
    let end = middle - middle % PIECE_BYTES;
    if end > offset {
        (end - offset) as usize
    } else {
        len / 2
    }
}
