//! Leases at work: granting, recalling, waiting for those recalled.
//!
//! Rules (`docs/formats/wire.md` states the client's side):
//!
//! 1. A lease is recorded before the state that it covers is read ([`table`]).
//! 2. A change is carried out, then the leases of all other sessions on what changed are collected,
//!    and the changer is answered when every one of them has obeyed or its lease time is over. So
//!    after an answered change nobody believes the old state. A change of who may open a file
//!    collects them before as well: who has opened it by what a lease says has it opened here
//!    first.
//! 3. Before a session uses a directory that another one has alone, that one writes back and obeys.
//! 4. A session that was not heard for [`LEASE_TIME`] has lost all its leases; one that is heard
//!    and does not obey within [`RECALL_TIME_MAX`] is ended. One that has much to write back first
//!    has that time after each change of its that is carried out, and [`RECALL_WRITING_TIME_MAX`]
//!    in all: to end it would let others go on without what it has written. For some time after
//!    such an end ([`base::limits::DISTRUST_TIME`]), no client with the same credential gets
//!    leases, and one that still has some has less time.
//! 5. What the run before has leased is not known, but to whom ([`notes`]): for some time, whoever
//!    had leases counts as if he still had them ([`former`]). Nor is what stores have lost with it,
//!    but who has written: nobody reads there until these have written again.
//! 6. Changes made behind the server's back are reported by the kernel ([`export::Watch`]) and
//!    recalled as they come; nobody waits for these. Where they cannot be watched, nobody gets
//!    leases.
//!
//! A recall can overtake the reply that grants what it takes, because they travel on different
//! connections. The client therefore does not believe a lease in the reply to a request that it
//! sent before the recall arrived; the server may think that it holds more than it does, never
//! less.
//!
//! Nothing waits on a thread here. Who must wait leaves a continuation behind.

mod former;
mod notes;
mod recall;
pub(crate) mod table;

pub(crate) use notes::{Noted, Notes};
pub(crate) use recall::{RecallOutbox, Token};
pub(crate) use table::Moment;

use crate::clock::Clock;
use crate::session::{Session, SessionKey, Sessions};
use base::limits::{
    LEASE_TIME, RECALL_DISTRUSTED_TIME_MAX, RECALL_TIME_MAX, RECALL_WRITING_TIME_MAX,
};
use base::{Handle, Name, SessionId, Time, VolumeId};
use former::Former;
use recall::{Asked, Recalls};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use table::LeaseTable;
use wire::message::{Features, Lease, Notice, Recall, RecallItem};

/// Inodes of which leases are taken before others have their turn: a millisecond of the server's,
/// and some of a client that tells its kernel of each.
const TAKEN_AT_ONCE_MAX: usize = 256;
/// Between two such parts that nobody waits for.
const BETWEEN_PARTS: Duration = Duration::from_micros(100);

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
    former: Former,
}

impl State {
    fn collect(&mut self, by: Option<&Session>, changes: &[Change], now: Time) -> Vec<Token> {
        let by = by.map(|session| session.key);
        let mut tokens = Vec::new();
        for change in changes {
            let (handle, holders) = match change {
                Change::Inode(handle) => (handle, self.table.change_inode(by, handle, now)),
                Change::Entry(directory, _) => (directory, self.table.change_entry(by, directory)),
            };
            for holder in holders {
                let what = match change {
                    Change::Inode(_) => Recall::Everything,
                    Change::Entry(_, name) => Recall::Entry(name.clone()),
                };
                let item = RecallItem {
                    handle: handle.clone(),
                    what,
                };
                tokens.push(self.recalls.add(holder, item, now));
            }
        }
        // Nobody waits for what programs of this machine have changed.
        if let Some(by) = by.filter(|_| !changes.is_empty()) {
            tokens.extend(self.former.forget(&mut self.recalls, by, now));
        }
        tokens
    }

    /// Collects what others have alone of a directory that `by` is about to use.
    fn contest(&mut self, by: Option<SessionKey>, directory: &Handle, now: Time) -> Vec<Token> {
        let mut tokens = Vec::new();
        if let Some(holder) = self.table.contest(by, directory, now) {
            let item = RecallItem {
                handle: directory.clone(),
                what: Recall::Exclusive,
            };
            tokens.push(self.recalls.add(holder, item, now));
        }
        tokens
    }

    /// As [`Self::contest`], and what sessions of the run before may have created there.
    fn contest_all(&mut self, by: SessionKey, directory: &Handle, now: Time) -> Vec<Token> {
        let mut tokens = self.contest(Some(by), directory, now);
        tokens.extend(self.former.settle(&mut self.recalls, by, now));
        tokens
    }
}

/// All leases of a server.
pub(crate) struct Caching {
    state: Mutex<State>,
    /// See [`Self::is_writing_again`]: false is for good.
    may_be_writing_again: AtomicBool,
    sessions: Arc<Sessions>,
    notes: Notes,
    clock: Clock,
}

impl Caching {
    /// `former` had leases or wrote in the run before.
    pub(crate) fn new(
        sessions: Arc<Sessions>,
        (notes, former): (Notes, Vec<(SessionId, Noted)>),
        clock: Clock,
    ) -> Self {
        let wrote = former.iter().any(|(_, noted)| noted.writes);
        let former = sessions.expect(former);
        let run = u32::from_le_bytes(crate::data::random());
        let state = State {
            table: LeaseTable::default(),
            recalls: Recalls::of_run(run),
            former: Former::new(former, clock.now()),
        };
        Self {
            state: Mutex::new(state),
            may_be_writing_again: AtomicBool::new(wrote),
            notes,
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

    /// The session is about to use `directory`, which nobody else must have alone meanwhile.
    /// Records a lease before the state is read. `ahead`: it has used it already, when it had it
    /// alone.
    ///
    /// # Errors
    /// The tokens say whom to wait for before it is tried again.
    pub(crate) fn enter(
        &self,
        session: &Session,
        directory: &Handle,
        wanted: Lease,
        ahead: bool,
    ) -> Result<(Lease, Moment), Vec<Token>> {
        let now = self.clock.now();
        let mut state = self.lock();
        let tokens = match ahead {
            true => state.contest(Some(session.key), directory, now),
            false => state.contest_all(session.key, directory, now),
        };
        if !tokens.is_empty() {
            drop(state);
            self.announce(&tokens);
            return Err(tokens);
        }
        let moment = state.table.moment();
        let lease = self.give(&mut state, session, directory, wanted, now);
        Ok((lease, moment))
    }

    /// Records a lease, unless the session may have none.
    fn give(
        &self,
        state: &mut State,
        session: &Session,
        handle: &Handle,
        wanted: Lease,
        now: Time,
    ) -> Lease {
        if !session.may_cache(now) {
            return Lease::None;
        }
        let lease = state.table.grant(session.key, handle, wanted, now);
        if self.notes.raise(session, Noted::leased(lease)) {
            return lease;
        }
        match session.noted().lease {
            Lease::None => {
                state.table.give_back(session.key, handle, now);
                Lease::None
            }
            noted => {
                state.table.lower(session.key, handle, noted);
                noted
            }
        }
    }

    /// Records a lease before the state is read. A session that notices cannot reach gets none.
    pub(crate) fn grant(&self, session: &Session, handle: &Handle, wanted: Lease) -> Lease {
        let now = self.clock.now();
        self.give(&mut self.lock(), session, handle, wanted, now)
    }

    /// Records leases on what was found since `then`. `false` beside a lease: the inode has changed
    /// meanwhile, what was read of it must be read again.
    pub(crate) fn grant_found<'h>(
        &self,
        session: &Session,
        found: impl Iterator<Item = (&'h Handle, Lease)>,
        then: Moment,
    ) -> Vec<(Lease, bool)> {
        let now = self.clock.now();
        let mut state = self.lock();
        found
            .map(|(handle, wanted)| {
                let fresh = !state.table.changed_since(handle, then);
                let lease = self.give(&mut state, session, handle, wanted, now);
                (lease, fresh)
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
            tokens.extend(state.contest_all(session.key, handle, now));
        }
        drop(state);
        self.announce(&tokens);
        tokens
    }

    /// Collects all other sessions' leases on what `by` has changed. The tokens say whom to wait
    /// for before the change is answered.
    pub(crate) fn changed(&self, by: Option<&Session>, changes: &[Change]) -> Vec<Token> {
        let mut state = self.lock();
        let tokens = state.collect(by, changes, self.clock.now());
        drop(state);
        self.announce(&tokens);
        tokens
    }

    /// As [`Self::changed`], and records a lease on an inode that the session has found or made
    /// since `then`. `false`: it has been changed by somebody else meanwhile.
    pub(crate) fn made(
        &self,
        session: &Session,
        changes: &[Change],
        handle: &Handle,
        wanted: Lease,
        then: Moment,
    ) -> (Vec<Token>, Lease, bool) {
        let now = self.clock.now();
        let mut state = self.lock();
        let fresh = !state.table.changed_since(handle, then);
        let tokens = state.collect(Some(session), changes, now);
        let lease = self.give(&mut state, session, handle, wanted, now);
        drop(state);
        self.announce(&tokens);
        (tokens, lease, fresh)
    }

    /// Others than sessions have changed something: as [`Self::changed`], and what somebody holds
    /// alone is held by nobody alone any more.
    pub(crate) fn changed_outside(&self, changes: &[Change]) {
        let now = self.clock.now();
        let mut tokens = Vec::new();
        let mut state = self.lock();
        for change in changes {
            if let Change::Entry(directory, _) = change {
                tokens.extend(state.contest(None, directory, now));
            }
        }
        drop(state);
        self.announce(&tokens);
        self.changed(None, changes);
    }

    /// Nobody may believe anything about the inodes of which `concerns` is true. There may be a
    /// million leases on them, so they are taken a part at a time: others have this lock and the
    /// sessions' connections in between. Each part is waited for until it is obeyed, as long as
    /// that takes `patience` at most; then those behind it are not waited for.
    pub(crate) fn changed_all(&self, concerns: impl Fn(&Handle) -> bool, mut patience: Duration) {
        let held = self.lock().table.held_of(concerns);
        for part in held.chunks(TAKEN_AT_ONCE_MAX) {
            let changes: Vec<Change> = part.iter().cloned().map(Change::Inode).collect();
            let tokens = self.changed(None, &changes);
            if tokens.is_empty() {
                continue;
            }
            if patience.is_zero() {
                // Who waits for the lock would not get it from who takes it again at once.
                std::thread::sleep(BETWEEN_PARTS);
                continue;
            }
            let (obeying, obeyed) = mpsc::sync_channel(1);
            let tell = move || {
                // Nobody listens any more when it is late.
                let _ = obeying.try_send(());
            };
            self.wait(&tokens, Box::new(tell));
            if obeyed.recv_timeout(patience).is_err() {
                patience = Duration::ZERO;
            }
        }
    }

    /// Tells the writers of the sessions concerned that there is a notice to send.
    fn announce(&self, tokens: &[Token]) {
        if tokens.is_empty() {
            return;
        }
        let mut told: Vec<SessionKey> = {
            let recalls = &self.lock().recalls;
            let unsent = tokens.iter().filter(|token| recalls.is_unsent(**token));
            unsent.map(|token| token.session).collect()
        };
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
                None => self.end_unless_awaited(key),
            }
        }
    }

    /// Runs `then` once everything that the tokens stand for is obeyed, maybe at once.
    pub(crate) fn wait(&self, tokens: &[Token], then: Continuation) {
        let ready = self.lock().recalls.wait(tokens, then);
        go_on(ready);
    }

    /// For the writer of a main connection: the next notice.
    pub(crate) fn next_notice(&self, session: &Session) -> Option<Notice> {
        if !session.recalls.is_set() {
            return None;
        }
        let mut state = self.lock();
        let Some((id, asked)) = state.recalls.next_notice(session.key) else {
            session.recalls.set(false);
            return None;
        };
        Some(match asked {
            Asked::Items(items) => Notice::Recall { id, items },
            Asked::Forget => Notice::Forget { id },
            Asked::Settle => Notice::Settle { id },
            Asked::WriteAgain => Notice::WriteAgain { id },
        })
    }

    /// A new main connection: what was sent on the one before may not have arrived.
    pub(crate) fn resend(&self, session: &Session) {
        let now = self.clock.now();
        let mut state = self.lock();
        let State {
            recalls, former, ..
        } = &mut *state;
        let can_write_again = session.features().have(Features::WRITE_AGAIN);
        former.on_main(recalls, session.key, can_write_again, now);
        recalls.resend(session.key);
        drop(state);
        session.recalls.set(true);
    }

    /// The session has obeyed a recall.
    pub(crate) fn obeyed(&self, session: &Session, id: u64) {
        let ready = self.lock().recalls.obeyed(session.key, id);
        go_on(ready);
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

    /// The session is about to write into objects of the server's stores: a run that loses what is
    /// not committed there is followed by one in which it is to write that again. Where this cannot
    /// be noted, the write goes on all the same: then nobody waits for it in that run.
    pub(crate) fn writes_to_stores(&self, session: &Session) {
        self.notes.raise(session, Noted::WRITES);
        if self.may_be_writing_again.load(Ordering::Acquire) {
            // It gets on with it, maybe.
            session.note_change(self.clock.now());
        }
    }

    /// Whether somebody may not have written again yet what the stores have lost with the run
    /// before: what they have is old then.
    pub(crate) fn is_writing_again(&self) -> bool {
        if !self.may_be_writing_again.load(Ordering::Acquire) {
            return false;
        }
        let state = self.lock();
        let is_so = (state.former).is_writing_again(&state.recalls, self.clock.now());
        if !is_so {
            self.may_be_writing_again.store(false, Ordering::Release);
        }
        is_so
    }

    /// The stores have made everything durable that was written, and take no more: the next run
    /// waits for nobody to write it again, unless some are still at what the one before has lost.
    pub(crate) fn all_is_durable(&self) {
        if !self.is_writing_again() {
            self.notes.forget_writes();
        }
    }

    /// The session is over.
    pub(crate) fn end_session(&self, session: SessionKey) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.table.drop_session(session, true, now);
        state.former.end(session);
        let ready = state.recalls.drop_session(session);
        drop(state);
        go_on(ready);
    }

    /// Nobody is there: it is over, unless it may still come back from the run before.
    fn end_unless_awaited(&self, key: SessionKey) {
        let now = self.clock.now();
        if self.lock().former.is_awaited(key, now) {
            return;
        }
        if let Some(id) = self.sessions.expect_no_longer(key) {
            self.notes.remove(&[id], |id| !self.sessions.contains(id));
        }
        // Whoever has come back in this moment is found now, and nobody else comes.
        if self.sessions.by_key(key).is_none() {
            self.end_session(key);
        }
    }

    /// There is nothing left of this session: the next run need not wait for it.
    pub(crate) fn forget_session(&self, session: &Session) {
        self.notes.remove(&[session.id], |_| true);
    }

    /// Which sessions have used a volume, as far as they are noted: those that have leases or have
    /// written into stores, and those of the run before that are back or may still come back.
    pub(crate) fn noted_users(&self, volume: VolumeId) -> Vec<SessionId> {
        self.notes.users(volume)
    }

    /// Gives up on sessions that are silent, and returns those that are not and yet do not obey;
    /// they must be ended.
    pub(crate) fn expire(&self) -> Vec<Arc<Session>> {
        self.expire_at(self.clock.now())
    }

    fn expire_at(&self, now: Time) -> Vec<Arc<Session>> {
        let waiting: Vec<(SessionKey, Time)> = self.lock().recalls.oldest();
        let mut disobedient = Vec::new();
        for (key, since) in waiting {
            let Some(session) = self.sessions.by_key(key) else {
                self.end_unless_awaited(key);
                continue;
            };
            if now.since(session.heard()) > LEASE_TIME {
                tracing::info!(host = session.host, "leases of a silent client are over");
                let mut state = self.lock();
                state.table.drop_session(key, false, now);
                let ready = state.recalls.drop_session(key);
                drop(state);
                go_on(ready);
                continue;
            }
            let time_max = match session.share.is_distrusted(now) {
                true => RECALL_DISTRUSTED_TIME_MAX,
                false => RECALL_TIME_MAX,
            };
            if now.since(since.max(session.changed())) > time_max
                || now.since(since) > RECALL_WRITING_TIME_MAX
            {
                self.sessions.distrust(&session, now);
                disobedient.push(session);
            }
        }
        disobedient
    }

    /// Forgets what nobody holds.
    pub(crate) fn sweep(&self) {
        let now = self.clock.now();
        let mut state = self.lock();
        let State {
            table,
            recalls,
            former,
        } = &mut *state;
        table.sweep(now);
        let is_over = former.sweep(recalls, now);
        drop(state);
        if is_over {
            let gone = self.sessions.expect_none();
            self.notes.remove(&gone, |id| !self.sessions.contains(id));
        }
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

/// Lets go on what has waited. Whoever obeys, gives up or ends is not to suffer from it: where one
/// of them panics, its request stays without a reply, and the others go on.
fn go_on(ready: impl IntoIterator<Item = Continuation>) {
    for then in ready {
        if std::panic::catch_unwind(AssertUnwindSafe(then)).is_err() {
            // The message has gone to standard error.
            tracing::error!("what waited for a recall ended by a panic");
        }
    }
}

#[cfg(test)]
mod tests;
