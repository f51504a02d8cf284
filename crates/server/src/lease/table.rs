//! Who caches what: a pure table.
//!
//! * A session may hold a read lease on any inode, unless another session has the file open for
//!   writing: then each write would be held up by a recall.
//! * A session may hold an exclusive lease on a directory that nobody else holds or has just asked
//!   for. Who else wants to use the directory contests the lease first ([`LeaseTable::contest`]).
//! * A lease is recorded before the state that it covers is read. Where the handle is known only
//!   afterwards (the inode that a look-up found), the table tells whether the inode has changed
//!   since the look-up began ([`LeaseTable::changed_since`]), so that the state can be read again.

use crate::session::SessionKey;
use base::limits::LEASES_PER_SESSION_MAX;
use base::{Handle, QuickMap, QuickState, Time};
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::hash::BuildHasher;
use std::time::Duration;
use wire::message::Lease;

/// How long after a contest a directory is leased to nobody alone, so that two sessions that create
/// in turns do not take the lease from each other for every file.
const CONTEST_TIME: Duration = Duration::from_secs(2);
/// Changes whose inodes are remembered.
const RECENT_CHANGES_MAX: usize = 4096;

#[derive(Debug, Default)]
struct Inode {
    /// Small: sessions that share an inode are few.
    holders: Vec<(SessionKey, Lease)>,
    /// Sessions that have the file open for writing, with how many opens.
    writers: Vec<(SessionKey, u32)>,
    /// Until when nobody gets an exclusive lease.
    contested_until: Time,
}

impl Inode {
    fn is_idle(&self, now: Time) -> bool {
        self.holders.is_empty() && self.writers.is_empty() && self.contested_until <= now
    }
}

/// A moment in the table's sequence of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment(u64);

/// Leases by inode.
#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    inodes: QuickMap<Handle, Inode>,
    counts: QuickMap<SessionKey, usize>,
    /// Hashes of the inodes that changed last, the newest at the back.
    recent: VecDeque<u64>,
    changes: u64,
    hasher: QuickState,
    exclusives: usize,
}

impl LeaseTable {
    /// Now, in changes.
    pub(crate) fn moment(&self) -> Moment {
        Moment(self.changes)
    }

    /// Whether the inode has changed since `then`, or that is not known any more.
    pub(crate) fn changed_since(&self, handle: &Handle, then: Moment) -> bool {
        let since = usize::try_from(self.changes - then.0).unwrap_or(usize::MAX);
        if since > self.recent.len() {
            return true;
        }
        since > 0 && {
            let hash = self.hasher.hash_one(handle);
            self.recent
                .iter()
                .rev()
                .take(since)
                .any(|recent| *recent == hash)
        }
    }

    fn note_change(&mut self, handle: &Handle) {
        self.changes += 1;
        if self.recent.len() == RECENT_CHANGES_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(self.hasher.hash_one(handle));
    }

    /// Everything may have changed.
    pub(crate) fn note_change_of_all(&mut self) {
        self.changes += 1 + self.recent.len() as u64;
        self.recent.clear();
    }

    /// What a session has of an inode is no more than this from now on.
    pub(crate) fn lower(&mut self, session: SessionKey, handle: &Handle, to: Lease) {
        let holders = self.inodes.get_mut(handle).into_iter();
        let mut own = holders.flat_map(|inode| &mut inode.holders);
        if let Some((_, held)) = own.find(|(holder, _)| *holder == session)
            && *held > to
        {
            self.exclusives -= usize::from(*held == Lease::Exclusive);
            *held = to;
        }
    }

    /// Records the best lease that `session` may have, up to `wanted`, and returns it. It never
    /// takes away what the session has already.
    pub(crate) fn grant(
        &mut self,
        session: SessionKey,
        handle: &Handle,
        wanted: Lease,
        now: Time,
    ) -> Lease {
        if wanted == Lease::None {
            return Lease::None;
        }
        let count = self.counts.entry(session).or_default();
        let inode = match self.inodes.entry(handle.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if *count >= LEASES_PER_SESSION_MAX => return Lease::None,
            Entry::Vacant(room) => room.insert(Inode::default()),
        };
        let others = inode.holders.iter().any(|(holder, _)| *holder != session);
        let possible = if inode.writers.iter().any(|(writer, _)| *writer != session) {
            Lease::None
        } else if others || inode.contested_until > now {
            // While another one holds it alone, nobody gets anything: the caller has not contested.
            let alone = |(holder, lease): &(SessionKey, Lease)| {
                *holder != session && *lease == Lease::Exclusive
            };
            if inode.holders.iter().any(alone) {
                Lease::None
            } else {
                Lease::Read
            }
        } else {
            Lease::Exclusive
        };
        let lease = wanted.min(possible);
        match inode
            .holders
            .iter_mut()
            .find(|(holder, _)| *holder == session)
        {
            Some((_, held)) => {
                if lease > *held {
                    *held = lease;
                    self.exclusives += usize::from(lease == Lease::Exclusive);
                }
                *held
            }
            None if lease == Lease::None || *count >= LEASES_PER_SESSION_MAX => {
                if inode.is_idle(now) {
                    self.inodes.remove(handle);
                }
                Lease::None
            }
            None => {
                inode.holders.push((session, lease));
                *count += 1;
                self.exclusives += usize::from(lease == Lease::Exclusive);
                lease
            }
        }
    }

    /// What `session` holds on an inode.
    #[cfg(test)]
    pub(crate) fn held(&self, session: SessionKey, handle: &Handle) -> Lease {
        let holders = self
            .inodes
            .get(handle)
            .map_or(&[][..], |inode| &inode.holders);
        holders
            .iter()
            .find(|(holder, _)| *holder == session)
            .map_or(Lease::None, |(_, l)| *l)
    }

    /// `session` is about to use a directory. If another one has it alone, that lease becomes a
    /// read lease, and its holder is returned: it must be asked to write back first.
    pub(crate) fn contest(
        &mut self,
        session: Option<SessionKey>,
        handle: &Handle,
        now: Time,
    ) -> Option<SessionKey> {
        if self.exclusives == 0 {
            return None;
        }
        let inode = self.inodes.get_mut(handle)?;
        let (holder, lease) = inode
            .holders
            .iter_mut()
            .find(|(holder, lease)| Some(*holder) != session && *lease == Lease::Exclusive)?;
        *lease = Lease::Read;
        inode.contested_until = now + CONTEST_TIME;
        self.exclusives -= 1;
        Some(*holder)
    }

    /// The inode has changed: takes the leases of all but `by` and returns whose they were.
    pub(crate) fn change_inode(
        &mut self,
        by: Option<SessionKey>,
        handle: &Handle,
        now: Time,
    ) -> Vec<SessionKey> {
        self.note_change(handle);
        let Some(inode) = self.inodes.get_mut(handle) else {
            return Vec::new();
        };
        let mut lost = Vec::new();
        inode.holders.retain(|(holder, lease)| {
            let keeps = Some(*holder) == by;
            if !keeps {
                lost.push(*holder);
                self.exclusives -= usize::from(*lease == Lease::Exclusive);
            }
            keeps
        });
        if inode.is_idle(now) {
            self.inodes.remove(handle);
        }
        for session in &lost {
            self.uncount(*session);
        }
        lost
    }

    /// A name in the directory has changed: returns who must hear of it. Their leases stay.
    pub(crate) fn change_entry(
        &mut self,
        by: Option<SessionKey>,
        directory: &Handle,
    ) -> Vec<SessionKey> {
        self.note_change(directory);
        self.inodes.get(directory).map_or_else(Vec::new, |inode| {
            inode
                .holders
                .iter()
                .map(|(holder, _)| *holder)
                .filter(|h| Some(*h) != by)
                .collect()
        })
    }

    /// A session has opened a file for writing.
    pub(crate) fn add_writer(&mut self, session: SessionKey, handle: &Handle) {
        let writers = &mut self.inodes.entry(handle.clone()).or_default().writers;
        match writers.iter_mut().find(|(writer, _)| *writer == session) {
            Some((_, opens)) => *opens += 1,
            None => writers.push((session, 1)),
        }
    }

    /// A session has closed one of its opens for writing.
    pub(crate) fn remove_writer(&mut self, session: SessionKey, handle: &Handle, now: Time) {
        let Some(inode) = self.inodes.get_mut(handle) else {
            return;
        };
        inode.writers.retain_mut(|(writer, opens)| {
            *opens -= u32::from(*writer == session);
            *opens > 0
        });
        if inode.is_idle(now) {
            self.inodes.remove(handle);
        }
    }

    /// A session caches an inode no longer.
    pub(crate) fn give_back(&mut self, session: SessionKey, handle: &Handle, now: Time) {
        let Some(inode) = self.inodes.get_mut(handle) else {
            return;
        };
        let Some(place) = inode
            .holders
            .iter()
            .position(|(holder, _)| *holder == session)
        else {
            return;
        };
        let (_, lease) = inode.holders.swap_remove(place);
        self.exclusives -= usize::from(lease == Lease::Exclusive);
        if inode.is_idle(now) {
            self.inodes.remove(handle);
        }
        self.uncount(session);
    }

    /// A session caches nothing any more; with `ended` it has no file open either.
    pub(crate) fn drop_session(&mut self, session: SessionKey, ended: bool, now: Time) {
        self.inodes.retain(|_, inode| {
            inode.holders.retain(|(holder, lease)| {
                let goes = *holder == session;
                self.exclusives -= usize::from(goes && *lease == Lease::Exclusive);
                !goes
            });
            if ended {
                inode.writers.retain(|(writer, _)| *writer != session);
            }
            !inode.is_idle(now)
        });
        self.counts.remove(&session);
    }

    /// Inodes that somebody holds and of which `concerns` is true, now that everything may have
    /// changed.
    pub(crate) fn held_of(&mut self, concerns: impl Fn(&Handle) -> bool) -> Vec<Handle> {
        self.note_change_of_all();
        let held = self.inodes.iter();
        let held = held.filter(|(handle, inode)| !inode.holders.is_empty() && concerns(handle));
        held.map(|(handle, _)| handle.clone()).collect()
    }

    /// Leases of a session.
    pub(crate) fn count(&self, session: SessionKey) -> usize {
        self.counts.get(&session).copied().unwrap_or(0)
    }

    fn uncount(&mut self, session: SessionKey) {
        if let Some(count) = self.counts.get_mut(&session) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&session);
            }
        }
    }

    /// Forgets inodes that nobody holds; those contested lately are kept for a while.
    pub(crate) fn sweep(&mut self, now: Time) {
        self.inodes.retain(|_, inode| !inode.is_idle(now));
    }

    #[cfg(test)]
    pub(crate) fn exclusives(&self) -> usize {
        self.exclusives
    }
}
