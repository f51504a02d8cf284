//! Checksums of the bytes of an AU, in records of fixed reach.
//!
//! One leaf covers a span (256 KiB) of one AU, in groups of 64 KiB. A group that was written in
//! large pieces has one CRC32C (*coarse*); once it gets a small overwrite it has one for each piece
//! of 4 KiB (*fine*). An append so touches the leaf of the last span and those of new ones,
//! whatever the object's length: what made EBOFS decay was one record with the checksums of the
//! whole object (research on the paper's Figure 7).
//!
//! The checksums are of bytes of the AU, not of an object, so objects that share an AU after a
//! clone share its checksums. Bytes that no checksum covers were never written and read as zeros.

use crate::layout::{GROUP_BYTES, PIECE_BYTES, SPAN_BYTES};
use crate::{Damage, StoreError};
use serde::{Deserialize, Serialize};

/// Groups of one span.
pub(crate) const SPAN_GROUPS: usize = (SPAN_BYTES / GROUP_BYTES) as usize;
/// Pieces of one group.
pub(crate) const GROUP_PIECES: usize = (GROUP_BYTES / PIECE_BYTES) as usize;

/// The first bytes of something, and their CRC32C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sum {
    /// How many bytes were written; 0 if none.
    pub(crate) len: u32,
    /// Their CRC32C.
    pub(crate) crc: u32,
}

impl Sum {
    /// The checksum of these bytes.
    #[must_use]
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self {
            len: u32::try_from(bytes.len()).expect("a group at most"),
            crc: crc32c::crc32c(bytes),
        }
    }

    /// A checksum for bytes that are damaged, which are as many as these: these do not have it.
    #[must_use]
    pub(crate) fn of_others(bytes: &[u8]) -> Self {
        let Self { len, crc } = Self::of(bytes);
        Self { len, crc: !crc }
    }

    /// The checksum with these bytes behind those that it covers.
    #[must_use]
    pub(crate) fn append(self, bytes: &[u8]) -> Self {
        Self {
            len: self.len + u32::try_from(bytes.len()).expect("a group at most"),
            crc: crc32c::crc32c_append(self.crc, bytes),
        }
    }

    /// Whether these are the bytes.
    #[must_use]
    pub(crate) fn fits(self, bytes: &[u8]) -> bool {
        self == Self::of(bytes)
    }
}

/// The checksums of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Group {
    /// Nothing was written.
    #[default]
    Empty,
    /// The first bytes of the group in one.
    Coarse(Sum),
    /// Each piece on its own; pieces at the end may be missing.
    Fine(Vec<Sum>),
    /// The record could not be restored: nobody knows what was written. A leaf with such a group is
    /// not given out.
    Lost,
}

impl Group {
    /// The checksum of one piece of a fine group; of nothing, if it was never written.
    #[must_use]
    pub(crate) fn piece(&self, piece: usize) -> Sum {
        match self {
            Self::Fine(pieces) => pieces.get(piece).copied().unwrap_or_default(),
            Self::Empty | Self::Coarse(_) | Self::Lost => Sum::default(),
        }
    }

    /// The fine form of a coarse group whose bytes these are.
    #[must_use]
    pub(crate) fn refined(bytes: &[u8]) -> Self {
        Self::Fine(bytes.chunks(PIECE_BYTES as usize).map(Sum::of).collect())
    }

    /// The fine form of a coarse group whose bytes are these and should be others: each piece of it
    /// is as damaged as the whole, until it is written.
    #[must_use]
    pub(crate) fn spoilt(bytes: &[u8]) -> Self {
        let pieces = bytes.chunks(PIECE_BYTES as usize);
        Self::Fine(pieces.map(Sum::of_others).collect())
    }

    /// Puts a piece's checksum into a group that is fine or empty.
    ///
    /// # Panics
    /// If the group is coarse: its bytes must be read and verified first.
    pub(crate) fn set_piece(&mut self, piece: usize, sum: Sum) {
        if *self == Self::Empty {
            *self = Self::Fine(Vec::new());
        }
        let Self::Fine(pieces) = self else {
            panic!("a coarse group was refined before one of its pieces is set");
        };
        if pieces.len() <= piece {
            pieces.resize(piece + 1, Sum::default());
        }
        pieces[piece] = sum;
        while pieces.last().is_some_and(|sum| sum.len == 0) {
            pieces.pop();
        }
        if pieces.is_empty() {
            *self = Self::Empty;
        }
    }
}

/// The checksums of one span.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Leaf {
    groups: Vec<Group>,
}

impl Leaf {
    /// One group of the span.
    #[must_use]
    pub(crate) fn group(&self, group: usize) -> &Group {
        self.groups.get(group).unwrap_or(&Group::Empty)
    }

    /// One group of the span, to be changed.
    ///
    /// # Panics
    /// If a span has no such group.
    pub(crate) fn group_mut(&mut self, group: usize) -> &mut Group {
        assert!(group < SPAN_GROUPS, "a span has {SPAN_GROUPS} groups");
        if self.groups.len() <= group {
            self.groups.resize(group + 1, Group::Empty);
        }
        &mut self.groups[group]
    }

    /// Whether nothing of the span was written.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| *group == Group::Empty)
    }

    /// What is left of a span whose checksums were lost.
    pub(crate) fn lost() -> Self {
        Self {
            groups: vec![Group::Lost],
        }
    }

    /// Whether its checksums were lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.groups.contains(&Group::Lost)
    }

    /// Whether the figures can be those of a span.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.is_lost() {
            return Err(Damage::Lost.into());
        }
        let fits = |group: &Group| match group {
            Group::Empty | Group::Lost => true,
            Group::Coarse(sum) => sum.len > 0 && u64::from(sum.len) <= GROUP_BYTES,
            Group::Fine(pieces) => {
                pieces.len() <= GROUP_PIECES
                    && pieces.iter().all(|sum| u64::from(sum.len) <= PIECE_BYTES)
            }
        };
        if self.groups.len() <= SPAN_GROUPS && self.groups.iter().all(fits) {
            Ok(())
        } else {
            Err(Damage::Record.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::VALUE_BYTES_MAX;
    use crate::record;

    fn full(group: impl Fn() -> Group) -> Leaf {
        let mut leaf = Leaf::default();
        for index in 0..SPAN_GROUPS {
            *leaf.group_mut(index) = group();
        }
        leaf
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let mut leaf = Leaf::default();
        *leaf.group_mut(1) = Group::Coarse(Sum::of(b"123456789"));
        leaf.group_mut(2).set_piece(1, Sum::of(b"a"));
        let bytes = record::encode(&leaf);
        let golden = [
            3, 0, 1, 9, 0x83, 0xA5, 0x9A, 0x98, 0x0E, 2, 2, 0, 0, 1, 0xB0, 0x86, 0xC1, 0x8E, 0x0C,
        ];
        assert_eq!(&bytes[..], golden);
        assert_eq!(record::decode::<Leaf>(&bytes).unwrap(), leaf);
    }

    #[test]
    fn a_leaf_is_small_and_a_coarse_one_tiny() {
        let worst = Sum {
            len: 4096,
            crc: u32::MAX,
        };
        let fine = record::encode(&full(|| Group::Fine(vec![worst; GROUP_PIECES])));
        assert!(fine.len() <= VALUE_BYTES_MAX, "{}", fine.len());
        let coarse = record::encode(&full(|| {
            Group::Coarse(Sum {
                len: 65536,
                ..worst
            })
        }));
        assert!(coarse.len() <= 40, "{} bytes for 256 KiB", coarse.len());
    }

    #[test]
    fn pieces_come_and_go() {
        let mut group = Group::Empty;
        group.set_piece(3, Sum::of(b"abc"));
        assert_eq!(group.piece(2).len, 0);
        assert!(group.piece(3).fits(b"abc") && !group.piece(3).fits(b"abd"));
        group.set_piece(3, Sum::default());
        assert_eq!(group, Group::Empty);
        assert_eq!(Sum::of(b"abc").append(b"de"), Sum::of(b"abcde"));
        let bytes: Vec<u8> = (0..10_000).map(|i| (i % 251) as u8).collect();
        let fine = Group::refined(&bytes);
        assert!(fine.piece(2).fits(&bytes[8192..]));
    }

    #[test]
    fn figures_that_no_span_has_are_damage() {
        let long = Sum {
            len: 70_000,
            crc: 0,
        };
        assert!(full(|| Group::Coarse(long)).check().is_err());
        assert!(full(|| Group::Fine(vec![long])).check().is_err());
        assert!(
            full(|| Group::Fine(vec![Sum::default(); 17]))
                .check()
                .is_err()
        );
        assert!(full(|| Group::Coarse(Sum::of(b"a"))).check().is_ok());
    }
}
