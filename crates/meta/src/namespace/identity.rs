//! Which objects a file's bytes are in.
//!
//! A storage server knows no files: whoever has a ticket of a volume and the identity of an object
//! has what is in it, and only who may have a file is told the identities of its objects. So they
//! must not be guessed from others or from inode numbers, which everybody sees. The number of a
//! file's objects and the column are permuted with a key that only managers have: a Feistel network
//! of eight rounds, keyed hashes being the round's functions. What is permuted are all 64 bits, so
//! no two columns ever have one identity.

use super::layout::Layout;
use base::ticket::ObjectScope;
use base::{ObjectId, VolumeId};

/// Of four rounds the result cannot be told from a random one by who sees less than 2^16 of them
/// (Luby and Rackoff 1988); with each further pair that grows.
const ROUNDS: u8 = 8;
/// What the key is derived for.
const CONTEXT: &str = "azekura namespace, identities of objects";

/// Knows the objects of one volume's files.
#[derive(Clone, Copy)]
pub struct Identities {
    volume: VolumeId,
    key: [u8; 32],
}

impl Identities {
    pub(super) fn new(volume: VolumeId, secret: &[u8; 32]) -> Self {
        Self {
            volume,
            key: blake3::derive_key(CONTEXT, secret),
        }
    }

    /// The object of a column of a file that lies so.
    #[must_use]
    pub fn object(&self, layout: &Layout, column: u16) -> ObjectId {
        let number = layout.object << 16 | u64::from(column);
        let digits = match layout.is_hidden() {
            true => self.permute(number),
            false => number,
        };
        let mut bytes = [0; 8];
        for (byte, shift) in bytes.iter_mut().zip((0..64).step_by(8).rev()) {
            *byte = (digits >> shift) as u8;
        }
        ObjectScope::new(self.volume, b"").object(bytes)
    }

    fn permute(&self, number: u64) -> u64 {
        let (mut left, mut right) = ((number >> 32) as u32, number as u32);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        u64::from(left) << 32 | u64::from(right)
    }

    fn round(&self, round: u8, half: u32) -> u32 {
        let [a, b, c, d] = half.to_le_bytes();
        let hash = blake3::keyed_hash(&self.key, &[round, a, b, c, d]);
        let (first, _) = hash
            .as_bytes()
            .split_first_chunk()
            .expect("it has 32 bytes");
        u32::from_le_bytes(*first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::Striping;
    use std::collections::HashSet;

    fn layout(inode: u64) -> Layout {
        let striping = Striping {
            unit_log2: 16,
            width: 2,
            targets: vec![0, 1],
        };
        striping.layout(inode)
    }

    #[test]
    fn objects_of_different_files_columns_and_volumes_are_different() {
        let mut ids = HashSet::new();
        for volume in [VolumeId([1; 16]), VolumeId([2; 16])] {
            let identities = Identities::new(volume, &[7; 32]);
            for inode in 2..2000 {
                for column in [0, 1] {
                    assert!(ids.insert(identities.object(&layout(inode), column)));
                }
            }
        }
    }

    #[test]
    fn nobody_guesses_an_object_from_numbers_or_from_others() {
        let volume = VolumeId([1; 16]);
        let digits = |secret: u8, inode, column| {
            let id = Identities::new(volume, &[secret; 32]).object(&layout(inode), column);
            u64::from_le_bytes(*id.0.last_chunk().unwrap())
        };
        let bits = |one: u64, other: u64| (one ^ other).count_ones();
        let (mut of_inode, mut of_column, mut of_key) = (0, 0, 0);
        for inode in 0..1000 {
            of_inode += bits(digits(7, inode, 0), digits(7, inode + 1, 0));
            of_column += bits(digits(7, inode, 0), digits(7, inode, 1));
            of_key += bits(digits(7, inode, 0), digits(8, inode, 0));
        }
        // Half of 64 bits, each time.
        for all in [of_inode, of_column, of_key] {
            assert!((31_000..33_000).contains(&all), "{all}");
        }
    }

    #[test]
    fn files_of_before_keep_their_objects() {
        let identities = Identities::new(VolumeId([1; 16]), &[7; 32]);
        let mut old = layout(5);
        old.object = 5;
        assert_eq!(identities.object(&old, 2).0[8..], [0, 0, 0, 0, 0, 5, 0, 2]);
        assert_eq!((old.number(), layout(5).number()), (5, 5));
    }
}
