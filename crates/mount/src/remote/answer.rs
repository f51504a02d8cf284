//! Answering exactly once, although the caller may give up first.
//!
//! An operation owns an [`Answer`]. When a signal comes for the caller, the answer is taken away
//! and given as EINTR: at once for waits that POSIX lets a signal end (locks), and for everything
//! else when the caller is dying, so that a process that waits for a dead server can be killed. The
//! operation goes on and finds that nobody waits; what it made for the caller alone it must undo.

use super::errno::errno;
use crate::kernel::{
    Attr, Delivery, DirectoryBuilder, DirectoryPlusBuilder, Entry, Lock, Opened, Process, Replier,
    StatFs, Statx, Unique,
};
use base::FsError;
use bytes::Bytes;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// How often a caller that got a signal is looked at.
const DYING_LOOK_TIME: Duration = Duration::from_millis(200);

type Slot = Arc<Mutex<Option<Replier>>>;

#[derive(Debug)]
struct Waiter {
    slot: Slot,
    pid: u32,
    /// Set for waits that any signal ends.
    breakable: Option<Arc<Notify>>,
}

/// All requests that are being worked on in tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting(Arc<Mutex<HashMap<Unique, Waiter>>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic happens under this lock")
}

/// The right to answer a request.
#[derive(Debug)]
pub(super) struct Answer {
    unique: Unique,
    pid: u32,
    replier: Option<Replier>,
    slot: Option<Slot>,
    waiting: Waiting,
}

impl Waiting {
    /// Takes on a request.
    pub(super) fn answer(&self, replier: Replier, pid: u32) -> Answer {
        let unique = replier.unique();
        Answer {
            unique,
            pid,
            replier: Some(replier),
            slot: None,
            waiting: self.clone(),
        }
    }

    /// A signal has come for the caller of a request.
    pub(super) fn interrupt(&self, unique: Unique, runtime: &tokio::runtime::Handle) {
        let waiters = lock(&self.0);
        let Some(waiter) = waiters.get(&unique) else {
            return;
        };
        if let Some(breakable) = &waiter.breakable {
            breakable.notify_one();
            return;
        }
        let (this, slot, pid) = (self.clone(), Arc::clone(&waiter.slot), waiter.pid);
        drop(waiters);
        runtime.spawn(async move {
            while lock(&this.0).contains_key(&unique) {
                if Process::of(pid).is_ok_and(|process| process.dying) {
                    lock(&this.0).remove(&unique);
                    let replier = lock(&slot).take();
                    if let Some(replier) = replier {
                        replier.error(Errno::INTR);
                    }
                    return;
                }
                tokio::time::sleep(DYING_LOOK_TIME).await;
            }
        });
    }
}

impl Answer {
    /// The operation will take time: from here on the caller can give up. With `breakable`, any
    /// signal is told through it and the operation answers itself.
    pub(super) fn wait(&mut self, breakable: Option<Arc<Notify>>) {
        // It may have waited for something else before.
        let slot: Slot = Arc::new(Mutex::new(self.take()));
        let waiter = Waiter {
            slot: Arc::clone(&slot),
            pid: self.pid,
            breakable,
        };
        lock(&self.waiting.0).insert(self.unique, waiter);
        self.slot = Some(slot);
    }

    fn take(&mut self) -> Option<Replier> {
        match self.slot.take() {
            None => self.replier.take(),
            Some(slot) => {
                lock(&self.waiting.0).remove(&self.unique);
                lock(&slot).take()
            }
        }
    }

    /// Answers; whether the caller got it.
    fn give(mut self, answer: impl FnOnce(Replier) -> Delivery) -> bool {
        self.take()
            .is_some_and(|replier| answer(replier) == Delivery::Taken)
    }

    pub(super) fn error(self, error: Errno) {
        self.give(|replier| replier.error(error));
    }

    pub(super) fn done(self) {
        self.give(Replier::done);
    }

    pub(super) fn fail(self, error: FsError) {
        self.error(errno(error));
    }

    /// Answers; whether the caller got it.
    pub(super) fn outcome(self, outcome: Result<(), FsError>) -> bool {
        match outcome {
            Ok(()) => self.give(Replier::done),
            Err(error) => self.give(|replier| replier.error(errno(error))),
        }
    }

    pub(super) fn entry(self, entry: &Entry) -> bool {
        self.give(|replier| replier.entry(entry))
    }

    pub(super) fn negative(self, valid: Duration) {
        self.give(|replier| replier.negative(valid));
    }

    pub(super) fn attr(self, attr: &Attr, valid: Duration) {
        self.give(|replier| replier.attr(attr, valid));
    }

    pub(super) fn statx(self, statx: &Statx, valid: Duration) {
        self.give(|replier| replier.statx(statx, valid));
    }

    pub(super) fn target(self, target: &[u8]) {
        self.give(|replier| replier.target(target));
    }

    pub(super) fn opened(self, opened: &Opened) -> bool {
        self.give(|replier| replier.opened(opened))
    }

    pub(super) fn created(self, entry: &Entry, opened: &Opened) -> bool {
        self.give(|replier| replier.created(entry, opened))
    }

    pub(super) fn data(self, parts: &[Bytes]) {
        self.give(|replier| replier.data_parts(parts));
    }

    pub(super) fn written(self, bytes: u32) {
        self.give(|replier| replier.written(bytes));
    }

    pub(super) fn copied(self, bytes: u64, wide: bool) {
        self.give(|replier| replier.copied(bytes, wide));
    }

    pub(super) fn statfs(self, statfs: &StatFs) {
        self.give(|replier| replier.statfs(statfs));
    }

    pub(super) fn xattr(self, value: &[u8], room: u32) {
        self.give(|replier| replier.xattr(value, room));
    }

    pub(super) fn offset(self, offset: u64) {
        self.give(|replier| replier.offset(offset));
    }

    pub(super) fn lock(self, lock: &Lock) {
        self.give(|replier| replier.lock(lock));
    }

    pub(super) fn directory(self, page: &DirectoryBuilder) {
        self.give(|replier| replier.directory(page));
    }

    pub(super) fn directory_plus(self, page: &DirectoryPlusBuilder) -> bool {
        self.give(|replier| replier.directory_plus(page))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // A replier left inside answers EIO by itself.
        drop(self.take());
    }
}
