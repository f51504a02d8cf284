//! A disk of 100 MB/s, as slow as one that turns, for the demonstration's store.
//!
//! What is reserved is a part of a device. Where server, mounts and writers share one machine, its
//! processors are used up long before a fast device is, and then there is nothing to see. This one
//! lies in memory, behind a mount of ours: it does one request after the other, each in the time
//! that its bytes take. To the server it is a device like any other.
//!
//! It is served by a process of its own, since whoever serves a file must not be waiting for it,
//! and the demonstration does, through its mounts and the server. When the one that started it
//! ends, whatever it dies of, that process takes the mount off, and ends when the server has closed
//! the file.

use crate::errors::{Code, Context, Failure, Result};
use ::verify::Medium;
use base::{BlockDevice, DeviceError, Extent};
use mount::disk::{DiskConfig, DiskMount, FILE_NAME};
use rustix::mount::{UnmountFlags, unmount};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What it reads or writes, in bytes.
pub(super) const BYTES_PER_SECOND: u64 = 100_000_000;
/// So much of it may come late, because a thread that sleeps wakes late, and is made up for.
const LATE_MAX: Duration = Duration::from_millis(2);
/// Time for it to come up, and to end, also on a machine that is busy.
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// A disk that is served by another process. Dropping it ends that, which nobody must use then.
pub(super) struct Disk {
    server: Child,
    mount_point: PathBuf,
}

impl Disk {
    /// A disk of this size, with nothing on it, on the directory `mount_point`, by `command`: this
    /// program's `demo`, which gets to [`serve`].
    pub(super) fn start(mut command: Command, mount_point: &Path, bytes: u64) -> Result<Self> {
        fs::create_dir(mount_point).context(mount_point.display())?;
        let size = bytes.to_string();
        // The pipe to it is closed with this process.
        command.arg("--disk-bytes").arg(size);
        command.arg("--serve-disk").arg(mount_point);
        let server = command.stdin(Stdio::piped()).spawn();
        let server = server.context("a process")?;
        let mut disk = Self {
            server,
            mount_point: mount_point.to_owned(),
        };
        let deadline = Instant::now() + START_TIME_MAX;
        while !disk.file().exists() {
            let is_gone = !matches!(disk.server.try_wait(), Ok(None));
            if is_gone || Instant::now() >= deadline {
                let message = "the disk of the demonstration did not start";
                return Err(Failure::new(Code::Local, message));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(disk)
    }

    /// What is the disk.
    pub(super) fn file(&self) -> PathBuf {
        self.mount_point.join(FILE_NAME)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.server.stdin.take());
        let deadline = Instant::now() + START_TIME_MAX;
        while matches!(self.server.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                let _ = self.server.kill();
                let _ = self.server.wait();
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        // It has been done, unless that process could not.
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        let _ = unmount(&self.mount_point, flags);
    }
}

/// Serves a disk of so many bytes until standard input ends and nobody uses it.
pub(super) fn serve(mount_point: &Path, bytes: u64) -> Result<()> {
    let config = DiskConfig {
        source: "azekura-demo".to_owned(),
        allow_other: false,
        read_only: false,
    };
    let slow = Arc::new(Slow::new(bytes));
    let mounted = DiskMount::direct(slow, mount_point, &config, FILE_NAME)?;
    let point = mounted.mount_point().clone();
    thread::spawn(move || {
        // An error is as good as an end.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        if point.unmount(true).is_err() {
            let _ = point.abort();
        }
    });
    mounted.run()?;
    Ok(())
}

/// A disk whose bytes take their time.
struct Slow {
    medium: Medium,
    /// When it has done what it was given.
    free_at: Mutex<Instant>,
}

impl Slow {
    fn new(bytes: u64) -> Self {
        Self {
            medium: Medium::new(bytes),
            free_at: Mutex::new(Instant::now()),
        }
    }

    /// Waits until so many bytes have passed after those that were asked for before.
    fn take_time_for(&self, bytes: usize) {
        let done_at = {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            *free_at = done_at(*free_at, Instant::now(), bytes as u64);
            *free_at
        };
        thread::sleep(done_at.saturating_duration_since(Instant::now()));
    }
}

fn done_at(free_at: Instant, now: Instant, bytes: u64) -> Instant {
    let begin = now.checked_sub(LATE_MAX).unwrap_or(now).max(free_at);
    begin + Duration::from_nanos(bytes * 1_000_000_000 / BYTES_PER_SECOND)
}

impl BlockDevice for Slow {
    fn len_bytes(&self) -> u64 {
        self.medium.len_bytes()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> std::result::Result<(), DeviceError> {
        self.take_time_for(into.len());
        self.medium.read_at(offset, into)
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> std::result::Result<(), DeviceError> {
        self.take_time_for(from.len());
        self.medium.write_at(offset, from)
    }

    fn flush(&self) -> std::result::Result<(), DeviceError> {
        self.medium.flush()
    }

    fn trim(&self, extent: Extent) -> std::result::Result<(), DeviceError> {
        self.medium.trim(extent)
    }
}

/// The size of a disk for the demonstration's store, in bytes, where there is memory for one: a
/// quarter of what is free at most.
pub(super) fn size() -> Option<u64> {
    const SIZE: u64 = 256 << 20;
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    (memory_free(&text)? / 4 >= SIZE).then_some(SIZE)
}

/// Bytes that programs can have without others losing any.
fn memory_free(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes = line.trim().strip_suffix("kB")?.trim();
    Some(kibibytes.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time_and_nothing_is_saved_up() {
        let begin = Instant::now();
        let second = |of: Instant, bytes| done_at(of, begin, bytes).saturating_duration_since(of);
        // It is at something: what comes is done behind that.
        let busy = begin + Duration::from_secs(1);
        assert_eq!(second(busy, BYTES_PER_SECOND), Duration::from_secs(1));
        assert_eq!(second(busy, 0), Duration::ZERO);
        // It was idle for long: all but a moment of that is over.
        let now = begin + Duration::from_secs(60);
        let done = done_at(begin, now, BYTES_PER_SECOND);
        assert_eq!(done, now + Duration::from_secs(1) - LATE_MAX);
    }

    #[test]
    fn memory_that_is_free_is_read() {
        let text = "MemTotal:       24576000 kB\nMemAvailable:   20000000 kB\n";
        assert_eq!(memory_free(text), Some(20_000_000 << 10));
        assert_eq!(memory_free("MemTotal: 1 kB\n"), None);
    }
}
