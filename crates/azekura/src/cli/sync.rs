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
                let message = match errno {
                    Errno::TIMEDOUT => {
                        let path = mounted.path.display();
                        format!("not all that was written to {path} is safe: no server answers")
                    }
                    _ => mounted.silent(errno).message().to_owned(),
                };
                let path = mounted.path.display();
                Err(Failure::new(Code::Unwritten, message).hint(format!(
                    "nothing is given up as long as it is mounted: repeat; `azekura doctor {path}` \
                     says what is wrong"
                )))
            }
        }
    }
}
