//! Copies of requests: what is sent again after a reconnection, and must not run twice.
//!
//! What the journal knows of an earlier copy of the request decides whether a step runs at all, and
//! an intent is on record before it does.

use super::{Execution, Stop};
use crate::journal::{Act, Done, Intent, Key, Past};
use base::FsError;
use wire::message::{Refusal, Step, StepReply};

impl Execution {
    /// Runs `act`, which must not run twice, unless an earlier copy of this request ran it; then
    /// `redo` makes its answer up again. `describe` says what of the outcome goes on record.
    pub(super) fn once<T>(
        &mut self,
        act: Act,
        run: impl FnOnce(&mut Self) -> Result<T, FsError>,
        describe: impl FnOnce(&T) -> Done,
        redo: impl FnOnce(&mut Self, Done) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let core = self.core.clone();
        let key = Key {
            session: self.session.id,
            request: self.id,
            step: u8::try_from(self.next).expect("a request has at most 64 steps"),
        };
        if let Some(parallel) = self.parallel.get().cloned() {
            // The namespace notes what was done in the change itself, and answers a copy by it.
            if let Some(parallel) = parallel.tree.parallel() {
                let settled = &self.settled;
                parallel.settle_requests(key.session, |request| settled.covers(request));
            }
            self.identify();
            let outcome = run(self);
            self.turn.begin(None);
            return Ok(outcome?);
        }
        match core.journal.begin(key, Intent::new(act), self.resent)? {
            Past::NotDone => {
                let outcome = run(self);
                let record = outcome.as_ref().map(describe).map_err(|error| *error);
                core.journal.end(key, record);
                Ok(outcome?)
            }
            Past::Done(done) if done.unfilled.is_some() => {
                core.journal.again(key)?;
                let outcome = redo(self, done.clone());
                let record = match &outcome {
                    Ok(made) => Ok(describe(made)),
                    Err(Stop::Error(error)) => Err(*error),
                    Err(_) => Ok(done),
                };
                core.journal.end(key, record);
                outcome
            }
            Past::Done(done) => redo(self, done),
            Past::Failed(error) => Err(error.into()),
            Past::Unknown => Err(unknown()),
        }
    }

    /// What nobody can tell of one step is no reason not to tell what became of the others.
    pub(super) fn as_one_of_many(&self, stop: Stop) -> Stop {
        match stop {
            Stop::Refused(Refusal::OutcomeUnknown) if self.has_names_only() => {
                Stop::Error(FsError::Io)
            }
            stop => stop,
        }
    }

    /// Whether it is a copy, and of this step and all after it each is about a name of its own.
    fn has_names_only(&self) -> bool {
        let mut steps = self.steps[self.next..].iter().flatten();
        self.resent && steps.all(Step::goes_on_in_copies)
    }

    /// After a failure, in a copy of a request that makes and removes names: an earlier copy may
    /// have come further, and in another request nobody could tell what it has done. Whether that
    /// is so; before the step that has failed there was so much of the payload.
    pub(super) fn goes_on(&mut self, contents: usize) -> bool {
        if !self.has_names_only() {
            return false;
        }
        let failed = self.steps[self.next].take();
        // The step may not have come to its part.
        if let Some(Step::CreateFile { bytes, .. }) = failed
            && self.payload.len() == contents
        {
            let _ = self.payload.split_to(contents.min(bytes as usize));
        }
        self.found.resize(self.results.len(), None);
        self.turn_taken.end(&StepReply::Done);
        self.next += 1;
        self.wait_no_longer();
        true
    }
}

/// Nobody can tell what an earlier copy has done.
pub(super) fn unknown() -> Stop {
    Stop::Refused(Refusal::OutcomeUnknown)
}
