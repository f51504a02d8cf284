//! The rest of an image, fetched while it is used: whoever asks for that would rather have the line
//! full than idle.
//!
//! It goes on from where somebody waits, to the end and round, and takes each chunk once. Whoever
//! waits, profiles, and what is read from front to back go before it. It has three quarters of the
//! requests at most, and of the line what that has shown to carry, twice over at most, so that a
//! read that comes meanwhile queues for no longer than its own round trip. It takes half of the
//! cache at most.

use base::Time;
use std::time::Duration;

/// How long it leaves a source alone that did not give a chunk.
const PAUSE_TIME: Duration = Duration::from_secs(10);
/// What it may have under way before the line is known: three chunks of 256 KiB, packed.
const FIRST_BYTES: u64 = 256 << 10;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Rest {
    /// A bit for each chunk that was looked at, and for those of the last word that are not there.
    seen: Vec<u64>,
    left: usize,
    /// The number of the chunk to go on from.
    next: usize,
    /// Bytes that it may still take, packed.
    left_bytes: u64,
    paused_until: Time,
}

impl Rest {
    /// Of so many chunks, with so many bytes, packed.
    pub(super) fn new(chunk_count: usize, bytes_max: u64) -> Self {
        let mut seen = vec![0; chunk_count.div_ceil(64)];
        if let Some(last) = seen.last_mut()
            && !chunk_count.is_multiple_of(64)
        {
            *last = u64::MAX << (chunk_count % 64);
        }
        Self {
            seen,
            left: chunk_count,
            next: 0,
            left_bytes: bytes_max,
            paused_until: Time::ZERO,
        }
    }

    /// Somebody waits for the chunk before this one.
    pub(super) fn go_on_from(&mut self, number: usize) {
        self.next = number;
    }

    /// It may take so many bytes more, packed.
    pub(super) fn allow(&mut self, bytes: u64) {
        self.left_bytes += bytes;
    }

    /// Whether it may take anything.
    pub(super) fn is_allowed(&self) -> bool {
        self.left_bytes > 0
    }

    /// Something did not come.
    pub(super) fn pause(&mut self, now: Time) {
        self.paused_until = now + PAUSE_TIME;
    }

    /// Whether a line that holds `bdp_bytes` has room beside what is under way.
    pub(super) fn has_room(&self, now: Time, bdp_bytes: u64, in_flight_bytes: u64) -> bool {
        let most_bytes = bdp_bytes.saturating_mul(2).max(FIRST_BYTES);
        now >= self.paused_until && in_flight_bytes < most_bytes && self.is_allowed()
    }

    /// It takes so much more.
    pub(super) fn on_taken(&mut self, bytes: u64) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
    }

    /// The number of the next chunk that was not looked at.
    pub(super) fn next(&mut self) -> Option<usize> {
        if self.left == 0 {
            return None;
        }
        let words = self.seen.len();
        let first = self.next / 64 % words;
        // The first word is looked at twice: from `next` on, and at the end as a whole.
        for step in 0..=words {
            let at = (first + step) % words;
            let mut free = !self.seen[at];
            if step == 0 {
                free &= u64::MAX << (self.next % 64);
            }
            if free != 0 {
                let bit = free.trailing_zeros() as usize;
                self.seen[at] |= 1 << bit;
                self.left -= 1;
                self.next = at * 64 + bit + 1;
                return Some(at * 64 + bit);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_goes_on_from_where_somebody_waits_to_the_end_and_round() {
        let mut rest = Rest::new(130, u64::MAX);
        assert_eq!((rest.next(), rest.next()), (Some(0), Some(1)));
        rest.go_on_from(127);
        let next: Vec<_> = (0..5).map_while(|_| rest.next()).collect();
        assert_eq!(next, [127, 128, 129, 2, 3]);
        rest.go_on_from(130);
        assert_eq!(rest.next(), Some(4));
        let mut whole = Rest::new(128, u64::MAX);
        whole.go_on_from(128);
        assert_eq!(whole.next(), Some(0));
        assert_eq!(Rest::new(0, u64::MAX).next(), None);
    }

    #[test]
    fn it_has_room_in_the_line_and_in_the_cache_and_waits_where_something_does_not_come() {
        let mut rest = Rest::new(10, 1000);
        let now = Time::ZERO;
        assert!(rest.has_room(now, 0, FIRST_BYTES - 1));
        assert!(!rest.has_room(now, 0, FIRST_BYTES));
        assert!(rest.has_room(now, FIRST_BYTES, FIRST_BYTES));
        assert!(!rest.has_room(now, FIRST_BYTES, 2 * FIRST_BYTES));
        rest.pause(now);
        assert!(!rest.has_room(now, 0, 0));
        assert!(rest.has_room(now + PAUSE_TIME, 0, 0));
        rest.on_taken(999);
        assert!(rest.has_room(now + PAUSE_TIME, 0, 0));
        rest.on_taken(2);
        assert!(!rest.has_room(now + PAUSE_TIME, 0, 0));
    }

    proptest! {
        #[test]
        fn each_chunk_comes_once_wherever_it_goes_on_from(
            count in 0_usize..300,
            jumps in prop::collection::vec(0_usize..301, 0..300),
        ) {
            let mut rest = Rest::new(count, u64::MAX);
            let mut seen = Vec::new();
            let mut jumps = jumps.into_iter();
            while let Some(number) = rest.next() {
                seen.push(number);
                if let Some(jump) = jumps.next() {
                    rest.go_on_from(jump.min(count));
                }
            }
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
    }
}
