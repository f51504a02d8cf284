//! From a process of ours to a program that measures: bounded, and never without its parent.

use super::memory::enter_group;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// What a process ends with that cannot become another program, as shells say it. With a smaller
/// exit code it would say something in that program's name.
pub const NOT_RUN: u8 = 127;

/// The program `own`, which is this one, told to become another one: with `--group` a control group
/// may follow, then `--` and the words of [`exec_job`].
#[must_use]
pub fn job(own: &Path) -> Command {
    let mut command = Command::new(own);
    let parent = std::process::id().to_string();
    command.args(["verify", "job", "--parent", &parent]);
    command
}

/// Becomes the program `words`, in a control group, to be killed when the parent dies, the process
/// with the number `parent`: with the file system that it uses, it would outlive the run. Returns
/// only if that is not possible, or if the parent has ended already.
#[must_use]
pub fn exec_job(parent: u32, group: Option<&Path>, words: &[OsString]) -> io::Error {
    let Some((program, arguments)) = words.split_first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    let prepared = set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(io::Error::from)
        .and_then(|()| is_still(parent))
        .and_then(|()| group.map_or(Ok(()), enter_group));
    match prepared {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error,
    }
}

/// Of a parent that died before the kernel was asked to tell of it, it tells nothing.
fn is_still(parent: u32) -> io::Result<()> {
    let now = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    match now == Some(parent) {
        true => Ok(()),
        false => Err(io::Error::other("the process that wanted it has ended")),
    }
}
