//! The complete check: every record against every other, every byte against its checksum.
//!
//! It trusts nothing that it can count again: which pages and AUs are in use follows from the
//! records alone, and is then held against the maps.

use crate::content::{self, View};
use crate::core::Core;
use crate::key::Key;
use crate::layout::PIECE_BYTES;
use crate::read::Plan;
use crate::record::{AuRecord, Holder, Home, Onode, Place, Slot, decode};
use crate::reserve::is_pool;
use crate::transaction::attribute::ATTRIBUTE_RECORDS;
use crate::{Damage, StoreError};
use base::{Extent, ObjectId};
use std::collections::{BTreeMap, BTreeSet};

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Objects there are.
    pub objects: u64,
    /// Bytes of data that were read and fit their checksums.
    pub verified_bytes: u64,
    /// What is wrong, in words.
    pub findings: Vec<String>,
}

/// Records that are looked at together.
const PAGE_RECORDS: usize = 4096;

impl Core {
    /// Checks everything; with `data`, also reads every byte.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a page of records cannot be read: then what is in it cannot be
    /// checked; the device's.
    pub fn check(&self, data: bool) -> Result<Report, StoreError> {
        let mut check = Check {
            core: self,
            report: Report::default(),
            numbers: BTreeMap::new(),
            users: BTreeMap::new(),
            slots: BTreeMap::new(),
            owners: BTreeMap::new(),
            held: BTreeMap::new(),
        };
        check.pages()?;
        check.each(
            &Key::Object(ObjectId([0; 16])),
            &Key::Attribute(0, Vec::new()),
            Check::object,
        )?;
        check.each(
            &Key::Attribute(0, Vec::new()),
            &Key::Place(0, 0),
            Check::attribute,
        )?;
        check.each(&Key::Dead(0), &Key::Dead(u64::MAX), Check::dead)?;
        check.each(&Key::Place(0, 0), &Key::Au(0), Check::place)?;
        check.each(&Key::Au(0), &Key::Leaf(0, 0), Check::au)?;
        check.each(&Key::Leaf(0, 0), &Key::AuMap(0), Check::leaf)?;
        check.each(&Key::Room(0, 0), &Key::Dead(0), Check::room)?;
        let members = Key::Member(0, ObjectId([0; 16]));
        check.each(&Key::Holder(0), &members, Check::holder)?;
        check.each(&members, &Key::End(0, 0), Check::member)?;
        check.space();
        if data {
            check.data()?;
        }
        Ok(check.report)
    }
}

struct Check<'a> {
    core: &'a Core,
    report: Report,
    /// Objects' numbers, and how long they are; those of deleted ones too.
    numbers: BTreeMap<u64, u64>,
    /// AUs that places name, how often.
    users: BTreeMap<u32, u32>,
    /// Slots in packed AUs.
    slots: BTreeMap<u32, Vec<Slot>>,
    /// Whose an object of that number is.
    owners: BTreeMap<u64, u64>,
    /// AUs and records that holders use.
    held: BTreeMap<u64, (u64, u64)>,
}

impl Check<'_> {
    fn find(&mut self, finding: String) {
        self.report.findings.push(finding);
    }

    fn each(
        &mut self,
        from: &Key,
        to: &Key,
        visit: fn(&mut Self, &Key, &[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut from = from.clone();
        let mut is_first = true;
        loop {
            let records = self.core.range(&from, to, PAGE_RECORDS)?;
            let fresh = records.iter().filter(|(key, _)| is_first || *key != from);
            for (key, value) in fresh {
                if let Err(error) = visit(self, key, value) {
                    self.find(format!("{key:?}: {error}"));
                }
            }
            match records.last() {
                Some((last, _)) if records.len() == PAGE_RECORDS => from = last.clone(),
                _ => return Ok(()),
            }
            is_first = false;
        }
    }

    /// Pages in use are those of the tree and of the map, and nothing else.
    fn pages(&mut self) -> Result<(), StoreError> {
        let pages = &self.core.pages;
        let freed: BTreeSet<u64> = pages.freed().collect();
        let mut found: BTreeSet<u64> = pages.chain().iter().copied().collect();
        let mut twice = Vec::new();
        self.core.tree.visit_pages(&mut |page| {
            if !found.insert(page) {
                twice.push(page);
            }
        })?;
        let said: BTreeSet<u64> = pages.used().filter(|page| !freed.contains(page)).collect();
        for page in twice
            .into_iter()
            .chain(found.symmetric_difference(&said).copied())
        {
            self.find(format!(
                "page {page} is in use twice, or is not what the map says"
            ));
        }
        Ok(())
    }

    fn object(&mut self, key: &Key, value: &[u8]) -> Result<(), StoreError> {
        let onode: Onode = decode(value)?;
        self.report.objects += 1;
        if self
            .numbers
            .insert(onode.number, onode.size_bytes)
            .is_some()
        {
            self.find(format!("{key:?} has the number of another object"));
        }
        if onode.number >= self.core.counters.number {
            self.find(format!("{key:?} has a number that was not given out"));
        }
        self.owners.insert(onode.number, onode.holder);
        self.held.entry(onode.holder).or_default().1 += 1;
        if let Key::Object(object) = key
            && self
                .core
                .value(&Key::Member(onode.holder, *object))?
                .is_none()
        {
            self.find(format!("{key:?} is not known to its holder"));
        }
        if let Home::Packed(slot) = onode.home {
            if onode.size_bytes > u64::from(slot.pieces) * PIECE_BYTES {
                self.find(format!("{key:?} is longer than its slot"));
            }
            self.slots.entry(slot.au).or_default().push(slot);
            self.numbers.insert(onode.number, 0);
        }
        Ok(())
    }

    fn attribute(&mut self, key: &Key, _: &[u8]) -> Result<(), StoreError> {
        if let Key::Attribute(number, _) = key {
            match self.owners.get(number) {
                Some(holder) => self.held.entry(*holder).or_default().1 += ATTRIBUTE_RECORDS as u64,
                None => self.find(format!("{key:?} is of no object")),
            }
        }
        Ok(())
    }

    fn dead(&mut self, key: &Key, value: &[u8]) -> Result<(), StoreError> {
        if let Key::Dead(number) = key {
            if self.numbers.insert(*number, u64::MAX).is_some() {
                self.find(format!("object {number} is deleted and there"));
            }
            self.owners.insert(*number, decode(value)?);
        }
        Ok(())
    }

    fn place(&mut self, key: &Key, value: &[u8]) -> Result<(), StoreError> {
        let (Key::Place(number, index), place) = (key, decode::<Place>(value)?) else {
            return Err(Damage::Record.into());
        };
        let start = u64::from(*index) * self.core.layout.au_bytes;
        if self.numbers.get(number).is_none_or(|size| start >= *size) {
            self.find(format!("{key:?} is of no object, or beyond its end"));
        }
        *self.users.entry(place.au).or_default() += 1;
        if let Some(owner) = self.owners.get(number) {
            self.held.entry(*owner).or_default().0 += 1;
        }
        Ok(())
    }

    fn au(&mut self, key: &Key, value: &[u8]) -> Result<(), StoreError> {
        let (Key::Au(au), record) = (key, decode::<AuRecord>(value)?) else {
            return Err(Damage::Record.into());
        };
        if !self.core.space.is_used(*au) {
            self.find(format!("AU {au} is in use, and free on the map"));
        }
        if record.generation >= self.core.counters.generation {
            self.find(format!("AU {au} has a generation that was not given out"));
        }
        if !record.taken.is_empty() {
            self.held.entry(record.holder).or_default().0 += 1;
        }
        let slots = self.slots.remove(au).unwrap_or_default();
        let places = self.users.remove(au).unwrap_or_default();
        let users = places + slots.len() as u32;
        let is_mixed = record.taken.is_empty() != slots.is_empty();
        if users != record.users || users == 0 || is_mixed {
            self.find(format!(
                "AU {au} has {users} users and says {}",
                record.users
            ));
        }
        let mut bits = record.taken;
        for piece in slots
            .iter()
            .flat_map(|slot| slot.piece..slot.piece + slot.pieces)
        {
            match bits.get_mut(usize::from(piece / 8)) {
                Some(byte) if *byte >> (piece % 8) & 1 == 1 => *byte ^= 1 << (piece % 8),
                _ => self.find(format!(
                    "piece {piece} of AU {au} is not taken, or is twice"
                )),
            }
        }
        if bits.iter().any(|byte| *byte != 0) {
            self.find(format!("AU {au} has pieces that are taken by nobody"));
        }
        Ok(())
    }

    fn leaf(&mut self, key: &Key, _: &[u8]) -> Result<(), StoreError> {
        let Key::Leaf(au, _) = key else {
            return Err(Damage::Record.into());
        };
        self.core.view_leaf(key)?;
        if self.core.value(&Key::Au(*au))?.is_none() {
            self.find(format!("{key:?} is of an AU that nobody has"));
        }
        Ok(())
    }

    fn room(&mut self, key: &Key, _: &[u8]) -> Result<(), StoreError> {
        if let Key::Room(_, au) = key
            && self.core.value(&Key::Au(*au))?.is_none()
        {
            self.find(format!("{key:?} is of an AU that nobody has"));
        }
        Ok(())
    }

    /// A reservation uses no more than it has (S1), and what it is said to use.
    fn holder(&mut self, key: &Key, value: &[u8]) -> Result<(), StoreError> {
        let (Key::Holder(id), holder) = (key, decode::<Holder>(value)?) else {
            return Err(Damage::Record.into());
        };
        let (aus, records) = self.held.remove(id).unwrap_or_default();
        if (aus, records) != (holder.aus_used, holder.records_used) {
            self.find(format!(
                "{key:?} uses {aus} AUs and {records} records: {holder:?}"
            ));
        }
        if !is_pool(*id) && (aus > holder.aus || records > holder.records) {
            self.find(format!("{key:?} uses more than it has: {holder:?}"));
        }
        Ok(())
    }

    fn member(&mut self, key: &Key, _: &[u8]) -> Result<(), StoreError> {
        if let Key::Member(_, object) = key
            && self.core.value(&Key::Object(*object))?.is_none()
        {
            self.find(format!("{key:?} is not there"));
        }
        Ok(())
    }

    /// Every AU is in use by somebody, or free, or in limbo (S3).
    fn space(&mut self) {
        let unknown: Vec<u32> = self
            .users
            .keys()
            .chain(self.slots.keys())
            .copied()
            .collect();
        for holder in self.held.keys().copied().collect::<Vec<_>>() {
            self.find(format!("holder {holder} has space and is not there"));
        }
        for au in unknown {
            self.find(format!("AU {au} is named and has no record"));
        }
        let taken: BTreeSet<u32> = self.core.pages.taken().iter().copied().collect();
        for au in 0..self.core.layout.au_count {
            let has_record = matches!(self.core.value(&Key::Au(au)), Ok(Some(_)));
            let in_use = self.core.space.is_used(au);
            if in_use != (has_record || taken.contains(&au)) || (has_record && taken.contains(&au))
            {
                self.find(format!(
                    "AU {au} is lost: on the map {in_use}, record {has_record}"
                ));
            }
        }
    }

    fn data(&mut self) -> Result<(), StoreError> {
        self.each(&Key::Au(0), &Key::Leaf(0, 0), |check, key, _| {
            let Key::Au(au) = key else {
                return Err(Damage::Record.into());
            };
            let len = check.core.layout.au_bytes;
            let mut plan = Plan::default();
            content::plan(check.core, *au, Extent::new(0, len), 0, &mut plan)?;
            let mut bytes = vec![0; len as usize];
            plan.carry_out(&*check.core.device, &mut bytes)?;
            check.report.verified_bytes += len;
            Ok(())
        })
    }
}
