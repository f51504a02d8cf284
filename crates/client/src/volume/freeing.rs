//! Space that is about to become free.
//!
//! A removal that is answered ahead, or the close of a removed file, has been answered to the
//! program and frees its space a moment later. What is written next may come to the server first,
//! and finds no room on a full file system, which could not be on a local one. So what finds no
//! room is tried once more if something that frees was on its way at the same time, after that has
//! been answered. Parallel volumes promise less (V11) and are not waited for.

use super::Volume;
use crate::cache::NodeId;
use crate::clock::now;
use crate::transport::{Call, FileResponse};
use base::{FsError, Principal};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;
use wire::message::{Step, StepReply};

/// What frees space and is on its way.
#[derive(Debug, Default)]
pub(super) struct Freeing {
    state: Mutex<State>,
    progress: Notify,
}

#[derive(Debug, Default)]
struct State {
    begun: u64,
    ended: u64,
    under_way: BTreeSet<u64>,
}

/// How many had ended, for [`Freeing::is_since`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment(u64);

/// One of them; it is on its way until this is dropped.
#[derive(Debug)]
pub(super) struct Freer {
    number: u64,
    freeing: Arc<Freeing>,
}

impl Drop for Freer {
    fn drop(&mut self) {
        let mut state = self.freeing.lock();
        state.under_way.remove(&self.number);
        state.ended += 1;
        drop(state);
        self.freeing.progress.notify_waiters();
    }
}

impl Freeing {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic happens under this lock")
    }

    /// Something that frees space is asked for.
    pub(super) fn begin(self: &Arc<Self>) -> Freer {
        let mut state = self.lock();
        state.begun += 1;
        let number = state.begun;
        state.under_way.insert(number);
        drop(state);
        Freer {
            number,
            freeing: Arc::clone(self),
        }
    }

    pub(super) fn moment(&self) -> Moment {
        Moment(self.lock().ended)
    }

    /// Whether anything was on its way then or has been since.
    fn is_since(&self, moment: Moment) -> bool {
        let state = self.lock();
        state.ended != moment.0 || !state.under_way.is_empty()
    }

    /// Waits until nothing is on its way of what is now.
    async fn until_ended(&self) {
        let last = self.lock().begun;
        loop {
            let progress = self.progress.notified();
            tokio::pin!(progress);
            // Registered before the look, so that no wake-up is lost between the two.
            progress.as_mut().enable();
            let first = self.lock().under_way.first().copied();
            if first.is_none_or(|first| first > last) {
                return;
            }
            progress.await;
        }
    }
}

impl Volume {
    /// Whether what was asked for since `moment` and has failed like this is worth another try,
    /// after [`Self::until_freed`].
    pub(super) fn may_find_room(&self, error: FsError, moment: Moment) -> bool {
        let is_full = matches!(
            error,
            FsError::NoSpace | FsError::QuotaExceeded | FsError::TooManyOpen
        );
        is_full && self.stripes.is_none() && self.freeing.is_since(moment)
    }

    /// Waits for what frees space and is on its way now, as for all that was answered ahead.
    pub(super) async fn until_freed(&self) {
        self.send_gathered();
        loop {
            let before = self.transport.writes_answered();
            let ended = self.transport.in_time(now(), self.freeing.until_ended());
            if ended.await.is_some() || self.transport.writes_answered() == before {
                return;
            }
        }
    }

    /// Carries out one step, once more if it finds no room while some is about to become free.
    pub(super) async fn step_with_room(
        &self,
        who: &Principal,
        step: Step,
    ) -> Result<(StepReply, FileResponse), FsError> {
        let moment = self.freeing.moment();
        match self.step(who, step.clone()).await {
            Err(error) if self.may_find_room(error, moment) => {
                self.until_freed().await;
                self.step(who, step).await
            }
            outcome => outcome,
        }
    }

    /// As [`Self::step_with_room`], for a step that is about a file's contents.
    pub(super) async fn contents_with_room(
        &self,
        node: NodeId,
        who: &Principal,
        step: Step,
    ) -> Result<(StepReply, FileResponse), FsError> {
        let run = async |step: Step| {
            let ask = |since| {
                let call = Call::metadata().since(since);
                let pending = self.submit_contents(node, who, vec![step.clone()], call);
                pending.files()
            };
            let (mut replies, response) = Self::replied(1, self.patiently(ask).await)?;
            Ok((replies.pop().ok_or(FsError::Io)?, response))
        };
        let moment = self.freeing.moment();
        match run(step.clone()).await {
            Err(error) if self.may_find_room(error, moment) => {
                self.until_freed().await;
                run(step).await
            }
            outcome => outcome,
        }
    }
}
