//! The content of a disk, cheap to copy.
//!
//! A tree of two levels: leaves of 256 blocks of 4 KiB. A copy shares everything with its original;
//! a write copies one block, one leaf and the list of leaves (64 entries for 64 MiB). What was
//! never written takes no memory and reads as zeros.

use base::Extent;
use std::fmt;
use std::sync::Arc;

const BLOCK_BYTES: usize = 4096;
const LEAF_BLOCKS: usize = 256;
const LEAF_BYTES: u64 = (BLOCK_BYTES * LEAF_BLOCKS) as u64;

type Block = [u8; BLOCK_BYTES];
type Leaf = Vec<Option<Arc<Block>>>;

/// The content of a disk. Two are equal if they have the same bytes.
#[derive(Clone)]
pub struct Image {
    len_bytes: u64,
    leaves: Arc<Vec<Option<Arc<Leaf>>>>,
}

impl Image {
    /// All zeros.
    #[must_use]
    pub fn new(len_bytes: u64) -> Self {
        let leaves = usize::try_from(len_bytes.div_ceil(LEAF_BYTES)).expect("fits into memory");
        Self {
            len_bytes,
            leaves: Arc::new(vec![None; leaves]),
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The bytes at `offset`.
    ///
    /// # Panics
    /// If some of them are not on the disk, as all methods here do.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) {
        self.assert_inside(offset, into.len());
        for (place, part) in pieces(offset, into.len()) {
            let into = &mut into[part];
            match self.block(place.leaf, place.block) {
                Some(block) => into.copy_from_slice(&block[place.start..][..into.len()]),
                None => into.fill(0),
            }
        }
    }

    /// Puts `from` at `offset`.
    ///
    /// # Panics
    /// See [`Self::read_at`].
    pub fn write_at(&mut self, offset: u64, from: &[u8]) {
        self.assert_inside(offset, from.len());
        for (place, part) in pieces(offset, from.len()) {
            let from = &from[part];
            if from.len() == BLOCK_BYTES {
                self.replace(&place, from);
            } else {
                self.block_mut(&place)[place.start..][..from.len()].copy_from_slice(from);
            }
        }
    }

    /// Puts a whole block in its place: what was there need not be copied, nor made zeros, before.
    fn replace(&mut self, place: &Place, from: &[u8]) {
        let leaf = self.leaf_mut(place);
        let there = &mut leaf[place.block];
        match there.as_mut().and_then(Arc::get_mut) {
            Some(block) => block.copy_from_slice(from),
            None => {
                let block = Arc::<[u8]>::from(from).try_into();
                *there = Some(block.expect("it is a whole block"));
            }
        }
    }

    /// Turns one bit around: `bit` 0 is the lowest of the byte at `offset`.
    ///
    /// # Panics
    /// See [`Self::read_at`]; if `bit` is not below 8.
    pub fn flip_bit(&mut self, offset: u64, bit: u8) {
        assert!(bit < 8, "a byte has 8 bits, no bit {bit}");
        let mut byte = [0];
        self.read_at(offset, &mut byte);
        self.write_at(offset, &[byte[0] ^ (1 << bit)]);
    }

    /// The blocks of 4,096 bytes that take memory, in rising order: where each begins, and what is
    /// in it. Everything between them is zeros, and so may some of them be. The last one ends with
    /// the disk.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let len_bytes = self.len_bytes;
        let leaves = self.leaves.iter().enumerate();
        let blocks = leaves.flat_map(|(leaf, blocks)| {
            let blocks = blocks.iter().flat_map(|blocks| blocks.iter().enumerate());
            blocks.filter_map(move |(number, block)| {
                let offset = leaf as u64 * LEAF_BYTES + (number * BLOCK_BYTES) as u64;
                Some((offset, block.as_ref()?))
            })
        });
        blocks.map(move |(offset, block)| {
            let len = (len_bytes - offset).min(BLOCK_BYTES as u64);
            (offset, &block[..len as usize])
        })
    }

    fn block(&self, leaf: usize, block: usize) -> Option<&Arc<Block>> {
        self.leaves[leaf].as_ref()?[block].as_ref()
    }

    fn leaf_mut(&mut self, place: &Place) -> &mut Leaf {
        let leaf = Arc::make_mut(&mut self.leaves)[place.leaf]
            .get_or_insert_with(|| Arc::new(vec![None; LEAF_BLOCKS]));
        Arc::make_mut(leaf)
    }

    fn block_mut(&mut self, place: &Place) -> &mut Block {
        let block = self.leaf_mut(place)[place.block].get_or_insert_with(|| Arc::new([0; _]));
        Arc::make_mut(block)
    }

    fn assert_inside(&self, offset: u64, len: usize) {
        let (extent, len_bytes) = (Extent::new(offset, len as u64), self.len_bytes);
        assert!(
            Extent::new(0, len_bytes).covers(extent),
            "{extent} is not on a disk of {len_bytes} bytes"
        );
    }

    fn equals_block(&self, other: &Self, leaf: usize, block: usize) -> bool {
        match (self.block(leaf, block), other.block(leaf, block)) {
            (None, None) => true,
            (Some(one), Some(two)) => Arc::ptr_eq(one, two) || one == two,
            (Some(one), None) | (None, Some(one)) => one.iter().all(|&byte| byte == 0),
        }
    }
}

/// Where in the tree some bytes of one block are.
struct Place {
    leaf: usize,
    block: usize,
    start: usize,
}

/// The run of bytes cut at block borders: where each piece is on the disk and in the run.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (Place, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let start = (at % BLOCK_BYTES as u64) as usize;
        let part = done..len.min(done + BLOCK_BYTES - start);
        done = part.end;
        let place = Place {
            leaf: (at / LEAF_BYTES) as usize,
            block: (at % LEAF_BYTES) as usize / BLOCK_BYTES,
            start,
        };
        (!part.is_empty()).then_some((place, part))
    })
}

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        let same = |leaf: usize| match (&self.leaves[leaf], &other.leaves[leaf]) {
            (None, None) => true,
            (Some(one), Some(two)) if Arc::ptr_eq(one, two) => true,
            _ => (0..LEAF_BLOCKS).all(|block| self.equals_block(other, leaf, block)),
        };
        self.len_bytes == other.len_bytes
            && (Arc::ptr_eq(&self.leaves, &other.leaves) || (0..self.leaves.len()).all(same))
    }
}

impl Eq for Image {}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({} bytes)", self.len_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEN: usize = 2 * LEAF_BYTES as usize + 3 * BLOCK_BYTES + 512;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn an_image_agrees_with_an_array_and_copies_do_not_feel_each_other(
            writes in prop::collection::vec((0..LEN, 0..3 * BLOCK_BYTES, 1..=255u8), 1..20),
        ) {
            let mut image = Image::new(LEN as u64);
            let mut array = vec![0; LEN];
            let mut copies = Vec::new();
            for (offset, len, byte) in writes {
                let end = LEN.min(offset + len);
                copies.push((image.clone(), array.clone()));
                array[offset..end].fill(byte);
                image.write_at(offset as u64, &vec![byte; end - offset]);
            }
            copies.push((image, array));
            for (image, array) in &copies {
                let mut read = vec![1; LEN];
                image.read_at(0, &mut read);
                prop_assert!(&read == array);
                let mut listed = vec![0; LEN];
                let mut last = None;
                for (offset, block) in image.blocks() {
                    prop_assert!(last < Some(offset));
                    last = Some(offset);
                    listed[offset as usize..][..block.len()].copy_from_slice(block);
                }
                prop_assert!(&listed == array);
            }
            let (first, last) = (&copies[0], &copies[copies.len() - 1]);
            prop_assert_eq!(first.0 == last.0, first.1 == last.1);
        }
    }

    #[test]
    fn zeros_written_equal_zeros_never_written() {
        let mut image = Image::new(LEN as u64);
        image.write_at(LEAF_BYTES - 5, &[0; 10]);
        assert_eq!(image, Image::new(LEN as u64));
        image.flip_bit(LEAF_BYTES, 7);
        assert_ne!(image, Image::new(LEN as u64));
        image.flip_bit(LEAF_BYTES, 7);
        assert_eq!(image, Image::new(LEN as u64));
    }
}
