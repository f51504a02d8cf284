//! The order in which Windows wants to see a list: entries of the file's own before inherited ones,
//! and of its own those that deny before those that allow. Explorer and smbcacls sort a list that
//! is not so before they write it, and that can change what it says. So a list is put into this
//! order here only if that changes nothing, for the file and for its heirs; else it stays as it is,
//! and whoever sorts it is to be refused.
//!
//! Two neighbours can change places if both allow or both deny, if they speak of different rights,
//! of different users, or at different places (here, in new files, in new directories). That is
//! tried on the list as it is, and then without what earlier entries have decided already.

use super::{Ace, AceFlags, AceKind, Origin, RichAcl, Rights, Who};

/// Most entries for which the order is tried: each is compared with each.
const ACES_MAX: usize = 4096;

impl RichAcl {
    /// Whether the list is in the order that Windows wants.
    #[must_use]
    pub fn is_canonical(&self) -> bool {
        let ranks = self.aces.iter().filter_map(Ace::rank);
        ranks.is_sorted()
    }

    /// A list in that order which says the same, if one can be found. A view is judged otherwise
    /// than Windows judges, so it is reordered only where nobody is told anything else.
    #[must_use]
    pub fn canonical(&self) -> Option<Self> {
        if self.is_canonical() {
            return Some(self.clone());
        }
        if self.aces.len() > ACES_MAX || self.origin == Origin::Posix {
            return None;
        }
        let as_it_is = sorted(self.aces.clone());
        let sorted = match self.limits {
            None => as_it_is.or_else(|| sorted(pruned(&self.aces))),
            // Who has no entry any more would be in another class.
            Some(_) => as_it_is,
        };
        sorted.map(|aces| Self {
            aces,
            ..self.clone()
        })
    }
}

impl Ace {
    /// Where an entry belongs; `None` for those that decide nothing.
    fn rank(&self) -> Option<u8> {
        match self.kind {
            AceKind::Audit => None,
            _ if self.flags.contains(AceFlags::INHERITED) => Some(2),
            AceKind::Deny => Some(0),
            AceKind::Allow => Some(1),
        }
    }

    /// The places where it speaks: here, in new files, in new directories.
    fn places(&self) -> u8 {
        let bit = |set, bit| if set { bit } else { 0 };
        bit(!self.flags.contains(AceFlags::INHERIT_ONLY), 1)
            | bit(self.flags.contains(AceFlags::FILE_INHERIT), 2)
            | bit(self.flags.contains(AceFlags::DIRECTORY_INHERIT), 4)
    }

    /// Whether it is the same which of two comes first.
    fn commutes(&self, other: &Self) -> bool {
        let never_both = match (&self.who, &other.who) {
            (Who::User(one), Who::User(two)) => one != two,
            (one, two) => {
                let is_nobody =
                    |who: &Who, ace: &Self| who.is_unknown() && ace.kind == AceKind::Allow;
                is_nobody(one, self) || is_nobody(two, other)
            }
        };
        self.kind == other.kind
            || !self.rights.intersects(other.rights)
            || self.places() & other.places() == 0
            || never_both
    }
}

/// The entries in the order of Windows, if it is the same.
fn sorted(aces: Vec<Ace>) -> Option<Vec<Ace>> {
    let (audit, mut aces): (Vec<_>, Vec<_>) =
        aces.into_iter().partition(|ace| ace.rank().is_none());
    for (index, ace) in aces.iter().enumerate() {
        let before = &aces[..index];
        let overtaken = before.iter().filter(|other| other.rank() > ace.rank());
        if !overtaken.into_iter().all(|other| other.commutes(ace)) {
            return None;
        }
    }
    aces.sort_by_key(Ace::rank);
    aces.extend(audit);
    Some(aces)
}

/// The entries without what those before them have decided about the same callers.
fn pruned(aces: &[Ace]) -> Vec<Ace> {
    let mut kept: Vec<Ace> = Vec::new();
    for ace in aces {
        let mut ace = ace.clone();
        // That there is an entry for the owner's rights says something by itself.
        if ace.kind != AceKind::Audit && ace.who != Who::OwnerRights {
            let before = kept.iter().filter(|other| {
                let speaks = other.who == Who::Everyone || other.who == ace.who;
                let is_known = !other.who.is_unknown() && other.kind != AceKind::Audit;
                speaks && is_known && ace.places() & !other.places() == 0 && passes_on(other, &ace)
            });
            let decided = before.fold(Rights::NONE, |all, other| all | other.rights);
            ace.rights = ace.rights - decided;
            if ace.rights.is_empty() {
                continue;
            }
        }
        kept.push(ace);
    }
    kept
}

/// Whether the first is passed on by heirs as far as the second.
fn passes_on(first: &Ace, second: &Ace) -> bool {
    let stops = |ace: &Ace| ace.flags.contains(AceFlags::NO_PROPAGATE);
    !stops(first) || stops(second)
}
