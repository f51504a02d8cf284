//! What runs have left behind because all their processes were killed at once: loop devices, and
//! the directory of the run.
//!
//! Whoever runs holds a lock on the directory, so a directory whose lock can be had is left. (The
//! number of a process would not do: in a container there are others.) The file below a loop
//! device has the name of the directory: once the mounts of the run are gone, a loop device knows
//! nothing else of it.

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
    pub devices: Vec<PathBuf>,
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
            let devices = loop_devices(&name)?;
            stale.push(Stale { directory, devices });
        }
    }
    Ok(stale)
}

/// The loop devices of the run with this name.
fn loop_devices(name: &str) -> io::Result<Vec<PathBuf>> {
    let mut devices = Vec::new();
    for entry in fs::read_dir("/sys/block")? {
        let device = entry?.file_name();
        let below = Path::new("/sys/block").join(&device);
        // One that is not attached, or is no loop device, has no such file.
        let file = fs::read_to_string(below.join("loop/backing_file")).unwrap_or_default();
        if is_of(&file, name) {
            devices.push(Path::new("/dev").join(device));
        }
    }
    Ok(devices)
}

/// Whether a loop device's file is that of the run with this name. The kernel adds a remark to the
/// path of a file that is gone.
fn is_of(file: &str, name: &str) -> bool {
    let last = file.trim_end().trim_end_matches(" (deleted)");
    last.rsplit('/').next() == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_runs_are_known_by_their_name_wherever_they_were_mounted() {
        let name = "azekura-verify-x1";
        assert!(is_of(
            "/tmp/azekura-verify-x1/device/azekura-verify-x1\n",
            name
        ));
        assert!(is_of("/azekura-verify-x1 (deleted)\n", name));
        assert!(!is_of("/tmp/azekura-verify-x1/device/disk\n", name));
        assert!(!is_of("/azekura-verify-x12", name));
        assert!(!is_of("", name));
    }

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
