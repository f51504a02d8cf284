//! What waits at the manager for appends of others.
//!
//! Who makes a file longer comes after the appends that were begun before, and the manager answers
//! when they are there, or nobody waits for them any longer: it may be that their machine has died.
//! That is no silence of the manager's. So what waits there has that time besides its own, as long
//! as the manager is heard, and whoever waits here for what was written has it, too.

use super::super::Volume;
use super::carry::{Carrying, Result};
use crate::clock::now;
use crate::file::File;
use crate::pause::Pause;
use crate::transport::{Call, CallError, FileResponse, Pending, TimeLimit};
use base::limits::APPEND_WAIT_TIME_MAX;
use base::{FsError, Time};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::message::{Refusal, Step, StepReply};

/// How long the manager lets a request wait: for its turn, and for its answer.
const WAIT_TIME_MAX: Duration = APPEND_WAIT_TIME_MAX.saturating_mul(2);

/// Whether a step may wait for appends of others.
pub(super) fn waits_for_appends(step: &Step) -> bool {
    match step {
        Step::Stored { .. } => true,
        Step::SetAttributes { change, .. } => change.size.is_some(),
        _ => false,
    }
}

/// A request that may wait for appends is under way, as long as this is there.
struct Waiting(Arc<File>);

impl Waiting {
    fn begin(file: Arc<File>) -> Self {
        file.append_waits.begin();
        Self(file)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.append_waits.end(now());
    }
}

impl Carrying<'_> {
    /// Carries out a step of [`waits_for_appends`] at the manager.
    pub(super) async fn ask_behind_appends(&self, step: Step) -> Result<(StepReply, FileResponse)> {
        let _waiting = self.volume.file(self.node).map(Waiting::begin);
        let (transport, begun) = (&self.volume.transport, now());
        // Who stores asks again himself, for as long as he keeps what is to be stored.
        let may_ask_again = !matches!(step, Step::Stored { .. });
        let mut pause = Pause::put_off();
        let outcome = loop {
            let call = Call::within(TimeLimit::Endless);
            let pending = transport.submit_steps(self.who, vec![step.clone()], call);
            match self.answered_behind(pending, begun).await {
                Err(CallError::Refused(Refusal::Overloaded)) if may_ask_again => {
                    if now().since(begun) + pause.next() >= transport.stated_time() {
                        break Err(CallError::TimedOut);
                    }
                }
                outcome => break outcome,
            }
            pause.wait().await;
        };
        let time = now().since(begun).as_nanos();
        let time = u64::try_from(time).unwrap_or(u64::MAX);
        self.waited_nanos.fetch_add(time, Ordering::Relaxed);
        let (mut replies, response) = Volume::replied(1, outcome)?;
        Ok((replies.pop().ok_or(FsError::Io)?, response))
    }

    /// What is answered to a request that has been waited for since `begun`.
    async fn answered_behind(
        &self,
        pending: Pending,
        begun: Time,
    ) -> std::result::Result<FileResponse, CallError> {
        let transport = &self.volume.transport;
        let id = pending.id();
        let answer = pending.files();
        tokio::pin!(answer);
        loop {
            let limit = match self.time_limit {
                TimeLimit::Short => transport.request_time_max(),
                TimeLimit::Stated | TimeLimit::Endless => transport.stated_time(),
            };
            let time = now().since(begun);
            // What is left of its own time, or a look now and then.
            let look = limit.saturating_sub(time).max(limit / 8);
            if let Ok(outcome) = tokio::time::timeout(look, &mut answer).await {
                return outcome;
            }
            let time = now().since(begun);
            let is_endless = self.time_limit == TimeLimit::Endless;
            let is_there = transport.is_heard() && time < limit + WAIT_TIME_MAX;
            let may_wait = is_endless || is_there;
            if time >= limit && !may_wait {
                if let Some(id) = id {
                    transport.expire(id);
                }
                return Err(CallError::TimedOut);
            }
        }
    }

    /// How long it has waited like this since that was asked last.
    pub(super) fn take_waited(&self) -> Duration {
        Duration::from_nanos(self.waited_nanos.swap(0, Ordering::Relaxed))
    }
}

impl Volume {
    /// Waits for something about a file as long as a call is waited for that was made at `since`;
    /// none if its time is over. What waits at the manager for appends of others has more.
    pub(in crate::volume) async fn in_time_of<T>(
        &self,
        file: &File,
        since: Time,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::pin!(future);
        let mut from = since;
        loop {
            if let Some(output) = self.transport.in_time(from, &mut future).await {
                return Some(output);
            }
            let most = self.transport.stated_time() + WAIT_TIME_MAX;
            if now().since(since) >= most {
                return None;
            }
            let limit = self.transport.request_time_max();
            if file.append_waits.is_waiting() {
                if !self.transport.is_heard() {
                    return None;
                }
                // It is looked at again in a moment.
                from = now() - limit.saturating_sub(self.transport.stated_time() / 8);
                continue;
            }
            from = file.append_waits.own_time_since(since);
            if now().since(from) >= limit {
                return None;
            }
        }
    }
}
