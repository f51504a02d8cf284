//! What runs have left behind because all their processes were killed at once: loop devices, and
//! the directory of the run.
//!
//! Whoever runs holds a lock on the directory, the run and its actor together, so a directory whose
//! lock can be had alone is left: as long as an actor that outlives its run uses what is there,
//! nobody takes that away under it. (The number of a process would not do: in a container there are
//! others.) The file below a loop
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

/// A run that left something behind. Nobody else cleans up behind it meanwhile.
#[derive(Debug)]
pub struct Stale {
    /// Its directory.
    pub directory: PathBuf,
    /// Its loop devices, as far as they are still attached.
    pub devices: Vec<Loop>,
    /// Held by whoever cleans up.
    _lock: RunLock,
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
    lock(directory, FlockOperation::NonBlockingLockExclusive)
}

/// The same together with the other processes of a run; `None` if somebody has it alone.
///
/// # Errors
/// As for [`lock_run`].
pub fn share_run(directory: &Path) -> io::Result<Option<RunLock>> {
    lock(directory, FlockOperation::NonBlockingLockShared)
}

fn lock(directory: &Path, operation: FlockOperation) -> io::Result<Option<RunLock>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let descriptor = open(directory, flags, Mode::empty())?;
    match flock(&descriptor, operation) {
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
        if let Ok(Some(lock)) = lock_run(&directory) {
            stale.push(Stale {
                devices: loops_of(&directory)?,
                directory,
                _lock: lock,
            });
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
        assert!(stale(&parent).unwrap().is_empty());
        drop(lock);
        // The run, and its actor, which may live longer.
        let run = share_run(&directory).unwrap();
        let actor = share_run(&directory).unwrap();
        assert!(run.is_some() && actor.is_some());
        for lock in [run, actor] {
            assert!(stale(&parent).unwrap().is_empty());
            drop(lock);
        }
        let left = stale(&parent).unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(
            (&left[0].directory, &left[0].devices),
            (&directory, &Vec::new())
        );
        // One cleans up, and nobody begins to use what is taken away.
        assert!(stale(&parent).unwrap().is_empty() && share_run(&directory).unwrap().is_none());
        drop(left);
        assert_eq!(stale(&parent).unwrap().len(), 1);
        fs::remove_dir_all(&parent).unwrap();
    }
}
