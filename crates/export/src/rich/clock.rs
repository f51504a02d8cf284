//! Whether the file system dates each change of an inode differently.
//!
//! As a rule it does not: changes are dated by a clock that moves with the timer's interrupt, so
//! two within a tick (1 to 10 ms) look like one. Newer kernels (Linux 6.13 for ext4, XFS, btrfs and
//! tmpfs) date a change exactly if somebody has asked for the inode's times since the last one.
//! Then what was read after asking belongs to the time that was told, however short ago that is.
//!
//! No call says which it is, so it is tried: on a file without a name, which is gone when this
//! ends. It must change faster than any tick, and each change must be seen.

use crate::errno::fs_error;
use crate::export::Export;
use crate::stat::stat;
use base::FsError;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use std::time::{Duration, Instant};

/// File systems that do so by asking the kernel's clock, and not by their own or somebody else's.
const EXACT: [i128; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];
/// Changes in a row.
const CHANGES: u32 = 32;
/// The shortest tick there is: 1,000 Hz.
const TICK_MIN: Duration = Duration::from_millis(1);
/// How often it is tried, because others may use the processor.
const TRIES: usize = 8;

impl Export {
    /// Finds out whether the file system dates each change differently, so that lists of files that
    /// have just changed may be kept in memory. Not for exports that may not be written to: it
    /// changes a file without a name. Where it cannot be found out, it is taken not to. Whether it
    /// does.
    pub fn try_clock(&self) -> bool {
        let is_exact = self.dates_each_change().unwrap_or(false);
        self.rich.lists.set_exact(is_exact);
        tracing::debug!(is_exact, "how the file system dates changes");
        is_exact
    }

    fn dates_each_change(&self) -> Result<bool, FsError> {
        let kind = rustix::fs::fstatfs(self.top()).map_err(fs_error)?.f_type;
        if !EXACT.contains(&i128::from(kind)) {
            return Ok(false);
        }
        let file = self.unnamed(OFlags::empty())?;
        for _ in 0..TRIES {
            let begun = Instant::now();
            if !shows_all(&file)? {
                return Ok(false);
            }
            // Twice as many changes as ticks can tell apart in that time.
            if begun.elapsed() < TICK_MIN * (CHANGES / 2) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether each of some changes has a time of its own.
fn shows_all(file: &OwnedFd) -> Result<bool, FsError> {
    let mut before = stat(file.as_fd())?.attributes.changed;
    for change in 0..CHANGES {
        let mode = Mode::from_raw_mode(0o600 | (change & 7));
        rustix::fs::fchmod(file, mode).map_err(fs_error)?;
        let after = stat(file.as_fd())?.attributes.changed;
        if after == before {
            return Ok(false);
        }
        before = after;
    }
    Ok(true)
}
