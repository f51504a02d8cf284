//! What differs between two versions, from their indexes alone.

use crate::index::Index;
use base::{Extent, ExtentSet};
use std::collections::HashMap;

/// What a version has that another has not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// Where the second differs from the first, up to the end of the longer one. Where they are
    /// cut otherwise, bytes may be the same after all: nobody has looked at them.
    pub changed: ExtentSet,
    /// Chunks of the second that the first has nowhere, each once.
    pub new_chunks: u64,
    /// Bytes of these, as they are on the disk.
    pub new_bytes: u64,
    /// Chunks of the first that the second has nowhere, each once.
    pub gone_chunks: u64,
    /// Bytes of these.
    pub gone_bytes: u64,
    /// Chunks that both have, each once.
    pub common_chunks: u64,
}

/// Compares two versions.
#[must_use]
pub fn diff(first: &Index, second: &Index) -> Diff {
    let longest = first.image_bytes().max(second.image_bytes());
    let mut changed = ExtentSet::new();
    changed.insert(Extent::new(0, longest));
    if first.digest() == second.digest() {
        let mut others = second.chunks().peekable();
        for chunk in first.chunks() {
            while others
                .next_if(|other| other.extent.offset < chunk.extent.offset)
                .is_some()
            {}
            if others.peek() == Some(&chunk) {
                changed.remove(chunk.extent);
            }
        }
    }
    let lengths = |index: &Index| -> HashMap<_, _> {
        let specs = (0..index.chunk_count()).map(|number| index.spec(number));
        specs
            .map(|spec| (spec, u64::from(spec.len_bytes)))
            .collect()
    };
    let (in_first, in_second) = (lengths(first), lengths(second));
    let mut diff = Diff {
        changed,
        ..Diff::default()
    };
    for (spec, bytes) in &in_second {
        if in_first.contains_key(spec) {
            diff.common_chunks += 1;
        } else {
            diff.new_chunks += 1;
            diff.new_bytes += bytes;
        }
    }
    for (spec, bytes) in &in_first {
        if !in_second.contains_key(spec) {
            diff.gone_chunks += 1;
            diff.gone_bytes += bytes;
        }
    }
    diff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunk::Digest;
    use crate::index::ChunkSizes;
    use proptest::prelude::*;

    fn index(content: &[u8], lengths: &[usize]) -> Index {
        let mut chunks = Vec::new();
        let (mut start, mut lengths) = (0, lengths.iter().cycle());
        while start < content.len() {
            let end = content.len().min(start + lengths.next().unwrap());
            chunks.push((end as u64, Digest::Sha256.id_of(&content[start..end])));
            start = end;
        }
        Index::new(Digest::Sha256, ChunkSizes::fixed(8), chunks).unwrap()
    }

    proptest! {
        #[test]
        fn what_is_not_said_to_differ_is_the_same(
            first in prop::collection::vec(0_u8..2, 0..100),
            second in prop::collection::vec(0_u8..2, 0..100),
            common in 0_usize..100,
            cuts in prop::collection::vec(1_usize..=8, 1..4),
            same_cuts in any::<bool>(),
        ) {
            let mut second = second;
            let common = common.min(first.len()).min(second.len());
            second[..common].copy_from_slice(&first[..common]);
            let others: &[usize] = if same_cuts { &cuts } else { &[8] };
            let (a, b) = (index(&first, &cuts), index(&second, others));
            let found = diff(&a, &b);
            let longest = first.len().max(second.len());
            let mut bytes = 0;
            for position in 0..longest {
                let is_changed = found.changed.covers(Extent::new(position as u64, 1));
                bytes += u64::from(is_changed);
                prop_assert!(is_changed || first.get(position) == second.get(position));
            }
            prop_assert_eq!(bytes, found.changed.bytes(), "nothing beyond the end");
            let back = diff(&b, &a);
            prop_assert_eq!(&back.changed, &found.changed);
            let gone = (found.gone_chunks, found.gone_bytes);
            prop_assert_eq!((back.new_chunks, back.new_bytes), gone);
            prop_assert_eq!(back.common_chunks, found.common_chunks);
            prop_assert!(diff(&a, &a).changed.is_empty());
            if same_cuts {
                // A chunk is said to differ only if some of its bytes do.
                for chunk in a.chunks().filter(|chunk| found.changed.overlaps(chunk.extent)) {
                    let place = chunk.extent.offset as usize..chunk.extent.end() as usize;
                    prop_assert!(
                        second.get(place.clone()) != Some(&first[place.clone()])
                            || !b.chunks().any(|other| other.extent == chunk.extent)
                    );
                }
            }
        }
    }
}
