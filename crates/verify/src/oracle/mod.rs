//! What must be there after a loss of power, and what may.
//!
//! The oracle knows the workload's tree after every step ([`Tree`]). A step that makes something
//! durable raises a *floor* when it is done: that of a file's content by `fsync`, `fdatasync` and
//! `sync`; that of a name by `fsync` of its file or directory and by `sync`. After a crash
//!
//! * a name is what it was after some step between its floor and the last step that had begun;
//! * a file has a length and, byte by byte, contents that it had after such a step (writes that
//!   were not made durable may have arrived in part); where one of these steps makes it longer or
//!   cuts it, the bytes there may also be zeros;
//! * what has no floor may be missing, shorter, or zeros: but it never has bytes that nobody wrote
//!   there, because they are somebody else's.
//!
//! Everything else is a [`Finding`]. What `fsync` promises of names is more than POSIX asks for; it
//! is what the journalling file systems of Linux do, and their developers treat the lack of it as a
//! fault. [`Promises`] says which of it a file system makes; ext2 makes fewer.

mod bytes;
mod content;
mod floor;
mod judge;
#[cfg(test)]
mod tests;
mod tree;

pub use judge::{Finding, Judgement, judge, judge_at_each};
pub use tree::{Invalid, Tree};

use crate::workload::Workload;
use serde::{Deserialize, Serialize};

/// What a file system promises beyond `fsync` of a file and of its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// `fsync` of a file makes its names durable, too.
    pub fsync_keeps_names: bool,
    /// A file that gets another name has one of the two at any time, and never both.
    pub rename_is_atomic: bool,
}

impl Promises {
    /// Of a file system with a journal or a log.
    pub const JOURNAL: Self = Self {
        fsync_keeps_names: true,
        rename_is_atomic: true,
    };
    /// Of one without.
    pub const PLAIN: Self = Self {
        fsync_keeps_names: false,
        rename_is_atomic: false,
    };
}

/// What lies at a path after a crash.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The path below the root, without a slash in front.
    pub path: String,
    /// What is there.
    pub kind: EntryKind,
}

/// What something is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A file with its content.
    File(#[serde(with = "bytes")] Vec<u8>),
    /// A file that cannot be read, and why.
    Unreadable(String),
    /// Neither.
    Other,
}

/// The workload's tree after every step.
#[derive(Clone, Debug)]
pub struct History {
    /// Number 0 is what was there before, number n what is there after step n.
    trees: Vec<Tree>,
    workload: Workload,
    promises: Promises,
}

impl History {
    /// Runs a workload on the model.
    ///
    /// # Errors
    /// The first step that makes no sense.
    pub fn new(workload: &Workload, promises: Promises) -> Result<Self, Invalid> {
        let mut tree = Tree::default();
        for step in &workload.setup {
            tree.apply(step)?;
        }
        let mut trees = vec![tree.clone()];
        for step in &workload.steps {
            tree.apply(step)?;
            trees.push(tree.clone());
        }
        Ok(Self {
            trees,
            workload: workload.clone(),
            promises,
        })
    }

    /// The workload's databases.
    #[must_use]
    pub fn databases(&self) -> Vec<String> {
        self.workload.databases()
    }
}
