//! What the server has said about the rights of callers to one inode.
//!
//! A verdict is as good as the lease under which it was asked for: who changes a mode, an owner or
//! an ACL has the lease called back first. A change that is made from here ends them at once.
//!
//! What is asked is a set of reading, writing and executing. Each set is a question of its own: who
//! may read, and may write, need not be allowed both at once.

use base::Principal;
use std::collections::VecDeque;

/// Callers of whom verdicts about one inode are remembered: those of a few programs.
const CALLERS_MAX: usize = 16;

/// See the module's head.
#[derive(Debug, Default)]
pub struct Verdicts {
    /// The epoch of the lease under which they stand.
    epoch: u64,
    /// Changes of what decides that were made from here.
    changes: u64,
    /// A bit for each of the eight sets: whether it is known, and whether it is allowed.
    callers: VecDeque<(Principal, u8, u8)>,
}

/// When a question was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedAt {
    epoch: u64,
    changes: u64,
}

impl AskedAt {
    /// Whether it was under the lease of this epoch.
    pub(super) fn is_in(self, epoch: u64) -> bool {
        self.epoch == epoch
    }
}

impl Verdicts {
    /// Whether a caller may do all of `rights`, if it is known in this epoch.
    pub(super) fn get(&self, epoch: u64, who: &Principal, rights: u8) -> Option<bool> {
        let (_, known, allowed) = self.callers.iter().find(|(caller, ..)| caller == who)?;
        let bit = 1 << (rights & 7);
        (self.epoch == epoch && known & bit != 0).then_some(allowed & bit != 0)
    }

    pub(super) fn asked_at(&self, epoch: u64) -> AskedAt {
        AskedAt {
            epoch,
            changes: self.changes,
        }
    }

    /// Takes an answer over, unless something has changed since it was asked for.
    pub(super) fn note(&mut self, asked: AskedAt, who: &Principal, rights: u8, is_allowed: bool) {
        if asked != self.asked_at(asked.epoch) {
            return;
        }
        if self.epoch != asked.epoch {
            self.callers.clear();
            self.epoch = asked.epoch;
        }
        let bit = 1 << (rights & 7);
        let place = self.callers.iter().position(|(caller, ..)| caller == who);
        let place = place.unwrap_or_else(|| {
            if self.callers.len() == CALLERS_MAX {
                self.callers.pop_front();
            }
            self.callers.push_back((who.clone(), 0, 0));
            self.callers.len() - 1
        });
        let (_, known, allowed) = &mut self.callers[place];
        *known |= bit;
        *allowed = *allowed & !bit | if is_allowed { bit } else { 0 };
    }

    /// Something that decides is being changed from here.
    pub(super) fn end(&mut self) {
        self.changes += 1;
        self.callers.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_about_one_caller_and_one_set_of_rights_in_one_epoch() {
        let (alice, bob) = (Principal::alone(1, 1), Principal::alone(2, 2));
        let mut verdicts = Verdicts::default();
        verdicts.note(verdicts.asked_at(7), &alice, 4, true);
        verdicts.note(verdicts.asked_at(7), &alice, 6, false);
        assert_eq!(verdicts.get(7, &alice, 4), Some(true));
        assert_eq!(verdicts.get(7, &alice, 6), Some(false));
        assert_eq!(verdicts.get(7, &alice, 2), None);
        assert_eq!(verdicts.get(7, &bob, 4), None);
        assert_eq!(verdicts.get(8, &alice, 4), None);
        verdicts.note(verdicts.asked_at(8), &bob, 4, true);
        assert_eq!(verdicts.get(8, &alice, 4), None, "of the epoch before");
        assert_eq!(verdicts.get(8, &bob, 4), Some(true));
    }

    #[test]
    fn an_answer_from_before_a_change_is_not_believed() {
        let alice = Principal::alone(1, 1);
        let mut verdicts = Verdicts::default();
        let asked = verdicts.asked_at(7);
        verdicts.end();
        verdicts.note(asked, &alice, 4, true);
        assert_eq!(verdicts.get(7, &alice, 4), None);
    }

    #[test]
    fn callers_are_bounded() {
        let mut verdicts = Verdicts::default();
        for uid in 0..100 {
            verdicts.note(verdicts.asked_at(1), &Principal::alone(uid, 1), 4, true);
        }
        assert_eq!(verdicts.callers.len(), CALLERS_MAX);
        assert_eq!(verdicts.get(1, &Principal::alone(99, 1), 4), Some(true));
    }
}
