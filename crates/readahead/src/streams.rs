//! What one file's readers will want next.

use crate::link::Line;
use base::{Extent, ExtentSet, Time};

/// Bytes that may be guessed wrongly in a file before anything is known about it.
pub const CREDIT_INITIAL_BYTES: u64 = 1 << 20;

/// One stream of reads within a file, as the detector tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub(crate) u32);

/// One extent to fetch on a guess or a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// What to ask the server for; at most [`Line::extent_bytes`] long.
    pub extent: Extent,
    /// Which stream will use it, for display.
    pub stream: StreamId,
}

/// What the application says about its future reads (`posix_fadvise` in spirit; it reaches a mount
/// through an ioctl, an xattr or the library).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Nothing: detect.
    Normal,
    /// From front to back: fetch ahead from the first read on.
    Sequential,
    /// No order: fetch nothing on a guess.
    Random,
    /// This will be read soon.
    WillNeed(Extent),
    /// This will not be read: give up what is under way or held unread.
    DontNeed(Extent),
}

/// What the guesses of one file came to, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Read by the application.
    pub useful_bytes: u64,
    /// Of these, fetched before they were asked for.
    pub hit_bytes: u64,
    /// Fetched (or asked for) on a guess and given up unread.
    pub wasted_bytes: u64,
    /// Asked for on a guess and neither used nor given up so far.
    pub unread_bytes: u64,
    /// Times that an established pattern was contradicted.
    pub pattern_changes: u64,
}

/// Streams of one file and what they have under way. See the crate head for the order of calls.
#[derive(Clone, Debug, Default)]
pub struct FileStreams {
    file_size: u64,
    position: u64,
    covered: ExtentSet,
    tally: Tally,
}

impl FileStreams {
    /// A file of which nothing was read yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The kernel asked for `extent` of a file of `file_size` bytes. Call it for every read request
    /// on arrival, answered from memory or not.
    pub fn on_read(&mut self, _now: Time, extent: Extent, file_size: u64) {
        self.file_size = file_size;
        self.position = extent.end();
        self.tally.useful_bytes += extent.len;
    }

    /// The client asked the server for `extent` because a read waits for it.
    pub fn on_demanded(&mut self, extent: Extent) {
        self.covered.insert(extent);
    }

    /// What to fetch now, the most urgent first; `None` when nothing is worth it or `room_bytes` is
    /// too little. The extent counts as asked for from this call on.
    pub fn poll_fetch(&mut self, _now: Time, line: &Line, room_bytes: u64) -> Option<Fetch> {
        let ahead = Extent::new(self.position, line.window_bytes);
        let within = ahead.intersection(Extent::new(0, self.file_size));
        let gap = *self.covered.missing(within).first()?;
        let len = gap.len.min(line.extent_bytes);
        if len > room_bytes {
            return None;
        }
        let extent = Extent::new(gap.offset, len);
        self.covered.insert(extent);
        Some(Fetch {
            extent,
            stream: StreamId(0),
        })
    }

    /// What to give up, unread: cancel the request if it is under way, else free the buffer.
    pub fn poll_cancel(&mut self, _now: Time) -> Option<Extent> {
        None
    }

    /// When [`poll_cancel`](Self::poll_cancel) should be called next, if nothing else happens.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// The data of `extent` arrived, asked for on demand or on a guess.
    pub fn on_fetched(&mut self, _now: Time, _extent: Extent) {}

    /// The application was answered with `extent`.
    pub fn on_used(&mut self, _now: Time, _extent: Extent) {}

    /// The data of `extent` left memory, or its request failed.
    pub fn on_dropped(&mut self, extent: Extent) {
        self.covered.remove(extent);
    }

    /// Memory is short: give up unread data of about `bytes` bytes, least useful first. Take them
    /// from [`poll_cancel`](Self::poll_cancel).
    pub fn reclaim(&mut self, _bytes: u64) {}

    /// The application will read these extents, in this order. They are fetched before any guess.
    pub fn will_read(&mut self, _extents: &[Extent]) {}

    /// Takes the application's advice.
    pub fn advise(&mut self, _advice: Advice) {}

    /// What the guesses came to so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }
}
