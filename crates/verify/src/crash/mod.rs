//! A crash run: workloads are recorded, their crash states tried, and what is wrong is reduced.
//!
//! ```text
//! base = make the file system, fill it, unmount                            once per target
//! log  = base, mount, each step between its two marks, unmount             per workload
//! plan = the log's crash states
//! verdict = put a state where it is tried, repair, mount, look, judge      per state
//! ```
//!
//! The writes of one recovery in sixteen are recorded as those of a workload are, so a crash during
//! recovery is one more plan, whose base is the crash state ([`Options::recoveries`]). All other
//! states are tried on a file in memory, which is faster ([`crate::state_file`]).

mod names;
mod outcome;
mod reduce;
mod run;
mod subject;
mod target;
#[cfg(test)]
mod tests;

pub use outcome::{Agreement, Failure, Outcome, Place, Totals};
pub use run::{Options, SECTOR_BYTES_DEFAULT, Stage, Watch, replay, run};
pub use subject::Subject;
pub use target::{Target, check_program};

use crate::actor::ActorError;
use crate::log::LogError;
use crate::oracle::Invalid;
use base::DeviceError;
use std::io;
use std::path::PathBuf;

/// Why a run came to no end.
#[derive(Debug, thiserror::Error)]
pub enum CrashError {
    /// A program of the system is not there.
    #[error("{program} is not installed")]
    NoTool {
        /// Its name.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// What uses the file system does not go on.
    #[error(transparent)]
    Actor(#[from] ActorError),
    /// The recorder refused, or the log is full.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is no such workload.
    #[error("{0}")]
    Workload(String),
    /// A workload makes no sense, which is a fault of this program.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// A log cannot be read.
    #[error("{path}: {source}")]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        source: LogError,
    },
    /// What the second recorder has recorded cannot be had.
    #[error("the second recorder: {0}")]
    Second(#[source] LogError),
    /// A state cannot be put into its file.
    #[error("the file of crash states: {0}")]
    States(#[source] io::Error),
    /// A log cannot be written.
    #[error("{path}: {source}")]
    Keep {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The run came to no end while a state was tried.
    #[error("{source}; state {state} of {workload} was tried, {log}")]
    Stuck {
        /// Of what.
        source: Box<CrashError>,
        /// Which.
        state: String,
        /// Of which workload.
        workload: String,
        /// What became of its log, in words.
        log: String,
        /// The command that tries it again.
        again: String,
    },
    /// A log is about something that this release does not know.
    #[error("the log says that it is about {0:?}")]
    Subject(String),
    /// A log, or whoever asks, wants a mount that could reach another device.
    #[error("{0}")]
    MountOptions(String),
    /// The log has no such state.
    #[error("the log has no state {0}")]
    NoState(String),
}
