//! How much shorter chunks are when packed, as far as the window is concerned.
//!
//! The window counts bytes as they are transferred, and of a chunk that has not come yet only the
//! length on the disk is known. It is taken for as long as others were packed that came a moment
//! ago, and exactly: if chunks that shrink to a half were taken for whole ones, half of the window
//! would stay empty, the line would seem to carry no more than that, and the next window be made
//! for a slower line still.

/// Bytes of the image over which the mean is taken: what a file system has in one place is of one
/// kind, and in the next of another.
const SPAN_BYTES: u64 = 16 << 20;
/// How much shorter a chunk is taken for at most.
const RATIO_MAX: u64 = 8;

/// See the module's head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shrink {
    unpacked_bytes: u64,
    packed_bytes: u64,
}

impl Shrink {
    /// So many bytes of the image have come as so many.
    pub(super) fn note(&mut self, unpacked_bytes: u64, packed_bytes: u64) {
        self.unpacked_bytes += unpacked_bytes;
        self.packed_bytes += packed_bytes;
        if self.unpacked_bytes > SPAN_BYTES {
            self.unpacked_bytes /= 2;
            self.packed_bytes /= 2;
        }
    }

    /// As how many bytes so many of the image come, about.
    pub(super) fn packed(&self, bytes: u64) -> u64 {
        let packed = match self.unpacked_bytes {
            0 => bytes,
            unpacked => scaled(bytes, self.packed_bytes, unpacked),
        };
        packed.clamp(bytes / RATIO_MAX, bytes)
    }

    /// How many bytes of the image come by so many, about.
    pub(super) fn unpacked(&self, bytes: u64) -> u64 {
        let unpacked = match self.packed_bytes {
            0 => bytes,
            packed => scaled(bytes, self.unpacked_bytes, packed),
        };
        unpacked.clamp(bytes, bytes.saturating_mul(RATIO_MAX))
    }
}

fn scaled(bytes: u64, by: u64, of: u64) -> u64 {
    let scaled = u128::from(bytes) * u128::from(by) / u128::from(of);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Time;
    use readahead::LinkEstimator;
    use std::collections::VecDeque;
    use std::time::Duration;

    /// Chunks of 256 KiB that shrink to 134.
    const UNPACKED: u64 = 256 << 10;
    const PACKED: u64 = 134 << 10;

    /// The share of a line of 200 Mbit/s at 50 ms that is used by such chunks, if each is taken for
    /// as long as is said.
    fn share_used(taken_for: impl Fn(&Shrink) -> u64) -> f64 {
        const RTT: Duration = Duration::from_millis(50);
        const RATE: u64 = 25_000_000;
        const CHUNKS: u64 = 3000;
        let passing = Duration::from_nanos(PACKED * 1_000_000_000 / RATE);
        let (mut link, mut shrink) = (LinkEstimator::new(16 << 20), Shrink::default());
        let (mut now, mut free) = (Time::ZERO, Time::ZERO);
        let mut flying = VecDeque::new();
        for _ in 0..CHUNKS {
            while link.room_bytes() > 0 && flying.len() < 32 {
                free = free.max(now + RTT) + passing;
                flying.push_back((free, link.on_sent(now, taken_for(&shrink))));
            }
            let (arrived, sent) = flying.pop_front().unwrap();
            now = arrived;
            link.on_reply(now, sent, PACKED, Duration::ZERO);
            shrink.note(UNPACKED, PACKED);
        }
        (CHUNKS * PACKED) as f64 / RATE as f64 / now.since(Time::ZERO).as_secs_f64()
    }

    #[test]
    fn a_line_is_used_whatever_chunks_shrink_to() {
        let used = share_used(|shrink| shrink.packed(UNPACKED));
        assert!(used > 0.95, "{used}");
        // That it can fail: taken for whole ones, because the ratio is not quite two.
        let used = share_used(|_| UNPACKED);
        assert!(used < 0.7, "{used}");
    }

    #[test]
    fn a_chunk_is_taken_for_as_long_as_those_before_it_came() {
        let mut shrink = Shrink::default();
        assert_eq!(
            (shrink.packed(65_536), shrink.unpacked(1000)),
            (65_536, 1000)
        );
        // Not quite to a half: neither a whole one, nor a half.
        shrink.note(65_536, 34_000);
        assert_eq!(shrink.packed(65_536), 34_000);
        assert_eq!(shrink.packed(2 * 65_536), 68_000);
        assert_eq!(shrink.unpacked(34_000), 65_536);
        // What does not shrink at all may grow a little, and is not taken for more than it is.
        let mut whole = Shrink::default();
        whole.note(65_536, 65_600);
        assert_eq!((whole.packed(4096), whole.unpacked(4096)), (4096, 4096));
        let mut empty = Shrink::default();
        empty.note(65_536, 40);
        assert_eq!((empty.packed(4096), empty.unpacked(4096)), (512, 32_768));
        assert_eq!(empty.unpacked(u64::MAX), u64::MAX);
    }

    #[test]
    fn what_came_long_ago_does_not_count() {
        let mut shrink = Shrink::default();
        for _ in 0..10_000 {
            shrink.note(65_536, 65_536);
        }
        for _ in 0..1000 {
            shrink.note(65_536, 16_384);
        }
        let packed = shrink.packed(65_536);
        assert!((16_384..18_000).contains(&packed), "{packed}");
    }
}
