//! The held locks of one file.

use super::Owner;
use base::Extent;
use wire::message::{LockKind, LockMode, LockRange};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Shared,
    Exclusive,
}

/// One held lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) owner: Owner,
    pub(super) pid: u32,
    pub(super) mode: Mode,
    pub(super) extent: Extent,
}

impl Held {
    pub(super) fn range(&self, kind: LockKind) -> LockRange {
        LockRange {
            kind,
            mode: match self.mode {
                Mode::Shared => LockMode::Shared,
                Mode::Exclusive => LockMode::Exclusive,
            },
            extent: self.extent,
            owner: self.owner.owner,
            pid: self.pid,
        }
    }

    fn conflicts(&self, owner: Owner, mode: Mode, extent: Extent) -> bool {
        self.owner != owner
            && (self.mode == Mode::Exclusive || mode == Mode::Exclusive)
            && self.extent.overlaps(extent)
    }
}

/// Held locks; those of one owner do not overlap.
#[derive(Debug, Default)]
pub(super) struct Ranges(Vec<Held>);

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn count(&self, owner: Owner) -> usize {
        self.0.iter().filter(|h| h.owner == owner).count()
    }

    pub(super) fn conflicts(
        &self,
        owner: Owner,
        mode: Mode,
        extent: Extent,
    ) -> impl Iterator<Item = &Held> {
        self.0
            .iter()
            .filter(move |h| h.conflicts(owner, mode, extent))
    }

    /// The conflicting lock with the lowest offset, as `F_GETLK` reports it.
    pub(super) fn conflict(&self, owner: Owner, mode: Mode, extent: Extent) -> Option<Held> {
        self.conflicts(owner, mode, extent)
            .min_by_key(|h| h.extent.offset)
            .copied()
    }

    /// Whether `owner` has all bytes of `extent`, and what `mode` allows.
    pub(super) fn covers(&self, owner: Owner, mode: Mode, extent: Extent) -> bool {
        let is_enough = |held: &&Held| {
            held.owner == owner && (held.mode == Mode::Exclusive || mode == Mode::Shared)
        };
        let mut enough: Vec<Extent> = self.0.iter().filter(is_enough).map(|h| h.extent).collect();
        enough.sort_by_key(|held| held.offset);
        let reached = enough.iter().fold(extent.offset, |reached, held| {
            match held.offset <= reached {
                true => reached.max(held.end()),
                false => reached,
            }
        });
        reached >= extent.end()
    }

    /// Takes the bytes of `extent` away from `owner`.
    pub(super) fn carve(&mut self, owner: Owner, extent: Extent) {
        let mut tails = Vec::new();
        self.0.retain_mut(|held| {
            if held.owner != owner || !held.extent.overlaps(extent) {
                return true;
            }
            let whole = held.extent;
            let tail = Extent::between(extent.end(), whole.end());
            held.extent = Extent::between(whole.offset, extent.offset.max(whole.offset));
            if !tail.is_empty() {
                tails.push(Held {
                    extent: tail,
                    ..*held
                });
            }
            !held.extent.is_empty()
        });
        self.0.extend(tails);
    }

    /// Gives the bytes of `new.extent` to its owner in its mode; neighbours of equal mode join.
    pub(super) fn set(&mut self, mut new: Held) {
        self.carve(new.owner, new.extent);
        self.0.retain(|held| {
            let joins = held.owner == new.owner
                && held.mode == new.mode
                && (held.extent.end() == new.extent.offset
                    || new.extent.end() == held.extent.offset);
            if joins {
                new.extent = Extent::between(
                    held.extent.offset.min(new.extent.offset),
                    held.extent.end().max(new.extent.end()),
                );
            }
            !joins
        });
        self.0.push(new);
    }
}
