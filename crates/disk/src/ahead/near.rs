//! What comes along where nobody can foresee anything.
//!
//! A program that goes through many small files waits for one chunk after the other, and a line
//! with distance carries next to nothing meanwhile: 80 KB in 100 ms. What is read next lies in the
//! same file system, and nobody knows where; but whatever is fetched meanwhile costs no time. So
//! after many waits of this kind, of which a mount and the start of a program are not enough, each
//! further one brings along chunks that follow the one that was waited for, and those that follow
//! where somebody waited before.
//!
//! **The bound.** A wait brings along what may be on its way beside somebody who waits, a quarter
//! of the window, and at first less, because the line is not known yet: so it costs the line less
//! than a round trip, and on a slow line that is little. Nothing comes along without a cache, or
//! while a profile is followed, and of a cache no more than half is taken.

use super::rest::Rest;

/// Waits for what nobody foresaw before anything comes along.
const PATIENCE_WAITS: u32 = 64;
/// What the first wait brings along that does, packed: a chunk that does not shrink. It doubles.
const FIRST_BYTES: u64 = 256 << 10;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Near {
    chunks: Rest,
    waits: u32,
    /// What it may take in all, packed, and has not been allowed yet.
    left_bytes: u64,
}

impl Near {
    /// Of so many chunks, with so many bytes, packed.
    pub(super) fn new(chunk_count: usize, bytes_max: u64) -> Self {
        Self {
            chunks: Rest::new(chunk_count, 0),
            waits: 0,
            left_bytes: bytes_max,
        }
    }

    /// Somebody waits for the chunk before this one, and nobody did before.
    pub(super) fn on_wait(&mut self, number: usize, window_bytes: u64) {
        self.waits = self.waits.saturating_add(1);
        let Some(more) = self.waits.checked_sub(PATIENCE_WAITS + 1) else {
            return;
        };
        let bytes = (FIRST_BYTES << more.min(16)).min(window_bytes / 4);
        let bytes = bytes.min(self.left_bytes);
        self.left_bytes -= bytes;
        self.chunks.go_on_from(number);
        self.chunks.allow(bytes);
    }

    /// The chunks to go through, as long as something is allowed.
    pub(super) fn chunks(&mut self) -> Option<&mut Rest> {
        self.chunks.is_allowed().then_some(&mut self.chunks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the chunks that come along with a wait, each of 100 KiB.
    fn brought(near: &mut Near) -> Vec<usize> {
        let mut numbers = Vec::new();
        while let Some(chunks) = near.chunks()
            && let Some(number) = chunks.next()
        {
            chunks.on_taken(100 << 10);
            numbers.push(number);
        }
        numbers
    }

    #[test]
    fn after_many_waits_each_further_one_brings_what_follows() {
        let mut near = Near::new(1000, 10 << 20);
        for _ in 0..PATIENCE_WAITS {
            near.on_wait(500, 4 << 20);
            assert!(brought(&mut near).is_empty());
        }
        near.on_wait(500, 4 << 20);
        assert_eq!(brought(&mut near), [500, 501, 502]);
        // Twice as much, and no chunk twice.
        near.on_wait(498, 4 << 20);
        assert_eq!(brought(&mut near), [498, 499, 503, 504, 505, 506]);
        // As much as a quarter of the window, and no more on a slow line.
        near.on_wait(0, 4 << 20);
        assert_eq!(brought(&mut near).len(), 11);
        near.on_wait(0, 200 << 10);
        assert_eq!(brought(&mut near), [11]);
        for _ in 0..20 {
            near.on_wait(100, 4 << 20);
            assert!(brought(&mut near).len() <= 11);
        }
        // And no more than it may take in all.
        near.on_wait(100, 4 << 20);
        assert!(brought(&mut near).is_empty());
    }
}
