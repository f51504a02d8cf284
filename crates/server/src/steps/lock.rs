//! Locks.

use super::{Execution, Place, Stop, Waited};
use crate::locks::{Answer, NoteOutcome, Owner};
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
                let was_granted = match std::mem::replace(&mut self.waited, Waited::None) {
                    Waited::Granted if self.core.locks_noted.was_always_certain() => {
                        return Ok(StepReply::Done);
                    }
                    // It is there, and only to be noted; or it was taken back.
                    Waited::Granted => true,
                    Waited::Cancelled => return Err(self.taken_back()),
                    Waited::None | Waited::NoRoom | Waited::TooLong => false,
                };
                let place = self.target(target)?;
                if lock.mode != LockMode::Unlock && !was_granted {
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
        loop {
            let now = core.clock.now();
            let taken_back = core.locks_noted.taken_back();
            let answer = core
                .locks
                .lock(&place.outer, owner, lock, wait, reclaim, now, &core.pool);
            return match answer {
                Answer::Granted if lock.mode == LockMode::Unlock => Ok(StepReply::Done),
                Answer::Granted => match self.note_locks(worker, place, lock, taken_back) {
                    NoteOutcome::Noted => Ok(StepReply::Done),
                    NoteOutcome::Failed => Err(FsError::Io.into()),
                    NoteOutcome::Again => continue,
                },
                Answer::Conflict => Err(FsError::WouldBlock.into()),
                Answer::Deadlock => Err(FsError::Deadlock.into()),
                Answer::Limit => Err(FsError::NoLocks.into()),
                Answer::Waiting(ticket) => Err(Stop::AfterLock(ticket)),
                Answer::Grace => Err(Stop::AfterGrace),
            };
        }
    }

    /// Notes that locks are held, before anybody is told that this one is; without the note it is
    /// taken back. Its holder has no other in this place, which would have been noted.
    fn note_locks(
        &self,
        worker: &Worker,
        place: &Place,
        lock: &LockRange,
        taken_back: u64,
    ) -> NoteOutcome {
        let core = &self.core;
        core.locks_noted.note(
            taken_back,
            || worker.as_server(|| core.mark_locks(true)) == Ok(true),
            || {
                let unlock = LockRange {
                    mode: LockMode::Unlock,
                    ..*lock
                };
                let (owner, now) = (self.owner(lock), core.clock.now());
                core.locks
                    .lock(&place.outer, owner, &unlock, false, false, now, &core.pool);
            },
        )
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
