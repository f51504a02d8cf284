//! Sessions of the run before, which had leases.
//!
//! Clients believe what that run has leased to them for up to [`base::limits::LEASE_TRUST_TIME`]
//! after it has answered them last, or until they have heard of the new one; and what they have
//! created ahead in a directory of their own is on its way. Nobody knows here what they had. So for
//! [`LEASE_TIME`] from the start on:
//!
//! * **Who changes anything** waits until each of them is back and has forgotten everything. That
//!   is one recall without items for each: it can be obeyed at once, whatever else is under way.
//! * **Who uses a directory** waits until each of them that ever had a directory alone is back and
//!   has sent what it had created or removed there. That is one recall for each directory, alone in
//!   its batch: to obey it, the client creates files there, for which others obey in turn; they can
//!   if they need not send anything from elsewhere first.
//!
//! Who does not come back is waited for no longer than that.

use super::recall::{Recalls, Token};
use crate::session::SessionKey;
use base::limits::{CHANGED_FILES_MAX, LEASE_TIME};
use base::{Handle, Time};
use std::collections::HashMap;
use wire::message::{Lease, Recall, RecallItem};

/// Recalls that one session is to obey, before those who want more wait for them.
const ASKED_AT_ONCE_MAX: usize = 4096;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Former {
    /// Each with the best lease that it had.
    sessions: HashMap<SessionKey, Lease>,
    until: Time,
    /// What they have been asked for: to forget everything, or to send what belongs into a
    /// directory.
    asked: HashMap<(SessionKey, Option<Handle>), Token>,
}

impl Former {
    pub(super) fn new(sessions: Vec<(SessionKey, Lease)>, now: Time) -> Self {
        Self {
            sessions: sessions.into_iter().collect(),
            until: now + LEASE_TIME,
            asked: HashMap::new(),
        }
    }

    /// Whether something may be believed in a session that nobody has opened here yet.
    pub(super) fn is_awaited(&self, key: SessionKey, now: Time) -> bool {
        now < self.until && self.sessions.contains_key(&key)
    }

    /// Whom `by` is to wait for before its change is answered.
    pub(super) fn forget<C>(
        &mut self,
        recalls: &mut Recalls<C>,
        by: SessionKey,
        now: Time,
    ) -> Vec<Token> {
        self.ask(recalls, by, None, now)
    }

    /// Whom `by` is to wait for before it uses a directory, or what may be one.
    pub(super) fn settle<C>(
        &mut self,
        recalls: &mut Recalls<C>,
        by: SessionKey,
        directory: &Handle,
        now: Time,
    ) -> Vec<Token> {
        self.ask(recalls, by, Some(directory), now)
    }

    fn ask<C>(
        &mut self,
        recalls: &mut Recalls<C>,
        by: SessionKey,
        directory: Option<&Handle>,
        now: Time,
    ) -> Vec<Token> {
        if now >= self.until || self.sessions.is_empty() {
            return Vec::new();
        }
        let needed = match directory {
            None => Lease::Read,
            Some(_) => Lease::Exclusive,
        };
        let others = self.sessions.iter();
        let others = others.filter(|(key, lease)| **key != by && **lease >= needed);
        let mut tokens = Vec::new();
        for (key, _) in others {
            let asked = (*key, directory.cloned());
            let token = match self.asked.get(&asked) {
                Some(token) => *token,
                None => {
                    if let Some(last) = recalls.last_of(*key, ASKED_AT_ONCE_MAX) {
                        tokens.push(last);
                        continue;
                    }
                    let item = directory.map(|directory| RecallItem {
                        handle: directory.clone(),
                        what: Recall::Exclusive,
                    });
                    let token = recalls.add_alone(*key, item, now);
                    if self.asked.len() < CHANGED_FILES_MAX {
                        self.asked.insert(asked, token);
                    }
                    token
                }
            };
            if recalls.is_open(token) {
                tokens.push(token);
            }
        }
        tokens
    }

    /// The session is over.
    pub(super) fn end(&mut self, key: SessionKey) {
        self.sessions.remove(&key);
    }

    /// Frees the memory when the time is over. Whether that was now.
    pub(super) fn sweep(&mut self, now: Time) -> bool {
        let is_over = now >= self.until && !self.sessions.is_empty();
        if is_over {
            *self = Self::default();
        }
        is_over
    }
}
