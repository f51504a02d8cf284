//! The crash log: what was done to a device, in its order.
//!
//! A log as a file has also what was on the device before and what the log is about, so that every
//! crash state of a run can be made again from it alone. Its bytes: `docs/formats/crash-log.md`.

mod exported;
mod file;
mod imported;
#[cfg(test)]
mod tests;

pub use file::{CRASH_LOG_FORMAT_VERSION, LogError};
pub(crate) use imported::{Item, Reader};

use base::Extent;
use sim::Image;
use std::sync::Arc;

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Bytes were written.
    Write {
        /// Where.
        offset: u64,
        /// What; not empty.
        data: Arc<[u8]>,
    },
    /// Bytes became zeros; not empty.
    Zeros(Extent),
    /// Whatever stands before is certain.
    Flush,
    /// The workload's word.
    Mark(Mark),
}

impl Entry {
    /// What it takes of a log's bound.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self {
            Self::Write { data, .. } => data.len() as u64,
            _ => 0,
        }
    }
}

/// What a workload says of its steps, which are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// This step begins: from now on it may leave traces.
    Begun(u32),
    /// This step is done: what it promises holds.
    Done(u32),
}

/// Looks at the marks of a log that is read: whoever judges it relies on their order.
#[derive(Debug, Default)]
struct Marks {
    begun: u32,
    done: u32,
}

impl Marks {
    /// Takes the next entry; false if a step is told that had been told, or is done and has not
    /// begun.
    fn take(&mut self, entry: &Entry) -> bool {
        match entry {
            Entry::Mark(Mark::Begun(step)) if *step >= self.begun => self.begun = *step,
            Entry::Mark(Mark::Done(step)) if (self.done..=self.begun).contains(step) => {
                self.done = *step;
            }
            Entry::Mark(_) => return false,
            _ => {}
        }
        true
    }
}

/// A log with all that is needed to make crash states of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// What this is the log of, for the judge and for people; see `crash::Subject`.
    pub subject: String,
    /// What was on the device before.
    pub base: Image,
    /// What was done.
    pub entries: Vec<Entry>,
}
