//! Advisory locks: flock(2) and POSIX ranges, held by owners of sessions.
//!
//! A pure table: it says what is granted, refused or must wait, and which waiters a release lets
//! in. Who waits how is the caller's affair.
//!
//! *POSIX ranges.* An owner has at most one mode on a byte. A new lock replaces what the owner had
//! on its bytes; releasing carves bytes out. A cycle of waiting owners is refused with the request
//! that would close it (`EDEADLK`), across files and sessions.
//!
//! *flock.* Whole files; a conversion gives the old lock up first, as on a local file system, so
//! that two holders who both want more cannot block each other. No search for cycles, as there.
//!
//! *Order.* Waiters are served first come, first served. A newcomer that only a waiter ahead of it
//! stands in the way of waits behind it, so that readers do not starve a writer; unless its owner
//! holds a lock of this kind already: such an owner waiting for a waiter could close a cycle that
//! no held lock explains.

mod noted;
mod ranges;
mod service;

use base::limits::LOCKS_PER_SESSION_MAX;
use base::{Extent, Handle, LockOwner};
use ranges::{Held, Mode, Ranges};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use wire::message::{LockKind, LockMode, LockRange};

use crate::session::SessionKey;
pub(crate) use noted::{LocksNoted, NoteOutcome};
pub(crate) use service::{Answer, Locks};

/// Locks, held or waited for, that one search for a cycle looks at: some milliseconds. Programs
/// that wait for each other in earnest need a few; who piles locks up must not stop everybody
/// else's. Linux gives up after ten owners.
const SEARCH_STEPS_MAX: usize = 1 << 20;

/// Who holds or wants a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Owner {
    /// The session.
    pub(crate) session: SessionKey,
    /// The owner within it.
    pub(crate) owner: LockOwner,
}

/// A lock that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(u64);

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The lock is held (or released).
    Granted,
    /// This one stands in the way.
    Conflict(LockRange),
    /// It will be granted later.
    Waiting(Ticket),
    /// Waiting would never end.
    Deadlock,
    /// The session has too many.
    Limit,
}

type FileKey = (Handle, LockKind);

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    owner: Owner,
    pid: u32,
    mode: Mode,
    extent: Extent,
    /// Whether it lets waiters ahead of it go first. An owner that gets hold of a lock elsewhere
    /// while it waits stops being polite, for the reason in the module's head.
    polite: bool,
}

#[derive(Debug, Default)]
struct File {
    held: Ranges,
    /// In the order in which they came.
    waiting: BTreeMap<Ticket, Waiter>,
}

/// All locks of a server.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    files: HashMap<FileKey, File>,
    waiting: HashMap<Ticket, FileKey>,
    /// The same by who waits. Several threads of a process may wait as one owner.
    waits: HashMap<Owner, BTreeSet<Ticket>>,
    /// Files on which an owner holds something; to know whether it holds anything, and to let go of
    /// all when its session ends.
    holdings: HashMap<Owner, HashSet<FileKey>>,
    /// Held ranges of a session.
    counts: HashMap<SessionKey, usize>,
    last_ticket: u64,
    /// Waiters that were let in since the caller last asked.
    admitted: Vec<Ticket>,
}

impl LockTable {
    /// Takes, changes or releases a lock. Look at [`Self::take_admitted`] afterwards.
    pub(crate) fn lock(
        &mut self,
        handle: &Handle,
        owner: Owner,
        wanted: &LockRange,
        wait: bool,
    ) -> Outcome {
        let key = (handle.clone(), wanted.kind);
        let Some(mode) = Mode::of(wanted.mode) else {
            self.carve(&key, owner, wanted.extent);
            self.admit(&key);
            return Outcome::Granted;
        };
        let count = self.counts.get(&owner.session).copied().unwrap_or(0);
        if count >= LOCKS_PER_SESSION_MAX {
            return Outcome::Limit;
        }
        let waiter = Waiter {
            ticket: Ticket(self.last_ticket + 1),
            owner,
            pid: wanted.pid,
            mode,
            extent: wanted.extent,
            polite: !self.holds_kind(owner, wanted.kind),
        };
        let convert = wanted.kind == LockKind::Flock && self.holds(&key, owner);
        if convert && self.conflict(&key, &waiter).is_some() {
            self.carve(&key, owner, wanted.extent);
            self.admit(&key);
        }
        let conflict = self.conflict(&key, &waiter);
        let blocked = conflict.is_some() || (wait && self.is_behind(&key, &waiter));
        match conflict {
            _ if !blocked => {
                self.grant(&key, waiter);
                self.admit(&key);
                Outcome::Granted
            }
            Some(held) if !wait => Outcome::Conflict(held.range(wanted.kind)),
            _ if wanted.kind == LockKind::Posix && self.search_cycle(&key, &waiter).0 => {
                Outcome::Deadlock
            }
            _ => {
                self.last_ticket += 1;
                let ticket = waiter.ticket;
                self.waiting.insert(ticket, key.clone());
                self.waits.entry(owner).or_default().insert(ticket);
                let file = self.files.entry(key).or_default();
                file.waiting.insert(ticket, waiter);
                Outcome::Waiting(ticket)
            }
        }
    }

    /// Whether an owner asks for no more than it holds: the same again, or less.
    fn is_held(&self, handle: &Handle, owner: Owner, wanted: &LockRange) -> bool {
        let Some(mode) = Mode::of(wanted.mode) else {
            return true;
        };
        let file = self.files.get(&(handle.clone(), wanted.kind));
        file.is_some_and(|file| file.held.covers(owner, mode, wanted.extent))
    }

    /// The lock that stands in the way of `wanted`, if any.
    pub(crate) fn test(
        &self,
        handle: &Handle,
        owner: Owner,
        wanted: &LockRange,
    ) -> Option<LockRange> {
        let mode = Mode::of(wanted.mode)?;
        let file = self.files.get(&(handle.clone(), wanted.kind))?;
        file.held
            .conflict(owner, mode, wanted.extent)
            .map(|held| held.range(wanted.kind))
    }

    /// Stops waiting. `false` if the lock has been granted meanwhile.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> bool {
        let Some((key, _)) = self.end_wait(ticket) else {
            return false;
        };
        // Those behind it may have waited for it only.
        self.admit(&key);
        true
    }

    /// Whether a ticket still waits.
    pub(crate) fn is_waiting(&self, ticket: Ticket) -> bool {
        self.waiting.contains_key(&ticket)
    }

    /// Releases all locks of one kind that an owner has on a file.
    pub(crate) fn release(&mut self, handle: &Handle, owner: Owner, kind: LockKind) {
        let key = (handle.clone(), kind);
        self.carve(&key, owner, Extent::new(0, u64::MAX));
        self.admit(&key);
    }

    /// Releases everything that a session holds and forgets what it waits for; the tickets of the
    /// latter are not reported.
    pub(crate) fn end_session(&mut self, session: SessionKey) {
        let mut keys: HashSet<FileKey> = HashSet::new();
        let holding = self.holdings.keys().filter(|o| o.session == session);
        for owner in holding.copied().collect::<Vec<Owner>>() {
            for key in self.holdings.remove(&owner).unwrap_or_default() {
                if let Some(file) = self.files.get_mut(&key) {
                    file.held.carve(owner, Extent::new(0, u64::MAX));
                }
                keys.insert(key);
            }
        }
        let waiting = self.waits.iter().filter(|(o, _)| o.session == session);
        for ticket in waiting.flat_map(|(_, t)| t).copied().collect::<Vec<_>>() {
            keys.extend(self.end_wait(ticket).map(|(key, _)| key));
        }
        self.counts.remove(&session);
        for key in keys {
            self.admit(&key);
        }
    }

    /// The waiters that were let in since the last call.
    pub(crate) fn take_admitted(&mut self) -> Vec<Ticket> {
        std::mem::take(&mut self.admitted)
    }

    /// Held ranges of a session.
    pub(crate) fn count(&self, session: SessionKey) -> usize {
        self.counts.get(&session).copied().unwrap_or(0)
    }

    /// Whether nobody holds anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.holdings.is_empty()
    }

    fn holds(&self, key: &FileKey, owner: Owner) -> bool {
        self.holdings
            .get(&owner)
            .is_some_and(|files| files.contains(key))
    }

    fn holds_kind(&self, owner: Owner, kind: LockKind) -> bool {
        self.holdings
            .get(&owner)
            .is_some_and(|files| files.iter().any(|(_, k)| *k == kind))
    }

    fn conflict(&self, key: &FileKey, waiter: &Waiter) -> Option<Held> {
        self.files
            .get(key)?
            .held
            .conflict(waiter.owner, waiter.mode, waiter.extent)
    }

    /// Whether someone who waits for longer must go before `waiter`.
    fn is_behind(&self, key: &FileKey, waiter: &Waiter) -> bool {
        waiter.polite
            && self.files.get(key).is_some_and(|file| {
                let mut ahead = file.waiting.range(..waiter.ticket);
                ahead.any(|(_, other)| {
                    other.owner != waiter.owner
                        && other.extent.overlaps(waiter.extent)
                        && !(other.mode == Mode::Shared && waiter.mode == Mode::Shared)
                })
            })
    }

    /// Takes a waiter out of the tables.
    fn end_wait(&mut self, ticket: Ticket) -> Option<(FileKey, Waiter)> {
        let key = self.waiting.remove(&ticket)?;
        let waiter = self.files.get_mut(&key)?.waiting.remove(&ticket)?;
        if let Some(tickets) = self.waits.get_mut(&waiter.owner) {
            tickets.remove(&ticket);
            if tickets.is_empty() {
                self.waits.remove(&waiter.owner);
            }
        }
        Some((key, waiter))
    }

    fn grant(&mut self, key: &FileKey, waiter: Waiter) {
        let owner = waiter.owner;
        let file = self.files.entry(key.clone()).or_default();
        let before = file.held.count(owner);
        file.held.set(Held {
            owner,
            pid: waiter.pid,
            mode: waiter.mode,
            extent: waiter.extent,
        });
        let after = file.held.count(owner);
        *self.counts.entry(owner.session).or_default() += after;
        self.uncount(owner.session, before);
        let first = !self.holds_kind(owner, key.1);
        self.holdings.entry(owner).or_default().insert(key.clone());
        if first {
            self.stop_being_polite(owner, key.1);
        }
    }

    /// An owner that holds something waits for held locks only.
    fn stop_being_polite(&mut self, owner: Owner, kind: LockKind) {
        let mut changed: HashSet<FileKey> = HashSet::new();
        for ticket in self.waits.get(&owner).into_iter().flatten() {
            let key = self.waiting.get(ticket).filter(|key| key.1 == kind);
            let waiter = key
                .and_then(|key| self.files.get_mut(key))
                .and_then(|file| file.waiting.get_mut(ticket));
            if let Some(waiter) = waiter {
                waiter.polite = false;
                changed.extend(key.cloned());
            }
        }
        for key in changed {
            self.admit(&key);
        }
    }

    fn carve(&mut self, key: &FileKey, owner: Owner, extent: Extent) {
        let Some(file) = self.files.get_mut(key) else {
            return;
        };
        let before = file.held.count(owner);
        file.held.carve(owner, extent);
        let after = file.held.count(owner);
        *self.counts.entry(owner.session).or_default() += after;
        self.uncount(owner.session, before);
        if after == 0
            && let Some(files) = self.holdings.get_mut(&owner)
        {
            files.remove(key);
            if files.is_empty() {
                self.holdings.remove(&owner);
            }
        }
    }

    fn uncount(&mut self, session: SessionKey, ranges: usize) {
        if let Some(count) = self.counts.get_mut(&session) {
            *count -= ranges;
            if *count == 0 {
                self.counts.remove(&session);
            }
        }
    }

    /// Lets in whoever can go, in order, until nobody can.
    fn admit(&mut self, key: &FileKey) {
        loop {
            let Some(file) = self.files.get(key) else {
                return;
            };
            let next = file.waiting.iter().find(|(_, waiter)| {
                self.conflict(key, waiter).is_none() && !self.is_behind(key, waiter)
            });
            let Some((next, _)) = next else { break };
            let next = *next;
            let (_, waiter) = self.end_wait(next).expect("looked at above");
            self.admitted.push(next);
            self.grant(key, waiter);
        }
        if self
            .files
            .get(key)
            .is_some_and(|f| f.held.is_empty() && f.waiting.is_empty())
        {
            self.files.remove(key);
        }
    }

    /// Whether `waiter` would wait, over any number of others, for its own owner. Nobody else gets
    /// a lock meanwhile, so the search ends without a finding after [`SEARCH_STEPS_MAX`]. Also says
    /// at how many locks it looked, held or waited for.
    fn search_cycle(&self, key: &FileKey, waiter: &Waiter) -> (bool, usize) {
        let mut seen = HashSet::new();
        let mut steps = self.held_count(key);
        let mut open: Vec<Owner> = self.holders(key, waiter);
        while let Some(owner) = open.pop() {
            if owner == waiter.owner {
                return (true, steps);
            }
            if !seen.insert(owner) {
                continue;
            }
            for (key, other) in self.posix_waits(owner) {
                steps += 1 + self.held_count(key);
                if steps > SEARCH_STEPS_MAX {
                    return (false, steps);
                }
                open.extend(self.holders(key, other));
            }
        }
        (false, steps)
    }

    fn held_count(&self, key: &FileKey) -> usize {
        self.files.get(key).map_or(0, |file| file.held.len())
    }

    /// The ranges that an owner waits for.
    fn posix_waits(&self, owner: Owner) -> impl Iterator<Item = (&FileKey, &Waiter)> {
        let tickets = self.waits.get(&owner).into_iter().flatten();
        tickets.filter_map(|ticket| {
            let key = self.waiting.get(ticket)?;
            let waiter = self.files.get(key)?.waiting.get(ticket)?;
            (key.1 == LockKind::Posix).then_some((key, waiter))
        })
    }

    /// Who holds what `waiter` waits for.
    fn holders(&self, key: &FileKey, waiter: &Waiter) -> Vec<Owner> {
        self.files.get(key).map_or_else(Vec::new, |file| {
            file.held
                .conflicts(waiter.owner, waiter.mode, waiter.extent)
                .map(|h| h.owner)
                .collect()
        })
    }
}

impl Mode {
    fn of(mode: LockMode) -> Option<Self> {
        match mode {
            LockMode::Shared => Some(Self::Shared),
            LockMode::Exclusive => Some(Self::Exclusive),
            LockMode::Unlock => None,
        }
    }
}

#[cfg(test)]
mod tests;
