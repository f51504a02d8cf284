//! Allocation units that tickets have drawn.
//!
//! The space of a reservation is the store's to keep: it has it, counts it, and keeps the count
//! over a crash. What a *part* of a ticket may draw of it is counted here, as objects grow: the
//! units of each new length, those of a smaller object none, because these share one. What a part
//! has drawn it does not get back when objects are deleted, and a server that starts anew
//! begins to count parts anew; the whole is never exceeded.

use base::{ObjectId, TicketId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A ticket, by its lineage, and what it may draw.
pub(super) type Account = (Vec<TicketId>, u64);

#[derive(Debug, Default)]
struct Drawn {
    accounts: BTreeMap<Vec<TicketId>, u64>,
    /// Objects that are being written beyond their end: units up to where, and by how many.
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
}

/// The units of an object of this length.
pub(super) fn units(size_bytes: u64, au_bytes: u64) -> u64 {
    // As the store does it: up to a quarter of a unit it shares one with others.
    if size_bytes <= au_bytes / 4 {
        0
    } else {
        size_bytes.div_ceil(au_bytes)
    }
}

impl Budgets {
    fn lock(&self) -> MutexGuard<'_, Drawn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws what an object of `units_now` needs to have `units_then`, from every account. None if
    /// one of them has not so much left; nothing is drawn then.
    pub(super) fn draw(
        self: &Arc<Self>,
        accounts: &[Account],
        object: ObjectId,
        units_now: u64,
        units_then: u64,
    ) -> Option<Growing> {
        let mut drawn = self.lock();
        let before = drawn.growing.get(&object).map_or(0, |(units, _)| *units);
        let need = units_then.saturating_sub(units_now.max(before));
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
        let (units, users) = drawn.growing.entry(object).or_default();
        *units = (*units).max(units_then);
        *users += 1;
        Some(Growing {
            budgets: self.clone(),
            object,
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

    #[test]
    fn small_objects_share_a_unit() {
        assert_eq!(
            [0, 1, 256, 257, 1024, 1025].map(|size| units(size, 1024)),
            [0, 0, 0, 1, 1, 2]
        );
    }
}
