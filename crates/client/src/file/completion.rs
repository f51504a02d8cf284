//! An outcome that several tasks wait for.

use super::FetchOutcome;
use std::sync::{Arc, OnceLock};
use tokio::sync::Notify;

/// Set once, seen by all who hold a clone.
#[derive(Clone, Debug, Default)]
pub struct Completion(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    outcome: OnceLock<FetchOutcome>,
    notify: Notify,
}

impl Completion {
    /// Tells everybody.
    pub fn set(&self, outcome: FetchOutcome) {
        // A second outcome would be a bug of the caller; the first one stands.
        let _ = self.0.outcome.set(outcome);
        self.0.notify.notify_waiters();
    }

    /// Waits for the outcome.
    ///
    /// # Errors
    /// The outcome's.
    pub async fn wait(&self) -> FetchOutcome {
        loop {
            let notified = self.0.notify.notified();
            if let Some(outcome) = self.0.outcome.get() {
                return *outcome;
            }
            notified.await;
        }
    }
}
