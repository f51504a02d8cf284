//! What an image in use was asked for, what came, and how long its readers waited.
//!
//! The paper's measures: how much was asked for, how much was read for it, and the quotient, the
//! fill rate (Table 1); and what the paper shows as time, the time in which somebody waited for the
//! network. A trace for profiles is kept as well, in bounded memory, so that whatever an image was
//! used for can be learnt from afterwards.

use crate::index::Index;
use crate::profile::Trace;
use base::{Extent, ExtentSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How an image was used, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Reads.
    pub reads: u64,
    /// Bytes of all reads.
    pub asked_bytes: u64,
    /// Bytes that were asked for, each once, in whole units of 4 KiB; zeros that are known without
    /// being fetched are not counted.
    pub touched_bytes: u64,
    /// Bytes of all chunks that were asked for or fetched ahead, each once, as they are on the
    /// disk.
    pub inflated_bytes: u64,
    /// How often reads began to wait when nobody did before: round trips one after the other.
    pub waits: u64,
    /// How long at least one read waited.
    pub wait_time: Duration,
}

impl Use {
    /// The share of what was inflated that was asked for: the paper's fill rate. None if nothing
    /// was.
    #[must_use]
    pub fn fill_rate(&self) -> Option<f64> {
        let inflated = self.inflated_bytes as f64;
        (self.inflated_bytes > 0).then(|| self.touched_bytes as f64 / inflated)
    }
}

/// One chunk of an image, as it was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkUse {
    /// Where it is.
    pub extent: Extent,
    /// Whether it was asked for or fetched ahead.
    pub is_inflated: bool,
    /// Bytes of it that were asked for, in whole units of 4 KiB.
    pub touched_bytes: u64,
}

/// How each chunk is used by whoever asks for these bytes and nothing else. Chunks of zeros are
/// never fetched.
#[must_use]
pub fn map_of(index: &Index, asked: &ExtentSet) -> Vec<ChunkUse> {
    let zeros = index.zeros();
    let chunk = |number: usize| {
        let extent = index.chunk(number).extent;
        let is_zero = zeros.has(&index.spec(number));
        let touched_bytes = if is_zero { 0 } else { bytes_of(asked, extent) };
        ChunkUse {
            extent,
            is_inflated: touched_bytes > 0,
            touched_bytes,
        }
    };
    (0..index.chunk_count()).map(chunk).collect()
}

/// Looks at an image's reads.
#[derive(Debug)]
pub(crate) struct Observer {
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    trace: Trace,
    reads: u64,
    asked_bytes: u64,
    /// A bit for each chunk.
    inflated: Vec<u64>,
    waiting: usize,
    waiting_since: Duration,
    waits: u64,
    wait_time: Duration,
}

impl Observer {
    pub(crate) fn new(index: &Index) -> Self {
        let state = State {
            trace: Trace::new(index.image_bytes()),
            reads: 0,
            asked_bytes: 0,
            inflated: vec![0; index.chunk_count().div_ceil(64)],
            waiting: 0,
            waiting_since: Duration::ZERO,
            waits: 0,
            wait_time: Duration::ZERO,
        };
        Self {
            begun: Instant::now(),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn on_read(&self, extent: Extent) {
        let now = self.begun.elapsed();
        let mut state = self.state();
        state.reads += 1;
        state.asked_bytes += extent.len;
        state.trace.on_read(now, extent);
    }

    /// These chunks are unpacked for the image.
    pub(crate) fn on_inflated(&self, numbers: impl IntoIterator<Item = usize>) {
        let mut state = self.state();
        for number in numbers {
            state.inflated[number / 64] |= 1 << (number % 64);
        }
    }

    /// A read waits, until this is dropped.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        let now = self.begun.elapsed();
        let mut state = self.state();
        if state.waiting == 0 {
            state.waiting_since = now;
            state.waits += 1;
        }
        state.waiting += 1;
        drop(state);
        Waiting(self)
    }

    pub(crate) fn trace(&self) -> Trace {
        self.state().trace.clone()
    }

    /// Begins the trace anew: what is learnt from now on is another profile.
    pub(crate) fn restart_trace(&self) -> Trace {
        let mut state = self.state();
        let fresh = Trace::new(state.trace.image_bytes());
        std::mem::replace(&mut state.trace, fresh)
    }

    pub(crate) fn uses(&self, index: &Index) -> Use {
        let state = self.state();
        let mut uses = Use {
            reads: state.reads,
            asked_bytes: state.asked_bytes,
            waits: state.waits,
            wait_time: state.wait_time,
            ..Use::default()
        };
        for number in (0..index.chunk_count()).filter(|&number| state.is_inflated(number)) {
            let extent = index.chunk(number).extent;
            uses.inflated_bytes += extent.len;
            uses.touched_bytes += bytes_of(state.trace.seen(), extent);
        }
        uses
    }

    pub(crate) fn map(&self, index: &Index) -> Vec<ChunkUse> {
        let state = self.state();
        let chunk = |number: usize| {
            let extent = index.chunk(number).extent;
            ChunkUse {
                extent,
                is_inflated: state.is_inflated(number),
                touched_bytes: bytes_of(state.trace.seen(), extent),
            }
        };
        (0..index.chunk_count()).map(chunk).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_inflated(&self, number: usize) -> bool {
        self.inflated[number / 64] & 1 << (number % 64) != 0
    }
}

/// How many bytes of an extent are in a set.
fn bytes_of(set: &ExtentSet, extent: Extent) -> u64 {
    let missing: u64 = set.missing(extent).iter().map(|gap| gap.len).sum();
    extent.len - missing
}

/// A read that waits.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a Observer);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let now = self.0.begun.elapsed();
        let mut state = self.0.state();
        state.waiting -= 1;
        if state.waiting == 0 {
            let waited = now.saturating_sub(state.waiting_since);
            state.wait_time += waited;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Digest;
    use crate::index::ChunkSizes;

    fn index() -> Index {
        let chunks = (1..=100_u64).map(|n| (n * 65_536, Digest::Sha256.id_of(&n.to_le_bytes())));
        Index::new(Digest::Sha256, ChunkSizes::fixed(65_536), chunks).unwrap()
    }

    #[test]
    fn the_fill_rate_is_what_was_asked_for_of_what_was_unpacked() {
        let (index, observer) = (index(), Observer::new(&index()));
        assert_eq!(observer.uses(&index).fill_rate(), None);
        for _ in 0..3 {
            observer.on_read(Extent::new(65_536 + 8192, 100));
        }
        observer.on_read(Extent::new(70 * 65_536 - 4096, 8192));
        // Of zeros; they are known.
        observer.on_read(Extent::new(90 * 65_536, 65_536));
        observer.on_inflated([1, 69, 70, 1]);
        let uses = observer.uses(&index);
        assert_eq!((uses.reads, uses.asked_bytes), (5, 300 + 8192 + 65_536));
        assert_eq!(uses.touched_bytes, 3 * 4096);
        assert_eq!(uses.inflated_bytes, 3 * 65_536);
        assert_eq!(uses.fill_rate(), Some(1.0 / 16.0));
        let map = observer.map(&index);
        let used: Vec<_> = (0..100).filter(|&at| map[at].touched_bytes > 0).collect();
        assert_eq!(used, [1, 69, 70, 90]);
        assert!(map[70].is_inflated && !map[90].is_inflated);
        assert_eq!(map[69].touched_bytes, 4096);
    }

    #[test]
    fn waits_at_the_same_time_are_one() {
        let (index, observer) = (index(), Observer::new(&index()));
        let first = observer.wait();
        let second = observer.wait();
        drop(first);
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(
            observer.uses(&index).wait_time,
            Duration::ZERO,
            "it is not over"
        );
        drop(second);
        drop(observer.wait());
        let uses = observer.uses(&index);
        assert_eq!(uses.waits, 2);
        assert!(uses.wait_time >= Duration::from_millis(5));
    }

    #[test]
    fn a_trace_that_begins_anew_has_what_is_read_from_then_on() {
        let observer = Observer::new(&index());
        observer.on_read(Extent::new(0, 1));
        let before = observer.restart_trace();
        observer.on_read(Extent::new(8192, 1));
        assert_eq!(before.touches()[0].extent, Extent::new(0, 4096));
        assert_eq!(
            observer.trace().touches()[0].extent,
            Extent::new(8192, 4096)
        );
    }
}
