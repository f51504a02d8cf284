//! Which allocation units are free.
//!
//! An AU that is given back goes to *limbo*: it becomes free when a superblock is durable whose
//! records do not have it (EBOFS did the same). So the bytes of a deleted object stay where they
//! are until nothing that a crash could bring back needs them.
//!
//! An AU that the records give back has no mark in the log. Its superblock, the first one whose map
//! of pages is without it, could be lost; so it is free when the one after that is durable, too.
//!
//! The map in memory has a bit for each AU. A checkpoint writes the parts that changed as records;
//! what came after it is in the log, as the records of the AUs themselves.

use crate::bitmap::Bitmap;
use crate::key::{Key, Value};
use crate::planted::{Mistake, planted};
use crate::{Damage, StoreError};
use std::collections::BTreeSet;

/// AUs whose bits are one record.
pub(crate) const MAP_AUS: u32 = 4096;

/// Which AUs are free.
#[derive(Debug)]
pub(crate) struct Space {
    used: Bitmap,
    /// Given back since the last superblock; their bits are still set.
    limbo: BTreeSet<u32>,
    /// Those of them that the checkpoint under way knows of.
    frozen: BTreeSet<u32>,
    /// Given back by records with the checkpoint under way.
    leaving: BTreeSet<u32>,
    /// Given back by records with the one before: the older superblock has them.
    left: BTreeSet<u32>,
    /// Parts of the map that the records do not have as they are.
    changed: BTreeSet<u32>,
    /// Drawn by a transaction that has not ended; no checkpoint knows of them.
    staged: BTreeSet<u32>,
    cursor: usize,
}

impl Space {
    /// `au_count` free AUs.
    pub(crate) fn new(au_count: u32) -> Self {
        Self {
            used: Bitmap::new(au_count as usize),
            limbo: BTreeSet::new(),
            frozen: BTreeSet::new(),
            leaving: BTreeSet::new(),
            left: BTreeSet::new(),
            changed: BTreeSet::new(),
            staged: BTreeSet::new(),
            cursor: 0,
        }
    }

    /// Adds AUs that are free.
    pub(crate) fn grow(&mut self, more: u32) {
        self.used.grow(more as usize);
    }

    /// AUs that can be drawn now.
    pub(crate) fn free_count(&self) -> u64 {
        self.used.clear_count() as u64
    }

    /// AUs that are free after the next superblock, or the one after that.
    pub(crate) fn limbo_count(&self) -> u64 {
        let sets = [&self.limbo, &self.frozen, &self.leaving, &self.left];
        sets.map(BTreeSet::len).iter().sum::<usize>() as u64
    }

    /// Whether some would be free after the next superblock.
    pub(crate) fn has_limbo(&self) -> bool {
        !self.limbo.is_empty()
    }

    /// Whether an AU is in use: neither free nor in limbo.
    pub(crate) fn is_used(&self, au: u32) -> bool {
        (au as usize) < self.used.len() && self.used.get(au as usize) && !self.is_limbo(au)
    }

    /// Whether nobody has an AU and nobody may need what is in it.
    pub(crate) fn is_free(&self, au: u32) -> bool {
        !self.used.get(au as usize)
    }

    fn is_limbo(&self, au: u32) -> bool {
        let sets = [&self.limbo, &self.frozen, &self.leaving, &self.left];
        sets.iter().any(|set| set.contains(&au))
    }

    /// Draws a free AU for a transaction, the next one on the device if it can.
    pub(crate) fn draw(&mut self) -> Option<u32> {
        let au = self.draw_for_records()?;
        self.staged.insert(au);
        Some(au)
    }

    /// Draws a free AU that the next checkpoint will have for itself.
    pub(crate) fn draw_for_records(&mut self) -> Option<u32> {
        let at = self.used.next_clear(self.cursor)?;
        self.cursor = at + 1;
        self.set(at, true);
        Some(u32::try_from(at).expect("AUs are counted in 32 bits"))
    }

    /// The transaction has ended: what it drew is its, or is free again as if nothing had been.
    pub(crate) fn settle(&mut self, is_kept: bool) {
        for au in std::mem::take(&mut self.staged) {
            if !is_kept {
                self.cursor = self.cursor.min(au as usize);
            }
            self.set(au as usize, is_kept || planted(Mistake::SpaceLost));
        }
    }

    /// Gives an AU back.
    pub(crate) fn give_back(&mut self, au: u32) {
        self.changed.insert(au / MAP_AUS);
        let new = !self.frozen.contains(&au) && self.limbo.insert(au);
        assert!(new && self.used.get(au as usize), "AU {au} was in use");
        if planted(Mistake::SpaceFreeAtOnce) {
            self.limbo.remove(&au);
            self.set(au as usize, false);
        }
    }

    /// Takes back an AU from the records; the checkpoint that is about to be frozen is the first
    /// one without it.
    pub(crate) fn give_back_of_records(&mut self, au: u32) {
        self.changed.insert(au / MAP_AUS);
        assert!(self.is_used(au), "AU {au} was the records'");
        if planted(Mistake::RecordAusFreeAtOnce) {
            self.set(au as usize, false);
        } else if planted(Mistake::RecordAusFreeTooEarly) {
            self.left.insert(au);
        } else {
            self.leaving.insert(au);
        }
    }

    /// What an entry of the log says of an AU.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if there is no such AU.
    pub(crate) fn replay(&mut self, au: u32, in_use: bool) -> Result<(), StoreError> {
        if au as usize >= self.used.len() {
            return Err(Damage::Record.into());
        }
        if in_use {
            self.limbo.remove(&au);
            self.set(au as usize, true);
        } else if self.used.get(au as usize) {
            self.changed.insert(au / MAP_AUS);
            self.limbo.insert(au);
        }
        Ok(())
    }

    /// Takes what is in use and was free, and gives back what is nobody's; then the whole map is
    /// written anew.
    pub(crate) fn mend(&mut self, claimed: &[u32], released: &[u32]) {
        for au in claimed {
            self.limbo.remove(au);
            self.set(*au as usize, true);
        }
        for au in released {
            self.give_back(*au);
        }
        self.changed
            .extend(0..(self.used.len() as u32).div_ceil(MAP_AUS));
    }

    /// The parts of the map that changed, as they are once the superblock is durable that is about
    /// to be made. What is given back from now on is in limbo until the one after it.
    pub(crate) fn freeze(&mut self) -> Vec<(Key, Value)> {
        assert!(self.frozen.is_empty(), "one checkpoint after the other");
        self.frozen = std::mem::take(&mut self.limbo);
        let mut kept = self.used.clone();
        let free_then = [&self.frozen, &self.staged, &self.leaving, &self.left];
        for au in free_then.into_iter().flatten() {
            kept.set(*au as usize, false);
        }
        if planted(Mistake::SpaceNotWritten) {
            return Vec::new();
        }
        let part = |part: u32| {
            let from = (part * MAP_AUS) as usize;
            let to = (from + MAP_AUS as usize).min(kept.len());
            (Key::AuMap(part), kept.bytes(from, to).into())
        };
        std::mem::take(&mut self.changed)
            .into_iter()
            .map(part)
            .collect()
    }

    /// Reads a part of the map.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it has AUs that are not there.
    pub(crate) fn load(&mut self, part: u32, bytes: &[u8]) -> Result<(), StoreError> {
        let from = part as usize * MAP_AUS as usize;
        let fits = bytes.len() <= MAP_AUS as usize / 8 && self.used.set_bytes(from, bytes);
        fits.then_some(()).ok_or(Damage::Record.into())
    }

    /// The superblock is durable for which the map was frozen.
    pub(crate) fn superblock_is_durable(&mut self) {
        let free = [&mut self.frozen, &mut self.left].map(std::mem::take);
        for au in free.into_iter().flatten() {
            self.used.set(au as usize, false);
        }
        self.left = std::mem::take(&mut self.leaving);
    }

    fn set(&mut self, at: usize, to: bool) {
        self.changed.insert(at as u32 / MAP_AUS);
        self.used.set(at, to);
    }
}
