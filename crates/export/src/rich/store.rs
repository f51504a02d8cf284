//! Views that are stored, by a thread that does nothing else.
//!
//! Requests put handles into a queue and go on. What is stored is not what they made, but what is
//! there when its turn comes: the job is a handle, so asking twice is asking once, and whoever
//! changes the file meanwhile loses nothing. One system call stores a view whole, with the rights
//! of the file's owner beside those that the attribute takes, so that his quota and the blocks that
//! are kept for root count as if he had made it.
//!
//! Nothing is stored where that would harm: not on a file system that cannot be written, not in its
//! last hundredth of space, not beside immutable files, not beside a rich ACL that is the truth. A
//! view that takes the room of another attribute goes.
//! What does not depend on the file (full, read-only) ends all storing for a while
//! ([`ACL_VIEWS_REST_TIME`]); what does is not tried with that file again until its ACL changes.
//!
//! The same thread settles rich ACLs that are the truth, where a stop half way has left mode and
//! POSIX ACL behind; no rest is kept from that.
//!
//! Storing moves the file's time of change, which clients see: whoever calls tells them.

use super::view::{Unstored, VIEW};
use super::{STORED, WRITING, told};
use crate::change::descriptor_path;
use crate::errno::fs_error;
use crate::export::Export;
use crate::stat::stat;
use crate::worker::{Assumed, Worker};
use base::limits::{ACL_VIEWS_PER_BATCH_MAX, ACL_VIEWS_REST_TIME, ACL_VIEWS_WAITING_MAX};
use base::{FileKind, FsError, Handle, Principal};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::StatVfsMountFlags;
use std::collections::{HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Part of a file system's space that views leave free.
const FREE_PART: u64 = 100;

/// Why nothing at all is stored for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    ReadOnly,
    Full,
}

#[derive(Default)]
struct Waiting {
    handles: VecDeque<Handle>,
    known: HashSet<Handle>,
    unsettled: HashSet<Handle>,
    rest: Option<(Instant, Rest)>,
}

impl Waiting {
    fn rest(&self) -> Option<Rest> {
        let (until, why) = self.rest?;
        (Instant::now() < until).then_some(why)
    }
}

/// Files whose views are to be stored, each once.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    has_come: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a file in, or says why not.
    pub(super) fn push(&self, handle: &Handle) -> Option<Unstored> {
        let mut waiting = self.lock();
        if let Some(rest) = waiting.rest() {
            return Some(rest.into());
        }
        if waiting.known.contains(handle) {
            return None;
        }
        if waiting.handles.len() >= ACL_VIEWS_WAITING_MAX {
            return Some(Unstored::Busy);
        }
        waiting.known.insert(handle.clone());
        waiting.handles.push_back(handle.clone());
        drop(waiting);
        self.has_come.notify_one();
        None
    }

    /// Takes in a file whose truth is an unsettled list, if there is room; who reads it the next
    /// time asks again.
    pub(super) fn push_unsettled(&self, handle: &Handle) {
        let mut waiting = self.lock();
        if waiting.unsettled.len() < ACL_VIEWS_WAITING_MAX {
            waiting.unsettled.insert(handle.clone());
            drop(waiting);
            self.has_come.notify_one();
        }
    }

    fn take_unsettled(&self) -> HashSet<Handle> {
        std::mem::take(&mut self.lock().unsettled)
    }

    /// Some of those that wait; none if there are none after `time`, or if somebody nudges.
    fn take(&self, time: Duration) -> Vec<Handle> {
        let mut waiting = self.lock();
        if waiting.handles.is_empty() && waiting.unsettled.is_empty() {
            let waited = self.has_come.wait_timeout(waiting, time);
            (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let count = waiting.handles.len().min(ACL_VIEWS_PER_BATCH_MAX);
        let taken: Vec<Handle> = waiting.handles.drain(..count).collect();
        for handle in &taken {
            waiting.known.remove(handle);
        }
        taken
    }

    /// Nothing is stored for a while; those that waited are given back.
    pub(super) fn begin_rest(&self, why: Rest) -> Vec<Handle> {
        let mut waiting = self.lock();
        waiting.rest = Some((Instant::now() + ACL_VIEWS_REST_TIME, why));
        waiting.known.clear();
        waiting.handles.drain(..).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.lock().handles.len()
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// It is stored.
    Stored,
    /// It was, or there is none to be stored: the truth is a rich ACL, or it is a symbolic link.
    Needless,
    /// It is not.
    Not(Unstored),
    /// Nothing is stored here at the moment.
    Rests(Rest),
}

impl Export {
    /// Stores some of the views that wait, or waits for the first for at most `time`, and settles
    /// rich ACLs. Returns the files of which something was stored: their time of change has moved.
    pub fn store_views(&self, worker: &Worker, time: Duration) -> Vec<Handle> {
        let views = &self.rich.views;
        let mut batch = views.queue.take(time).into_iter();
        let mut stored = self.settle_truths(worker);
        while let Some(handle) = batch.next() {
            match self.keep_view(worker, &handle) {
                Ok(Kept::Stored) => stored.push(handle),
                Ok(Kept::Needless) => {}
                Ok(Kept::Not(why)) => views.count_unstored(why),
                Ok(Kept::Rests(why)) => {
                    let left = views.queue.begin_rest(why);
                    views.count_unstored(why.into());
                    let rest: Vec<Handle> = batch.by_ref().collect();
                    views.forgive([&handle].into_iter().chain(&rest).chain(&left));
                }
                // It is gone, or cannot be read; nobody has asked for this.
                Err(error) => {
                    tracing::debug!(%error, "a view is not stored");
                    views.count_unstored(Unstored::Failed);
                }
            }
        }
        stored
    }

    fn settle_truths(&self, worker: &Worker) -> Vec<Handle> {
        let unsettled = self.rich.views.queue.take_unsettled().into_iter();
        let settled = unsettled.filter(|handle| match self.settle_truth(worker, handle) {
            Ok(was_unsettled) => was_unsettled,
            Err(error) => {
                // It is gone, or cannot be written; the list decides all the same.
                tracing::warn!(%error, "a rich ACL stays unsettled");
                false
            }
        });
        settled.collect()
    }

    /// Ends a wait of [`Export::store_views`].
    pub fn nudge_views(&self) {
        self.rich.views.queue.has_come.notify_all();
    }

    /// Stores the view of a file as it is now, unless there is a reason not to.
    pub(super) fn keep_view(&self, worker: &Worker, handle: &Handle) -> Result<Kept, FsError> {
        let pin = self.resolve(&worker.assume(&Principal::root())?, handle)?;
        let fd = pin.as_fd();
        let _turn = self.rich.turn(handle);
        let attributes = stat(fd)?.attributes;
        if attributes.kind == FileKind::Symlink || self.read_own(fd, STORED)?.is_some() {
            return Ok(Kept::Needless);
        }
        let values = self.read_values(fd, &attributes)?;
        let made_of = values.made_of(&attributes);
        if self.stored_view(fd, made_of, &attributes).is_some() {
            return Ok(Kept::Needless);
        }
        if attributes.protected {
            return Ok(Kept::Not(Unstored::Protected));
        }
        if let Some(rest) = self.has_no_room()? {
            return Ok(Kept::Rests(rest));
        }
        let Ok(bytes) = made_of.stored(values.parse()?.view(&attributes)) else {
            return Ok(Kept::Not(Unstored::TooLarge));
        };
        let owner = Principal::alone(attributes.uid, attributes.gid);
        let caller = worker.assume(&owner)?;
        let set = caller.with(WRITING, || told::set(&descriptor_path(fd), VIEW, &bytes))?;
        Ok(match set {
            Ok(()) => {
                self.rich.views.count_stored();
                Kept::Stored
            }
            Err(FsError::ReadOnly) => Kept::Rests(Rest::ReadOnly),
            // There was room a moment ago, so it is the place for attributes that has none.
            Err(FsError::NoSpace | FsError::TooBig | FsError::Range) => {
                Kept::Not(Unstored::TooLarge)
            }
            Err(FsError::QuotaExceeded) => Kept::Not(Unstored::Full),
            Err(FsError::NotPermitted | FsError::AccessDenied) => Kept::Not(Unstored::Protected),
            Err(error) => return Err(error),
        })
    }

    /// Whether a walk is to store the view of a file; of those that the policy never stores only
    /// if it is of all files.
    pub(super) fn wants_view(
        &self,
        worker: &Worker,
        handle: &Handle,
        all: bool,
    ) -> Result<bool, FsError> {
        let caller = worker.assume(&Principal::root())?;
        let pin = self.resolve(&caller, handle)?;
        let fd = pin.as_fd();
        let attributes = stat(fd)?.attributes;
        if attributes.kind == FileKind::Symlink || self.read_own(fd, STORED)?.is_some() {
            return Ok(false);
        }
        let values = self.read_values(fd, &attributes)?;
        if !all && !self.rich.views.storing().may_store(values.entries()) {
            return Ok(false);
        }
        let made_of = values.made_of(&attributes);
        Ok(self.stored_view(fd, made_of, &attributes).is_none())
    }

    /// Why nothing is to be stored here at all.
    fn has_no_room(&self) -> Result<Option<Rest>, FsError> {
        let stat = rustix::fs::fstatvfs(self.top()).map_err(fs_error)?;
        if stat.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Ok(Some(Rest::ReadOnly));
        }
        let is_full = stat.f_bavail < stat.f_blocks / FREE_PART;
        Ok(is_full.then_some(Rest::Full))
    }

    /// Removes a view in whose room something else is to lie; whether there was one.
    pub(crate) fn yield_room(
        &self,
        caller: &Assumed<'_>,
        fd: BorrowedFd<'_>,
    ) -> Result<bool, FsError> {
        if self.read_own(fd, VIEW)?.is_none() {
            return Ok(false);
        }
        caller.with(WRITING, || told::remove(&descriptor_path(fd), VIEW))??;
        Ok(true)
    }

    /// Removes the view that is stored beside a file, or only says whether there is one.
    pub(super) fn drop_view(
        &self,
        worker: &Worker,
        handle: &Handle,
        dry_run: bool,
    ) -> Result<bool, FsError> {
        let caller = worker.assume(&Principal::root())?;
        let pin = self.resolve(&caller, handle)?;
        let fd = pin.as_fd();
        let is_link = stat(fd)?.attributes.kind == FileKind::Symlink;
        if is_link || self.read_own(fd, VIEW)?.is_none() {
            return Ok(false);
        }
        if !dry_run {
            caller.with(WRITING, || told::remove(&descriptor_path(fd), VIEW))??;
        }
        Ok(true)
    }
}
