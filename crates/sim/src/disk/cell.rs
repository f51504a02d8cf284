//! The one lock of the simulated world, and why it is there.
//!
//! `BlockDevice` is called through `&self` from several threads, because that is how real devices
//! are used; a simulated one has no other way to keep a state. The lock guards memory only: nobody
//! holds it while waiting for anything, so it cannot stand in anybody's way for longer than a copy.

use std::sync::PoisonError;

/// A value that threads take turns with.
#[derive(Debug)]
#[expect(
    clippy::disallowed_types,
    reason = "BlockDevice demands Sync, and its methods take &self"
)]
pub(super) struct Turns<T>(std::sync::Mutex<T>);

impl<T> Turns<T> {
    #[expect(clippy::disallowed_types, reason = "as above")]
    pub(super) fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Lets `act` have the value. A test that panicked in the middle has failed already; what it
    /// left may still be looked at.
    pub(super) fn with<R>(&self, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
