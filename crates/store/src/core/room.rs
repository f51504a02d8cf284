//! Room for records: every checkpoint finds its pages, and a full store can be emptied.
//!
//! A checkpoint that runs out of pages would be the end of the store, so a transaction is kept only
//! if two things are true afterwards.
//!
//! 1. The pages are *free now* that a checkpoint of all that is not in the tree yet takes at most.
//! 2. When that is done and what it has replaced is free, there is room for *what comes*. Who puts
//!    something into the store leaves room to cut something, who cuts leaves room to delete, who
//!    deletes leaves room to give back the space of what was deleted; that one may have all.
//!
//! If they are not, an AU is taken for records, as long as nobody's data is promised that AU
//! ([`crate::promises`]), or a checkpoint makes what waits small and pages free; and if that does
//! not help either, there is no space. A removal that finds none has others' space given back first
//! (see [`Core::transact`]).
//!
//! AUs that the records have left are given back: by the next checkpoint, and to be used again when
//! both superblocks are without them, because either may be the one that is found.

use super::{Core, Due};
use crate::StoreError;
use crate::space::MAP_AUS;
use crate::transaction::Purpose;
use crate::transaction::object::REMOVAL_LOAD_MAX;
use crate::tree::{Cost, Load};

/// Changed records that are worth a checkpoint before the records' room grows for them.
const RECORDS_BEFORE_CHECKPOINT: usize = 512;
/// Bytes of a part of the map of AUs in a page.
const MAP_RECORD_BYTES: usize = MAP_AUS as usize / 8 + 8;
/// What the removal of one object puts at most: that it is dead, and what is left of its holder and
/// of the AU that it shared.
const DELETE_LOAD_MAX: Load = Load {
    changes: 80,
    puts: 8,
    put_bytes: 2 << 10,
};
/// Checkpoints after which nothing is freed any more that could be.
const CHECKPOINTS_MAX: u32 = 5;
/// Checkpoints after which it is tried again whether records have AUs that they do not need.
const TRY_AGAIN_EPOCHS: u64 = 16;

/// What may be taken now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// AUs that nothing lies in.
    free: u64,
    /// AUs that nobody counts as theirs. An object that shared its AUs leaves more of these and
    /// none of the others.
    unclaimed: u64,
}

impl Room {
    pub(crate) fn has_more_than(self, before: Self) -> bool {
        self.free > before.free || self.unclaimed > before.unclaimed
    }
}

impl Core {
    pub(crate) fn room(&self) -> Room {
        Room {
            free: self.space.free_count(),
            unclaimed: self.promises.spare(),
        }
    }

    /// Sees to it that there is room for so many more changes.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] if that cannot be; [`StoreError::Due`], those of a checkpoint.
    pub(super) fn ensure_record_room(
        &mut self,
        more: Load,
        purpose: Purpose,
    ) -> Result<(), StoreError> {
        let mut checkpoints = 0;
        while !self.has_record_room(more, purpose) {
            if self.frozen.is_some() {
                return Err(StoreError::Due(Due::Checkpoint));
            }
            // A checkpoint makes the next one small again: where AUs are scarce, that comes first.
            let worth = RECORDS_BEFORE_CHECKPOINT.min(self.pages.count() / 4);
            let is_large = self.is_scarce() && self.overlay.records.len() > worth;
            if !is_large && self.spare_aus() > 0 && self.take_au_for_records() {
                continue;
            }
            if checkpoints >= CHECKPOINTS_MAX || self.is_settled() {
                return Err(StoreError::NoSpace { wanted: 1, free: 0 });
            }
            self.checkpoint()?;
            checkpoints += 1;
        }
        Ok(())
    }

    /// Takes what AUs the checkpoint that is about to begin needs; what it costs at most.
    pub(super) fn make_record_room(&mut self) -> Cost {
        // What was looked at before each transaction is still there: the second half is for what
        // was replayed after one of the superblocks was lost.
        while self.pages.free_count() < self.cost(Load::default()).pages
            && self.take_au_for_records()
        {}
        self.cost(Load::default())
    }

    /// Whether data may soon need what records could take.
    fn is_scarce(&self) -> bool {
        self.spare_aus() <= u64::from(self.layout.au_count / 8)
    }

    fn has_record_room(&self, more: Load, purpose: Purpose) -> bool {
        let cost = self.cost(more);
        let (live, free) = (self.pages.live_count(), self.pages.free_count());
        let (under_way, growth, could_be) = match &self.frozen {
            Some(frozen) => {
                let aus = usize::try_from(self.spare_aus() * self.layout.au_pages());
                let could_be = aus.unwrap_or(usize::MAX);
                (frozen.pages_max, frozen.growth_max, could_be)
            }
            None => (0, 0, 0),
        };
        let is_free_now = free.saturating_add(could_be) >= under_way + cost.pages;
        // Each of two superblocks has a map of its own, and the next one gets another. What is cut
        // in two now may have to be written once more, but it is not cut again.
        let live_then = live + growth + cost.growth;
        let then = (self.pages.count().saturating_add(could_be))
            .saturating_sub(live_then + cost.growth + 3 * self.pages.map_pages(live_then));
        is_free_now && then >= self.kept_free(purpose, live + growth)
    }

    /// Pages that have to be free when all is done that is under way.
    fn kept_free(&self, purpose: Purpose, live: usize) -> usize {
        let height = self.tree.root().1 + 1;
        let removal = self.cost_in(REMOVAL_LOAD_MAX, live, height);
        let delete = self.cost_in(DELETE_LOAD_MAX, live, height);
        match purpose {
            Purpose::Growth => removal.pages + removal.growth + delete.growth,
            Purpose::Cut => removal.pages + delete.growth,
            Purpose::Removal => removal.pages,
            Purpose::Reclaim => 0,
        }
    }

    /// What a checkpoint of all that is not in the tree takes at most if it has so much more, its
    /// map and that of an empty one after it included.
    fn cost(&self, more: Load) -> Cost {
        let (_, height) = self.tree.root();
        let load = self.overlay.load().and(more);
        match &self.frozen {
            // The checkpoint under way may add a level or two.
            Some(frozen) => {
                let live = self.pages.live_count() + frozen.growth_max;
                self.cost_in(load, live, height + 2)
            }
            None => self.cost_in(load, self.pages.live_count(), height),
        }
    }

    fn cost_in(&self, load: Load, live: usize, height: u8) -> Cost {
        let map_parts = self.layout.au_count.div_ceil(MAP_AUS) as usize;
        let maps = Load {
            changes: map_parts,
            puts: map_parts,
            put_bytes: map_parts * MAP_RECORD_BYTES,
        };
        let cost = load.and(maps).cost_max(live, height);
        Cost {
            pages: cost.pages + 2 * self.pages.map_pages(live + cost.pages) + 1,
            ..cost
        }
    }

    /// Whether checkpoints would not free anything.
    fn is_settled(&self) -> bool {
        self.overlay.records.is_empty()
            && self.pages.freed().count() <= self.pages.chain().len()
            && self.space.limbo_count() == 0
    }

    /// AUs that records can take: they are free, and not promised to anybody's data.
    fn spare_aus(&self) -> u64 {
        self.space.free_count().min(self.promises.spare())
    }

    fn take_au_for_records(&mut self) -> bool {
        if !self.pages.can_take_au() {
            return false;
        }
        let Some(au) = self.space.draw_for_records() else {
            return false;
        };
        self.pages.take_au(au);
        self.update_capacity();
        true
    }

    /// Gives back the AUs that records have left, but for some pages that the next checkpoints
    /// need.
    pub(super) fn give_record_aus_back(&mut self) {
        let kept = self.kept_of_records();
        for au in self.pages.give_back_empty(kept) {
            self.space.give_back_of_records(au);
        }
        self.room_left = self.room_left.min(self.room_of_records());
        self.update_capacity();
    }

    /// Whether checkpoints may make AUs free: some are in limbo, or records have more than they
    /// need. Pages in use may lie in each of those, so that is tried now and then only.
    pub(crate) fn may_have_limbo(&mut self) -> bool {
        let epoch = self.superblock.epoch;
        let room = self.room_of_records();
        let au_pages = self.layout.au_pages() as usize;
        let is_ample = !self.pages.taken().is_empty() && room >= self.kept_of_records() + au_pages;
        let since = |tried_at: u64| epoch.saturating_sub(tried_at);
        // More pages are free than there were at any time since: other AUs may be empty.
        let is_news = room >= self.room_left + au_pages;
        if is_ample
            && self
                .room_tried_at
                .is_none_or(|at| is_news || since(at) >= TRY_AGAIN_EPOCHS)
        {
            self.room_tried_at = Some(epoch);
            self.room_left = room;
        }
        // Pages are free after two checkpoints, their AUs after two more.
        let is_tried = self.room_tried_at.is_some_and(|at| since(at) < 4);
        self.space.limbo_count() > 0 || (is_ample && is_tried)
    }

    /// Pages of the records that nothing lives in.
    fn room_of_records(&self) -> usize {
        self.pages.count() - self.pages.live_count()
    }

    /// Pages that stay with the records.
    fn kept_of_records(&self) -> usize {
        let cost = self.cost(Load::default());
        let live = self.pages.live_count() + cost.growth;
        let kept = cost.pages + self.kept_free(Purpose::Growth, live);
        if self.is_scarce() { kept } else { 2 * kept }
    }
}
