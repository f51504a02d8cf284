//! Where an index is cut along profiles.
//!
//! A chunk that is touched only in part is cut at every place where one of the profiles begins or
//! ends to touch it. Others stay as they are, with their ids: what is touched as a whole already
//! fills its chunk, and what is not touched need not be read to be named.

use crate::chunk::ChunkId;
use crate::error::DiskError;
use crate::index::Index;
use crate::profile::Profile;
use base::Extent;
use std::collections::BTreeSet;
use std::ops::Range;

/// Chunks that are cut, and into what.
#[derive(Debug, Default)]
pub(crate) struct Cut {
    /// By the number of the chunk: which of the pieces are its.
    chunks: Vec<(usize, Range<usize>)>,
    pieces: Vec<Extent>,
}

impl Cut {
    /// Along all edges of these profiles.
    pub(crate) fn along(index: &Index, profiles: &[Profile]) -> Self {
        let mut edges = BTreeSet::new();
        for profile in profiles {
            for run in profile.hot().iter() {
                edges.extend([run.offset, run.end()]);
            }
        }
        let mut cut = Self::default();
        let mut edges = edges.into_iter().peekable();
        while let Some(&edge) = edges.peek() {
            let Some(number) = index.chunks_of(Extent::new(edge, 1)).next() else {
                // At the end of the image, or behind it: so are all that follow.
                break;
            };
            let chunk = index.chunk(number).extent;
            let first = cut.pieces.len();
            let mut start = chunk.offset;
            while let Some(edge) = edges.next_if(|&edge| edge < chunk.end()) {
                if edge > start {
                    cut.pieces.push(Extent::between(start, edge));
                    start = edge;
                }
            }
            if start > chunk.offset {
                cut.pieces.push(Extent::between(start, chunk.end()));
                cut.chunks.push((number, first..cut.pieces.len()));
            }
        }
        cut
    }

    /// The pieces of all chunks that are cut, in order.
    pub(crate) fn pieces(&self) -> &[Extent] {
        &self.pieces
    }

    /// How many chunks are cut.
    pub(crate) fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// The index with these pieces, whose ids are said in order.
    pub(crate) fn index(&self, plain: &Index, ids: &[ChunkId]) -> Result<Index, DiskError> {
        let mut chunks = Vec::with_capacity(plain.chunk_count() + self.pieces.len());
        let mut cut = self.chunks.iter().peekable();
        for (number, chunk) in plain.chunks().enumerate() {
            match cut.next_if(|(cut, _)| *cut == number) {
                None => chunks.push((chunk.extent.end(), chunk.id)),
                Some((_, range)) => {
                    let pieces = self.pieces[range.clone()].iter();
                    let ids = &ids[range.clone()];
                    chunks.extend(pieces.zip(ids).map(|(piece, id)| (piece.end(), *id)));
                }
            }
        }
        let index = Index::new(plain.digest(), plain.sizes(), chunks);
        index.map_err(|_| DiskError::ImageTooLong(plain.image_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Digest;
    use crate::index::ChunkSizes;
    use crate::profile::{Trace, UNIT_BYTES};
    use base::ExtentSet;
    use proptest::prelude::*;
    use std::time::Duration;

    proptest! {
        #[test]
        fn what_is_hot_fills_whole_chunks_and_what_is_cold_keeps_its_own(
            image_bytes in 1_u64..60 * UNIT_BYTES,
            grid in 1_u64..9,
            reads in prop::collection::vec(
                prop::collection::vec((0..60 * UNIT_BYTES, 1_u64..30_000), 0..8),
                0..4,
            ),
        ) {
            let grid = grid * UNIT_BYTES;
            let ends = (1..=image_bytes.div_ceil(grid)).map(|n| (n * grid).min(image_bytes));
            let named = |end: u64| (end, Digest::Sha256.id_of(&end.to_le_bytes()));
            let sizes = ChunkSizes::fixed(grid as u32);
            let plain = Index::new(Digest::Sha256, sizes, ends.map(named)).unwrap();
            let profiles: Vec<_> = reads.iter().map(|reads| {
                let mut trace = Trace::new(image_bytes);
                for &(offset, len) in reads {
                    trace.on_read(Duration::ZERO, Extent::new(offset, len));
                }
                Profile::new("a", &trace).unwrap()
            }).collect();
            let cut = Cut::along(&plain, &profiles);
            let ids: Vec<_> = (0..cut.pieces().len())
                .map(|number| Digest::Sha256.id_of(format!("piece {number}").as_bytes()))
                .collect();
            let index = cut.index(&plain, &ids).unwrap();
            prop_assert_eq!(index.image_bytes(), image_bytes);
            let hot: Vec<ExtentSet> = profiles.iter().map(Profile::hot).collect();
            for chunk in index.chunks() {
                // Of each profile, a chunk is hot or cold and never both.
                for hot in &hot {
                    let is_one = hot.covers(chunk.extent) || !hot.overlaps(chunk.extent);
                    prop_assert!(is_one, "{}", chunk.extent);
                }
                let is_plain = plain.chunks().any(|other| other == chunk);
                prop_assert_eq!(is_plain, !ids.contains(&chunk.id), "the same place, the same id");
            }
            // No cut that is none of an edge.
            for before in plain.chunks() {
                let kept = index.chunks().any(|chunk| chunk == before);
                let inner = hot.iter().flat_map(ExtentSet::iter).any(|run| {
                    [run.offset, run.end()]
                        .iter()
                        .any(|&edge| before.extent.offset < edge && edge < before.extent.end())
                });
                prop_assert_eq!(kept, !inner, "{}", before.extent);
            }
        }
    }
}
