//! What lies around a read that nobody foresaw.
//!
//! Whoever reads what is in no profile that is followed finds an image that was cut for others:
//! pieces of a few KiB, where a chunk of the grid would have brought what lies beside them, too.
//! Files of one program lie beside each other, and so do inodes: what lies there is often read
//! next, and each piece of it would be a round trip. So the other pieces of the chunk that the grid
//! had there come along, as if it had never been cut.
//!
//! **The bound on waste.** What was fetched so and is not read is taken as lost, and no more is
//! fetched than
//!
//! ```text
//! unread <= CREDIT_BYTES + WASTE_RATIO x read
//! ```
//!
//! so that a run that follows its profile but for a few reads has the fill rate of its profile, and
//! one that does something else at least that of an image that was never trained.

use crate::chunk::{ChunkSpec, Zeros};
use crate::fetch::Claim;
use crate::index::Index;
use base::Extent;
use std::collections::{HashSet, VecDeque};

/// So much may be fetched before any of it was of use: the surroundings of four reads. Of what a
/// boot of Debian reads, it is a thirtieth.
const CREDIT_BYTES: u64 = 1 << 20;
/// Bytes that may be lost for each that was of use: what chunks of 256 KiB bring along without
/// training (the paper's Table 1: of what is read, 17 to 23 % were asked for).
const WASTE_RATIO: u64 = 5;

/// Chunks that are noted: what all the credit is in pieces of 4 KiB, several times over.
const COMING_MAX: usize = 1024;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Around {
    /// Chunks by their numbers, the surroundings of the last such read first.
    coming: VecDeque<usize>,
    unread: HashSet<ChunkSpec>,
    unread_bytes: u64,
    read_bytes: u64,
}

impl Around {
    /// Somebody waits for this, to which no profile has led.
    pub(super) fn on_surprise(&mut self, index: &Index, extent: Extent) {
        let sizes = index.sizes();
        // Where chunks end by what is in them, nobody knows what was cut.
        if sizes.min_bytes != sizes.max_bytes || extent.is_empty() {
            return;
        }
        let grid = u64::from(sizes.max_bytes);
        let start = extent.offset / grid * grid;
        let end = extent.end().next_multiple_of(grid);
        let around = index.chunks_of(Extent::between(start, end.min(index.image_bytes())));
        let own = index.chunks_of(extent);
        // What follows is wanted more often than what was before; what surprised last goes first.
        let before = (around.start..own.start).rev();
        let mut coming: VecDeque<_> = (own.end..around.end).chain(before).collect();
        coming.append(&mut self.coming);
        coming.truncate(COMING_MAX);
        self.coming = coming;
    }

    /// A chunk was read.
    pub(super) fn on_read(&mut self, spec: &ChunkSpec) {
        if self.unread.remove(spec) {
            self.unread_bytes -= u64::from(spec.len_bytes);
            self.read_bytes += u64::from(spec.len_bytes);
        }
    }

    /// The next chunk, with its number; what `claim` does not give is here, or on its way.
    pub(super) fn next(
        &mut self,
        index: &Index,
        zeros: &Zeros,
        claim: &dyn Fn(&ChunkSpec) -> Option<Claim>,
    ) -> Option<(Claim, usize)> {
        while let Some(number) = self.coming.pop_front() {
            let spec = index.spec(number);
            if zeros.has(&spec) {
                continue;
            }
            if !self.allows(&spec) {
                self.coming.clear();
                return None;
            }
            if let Some(claim) = claim(&spec) {
                self.note(spec);
                return Some((claim, number));
            }
        }
        None
    }

    fn allows(&self, spec: &ChunkSpec) -> bool {
        let most_bytes = CREDIT_BYTES + WASTE_RATIO * self.read_bytes;
        self.unread_bytes + u64::from(spec.len_bytes) <= most_bytes
    }

    fn note(&mut self, spec: ChunkSpec) {
        if self.unread.insert(spec) {
            self.unread_bytes += u64::from(spec.len_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Digest;
    use crate::index::ChunkSizes;
    use proptest::prelude::*;

    const GRID: u64 = 64 << 10;

    /// Three chunks of the grid and the beginning of a fourth; the second and the third are cut.
    fn index(min_bytes: u32) -> Index {
        let ends = [1, 1 + 8, 1 + 12, 1 + 16, 32, 48, 50];
        let ends = ends.map(|end: u64| match end {
            1 => GRID,
            2..=17 => GRID + (end - 1) * 4096,
            32 => 2 * GRID + 4096,
            48 => 3 * GRID,
            _ => 3 * GRID + 9000,
        });
        let sizes = ChunkSizes {
            min_bytes,
            ..ChunkSizes::fixed(GRID as u32)
        };
        let named = |end: u64| (end, Digest::Sha256.id_of(&end.to_le_bytes()));
        Index::new(Digest::Sha256, sizes, ends.map(named)).unwrap()
    }

    fn around(index: &Index, extent: Extent) -> Vec<usize> {
        let mut around = Around::default();
        around.on_surprise(index, extent);
        around.coming.into()
    }

    #[test]
    fn the_pieces_of_a_chunk_of_the_grid_come_along_and_nothing_else() {
        let index = index(GRID as u32);
        let at = |offset, len| around(&index, Extent::new(offset, len));
        assert!(at(0, 4096).is_empty());
        assert_eq!(at(GRID, 4096), [2, 3]);
        assert_eq!(at(GRID + 9 * 4096, 4096), [3, 1]);
        assert_eq!(at(2 * GRID - 4096, 4096), [2, 1]);
        assert_eq!(at(2 * GRID + 8192, 4096), [4]);
        // Over two of them: what is left of both.
        assert_eq!(at(2 * GRID - 4096, 8192), [5, 2, 1]);
        assert!(at(3 * GRID, 9000).is_empty());
        assert!(at(0, 4 * GRID).is_empty());
    }

    #[test]
    fn where_chunks_end_by_their_contents_nothing_comes_along() {
        let index = index(4096);
        assert!(around(&index, Extent::new(GRID, 4096)).is_empty());
    }

    proptest! {
        #[test]
        fn what_is_lost_is_bounded_by_what_was_of_use(
            steps in prop::collection::vec((1_u64..300, any::<bool>(), 0..40_usize), 0..300),
        ) {
            let mut around = Around::default();
            let mut fetched = Vec::new();
            for (number, (units, is_fetch, at)) in steps.into_iter().enumerate() {
                let spec = ChunkSpec {
                    id: Digest::Sha256.id_of(&number.to_le_bytes()),
                    digest: Digest::Sha256,
                    len_bytes: (units * 4096) as u32,
                };
                if is_fetch && around.allows(&spec) {
                    around.note(spec);
                    fetched.push(spec);
                } else if !fetched.is_empty() {
                    let read: ChunkSpec = fetched.swap_remove(at % fetched.len());
                    around.on_read(&read);
                    // A second time says nothing.
                    around.on_read(&read);
                }
                let unread: u64 = fetched.iter().map(|spec| u64::from(spec.len_bytes)).sum();
                prop_assert_eq!(around.unread_bytes, unread);
            }
            // Each was allowed at its time, and reading allows more.
            let most_bytes = CREDIT_BYTES + WASTE_RATIO * around.read_bytes;
            prop_assert!(around.unread_bytes <= most_bytes);
        }
    }
}
