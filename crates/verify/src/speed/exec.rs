//! From a process of ours to a program that measures: bounded, and never without its parent.

use super::memory::enter_group;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Becomes the program `words`, in a control group, to be killed when the parent dies: with the
/// file system that it uses, it would outlive the run. Returns only if that is not possible.
#[must_use]
pub fn exec_job(group: Option<&Path>, words: &[OsString]) -> io::Error {
    let Some((program, arguments)) = words.split_first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    let prepared = set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(io::Error::from)
        .and_then(|()| group.map_or(Ok(()), enter_group));
    match prepared {
        Ok(()) => Command::new(program).args(arguments).exec(),
        Err(error) => error,
    }
}
