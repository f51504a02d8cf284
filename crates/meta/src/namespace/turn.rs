//! One request to a namespace: who repeats it, and what its answer depends on.

use base::{RequestId, SessionId};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is to happen once, however often it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The client's session.
    pub session: SessionId,
    /// The request within it.
    pub request: RequestId,
    /// The step within that.
    pub step: u8,
}

/// A request under way. It collects which changes its answers depend on, its own and those of
/// others that it has seen; they must be durable before anything is answered
/// ([`super::Namespace::wait`]).
#[derive(Debug, Default)]
pub struct Turn(Mutex<Collected>);

#[derive(Debug, Default)]
struct Collected {
    identity: Option<Identity>,
    /// First and last batch of changes that it depends on.
    seen: Option<(u64, u64)>,
    /// Of appends to a file, no later ones are waited for.
    waits_through: Option<u64>,
}

impl Turn {
    /// A request that may be repeated at will.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next change is this one.
    pub fn begin(&self, identity: Option<Identity>) {
        self.lock().identity = identity;
    }

    pub(super) fn identity(&self) -> Option<Identity> {
        self.lock().identity
    }

    /// What follows waits for appends to a file that have places up to this one, which
    /// [`super::Namespace::waits`] or [`super::Namespace::is_behind`] has told, and for none that
    /// was begun later: or there would always be one. For all there are, if that is `None`.
    pub fn wait_through(&self, place: Option<u64>) {
        self.lock().waits_through = place;
    }

    pub(super) fn waits_through(&self) -> u64 {
        self.lock().waits_through.unwrap_or(u64::MAX)
    }

    pub(super) fn note(&self, batch: u64) {
        let mut collected = self.lock();
        let (first, last) = collected.seen.unwrap_or((batch, batch));
        collected.seen = Some((first.min(batch), last.max(batch)));
    }

    pub(super) fn seen(&self) -> Option<(u64, u64)> {
        self.lock().seen
    }

    /// What this one depends on, the other does as well.
    pub fn pass_on(&self, other: &Self) {
        if let Some((first, last)) = self.seen() {
            other.note(first);
            other.note(last);
        }
    }
}
