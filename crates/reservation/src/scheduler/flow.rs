//! One source's requests that wait, in the order in which they came.

use super::terms::{RequestKey, Work};
use std::collections::BTreeMap;

/// A request that waits, with what the caller gave with it.
#[derive(Debug)]
pub(super) struct Queued<T> {
    pub(super) work: Work,
    pub(super) content: T,
}

/// A queue in which a request can also be found by its key: keys ascend with time.
#[derive(Debug)]
pub(super) struct Flow<T> {
    queue: BTreeMap<RequestKey, Queued<T>>,
    /// Place in its user's rotation, if it takes part.
    pub(super) turn: Option<u64>,
}

impl<T> Flow<T> {
    pub(super) fn new() -> Self {
        Self {
            queue: BTreeMap::new(),
            turn: None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Cost of the request that is next.
    pub(super) fn next_cost(&self) -> Option<u64> {
        let (_, queued) = self.queue.first_key_value()?;
        Some(queued.work.cost_nanos)
    }

    pub(super) fn push(&mut self, key: RequestKey, queued: Queued<T>) {
        self.queue.insert(key, queued);
    }

    pub(super) fn pop(&mut self) -> Option<(RequestKey, Queued<T>)> {
        self.queue.pop_first()
    }

    pub(super) fn remove(&mut self, key: RequestKey) -> Option<Queued<T>> {
        self.queue.remove(&key)
    }

    /// Takes over what waits in another one, among its own by age. The moved keys are returned.
    pub(super) fn absorb(&mut self, other: &mut Self) -> Vec<RequestKey> {
        let keys = other.queue.keys().copied().collect();
        self.queue.append(&mut other.queue);
        keys
    }
}
