//! Locks.

use super::{Execution, Place, Stop, Waited};
use crate::locks::{Answer, Owner};
use crate::opens::Use;
use base::{FsError, Rights};
use export::Worker;
use wire::message::{LockKind, LockMode, LockRange, Step, StepReply};

impl Execution {
    pub(super) fn locks(&mut self, worker: &Worker, step: &Step) -> Result<StepReply, Stop> {
        match step {
            Step::Lock {
                target,
                lock,
                wait,
                reclaim,
            } => {
                match std::mem::replace(&mut self.waited, Waited::None) {
                    Waited::Granted => return Ok(StepReply::Done),
                    Waited::Cancelled => return Err(self.taken_back()),
                    Waited::None | Waited::NoRoom | Waited::TooLong => {}
                }
                let place = self.target(target)?;
                if lock.mode != LockMode::Unlock {
                    self.may_lock(worker, &place, lock)?;
                }
                self.lock_now(worker, &place, lock, *wait, *reclaim)
            }
            Step::TestLock { target, lock } => {
                let place = self.target(target)?;
                let standing = self.core.locks.test(&place.outer, self.owner(lock), lock);
                Ok(StepReply::Lock(standing))
            }
            Step::ReleaseLocks {
                target,
                owner,
                kind,
            } => {
                let place = self.target(target)?;
                let owner = Owner {
                    session: self.session.key,
                    owner: *owner,
                };
                self.core
                    .locks
                    .release(&place.outer, owner, *kind, &self.core.pool);
                Ok(StepReply::Done)
            }
            _ => unreachable!("the dispatcher sends only these here"),
        }
    }

    fn owner(&self, lock: &LockRange) -> Owner {
        Owner {
            session: self.session.key,
            owner: lock.owner,
        }
    }

    fn lock_now(
        &self,
        worker: &Worker,
        place: &Place,
        lock: &LockRange,
        wait: bool,
        reclaim: bool,
    ) -> Result<StepReply, Stop> {
        if lock.extent.is_empty() {
            return Err(FsError::Invalid.into());
        }
        let core = &self.core;
        let owner = self.owner(lock);
        let now = core.clock.now();
        match core
            .locks
            .lock(&place.outer, owner, lock, wait, reclaim, now, &core.pool)
        {
            Answer::Granted => {
                // The lock is held even if this fails, which has been logged.
                let _ = worker.as_server(|| core.note_locks());
                Ok(StepReply::Done)
            }
            Answer::Conflict => Err(FsError::WouldBlock.into()),
            Answer::Deadlock => Err(FsError::Deadlock.into()),
            Answer::Limit => Err(FsError::NoLocks.into()),
            Answer::Waiting(ticket) => Err(Stop::AfterLock(ticket)),
            Answer::Grace => Err(Stop::AfterGrace),
        }
    }

    /// A lock needs an open file, and that needed a permission. Where the server does not know the
    /// open (none was sent, or it has restarted), the permission is asked again.
    ///
    /// Any open file takes any flock(2) and a shared POSIX lock: what is asked is whether the
    /// caller could have it open at all. An exclusive POSIX lock takes one that is open for
    /// writing, as a kernel would say; who may only read keeps no writer away.
    fn may_lock(&self, worker: &Worker, place: &Place, lock: &LockRange) -> Result<(), FsError> {
        let takes_writing = lock.kind == LockKind::Posix && lock.mode == LockMode::Exclusive;
        let used = if takes_writing { Use::Append } else { Use::Any };
        if self.session.opens.has(&place.outer, used) {
            return Ok(());
        }
        let tree = &place.volume.tree;
        let read = Rights {
            read: true,
            ..Rights::default()
        };
        let write = Rights {
            write: true,
            ..Rights::default()
        };
        let enough = [write, read]
            .into_iter()
            .take(if takes_writing { 1 } else { 2 });
        let allowed = enough.into_iter().any(|wanted| {
            tree.check_access(self.by(worker), &place.inner, wanted)
                .is_ok()
        });
        if allowed {
            return Ok(());
        }
        let attributes = tree.attributes(self.by(worker), &place.inner)?;
        if attributes.uid == self.who.uid {
            Ok(())
        } else {
            Err(FsError::AccessDenied)
        }
    }
}
