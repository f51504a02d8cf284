//! Whose turn it is: locks between processes, waited for with a limit.

use crate::error::DiskError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Before the second attempt; it doubles up to a limit.
const PAUSE: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// A lock on a file, until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(File);

impl Turn {
    /// Beside others who share.
    pub(crate) fn shared(path: &Path, wait: Duration) -> Result<Self, DiskError> {
        Self::take(path, FlockOperation::NonBlockingLockShared, wait)
    }

    /// Without anybody else.
    pub(crate) fn alone(path: &Path, wait: Duration) -> Result<Self, DiskError> {
        Self::take(path, FlockOperation::NonBlockingLockExclusive, wait)
    }

    /// Which file is locked, whatever its name is by now.
    pub(crate) fn inode(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.ino())
    }

    fn take(path: &Path, operation: FlockOperation, wait: Duration) -> Result<Self, DiskError> {
        let mut options = File::options();
        let file = options.write(true).create(true).truncate(false).open(path);
        let file = file.map_err(DiskError::file("open", path))?;
        let deadline = Instant::now() + wait;
        let mut pause = PAUSE;
        loop {
            match flock(&file, operation) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                    thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => {
                    return Err(DiskError::Busy {
                        path: path.to_owned(),
                        seconds: wait.as_secs(),
                    });
                }
                Err(errno) => {
                    return Err(DiskError::file("lock", path)(io::Error::from(errno)));
                }
            }
        }
    }
}

impl Drop for Turn {
    /// A child between fork and exec may have a copy of the descriptor, which would keep the lock.
    fn drop(&mut self) {
        // Closing it unlocks as well, if later.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
