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
use crate::locks::{Locks, LocksNoted};
use crate::manager::Manager;
use crate::pool::Pool;
use crate::session::{Session, Sessions};
use crate::storage::{Scrubs, Storage};
use crate::volume::{Ground, Volumes};
use base::RequestId;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
