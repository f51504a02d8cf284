//! What one credential may hold of the server's memory, over all its sessions and connections.
//!
//! A connection has bounds of its own ([`crate::link`]). They do not add up to one: a bearer may
//! have hundreds of sessions, each with several connections. So replies that wait for sockets,
//! requests that wait for their turn, and frames that have come in half are also counted for the
//! credential, and replies for the whole server. Who is at a bound waits for what it holds itself;
//! the others go on, because each may hold a small part whatever the others hold.

use crate::link::LinkKey;
use base::Time;
use base::limits::{
    CREDENTIAL_FRAME_BYTES_MAX, CREDENTIAL_REPLY_BYTES_ALWAYS, CREDENTIAL_REPLY_BYTES_MAX,
    CREDENTIAL_REQUEST_BYTES_MAX, CREDENTIAL_RESERVED_REQUEST_BYTES_MAX, SERVER_REPLY_BYTES_MAX,
};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;

/// A credential's number within this run, as the queue knows it. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShareKey(pub(crate) u64);

/// Bytes of replies that are counted together, and the connections that wait for there to be fewer.
#[derive(Default)]
struct Counted {
    bytes: AtomicUsize,
    stalled: Mutex<HashSet<LinkKey>>,
}

impl Counted {
    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::SeqCst)
    }

    fn stall(&self, link: LinkKey) {
        self.lock().insert(link);
    }

    /// Takes bytes away. Who waits goes on once half of a bound is free: a bit at a time would be
    /// as much work as the requests themselves.
    fn give_back(&self, bytes: usize, bounds: &[usize]) -> HashSet<LinkKey> {
        let before = self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        let after = before - bytes;
        let falls = |bound: &usize| before >= bound / 2 && after < bound / 2;
        if bounds.iter().any(falls) {
            std::mem::take(&mut *self.lock())
        } else {
            HashSet::new()
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<LinkKey>> {
        self.stalled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The whole of which the credentials have shares.
#[derive(Default)]
pub(crate) struct Whole {
    replies: Arc<Counted>,
    last_key: AtomicU64,
}

impl Whole {
    /// The share of one more credential.
    pub(crate) fn share(&self) -> Arc<Share> {
        Arc::new(Share {
            key: ShareKey(self.last_key.fetch_add(1, Ordering::Relaxed) + 1),
            own: Counted::default(),
            all: self.replies.clone(),
            request_bytes: Arc::new(Semaphore::new(CREDENTIAL_REQUEST_BYTES_MAX)),
            reserved_request_bytes: Arc::new(Semaphore::new(CREDENTIAL_RESERVED_REQUEST_BYTES_MAX)),
            frame_bytes: Arc::new(Semaphore::new(CREDENTIAL_FRAME_BYTES_MAX)),
            distrusted_until: AtomicU64::new(0),
        })
    }
}

/// One credential's share.
pub(crate) struct Share {
    pub(crate) key: ShareKey,
    own: Counted,
    all: Arc<Counted>,
    /// Requests that have been read and not yet carried out.
    request_bytes: Arc<Semaphore>,
    reserved_request_bytes: Arc<Semaphore>,
    /// Large payloads that are being read.
    pub(crate) frame_bytes: Arc<Semaphore>,
    /// Until when it gets no leases, in nanoseconds of the server's clock.
    distrusted_until: AtomicU64,
}

impl Share {
    /// Where a session's requests find room: those of one that has reserved something wait only for
    /// their like.
    pub(crate) fn request_room(&self, is_reserved: bool) -> Arc<Semaphore> {
        let room = match is_reserved {
            true => &self.reserved_request_bytes,
            false => &self.request_bytes,
        };
        room.clone()
    }

    /// A client of it did not obey a recall: it gets no leases until then.
    pub(crate) fn distrust(&self, until: Time) {
        self.distrusted_until
            .fetch_max(until.as_nanos(), Ordering::Relaxed);
    }

    pub(crate) fn is_distrusted(&self, now: Time) -> bool {
        now.as_nanos() < self.distrusted_until.load(Ordering::Relaxed)
    }

    /// Whether a further request may be begun for this connection. If not, the connection is among
    /// those that [`Self::give_back`] names later.
    pub(crate) fn has_room(&self, link: LinkKey) -> bool {
        if self.is_within() {
            return true;
        }
        self.own.stall(link);
        self.all.stall(link);
        // Room may have been made before it was noted. Named once more than needed does no harm.
        self.is_within()
    }

    fn is_within(&self) -> bool {
        let own = self.own.bytes();
        let is_small = own < CREDENTIAL_REPLY_BYTES_ALWAYS;
        is_small || own < CREDENTIAL_REPLY_BYTES_MAX && self.all.bytes() < SERVER_REPLY_BYTES_MAX
    }

    pub(crate) fn charge(&self, bytes: usize) {
        self.own.bytes.fetch_add(bytes, Ordering::SeqCst);
        self.all.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// A connection has ended: nobody waits there any more.
    pub(crate) fn forget(&self, link: LinkKey) {
        self.own.lock().remove(&link);
        self.all.lock().remove(&link);
    }

    /// The connections that may go on.
    pub(crate) fn give_back(&self, bytes: usize) -> HashSet<LinkKey> {
        let bounds = [CREDENTIAL_REPLY_BYTES_MAX, CREDENTIAL_REPLY_BYTES_ALWAYS];
        let mut links = self.own.give_back(bytes, &bounds);
        links.extend(self.all.give_back(bytes, &[SERVER_REPLY_BYTES_MAX]));
        links
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: LinkKey = LinkKey(1);

    #[test]
    fn who_is_at_the_bound_waits_and_the_others_do_not() {
        let whole = Whole::default();
        let (greedy, other) = (whole.share(), whole.share());
        assert_ne!(greedy.key, other.key);
        greedy.charge(CREDENTIAL_REPLY_BYTES_MAX);
        assert!(!greedy.has_room(LINK));
        assert!(other.has_room(LinkKey(2)));
        assert!(greedy.give_back(1).is_empty(), "it waits for more");
        assert!(greedy.has_room(LINK));
        greedy.charge(1);
        assert!(!greedy.has_room(LINK));
        let half = CREDENTIAL_REPLY_BYTES_MAX / 2;
        assert_eq!(greedy.give_back(half + 1), HashSet::from([LINK]));
        assert!(greedy.give_back(half - 1).is_empty(), "told once");
    }

    #[test]
    fn what_is_reserved_finds_room_whatever_else_the_credential_asks_for() {
        let share = Whole::default().share();
        let all = u32::try_from(CREDENTIAL_REQUEST_BYTES_MAX).unwrap();
        let greedy = share.request_room(false).try_acquire_many_owned(all);
        assert!(greedy.is_ok());
        assert!(share.request_room(false).try_acquire().is_err());
        let reserved = u32::try_from(CREDENTIAL_RESERVED_REQUEST_BYTES_MAX).unwrap();
        let held = share.request_room(true).try_acquire_many_owned(reserved);
        assert!(held.is_ok());
        assert!(share.request_room(true).try_acquire().is_err());
        drop(greedy);
        assert!(share.request_room(false).try_acquire().is_ok());
    }

    #[test]
    fn many_together_leave_each_a_small_part() {
        let whole = Whole::default();
        let greedy: Vec<_> = (0..SERVER_REPLY_BYTES_MAX / CREDENTIAL_REPLY_BYTES_MAX + 1)
            .map(|_| whole.share())
            .collect();
        for share in &greedy {
            share.charge(CREDENTIAL_REPLY_BYTES_MAX - 1);
        }
        let late = whole.share();
        assert!(late.has_room(LINK));
        late.charge(CREDENTIAL_REPLY_BYTES_ALWAYS);
        assert!(!late.has_room(LINK), "the whole is taken");
        let mut told = HashSet::new();
        for share in &greedy {
            told.extend(share.give_back(CREDENTIAL_REPLY_BYTES_MAX - 1));
        }
        assert_eq!(told, HashSet::from([LINK]));
        assert!(late.has_room(LINK));
    }
}
