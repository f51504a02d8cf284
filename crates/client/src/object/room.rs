//! How much of one store is asked for at once.
//!
//! Bytes and requests have bounds below those that the server has for a connection. A server that
//! is too busy all the same says so; then half as much is asked for, and a little more again with
//! each request that goes well.

use base::limits::{OBJECT_CONNECTION_BYTES_MAX, OBJECT_REQUESTS_MAX};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Bytes in flight at most: half of what a server has for a class of requests on a connection, so
/// that others on it have room, too.
const BYTES_MAX: u64 = OBJECT_CONNECTION_BYTES_MAX as u64 / 2;
const REQUESTS_MAX: usize = OBJECT_REQUESTS_MAX / 2;
/// What is asked for at least.
const BYTES_MIN: u64 = 1 << 20;
/// What one request that goes well adds.
const GROWTH_BYTES: u64 = 64 << 10;

#[derive(Debug)]
struct State {
    bytes: u64,
    requests: usize,
    bytes_max: u64,
}

/// Room for what goes under a ticket, and for what goes without: servers have memory for each of
/// the two, and what is reserved does not wait here either until the rest has gone through.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    reserved: Room,
    others: Room,
}

impl Rooms {
    pub(super) fn of(&self, ticket: Option<u32>) -> &Room {
        match ticket {
            Some(_) => &self.reserved,
            None => &self.others,
        }
    }
}

/// Room for one kind of requests.
#[derive(Debug)]
pub(super) struct Room {
    state: Mutex<State>,
    left: Notify,
}

/// Something is in flight.
pub(super) struct InFlight<'a> {
    room: &'a Room,
    bytes: u64,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                bytes: 0,
                requests: 0,
                bytes_max: BYTES_MAX,
            }),
            left: Notify::new(),
        }
    }
}

impl Room {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that may be in flight now.
    #[cfg(test)]
    fn bytes_max(&self) -> u64 {
        self.lock().bytes_max
    }

    /// Waits for room; what is larger than all of it goes alone.
    pub(super) async fn enter(&self, bytes: u64) -> InFlight<'_> {
        loop {
            let left = self.left.notified();
            {
                let mut state = self.lock();
                let fits = state.bytes == 0 || state.bytes + bytes <= state.bytes_max;
                if fits && state.requests < REQUESTS_MAX {
                    state.bytes += bytes;
                    state.requests += 1;
                    // Others may fit beside it.
                    self.left.notify_one();
                    return InFlight { room: self, bytes };
                }
            }
            left.await;
        }
    }

    /// A server was too busy.
    pub(super) fn shrink(&self) {
        let mut state = self.lock();
        state.bytes_max = (state.bytes_max / 2).max(BYTES_MIN);
    }

    /// A request went well.
    pub(super) fn grow(&self) {
        let mut state = self.lock();
        state.bytes_max = (state.bytes_max + GROWTH_BYTES).min(BYTES_MAX);
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut state = self.room.lock();
        state.bytes -= self.bytes;
        state.requests -= 1;
        drop(state);
        self.room.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[tokio::test]
    async fn what_does_not_fit_waits_and_then_goes() {
        let room = Arc::new(Room::default());
        let most = room.enter(BYTES_MAX).await;
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let room = room.clone();
                tokio::spawn(async move { drop(room.enter(BYTES_MAX / 4).await) })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(waiting.iter().all(|task| !task.is_finished()));
        drop(most);
        for task in waiting {
            let done = tokio::time::timeout(Duration::from_secs(10), task);
            done.await.unwrap().unwrap();
        }
        drop(room.enter(100 * BYTES_MAX).await);
        let state = room.lock();
        assert_eq!((state.bytes, state.requests), (0, 0));
    }

    #[tokio::test]
    async fn what_is_reserved_does_not_wait_for_what_is_not() {
        let rooms = Rooms::default();
        let others = rooms.of(None);
        let _full = others.enter(BYTES_MAX).await;
        others.shrink();
        let short = Duration::from_millis(20);
        let more = tokio::time::timeout(short, others.enter(1));
        assert!(more.await.is_err());
        let reserved = rooms.of(Some(1));
        let goes = tokio::time::timeout(Duration::from_secs(10), reserved.enter(BYTES_MAX));
        drop(goes.await.unwrap());
        assert_eq!(reserved.bytes_max(), BYTES_MAX, "nor is it asked for less");
    }

    #[tokio::test]
    async fn a_busy_server_is_asked_for_less_and_then_for_more_again() {
        let room = Room::default();
        for _ in 0..20 {
            room.shrink();
        }
        assert_eq!(room.bytes_max(), BYTES_MIN);
        for _ in 0..1000 {
            room.grow();
        }
        assert_eq!(room.bytes_max(), BYTES_MAX);
    }
}
