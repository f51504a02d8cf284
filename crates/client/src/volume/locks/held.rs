//! What owners hold, and whose turn it is: a structure without I/O.

use crate::cache::NodeId;
use crate::volume::Volume;
use base::{Extent, ExtentSet, LockOwner, Principal};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::sync::Notify;
use wire::message::{LockKind, LockMode, LockRange, Target};

/// Somebody who can hold locks on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    pub(super) node: NodeId,
    pub(super) kind: LockKind,
    pub(super) owner: LockOwner,
}

impl Holder {
    pub(super) fn of(node: NodeId, lock: &LockRange) -> Self {
        let (kind, owner) = (lock.kind, lock.owner);
        Self { node, kind, owner }
    }

    /// Everything that it may hold, let go.
    pub(super) fn nothing(self) -> LockRange {
        LockRange {
            kind: self.kind,
            mode: LockMode::Unlock,
            extent: Extent::new(0, u64::MAX),
            owner: self.owner,
            pid: 0,
        }
    }
}

/// What one holds: non-overlapping ranges.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) who: Principal,
    /// The file as the server knows it, also when nobody here does any more.
    pub(super) target: Target,
    pub(super) ranges: Vec<LockRange>,
}

/// Locks held at the server.
#[derive(Debug, Default)]
pub(in crate::volume) struct HeldLocks {
    held: HashMap<Holder, Held>,
    /// Who has something under way at the server, see [`Turn`].
    busy: HashSet<Holder>,
    freed: Arc<Notify>,
    /// How often the server may have forgotten what is held.
    losses: u64,
}

impl HeldLocks {
    /// A lock was taken, changed or released.
    pub(super) fn apply(&mut self, node: NodeId, who: &Principal, target: &Target, to: LockRange) {
        let holder = Holder::of(node, &to);
        let held = self.held.entry(holder).or_insert_with(|| Held {
            who: who.clone(),
            target: target.clone(),
            ranges: Vec::new(),
        });
        carve(&mut held.ranges, to.extent);
        if to.mode != LockMode::Unlock {
            held.ranges.push(to);
        }
        if held.ranges.is_empty() {
            self.held.remove(&holder);
        }
    }

    /// A lock is gone, or about to be.
    pub(super) fn release(&mut self, holder: Holder, extent: Extent) {
        if let Some(held) = self.held.get_mut(&holder) {
            carve(&mut held.ranges, extent);
            if held.ranges.is_empty() {
                self.held.remove(&holder);
            }
        }
    }

    /// What a holder has of an extent, and where in it there is nothing.
    pub(super) fn within(&self, holder: Holder, extent: Extent) -> (Vec<LockRange>, Vec<Extent>) {
        let held = self.held.get(&holder).into_iter();
        let overlapping = held
            .flat_map(|held| &held.ranges)
            .filter(|lock| lock.extent.overlaps(extent));
        let mut covered = ExtentSet::new();
        let mut found = Vec::new();
        for lock in overlapping {
            let extent = lock.extent.intersection(extent);
            covered.insert(extent);
            found.push(LockRange { extent, ..*lock });
        }
        (found, covered.missing(extent))
    }

    pub(super) fn get(&self, holder: Holder) -> Option<Held> {
        self.held.get(&holder).cloned()
    }

    pub(super) fn holders(&self) -> Vec<Holder> {
        self.held.keys().copied().collect()
    }

    pub(super) fn holds(&self, holder: Holder) -> bool {
        self.held.contains_key(&holder)
    }

    pub(super) fn losses(&self) -> u64 {
        self.losses
    }

    /// The server may have forgotten everything.
    pub(in crate::volume) fn on_loss(&mut self) {
        self.losses += 1;
    }
}

/// Takes an extent out of ranges.
fn carve(ranges: &mut Vec<LockRange>, extent: Extent) {
    for lock in std::mem::take(ranges) {
        if !lock.extent.overlaps(extent) {
            ranges.push(lock);
            continue;
        }
        let before = Extent::between(lock.extent.offset, extent.offset.max(lock.extent.offset));
        let after = Extent::between(extent.end().min(lock.extent.end()), lock.extent.end());
        for extent in [before, after] {
            if !extent.is_empty() {
                ranges.push(LockRange { extent, ..lock });
            }
        }
    }
}

/// One holder's requests go to the server one after the other: sent together they could run in
/// another order, and then the server would have what was let go, or not have what was taken. Only
/// waiting for a lock takes no turn.
pub(super) struct Turn {
    volume: Arc<Volume>,
    holder: Holder,
}

impl Volume {
    /// Waits for the holder's turn, which lasts until this is dropped.
    pub(super) async fn lock_turn(&self, holder: Holder) -> Turn {
        let freed = Arc::clone(&self.held_locks().freed);
        loop {
            let notified = freed.notified();
            tokio::pin!(notified);
            // Registered before the look, so that no wake-up is lost between the two.
            notified.as_mut().enable();
            if self.held_locks().busy.insert(holder) {
                let volume = self.arc();
                return Turn { volume, holder };
            }
            notified.await;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let freed = {
            let mut held = self.volume.held_locks();
            held.busy.remove(&self.holder);
            Arc::clone(&held.freed)
        };
        freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_back_is_what_was_held_and_nothing_else() {
        let who = Principal::root();
        let node = NodeId::ROOT;
        let lock = |mode, offset, len| LockRange {
            kind: LockKind::Posix,
            mode,
            extent: Extent::new(offset, len),
            owner: LockOwner(1),
            pid: 1,
        };
        let mut held = HeldLocks::default();
        let holder = Holder::of(node, &lock(LockMode::Shared, 0, 1));
        let mut apply = |lock| held.apply(node, &who, &Target::Result(0), lock);
        apply(lock(LockMode::Shared, 0, 100));
        apply(lock(LockMode::Exclusive, 40, 20));
        apply(lock(LockMode::Unlock, 50, 30));
        let (mut found, free) = held.within(holder, Extent::new(10, 80));
        found.sort_by_key(|lock| lock.extent.offset);
        let wanted = [
            lock(LockMode::Shared, 10, 30),
            lock(LockMode::Exclusive, 40, 10),
            lock(LockMode::Shared, 80, 10),
        ];
        assert_eq!(found, wanted);
        assert_eq!(free, [Extent::new(50, 30)]);
        held.release(holder, Extent::new(0, 90));
        assert!(held.holds(holder));
        held.release(holder, holder.nothing().extent);
        assert!(!held.holds(holder) && held.holders().is_empty());
    }
}
