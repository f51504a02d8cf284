//! A transaction: some changes that happen together or not at all.
//!
//! What it changes is a layer of its own over the store's until it ends. It reads through that
//! layer. AUs that it draws are free again if it fails; those that it gives back stay until it ends
//! well. Data that it wrote in place before it failed lies in AUs, or parts of them, that are
//! nobody's.

pub(crate) mod allocate;
pub(crate) mod attribute;
mod content;
pub(crate) mod copy;
pub(crate) mod holder;
pub(crate) mod object;
mod packed;

use crate::core::{Core, Layer};
use crate::key::{Key, Value};
use crate::leaf::Leaf;
use crate::log::entry::PieceAt;
use crate::record::{self, AuRecord};
use crate::reserve::{How, Payer};
use crate::superblock::Counters;
use crate::{Damage, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Changes that are about to happen together.
pub struct Transaction<'a> {
    core: &'a mut Core,
    staged: Staged,
    payer: Option<Payer>,
    generation: Option<u64>,
}

/// What a transaction has changed.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    pub(crate) layer: Layer,
    pub(crate) given_back: BTreeSet<u32>,
    /// AUs some of whose bytes are not live any more.
    pub(crate) cut: BTreeSet<u32>,
    /// Data was written in place.
    pub(crate) is_direct: bool,
    pub(crate) counters: Counters,
    /// Pools whose use has changed, and reservations that have given something away.
    pub(crate) turned: BTreeSet<u64>,
    purpose: Purpose,
}

/// What a transaction is for, as far as the room for records is concerned: the later ones find
/// room where the earlier ones find none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    /// It puts something into the store.
    Growth,
    /// It cuts something that stays.
    Cut,
    /// It removes something.
    Removal,
    /// It gives back the space of what was removed.
    #[default]
    Reclaim,
}

impl Staged {
    /// What it is for.
    pub(crate) fn purpose(&self) -> Purpose {
        self.purpose
    }
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(core: &'a mut Core) -> Self {
        let staged = Staged {
            counters: core.counters,
            ..Staged::default()
        };
        Self {
            core,
            staged,
            payer: None,
            generation: None,
        }
    }

    /// Whatever it takes from now on for objects without a reservation is paid by this one.
    pub fn pay(&mut self, payer: Option<Payer>) {
        self.payer = payer;
    }

    /// Whatever it changes of objects from now on is changed so.
    pub fn change_so(&mut self, how: How) {
        self.payer = how.payer;
        self.generation = how.generation;
    }

    /// It is for this, too.
    fn serve(&mut self, purpose: Purpose) {
        self.staged.purpose = self.staged.purpose.min(purpose);
    }

    pub(crate) fn finish(self) -> Staged {
        self.staged
    }

    /// A record's contents as they are now.
    fn value(&self, key: &Key) -> Result<Option<Value>, StoreError> {
        match self.staged.layer.records.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.core.value(key),
        }
    }

    /// A record as it is now.
    fn record<T: DeserializeOwned>(&self, key: &Key) -> Result<Option<T>, StoreError> {
        self.value(key)?
            .map(|value| record::decode(&value))
            .transpose()
    }

    /// The records from `from` up to, not including, `to`.
    fn range(
        &self,
        from: &Key,
        to: &Key,
        count_max: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError> {
        let below = self
            .core
            .range(from, to, self.count_below(from, to, count_max))?;
        Ok(self.merged(below, from, to, count_max))
    }

    /// The same of what is left where records were lost: for what is given back anyway.
    fn range_left(
        &self,
        from: &Key,
        to: &Key,
        count_max: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError> {
        let count = self.count_below(from, to, count_max);
        let below = self.core.range_left(from, to, count)?;
        Ok(self.merged(below, from, to, count_max))
    }

    /// How many records of the core may be among the first `count_max`.
    fn count_below(&self, from: &Key, to: &Key, count_max: usize) -> usize {
        let over = self.staged.layer.records.range(from..to).count();
        count_max.saturating_add(over)
    }

    /// The core's records under those of this transaction.
    fn merged(
        &self,
        below: Vec<(Key, Value)>,
        from: &Key,
        to: &Key,
        count_max: usize,
    ) -> Vec<(Key, Value)> {
        let mut merged: BTreeMap<Key, Value> = below.into_iter().collect();
        for (key, value) in self.staged.layer.records.range(from..to) {
            match value {
                Some(value) => merged.insert(key.clone(), value.clone()),
                None => merged.remove(key),
            };
        }
        merged.into_iter().take(count_max).collect()
    }

    fn put<T: Serialize>(&mut self, key: Key, record: &T) {
        self.staged.layer.put(key, Some(record::encode(record)));
    }

    fn remove(&mut self, key: Key) {
        self.staged.layer.put(key, None);
    }

    fn piece(&self, at: PieceAt) -> Option<&Arc<[u8]>> {
        let staged = self.staged.layer.pieces.get(&at);
        staged.or_else(|| self.core.piece(at))
    }

    /// Draws an AU for an object, or for several small ones of a holder if `taken` has bits for its
    /// pieces. Who pays for it is the caller's business.
    fn draw_au(&mut self, holder: u64, taken: Vec<u8>) -> Result<u32, StoreError> {
        let none = StoreError::NoSpace { wanted: 1, free: 0 };
        let au = self.core.space.draw().ok_or(none)?;
        let record = AuRecord {
            generation: self.staged.counters.generation,
            holder,
            users: u32::from(taken.is_empty()),
            taken,
        };
        self.staged.counters.generation += 1;
        self.put(Key::Au(au), &record);
        Ok(au)
    }

    /// Gives an AU back, with its checksums.
    fn give_au_back(&mut self, au: u32) -> Result<(), StoreError> {
        // Records that contradict each other are no reason to give it back twice.
        if !self.core.space.is_used(au) {
            return Err(Damage::Record.into());
        }
        let leaves = self.range_left(&Key::Leaf(au, 0), &Key::Leaf(au, u16::MAX), usize::MAX)?;
        for (key, _) in leaves {
            self.remove(key);
        }
        self.remove(Key::Au(au));
        self.staged.given_back.insert(au);
        Ok(())
    }

    fn leaf(&self, key: &Key) -> Result<Leaf, StoreError> {
        let leaf: Leaf = self.record(key)?.unwrap_or_default();
        leaf.check()?;
        Ok(leaf)
    }

    fn put_leaf(&mut self, key: Key, leaf: &Leaf) {
        if leaf.is_empty() {
            self.remove(key);
        } else {
            self.put(key, leaf);
        }
    }
}
