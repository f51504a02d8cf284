//! Locks of both families, and those who wait for them.

use base::LockOwner;
use mount::kernel::{
    Errno, Lock, LockFamily, LockKind, LockRequest, NodeId, Operation, Replier, Unique,
};

type Place = (NodeId, LockFamily);

/// What is held and what is wanted. Locks of one owner on one file are not split or joined: the
/// tests lock whole files.
#[derive(Default)]
pub(crate) struct Locks {
    held: Vec<(Place, LockOwner, Lock)>,
    waiting: Vec<(Place, LockRequest, Replier)>,
}

impl Locks {
    pub(crate) fn held(&self, family: LockFamily) -> usize {
        self.held
            .iter()
            .filter(|((_, held), ..)| *held == family)
            .count()
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn take_waiting(&mut self) -> Vec<Replier> {
        self.waiting
            .drain(..)
            .map(|(.., replier)| replier)
            .collect()
    }

    pub(crate) fn interrupt(&mut self, unique: Unique) -> Option<Replier> {
        let found = self
            .waiting
            .iter()
            .position(|(.., replier)| replier.unique() == unique)?;
        Some(self.waiting.remove(found).2)
    }

    pub(crate) fn handle(&mut self, operation: Operation, node: NodeId, replier: Replier) {
        match operation {
            Operation::GetLk(request) => {
                let place = (node, request.family);
                let free = Lock {
                    kind: LockKind::Unlock,
                    ..request.lock
                };
                replier.lock(&self.conflict(place, &request).unwrap_or(free));
            }
            Operation::SetLk {
                lock: request,
                wait,
            } => {
                let place = (node, request.family);
                if request.lock.kind == LockKind::Unlock {
                    replier.done();
                    self.drop_locks(place, request.owner);
                } else if self.conflict(place, &request).is_none() {
                    self.take(place, &request, replier);
                } else if wait {
                    self.waiting.push((place, request, replier));
                } else {
                    replier.error(Errno::AGAIN);
                }
            }
            Operation::Release(release) => {
                replier.done();
                if release.flock_unlock {
                    self.drop_locks((node, LockFamily::Flock), release.lock_owner);
                }
            }
            other => unreachable!("{other:?} is about no lock"),
        }
    }

    fn take(&mut self, place: Place, request: &LockRequest, replier: Replier) {
        self.held
            .retain(|(held, owner, _)| (*held, *owner) != (place, request.owner));
        self.held.push((place, request.owner, request.lock));
        replier.done();
    }

    fn drop_locks(&mut self, place: Place, owner: LockOwner) {
        self.held
            .retain(|(held, by, _)| (*held, *by) != (place, owner));
        for (place, request, replier) in std::mem::take(&mut self.waiting) {
            if self.conflict(place, &request).is_none() {
                self.take(place, &request, replier);
            } else {
                self.waiting.push((place, request, replier));
            }
        }
    }

    fn conflict(&self, place: Place, request: &LockRequest) -> Option<Lock> {
        let wanted = request.lock;
        let against = |held: &Lock| {
            let exclusive = LockKind::Write;
            (held.kind == exclusive || wanted.kind == exclusive)
                && held.start <= wanted.end
                && wanted.start <= held.end
        };
        let found = self
            .held
            .iter()
            .find(|(held, owner, lock)| *held == place && *owner != request.owner && against(lock));
        found.map(|(.., lock)| *lock)
    }
}
