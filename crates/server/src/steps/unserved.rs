//! What was written to a volume that is not served stays with its client.
//!
//! A server whose export's disk is not mounted (AZ0307) runs, and answers that nothing can be read
//! or changed there. What a client holds, and has told a program is written, is not lost by that:
//! when the server starts the next time, the disk may be there.

use super::{Execution, Stop};
use base::{FsError, Handle};
use wire::message::{FileRef, Refusal, Step, Target, WriteAt};

/// Of a step that brings what a program has been told is written, or makes it durable: whose it is.
fn brings(step: &Step, resent: bool) -> Option<&Target> {
    match step {
        Step::Write {
            file: FileRef { target, .. },
            at: WriteAt::Offset(_),
            ..
        }
        | Step::Commit {
            file: FileRef { target, .. },
            ..
        }
        | Step::SyncDirectory { target }
        | Step::SyncFileSystem { target } => Some(target),
        // Another request would not be known for the same.
        Step::Write { .. } | Step::CreateFile { .. } if resent => None,
        Step::Write { file, .. } => Some(&file.target),
        Step::CreateFile { parent, .. } => Some(parent),
        _ => None,
    }
}

impl Execution {
    /// What a step of a volume that is not served ends with: who has what it brings keeps it, and
    /// asks again.
    pub(super) fn or_put_off(&self, step: &Step, stop: Stop) -> Stop {
        if !matches!(stop, Stop::Error(FsError::Io)) {
            return stop;
        }
        let of = brings(step, self.resent).and_then(|target| self.outer(target));
        match of {
            Some(handle) if self.core.volumes.is_unserved(handle) => {
                Stop::Refused(Refusal::Overloaded)
            }
            _ => stop,
        }
    }

    /// The client's handle of what a step means; a step that found nothing, or comes later, is
    /// nobody's target.
    pub(super) fn outer<'a>(&'a self, target: &'a Target) -> Option<&'a Handle> {
        match target {
            Target::Handle(handle) => Some(handle),
            Target::Result(n) => self.found.get(usize::from(*n))?.as_ref(),
        }
    }
}
