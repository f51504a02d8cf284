//! Waiting for other requests of the session: a commit waits for the writes in front of it.
//!
//! The request is put aside in the session's memory, which knows what has run ([`crate::behind`]).

use super::{Execution, Stop, Waited};
use base::{FsError, RequestId};
use wire::message::{Refusal, StepReply};

impl Execution {
    /// Goes on if these have run.
    pub(super) fn after(&mut self, requests: &[RequestId]) -> Result<StepReply, Stop> {
        match std::mem::replace(&mut self.waited, Waited::None) {
            Waited::None | Waited::Granted => {}
            Waited::Cancelled => return Err(self.taken_back()),
            Waited::NoRoom => return Err(FsError::WouldBlock.into()),
            Waited::TooLong => return Err(FsError::TimedOut.into()),
        }
        // Whoever waits only for earlier ones never waits for one that waits for it.
        if requests.iter().any(|id| *id >= self.id) {
            return Err(FsError::Invalid.into());
        }
        if self.session.memory().have_run(requests) {
            return Ok(StepReply::Done);
        }
        Err(Stop::AfterRequests(requests.to_vec()))
    }

    /// Puts the request aside until these have run.
    pub(super) fn wait_behind(self: Box<Self>, requests: &[RequestId]) {
        let (core, session, id) = (self.core.clone(), self.session.clone(), self.id);
        let now = core.clock.now();
        let mut back = session.memory().put_behind(requests, self, now);
        if back.is_none() && core.locks.take_given_up(session.key, id) {
            let taken = session.memory().take_behind(id);
            back = taken.map(|request| (request, Waited::Cancelled));
        }
        if let Some((mut request, waited)) = back {
            request.end_wait(waited);
            core.pool.push_resumed(request);
        }
    }

    /// Why a step stops whose client does not want to wait for it any more. What came before it in
    /// the request has been carried out and stays.
    pub(super) fn taken_back(&self) -> Stop {
        if self.results.is_empty() {
            Stop::Refused(Refusal::Cancelled)
        } else {
            FsError::Cancelled.into()
        }
    }
}
