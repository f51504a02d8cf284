//! Advisory locks, both kinds, held at the server.

use super::{Call, RemoteFs};
use crate::kernel::{Lock, LockFamily, LockKind as KernelKind, LockRequest};
use base::Extent;
use rustix::io::Errno;
use std::sync::Arc;
use tokio::sync::Notify;
use wire::message::{LockKind, LockMode, LockRange};

/// A lock as the kernel says it, in our words.
fn lock_range(request: &LockRequest) -> LockRange {
    let lock = &request.lock;
    let extent = if lock.end >= Lock::END {
        Extent::between(lock.start, u64::MAX)
    } else {
        Extent::between(lock.start, lock.end + 1)
    };
    LockRange {
        kind: match request.family {
            LockFamily::Posix => LockKind::Posix,
            LockFamily::Flock => LockKind::Flock,
        },
        mode: match lock.kind {
            KernelKind::Read => LockMode::Shared,
            KernelKind::Write => LockMode::Exclusive,
            KernelKind::Unlock => LockMode::Unlock,
        },
        extent,
        owner: request.owner,
        pid: lock.pid,
    }
}

/// A lock that stands in the way, as the kernel wants it told.
fn kernel_lock(found: Option<LockRange>) -> Lock {
    match found {
        None => Lock {
            kind: KernelKind::Unlock,
            start: 0,
            end: Lock::END,
            pid: 0,
        },
        Some(lock) => Lock {
            kind: match lock.mode {
                LockMode::Shared => KernelKind::Read,
                LockMode::Exclusive | LockMode::Unlock => KernelKind::Write,
            },
            start: lock.extent.offset,
            end: lock.extent.end().saturating_sub(1).min(Lock::END),
            pid: lock.pid,
        },
    }
}

impl RemoteFs {
    pub(super) fn get_lock(&self, mut call: Call, request: LockRequest) {
        let Some(file) = self.handles.file(request.fh) else {
            return call.answer.error(Errno::BADF);
        };
        call.answer.wait(None);
        let volume = Arc::clone(&self.volume);
        self.runtime.spawn(async move {
            match volume
                .test_lock(&file.who, file.node, lock_range(&request))
                .await
            {
                Ok(found) => call.answer.lock(&kernel_lock(found)),
                Err(error) => call.answer.fail(error),
            }
        });
    }

    pub(super) fn set_lock(&self, mut call: Call, request: LockRequest, wait: bool) {
        let Some(file) = self.handles.file(request.fh) else {
            return call.answer.error(Errno::BADF);
        };
        if request.family == LockFamily::Posix && request.lock.kind != KernelKind::Unlock {
            self.handles.on_lock(request.fh, request.owner);
        }
        let broken_off = Arc::new(Notify::new());
        call.answer.wait(wait.then(|| Arc::clone(&broken_off)));
        let (volume, handles) = (Arc::clone(&self.volume), Arc::clone(&self.handles));
        self.runtime.spawn(async move {
            let broken_off = async move { broken_off.notified().await };
            let lock = lock_range(&request);
            let outcome = volume
                .lock(&file.who, file.node, lock, wait, broken_off)
                .await;
            let is_held = outcome.is_ok() && lock.mode != LockMode::Unlock;
            let is_heard = call.answer.outcome(outcome);
            // Its process died before it was granted. What comes when a process ends, or an open
            // file, may have come already; if not, it finds this one held.
            let is_over = || match lock.kind {
                LockKind::Posix => !handles.locks(request.fh, request.owner),
                LockKind::Flock => handles.file(request.fh).is_none(),
            };
            if is_held && !is_heard && is_over() {
                let (who, node) = (&file.who, file.node);
                let released = volume.release_locks(who, node, lock.kind, request.owner);
                if let Err(error) = released.await {
                    tracing::warn!(%error, "a lock of a process that is gone stays");
                }
            }
        });
    }
}
