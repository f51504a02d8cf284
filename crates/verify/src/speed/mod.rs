//! A speed run: how fast a file system is, and under which conditions.
//!
//! ```text
//! plan  = all combinations that make sense           pure, from what was asked for
//! order = rounds, each with every cell once          pure, from a seed
//! cell  = make, mount, set, bound; fio, bonnie++ and small files, caches dropped between; reset
//! outcome = medians with intervals, of what was not disturbed and of what was      pure
//! ```
//!
//! It is what sections 4 and 5 of the paper do, with repeats: character and block input and output,
//! many small files, block sizes, memory, flush time, parameters of the kernel. The programs that
//! measure are fio and bonnie++, which others know; only the small files are made by this program.
//!
//! As in a crash run, one process decides and another one acts ([`actor`]), so that nothing stays
//! behind when one of them dies. Parameters of the kernel are the whole machine's, so one run at a
//! time measures on a machine: the actor holds a lock on the kernel's directory of parameters.
//!
//! Figures without their conditions are worth nothing: each repeat has what others did to the
//! machine meanwhile ([`machine`]), and a run that was disturbed says so.

pub mod actor;
mod bonnie;
pub mod check;
mod exec;
pub mod files;
mod fio;
mod keeper;
pub mod machine;
mod memory;
mod outcome;
mod plan;
mod run;
mod tunable;
mod undo;
mod work;

pub use actor::{Refusal, serve};
pub use exec::{NOT_RUN, exec_job, job};
pub use keeper::Ground;
pub use outcome::{BlockRatio, Outcome, Sample, Summary};
pub use plan::{BLOCK_BYTES_DEFAULT, Cell, LeftOut, Matrix, Place, Plan};
pub use run::{Options, Watch, run, set};
pub use tunable::{Setting, Tunable};
pub(crate) use undo::{Notes, Undo, noted_loops, remove};
pub use undo::{clean_up, has_parameters, take_back};
pub use work::{Group, Measure, Objects, Value, Work};

use crate::actor::ActorError;
use std::io;
use std::path::PathBuf;

/// The directory whose lock is that of everybody who sets the kernel's parameters, or measures: it
/// is there on every machine, and nothing needs to be made for it.
pub const MACHINE: &str = "/proc/sys/vm";

/// Why a run came to no end.
#[derive(Debug, thiserror::Error)]
pub enum SpeedError {
    /// A program of the system is not there.
    #[error("{program} is not installed")]
    NoTool {
        /// Its name.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// Only root may.
    #[error("{0}, which only root may")]
    NoRoot(&'static str),
    /// Another run measures on this machine.
    #[error("another run measures on this machine")]
    Busy,
    /// A directory cannot be used.
    #[error("{path}: {source}")]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A parameter of a device would be set for others, too.
    #[error("{parameter} is of a whole disk, and {device} is none")]
    NoDisk {
        /// Its name.
        parameter: &'static str,
        /// The device that may be destroyed.
        device: PathBuf,
    },
    /// There is not enough room.
    #[error("{path}: {needed} bytes are needed and {free} are free")]
    NoRoom {
        /// Where.
        path: PathBuf,
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are there.
        free: u64,
    },
    /// The disk became full.
    #[error("{0}")]
    Full(String),
    /// A program failed, or what it says is no measurement.
    #[error("{0}")]
    Program(String),
    /// What acts does not go on.
    #[error(transparent)]
    Actor(#[from] ActorError),
}

impl SpeedError {
    /// What an actor, or a program that it ran, has said.
    fn of(why: String) -> Self {
        match why.contains("No space left on device") {
            true => Self::Full(why),
            false => Self::Program(why),
        }
    }
}
