//! Leases at work: granting, recalling, waiting for those recalled.
//!
//! Rules (`docs/semantics.md` states what users may rely on):
//!
//! 1. A lease is recorded before the state that it covers is read ([`table`]).
//! 2. A change is carried out, then the leases of all other sessions on what changed are collected,
//!    and the changer is answered when every one of them has obeyed or its lease time is over. So
//!    after an answered change nobody believes the old state.
//! 3. Before a session uses a directory that another one has alone, that one writes back and obeys.
//! 4. A session that was not heard for [`LEASE_TIME`] has lost all its leases; one that is heard and
//!    does not obey within [`RECALL_TIME_MAX`] is ended.
//! 5. Changes made behind the server's back are reported by the kernel ([`export::Watch`]) and recalled
//!    as they come; nobody waits for these. Where they cannot be watched, nobody gets leases.
//!
//! A recall can overtake the reply that grants what it takes, because they travel on different
//! connections. The client therefore does not believe a lease in the reply to a request that it sent
//! before the recall arrived; the server may think that it holds more than it does, never less.
//!
//! Nothing waits on a thread here. Who must wait leaves a continuation ([`Wait`]) behind.

mod recall;
pub(crate) mod table;

pub(crate) use recall::{RecallOutbox, Token};
pub(crate) use table::Moment;

use crate::clock::Clock;
use crate::session::{Session, SessionKey, Sessions};
use base::limits::{LEASE_TIME, RECALL_TIME_MAX};
use base::{Handle, Name, Time};
use recall::Recalls;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use table::LeaseTable;
use wire::message::{Lease, Notice, Recall, RecallItem};

/// What goes on when all recalls that something waits for are obeyed.
pub(crate) type Continuation = Box<dyn FnOnce() + Send>;

/// Something that has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// An inode: data, attributes, links.
    Inode(Handle),
    /// A name in a directory, and with it the directory's attributes.
    Entry(Handle, Name),
}

struct State {
    table: LeaseTable,
    recalls: Recalls<Continuation>,
}

/// All leases of a server.
pub(crate) struct Caching {
    state: Mutex<State>,
    sessions: Arc<Sessions>,
    clock: Clock,
}

impl Caching {
    pub(crate) fn new(sessions: Arc<Sessions>, clock: Clock) -> Self {
        let state = State {
            table: LeaseTable::default(),
            recalls: Recalls::default(),
        };
        Self {
            state: Mutex::new(state),
            sessions,
            clock,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Now, in changes; taken before a look-up whose result is leased afterwards.
    pub(crate) fn moment(&self) -> Moment {
        self.lock().table.moment()
    }

    /// Records a lease before the state is read. A session that notices cannot reach gets none.
    pub(crate) fn grant(&self, session: &Session, handle: &Handle, wanted: Lease) -> Lease {
        if session.main().is_none() || session.has_ended() {
            return Lease::None;
        }
        self.lock()
            .table
            .grant(session.key, handle, wanted, self.clock.now())
    }

    /// Records leases on what was found since `then`. `false` beside a lease: the inode has changed
    /// meanwhile, what was read of it must be read again.
    pub(crate) fn grant_found<'h>(
        &self,
        session: &Session,
        found: impl Iterator<Item = (&'h Handle, Lease)>,
        then: Moment,
    ) -> Vec<(Lease, bool)> {
        if session.main().is_none() || session.has_ended() {
            return found.map(|_| (Lease::None, true)).collect();
        }
        let now = self.clock.now();
        let mut state = self.lock();
        found
            .map(|(handle, wanted)| {
                let fresh = !state.table.changed_since(handle, then);
                (state.table.grant(session.key, handle, wanted, now), fresh)
            })
            .collect()
    }

    /// The session is about to use these directories; the tokens say whom to wait for.
    pub(crate) fn contest<'h>(
        &self,
        session: &Session,
        directories: impl Iterator<Item = &'h Handle>,
    ) -> Vec<Token> {
        let now = self.clock.now();
        let mut tokens = Vec::new();
        let mut state = self.lock();
        for handle in directories {
            if let Some(holder) = state.table.contest(Some(session.key), handle, now) {
                let item = RecallItem {
                    handle: handle.clone(),
                    what: Recall::Exclusive,
                };
                tokens.push(state.recalls.add(holder, item, now));
            }
        }
        drop(state);
        self.announce(&tokens);
        tokens
    }

    /// Collects all other sessions' leases on what `by` has changed. The tokens say whom to wait for
    /// before the change is answered.
    pub(crate) fn changed(&self, by: Option<&Session>, changes: &[Change]) -> Vec<Token> {
        let now = self.clock.now();
        let by = by.map(|session| session.key);
        let mut tokens = Vec::new();
        let mut state = self.lock();
        for change in changes {
            let (holders, item) = match change {
                Change::Inode(handle) => (
                    state.table.change_inode(by, handle, now),
                    RecallItem {
                        handle: handle.clone(),
                        what: Recall::Everything,
                    },
                ),
                Change::Entry(directory, name) => (
                    state.table.change_entry(by, directory),
                    RecallItem {
                        handle: directory.clone(),
                        what: Recall::Entry(name.clone()),
                    },
                ),
            };
            for holder in holders {
                tokens.push(state.recalls.add(holder, item.clone(), now));
            }
        }
        drop(state);
        self.announce(&tokens);
        tokens
    }

    /// Others than sessions have changed something: as [`Self::changed`], and what somebody holds
    /// alone is held by nobody alone any more.
    pub(crate) fn changed_outside(&self, changes: &[Change]) {
        let now = self.clock.now();
        let mut tokens = Vec::new();
        let mut state = self.lock();
        for change in changes {
            if let Change::Entry(directory, _) = change
                && let Some(holder) = state.table.contest(None, directory, now)
            {
                let item = RecallItem {
                    handle: directory.clone(),
                    what: Recall::Exclusive,
                };
                tokens.push(state.recalls.add(holder, item, now));
            }
        }
        drop(state);
        self.announce(&tokens);
        self.changed(None, changes);
    }

    /// Nobody may believe anything about the inodes of which `concerns` is true.
    pub(crate) fn changed_all(&self, concerns: impl Fn(&Handle) -> bool) {
        let now = self.clock.now();
        let mut state = self.lock();
        let lost = state.table.take_all(concerns, now);
        let recalls = lost.into_iter().map(|(session, handle)| {
            state.recalls.add(
                session,
                RecallItem {
                    handle,
                    what: Recall::Everything,
                },
                now,
            )
        });
        let tokens: Vec<Token> = recalls.collect();
        drop(state);
        self.announce(&tokens);
    }

    /// Tells the writers of the sessions concerned that there is a notice to send.
    fn announce(&self, tokens: &[Token]) {
        let mut told: Vec<SessionKey> = tokens.iter().map(|t| t.session).collect();
        told.sort_unstable();
        told.dedup();
        for key in told {
            match self.sessions.by_key(key) {
                Some(session) => {
                    session.recalls.set(true);
                    if let Some(main) = session.main() {
                        main.wake();
                    }
                }
                None => self.end_session(key),
            }
        }
    }

    /// Runs `then` once everything that the tokens stand for is obeyed, maybe at once.
    pub(crate) fn wait(&self, tokens: &[Token], then: Continuation) {
        let ready = self.lock().recalls.wait(tokens, then);
        ready.into_iter().for_each(|go_on| go_on());
    }

    /// For the writer of a main connection: the next notice.
    pub(crate) fn next_notice(&self, session: &Session) -> Option<Notice> {
        if !session.recalls.is_set() {
            return None;
        }
        let mut state = self.lock();
        let Some((id, items)) = state.recalls.next_notice(session.key) else {
            session.recalls.set(false);
            return None;
        };
        Some(Notice::Recall { id, items })
    }

    /// A new main connection: what was sent on the one before may not have arrived.
    pub(crate) fn resend(&self, session: &Session) {
        self.lock().recalls.resend(session.key);
        session.recalls.set(true);
    }

    /// The session has obeyed a recall.
    pub(crate) fn obeyed(&self, session: &Session, id: u64) {
        let ready = self.lock().recalls.obeyed(session.key, id);
        ready.into_iter().for_each(|go_on| go_on());
    }

    /// The session does not cache these any more.
    pub(crate) fn give_back(&self, session: &Session, handles: &[Handle]) {
        let now = self.clock.now();
        let mut state = self.lock();
        for handle in handles {
            state.table.give_back(session.key, handle, now);
        }
    }

    /// The session has one more open for writing of this file, or one less.
    pub(crate) fn writes(&self, session: &Session, handle: &Handle, writes: bool) {
        let now = self.clock.now();
        let mut state = self.lock();
        if writes {
            state.table.add_writer(session.key, handle);
        } else {
            state.table.remove_writer(session.key, handle, now);
        }
    }

    /// The session is over.
    pub(crate) fn end_session(&self, session: SessionKey) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.table.drop_session(session, true, now);
        let ready = state.recalls.drop_session(session);
        drop(state);
        ready.into_iter().for_each(|go_on| go_on());
    }

    /// Gives up on sessions that are silent, and returns those that are not and yet do not obey; they
    /// must be ended.
    pub(crate) fn expire(&self) -> Vec<Arc<Session>> {
        let now = self.clock.now();
        let waiting: Vec<(SessionKey, Time)> = self.lock().recalls.oldest();
        let mut disobedient = Vec::new();
        for (key, since) in waiting {
            let Some(session) = self.sessions.by_key(key) else {
                self.end_session(key);
                continue;
            };
            if now.since(session.heard()) > LEASE_TIME {
                tracing::info!(host = session.host, "leases of a silent client are over");
                let mut state = self.lock();
                state.table.drop_session(key, false, now);
                let ready = state.recalls.drop_session(key);
                drop(state);
                ready.into_iter().for_each(|go_on| go_on());
            } else if now.since(since) > RECALL_TIME_MAX {
                disobedient.push(session);
            }
        }
        disobedient
    }

    /// Forgets what nobody holds.
    pub(crate) fn sweep(&self) {
        let now = self.clock.now();
        self.lock().table.sweep(now);
    }

    /// Whether anybody waits for a recall.
    pub(crate) fn is_recalling(&self) -> bool {
        self.lock().recalls.is_recalling()
    }

    /// Leases of a session.
    pub(crate) fn count(&self, session: SessionKey) -> usize {
        self.lock().table.count(session)
    }
}

#[cfg(test)]
mod tests;
