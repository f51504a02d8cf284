//! What the kernel reads past the end of a run, and nobody wants.
//!
//! The kernel asks for one request more than the application has read, whatever its read-ahead is
//! set to: a read of 128 KiB marks its own first page, so the next 128 KiB are asked for when the
//! application comes to it. In a run of 512 KiB that is a quarter too much on the line. Such a
//! request can be told from others only by what comes after it: the application begins its next
//! run, and not one byte of what was asked for is missed.
//!
//! So the request that would end the run of a proven stream *waits*. If the stream's next run
//! begins meanwhile, the request was an overshoot and is *refused*; nobody notices, since a
//! read-ahead that fails leaves its pages unread. From then on the runs are known to be that much
//! shorter, and it is the first request past their end that waits. If no run begins although every
//! other read has been answered, somebody may want these bytes: they are served, late by the time
//! that the caller lets them wait, and the stream is believed no more.
//!
//! A page whose reading was refused once is asked for again by whoever does want it, and that time
//! a program waits for it. Therefore no byte is refused twice ([`FileStreams::on_refused`] also
//! takes what failed otherwise), and when [`REFUSED_EXTENTS_MAX`] are remembered nothing is refused
//! any more.

use super::{Advice, Extent, FileStreams, PAGE_BYTES, StreamId, Time};
use crate::stream::PIECE_BYTES_MIN;
use base::limits::STREAMS_PER_FILE_MAX;

/// Refused extents remembered, about half a megabyte. With runs of 512 KiB, 4 GiB of reading.
const REFUSED_EXTENTS_MAX: usize = 8192;
/// Trust in a stream at first and at most, and what one mistake costs; being right earns one. So it
/// is believed no more after three mistakes in a row, or one in eight. A busy machine may keep a
/// program from its next run for longer than a request waits.
const TRUST_MAX: u32 = 24;
const MISTAKE_COST: u32 = 8;

/// What is known of a stream's overshoot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overshoot {
    /// Down to none: it has no overshoot.
    trust: u32,
    /// How long its runs are without, and the overshoot.
    seen: Option<(u64, u64)>,
}

impl Default for Overshoot {
    fn default() -> Self {
        Self {
            trust: TRUST_MAX,
            seen: None,
        }
    }
}

/// What to do with a read of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer it.
    Serve,
    /// Let it wait until [`FileStreams::poll_refused`] names it or until time is up; in that case
    /// say so by [`FileStreams::on_wanted`], then serve it.
    Wait,
    /// Answer it with an error: nobody will miss it.
    Refuse,
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    extent: Extent,
    stream: StreamId,
    run_offset: u64,
}

impl FileStreams {
    /// Judges a read of the kernel that may be its own read-ahead, before
    /// [`on_read`](Self::on_read), which is not called for what is refused.
    pub fn judge_overshoot(&mut self, extent: Extent) -> Verdict {
        let plausible = (2 * PAGE_BYTES..=PIECE_BYTES_MIN).contains(&extent.len);
        if !plausible || self.advice == Some(Advice::Random) || self.is_refused(extent) {
            return Verdict::Serve;
        }
        if self
            .streams
            .iter()
            .any(|stream| stream.overshot_before(extent))
        {
            self.on_refused(extent);
            return Verdict::Refuse;
        }
        let Some(stream) = self.streams.iter().find(|stream| stream.overshoots(extent)) else {
            return Verdict::Serve;
        };
        let asked_twice = self
            .waiting
            .iter()
            .any(|other| other.extent.overlaps(extent));
        if asked_twice || self.waiting.len() >= STREAMS_PER_FILE_MAX {
            return Verdict::Serve;
        }
        self.waiting.push(Waiting {
            extent,
            stream: stream.id,
            run_offset: stream.chain.run.offset,
        });
        Verdict::Wait
    }

    /// The next of the waiting requests that has turned out to be an overshoot.
    pub fn poll_refused(&mut self) -> Option<Extent> {
        self.overshot.pop()
    }

    /// A waiting request has waited long enough: it is served.
    pub fn on_wanted(&mut self, extent: Extent) {
        let Some(place) = self
            .waiting
            .iter()
            .position(|waiting| waiting.extent == extent)
        else {
            return;
        };
        let waiting = self.waiting.swap_remove(place);
        if let Some(at) = self.at(waiting.stream) {
            self.streams[at].on_overshoot_missing();
        }
    }

    /// A read of the kernel was answered with an error: it must be served when it comes again.
    pub fn on_refused(&mut self, extent: Extent) {
        // Full, nothing is refused any more, so nothing need be remembered.
        if self.refused.run_count() < REFUSED_EXTENTS_MAX {
            self.refused.insert(extent);
        }
    }

    /// Since when no read has been waited for; `None` while one is: its reader cannot begin its
    /// next run.
    #[must_use]
    pub fn idle_since(&self) -> Option<Time> {
        self.appetite.idle_since
    }

    /// `extent` and the refused bytes that adjoin its end. The kernel asks for refused pages one by
    /// one, and each would take a round trip; who wants the first will want them all.
    #[must_use]
    pub fn with_refused(&self, extent: Extent) -> Extent {
        let end = self.refused.run_at(extent.offset).map_or(0, Extent::end);
        let end = end.min(extent.offset.saturating_add(PIECE_BYTES_MIN));
        Extent::between(extent.offset, end.max(extent.end()))
    }

    fn is_refused(&self, extent: Extent) -> bool {
        self.refused.overlaps(extent) || self.refused.run_count() >= REFUSED_EXTENTS_MAX
    }

    /// A read has been placed: where it began its stream's next run, what waits past the end of
    /// the one before was an overshoot.
    pub(super) fn release_overshoots(&mut self) {
        for place in (0..self.waiting.len()).rev() {
            let waiting = self.waiting[place];
            let begun = self
                .at(waiting.stream)
                .is_some_and(|at| self.streams[at].chain.run.offset != waiting.run_offset);
            if begun {
                self.release(place);
            }
        }
    }

    /// The reader of stream `id` jumped elsewhere: what waits past the end of its run was an
    /// overshoot.
    pub(super) fn release_overshoot_of(&mut self, id: StreamId) {
        let waits = |waiting: &Waiting| waiting.stream == id;
        if let Some(place) = self.waiting.iter().position(waits) {
            self.release(place);
        }
    }

    fn release(&mut self, place: usize) {
        let waiting = self.waiting.swap_remove(place);
        let Some(at) = self.at(waiting.stream) else {
            return;
        };
        let length = waiting.extent.end() - waiting.run_offset;
        for tail in self.streams[at].on_overshoot(waiting.extent.len, length) {
            self.give_up(tail);
        }
        self.on_refused(waiting.extent);
        self.overshot.push(waiting.extent);
    }
}

impl crate::stream::Stream {
    /// Whether `extent` is what the kernel would read past the end of the current run.
    fn overshoots(&self, extent: Extent) -> bool {
        if self.asleep || !self.has_plan() || self.overshoot.trust == 0 {
            return false;
        }
        let Some(length) = self.chain.steady_length() else {
            return false;
        };
        let end = self.chain.run.offset.saturating_add(length);
        match self.overshoot.seen {
            // What was served has made the runs as long again as they seemed at first.
            Some((without, bytes)) if length == without + bytes => extent.end() == end,
            Some((_, bytes)) => extent.offset == end && extent.len <= bytes,
            None => self.is_proven() && extent.end() == end && extent.len < length / 2,
        }
    }

    /// Whether `extent` is an overshoot of the run before, come after the current one's first read.
    fn overshot_before(&self, extent: Extent) -> bool {
        let Some((_, bytes)) = self.overshoot.seen else {
            return false;
        };
        let previous = self.chain.previous.filter(|_| self.own_runs > 1);
        let ended = previous.is_some_and(|run| {
            run.end() == extent.offset && self.chain.steady_length() == Some(run.len)
        });
        !self.asleep && self.overshoot.trust > 0 && extent.len <= bytes && ended
    }

    /// The last `bytes` of a run taken for `length` bytes long were one. Returns what was planned
    /// of others like it.
    fn on_overshoot(&mut self, bytes: u64, length: u64) -> Vec<Extent> {
        let tails = self.planned_tails(length, bytes);
        let without = length.saturating_sub(bytes);
        if self.chain.shorten(length, without) {
            self.replan();
        }
        self.overshoot = Overshoot {
            trust: (self.overshoot.trust + 1).min(TRUST_MAX),
            seen: Some((without, bytes)),
        };
        tails
    }

    /// What was taken for one may be wanted.
    fn on_overshoot_missing(&mut self) {
        self.overshoot.trust = self.overshoot.trust.saturating_sub(MISTAKE_COST);
    }
}
