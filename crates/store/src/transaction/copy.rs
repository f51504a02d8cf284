//! Copy on write: AUs that several objects share, and live AUs that are written over as a whole.
//!
//! After a clone two places name one AU. Each of the two holders has paid for it, as for a copy: so
//! whoever writes to it first finds the space for its own (S2), and either end may come first. The
//! first write, or hole, draws a fresh AU and copies what the old one has.
//!
//! A large write over most of a live AU goes to a fresh one as well, if there is room: it is
//! written once then, where it would be written twice through the log. The old AU is given back.

use super::allocate::Present;
use super::{Purpose, Transaction};
use crate::content::{self, GroupAt};
use crate::core::Core;
use crate::key::Key;
use crate::layout::{GROUP_BYTES, SPAN_BYTES};
use crate::leaf::Group;
use crate::planted::{Mistake, planted};
use crate::read::Plan;
use crate::record::{AuRecord, Home, Onode, Place, decode};
use crate::reserve::Terms;
use crate::{Damage, StoreError};
use base::{Extent, ObjectId, Time};

/// A clone that is being made: nobody can see it before it is complete, and if that never happens
/// its AUs are given back like those of a deleted object.
#[derive(Debug)]
pub(crate) struct Unfinished {
    source: ObjectId,
    object: ObjectId,
    onode: Onode,
    /// Places before this one are there.
    next_index: u32,
}

impl Core {
    /// Makes `object` with the bytes and attributes of `source`, which it shares until one of them
    /// is written. It counts as a copy among what its holder may use.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], those of [`Self::create`]; [`StoreError::TooMuch`] if the
    /// attributes alone are more than one entry of the log holds.
    pub fn clone_object(
        &mut self,
        now: Time,
        source: ObjectId,
        object: ObjectId,
        terms: Terms,
    ) -> Result<(), StoreError> {
        let Some(mut clone) = self.begin_clone(now, source, object, terms)? else {
            return Ok(());
        };
        let mut done = Ok(false);
        while let Ok(false) = done {
            done = self.go_on_with_clone(now, &mut clone);
        }
        let done = done.and_then(|_| self.end_clone(now, &clone));
        self.forget_clone();
        done
    }

    /// Begins a clone; none if it is complete at once. No other one may be begun before it is
    /// forgotten.
    pub(crate) fn begin_clone(
        &mut self,
        now: Time,
        source: ObjectId,
        object: ObjectId,
        terms: Terms,
    ) -> Result<Option<Unfinished>, StoreError> {
        let clone = self.transact(now, |t| t.begin_clone(source, object, terms))?;
        self.cloning = clone.as_ref().map(|clone| clone.onode.number);
        Ok(clone)
    }

    /// Shares some more AUs; true if that was all.
    pub(crate) fn go_on_with_clone(
        &mut self,
        now: Time,
        clone: &mut Unfinished,
    ) -> Result<bool, StoreError> {
        let next = self.transact(now, |t| t.clone_some(clone))?;
        clone.next_index = next.unwrap_or(clone.next_index);
        Ok(next.is_none())
    }

    /// Lets a clone be seen that has all AUs.
    pub(crate) fn end_clone(&mut self, now: Time, clone: &Unfinished) -> Result<(), StoreError> {
        self.transact(now, |t| t.end_clone(clone))
    }

    /// The clone that was begun is complete, or never will be: then it is given back.
    pub(crate) fn forget_clone(&mut self) {
        self.cloning = None;
    }

    /// The first object that is deleted and still has AUs, and its holder; not the clone that is
    /// being made.
    pub(crate) fn first_dead(&mut self) -> Result<Option<(u64, u64)>, StoreError> {
        for (key, value) in self.first_of_list(&Key::Dead(0), &Key::Dead(u64::MAX), 2)? {
            if let Key::Dead(number) = key
                && self.cloning != Some(number)
            {
                return Ok(Some((number, decode(&value)?)));
            }
        }
        Ok(None)
    }
}

impl Transaction<'_> {
    /// Writes bytes of one AU of an object.
    pub(super) fn write_place(
        &mut self,
        onode: &Onode,
        index: u32,
        within: u64,
        part: &[u8],
        is_large: bool,
    ) -> Result<(), StoreError> {
        let key = Key::Place(onode.number, index);
        let Some(place) = self.record::<Place>(&key)? else {
            self.use_aus(onode.holder, 1)?;
            let au = self.draw_au(0, Vec::new())?;
            self.put(key, &Place { au });
            return self.write_au(au, within, part, is_large);
        };
        let extent = Extent::new(within, part.len() as u64);
        let users = self.own(place.au)?.users;
        let is_alone = users == 1 || planted(Mistake::SharedInPlace);
        if is_alone && !(is_large && self.is_worth_moving(place.au, extent)?) {
            return self.write_au(place.au, within, part, is_large);
        }
        let au = self.draw_au(0, Vec::new())?;
        self.copy_around(place.au, au, extent, part)?;
        self.put(key, &Place { au });
        self.drop_user(place.au)
    }

    /// Whether writing these bytes to a fresh AU, with what is left of the old one, costs less than
    /// sending them through the log, and there is room.
    fn is_worth_moving(&self, au: u32, extent: Extent) -> Result<bool, StoreError> {
        let total = u64::from(self.core.layout.au_count);
        if self.core.space.free_count() <= total / FREE_PART {
            return Ok(false);
        }
        let (mut live, mut kept) = (0, 0);
        for at in GroupAt::each(au, Extent::new(0, self.core.layout.au_bytes)) {
            let len = written_bytes(self.leaf(&at.key())?.group(at.index()));
            let start = u64::from(at.group) * GROUP_BYTES;
            let bytes = Extent::new(start, len);
            live += bytes.intersection(extent).len;
            kept += len - bytes.intersection(extent).len;
        }
        // What lies behind all live bytes goes into place without a move.
        Ok(live > self.core.deferred_bytes_max() as u64 && live >= 3 * kept)
    }

    /// Gives a shared AU's place one of its own with the same bytes; says which AU it has then.
    pub(super) fn unshare(&mut self, key: Key, au: u32) -> Result<u32, StoreError> {
        if self.own(au)?.users == 1 {
            return Ok(au);
        }
        let fresh = self.draw_au(0, Vec::new())?;
        self.copy_around(au, fresh, Extent::new(0, 0), &[])?;
        self.put(key, &Place { au: fresh });
        self.drop_user(au)?;
        Ok(fresh)
    }

    /// Writes to a fresh AU what another one has, with `part` in place of `extent`.
    fn copy_around(
        &mut self,
        from: u32,
        to: u32,
        extent: Extent,
        part: &[u8],
    ) -> Result<(), StoreError> {
        for span in 0..self.core.layout.au_bytes.div_ceil(SPAN_BYTES) {
            let start = span * SPAN_BYTES;
            let len = SPAN_BYTES.min(self.core.layout.au_bytes - start);
            let span = Extent::new(start, len);
            let new = span.intersection(extent);
            let end = self
                .written_end(from, span)?
                .max(if new.is_empty() { 0 } else { new.end() });
            if end <= start {
                continue;
            }
            let mut bytes = vec![0; (end - start) as usize];
            if new.len < end - start {
                let mut plan = Plan::default();
                let all = Extent::new(start, end - start);
                content::plan(self, from, all, 0, &mut plan)?;
                plan.carry_out(&*self.core.device, &mut bytes)?;
            }
            if !new.is_empty() {
                let source = &part[(new.offset - extent.offset) as usize..][..new.len as usize];
                bytes[(new.offset - start) as usize..][..source.len()].copy_from_slice(source);
            }
            self.write_au(to, start, &bytes, true)?;
        }
        Ok(())
    }

    /// Where the last byte of a span is that was written; the span's start if there is none.
    fn written_end(&self, au: u32, span: Extent) -> Result<u64, StoreError> {
        let mut end = span.offset;
        for at in GroupAt::each(au, span) {
            let leaf = self.leaf(&at.key())?;
            let len = written_bytes(leaf.group(at.index()));
            if len > 0 {
                end = u64::from(at.group) * GROUP_BYTES + len;
            }
        }
        Ok(end)
    }

    /// The record of an AU that belongs to whole objects.
    fn own(&self, au: u32) -> Result<AuRecord, StoreError> {
        let record: Option<AuRecord> = self.record(&Key::Au(au))?;
        let record = record.filter(|record| record.taken.is_empty() && record.users > 0);
        record.ok_or(Damage::Record.into())
    }

    /// One place less names the AU.
    pub(super) fn drop_user(&mut self, au: u32) -> Result<(), StoreError> {
        let mut record = self.own(au)?;
        if record.users == 1 {
            return self.give_au_back(au);
        }
        record.users -= 1;
        self.put(Key::Au(au), &record);
        Ok(())
    }

    /// Begins a clone; none if it is complete at once.
    fn begin_clone(
        &mut self,
        source: ObjectId,
        object: ObjectId,
        terms: Terms,
    ) -> Result<Option<Unfinished>, StoreError> {
        let original = self.onode(source)?;
        if original.home == Home::Lost {
            return Err(Damage::Lost.into());
        }
        self.create(object, terms)?;
        if let Home::Packed(slot) = original.home {
            let size_bytes = original.size_bytes;
            self.allocate(object, Extent::new(0, size_bytes), Present::Kept)?;
            for (offset, bytes) in self.written(slot, size_bytes)? {
                self.write(object, offset, &bytes)?;
            }
        }
        if original.home != Home::Own || original.size_bytes == 0 {
            self.copy_attributes(&original, object)?;
            return Ok(None);
        }
        let onode = self.onode(object)?;
        self.hide(object, &onode)?;
        self.put(Key::Dead(onode.number), &onode.holder);
        let next_index = 0;
        let onode = Onode {
            size_bytes: original.size_bytes,
            ..onode
        };
        Ok(Some(Unfinished {
            source,
            object,
            onode,
            next_index,
        }))
    }

    /// Shares some more AUs; none if that was all, or from where to go on.
    fn clone_some(&mut self, clone: &Unfinished) -> Result<Option<u32>, StoreError> {
        self.serve(Purpose::Growth);
        let original = self.onode(clone.source)?;
        let from = Key::Place(original.number, clone.next_index);
        let to = Key::Place(original.number, u32::MAX);
        let places = self.range(&from, &to, SHARED_MAX)?;
        let mut next = None;
        for (key, value) in &places {
            let Key::Place(_, index) = key else {
                return Err(Damage::Record.into());
            };
            let place: Place = decode(value)?;
            let mut record = self.own(place.au)?;
            let more = u32::from(!planted(Mistake::UsersNotCounted));
            record.users = record.users.checked_add(more).ok_or(Damage::Record)?;
            self.put(Key::Au(place.au), &record);
            self.use_aus(clone.onode.holder, 1)?;
            self.put(Key::Place(clone.onode.number, *index), &place);
            next = Some(index + 1);
        }
        Ok(next.filter(|_| places.len() == SHARED_MAX))
    }

    /// Lets the clone be seen.
    fn end_clone(&mut self, clone: &Unfinished) -> Result<(), StoreError> {
        let object = clone.object;
        self.serve(Purpose::Growth);
        if self.value(&Key::Object(object))?.is_some() {
            return Err(StoreError::Exists(object));
        }
        self.use_records(clone.onode.holder, 1)?;
        self.remove(Key::Dead(clone.onode.number));
        self.put(Key::Object(object), &clone.onode);
        self.put(Key::Member(clone.onode.holder, object), &());
        let original = self.onode(clone.source)?;
        self.copy_attributes(&original, object)
    }
}

/// AUs that one transaction shares; the rest follows in others.
const SHARED_MAX: usize = 64;
/// Parts of the AUs one of which has to be free if live ones are to be moved.
const FREE_PART: u64 = 16;

/// How far a group was written.
fn written_bytes(group: &Group) -> u64 {
    match group {
        Group::Empty | Group::Lost => 0,
        Group::Coarse(sum) => u64::from(sum.len),
        Group::Fine(pieces) => {
            let last = pieces.iter().rposition(|sum| sum.len > 0);
            last.map_or(0, |last| {
                last as u64 * crate::layout::PIECE_BYTES + u64::from(pieces[last].len)
            })
        }
    }
}
