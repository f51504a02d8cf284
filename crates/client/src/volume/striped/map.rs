//! Which part of which object an extent of a file is.

use base::Extent;
use std::cmp::Ordering;
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

/// The runs of the objects that an extent of a file has, each of at most `bytes_max`: in each
/// object, what the extent has of it follows each other.
pub(super) fn runs(
    layout: &FileLayout,
    extent: Extent,
    bytes_max: u64,
) -> Vec<(FileColumn, Extent)> {
    let mut runs = Vec::new();
    if extent.is_empty() {
        return runs;
    }
    for (index, column) in layout.columns.iter().enumerate() {
        let begin = column_offset(layout, index, extent.offset);
        let end = column_offset(layout, index, extent.end());
        let mut at = begin;
        while at < end {
            let len = (end - at).min(bytes_max - at % bytes_max);
            runs.push((*column, Extent::new(at, len)));
            at += len;
        }
    }
    runs
}

/// The first byte of a column's object that lies at or behind `offset` in the file.
pub(super) fn column_offset(layout: &FileLayout, column: usize, offset: u64) -> u64 {
    let unit = 1u64 << layout.unit_log2;
    let width = layout.columns.len() as u64;
    let (stripe, within) = (offset / unit, offset % unit);
    let (row, at) = (stripe / width, stripe % width);
    match (column as u64).cmp(&at) {
        Ordering::Less => (row + 1) * unit,
        Ordering::Equal => row * unit + within,
        Ordering::Greater => row * unit,
    }
}

/// Where a byte of a column's object lies in the file; the largest number if no file is so long.
pub(super) fn file_offset(layout: &FileLayout, column: usize, offset: u64) -> u64 {
    let unit = 1u64 << layout.unit_log2;
    let width = layout.columns.len() as u64;
    let stripe = (offset / unit).saturating_mul(width);
    let stripe = stripe.saturating_add(column as u64);
    stripe.saturating_mul(unit).saturating_add(offset % unit)
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

    #[test]
    fn runs_have_the_bytes_that_parts_have_and_offsets_lead_there_and_back() {
        for width in 1..4 {
            let layout = layout(width);
            for extent in [
                Extent::new(1, 40_000),
                Extent::new(9_000, 5),
                Extent::new(4096, 8192),
            ] {
                let places = |column: FileColumn, extent: Extent| {
                    (extent.offset..extent.end()).map(move |at| (column.store, at))
                };
                let by_runs: Vec<_> = runs(&layout, extent, 6_000);
                assert!(
                    by_runs
                        .iter()
                        .all(|(_, run)| run.len > 0 && run.len <= 6_000)
                );
                let by_runs: Vec<_> = by_runs
                    .iter()
                    .flat_map(|(column, run)| places(*column, *run))
                    .collect();
                let by_parts: BTreeSet<_> = parts(&layout, extent, 3_000)
                    .iter()
                    .flat_map(|part| places(part.column, Extent::new(part.offset, part.file.len)))
                    .collect();
                assert_eq!(by_runs.len(), by_parts.len());
                assert_eq!(by_runs.into_iter().collect::<BTreeSet<_>>(), by_parts);
            }
            for part in parts(&layout, Extent::new(0, 60_000), 1_000) {
                let column = usize::from(part.column.store.0[0]);
                assert_eq!(file_offset(&layout, column, part.offset), part.file.offset);
                assert_eq!(
                    column_offset(&layout, column, part.file.offset),
                    part.offset
                );
            }
        }
    }
}
