//! What one file's readers will want next.
//!
//! # From reads to fetches
//!
//! Each read is placed: it belongs to a stream (see [`crate::stream`]) or is a *jump*. A jump
//! forks: the new stream takes over a copy of the history of the one it came from, because a
//! pattern is the sequence of jumps; the old stream waits. Whichever is read next was the right
//! one. If the readers return to the old stream, two streams are interleaved and the fork forgets
//! the other's history; if they stay away, the old stream is *contradicted*: what it has under way
//! is cancelled, and its credit falls to a quarter. What has arrived already stays a while, since
//! dropping it saves nothing.
//!
//! # How far ahead
//!
//! ```text
//! depth = min(1.5 windows, consumption x (RTT + 2 deviations) x 1.5)     of the file
//! ```
//!
//! shared by the streams that are in turn. Consumption is measured over the time in which the
//! application had its data and was not waiting, so an application faster than the line is given
//! the whole window, and a slow one no more than it can use (the horizon of Patterson's TIP).
//!
//! # The bound on waste
//!
//! Before an extent is asked for on a guess, all that is unread is taken as lost, and the extent
//! with it. It is asked for only if even then
//!
//! ```text
//! wasted <= useful / 10 + pipe x (1 + changes) + CREDIT_INITIAL_BYTES
//! pipe    = max(2 BDP, window)
//! ```
//!
//! where a change is a contradiction of a stream that had proven itself. The bound therefore holds
//! for every sequence of reads. Streams that are not proven share a far smaller allowance, 4 % of
//! the useful bytes beyond the initial credit, which keeps random access cheap. A stream that
//! proves itself frees what it has under way from that allowance. Where its jumps repeat, 512 KiB
//! more are for the runs that follow from them: what is known after three accesses is fetched.
//!
//! Source: paper section 4; Patterson et al., informed prefetching (SOSP 1995), for the horizon and
//! the hints.

mod overshoot;
mod placing;
mod spending;

use crate::ledger::{Entry, Ledger};
use crate::link::Line;
use crate::pattern::{Chain, Recall};
use crate::stream::{
    Belonging, CREDIT_BYTES_MIN, PAGE_BYTES, PIECE_BYTES_MIN, REORDER_BYTES, Stream,
};
use base::limits::STREAMS_PER_FILE_MAX;
use base::{Extent, ExtentSet, Time};
pub(crate) use overshoot::Overshoot;
pub use overshoot::Verdict;
use std::collections::VecDeque;
use std::time::Duration;

/// Bytes that may be guessed wrongly in a file before anything is known about it. A file of this
/// size is fetched whole when it is read from its beginning.
pub const CREDIT_INITIAL_BYTES: u64 = 1 << 20;
/// Share of the useful bytes that streams without proof may waste: one in this many.
const DOUBT_SHARE: u64 = 25;
/// Share of the useful bytes that all streams may waste: one in this many.
const WASTE_SHARE: u64 = 10;
/// Least depth, so that a slow reader's stream still has a request ahead of it.
const DEPTH_BYTES_MIN: u64 = 512 << 10;
/// Hinted extents kept.
const HINTS_MAX: usize = 65536;
/// Longest time that one pause of the application counts as thinking. Beyond, it went away.
const THINK_TIME_MAX: Duration = Duration::from_millis(250);
/// Used bytes over which the consumption is averaged.
const APPETITE_BYTES: u64 = 8 << 20;
/// Used bytes before which nothing is said about consumption.
const APPETITE_BYTES_MIN: u64 = 1 << 20;
/// Unread data lives at least this long after its stream was last read.
const UNREAD_TIME_MIN: Duration = Duration::from_secs(5);
/// Hinted data that nobody reads lives this long after the last hint was of use.
const HINT_TIME_MAX: Duration = Duration::from_secs(60);
/// Whose extents are hinted.
const HINTED: StreamId = StreamId(0);

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

/// How fast the application consumes when it does not wait.
#[derive(Clone, Debug, Default)]
struct Appetite {
    waiting_reads: u64,
    idle_since: Option<Time>,
    bytes: u64,
    think_time: Duration,
}

impl Appetite {
    fn on_read(&mut self, now: Time) {
        if let Some(since) = self.idle_since.take() {
            self.think_time += now.since(since).min(THINK_TIME_MAX);
        }
        self.waiting_reads += 1;
    }

    fn on_used(&mut self, now: Time, bytes: u64) {
        self.bytes += bytes;
        self.waiting_reads = self.waiting_reads.saturating_sub(1);
        if self.waiting_reads == 0 {
            self.idle_since = Some(now);
        }
        if self.bytes > APPETITE_BYTES {
            self.bytes /= 2;
            self.think_time /= 2;
        }
    }

    /// Bytes that the application consumes in `time`, at most; without limit while that is unknown.
    fn horizon_bytes(&self, time: Duration) -> u64 {
        if self.bytes < APPETITE_BYTES_MIN {
            return u64::MAX;
        }
        let nanos = self.think_time.as_nanos().max(1);
        u64::try_from(u128::from(self.bytes) * time.as_nanos() / nanos).unwrap_or(u64::MAX)
    }
}

/// Streams of one file and what they have under way. See the crate head for the order of calls.
#[derive(Clone, Debug, Default)]
pub struct FileStreams {
    size: Option<u64>,
    advice: Option<Advice>,
    streams: Vec<Stream>,
    last_id: u32,
    read_count: u64,
    recall: Recall,
    /// In flight or held by the client, whatever for.
    covered: ExtentSet,
    ledger: Ledger,
    hints: VecDeque<Extent>,
    hint_unread_bytes: u64,
    /// When a hint was last fetched or of use.
    hinted_at: Time,
    /// Given up, but the client does not know yet. Covered until it does.
    cancelled: VecDeque<Extent>,
    appetite: Appetite,
    tally: Tally,
    /// Asked for by streams without proof: unread so far, and wasted.
    doubt_unread_bytes: u64,
    doubt_wasted_bytes: u64,
    /// Allowance for the changes of pattern so far.
    change_bytes: u64,
    line: Option<Line>,
    /// Requests that wait, those of them that are refused now, and all that was ever refused.
    waiting: Vec<overshoot::Waiting>,
    overshot: Vec<Extent>,
    refused: ExtentSet,
}

impl FileStreams {
    /// A file of which nothing was read yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The kernel asked for `extent` of a file of `file_size` bytes. Call it for every read request
    /// on arrival, answered from memory or not.
    pub fn on_read(&mut self, now: Time, extent: Extent, file_size: u64) {
        let extent = extent.intersection(Extent::new(0, file_size));
        self.size = Some(file_size);
        self.appetite.on_read(now);
        if extent.is_empty() {
            return;
        }
        self.read_count += 1;
        self.tally.useful_bytes += extent.len;
        for entry in self.ledger.take(extent) {
            if entry.stream == HINTED {
                self.hinted_at = now;
            }
            self.count_hit(entry);
        }
        self.keep(extent);
        if self.advice == Some(Advice::Random) {
            return;
        }
        self.place(now, extent, file_size);
        self.release_overshoots();
        self.release_passed_over();
        self.judge_streams(file_size);
    }

    /// The client asked the server for `extent` because a read waits for it.
    pub fn on_demanded(&mut self, extent: Extent) {
        self.covered.insert(extent);
    }

    /// What to fetch now, the most urgent first; `None` when nothing is worth it or `room_bytes` is
    /// too little. The extent counts as asked for from this call on. Hints come before guesses; of
    /// the streams, the one with the least unread data is the most urgent.
    pub fn poll_fetch(&mut self, now: Time, line: &Line, room_bytes: u64) -> Option<Fetch> {
        self.line = Some(*line);
        if let Some(fetch) = self.poll_hint(line, room_bytes) {
            self.hinted_at = now;
            return Some(fetch);
        }
        let size = self.size?;
        let number = self.read_count;
        let mut turns: Vec<usize> = (0..self.streams.len())
            .filter(|&at| self.streams[at].is_active(number) && self.streams[at].has_goal(size))
            .collect();
        turns.sort_by_key(|&at| self.streams[at].unread_bytes);
        let count = turns.len().max(1) as u64;
        turns
            .into_iter()
            .find_map(|at| self.poll_stream(at, size, count, line, room_bytes))
    }

    /// What to give up, unread: cancel the request if it is under way, else free the buffer. It may
    /// be a part of what was asked for in one request. Never what a read waits for.
    pub fn poll_cancel(&mut self, now: Time) -> Option<Extent> {
        for at in 0..self.streams.len() {
            if self
                .expires_at(&self.streams[at])
                .is_some_and(|at| at <= now)
            {
                self.give_up_stream(at);
            }
        }
        if self.hints_expire_at().is_some_and(|at| at <= now) {
            self.give_up_hinted();
        }
        let extent = self.cancelled.pop_front()?;
        self.covered.remove(extent);
        Some(extent)
    }

    /// When [`poll_cancel`](Self::poll_cancel) should be called next, if nothing else happens.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        if !self.cancelled.is_empty() {
            return Some(Time::ZERO);
        }
        let streams = self
            .streams
            .iter()
            .filter_map(|stream| self.expires_at(stream));
        streams.chain(self.hints_expire_at()).min()
    }

    /// The data of `extent` arrived, asked for on demand or on a guess.
    pub fn on_fetched(&mut self, _now: Time, extent: Extent) {
        self.ledger.mark_fetched(extent);
    }

    /// The application was answered with `extent`: exactly once for each
    /// [`on_read`](Self::on_read), with an empty extent if the answer was an error.
    pub fn on_used(&mut self, now: Time, extent: Extent) {
        self.appetite.on_used(now, extent.len);
    }

    /// The data of `extent` left memory, or its request failed. A stream whose fetch failed sleeps
    /// until its next read.
    pub fn on_dropped(&mut self, extent: Extent) {
        self.covered.remove(extent);
        self.keep(extent);
        for entry in self.ledger.take(extent) {
            self.count_waste(entry);
            if let Some(at) = self.at(entry.stream) {
                self.streams[at].asleep |= !entry.fetched;
                self.streams[at].rewind();
            }
        }
    }

    /// Memory is short: give up unread data of about `bytes` bytes that has arrived, that of the
    /// stream longest not read first, what was hinted last. Take the extents from
    /// [`poll_cancel`](Self::poll_cancel).
    pub fn reclaim(&mut self, bytes: u64) {
        let mut order: Vec<(u64, StreamId)> = self
            .streams
            .iter()
            .map(|stream| (stream.read_number, stream.id))
            .collect();
        order.sort_unstable();
        order.push((u64::MAX, HINTED));
        let mut left_bytes = bytes;
        for (_, id) in order {
            let mut held: Vec<Entry> = self.ledger.of(id).filter(|entry| entry.fetched).collect();
            // The end of a plan is used last; for most patterns it is the end of the file's order.
            while left_bytes > 0
                && let Some(entry) = held.pop()
            {
                left_bytes = left_bytes.saturating_sub(entry.extent.len);
                self.give_up(entry.extent);
            }
            if let Some(at) = self.at(id) {
                self.streams[at].rewind();
            }
        }
    }

    /// The application will read these extents, in this order. They are fetched before any guess
    /// and do not count as guesses. At most 65,536 wait; further ones are ignored.
    pub fn will_read(&mut self, extents: &[Extent]) {
        let room = HINTS_MAX - self.hints.len();
        let hints = extents
            .iter()
            .filter(|extent| !extent.is_empty())
            .take(room);
        self.hints.extend(hints);
    }

    /// Takes the application's advice.
    pub fn advise(&mut self, advice: Advice) {
        match advice {
            Advice::WillNeed(extent) => self.will_read(&[extent]),
            Advice::DontNeed(extent) => {
                self.hints.retain(|hint| !hint.overlaps(extent));
                self.give_up(extent);
            }
            Advice::Random => {
                self.advice = Some(advice);
                for at in 0..self.streams.len() {
                    self.give_up_stream(at);
                }
                self.streams.clear();
            }
            Advice::Normal | Advice::Sequential => self.advice = Some(advice),
        }
    }

    /// What the guesses came to so far.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    fn at(&self, id: StreamId) -> Option<usize> {
        self.streams.iter().position(|stream| stream.id == id)
    }
}
