//! Which transactions share a request.
//!
//! All parts of a request are compared with the state before it. So that this is as if they had
//! happened one after the other, no part may change what another compares or changes.

use super::Shared;
use super::request::operations;
use super::resolve::carry_out;
use crate::queue::{Gathering, Job, Jobs, LATE_INTERVAL};
use crate::transaction::{Change, Condition, Transaction};
use crate::{KeyRange, MetaError, space};
use base::limits::{
    META_ETCD_GROUP_BYTES_MAX, META_ETCD_GROUP_MAX, META_ETCD_GROUPS_MAX, META_ETCD_OPERATIONS_MAX,
};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Sends group after group until the queue is closed and empty.
pub(super) async fn commit_groups(shared: Arc<Shared>, mut jobs: Jobs) {
    let permits = Arc::new(Semaphore::new(META_ETCD_GROUPS_MAX));
    let mut under_way = JoinSet::new();
    let mut waiting = VecDeque::new();
    let mut gathering = Gathering::default();
    loop {
        while under_way.try_join_next().is_some() {}
        if waiting.is_empty() {
            match gathering.gather(&mut jobs).await {
                Some(group) => waiting.extend(group),
                None => break,
            }
        }
        let permit = timeout(LATE_INTERVAL, Arc::clone(&permits).acquire_owned()).await;
        while let Ok(job) = jobs.try_recv() {
            waiting.push_back(job);
        }
        answer_late(&mut waiting);
        if let Ok(Ok(permit)) = permit {
            let group = choose(&mut waiting);
            under_way.spawn(carry_out(Arc::clone(&shared), group, permit));
        }
    }
    while under_way.join_next().await.is_some() {}
}

/// Answers those whose turn has not come in time.
fn answer_late(waiting: &mut VecDeque<Job>) {
    for _ in 0..waiting.len() {
        let job = waiting.pop_front().expect("as many as counted");
        match job.is_late() {
            true => job.answer(Err(MetaError::Unavailable(
                "its turn did not come in time".to_owned(),
            ))),
            false => waiting.push_back(job),
        }
    }
}

/// Takes as many as can share a request, the oldest first; the others keep their places.
fn choose(waiting: &mut VecDeque<Job>) -> Vec<Job> {
    let mut group = Vec::new();
    let mut footprint = Footprint::default();
    let (mut bytes, mut most) = (0, 0);
    let mut left = VecDeque::new();
    while let Some(job) = waiting.pop_front() {
        let operations = most.max(operations(&job.transaction));
        let has_room = group.len() < META_ETCD_GROUP_MAX
            && group.len() + 1 + operations <= META_ETCD_OPERATIONS_MAX
            && bytes < META_ETCD_GROUP_BYTES_MAX;
        if !has_room && !group.is_empty() {
            left.push_back(job);
            break;
        }
        if footprint.touches(&job.transaction) {
            left.push_back(job);
            continue;
        }
        footprint.add(&job.transaction);
        bytes += job.size_bytes;
        most = operations;
        group.push(job);
    }
    left.append(waiting);
    *waiting = left;
    group
}

/// What a group compares and changes.
#[derive(Debug, Default)]
struct Footprint {
    compared: Keys,
    changed: Keys,
}

#[derive(Debug, Default)]
struct Keys {
    single: BTreeSet<Vec<u8>>,
    ranges: Vec<KeyRange>,
}

impl Keys {
    fn has(&self, key: &[u8]) -> bool {
        self.single.contains(key) || self.ranges.iter().any(|range| range.contains(key))
    }

    fn meets(&self, range: &KeyRange) -> bool {
        let end = range.end().map_or(Bound::Unbounded, Bound::Excluded);
        let bounds = (Bound::Included(range.start()), end);
        self.single.range::<[u8], _>(bounds).next().is_some()
            || self.ranges.iter().any(|other| other.meets(range))
    }
}

impl Footprint {
    /// Whether it changes what the group compares or changes, or the other way round.
    fn touches(&self, transaction: &Transaction) -> bool {
        let is_compared = |key: &[u8]| self.changed.has(key);
        let is_changed = |key: &[u8]| self.changed.has(key) || self.compared.has(key);
        let conditions = transaction
            .conditions
            .iter()
            .any(|condition| match condition {
                Condition::Absent(key) | Condition::Present(key) => is_compared(key),
                Condition::WrittenAt(key, _) => is_compared(key),
                Condition::Empty(range) => self.changed.meets(range),
            });
        let guard = transaction.guard.as_ref();
        conditions
            || guard.is_some_and(|guard| is_compared(&space::seat(&guard.seat)))
            || transaction.changes.iter().any(|change| match change {
                Change::Put(key, _) | Change::Delete(key) => is_changed(key),
                Change::DeleteRange(range) => {
                    self.changed.meets(range) || self.compared.meets(range)
                }
            })
    }

    fn add(&mut self, transaction: &Transaction) {
        for condition in &transaction.conditions {
            match condition {
                Condition::Absent(key) | Condition::Present(key) | Condition::WrittenAt(key, _) => {
                    self.compared.single.insert(key.clone());
                }
                Condition::Empty(range) => self.compared.ranges.push(range.clone()),
            }
        }
        if let Some(guard) = &transaction.guard {
            self.compared.single.insert(space::seat(&guard.seat));
        }
        for change in &transaction.changes {
            match change {
                Change::Put(key, _) | Change::Delete(key) => {
                    self.changed.single.insert(key.clone());
                }
                Change::DeleteRange(range) => self.changed.ranges.push(range.clone()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touches(one: Transaction, other: Transaction) -> bool {
        let mut footprint = Footprint::default();
        footprint.add(&one);
        let touched = footprint.touches(&other);
        let mut footprint = Footprint::default();
        footprint.add(&other);
        assert_eq!(footprint.touches(&one), touched, "it is the same both ways");
        touched
    }

    #[test]
    fn who_changes_what_another_compares_or_changes_is_not_in_its_group() {
        let new = Transaction::new;
        let put = |key: &[u8]| new().put(key, b"");
        let absent = |key: &[u8]| new().when(Condition::Absent(key.to_vec()));
        let prefix = |prefix: &[u8]| KeyRange::prefix(prefix);
        assert!(touches(put(b"a"), put(b"a")));
        assert!(touches(put(b"a"), absent(b"a")));
        assert!(touches(put(b"ab"), new().delete_range(&prefix(b"a"))));
        assert!(touches(
            put(b"ab"),
            new().when(Condition::Empty(prefix(b"a")))
        ));
        assert!(touches(absent(b"ab"), new().delete_range(&prefix(b"a"))));
        assert!(touches(
            new().delete_range(&prefix(b"a")),
            new().when(Condition::Empty(prefix(b"ab")))
        ));
        assert!(!touches(put(b"a"), put(b"b")));
        assert!(!touches(absent(b"a"), absent(b"a")));
        assert!(!touches(absent(b"b"), new().delete_range(&prefix(b"a"))));
    }
}
