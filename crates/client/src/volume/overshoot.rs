//! What the kernel reads past the end of a run, and nobody wants: see `readahead` for how it is
//! told from other reads. Here such a request waits, for a time that is short beside the line's.

use super::Volume;
use crate::cache::NodeId;
use crate::clock::now;
use crate::file::{File, FileState};
use base::{Extent, FsError};
use readahead::Verdict;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// How long a request waits after the last other read of its file was answered: a fifth of the
/// round trip that asking for it would cost, within these. A program on a busy machine needs
/// milliseconds from one read to the next.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// How long a request waits at most, however long other reads take: well below the time after which
/// a program that waits for it would be noticed.
const WAIT_TIME_MAX: Duration = Duration::from_secs(1);

/// What to do with a request that may be the kernel's own read-ahead.
#[derive(Debug)]
pub enum Overshoot {
    /// Nobody wants it: answer with an error.
    Refused,
    /// It is not known yet.
    Waiting(Waiting),
}

/// A request that waits.
#[derive(Debug)]
pub struct Waiting {
    file: Arc<File>,
    extent: Extent,
    refused: oneshot::Receiver<()>,
    pause: Duration,
}

impl Volume {
    /// Judges a read of the kernel for its page cache; `None` when it is to be answered. Never ask
    /// for a read that a program waits for directly: it would get the error.
    #[must_use]
    pub fn judge_overshoot(&self, node: NodeId, extent: Extent) -> Option<Overshoot> {
        let file = self.nodes().get(node)?.file.clone()?;
        let mut state = file.lock();
        // Pages of a file that is being written may be there for another reason than a read.
        if !state.written.is_empty() || state.overshoots.contains_key(&extent.offset) {
            return None;
        }
        match state.streams.judge_overshoot(extent) {
            Verdict::Serve => None,
            Verdict::Refuse => Some(Overshoot::Refused),
            Verdict::Wait => {
                let (sender, refused) = oneshot::channel();
                state.overshoots.insert(extent.offset, sender);
                drop(state);
                let (line, ..) = self.transport.download_room();
                let pause = (line.rtt / 5).clamp(PAUSE_MIN, PAUSE_MAX);
                Some(Overshoot::Waiting(Waiting {
                    file,
                    extent,
                    refused,
                    pause,
                }))
            }
        }
    }

    /// A read of the kernel for its page cache ended with an error: the next one for the same bytes
    /// may be one that a program waits for.
    pub fn on_read_failed(&self, node: NodeId, extent: Extent) {
        if let Ok(file) = self.file(node) {
            file.lock().streams.on_refused(extent);
        }
    }
}

impl Waiting {
    /// Waits until it is known whether anybody wants the bytes.
    ///
    /// # Errors
    /// `WouldBlock` if nobody does; the error is the answer.
    pub async fn wanted(mut self) -> Result<(), FsError> {
        let deadline = Instant::now() + WAIT_TIME_MAX;
        loop {
            if timeout(self.pause, &mut self.refused).await.is_ok() {
                return Err(FsError::WouldBlock);
            }
            let mut state = self.file.lock();
            if !state.overshoots.contains_key(&self.extent.offset) {
                return Err(FsError::WouldBlock);
            }
            let idle = state.streams.idle_since().map(|since| now().since(since));
            if idle.is_none_or(|idle| idle < self.pause) && Instant::now() < deadline {
                continue;
            }
            state.overshoots.remove(&self.extent.offset);
            state.streams.on_wanted(self.extent);
            return Ok(());
        }
    }
}

impl FileState {
    /// The kernel asked for `wanted` of a file of `size` bytes. What that says about requests that
    /// wait is told to them.
    pub(super) fn on_read(&mut self, wanted: Extent, size: u64) {
        self.streams.on_read(now(), wanted, size);
        while let Some(overshot) = self.streams.poll_refused() {
            if let Some(refused) = self.overshoots.remove(&overshot.offset) {
                // The request itself may have been dropped with its mount.
                let _ = refused.send(());
            }
        }
    }
}
