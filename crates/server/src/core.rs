//! What all parts of a server share.
//!
//! One value, made at the start and shared by reference count. Each part guards its own state; none
//! is locked while a system call on a served file runs, but [`Core::creating`], and no two are
//! locked at once but in the order note of locks, sessions, leases, locks, pool.

use crate::again::Again;
use crate::background::Background;
use crate::buffers::Buffers;
use crate::clock::Clock;
use crate::cluster::{Cluster, JoinedMember};
use crate::data::{DataDirectory, Members, Registry, ValidCredentials};
use crate::journal::Journal;
use crate::judge::Judge;
use crate::lead::Lead;
use crate::lease::Caching;
use crate::link::{Link, LinkKey};
use crate::locks::Locks;
use crate::manager::Manager;
use crate::pool::Pool;
use crate::session::{Session, Sessions};
use crate::storage::{Scrubs, Storage};
use crate::volume::{Ground, Volumes};
use base::RequestId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use wire::frame::Frame;
use wire::identity::ClientVerifier;
use wire::message::{Farewell, Settled};

/// A server's parts.
pub(crate) struct Core {
    pub(crate) data: DataDirectory,
    pub(crate) registry: Mutex<Registry>,
    /// Held while a volume is made, from the look at the others on; before any other lock, and
    /// while an exported directory is looked at.
    pub(crate) creating: Mutex<()>,
    pub(crate) credentials: Arc<ValidCredentials>,
    pub(crate) volumes: Volumes,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) caching: Caching,
    pub(crate) locks: Locks,
    pub(crate) again: Again,
    pub(crate) journal: Journal,
    pub(crate) judge: Judge,
    pub(crate) buffers: Buffers,
    pub(crate) pool: Arc<Pool>,
    pub(crate) manager: Manager,
    pub(crate) storage: Arc<Storage>,
    pub(crate) cluster: Arc<Cluster>,
    /// Of one of several managers: its seat.
    pub(crate) lead: Option<Arc<Lead>>,
    /// Of a manager: who has joined.
    pub(crate) members: Option<Mutex<Members>>,
    /// Of a server that has joined.
    pub(crate) member: Option<JoinedMember>,
    pub(crate) clock: Clock,
    /// Where tasks run.
    pub(crate) runtime: tokio::runtime::Handle,
    pub(crate) client_verifier: ClientVerifier,
    pub(crate) background: Background,
    pub(crate) scrubs: Scrubs,
    pub(crate) stopping: AtomicBool,
    pub(crate) last_link: AtomicU64,
    /// Whether the disk says that locks are held.
    pub(crate) locks_noted: LocksNoted,
}

/// Whether it is noted that locks are held: should this run end suddenly, the next one gives their
/// holders time to take them again. Nobody is told that he has a lock before it is certain.
pub(crate) struct LocksNoted {
    /// It is noted. Changed while `writing` is held.
    is_certain: AtomicBool,
    /// It may be noted.
    is_possible: AtomicBool,
    /// How many locks were taken back because of what could not be noted.
    taken_back: AtomicU64,
    /// Held while it is noted, or is not any more.
    writing: Mutex<()>,
}

/// What became of the note for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noting {
    /// The lock's holder may be told.
    Noted,
    /// The lock was taken back.
    Failed,
    /// It is noted, but locks were taken back meanwhile, perhaps this one: it is to be asked for
    /// again.
    Again,
}

impl LocksNoted {
    pub(crate) fn new(had_locks: bool) -> Self {
        Self {
            is_certain: AtomicBool::new(had_locks),
            is_possible: AtomicBool::new(had_locks),
            taken_back: AtomicU64::new(0),
            writing: Mutex::new(()),
        }
    }

    /// How many locks were taken back; to be asked before a lock is taken.
    pub(crate) fn taken_back(&self) -> u64 {
        self.taken_back.load(Ordering::SeqCst)
    }

    /// Whether a lock that has been taken may be told of whenever that was.
    pub(crate) fn was_always_certain(&self) -> bool {
        self.is_certain.load(Ordering::SeqCst) && self.taken_back() == 0
    }

    /// A lock was taken, before which so many were `taken_back`. Makes the note if it is not there
    /// and waits for whoever is at it; of those only the first one tries. Without the note the lock
    /// is taken back before anybody else can rely on it. Blocks.
    pub(crate) fn note(
        &self,
        taken_back: u64,
        write: impl FnOnce() -> bool,
        take_back: impl FnOnce(),
    ) -> Noting {
        // In this order: no lock is taken back while it is certain.
        if self.is_certain.load(Ordering::SeqCst) && self.taken_back() == taken_back {
            return Noting::Noted;
        }
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = self.taken_back() == taken_back;
        if self.is_certain.load(Ordering::SeqCst) {
            return if is_fresh {
                Noting::Noted
            } else {
                Noting::Again
            };
        }
        self.is_possible.store(true, Ordering::SeqCst);
        if is_fresh && write() {
            self.is_certain.store(true, Ordering::SeqCst);
            return Noting::Noted;
        }
        take_back();
        self.taken_back.fetch_add(1, Ordering::SeqCst);
        Noting::Failed
    }

    /// Whether there may be a note to be taken back.
    pub(crate) fn is_possible(&self) -> bool {
        self.is_possible.load(Ordering::SeqCst)
    }

    /// Takes the note back if there are no locks, unless somebody is at it. Blocks.
    pub(crate) fn clear(&self, is_empty: impl FnOnce() -> bool, write: impl FnOnce() -> bool) {
        let _writing = match self.writing.try_lock() {
            Ok(writing) => writing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // Whoever takes a lock after the look at them finds it uncertain, and waits.
        let was_certain = self.is_certain.swap(false, Ordering::SeqCst);
        if !is_empty() {
            self.is_certain.store(was_certain, Ordering::SeqCst);
        } else if write() {
            self.is_possible.store(false, Ordering::SeqCst);
        }
    }
}

/// How a session ends.
pub(crate) enum Ending {
    /// Its client asked for it, on this connection, where the reply is the last frame.
    Goodbye { link: Arc<Link>, reply: Frame },
    /// It has not been heard for too long.
    Silent,
    /// It does not keep to the protocol, or may not be here any more.
    Broken(Farewell),
}

impl Core {
    /// Held while a change waits for the disk: for administration only.
    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What volumes are opened with.
    pub(crate) fn ground(&self) -> Ground<'_> {
        Ground {
            data: &self.data,
            cluster: &self.cluster,
            lead: self.lead.as_ref(),
            runtime: &self.runtime,
        }
    }

    /// A number for a new connection.
    pub(crate) fn next_link(&self) -> LinkKey {
        LinkKey(self.last_link.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Notes whether sessions hold locks; says whether that is certain. Blocks.
    pub(crate) fn mark_locks(&self, held: bool) -> bool {
        match &self.lead {
            Some(lead) => lead.mark_locks(held),
            None => {
                self.data.mark_locks(held);
                self.data.had_locks() == held
            }
        }
    }

    /// Whether this server may say anything: one of several managers only while it leads.
    pub(crate) fn may_speak(&self) -> bool {
        self.lead.as_ref().is_none_or(|lead| lead.is_trusted())
    }

    /// Ends a session: its connections and leases go at once, its opens and locks when no worker is
    /// at one of its requests any more. So nobody gets a lock that a write of the session before
    /// might still disturb, and after the goodbye's reply nothing changes in its name. Until then
    /// its client does not get in again, where its own locks would be in its way.
    pub(crate) fn end_session(self: &Arc<Self>, session: &Arc<Session>, ending: Ending) {
        let Some(links) = session.end(self.clock.now()) else {
            return;
        };
        let (why, last) = match ending {
            Ending::Silent => (None, None),
            Ending::Broken(why) => (Some(why), None),
            Ending::Goodbye { link, reply } => (None, Some((link, reply))),
        };
        for link in links {
            if last.as_ref().is_none_or(|(own, _)| own.key != link.key) {
                link.close(why.as_ref());
            }
        }
        self.sessions.set_ending(session);
        self.caching.end_session(session.key);
        let (core, ended) = (self.clone(), session.clone());
        session.at_rest(move || core.clear_session(&ended, last));
    }

    /// Nothing is left of the session when its client reads the reply to its goodbye.
    fn clear_session(&self, session: &Session, goodbye: Option<(Arc<Link>, Frame)>) {
        self.locks.end_session(session.key, &self.pool);
        let waiting = session.memory().close();
        drop(waiting);
        drop(session.opens.take_all());
        // Files that it wrote to through these.
        self.caching.end_session(session.key);
        if goodbye.is_some() {
            self.sessions.note_goodbye(session.id);
        }
        // While nobody can begin it anew.
        self.caching.forget_session(session);
        self.sessions.remove(session);
        if let Some((link, reply)) = goodbye {
            link.end(Some(reply));
            // It asks for nothing again.
            let all = Settled::all_below(RequestId(u64::MAX));
            self.journal.settle(session.id, &all);
            for volume in self.volumes.list() {
                if let Some(parallel) = volume.tree.parallel() {
                    parallel.note_goodbye(session.id);
                }
            }
        }
        tracing::info!(host = session.host, key = session.key.0, "session ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn nobody_has_a_lock_before_it_is_noted_that_locks_are_held() {
        let noted = LocksNoted::new(false);
        let (begin, has_begun) = mpsc::channel();
        let (finish, may_finish) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        thread::scope(|scope| {
            let (noted, other) = (&noted, answer.clone());
            scope.spawn(move || {
                let write = || {
                    begin.send(()).expect("it is waited for");
                    may_finish.recv().expect("it is told")
                };
                let noting = noted.note(0, write, || panic!("it is noted"));
                answer.send(noting).expect("it is waited for");
            });
            has_begun.recv().expect("it writes");
            scope.spawn(move || {
                let noting = noted.note(0, || panic!("it is noted"), || panic!("it is noted"));
                other.send(noting).expect("it is waited for");
            });
            let early = answers.recv_timeout(Duration::from_millis(100));
            assert!(early.is_err(), "{early:?}");
            finish.send(true).expect("it waits");
            for _ in 0..2 {
                assert_eq!(answers.recv(), Ok(Noting::Noted));
            }
        });
    }

    #[test]
    fn what_could_not_be_noted_is_taken_back_and_noted_for_the_next_one() {
        let noted = LocksNoted::new(false);
        let mut taken_back = 0;
        assert_eq!(noted.note(0, || false, || taken_back += 1), Noting::Failed);
        // It was asked for before that, and waited.
        let no = || panic!("it is not tried again for this one");
        assert_eq!(noted.note(0, no, || taken_back += 1), Noting::Failed);
        assert!(noted.is_possible() && !noted.was_always_certain());
        let before = noted.taken_back();
        assert_eq!((before, taken_back), (2, 2));
        assert_eq!(noted.note(before, || true, never_back), Noting::Noted);
        let never = || panic!("it is noted");
        assert_eq!(noted.note(before, never, never_back), Noting::Noted);
        assert_eq!(noted.note(0, never, never_back), Noting::Again);
    }

    fn never_back() {
        panic!("nothing is taken back");
    }

    #[test]
    fn the_note_goes_only_when_no_lock_is_held() {
        let noted = LocksNoted::new(true);
        noted.clear(|| false, || panic!("a lock is held"));
        assert!(noted.is_possible() && noted.was_always_certain());
        // It may be gone, so the next lock makes it anew.
        noted.clear(|| true, || false);
        assert!(noted.is_possible() && !noted.was_always_certain());
        assert_eq!(noted.note(0, || true, never_back), Noting::Noted);
        noted.clear(|| true, || true);
        assert!(!noted.is_possible());
        let mut is_written = false;
        let write = || {
            is_written = true;
            true
        };
        assert_eq!(noted.note(0, write, never_back), Noting::Noted);
        assert!(is_written);
    }
}
