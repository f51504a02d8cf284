//! Recalls under way: a pure structure.
//!
//! What is to be recalled from a session gathers in batches. A batch that has not been sent yet
//! takes further items, so that a burst of changes makes few notices; the writer of the session's
//! main connection takes one when the socket is free. A batch stays until the session has obeyed
//! it, and is sent again on a new connection.

use crate::session::SessionKey;
use base::Time;
use base::limits::RECALL_ITEMS_MAX;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use wire::message::RecallItem;

/// A batch that must be obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    pub(crate) session: SessionKey,
    batch: u64,
}

/// A session's mark that there is something to send.
#[derive(Default)]
pub(crate) struct RecallOutbox(AtomicBool);

impl RecallOutbox {
    pub(super) fn set(&self, waiting: bool) {
        self.0.store(waiting, Ordering::Release);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// What a session is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// To give these back.
    Items(Vec<RecallItem>),
    /// To forget what the run before has told it.
    Forget,
    /// To send what it had created or removed ahead in the run before.
    Settle,
    /// To write again what stores may have lost with the run before.
    WriteAgain,
}

struct Batch {
    asked: Asked,
    since: Time,
    sent: bool,
    waits: Vec<u64>,
}

struct Outstanding {
    last_batch: u64,
    batches: BTreeMap<u64, Batch>,
}

struct Wait<C> {
    remaining: usize,
    then: C,
}

/// Recalls of all sessions, and what waits for them.
pub(super) struct Recalls<C> {
    sessions: HashMap<SessionKey, Outstanding>,
    waits: HashMap<u64, Wait<C>>,
    last_wait: u64,
    /// After this number, batches are counted. Each run has another: what obeys a batch of the run
    /// before may arrive in this one.
    first: u64,
}

impl<C> Default for Recalls<C> {
    fn default() -> Self {
        Self {
            sessions: HashMap::new(),
            waits: HashMap::new(),
            last_wait: 0,
            first: 0,
        }
    }
}

impl<C> Recalls<C> {
    /// For one run of the server.
    pub(super) fn of_run(run: u32) -> Self {
        Self {
            first: u64::from(run) << 32,
            ..Self::default()
        }
    }

    /// Notes that `item` is to be recalled.
    pub(super) fn add(&mut self, session: SessionKey, item: RecallItem, now: Time) -> Token {
        let outstanding = self.sessions.get_mut(&session);
        if let Some(outstanding) = outstanding
            && let Some((id, last)) = outstanding.batches.iter_mut().next_back()
            && !last.sent
            && let Asked::Items(items) = &mut last.asked
        {
            if items.contains(&item) {
                return Token {
                    session,
                    batch: *id,
                };
            }
            if items.len() < RECALL_ITEMS_MAX {
                items.push(item);
                return Token {
                    session,
                    batch: *id,
                };
            }
        }
        self.ask(session, Asked::Items(vec![item]), now)
    }

    /// Notes that something is to be asked, in a batch of its own.
    pub(super) fn ask(&mut self, session: SessionKey, asked: Asked, since: Time) -> Token {
        let first = self.first;
        let outstanding = self.sessions.entry(session).or_insert_with(|| Outstanding {
            last_batch: first,
            batches: BTreeMap::new(),
        });
        outstanding.last_batch += 1;
        let batch = Batch {
            asked,
            since,
            sent: false,
            waits: Vec::new(),
        };
        outstanding.batches.insert(outstanding.last_batch, batch);
        Token {
            session,
            batch: outstanding.last_batch,
        }
    }

    /// Whether the batch has not been obeyed, and still must be.
    pub(super) fn is_open(&self, token: Token) -> bool {
        let outstanding = self.sessions.get(&token.session);
        outstanding.is_some_and(|outstanding| outstanding.batches.contains_key(&token.batch))
    }

    /// Whether the batch is to be sent.
    pub(super) fn is_unsent(&self, token: Token) -> bool {
        let outstanding = self.sessions.get(&token.session);
        let batch = outstanding.and_then(|outstanding| outstanding.batches.get(&token.batch));
        batch.is_some_and(|batch| !batch.sent)
    }

    /// Keeps `then` until all batches are obeyed; gives it back if they are.
    pub(super) fn wait(&mut self, tokens: &[Token], then: C) -> Option<C> {
        let mut tokens = tokens.to_vec();
        tokens.sort_unstable_by_key(|t| (t.session, t.batch));
        tokens.dedup();
        let id = self.last_wait + 1;
        let mut remaining = 0;
        for token in tokens {
            let batch = self
                .sessions
                .get_mut(&token.session)
                .and_then(|outstanding| outstanding.batches.get_mut(&token.batch));
            if let Some(batch) = batch {
                batch.waits.push(id);
                remaining += 1;
            }
        }
        if remaining == 0 {
            return Some(then);
        }
        self.last_wait = id;
        self.waits.insert(id, Wait { remaining, then });
        None
    }

    /// The next batch to send to a session.
    pub(super) fn next_notice(&mut self, session: SessionKey) -> Option<(u64, Asked)> {
        let batches = &mut self.sessions.get_mut(&session)?.batches;
        let (id, batch) = batches.iter_mut().find(|(_, batch)| !batch.sent)?;
        batch.sent = true;
        Some((*id, batch.asked.clone()))
    }

    /// All batches must be sent again.
    pub(super) fn resend(&mut self, session: SessionKey) {
        if let Some(outstanding) = self.sessions.get_mut(&session) {
            outstanding
                .batches
                .values_mut()
                .for_each(|batch| batch.sent = false);
        }
    }

    /// A batch is obeyed; what may go on now. Numbers that were never given are ignored.
    pub(super) fn obeyed(&mut self, session: SessionKey, id: u64) -> Vec<C> {
        let Some(outstanding) = self.sessions.get_mut(&session) else {
            return Vec::new();
        };
        // What has not been sent cannot have been obeyed.
        if !outstanding.batches.get(&id).is_some_and(|batch| batch.sent) {
            return Vec::new();
        }
        let batch = outstanding.batches.remove(&id);
        self.release(batch.into_iter().flat_map(|b| b.waits))
    }

    /// Nothing is expected of a session any more; what may go on now.
    pub(super) fn drop_session(&mut self, session: SessionKey) -> Vec<C> {
        let Some(outstanding) = self.sessions.get_mut(&session) else {
            return Vec::new();
        };
        // The count goes on: a late answer to an old batch must not obey a new one.
        let batches = std::mem::take(&mut outstanding.batches);
        self.release(batches.into_values().flat_map(|b| b.waits))
    }

    fn release(&mut self, waits: impl Iterator<Item = u64>) -> Vec<C> {
        let mut ready = Vec::new();
        for id in waits {
            let Some(wait) = self.waits.get_mut(&id) else {
                continue;
            };
            wait.remaining -= 1;
            if wait.remaining == 0 {
                ready.extend(self.waits.remove(&id).map(|w| w.then));
            }
        }
        ready
    }

    /// Sessions that have not obeyed, each with the age of its oldest batch.
    pub(super) fn oldest(&self) -> Vec<(SessionKey, Time)> {
        let oldest = |(key, outstanding): (&SessionKey, &Outstanding)| {
            outstanding
                .batches
                .values()
                .map(|b| b.since)
                .min()
                .map(|since| (*key, since))
        };
        self.sessions.iter().filter_map(oldest).collect()
    }

    pub(super) fn is_recalling(&self) -> bool {
        self.sessions
            .values()
            .any(|outstanding| !outstanding.batches.is_empty())
    }
}
