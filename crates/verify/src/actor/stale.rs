//! What runs have left behind because all their processes were killed at once: loop devices, and
//! the directory of the run.
//!
//! Whoever runs holds a lock on the directory, so a directory whose lock can be had is left. (The
//! number of a process would not do: in a container there are others.) The file below a loop
//! device has the name of the directory: once the mounts of the run are gone, a loop device knows
//! nothing else of it. One whose file is another program's does not even have that, and is noted.

use super::Loop;
use crate::speed::noted_loops;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// What the names of directories of runs begin with.
pub const RUN_PREFIX: &str = "azekura-verify-";

/// A run that left something behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Its directory.
    pub directory: PathBuf,
    /// Its loop devices, as far as they are still attached.
    pub devices: Vec<Loop>,
}

/// The lock on the directory of a run.
#[derive(Debug)]
pub struct RunLock(OwnedFd);

impl Drop for RunLock {
    /// A child that another thread has just begun has the descriptor as well, until it is another
    /// program: with that alone the directory would be held until then.
    fn drop(&mut self) {
        // What cannot be unlocked ends with the last descriptor.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Locks the directory of a run for as long as what is returned; `None` if somebody has it.
///
/// # Errors
/// Of opening the directory.
pub fn lock_run(directory: &Path) -> io::Result<Option<RunLock>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let descriptor = open(directory, flags, Mode::empty())?;
    match flock(&descriptor, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(RunLock(descriptor))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// The runs in `parent` that are over and have left something.
///
/// # Errors
/// Of listing the directory or the loop devices of this machine.
pub fn stale(parent: &Path) -> io::Result<Vec<Stale>> {
    let mut stale = Vec::new();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(RUN_PREFIX) {
            continue;
        }
        let directory = entry.path();
        // One that has just been removed, or is another user's, is not ours to clean up.
        if matches!(lock_run(&directory), Ok(Some(_))) {
            let devices = loops_of(&directory)?;
            stale.push(Stale { directory, devices });
        }
    }
    Ok(stale)
}

/// The loop devices of the run with this directory, as far as they are attached.
///
/// # Errors
/// Of listing the disks of this machine.
pub fn loops_of(directory: &Path) -> io::Result<Vec<Loop>> {
    let name = directory.file_name().unwrap_or_default();
    let mut devices = Loop::of(&name.to_string_lossy())?;
    let noted = noted_loops(directory).into_iter();
    devices.extend(noted.filter(Loop::is_attached));
    Ok(devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_holds_is_left() {
        let parent = std::env::temp_dir().join(format!("stale-{}", std::process::id()));
        let directory = parent.join("azekura-verify-x1");
        fs::create_dir_all(&directory).unwrap();
        fs::create_dir(parent.join("other")).unwrap();
        let lock = lock_run(&directory).unwrap();
        assert!(lock.is_some() && lock_run(&directory).unwrap().is_none());
        assert_eq!(stale(&parent).unwrap(), []);
        drop(lock);
        let left = Stale {
            directory,
            devices: Vec::new(),
        };
        assert_eq!(stale(&parent).unwrap(), [left]);
        fs::remove_dir_all(&parent).unwrap();
    }
}
