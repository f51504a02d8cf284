//! Allocation units that tickets have drawn.
//!
//! The space of a reservation is the store's to keep: it has it, counts it, and keeps the count
//! over a crash. What a *part* of a ticket may draw of it is counted here, as objects are made and
//! grow, in blocks: small objects share a unit, and many of them take many units. What a part
//! has drawn it does not get back when objects are deleted, and a server that starts anew
//! begins to count parts anew; the whole is never exceeded.

use base::{ObjectId, TicketId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What small objects are counted in: their records and the pieces that they are stored in.
const BLOCK_BYTES: u64 = 4096;
/// Largest object that shares a unit, if that is no more than a quarter of the unit.
const SHARING_BYTES_MAX: u64 = 64 << 10;
/// Nor of more than so many for each part of the log of this length.
const LOG_PART_SHARING_BYTES: u64 = 960;
const LOG_PART_BYTES: u64 = 64 << 10;
/// Blocks of a unit that objects can share: of a larger one the rest stays empty.
const UNIT_BLOCKS_MAX: u64 = 8192;

/// A ticket, by its lineage, and the blocks that it may draw.
pub(super) type Account = (Vec<TicketId>, u64);

#[derive(Debug, Default)]
struct Drawn {
    accounts: BTreeMap<Vec<TicketId>, u64>,
    /// Objects that are being written beyond their end: blocks up to where, and by how many.
    growing: BTreeMap<ObjectId, (u64, u32)>,
}

/// The accounts of one device.
#[derive(Debug, Default)]
pub(super) struct Budgets(Mutex<Drawn>);

/// An object is being written beyond its end.
#[derive(Debug)]
pub(super) struct Growing {
    budgets: Arc<Budgets>,
    object: ObjectId,
    /// What was drawn for it, from these accounts.
    need: u64,
    accounts: Vec<Vec<TicketId>>,
}

/// What a store's space is counted in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    au_bytes: u64,
    /// Largest object that shares a unit.
    sharing_bytes_max: u64,
}

impl Scale {
    /// Of a store with these sizes.
    pub(super) fn of(au_bytes: u64, log_bytes: u64) -> Self {
        // What shares a unit goes through the log, a quarter of an entry at most. What lies between
        // that and this, which is a little less, is charged as if it had a unit.
        let logged = log_bytes / LOG_PART_BYTES * LOG_PART_SHARING_BYTES;
        Self {
            au_bytes,
            sharing_bytes_max: (au_bytes / 4).min(SHARING_BYTES_MAX).min(logged),
        }
    }

    /// The blocks of a unit: those that objects can share of it.
    pub(super) fn unit_blocks(self) -> u64 {
        self.au_bytes.div_ceil(BLOCK_BYTES).min(UNIT_BLOCKS_MAX)
    }

    /// The blocks of an object of this length: those of its units, or its own if it shares one.
    /// Its own double as it grows, as the store does it; an empty one has one, because it has
    /// records.
    pub(super) fn blocks(self, size_bytes: u64) -> u64 {
        if size_bytes <= self.sharing_bytes_max {
            let most = SHARING_BYTES_MAX.min(self.au_bytes / 4) / BLOCK_BYTES;
            let own = size_bytes.div_ceil(BLOCK_BYTES);
            own.next_power_of_two().min(most.max(1))
        } else {
            let units = size_bytes.div_ceil(self.au_bytes);
            units.saturating_mul(self.unit_blocks())
        }
    }
}

impl Budgets {
    fn lock(&self) -> MutexGuard<'_, Drawn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws what an object of `blocks_now` needs to have `blocks_then`, from every account. None
    /// if one of them has not so much left; nothing is drawn then.
    pub(super) fn draw(
        self: &Arc<Self>,
        accounts: &[Account],
        object: ObjectId,
        blocks_now: u64,
        blocks_then: u64,
    ) -> Option<Growing> {
        let mut drawn = self.lock();
        let before = drawn.growing.get(&object).map_or(0, |(blocks, _)| *blocks);
        let need = blocks_then.saturating_sub(blocks_now.max(before));
        let has = |(lineage, budget): &Account| {
            let used = drawn.accounts.get(lineage).copied().unwrap_or(0);
            used + need <= *budget
        };
        if need > 0 && !accounts.iter().all(has) {
            return None;
        }
        for (lineage, _) in accounts {
            *drawn.accounts.entry(lineage.clone()).or_default() += need;
        }
        let (blocks, users) = drawn.growing.entry(object).or_default();
        *blocks = (*blocks).max(blocks_then);
        *users += 1;
        Some(Growing {
            budgets: self.clone(),
            object,
            need,
            accounts: accounts.iter().map(|(it, _)| it.clone()).collect(),
        })
    }

    /// Forgets the accounts of tickets that are not open any more, if there are very many.
    pub(super) fn tidy(&self, accounts_max: usize, is_open: impl Fn(&[TicketId]) -> bool) {
        let mut drawn = self.lock();
        if drawn.accounts.len() > accounts_max {
            drawn.accounts.retain(|lineage, _| is_open(lineage));
        }
    }
}

impl Growing {
    /// Nothing came of it: what was drawn goes back, unless others write to the object that count
    /// on it.
    pub(super) fn undo(self) {
        let mut drawn = self.budgets.lock();
        if drawn.growing.get(&self.object).map(|(_, users)| *users) == Some(1) {
            for lineage in &self.accounts {
                if let Some(used) = drawn.accounts.get_mut(lineage) {
                    *used = used.saturating_sub(self.need);
                }
            }
        }
    }
}

impl Drop for Growing {
    fn drop(&mut self) {
        let mut drawn = self.budgets.lock();
        if let Some((_, users)) = drawn.growing.get_mut(&self.object) {
            *users -= 1;
            if *users == 0 {
                drawn.growing.remove(&self.object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ObjectId = ObjectId([9; 16]);

    fn account(ids: &[u8], budget: u64) -> Account {
        (ids.iter().map(|id| TicketId([*id; 16])).collect(), budget)
    }

    #[test]
    fn a_part_is_charged_to_what_it_was_split_from() {
        let budgets = Arc::new(Budgets::default());
        let (one, other) = (account(&[1, 2], 6), account(&[1, 3], 6));
        let whole = account(&[1], 10);
        let draw = |part: &Account, object: u8, units| {
            let accounts = [whole.clone(), part.clone()];
            budgets
                .draw(&accounts, ObjectId([object; 16]), 0, units)
                .is_some()
        };
        assert!(draw(&one, 1, 6));
        assert!(!draw(&one, 2, 1), "its own budget is drawn");
        assert!(!draw(&other, 3, 5), "the whole has only four left");
        assert!(draw(&other, 3, 4));
        budgets.tidy(100, |_| false);
        budgets.tidy(0, |lineage| lineage.len() == 1);
        assert!(!draw(&one, 4, 1), "of the whole nothing is left");
    }

    #[test]
    fn writers_of_one_object_pay_each_unit_once() {
        let budgets = Arc::new(Budgets::default());
        let accounts = [account(&[1], 10)];
        let first = budgets.draw(&accounts, OBJECT, 0, 4).unwrap();
        let second = budgets.draw(&accounts, OBJECT, 0, 6).unwrap();
        let third = budgets.draw(&accounts, OBJECT, 0, 5).unwrap();
        drop((first, second, third));
        // Six are drawn; the store says now how long it is.
        let more = budgets.draw(&accounts, OBJECT, 6, 10);
        assert!(more.is_some());
        assert!(budgets.draw(&accounts, ObjectId([1; 16]), 0, 1).is_none());
        assert!(budgets.draw(&accounts, OBJECT, 6, 10).is_some(), "no need");
    }

    const LOG_BYTES: u64 = 192 << 20;

    fn scale(au_bytes: u64) -> Scale {
        Scale::of(au_bytes, LOG_BYTES)
    }

    #[test]
    fn small_objects_share_a_unit_and_large_ones_have_units() {
        let au_bytes = 256 << 10;
        let of = |size| scale(au_bytes).blocks(size);
        assert_eq!([0, 1, 4096, 4097, 65_536].map(of), [1, 1, 1, 2, 16]);
        assert_eq!([8193, 32_769, 36_864].map(of), [4, 16, 16], "they double");
        let unit = scale(au_bytes).unit_blocks();
        assert_eq!(unit, 64);
        assert_eq!([65_537, au_bytes].map(of), [unit; 2]);
        assert_eq!(of(au_bytes + 1), 2 * unit);
        // Of larger units the store shares no more, and of the largest not all.
        assert_eq!(scale(4 << 20).blocks(65_537), 1024);
        let largest = scale(64 << 20);
        assert_eq!(
            (largest.unit_blocks(), largest.blocks(65_537)),
            (8192, 8192)
        );
        // Nor with a small log: as small as the smallest, of two blocks less than all.
        let small = Scale::of(au_bytes, 512 << 10);
        assert_eq!(
            [4096, 7680, 7681, 16_384].map(|it| small.blocks(it)),
            [1, 2, 64, 64]
        );
        assert_eq!(scale(64 << 10).blocks(16_384), 4);
    }

    #[test]
    fn what_nothing_came_of_is_given_back_unless_others_count_on_it() {
        let budgets = Arc::new(Budgets::default());
        let accounts = [account(&[1], 3), account(&[1, 2], 3)];
        let draw = |blocks| budgets.draw(&accounts, OBJECT, 0, blocks);
        for _ in 0..9 {
            draw(3).unwrap().undo();
        }
        let (first, second) = (draw(2).unwrap(), draw(2).unwrap());
        first.undo();
        drop(second);
        assert!(draw(2).is_none(), "the second one has it");
        assert!(draw(1).is_some());
    }

    #[test]
    fn many_small_objects_take_what_they_fill() {
        let budgets = Arc::new(Budgets::default());
        let au_bytes = 256 << 10;
        let quarter = au_bytes / 4;
        let part = account(&[1, 2], 50 * scale(au_bytes).unit_blocks());
        let make = |number: u16| {
            let mut object = OBJECT;
            object.0[..2].copy_from_slice(&number.to_le_bytes());
            let accounts = std::slice::from_ref(&part);
            let made = budgets.draw(accounts, object, 0, scale(au_bytes).blocks(0));
            let then = scale(au_bytes).blocks(quarter);
            made.is_some() && budgets.draw(accounts, object, 1, then).is_some()
        };
        let made = (0..400).filter(|number| make(*number)).count();
        assert_eq!(made, 200, "four to a unit");
        let rate_only = [account(&[3], 0)];
        assert!(
            budgets
                .draw(&rate_only, OBJECT, 0, scale(au_bytes).blocks(0))
                .is_none()
        );
    }
}
