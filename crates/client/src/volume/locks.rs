//! Advisory locks, held at the server.
//!
//! What this session holds is remembered here for two reasons: a server that has been restarted
//! must be told, and a wait that is broken off may have been granted at that very moment, in which
//! case the lock must be put back to what it was.

use super::Volume;
use crate::cache::NodeId;
use crate::transport::{Call, CallError};
use base::{Extent, FsError, LockOwner, Principal};
use std::collections::HashMap;
use wire::message::{LockKind, LockMode, LockRange, Refusal, Step, StepReply};

/// Locks held at the server: per inode, kind and owner, non-overlapping ranges.
#[derive(Debug, Default)]
pub(super) struct HeldLocks {
    held: HashMap<(NodeId, LockKind, LockOwner), Held>,
}

#[derive(Debug)]
struct Held {
    who: Principal,
    ranges: Vec<(Extent, LockMode, u32)>,
}

impl HeldLocks {
    fn apply(&mut self, node: NodeId, who: &Principal, lock: &LockRange) {
        let key = (node, lock.kind, lock.owner);
        let held = self.held.entry(key).or_insert_with(|| Held {
            who: who.clone(),
            ranges: Vec::new(),
        });
        let mut ranges = Vec::new();
        for (extent, mode, pid) in held.ranges.drain(..) {
            if !extent.overlaps(lock.extent) {
                ranges.push((extent, mode, pid));
                continue;
            }
            let before = Extent::between(extent.offset, lock.extent.offset.max(extent.offset));
            let after = Extent::between(lock.extent.end().min(extent.end()), extent.end());
            for rest in [before, after] {
                if !rest.is_empty() {
                    ranges.push((rest, mode, pid));
                }
            }
        }
        if lock.mode != LockMode::Unlock {
            ranges.push((lock.extent, lock.mode, lock.pid));
        }
        held.ranges = ranges;
        if held.ranges.is_empty() {
            self.held.remove(&key);
        }
    }

    fn overlapping(&self, node: NodeId, lock: &LockRange) -> Vec<LockRange> {
        let Some(held) = self.held.get(&(node, lock.kind, lock.owner)) else {
            return Vec::new();
        };
        held.ranges
            .iter()
            .filter(|(extent, ..)| extent.overlaps(lock.extent))
            .map(|(extent, mode, pid)| LockRange {
                kind: lock.kind,
                mode: *mode,
                extent: extent.intersection(lock.extent),
                owner: lock.owner,
                pid: *pid,
            })
            .collect()
    }

    fn all(&self) -> Vec<(NodeId, Principal, LockRange)> {
        let mut all = Vec::new();
        for ((node, kind, owner), held) in &self.held {
            for (extent, mode, pid) in &held.ranges {
                let (kind, owner, mode, extent, pid) = (*kind, *owner, *mode, *extent, *pid);
                let lock = LockRange {
                    kind,
                    mode,
                    extent,
                    owner,
                    pid,
                };
                all.push((*node, held.who.clone(), lock));
            }
        }
        all
    }

    fn holds(&self, node: NodeId, kind: LockKind, owner: LockOwner) -> bool {
        self.held.contains_key(&(node, kind, owner))
    }
}

impl Volume {
    fn held_locks(&self) -> std::sync::MutexGuard<'_, HeldLocks> {
        self.locks.lock().expect("no panic happens under this lock")
    }

    /// Takes, changes or releases a lock. Waits for it if `wait`, until `broken_off` is ready.
    ///
    /// # Errors
    /// `WouldBlock` without `wait`, `Interrupted` when broken off, `Deadlock`, or the server's.
    pub async fn lock(
        &self,
        who: &Principal,
        node: NodeId,
        lock: LockRange,
        wait: bool,
        broken_off: impl Future<Output = ()>,
    ) -> Result<(), FsError> {
        let target = self.target(node).await?;
        if lock.mode == LockMode::Unlock
            && let Ok(file) = self.file(node)
        {
            // What was written under the lock is there before somebody else gets it.
            self.drain(node, &file).await?;
            self.commit_if_shared(node).await;
        }
        let step = Step::Lock {
            target,
            lock,
            wait,
            reclaim: false,
        };
        let call = Call {
            endless: wait,
            ..Call::metadata()
        };
        let pending = self.transport.submit_steps(who, vec![step], call);
        let id = pending.id();
        let answer = pending.files();
        tokio::pin!(answer);
        let outcome = tokio::select! {
            outcome = &mut answer => outcome,
            () = broken_off => {
                if let Some(id) = id {
                    self.transport.cancel(id);
                }
                answer.await
            }
        };
        match outcome {
            Ok(mut response) => {
                response.results.pop().ok_or(FsError::Io)??;
                if lock.mode != LockMode::Unlock
                    && let Err(error) = self.refresh_under_lock(node).await
                {
                    self.put_back(who, node, lock).await;
                    return Err(error);
                }
                self.held_locks().apply(node, who, &lock);
                Ok(())
            }
            Err(CallError::Refused(Refusal::Cancelled)) => {
                self.put_back(who, node, lock).await;
                Err(FsError::Interrupted)
            }
            Err(error) => Err(error.to_fs_error()),
        }
    }

    /// Taking a lock is also asking for what others wrote under it: when it is taken, nothing that
    /// is older is left here or in the kernel.
    async fn refresh_under_lock(&self, node: NodeId) -> Result<(), FsError> {
        let hold = self.transport.leases_hold();
        let epoch = {
            let nodes = self.nodes();
            let known = nodes.get(node).ok_or(FsError::Stale)?;
            if hold && known.is_leased() && known.kernel_data == Some(known.attributes.changed) {
                return Ok(());
            }
            known.epoch
        };
        if let Ok(file) = self.file(node) {
            let freed = file.lock().distrust();
            self.budget().on_freed(file.account, freed);
        }
        self.tell_attributes(node);
        if let Some(invalidate) = self.invalidate.get() {
            let dropped = invalidate.data_now(node);
            let dropped = tokio::time::timeout(self.transport.request_time_max(), dropped).await;
            dropped.map_err(|_| FsError::TimedOut)?;
        }
        if let Some(known) = self.nodes().get_mut(node) {
            let is_true = hold && known.is_leased() && known.epoch == epoch;
            known.kernel_data = is_true.then_some(known.attributes.changed);
        }
        Ok(())
    }

    /// A lock is not wanted after all; whatever the server made of it, it is as it was before.
    async fn put_back(&self, who: &Principal, node: NodeId, lock: LockRange) {
        let Ok(target) = self.target(node).await else {
            return;
        };
        let before = self.held_locks().overlapping(node, &lock);
        let unlock = LockRange {
            mode: LockMode::Unlock,
            ..lock
        };
        let mut steps = Vec::new();
        for lock in std::iter::once(unlock).chain(before) {
            steps.push(Step::Lock {
                target: target.clone(),
                lock,
                wait: false,
                reclaim: false,
            });
        }
        if let Err(error) = self.steps(who, steps, Call::metadata()).await {
            tracing::warn!(%error, "a broken-off lock could not be put back");
        }
    }

    /// Which lock stands in the way of `lock`?
    ///
    /// # Errors
    /// The server's.
    pub async fn test_lock(
        &self,
        who: &Principal,
        node: NodeId,
        lock: LockRange,
    ) -> Result<Option<LockRange>, FsError> {
        let step = Step::TestLock {
            target: self.target(node).await?,
            lock,
        };
        match self.step(who, step).await? {
            (StepReply::Lock(found), _) => Ok(found),
            _ => Err(FsError::Io),
        }
    }

    /// Whether an owner has a lock here, so that closing a descriptor must release it.
    #[must_use]
    pub fn holds_lock(&self, node: NodeId, kind: LockKind, owner: LockOwner) -> bool {
        self.held_locks().holds(node, kind, owner)
    }

    /// Releases everything that an owner holds on a file.
    ///
    /// # Errors
    /// The server's.
    pub async fn release_locks(
        &self,
        who: &Principal,
        node: NodeId,
        kind: LockKind,
        owner: LockOwner,
    ) -> Result<(), FsError> {
        if !self.holds_lock(node, kind, owner) {
            return Ok(());
        }
        if let Ok(file) = self.file(node) {
            // Who gets the lock next finds what was written under it; errors are told elsewhere.
            let _ = self.drain(node, &file).await;
            self.commit_if_shared(node).await;
        }
        let step = Step::ReleaseLocks {
            target: self.target(node).await?,
            owner,
            kind,
        };
        self.step(who, step).await?;
        let extent = Extent::new(0, u64::MAX);
        let all = LockRange {
            kind,
            mode: LockMode::Unlock,
            extent,
            owner,
            pid: 0,
        };
        self.held_locks().apply(node, who, &all);
        Ok(())
    }

    /// The server runs anew: tell it what we hold.
    pub(super) async fn reclaim_locks(&self) {
        let all = self.held_locks().all();
        for (node, who, lock) in all {
            let Ok(target) = self.target(node).await else {
                continue;
            };
            let step = Step::Lock {
                target,
                lock,
                wait: false,
                reclaim: true,
            };
            if let Err(error) = self.step(&who, step).await {
                tracing::error!(%error, "a lock was lost when the server restarted");
                let unlock = LockRange {
                    mode: LockMode::Unlock,
                    ..lock
                };
                self.held_locks().apply(node, &who, &unlock);
            }
        }
    }
}
