//! What can be done to an object.

use super::allocate::Present;
use super::{Purpose, Transaction};
use crate::key::{Key, Value};
use crate::layout::{GROUP_BYTES, PIECE_BYTES, SPAN_BYTES};
use crate::record::{Home, Onode, Place, Slot};
use crate::reserve::{self, Terms};
use crate::seek::{Wanted, seek_in_au};
use crate::tree::Load;
use crate::{Damage, StoreError, record};
use base::{Extent, ObjectId};
use reservation::Moment;

/// Objects whose holder is over that one transaction removes.
const OBJECTS_TOGETHER: usize = 8;
/// Records that one transaction removes to give space back, if more than one AU or object has
/// them. The more, the more room there has to be for it in a full store.
const REMOVALS_MAX: usize = 96;
/// Bytes of records that it puts then.
const REMOVAL_PUT_BYTES_MAX: usize = 2 << 10;
/// What a transaction is at most that removes one object or gives space back: with 256 leaves of
/// the last AU, or an object's attributes, on top of these.
pub(crate) const REMOVAL_LOAD_MAX: Load = Load {
    changes: REMOVALS_MAX + 280,
    puts: REMOVALS_MAX / 3 + 8,
    put_bytes: REMOVAL_PUT_BYTES_MAX + (2 << 10),
};

impl Transaction<'_> {
    /// Makes an object without bytes. One of that identity whose time is over makes way.
    ///
    /// # Errors
    /// [`StoreError::Exists`], [`StoreError::NotHeld`], [`StoreError::Used`],
    /// [`StoreError::Lifetime`].
    pub fn create(&mut self, object: ObjectId, terms: Terms) -> Result<(), StoreError> {
        self.serve(Purpose::Growth);
        match self.onode_there(object) {
            Ok(_) => return Err(StoreError::Exists(object)),
            Err(StoreError::Expired(_)) => self.erase(object)?,
            Err(StoreError::NotFound(_)) => {}
            Err(other) => return Err(other),
        }
        self.make(object, terms, 0)
    }

    /// Makes an object that is not there.
    fn make(&mut self, object: ObjectId, terms: Terms, generation: u64) -> Result<(), StoreError> {
        let (holder, end) = self.admit(terms)?;
        self.use_records(holder, 1)?;
        let onode = Onode {
            number: self.staged.counters.number,
            size_bytes: 0,
            holder,
            end,
            renewals: 0,
            generation,
            home: Home::Own,
        };
        self.staged.counters.number += 1;
        self.put(Key::Object(object), &onode);
        self.put(Key::Member(holder, object), &());
        Ok(())
    }

    /// Writes `data` at `offset`; what lies before it and was never written reads as zeros.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Superseded`], [`StoreError::NoSpace`],
    /// [`StoreError::TooLong`], [`StoreError::TooMuch`] at the end of the transaction if too much
    /// of it lies over bytes that are there already; [`StoreError::Damaged`].
    pub fn write(&mut self, object: ObjectId, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.serve(Purpose::Growth);
        let mut onode = self.onode_now(object)?;
        if data.is_empty() {
            return Ok(());
        }
        let end = offset.saturating_add(data.len() as u64);
        if end > self.object_bytes_max() {
            return Err(StoreError::TooLong { bytes: end });
        }
        let size_bytes = onode.size_bytes.max(end);
        let is_small = size_bytes <= self.packed_bytes_max();
        match onode.home {
            Home::Packed(slot) if is_small => {
                let slot = self.grow_slot(onode.holder, slot, size_bytes)?;
                onode.home = Home::Packed(slot);
                self.write_slot(slot, offset, data)?;
            }
            Home::Packed(slot) => {
                self.unpack(&mut onode, slot)?;
                self.write_own(&onode, offset, data)?;
            }
            Home::Own if is_small && onode.size_bytes == 0 => {
                let slot = self.take_slot(onode.holder, pieces_of(size_bytes))?;
                onode.home = Home::Packed(slot);
                self.write_slot(slot, offset, data)?;
            }
            Home::Own => self.write_own(&onode, offset, data)?,
            Home::Lost => return Err(Damage::Lost.into()),
        }
        onode.size_bytes = size_bytes;
        self.put(Key::Object(object), &onode);
        Ok(())
    }

    /// Makes the object so long. Says false if it has more AUs to give back than one transaction
    /// does; it is then as long as what is left, and the caller goes on.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::TooLong`], [`StoreError::Damaged`].
    pub fn truncate(&mut self, object: ObjectId, size_bytes: u64) -> Result<bool, StoreError> {
        self.serve(Purpose::Cut);
        let mut onode = self.onode(object)?;
        if size_bytes > self.object_bytes_max() {
            return Err(StoreError::TooLong { bytes: size_bytes });
        }
        let mut reached = size_bytes;
        let cut = Extent::between(size_bytes, onode.size_bytes);
        match onode.home {
            Home::Packed(slot) if size_bytes == 0 => {
                self.give_slot_back(slot)?;
                onode.home = Home::Own;
            }
            Home::Packed(slot) if size_bytes > slot_bytes(slot) => {
                self.serve(Purpose::Growth);
                self.unpack(&mut onode, slot)?;
            }
            Home::Packed(slot) => {
                let part = Extent::new(slot_offset(slot) + cut.offset, cut.len);
                self.clear_au(slot.au, part)?;
            }
            Home::Own => {
                // From the end on: whatever is durable of it, the object has its first bytes.
                let au_bytes = self.core.layout.au_bytes;
                let step = onode.size_bytes.div_ceil(au_bytes);
                let step = step.saturating_sub(self.give_back_max() as u64);
                reached = size_bytes.max(step * au_bytes);
                self.cut_own(onode.number, onode.holder, reached)?;
            }
            Home::Lost => return Err(Damage::Lost.into()),
        }
        onode.size_bytes = reached;
        self.put(Key::Object(object), &onode);
        Ok(reached == size_bytes)
    }

    /// Makes the object at most so long, and refuses from now on what comes by an older layout
    /// than one of this generation. One that is not there is made, to refuse that as well: whoever
    /// was told of the object before may write there for the first time later. It lives as long as
    /// any object does in this store; one that is there, as long as it did. One that is of this
    /// generation already, or of a later one, was cut for it and may have been written since: it
    /// stays as it is. Says false as [`Self::truncate`] does; the generation begins with the last
    /// time.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] if it is not there and cannot be made, [`StoreError::Expired`],
    /// [`StoreError::Damaged`].
    pub fn cut(
        &mut self,
        object: ObjectId,
        size_bytes: u64,
        generation: u64,
    ) -> Result<bool, StoreError> {
        self.serve(Purpose::Cut);
        let onode = match self.onode(object) {
            Err(StoreError::NotFound(_)) => {
                let now = reserve::moment(self.staged.counters.now);
                let longest = self.core.superblock().lifetimes.longest_seconds;
                let end = longest.map_or(Moment::FOREVER, |seconds| now.plus(seconds));
                self.make(object, Terms::Until(end), generation)?;
                return Ok(true);
            }
            known => known?,
        };
        if onode.generation >= generation {
            return Ok(true);
        }
        // What comes under older generations until then is cut off with the rest.
        if onode.size_bytes > size_bytes && !self.truncate(object, size_bytes)? {
            return Ok(false);
        }
        let mut onode = self.onode(object)?;
        onode.generation = generation;
        self.put(Key::Object(object), &onode);
        Ok(true)
    }

    /// Makes bytes of the object zeros; whole AUs of them are given back. Says false as
    /// [`Self::truncate`] does.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Superseded`], [`StoreError::Damaged`].
    pub fn punch(&mut self, object: ObjectId, hole: Extent) -> Result<bool, StoreError> {
        self.serve(Purpose::Cut);
        let onode = self.onode_now(object)?;
        let hole = hole.intersection(Extent::new(0, onode.size_bytes));
        match onode.home {
            Home::Packed(slot) => {
                let part = Extent::new(slot_offset(slot) + hole.offset, hole.len);
                self.clear_au(slot.au, part)?;
                Ok(true)
            }
            Home::Own => self.clear_own(onode.number, onode.holder, hole),
            Home::Lost => Err(Damage::Lost.into()),
        }
    }

    /// Removes the object. Its AUs follow: see [`Self::reclaim`].
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Damaged`].
    pub fn delete(&mut self, object: ObjectId) -> Result<(), StoreError> {
        self.serve(Purpose::Removal);
        self.onode_there(object)?;
        self.erase(object)
    }

    /// Removes an object whether or not its time is over.
    fn erase(&mut self, object: ObjectId) -> Result<(), StoreError> {
        let onode: Option<Onode> = self.record(&Key::Object(object))?;
        let onode = onode.ok_or(StoreError::NotFound(object))?;
        match onode.home {
            Home::Packed(slot) => self.give_slot_back(slot)?,
            Home::Own if onode.size_bytes > 0 => self.put(Key::Dead(onode.number), &onode.holder),
            Home::Own | Home::Lost => {}
        }
        self.remove_attributes(&onode)?;
        self.hide(object, &onode)
    }

    /// Takes an object's name away.
    pub(super) fn hide(&mut self, object: ObjectId, onode: &Onode) -> Result<(), StoreError> {
        self.use_records(onode.holder, -1)?;
        self.remove(Key::Member(onode.holder, object));
        self.remove(Key::Object(object));
        Ok(())
    }

    /// Gives back some AUs of deleted objects, or removes some objects whose holder is over; false
    /// if there is neither.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub(crate) fn reclaim(&mut self) -> Result<bool, StoreError> {
        if let Some((number, holder)) = self.core.first_dead()? {
            if self.cut_dead(number, holder)? {
                self.remove(Key::Dead(number));
            }
            return Ok(true);
        }
        let Some(holder) = self.core.first_over()? else {
            return Ok(false);
        };
        let from = Key::Member(holder, ObjectId([0; 16]));
        let to = match holder.checked_add(1) {
            Some(next) => Key::Member(next, ObjectId([0; 16])),
            None => Key::End(0, 0),
        };
        let members = (self.core).first_of_list(&from, &to, OBJECTS_TOGETHER)?;
        let is_empty = members.is_empty();
        for (key, _) in members {
            if let Key::Member(_, object) = key {
                let onode: Option<Onode> = self.record(&Key::Object(object))?;
                if onode.is_none_or(|onode| onode.holder != holder) {
                    return Err(Damage::Record.into());
                }
                self.erase(object)?;
            }
            let load = self.staged.layer.load();
            if load.changes > REMOVALS_MAX || load.put_bytes > REMOVAL_PUT_BYTES_MAX {
                break;
            }
        }
        if is_empty {
            self.remove(Key::Over(holder));
            self.remove(Key::Holder(holder));
        }
        Ok(true)
    }

    /// Lets the object live up to `end`, which does nothing if it does so already. An object of a
    /// reservation lives no longer than that.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Expired`], [`StoreError::NotRenewable`],
    /// [`StoreError::Lifetime`], [`StoreError::NoSpace`] if the space is promised to others then.
    pub fn renew(&mut self, object: ObjectId, end: Moment) -> Result<(), StoreError> {
        let mut onode = self.onode(object)?;
        if end <= onode.end {
            return Ok(());
        }
        self.serve(Purpose::Growth);
        let renewals_max = self.core.superblock().lifetimes.renewals_max;
        if renewals_max.is_some_and(|max| onode.renewals >= max) {
            return Err(StoreError::NotRenewable(object));
        }
        if reserve::is_pool(onode.holder) {
            let (holder, _) = self.admit(Terms::Until(end))?;
            if holder != onode.holder {
                self.move_to(holder, object, &mut onode)?;
            }
        } else {
            self.admit(Terms::Within(onode.holder, end))?;
        }
        onode.end = end;
        onode.renewals = onode.renewals.saturating_add(1);
        self.put(Key::Object(object), &onode);
        Ok(())
    }

    /// Lets another holder pay for an object.
    fn move_to(
        &mut self,
        holder: u64,
        object: ObjectId,
        onode: &mut Onode,
    ) -> Result<(), StoreError> {
        let records = self.records_of(onode)?;
        self.use_records(onode.holder, -records)?;
        self.use_records(holder, records)?;
        match onode.home {
            Home::Packed(slot) => {
                let fresh = self.move_slot(holder, slot, slot.pieces)?;
                onode.home = Home::Packed(fresh);
            }
            Home::Own => {
                let from = Key::Place(onode.number, 0);
                let to = Key::Place(onode.number, u32::MAX);
                let places = self.range(&from, &to, usize::MAX)?.len() as i64;
                self.use_aus(onode.holder, -places)?;
                self.use_aus(holder, places)?;
            }
            Home::Lost => return Err(Damage::Lost.into()),
        }
        self.remove(Key::Member(onode.holder, object));
        self.put(Key::Member(holder, object), &());
        onode.holder = holder;
        Ok(())
    }

    pub(super) fn onode(&self, object: ObjectId) -> Result<Onode, StoreError> {
        let onode = self.onode_there(object)?;
        onode.check(&self.core.layout)?;
        Ok(onode)
    }

    /// The same also of one whose figures make no sense: it can be removed.
    fn onode_there(&self, object: ObjectId) -> Result<Onode, StoreError> {
        let onode: Option<Onode> = self.record(&Key::Object(object))?;
        let onode = onode.ok_or(StoreError::NotFound(object))?;
        let holder = self.record(&Key::Holder(onode.holder))?;
        reserve::check_alive(object, &onode, holder, self.staged.counters.now)?;
        Ok(onode)
    }

    /// As [`Self::onode`], for who changes it: by a layout that is still true.
    pub(super) fn onode_now(&self, object: ObjectId) -> Result<Onode, StoreError> {
        let onode = self.onode(object)?;
        match self.generation {
            Some(generation) if generation < onode.generation => {
                Err(StoreError::Superseded(object))
            }
            _ => Ok(onode),
        }
    }

    pub(super) fn object_bytes_max(&self) -> u64 {
        self.core.layout.object_bytes_max()
    }

    /// Largest object that shares an AU: beyond a quarter, too little of the AU would be left over.
    pub(super) fn packed_bytes_max(&self) -> u64 {
        let deferred = self.core.deferred_bytes_max() as u64;
        (self.core.layout.au_bytes / 4)
            .min(GROUP_BYTES)
            .min(deferred)
    }

    fn write_slot(&mut self, slot: Slot, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.write_au(slot.au, slot_offset(slot) + offset, data, false)
    }

    /// A slot with room for so many bytes and the same contents. It doubles, so that appending is
    /// not a copy each time.
    pub(super) fn grow_slot(
        &mut self,
        holder: u64,
        slot: Slot,
        size_bytes: u64,
    ) -> Result<Slot, StoreError> {
        if size_bytes <= slot_bytes(slot) {
            return Ok(slot);
        }
        let most = pieces_of(self.packed_bytes_max());
        let pieces = pieces_of(size_bytes).next_power_of_two().min(most);
        self.move_slot(holder, slot, pieces)
    }

    /// Another slot with the same contents.
    fn move_slot(&mut self, holder: u64, slot: Slot, pieces: u16) -> Result<Slot, StoreError> {
        let old = self.written(slot, slot_bytes(slot))?;
        let fresh = self.take_slot(holder, pieces)?;
        for (offset, bytes) in old {
            self.write_slot(fresh, offset, &bytes)?;
        }
        self.give_slot_back(slot)?;
        Ok(fresh)
    }

    /// Gives a small object an AU of its own: the space that it had stays, and so do its holes.
    pub(super) fn unpack(&mut self, onode: &mut Onode, slot: Slot) -> Result<(), StoreError> {
        let old = self.written(slot, onode.size_bytes)?;
        self.give_slot_back(slot)?;
        onode.home = Home::Own;
        let space = Extent::new(0, onode.size_bytes);
        self.allocate_own(onode, space, Present::Kept)?;
        for (offset, bytes) in old {
            self.write_own(onode, offset, &bytes)?;
        }
        Ok(())
    }

    /// What was written of a slot's first bytes: in runs, with where each begins.
    pub(super) fn written(
        &self,
        slot: Slot,
        size_bytes: u64,
    ) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        let begin = slot_offset(slot);
        let end = begin + size_bytes;
        let next = |from, wanted| seek_in_au(self, slot.au, Extent::between(from, end), wanted);
        let mut runs = Vec::new();
        let mut from = begin;
        while from < end
            && let Some(at) = next(from, Wanted::Data)
        {
            from = next(at, Wanted::Hole).unwrap_or(end);
            let bytes = self.read_au(slot.au, at, (from - at) as usize)?;
            runs.push((at - begin, bytes));
        }
        Ok(runs)
    }

    pub(super) fn write_own(
        &mut self,
        onode: &Onode,
        offset: u64,
        data: &[u8],
    ) -> Result<(), StoreError> {
        let is_large = data.len() > self.core.deferred_bytes_max();
        let au_bytes = self.core.layout.au_bytes;
        let mut rest = data;
        let mut offset = offset;
        while !rest.is_empty() {
            let within = offset % au_bytes;
            let len = rest.len().min((au_bytes - within) as usize);
            let (part, after) = rest.split_at(len);
            let index = (offset / au_bytes) as u32;
            self.write_place(onode, index, within, part, is_large)?;
            offset += len as u64;
            rest = after;
        }
        Ok(())
    }

    /// AUs that one transaction gives back; the rest follows in others.
    pub(super) fn give_back_max(&self) -> usize {
        let leaves = self.core.layout.au_bytes.div_ceil(SPAN_BYTES) as usize;
        (REMOVALS_MAX / (leaves + 2)).max(1)
    }

    fn cut_own(&mut self, number: u64, holder: u64, size_bytes: u64) -> Result<bool, StoreError> {
        let whole = Extent::between(size_bytes, self.object_bytes_max());
        self.clear_own(number, holder, whole)
    }

    /// Gives back the first AUs of an object that is deleted; true if that was all. What one step
    /// has given back, the next one does not look at again.
    fn cut_dead(&mut self, number: u64, holder: u64) -> Result<bool, StoreError> {
        let places = self.core.first_places(number, self.give_back_max() + 1)?;
        let whole = Extent::between(0, self.object_bytes_max());
        self.clear_places(holder, whole, places)
    }

    /// Clears a part of an object with AUs of its own.
    fn clear_own(&mut self, number: u64, holder: u64, part: Extent) -> Result<bool, StoreError> {
        let au_bytes = self.core.layout.au_bytes;
        if part.is_empty() {
            return Ok(true);
        }
        let (first, end) = (part.offset / au_bytes, part.end().div_ceil(au_bytes));
        let from = Key::Place(number, first as u32);
        let to = match u32::try_from(end) {
            Ok(end) => Key::Place(number, end),
            Err(_) => Key::Place(number.saturating_add(1), 0),
        };
        let count_max = self.give_back_max();
        // Of what goes as a whole, only what is left counts.
        let is_all = part == Extent::between(0, self.object_bytes_max());
        let places = match is_all {
            true => self.range_left(&from, &to, count_max + 1)?,
            false => self.range(&from, &to, count_max + 1)?,
        };
        self.clear_places(holder, part, places)
    }

    /// Clears a part of an object at these places of it, as many as one transaction does; true if
    /// that was all.
    fn clear_places(
        &mut self,
        holder: u64,
        part: Extent,
        places: Vec<(Key, Value)>,
    ) -> Result<bool, StoreError> {
        let au_bytes = self.core.layout.au_bytes;
        let count_max = self.give_back_max();
        let is_done = places.len() <= count_max;
        for (key, value) in places.into_iter().take(count_max) {
            let Key::Place(_, index) = key else {
                return Err(Damage::Record.into());
            };
            let place: Place = record::decode(&value)?;
            let au = Extent::new(u64::from(index) * au_bytes, au_bytes);
            let here = au.intersection(part);
            if here == au {
                self.remove(key);
                self.use_aus(holder, -1)?;
                self.drop_user(place.au)?;
            } else {
                let within = Extent::new(here.offset - au.offset, here.len);
                let own = self.unshare(key, place.au)?;
                self.clear_au(own, within)?;
            }
        }
        Ok(is_done)
    }
}

/// Where a slot begins in its AU.
pub(crate) fn slot_offset(slot: Slot) -> u64 {
    u64::from(slot.piece) * PIECE_BYTES
}

/// Bytes that a slot has room for.
fn slot_bytes(slot: Slot) -> u64 {
    u64::from(slot.pieces) * PIECE_BYTES
}

/// Pieces of a slot with room for so many bytes.
pub(super) fn pieces_of(bytes: u64) -> u16 {
    u16::try_from(bytes.div_ceil(PIECE_BYTES)).expect("a small object has at most 16 pieces")
}
