//! A client beside its server: what it would fetch after each read.

use super::{MIB, READ_BYTES as READ, gigabit_far};
use base::{Extent, ExtentSet, Time};
use readahead::FileStreams;
use std::time::Duration;

/// A client with all the memory it wants and a line that answers at once.
pub(crate) struct Client {
    pub(crate) streams: FileStreams,
    pub(crate) now: Time,
    size: u64,
    /// Fetched on a guess: ever, and since the last `forget`.
    pub(crate) fetched: ExtentSet,
    pub(crate) recent: ExtentSet,
    pub(crate) cancelled: ExtentSet,
    pub(crate) arrives: bool,
}

impl Client {
    pub(crate) fn new(size: u64) -> Self {
        Self {
            streams: FileStreams::new(),
            now: Time::ZERO,
            size,
            fetched: ExtentSet::new(),
            recent: ExtentSet::new(),
            cancelled: ExtentSet::new(),
            arrives: true,
        }
    }

    pub(crate) fn read(&mut self, read: Extent) {
        self.now = self.now + Duration::from_millis(1);
        self.streams.on_read(self.now, read, self.size);
        self.streams.on_demanded(read);
        self.fetch();
        self.streams.on_used(self.now, read);
        self.streams.on_dropped(read);
    }

    pub(crate) fn fetch(&mut self) {
        while let Some(fetch) = self.streams.poll_fetch(self.now, &gigabit_far(), 64 * MIB) {
            assert!(fetch.extent.end() <= self.size, "past the end: {fetch:?}");
            assert!(!fetch.extent.is_empty() && fetch.extent.len <= gigabit_far().extent_bytes);
            self.fetched.insert(fetch.extent);
            self.recent.insert(fetch.extent);
            if self.arrives {
                self.streams.on_fetched(self.now, fetch.extent);
            }
        }
        while let Some(extent) = self.streams.poll_cancel(self.now) {
            self.cancelled.insert(extent);
        }
    }

    pub(crate) fn read_all(&mut self, reads: impl IntoIterator<Item = Extent>) {
        reads.into_iter().for_each(|read| self.read(read));
    }

    /// What was fetched by now is not judged any more.
    pub(crate) fn forget(&mut self) {
        self.recent = ExtentSet::new();
    }

    pub(crate) fn unread(&self) -> u64 {
        self.streams.tally().unread_bytes + self.streams.tally().wasted_bytes
    }

    pub(crate) fn assert_fetched(&self, what: &str, wanted: Extent) {
        assert!(
            self.fetched.covers(wanted),
            "{what}: {wanted} of {:?}",
            runs(&self.fetched)
        );
    }

    pub(crate) fn assert_only_within(&self, what: &str, allowed: &[Extent]) {
        for run in self.recent.iter() {
            let within = allowed.iter().any(|extent| extent.covers(run));
            assert!(within, "{what}: {run} fetched in vain");
        }
    }
}

pub(crate) fn runs(set: &ExtentSet) -> Vec<String> {
    set.iter().map(|run| run.to_string()).collect()
}

/// The kernel's requests for `len` bytes at `start`, and one more as its read-ahead makes it.
pub(crate) fn cached_run(start: u64, len: u64) -> Vec<Extent> {
    (0..=len / READ)
        .map(|at| Extent::new(start + at * READ, READ))
        .collect()
}

/// Requests in pairs, each pair the wrong way round.
pub(crate) fn swapped(mut reads: Vec<Extent>) -> Vec<Extent> {
    reads.chunks_exact_mut(2).for_each(|pair| pair.swap(0, 1));
    reads
}
