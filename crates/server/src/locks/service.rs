//! Locks at work: the table, the requests that wait for it, the time after a restart.
//!
//! After a restart, clients that held locks get [`LOCK_GRACE_TIME`] to take them again before
//! anybody else can; if the run before left none behind, there is nothing to wait for.

use super::{LockTable, Outcome, Owner, Ticket};
use crate::pool::Pool;
use crate::session::SessionKey;
use crate::steps::{Execution, Waited};
use base::limits::{LOCK_GRACE_TIME, LOCKS_GIVEN_UP_MAX};
use base::{Handle, RequestId, Time};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::message::{LockKind, LockRange};

/// What became of a lock request.
pub(crate) enum Answer {
    Granted,
    Conflict,
    Deadlock,
    Limit,
    /// It is to be parked until it is granted.
    Waiting(Ticket),
    /// It is to be parked until reclaiming is over.
    Grace,
}

#[expect(
    clippy::vec_box,
    reason = "requests go from table to table as they are"
)]
#[derive(Default)]
struct State {
    table: LockTable,
    parked: HashMap<Ticket, Box<Execution>>,
    /// Granted between the request and its being parked.
    early: HashSet<Ticket>,
    /// Until the end of the time for reclaiming.
    late: Vec<Box<Execution>>,
    /// Requests that were taken back and are not here: they may be on their way.
    given_up: VecDeque<(SessionKey, RequestId)>,
    grace_until: Time,
}

/// All locks of a server.
pub(crate) struct Locks(Mutex<State>);

impl Locks {
    /// With a time for reclaiming if the run before left locks behind.
    pub(crate) fn new(had_locks: bool, now: Time) -> Self {
        let grace_until = if had_locks {
            now + LOCK_GRACE_TIME
        } else {
            now
        };
        Self(Mutex::new(State {
            grace_until,
            ..State::default()
        }))
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "they are the fields of the request"
    )]
    pub(crate) fn lock(
        &self,
        handle: &Handle,
        owner: Owner,
        wanted: &LockRange,
        wait: bool,
        reclaim: bool,
        now: Time,
        pool: &Arc<Pool>,
    ) -> Answer {
        let mut state = self.lock_state();
        // What others have not taken again yet, they lose by none who keeps or gives up his own.
        let is_more = || !state.table.is_held(handle, owner, wanted);
        if now < state.grace_until && !reclaim && is_more() {
            return if wait {
                Answer::Grace
            } else {
                Answer::Conflict
            };
        }
        let outcome = state.table.lock(handle, owner, wanted, wait);
        let ready = state.admitted();
        drop(state);
        resume(ready, pool);
        match outcome {
            Outcome::Granted => Answer::Granted,
            Outcome::Conflict(_) => Answer::Conflict,
            Outcome::Waiting(ticket) => Answer::Waiting(ticket),
            Outcome::Deadlock => Answer::Deadlock,
            Outcome::Limit => Answer::Limit,
        }
    }

    /// Keeps a request until its lock is granted.
    pub(crate) fn park(&self, ticket: Ticket, mut request: Box<Execution>, pool: &Arc<Pool>) {
        let mut state = self.lock_state();
        let given_up = state.take_given_up(request.session().key, request.number());
        if state.early.remove(&ticket) {
            drop(state);
            request.end_wait(Waited::Granted);
            pool.push_resumed(request);
        } else if given_up && state.table.cancel(ticket) {
            let ready = state.admitted();
            drop(state);
            resume(ready, pool);
            request.end_wait(Waited::Cancelled);
            pool.push_resumed(request);
        } else if state.table.is_waiting(ticket) {
            state.parked.insert(ticket, request);
        }
        // Else its session has ended in between, and with it the request.
    }

    /// Keeps a request until the time for reclaiming is over.
    pub(crate) fn park_for_grace(&self, mut request: Box<Execution>, pool: &Arc<Pool>, now: Time) {
        let mut state = self.lock_state();
        if state.take_given_up(request.session().key, request.number()) {
            drop(state);
            request.end_wait(Waited::Cancelled);
            pool.push_resumed(request);
        } else if now >= state.grace_until {
            drop(state);
            pool.push_resumed(request);
        } else {
            state.late.push(request);
        }
    }

    /// Lets those go on that waited for the time for reclaiming to be over.
    pub(crate) fn tick(&self, now: Time, pool: &Arc<Pool>) {
        let mut state = self.lock_state();
        if now < state.grace_until || state.late.is_empty() {
            return;
        }
        let late = std::mem::take(&mut state.late);
        drop(state);
        late.into_iter()
            .for_each(|request| pool.push_resumed(request));
    }

    /// Ends the waiting of a request whose client does not want to wait any more.
    pub(crate) fn cancel(&self, session: SessionKey, id: RequestId, pool: &Arc<Pool>) {
        let mut state = self.lock_state();
        let parked = state
            .parked
            .iter()
            .find(|(_, r)| r.is(session, id))
            .map(|(t, _)| *t);
        let mut cancelled = parked.and_then(|ticket| {
            state.table.cancel(ticket);
            state.parked.remove(&ticket)
        });
        if cancelled.is_none()
            && let Some(place) = state.late.iter().position(|r| r.is(session, id))
        {
            cancelled = Some(state.late.swap_remove(place));
        }
        if cancelled.is_none() {
            // A worker may have it in hand and park it in a moment.
            if state.given_up.len() >= LOCKS_GIVEN_UP_MAX {
                state.given_up.pop_front();
            }
            state.given_up.push_back((session, id));
        }
        let ready = state.admitted();
        drop(state);
        resume(ready, pool);
        if let Some(mut request) = cancelled {
            request.end_wait(Waited::Cancelled);
            pool.push_resumed(request);
        }
    }

    /// Whether a request that waits for something else was taken back while a worker had it in
    /// hand.
    pub(crate) fn take_given_up(&self, session: SessionKey, id: RequestId) -> bool {
        self.lock_state().take_given_up(session, id)
    }

    pub(crate) fn test(
        &self,
        handle: &Handle,
        owner: Owner,
        wanted: &LockRange,
    ) -> Option<LockRange> {
        self.lock_state().table.test(handle, owner, wanted)
    }

    pub(crate) fn release(&self, handle: &Handle, owner: Owner, kind: LockKind, pool: &Arc<Pool>) {
        let mut state = self.lock_state();
        state.table.release(handle, owner, kind);
        let ready = state.admitted();
        drop(state);
        resume(ready, pool);
    }

    pub(crate) fn end_session(&self, session: SessionKey, pool: &Arc<Pool>) {
        let mut state = self.lock_state();
        state.table.end_session(session);
        state.given_up.retain(|(whose, _)| *whose != session);
        let gone = |request: &Execution| request.session().key == session;
        let parked: Vec<Ticket> = state
            .parked
            .iter()
            .filter(|(_, r)| gone(r))
            .map(|(t, _)| *t)
            .collect();
        let mut dropped: Vec<_> = parked
            .iter()
            .filter_map(|ticket| state.parked.remove(ticket))
            .collect();
        let (gone, late): (Vec<_>, _) = std::mem::take(&mut state.late)
            .into_iter()
            .partition(|r| gone(r));
        state.late = late;
        dropped.extend(gone);
        let ready = state.admitted();
        drop(state);
        drop(dropped);
        resume(ready, pool);
    }

    pub(crate) fn count(&self, session: SessionKey) -> usize {
        self.lock_state().table.count(session)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock_state().table.is_empty()
    }
}

impl State {
    /// Whether a request that is about to wait was taken back while a worker had it in hand.
    fn take_given_up(&mut self, session: SessionKey, id: RequestId) -> bool {
        let mut given_up = self.given_up.iter();
        let place = given_up.position(|known| *known == (session, id));
        place.is_some_and(|place| self.given_up.remove(place).is_some())
    }

    /// The parked requests whose locks are there now.
    #[expect(clippy::vec_box, reason = "they go to the queue as they are")]
    fn admitted(&mut self) -> Vec<Box<Execution>> {
        let mut ready = Vec::new();
        for ticket in self.table.take_admitted() {
            match self.parked.remove(&ticket) {
                Some(request) => ready.push(request),
                None => {
                    self.early.insert(ticket);
                }
            }
        }
        ready
    }
}

#[expect(clippy::vec_box, reason = "they go to the queue as they are")]
fn resume(ready: Vec<Box<Execution>>, pool: &Arc<Pool>) {
    for mut request in ready {
        request.end_wait(Waited::Granted);
        pool.push_resumed(request);
    }
}
