//! What survives a loss of power, judged from outside; and how fast file systems are ([`speed`]).
//! Machines whose power really is cut, and their kernels, are in [`powercut`].
//!
//! ```text
//!              run (this process)                               actor (a process of its own)
//!  workload -> steps ----------------------- pipe ------------> mkfs, mount, write, fsync, look
//!  marks  -\                                                        |
//!           Recorder -> Medium <- FUSE file <- loop device <- file system under judgement
//!             |
//!           Log -> Plan: crash states -> Medium: one state -> actor: mount and look -> judge
//! ```
//!
//! A [`Recorder`] notes every write and flush of a file system, and between them the workload's
//! marks: a step has begun, a step is done. From the log a [`Plan`] makes crash states, each of
//! which a disk with a volatile cache may be found as. Each state is put below the loop device and
//! the file system is mounted and looked at as after a crash, its own recovery included; those
//! whose recovery is not to be interrupted are put into a file in memory instead, where nothing is
//! recorded ([`StateFile`]). The [`oracle`] says what must be there: it knows the workload's steps,
//! which of them were done, and which of those promise that something stays.
//!
//! Nothing of what is judged is imported, not even where the target is the store of this very
//! project: it is run as a process.
//!
//! Who shows a device as a file is not this crate's matter (`mount::device_file` does). The process
//! that serves the file must not use the file system on it: if it were killed in the middle of a
//! call, the call would wait for an answer of the process that waits for the call. So everything
//! that touches the file system is done by an [`actor`].
//!
//! Sources: research on crash consistency asks for states beyond those at flushes (Pillai et al.,
//! All File Systems Are Not Created Equal, OSDI 2014), for short sequences of operations gone
//! through systematically (Mohan et al., Finding Crash-Consistency Bugs with Bounded Black-Box
//! Crash Testing, OSDI 2018), and for a crash during recovery.

pub mod actor;
pub mod crash;
pub mod fault;
pub mod log;
pub mod medium;
pub mod oracle;
pub mod outcome;
pub mod powercut;
pub mod profile;
pub mod programs;
pub mod recorder;
pub mod report;
pub mod results;
pub mod second;
pub mod speed;
pub mod state_file;
pub mod states;
pub mod statistics;
pub mod tune;
pub mod workload;

pub use fault::Fault;
pub use medium::Medium;
pub use outcome::Outcome;
pub use recorder::Recorder;
pub use second::SecondRecorder;
pub use state_file::StateFile;
pub use states::{Plan, Policy};
