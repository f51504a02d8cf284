//! `azekura sync`.

use crate::errors::{Code, Failure, Result};
use crate::mounts::Mounted;
use rustix::io::Errno;
use std::path::PathBuf;

/// Wait until everything written to a mount is safe at the server
#[derive(Debug, clap::Args)]
pub(super) struct Sync {
    /// A mounted directory, or anything below it
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Sync {
    pub(super) fn run(self) -> Result<()> {
        let mounted = Mounted::containing(&self.directory)?;
        // The mount's own time-out ends the wait.
        match mounted.sync().recv().unwrap_or(Err(Errno::IO)) {
            Ok(()) | Err(Errno::ROFS) => Ok(()),
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => Err(mounted.silent(errno)),
            Err(errno) => {
                let failure = mounted.silent(errno);
                Err(Failure::new(Code::Unwritten, failure.message().to_owned()))
            }
        }
    }
}
