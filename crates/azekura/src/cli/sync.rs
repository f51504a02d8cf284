//! `azekura sync`.

use super::write_back::{Left, Waiting, write_back};
use crate::config::Span;
use crate::errors::{Code, Failure, Result};
use crate::mounts::Mounted;
use rustix::io::Errno;
use std::path::PathBuf;

/// Wait until everything written to a mount is safe at the server
///
/// Says how much is still unwritten and waits for it. What cannot be made safe any more, because it
/// is lost, is told once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura sync mnt/photos")]
pub(super) struct Sync {
    /// A mounted directory, or anything below it
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Give up when nothing has moved for this long
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: Span,
}

impl Sync {
    pub(super) fn run(self) -> Result<()> {
        let mounted = Mounted::containing(&self.directory)?;
        let time_max = self.timeout.0;
        let status = match mounted.status(time_max) {
            // This user may ask nothing of the mount.
            Err(failure) if failure.code() == Code::FileDenied => return Err(failure),
            status => status.ok(),
        };
        let synced = write_back(&mounted, status.as_ref(), time_max, Waiting::ToGoOn);
        synced.map_err(|left| left.unsafe_yet(&mounted))
    }
}

impl Left {
    fn unsafe_yet(&self, mounted: &Mounted) -> Failure {
        let path = mounted.path.display();
        if matches!(self.errno, Errno::NOTCONN | Errno::CONNABORTED) {
            return mounted.silent(self.errno);
        }
        let message = format!("not all that was written to {path} is safe: {}", self.why());
        let hint = match self.errno {
            Errno::TIMEDOUT => format!(
                "nothing is given up as long as it is mounted: repeat; `azekura doctor {path}` \
                 says what is wrong"
            ),
            _ => format!(
                "what is lost is told once; the rest is not given up as long as {path} is mounted"
            ),
        };
        Failure::new(Code::Unwritten, message).hint(hint)
    }
}
