//! `azekura umount`: nothing that was written is left behind silently.
//!
//! First everything written is made durable at the server, while the amount left is shown; the
//! limit is not on the whole but on standing still, because a long line may have much to carry.
//! Only then is the mount taken off. Where the server does not answer, the command ends within the
//! stated time, the mount stays, and the user decides.

use super::write_back::{
    LOOK_INTERVAL, Left, Waiting, is_cut_off, says_cut_off, unwritten_bytes, write_back,
};
use crate::config::Span;
use crate::errors::{Code, Failure, Result};
use crate::mounts::Mounted;
use crate::output;
use crate::process;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the mount's process is waited for after the mount is off: it says goodbye to the
/// server.
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a process whose connection was broken has to take its mount off by itself.
const ABORT_TIME_MAX: Duration = Duration::from_secs(2);
/// How often it is looked at.
const END_LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Unmount a volume after everything written is safe at the server
///
/// Says how much is still unwritten and waits for it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura umount mnt/photos")]
pub(super) struct Umount {
    /// Where it is mounted
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Detach it although programs use it; it ends when they are done
    #[arg(short, long)]
    lazy: bool,
    /// Give up what is unwritten and break the connection, without waiting for the server
    #[arg(short, long)]
    force: bool,
    /// Give up, with the mount still there, when nothing has moved for this long
    #[arg(long, value_name = "TIME", default_value = "30s")]
    timeout: Span,
    /// Say what is unwritten and whether programs are in the way, without unmounting
    #[arg(long)]
    dry_run: bool,
    /// Given by umount(8) and of no meaning here
    #[arg(short, hide = true)]
    no_mtab: bool,
    /// Given by umount(8) and of no meaning here
    #[arg(short, hide = true)]
    read_only: bool,
    /// Given by umount(8): the type, of which ours is the only one
    #[arg(short = 't', hide = true, value_name = "TYPE")]
    kind: Option<String>,
    /// A namespace, into which the caller has gone already
    #[arg(short = 'N', hide = true, value_name = "NAMESPACE")]
    namespace: Option<String>,
}

/// What is said when a mount goes whose server cannot be asked any more, and nothing waits for it.
const NOT_FLUSHED: &str = "the server does not answer: nothing that was written is lost here, and \
                           what it had taken of changes of names and attributes is safe unless its \
                           machine fails before its disk has it";

impl Umount {
    pub(super) fn run(self) -> Result<()> {
        let mounted = Mounted::at(&self.directory)?;
        let time_max = self.timeout.0;
        if self.force {
            return self.force(&mounted, time_max);
        }
        let status = mounted.status(time_max);
        if self.dry_run {
            let status = status?;
            if !self.lazy {
                mounted.check_unused()?;
            }
            return self.tell(&status);
        }
        let process = match &status {
            Ok(status) => process_of(status),
            // Its process has ended or it belongs to somebody who does not let us ask. The former
            // has nothing left to write; the latter is taken off by its owner or root only.
            Err(failure) if failure.code() == Code::FileDenied || has_ended(&mounted) => None,
            Err(_) if self.lazy => None,
            Err(_) => return status.map(drop),
        };
        let mut detach = self.lazy;
        if status.as_ref().is_ok_and(says_cut_off) {
            output::note(NOT_FLUSHED);
        } else if let Ok(status) = &status {
            match write_back(&mounted, Some(status), time_max, Waiting::ToEnd) {
                Ok(()) => {}
                // The question that hangs keeps the mount in use until it is detached.
                Err(_) if is_cut_off(&mounted) => {
                    detach = true;
                    output::note(NOT_FLUSHED);
                }
                Err(left) if self.lazy => output::note(left.failure(&mounted.path)),
                Err(left) => return Err(left.failure(&mounted.path)),
            }
        }
        mounted.unmount(detach || has_ended(&mounted))?;
        if !self.lazy
            && let Some(process) = process
        {
            wait_for_end(process);
        }
        Ok(())
    }

    /// What would be done.
    fn tell(&self, status: &Value) -> Result<()> {
        let bytes = unwritten_bytes(status);
        let (unwritten, directory) = (output::size(bytes), self.directory.display());
        let is_connected = status.get("connected").and_then(Value::as_bool);
        let unless = match is_connected {
            _ if says_cut_off(status) => {
                "; the server does not answer, and would not be waited for"
            }
            Some(false) if bytes > 0 => {
                "; the server is not connected now, and until it is that cannot be done"
            }
            _ => "",
        };
        output::line(format_args!(
            "would write back {unwritten} and unmount {directory}{unless}"
        ))
    }

    fn force(&self, mounted: &Mounted, time_max: Duration) -> Result<()> {
        if self.dry_run {
            let status = mounted.status(time_max.min(ABORT_TIME_MAX)).ok();
            if let Some(lost) = given_up(status.as_ref()) {
                output::note(format_args!("would be {lost}"));
            }
            return output::line(format_args!("would detach {}", self.directory.display()));
        }
        // Its process says its own number, and what is unwritten, without asking the server.
        let status = mounted.status(time_max.min(ABORT_TIME_MAX)).ok();
        match mounted.abort() {
            // The process notices, gives up what is unwritten and takes the mount off.
            Ok(()) => await_gone(mounted, time_max.min(ABORT_TIME_MAX))?,
            // The kernel's list of connections is not mounted everywhere. The end of the process
            // breaks the connection as well.
            Err(failure) => {
                tracing::debug!("{}", failure.message());
                if let Some(process) = status.as_ref().and_then(process_of) {
                    end_process(process, &mounted.path);
                }
            }
        }
        if mounted.is_there()? {
            mounted.unmount(true)?;
        }
        await_gone(mounted, time_max)?;
        if let Some(lost) = given_up(status.as_ref()) {
            output::note(lost);
        }
        Ok(())
    }
}

/// What a mount had not written back whose connection was broken, by its last figures.
fn given_up(status: Option<&Value>) -> Option<String> {
    let Some(status) = status else {
        let unknown = "given up: what was unwritten, if anything; the mount did not say how much";
        return Some(unknown.to_owned());
    };
    let has_unwritten = status.get("has_unwritten").and_then(Value::as_bool);
    match unwritten_bytes(status) {
        0 if has_unwritten != Some(true) => None,
        0 => Some("given up: changes without data that the server did not have yet".to_owned()),
        bytes => Some(format!(
            "given up: {} that were written and not yet safe at the server",
            output::size(bytes)
        )),
    }
}

/// The number of the process behind a mount.
fn process_of(status: &Value) -> Option<u64> {
    status.get("pid").and_then(Value::as_u64)
}

/// Kills the process behind the mount on `path`; one that does not name the path among its
/// arguments is another by now, or of another process namespace, and left alone.
fn end_process(process: u64, path: &Path) {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    if let Some(number) = number.filter(|_| process::names(process, path)) {
        // Of another user's process nothing is to be waited for. It may also have ended by itself.
        if kill_process(number, Signal::KILL).is_ok() {
            wait_for_end(process);
        }
    }
}

fn await_gone(mounted: &Mounted, time_max: Duration) -> Result<()> {
    let deadline = Instant::now() + time_max;
    while mounted.is_there()? && Instant::now() < deadline {
        std::thread::sleep(END_LOOK_INTERVAL);
    }
    Ok(())
}

/// Whether the process behind the mount is gone: every question is refused at once.
fn has_ended(mounted: &Mounted) -> bool {
    mounted.has_ended(LOOK_INTERVAL)
}

impl Left {
    /// Why it is not unmounted.
    fn failure(&self, path: &Path) -> Failure {
        let what = match (self.bytes, self.errno) {
            (0, Errno::TIMEDOUT) => format!(
                "it cannot be known whether all changes of {} are safe",
                path.display()
            ),
            (0, _) => format!("not all that was written to {} is safe", path.display()),
            (bytes, _) => format!(
                "{} written to {} are not safe",
                output::size(bytes),
                path.display()
            ),
        };
        let what = format!("{what}: {}", self.why());
        Failure::new(Code::Unwritten, what).hint(format!(
            "it is still mounted: repeat, or give it up with azekura umount --force {}",
            path.display()
        ))
    }
}

fn wait_for_end(process: u64) {
    let deadline = Instant::now() + END_TIME_MAX;
    while process::is_running(process) && Instant::now() < deadline {
        std::thread::sleep(END_LOOK_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_given_up_is_named() {
        let lost = |bytes: u64, any: bool| {
            given_up(Some(
                &json!({"unwritten_bytes": bytes, "has_unwritten": any}),
            ))
        };
        assert_eq!(lost(0, false), None);
        assert!(lost(0, true).is_some_and(|text| text.contains("without data")));
        assert!(lost(5 << 20, true).is_some_and(|text| text.contains("5.0 MiB")));
        assert!(given_up(None).is_some_and(|text| text.contains("did not say")));
    }
}
