//! Where a file's bytes lie: columns of stripes, each an object in a store.
//!
//! ```text
//! byte b      stripe s = b / unit, column s % width, at s / width * unit + b % unit of its object
//! object id   scope 8 | object 6 and column 2, big-endian, permuted ([`Identities`])
//! ```
//! A layout names stores by numbers of the volume's own table ([`Target`]), one byte each for most,
//! because a file has as many of them as columns and there are many small files. The object number
//! is that of the inode as long as the file lies where it was made; a file that is laid out anew
//! gets a new one, so objects of two layouts never meet. The scope is that of the volume's tickets
//! ([`ObjectScope`]): they reach its files, and it keeps volumes apart that share a store.
//!
//! [`Identities`]: super::Identities
//! [`ObjectScope`]: base::ticket::ObjectScope

use super::record::Numbers;
use base::{ServerId, StoreId};
use serde::{Deserialize, Serialize};

/// What the size of an object is rounded up to for [`base::Attributes::blocks`]: what a store
/// writes at least.
const PIECE_BYTES: u64 = 4096;
/// The unit of `blocks` (statx(2)).
const BLOCK_BYTES: u64 = 512;
/// Inodes and objects are numbered below this, because an object id has room for so much.
pub(super) const NUMBERS_MAX: u64 = 1 << 47;
/// In a layout's object number: whether its objects' identities are permuted. Those of files that
/// were made before version 5 of the format are not.
const HIDDEN: u64 = NUMBERS_MAX;

/// A store that a volume's files lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Target {
    /// The server that has it.
    pub server: ServerId,
    /// The store.
    pub store: StoreId,
}

/// How a file survives the loss of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Redundancy {
    /// It does not.
    #[default]
    None,
    /// Each column is there so many times: copy `c` of column `i` is at `i + c * width`.
    Copies(u8),
    /// So many columns after those of the data hold parities.
    Parities(u8),
}

/// Where one file's bytes lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The number that its objects have, and how their identities follow from it.
    pub object: u64,
    /// Goes up whenever what is on its way to the stores must not arrive there any more: when the
    /// file is cut, when others go before an append, or if it was laid out anew.
    pub generation: u64,
    /// Bytes of a column before the next one's turn, as a power of two.
    pub unit_log2: u8,
    /// How it survives the loss of a store.
    pub redundancy: Redundancy,
    /// The store of each column, by its number in the volume.
    pub columns: Numbers,
}

impl Layout {
    /// How many columns have data of their own.
    #[must_use]
    pub fn width(&self) -> usize {
        let all = self.columns.0.len();
        match self.redundancy {
            Redundancy::None => all,
            Redundancy::Copies(copies) => all / usize::from(copies.max(1)),
            Redundancy::Parities(parities) => all.saturating_sub(parities.into()),
        }
    }

    /// Whether nobody can guess its objects' identities.
    pub(super) fn is_hidden(&self) -> bool {
        self.object & HIDDEN != 0
    }

    /// The number that was given out for it.
    pub(super) fn number(&self) -> u64 {
        self.object & !HIDDEN
    }

    /// The same for a file with this number.
    pub(super) fn with_number(self, number: u64) -> Self {
        Self {
            object: number | HIDDEN,
            ..self
        }
    }

    /// How long the object of a column is in a file of this size without holes.
    #[must_use]
    pub fn column_bytes(&self, size: u64, column: usize) -> u64 {
        let width = self.width().max(1) as u64;
        let unit = 1u64 << self.unit_log2;
        let (column, stripe) = (column as u64 % width, unit.saturating_mul(width));
        let (whole, rest) = (size / stripe, size % stripe);
        whole * unit + rest.saturating_sub(column * unit).min(unit)
    }

    /// What a file of this size takes, in units of 512 bytes, without holes.
    #[must_use]
    pub fn blocks(&self, size: u64) -> u64 {
        let columns = 0..self.columns.0.len();
        let bytes = columns.map(|column| {
            self.column_bytes(size, column)
                .next_multiple_of(PIECE_BYTES)
        });
        bytes.sum::<u64>() / BLOCK_BYTES
    }
}

/// How new files are laid out if nobody says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Striping {
    /// Bytes of a column before the next one's turn, as a power of two.
    pub unit_log2: u8,
    /// Columns of a file.
    pub width: usize,
    /// The stores, by number; files begin at one after the other.
    pub targets: Vec<u16>,
}

impl Striping {
    /// The layout of a new file.
    pub(super) fn layout(&self, inode: u64) -> Layout {
        let count = self.targets.len();
        let width = self.width.min(count);
        let first = if count == 0 {
            0
        } else {
            inode as usize % count
        };
        let columns = (0..width).map(|column| self.targets[(first + column) % count]);
        Layout {
            object: inode | HIDDEN,
            generation: 0,
            unit_log2: self.unit_log2,
            redundancy: Redundancy::None,
            columns: columns.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(width: u16) -> Layout {
        let striping = Striping {
            unit_log2: 16,
            width: width.into(),
            targets: (0..width).collect(),
        };
        striping.layout(5)
    }

    #[test]
    fn columns_have_together_what_the_file_has() {
        for width in 1..5 {
            for size in [0, 1, 65_535, 65_536, 65_537, 1_000_000, 1 << 40] {
                let layout = layout(width);
                let columns = (0..width.into()).map(|column| layout.column_bytes(size, column));
                assert_eq!(columns.sum::<u64>(), size, "{width} columns, {size} bytes");
            }
        }
        assert_eq!(layout(3).blocks(65_537), (65_536 + 4096) / 512);
    }

    #[test]
    fn files_begin_at_one_store_after_the_other() {
        let striping = Striping {
            unit_log2: 20,
            width: 2,
            targets: vec![7, 8, 9],
        };
        let firsts: Vec<_> = (0..3)
            .map(|inode| striping.layout(inode).columns.0[0])
            .collect();
        assert_eq!(firsts, [7, 8, 9]);
        assert_eq!(striping.layout(2).columns.0[..], [9, 7]);
    }
}
