//! Connections that have not authenticated themselves yet.
//!
//! Anybody who reaches the port can make some, so their number is bounded. Beyond the bound the
//! newcomer comes in and another goes: the oldest one of the address that has the most. Whoever
//! piles connections up without a word loses his own, and a client with a credential, which needs
//! two round trips, gets through. All of them together take no more than an eighth of the
//! descriptors that the process may have, or nobody could be accepted any more.

use crate::opens::descriptors_max;
use base::limits::CONNECTIONS_PENDING_MAX;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Whose it is, and what tells it to go.
type Peer = (IpAddr, Arc<Notify>);

/// All of them.
#[derive(Clone)]
pub(crate) struct Pending {
    /// The oldest first.
    peers: Arc<Mutex<Vec<Peer>>>,
    places: usize,
}

/// One of them; it is counted until this is dropped or released.
pub(crate) struct PendingPlace {
    all: Pending,
    sent_away: Arc<Notify>,
}

impl Pending {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self::with_descriptors(descriptors_max())
    }

    fn with_descriptors(descriptors: usize) -> Self {
        Self {
            peers: Arc::default(),
            places: CONNECTIONS_PENDING_MAX.min(descriptors / 8).max(1),
        }
    }

    /// Counts one more. One of those before may be sent away for it.
    pub(crate) fn enter(&self, address: IpAddr) -> PendingPlace {
        let sent_away = Arc::new(Notify::new());
        let mut list = self.lock();
        if list.len() >= self.places {
            let mut counts: HashMap<IpAddr, usize> = HashMap::new();
            for (address, _) in list.iter() {
                *counts.entry(*address).or_default() += 1;
            }
            let most = counts.values().max().copied();
            let of_most = |(address, _): &Peer| counts.get(address).copied() == most;
            if let Some(place) = list.iter().position(of_most) {
                let (address, victim) = list.remove(place);
                tracing::debug!(%address, "too many connections that are not authenticated");
                victim.notify_one();
            }
        }
        list.push((address, sent_away.clone()));
        PendingPlace {
            all: self.clone(),
            sent_away,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingPlace {
    /// Waits until this connection has to go.
    pub(crate) async fn sent_away(&self) {
        self.sent_away.notified().await;
    }

    /// It is not one of them any more. `false` if it has to go all the same: it was too late.
    pub(crate) fn release(&self) -> bool {
        let mut list = self.all.lock();
        let place = list
            .iter()
            .position(|(_, other)| Arc::ptr_eq(other, &self.sent_away));
        place.map(|place| list.remove(place)).is_some()
    }
}

impl Drop for PendingPlace {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_most_loses_the_oldest_one() {
        let (flood, client) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let pending = Pending::with_descriptors(usize::MAX);
        let first = pending.enter(client);
        let flooding: Vec<_> = (0..2 * CONNECTIONS_PENDING_MAX)
            .map(|_| pending.enter(flood))
            .collect();
        assert_eq!(pending.lock().len(), CONNECTIONS_PENDING_MAX);
        let second = pending.enter(client);
        assert!(first.release() && second.release(), "both come through");
        let kept = flooding.iter().filter(|place| place.release()).count();
        assert_eq!(kept, CONNECTIONS_PENDING_MAX - 2);
        assert!(pending.lock().is_empty());
    }

    #[test]
    fn they_leave_descriptors_for_others() {
        let pending = Pending::with_descriptors(256);
        let places: Vec<_> = (0..1000)
            .map(|_| pending.enter([10, 0, 0, 1].into()))
            .collect();
        assert_eq!(pending.lock().len(), 32);
        assert_eq!(places.iter().filter(|place| place.release()).count(), 32);
    }
}
