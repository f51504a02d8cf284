//! The derived records made anew from the primary ones, and held against those that are there.

use super::bytes::{Bad, Source, for_each};
use super::{Finding, Kind, Mend};
use crate::bitmap::Bitmap;
use crate::core::Core;
use crate::key::{Key, Value};
use crate::layout::{PIECE_BYTES, SPAN_BYTES};
use crate::leaf::Leaf;
use crate::lost::Range;
use crate::record::{AuRecord, Home, Onode, Place, Slot, decode, encode};
use crate::superblock::{Counters, NUMBER_MAX};
use crate::transaction::attribute::ATTRIBUTE_RECORDS;
use crate::{Damage, StoreError};
use base::{Extent, ObjectId};
use reservation::Moment;
use std::collections::{BTreeMap, BTreeSet};

/// What the derived records should be.
#[derive(Debug, Default)]
pub(crate) struct Derived {
    /// Objects there are.
    pub(crate) objects: u64,
    /// What is wrong with records.
    pub(crate) findings: Vec<Finding>,
    /// What has to be written for them to be right.
    pub(crate) changes: BTreeMap<Key, Option<Value>>,
    /// No lower than any number in use.
    pub(crate) counters: Counters,
    /// AUs that are in use, and free on the map.
    pub(crate) claimed: Vec<u32>,
    /// AUs that nobody has, and that are in use on the map.
    pub(crate) released: Vec<u32>,
    /// Bytes of AUs whose checksums cannot be read.
    pub(crate) bad: BTreeMap<u32, Vec<Bad>>,
}

/// Makes the derived records anew. `gone` are the keys of records that cannot be read.
///
/// # Errors
/// [`StoreError::Damaged`] if a page of records cannot be read, the device's.
pub(crate) fn derive(core: &Core, gone: &[Range]) -> Result<Derived, StoreError> {
    let mut work = Work {
        core,
        gone,
        out: Derived {
            counters: core.counters,
            ..Derived::default()
        },
        known: BTreeMap::new(),
        keeps_orphans: false,
        users: BTreeMap::new(),
        slots: BTreeMap::new(),
        held: BTreeMap::new(),
        lost_spans: BTreeSet::new(),
        aus: BTreeSet::new(),
        rooms: BTreeMap::new(),
    };
    work.objects()?;
    work.members()?;
    work.dead()?;
    work.attributes()?;
    work.places()?;
    work.leaves()?;
    work.aus()?;
    work.rooms()?;
    super::holders::derive(core, &work.held, &mut work.out)?;
    work.lost()?;
    work.space();
    Ok(work.out)
}

/// AUs with bytes of objects.
pub(super) fn aus_in_use(source: &impl Source, au_count: u32) -> Result<Vec<u32>, StoreError> {
    let mut aus = Vec::new();
    for_each(source, &Key::Au(0), &Key::Leaf(0, 0), |key, _| {
        if let Key::Au(au) = key {
            aus.push(*au);
        }
    })?;
    aus.retain(|au| *au < au_count);
    Ok(aus)
}

/// What is known of an object, or of a deleted one, by its number.
struct Known {
    object: Option<ObjectId>,
    /// Places from here on are none of it.
    end: u64,
    holder: u64,
}

struct Work<'a> {
    core: &'a Core,
    gone: &'a [Range],
    out: Derived,
    known: BTreeMap<u64, Known>,
    /// An object's record says what nobody understands: what seems to be nobody's may be its.
    keeps_orphans: bool,
    /// How many places name an AU.
    users: BTreeMap<u32, u32>,
    /// Slots in packed AUs, and whose they are.
    slots: BTreeMap<u32, Vec<(Slot, u64)>>,
    /// AUs and records that holders use.
    held: BTreeMap<u64, (u64, u64)>,
    /// Spans whose checksums are lost.
    lost_spans: BTreeSet<(u32, u16)>,
    /// AUs that have a record, or should have one.
    aus: BTreeSet<u32>,
    /// Free pieces of packed AUs, by holder.
    rooms: BTreeMap<(u64, u32), u16>,
}

impl Derived {
    /// Notes what is wrong.
    pub(super) fn find(&mut self, kind: Kind, mend: Mend, what: String) {
        self.findings.push(Finding::new(kind, mend, what));
    }

    /// Notes what is wrong and what would be right.
    pub(super) fn change(&mut self, kind: Kind, key: Key, value: Option<Value>, what: String) {
        self.find(kind, Mend::Possible, what);
        self.changes.insert(key, value);
    }
}

impl Work<'_> {
    fn find_of(&mut self, object: ObjectId, kind: Kind, what: &str) {
        let finding = Finding::new(kind, Mend::Impossible, what).of(object);
        self.out.findings.push(finding);
    }

    fn is_gone(&self, key: &Key) -> bool {
        self.gone.iter().any(|(from, to)| from <= key && key < to)
    }

    fn objects(&mut self) -> Result<(), StoreError> {
        let mut all = Vec::new();
        let end = Key::Attribute(0, Vec::new());
        for_each(self.core, &Key::MIN, &end, |key, value| {
            if let Key::Object(object) = key {
                all.push((*object, decode::<Onode>(value).ok()));
            }
        })?;
        self.out.objects = all.len() as u64;
        for (object, onode) in all {
            match onode {
                Some(onode) => self.object(object, &onode)?,
                None => {
                    self.keeps_orphans = true;
                    self.find_of(object, Kind::Record, "its record cannot be understood");
                }
            }
        }
        Ok(())
    }

    fn object(&mut self, object: ObjectId, onode: &Onode) -> Result<(), StoreError> {
        let Onode { number, holder, .. } = *onode;
        self.held.entry(holder).or_default().1 += 1;
        let member = Key::Member(holder, object);
        if self.core.value(&member)?.is_none() {
            let what = format!("object {object} is not known to its holder {holder}");
            self.out
                .change(Kind::Derived, member, Some(encode(&())), what);
        }
        if onode.home == Home::Lost {
            self.find_of(object, Kind::Lost, "its record is lost");
            return Ok(());
        }
        if self.known.contains_key(&number) {
            self.keeps_orphans = true;
            self.find_of(object, Kind::Record, "it has the number of another object");
            return Ok(());
        }
        self.count_number(number);
        let end = match onode.home {
            Home::Packed(_) | Home::Lost => 0,
            Home::Own => onode.size_bytes,
        };
        let known = Known {
            object: Some(object),
            end,
            holder,
        };
        self.known.insert(number, known);
        if let Home::Packed(slot) = onode.home {
            self.slot(object, onode, slot);
        } else if onode.check(&self.core.layout).is_err() {
            self.find_of(object, Kind::Record, "it is longer than an object can be");
        }
        Ok(())
    }

    fn slot(&mut self, object: ObjectId, onode: &Onode, slot: Slot) {
        let pieces = self.core.layout.au_bytes / PIECE_BYTES;
        if u64::from(slot.piece) + u64::from(slot.pieces) > pieces
            || slot.au >= self.core.layout.au_count
        {
            self.find_of(object, Kind::Record, "its place is beyond the device");
            return;
        }
        if onode.size_bytes > u64::from(slot.pieces) * PIECE_BYTES {
            self.find_of(object, Kind::Record, "it is longer than its place");
        }
        let slots = self.slots.entry(slot.au).or_default();
        slots.push((slot, onode.holder));
    }

    fn count_number(&mut self, number: u64) {
        let next = &mut self.out.counters.number;
        if number >= NUMBER_MAX {
            let what = format!("number {number} is in use, which is never given out");
            self.out.find(Kind::Record, Mend::Impossible, what);
        } else if number >= *next {
            *next = number + 1;
            let what = format!("number {number} is in use, and would be given out again");
            self.out.find(Kind::Derived, Mend::Possible, what);
        }
    }

    fn members(&mut self) -> Result<(), StoreError> {
        let mut all = Vec::new();
        let from = Key::Member(0, ObjectId([0; 16]));
        for_each(self.core, &from, &Key::End(0, 0), |key, _| {
            if let Key::Member(holder, object) = key {
                all.push((*holder, *object));
            }
        })?;
        for (holder, object) in all {
            let key = Key::Object(object);
            let onode = match self.core.value(&key) {
                Ok(value) => value,
                Err(StoreError::Damaged(Damage::Lost)) => None,
                Err(other) => return Err(other),
            };
            let is_lost = onode.is_none() && (self.is_gone(&key) || self.is_lost(&key));
            let is_its = onode.as_ref().is_some_and(|value| {
                decode::<Onode>(value).is_ok_and(|onode| onode.holder == holder)
            });
            if is_lost && !self.out.changes.contains_key(&key) {
                let lost = Onode {
                    number: 0,
                    size_bytes: 0,
                    holder,
                    end: Moment::FOREVER,
                    renewals: 0,
                    generation: 0,
                    home: Home::Lost,
                };
                self.out.changes.insert(key, Some(encode(&lost)));
                self.out.objects += 1;
                self.held.entry(holder).or_default().1 += 1;
                self.find_of(object, Kind::Lost, "its record is lost");
            } else if !is_its && !self.keeps_orphans {
                let what = format!("holder {holder} has object {object} on its list, wrongly");
                let key = Key::Member(holder, object);
                self.out.change(Kind::Derived, key, None, what);
            }
        }
        Ok(())
    }

    fn is_lost(&self, key: &Key) -> bool {
        self.core.lost.check(key).is_err()
    }

    fn dead(&mut self) -> Result<(), StoreError> {
        let mut all = Vec::new();
        for_each(self.core, &Key::Dead(0), &Key::Holder(0), |key, value| {
            if let Key::Dead(number) = key {
                all.push((*number, decode::<u64>(value).ok()));
            }
        })?;
        for (number, holder) in all {
            if self.known.contains_key(&number) {
                let what = format!("object number {number} is there and among the deleted ones");
                self.out.change(Kind::Record, Key::Dead(number), None, what);
                continue;
            }
            self.count_number(number);
            let Some(holder) = holder else {
                self.keeps_orphans = true;
                let what = format!("the record of deleted object {number} cannot be understood");
                self.out.find(Kind::Record, Mend::Impossible, what);
                continue;
            };
            let end = u64::MAX;
            let object = None;
            self.known.insert(
                number,
                Known {
                    object,
                    end,
                    holder,
                },
            );
        }
        Ok(())
    }

    fn attributes(&mut self) -> Result<(), StoreError> {
        let (mut of, mut orphans) = (Vec::new(), Vec::new());
        let from = Key::Attribute(0, Vec::new());
        for_each(self.core, &from, &Key::Place(0, 0), |key, _| {
            if let Key::Attribute(number, _) = key {
                match self.known.get(number) {
                    Some(known) => of.push(known.holder),
                    None => orphans.push(key.clone()),
                }
            }
        })?;
        for holder in of {
            self.held.entry(holder).or_default().1 += ATTRIBUTE_RECORDS as u64;
        }
        for key in orphans {
            let what = format!("an attribute of no object: {key:?}");
            self.orphan(key, what);
        }
        Ok(())
    }

    fn orphan(&mut self, key: Key, what: String) {
        if self.keeps_orphans {
            self.out.find(Kind::Orphan, Mend::Impossible, what);
        } else {
            self.out.change(Kind::Orphan, key, None, what);
        }
    }

    fn places(&mut self) -> Result<(), StoreError> {
        let mut all = Vec::new();
        for_each(self.core, &Key::Place(0, 0), &Key::Au(0), |key, value| {
            if let Key::Place(number, index) = key {
                all.push((*number, *index, decode::<Place>(value).ok()));
            }
        })?;
        let au_bytes = self.core.layout.au_bytes;
        for (number, index, place) in all {
            let bytes = Extent::new(u64::from(index) * au_bytes, au_bytes);
            let known = self.known.get(&number);
            let Some(known) = known.filter(|known| bytes.offset < known.end) else {
                let what = format!("place {index} of object number {number} is beyond its end");
                self.orphan(Key::Place(number, index), what);
                continue;
            };
            self.held.entry(known.holder).or_default().0 += 1;
            let object = known.object;
            let is_there = |au: &u32| *au < self.core.layout.au_count;
            match place.map(|place| place.au).filter(is_there) {
                Some(au) => *self.users.entry(au).or_default() += 1,
                None => {
                    let what = "the record of where it is cannot be understood";
                    let finding = Finding::new(Kind::Record, Mend::Impossible, what).at(bytes);
                    self.out.findings.push(match object {
                        Some(object) => finding.of(object),
                        None => finding,
                    });
                }
            }
        }
        Ok(())
    }

    fn leaves(&mut self) -> Result<(), StoreError> {
        let spans = self.core.layout.au_bytes.div_ceil(SPAN_BYTES);
        let (mut orphans, mut bad) = (Vec::new(), Vec::new());
        for_each(self.core, &Key::Leaf(0, 0), &Key::AuMap(0), |key, value| {
            let Key::Leaf(au, span) = *key else {
                return;
            };
            let is_used = self.users.contains_key(&au) || self.slots.contains_key(&au);
            if !is_used || u64::from(span) >= spans {
                orphans.push(key.clone());
            } else if let Err(StoreError::Damaged(damage)) =
                decode::<Leaf>(value).and_then(|leaf| leaf.check())
            {
                bad.push((au, span, damage));
            }
        })?;
        for key in orphans {
            let what = format!("checksums of bytes that nobody has: {key:?}");
            self.orphan(key, what);
        }
        for (au, span) in self.lost_leaves(spans as u16)? {
            self.out
                .changes
                .insert(Key::Leaf(au, span), Some(encode(&Leaf::lost())));
            bad.push((au, span, Damage::Lost));
        }
        let au_bytes = self.core.layout.au_bytes;
        for (au, span, damage) in bad {
            if damage == Damage::Lost {
                self.lost_spans.insert((au, span));
            }
            let start = u64::from(span) * SPAN_BYTES;
            let extent = Extent::between(start, au_bytes.min(start + SPAN_BYTES));
            self.out
                .bad
                .entry(au)
                .or_default()
                .push(Bad { extent, damage });
        }
        Ok(())
    }

    /// Spans of AUs in use that may have had checksums, and have none that can be read.
    fn lost_leaves(&self, spans: u16) -> Result<Vec<(u32, u16)>, StoreError> {
        let mut lost = Vec::new();
        if self.gone.is_empty() {
            return Ok(lost);
        }
        for au in self.users.keys().chain(self.slots.keys()) {
            for span in 0..spans {
                let key = Key::Leaf(*au, span);
                if self.is_gone(&key) && self.core.value(&key)?.is_none() {
                    lost.push((*au, span));
                }
            }
        }
        Ok(lost)
    }

    fn aus(&mut self) -> Result<(), StoreError> {
        let mut there = BTreeMap::new();
        for_each(self.core, &Key::Au(0), &Key::Leaf(0, 0), |key, value| {
            if let Key::Au(au) = key {
                there.insert(*au, decode::<AuRecord>(value).ok());
            }
        })?;
        let in_use = self.users.keys().chain(self.slots.keys());
        let all: BTreeSet<u32> = in_use.chain(there.keys()).copied().collect();
        for au in all {
            let found = there.get(&au).cloned().flatten();
            self.au(au, found.as_ref(), there.contains_key(&au));
        }
        Ok(())
    }

    fn au(&mut self, au: u32, found: Option<&AuRecord>, is_there: bool) {
        let places = self.users.get(&au).copied().unwrap_or_default();
        let slots = self.slots.get(&au).cloned().unwrap_or_default();
        if let Some(found) = found
            && found.generation >= self.out.counters.generation
            && found.generation < NUMBER_MAX
        {
            self.out.counters.generation = found.generation + 1;
            let what = format!("AU {au} has a generation that would be given out again");
            self.out.find(Kind::Derived, Mend::Possible, what);
        }
        if places == 0 && slots.is_empty() {
            self.orphan(Key::Au(au), format!("AU {au} is nobody's"));
            if self.keeps_orphans {
                self.aus.insert(au);
            }
            return;
        }
        self.aus.insert(au);
        let Some((taken, holder)) = self.taken(au, places, &slots, found) else {
            return;
        };
        let users = places + slots.len() as u32;
        let is_right = found.is_some_and(|found| {
            (found.users, found.holder) == (users, holder) && found.taken == taken
        });
        if is_right {
            return;
        }
        let generation = found.map_or(self.out.counters.generation, |found| found.generation);
        if found.is_none() {
            let next = self.out.counters.generation.saturating_add(1);
            self.out.counters.generation = next.min(NUMBER_MAX);
        }
        let says = match (found, is_there) {
            (Some(found), _) => format!("says {}", found.users),
            (None, true) => "its record cannot be understood".to_owned(),
            (None, false) => "has no record".to_owned(),
        };
        let right = AuRecord {
            generation,
            holder,
            users,
            taken,
        };
        let what = format!("AU {au} has {users} users and {says}");
        self.out
            .change(Kind::Derived, Key::Au(au), Some(encode(&right)), what);
    }

    /// Which pieces of a packed AU are taken and whose it is; none if its users contradict each
    /// other.
    fn taken(
        &mut self,
        au: u32,
        places: u32,
        slots: &[(Slot, u64)],
        found: Option<&AuRecord>,
    ) -> Option<(Vec<u8>, u64)> {
        let Some((_, holder)) = slots.first() else {
            return Some((Vec::new(), 0));
        };
        let mut taken = Bitmap::new((self.core.layout.au_bytes / PIECE_BYTES) as usize);
        let mut is_clear = places == 0 && slots.iter().all(|(_, other)| other == holder);
        for piece in slots
            .iter()
            .flat_map(|(slot, _)| usize::from(slot.piece)..usize::from(slot.piece + slot.pieces))
        {
            is_clear &= taken.set(piece, true);
        }
        if !is_clear {
            let what = format!("AU {au} is claimed by objects that cannot share it");
            self.out.find(Kind::Record, Mend::Impossible, what);
            return None;
        }
        self.held.entry(*holder).or_default().0 += 1;
        let spans = (au, 0)..=(au, u16::MAX);
        if self.lost_spans.range(spans).next().is_some() {
            // Nobody gets the rest of it before it is given back as a whole.
            let said = found.map_or(&[][..], |found| &found.taken);
            if said.is_empty() || !taken.set_bytes(0, said) {
                for piece in 0..taken.len() {
                    taken.set(piece, true);
                }
            }
        } else if taken.clear_count() > 0 {
            let room = u16::try_from(taken.clear_count()).expect("at most 16,384 pieces");
            self.rooms.insert((*holder, au), room);
        }
        Some((taken.bytes(0, taken.len()), *holder))
    }

    fn rooms(&mut self) -> Result<(), StoreError> {
        let mut there = BTreeMap::new();
        for_each(self.core, &Key::Room(0, 0), &Key::Dead(0), |key, value| {
            if let Key::Room(holder, au) = key {
                there.insert((*holder, *au), decode::<u16>(value).ok());
            }
        })?;
        let rooms = std::mem::take(&mut self.rooms);
        let all: BTreeSet<(u64, u32)> = rooms.keys().chain(there.keys()).copied().collect();
        for (holder, au) in all {
            let room = rooms.get(&(holder, au)).copied();
            if there.get(&(holder, au)).copied() != room.map(Some) {
                let key = Key::Room(holder, au);
                let what = format!("the room in AU {au} is {room:?} pieces, and another on record");
                let value = room.map(|room| encode(&room));
                self.out.change(Kind::Derived, key, value, what);
            }
        }
        Ok(())
    }

    /// What is lost, as far as somebody is concerned.
    fn lost(&mut self) -> Result<(), StoreError> {
        let mut findings = Vec::new();
        for range in self.core.lost.ranges() {
            let (what, numbers) = match range {
                (Key::Place(first, _), Key::Place(last, _)) => {
                    ("where these bytes are is lost", *first..=*last)
                }
                (Key::Attribute(first, _), Key::Attribute(last, _)) => {
                    ("attributes are lost", *first..=*last)
                }
                (from, _) => {
                    let from = match from {
                        Key::Object(first) => format!(", from {first} on"),
                        _ => String::new(),
                    };
                    let what = format!("objects are lost, and nobody knows which{from}");
                    findings.push(Finding::new(Kind::Lost, Mend::Impossible, what));
                    continue;
                }
            };
            for (number, known) in self.known.range(numbers) {
                let Some(object) = known.object else {
                    continue;
                };
                let finding = Finding::new(Kind::Lost, Mend::Impossible, what).of(object);
                if matches!(range.0, Key::Attribute(..)) {
                    findings.push(finding);
                    continue;
                }
                for bytes in self.lost_bytes(range, *number, known.end)? {
                    findings.push(finding.clone().at(bytes));
                }
            }
        }
        self.out.findings.extend(findings);
        Ok(())
    }

    /// Bytes of an object of which nobody knows where they are: those for which there is no place
    /// where places are lost.
    fn lost_bytes(
        &self,
        (from, to): &Range,
        number: u64,
        end: u64,
    ) -> Result<Vec<Extent>, StoreError> {
        let au_bytes = self.core.layout.au_bytes;
        let first = Key::Place(number, 0).max(from.clone());
        let last = Key::Place(number, u32::MAX).min(to.clone());
        let index = |key: &Key| match key {
            Key::Place(_, index) => u64::from(*index),
            _ => 0,
        };
        let mut bytes = Vec::new();
        let mut add = |from: u64, to: u64| {
            let part = Extent::between(from * au_bytes, end.min(to.saturating_mul(au_bytes)));
            bytes.extend((!part.is_empty()).then_some(part));
        };
        let mut next = index(&first);
        for_each(self.core, &first, &last, |key, _| {
            add(next, index(key));
            next = index(key) + 1;
        })?;
        add(next, index(&last));
        Ok(bytes)
    }

    /// Every AU is in use by somebody, or free, or in limbo (S3).
    fn space(&mut self) {
        let taken: BTreeSet<u32> = self.core.pages.taken().iter().copied().collect();
        for au in 0..self.core.layout.au_count {
            let is_object = self.aus.contains(&au);
            let is_record = taken.contains(&au);
            if is_object && is_record {
                let what = format!("AU {au} has bytes of objects and pages of records");
                self.out.find(Kind::Record, Mend::Impossible, what);
            }
            match (self.core.space.is_used(au), is_object || is_record) {
                (true, false) => self.out.released.push(au),
                (false, true) => self.out.claimed.push(au),
                _ => {}
            }
        }
        // An orphan was said to be one.
        let is_orphan = |au: &u32| matches!(self.out.changes.get(&Key::Au(*au)), Some(None));
        let released = self.out.released.iter().filter(|au| !is_orphan(au));
        let lost = runs(released.copied());
        let free = runs(self.out.claimed.iter().copied());
        for (first, last) in lost {
            let what = format!("AUs {first} to {last} are lost: in use on the map, and nobody's");
            self.out.find(Kind::Derived, Mend::Possible, what);
        }
        for (first, last) in free {
            let what = format!("AUs {first} to {last} are in use, and free on the map");
            self.out.find(Kind::Derived, Mend::Possible, what);
        }
    }
}

/// The first and the last of each run of numbers side by side.
fn runs(numbers: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    runs
}
