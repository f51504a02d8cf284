//! Where a server is looked for: the addresses that the user has named, and those of the other
//! managers of its cluster, which the one that leads tells.
//!
//! The one that was reached last is tried first: while it is there nobody waits for another one.

use super::{Shared, Transport};
use base::limits::{HANDSHAKE_TIME_MAX, MANAGERS_MAX, SERVER_ADDRESSES_MAX};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use wire::message::{ClusterReply, ClusterRequest};

/// Addresses beyond those that the user has named.
const LEARNT_MAX: usize = 4 * MANAGERS_MAX * SERVER_ADDRESSES_MAX;

/// See the module's head.
pub(super) struct Places(Mutex<Vec<SocketAddr>>);

impl Places {
    pub(super) fn new(named: &[SocketAddr]) -> Self {
        Self(Mutex::new(named.to_vec()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of them, in the order in which they are to be tried.
    pub(super) fn all(&self) -> Vec<SocketAddr> {
        self.lock().clone()
    }

    /// The server was reached here.
    pub(super) fn prefer(&self, address: SocketAddr) {
        let mut all = self.lock();
        if let Some(at) = all.iter().position(|known| *known == address) {
            all[..=at].rotate_right(1);
        }
    }

    /// The one that was reached last has not been heard for long: the others are tried before it.
    pub(super) fn avoid_first(&self) {
        let mut all = self.lock();
        if !all.is_empty() {
            all.rotate_left(1);
        }
    }

    fn add(&self, named: usize, learnt: impl Iterator<Item = SocketAddr>) {
        let mut all = self.lock();
        for address in learnt {
            if !all.contains(&address) && all.len() < named + LEARNT_MAX {
                all.push(address);
            }
        }
    }
}

/// Asks which managers there are.
pub(super) async fn learn(shared: Weak<Shared>) {
    let asked = {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let transport = Transport { shared };
        transport.cluster_request(ClusterRequest::Managers).await
    };
    let Ok(ClusterReply::Managers(managers)) = asked else {
        return;
    };
    for address in managers.iter().flat_map(|manager| &manager.addresses) {
        let looking = tokio::net::lookup_host(address);
        let found = tokio::time::timeout(HANDSHAKE_TIME_MAX, looking).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        match found {
            Ok(Ok(found)) => shared.places.add(shared.endpoint.addresses.len(), found),
            _ => tracing::debug!(address, "a manager's address is not known"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_answered_last_is_tried_first_and_the_others_stay() {
        let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let places = Places::new(&[at(1), at(2)]);
        places.add(2, [at(2), at(3)].into_iter());
        assert_eq!(places.all(), [at(1), at(2), at(3)]);
        places.prefer(at(3));
        assert_eq!(places.all(), [at(3), at(1), at(2)]);
        places.avoid_first();
        assert_eq!(places.all(), [at(1), at(2), at(3)]);
        places.prefer(at(9));
        places.add(2, (0..1000).map(at));
        assert_eq!(places.all().len(), 2 + LEARNT_MAX);
    }
}
