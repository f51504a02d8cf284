//! Sessions of the run before, which had leases or wrote into stores.
//!
//! Clients believe what that run has leased to them for up to [`base::limits::LEASE_TRUST_TIME`]
//! after it has answered them last, or until they have heard of the new one; and what they have
//! created ahead in a directory of their own is on its way. Nobody knows here what they had. So:
//!
//! * **Who changes anything** waits until each of them has forgotten everything, and what it had
//!   stored is durable. A client can do that at once, whatever else is under way.
//! * **Who uses a directory** waits until each of them that ever had one alone has sent what it had
//!   created or removed ahead. These requests themselves do not wait for each other, but as changes
//!   for others to forget; so nobody waits in a circle.
//! * **Who reads objects** is refused until each of them that ever wrote into stores has written
//!   again what these may have lost with that run. Writing waits for nobody's reading.
//!
//! A session is asked for all of that when it is back, and must obey as any recall. For one that is
//! not back, others wait until [`LEASE_TIME`] from the start on: then it believes nothing any more.
//! One that is back and does not know what it is to write again is asked for nothing, and given
//! that time.

use super::notes::Noted;
use super::recall::{Asked, Recalls, Token};
use crate::session::SessionKey;
use base::Time;
use base::limits::LEASE_TIME;
use std::collections::HashMap;
use wire::message::Lease;

#[derive(Debug)]
struct Awaited {
    /// The best lease that it had, and whether it wrote.
    had: Noted,
    is_back: bool,
    forget: Option<Token>,
    settle: Option<Token>,
    again: Option<Token>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Former {
    sessions: HashMap<SessionKey, Awaited>,
    until: Time,
    is_over: bool,
}

impl Former {
    pub(super) fn new(sessions: Vec<(SessionKey, Noted)>, now: Time) -> Self {
        let awaited = |had| Awaited {
            had,
            is_back: false,
            forget: None,
            settle: None,
            again: None,
        };
        let sessions = sessions.into_iter();
        Self {
            sessions: sessions.map(|(key, had)| (key, awaited(had))).collect(),
            until: now + LEASE_TIME,
            is_over: false,
        }
    }

    /// Whether something may be believed in a session that nobody has opened here yet.
    pub(super) fn is_awaited(&self, key: SessionKey, now: Time) -> bool {
        let awaited = self.sessions.get(&key);
        now < self.until && awaited.is_some_and(|awaited| !awaited.is_back)
    }

    /// A session has its main connection; `can_write_again` if it can be asked for that.
    pub(super) fn on_main<C>(
        &mut self,
        recalls: &mut Recalls<C>,
        key: SessionKey,
        can_write_again: bool,
        now: Time,
    ) {
        if let Some(awaited) = self.sessions.get_mut(&key) {
            awaited.is_back = true;
            awaited.forget(recalls, key, now);
            awaited.settle(recalls, key, now);
            if can_write_again && awaited.had.writes {
                let ask = || recalls.ask(key, Asked::WriteAgain, now);
                awaited.again.get_or_insert_with(ask);
            }
        }
    }

    /// Whether somebody may not have written again yet what stores have lost. Once that is not so,
    /// it stays so.
    pub(super) fn is_writing_again<C>(&self, recalls: &Recalls<C>, now: Time) -> bool {
        let mut sessions = self.sessions.values();
        sessions.any(|awaited| awaited.writes_again(recalls, now < self.until))
    }

    /// Whom `by` is to wait for before its change is answered.
    pub(super) fn forget<C>(
        &mut self,
        recalls: &mut Recalls<C>,
        by: SessionKey,
        now: Time,
    ) -> Vec<Token> {
        let others = self.others(by, now);
        others
            .filter_map(|(key, awaited)| awaited.forget(recalls, key, now))
            .collect()
    }

    /// Whom `by` is to wait for before it uses a directory.
    pub(super) fn settle<C>(
        &mut self,
        recalls: &mut Recalls<C>,
        by: SessionKey,
        now: Time,
    ) -> Vec<Token> {
        let others = self.others(by, now);
        others
            .filter_map(|(key, awaited)| awaited.settle(recalls, key, now))
            .collect()
    }

    fn others(
        &mut self,
        by: SessionKey,
        now: Time,
    ) -> impl Iterator<Item = (SessionKey, &mut Awaited)> {
        let until = self.until;
        let all = self.sessions.iter_mut();
        all.filter(move |(key, awaited)| **key != by && (awaited.is_back || now < until))
            .map(|(key, awaited)| (*key, awaited))
    }

    /// The session is over.
    pub(super) fn end(&mut self, key: SessionKey) {
        self.sessions.remove(&key);
    }

    /// Forgets who has obeyed, and whose time is over. Whether nobody is awaited any more, once.
    pub(super) fn sweep<C>(&mut self, recalls: &Recalls<C>, now: Time) -> bool {
        let until = self.until;
        self.sessions.retain(|_, awaited| {
            let asked = [awaited.forget, awaited.settle];
            let is_open = |token: &Token| recalls.is_open(*token);
            let writes_again = awaited.writes_again(recalls, now < until);
            match awaited.is_back {
                true => writes_again || asked.iter().flatten().any(is_open),
                false => now < until,
            }
        });
        let was_over = std::mem::replace(&mut self.is_over, now >= until);
        self.is_over && !was_over
    }
}

impl Awaited {
    /// Whether it may not have written again what it wrote; for one that is not asked, whether it
    /// has time to.
    fn writes_again<C>(&self, recalls: &Recalls<C>, has_time: bool) -> bool {
        let is_at_it = |token| recalls.is_open(token);
        self.had.writes && self.again.map_or(has_time, is_at_it)
    }

    fn forget<C>(&mut self, recalls: &mut Recalls<C>, key: SessionKey, now: Time) -> Option<Token> {
        if self.had.lease == Lease::None {
            return None;
        }
        let ask = || recalls.ask(key, Asked::Forget, now);
        let token = *self.forget.get_or_insert_with(ask);
        recalls.is_open(token).then_some(token)
    }

    fn settle<C>(&mut self, recalls: &mut Recalls<C>, key: SessionKey, now: Time) -> Option<Token> {
        if self.had.lease < Lease::Exclusive {
            return None;
        }
        let ask = || recalls.ask(key, Asked::Settle, now);
        let token = *self.settle.get_or_insert_with(ask);
        recalls.is_open(token).then_some(token)
    }
}
