//! Listings on their way into the kernel.
//!
//! The kernel dates the names of a listing by the moment at which it takes them over, not by that
//! at which it asked for them (Linux 6.18). So names that were dropped while a listing was on its
//! way must be dropped once more when it has arrived. That it has is known when the same directory
//! handle is used again, which follows at once as a rule: a listing ends with an empty page. A
//! program that stops in between is waited for a moment, for which the kernel's thread may not have
//! had a processor.

use super::asked::ANSWER_TIME_MAX;
use crate::clock::now;
use base::Time;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Which listings were told, and not known to be taken over, by the kernel's directory handle.
#[derive(Debug, Default)]
pub(super) struct ToldListings {
    told: Mutex<HashMap<u64, Time>>,
    changed: Notify,
}

/// The listings that were on their way to the kernel at some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnTheirWay {
    asked: Time,
    any: bool,
}

impl ToldListings {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Time>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page is about to be made that may have names for the kernel to keep.
    pub(super) fn on_told(&self, directory_handle: u64) {
        self.lock().insert(directory_handle, now());
    }

    /// The kernel has all that was told, or was told nothing.
    pub(super) fn on_taken(&self, directory_handle: u64) {
        if self.lock().remove(&directory_handle).is_some() {
            self.changed.notify_waiters();
        }
    }

    /// What is on its way to the kernel now. To be asked before names are dropped: what is not on
    /// its way any more was taken over, and dated, before that.
    pub(super) fn on_their_way(&self) -> OnTheirWay {
        let asked = now();
        let told = self.lock();
        let mut ages = told.values().map(|at| asked.since(*at));
        OnTheirWay {
            asked,
            any: ages.any(|age| age < ANSWER_TIME_MAX),
        }
    }

    /// Waits until the kernel has taken that over; says whether there was anything.
    pub(super) async fn until_taken(&self, listings: OnTheirWay) -> bool {
        if !listings.any {
            return false;
        }
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Before the look: what is taken after it wakes this.
            changed.as_mut().enable();
            let latest = {
                let told = self.lock();
                let ages = told.values().filter(|at| **at <= listings.asked);
                let ages = ages.map(|at| now().since(*at));
                ages.filter(|age| *age < ANSWER_TIME_MAX).min()
            };
            let Some(age) = latest else {
                return true;
            };
            // Either way there is another look.
            let _ = tokio::time::timeout(ANSWER_TIME_MAX - age, changed).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[tokio::test]
    async fn a_listing_is_waited_for_until_its_handle_is_used_again_or_for_a_while() {
        let listings = Arc::new(ToldListings::default());
        assert!(!listings.until_taken(listings.on_their_way()).await);
        listings.on_told(1);
        listings.on_told(2);
        listings.on_taken(1);
        let waiter = Arc::clone(&listings);
        let those = listings.on_their_way();
        let waiting = tokio::spawn(async move { waiter.until_taken(those).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!waiting.is_finished());
        // What comes later is not waited for.
        listings.on_told(3);
        listings.on_taken(2);
        assert!(waiting.await.unwrap());
        let begun = now();
        assert!(listings.until_taken(listings.on_their_way()).await);
        assert!(now().since(begun) <= 4 * ANSWER_TIME_MAX);
        listings.on_taken(3);
        assert!(!listings.until_taken(listings.on_their_way()).await);
    }

    /// Names that were dropped before the kernel took the listing over have to be dropped again,
    /// however soon it did.
    #[tokio::test]
    async fn a_listing_that_is_taken_before_anybody_waits_counts_as_well() {
        let listings = ToldListings::default();
        listings.on_told(1);
        let those = listings.on_their_way();
        listings.on_taken(1);
        assert!(listings.until_taken(those).await);
    }
}
