//! Which part of which object an extent of a file is.

use base::Extent;
use wire::message::{FileColumn, FileLayout};

/// A run of bytes in one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The object.
    pub(super) column: FileColumn,
    /// Where in it.
    pub(super) offset: u64,
    /// Where in the file.
    pub(super) file: Extent,
}

/// The parts of an extent, in the file's order; each ends at a multiple of `bytes_max` in its
/// object at the latest, and where its stripe unit does.
pub(super) fn parts(layout: &FileLayout, extent: Extent, bytes_max: u64) -> Vec<Part> {
    let unit = 1u64 << layout.unit_log2;
    let width = layout.columns.len() as u64;
    let mut parts = Vec::new();
    let mut at = extent.offset;
    while at < extent.end() {
        let (stripe, within) = (at / unit, at % unit);
        let offset = stripe / width * unit + within;
        // In a file of one column, units follow each other.
        let unit_left = if width == 1 { u64::MAX } else { unit - within };
        let piece_left = bytes_max - offset % bytes_max;
        let len = (extent.end() - at).min(unit_left).min(piece_left);
        parts.push(Part {
            column: layout.columns[(stripe % width) as usize],
            offset,
            file: Extent::new(at, len),
        });
        at += len;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{ObjectId, ServerId, StoreId};
    use std::collections::BTreeSet;

    fn layout(width: u8) -> FileLayout {
        let column = |column| FileColumn {
            server: ServerId([1; 16]),
            store: StoreId([column; 16]),
            object: ObjectId([column; 16]),
        };
        FileLayout {
            unit_log2: 12,
            generation: 0,
            columns: (0..width).map(column).collect(),
        }
    }

    #[test]
    fn every_byte_has_its_own_place_and_every_place_its_byte() {
        for width in 1..4 {
            let layout = layout(width);
            let mut places = BTreeSet::new();
            for extent in [Extent::new(0, 28_677), Extent::new(28_677, 9_000)] {
                let mut at = extent.offset;
                for part in parts(&layout, extent, 3_000) {
                    assert_eq!(part.file.offset, at);
                    assert!(part.file.len > 0 && part.file.len <= 3_000);
                    at = part.file.end();
                    for byte in 0..part.file.len {
                        let (store, place) = (part.column.store, part.offset + byte);
                        assert!(places.insert((store, place)), "{store} {place} twice");
                        let row = place / 4096 * u64::from(width) + u64::from(store.0[0]);
                        assert_eq!(row * 4096 + place % 4096, part.file.offset + byte);
                    }
                }
                assert_eq!(at, extent.end());
            }
        }
    }
}
