//! The index of an image: its chunks by position, as casync's `.caibx`.
//!
//! An index says where each chunk ends. A grid of equal chunks is one case of that; an index may
//! also cut where it likes, which is how layout training stays readable for casync and desync. So
//! nothing here computes a chunk from an offset by division: it is looked up.
//!
//! Drawn in `docs/formats/disk.md`. What is read is checked as a whole before anything of it is
//! believed: chunks follow each other without gaps, none is empty or longer than the index's own
//! bound, and that bound is one that fits into memory.

use crate::chunk::{ChunkId, ChunkSpec, Digest, Zeros};
use crate::error::Damage;
use base::Extent;
use base::limits::{DISK_CHUNK_BYTES_MAX, DISK_IMAGE_BYTES_MAX, DISK_INDEX_CHUNKS_MAX};
use std::collections::BTreeSet;
use std::ops::Range;

const INDEX_MAGIC: u64 = 0x9682_4d9c_7b12_9ff9;
const TABLE_MAGIC: u64 = 0xe75b_9e11_2f17_417d;
const TAIL_MARKER: u64 = 0x4b4f_050e_5549_ecd1;
const INDEX_HEADER_BYTES: usize = 48;
const TABLE_HEADER_BYTES: usize = 16;
const TAIL_BYTES: usize = 40;
const ITEM_BYTES: usize = 40;
/// Ids are SHA-512/256; without it they are SHA-256.
const FLAG_SHA512_HALF: u64 = 0x2000_0000_0000_0000;
/// What desync writes for images. The flags concern archives of files; readers of images want one.
const FLAG_EXCLUDE_NODUMP: u64 = 0x8000_0000_0000_0000;

/// The lengths between which chunks are, in bytes. Only the largest is a promise: a last chunk, or
/// one that was cut by training, is shorter than the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSizes {
    /// The least.
    pub min_bytes: u32,
    /// The one aimed at.
    pub avg_bytes: u32,
    /// The largest.
    pub max_bytes: u32,
}

impl ChunkSizes {
    /// A grid.
    #[must_use]
    pub const fn fixed(bytes: u32) -> Self {
        Self {
            min_bytes: bytes,
            avg_bytes: bytes,
            max_bytes: bytes,
        }
    }
}

/// One chunk in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Where it is in the image.
    pub extent: Extent,
    /// Its id.
    pub id: ChunkId,
}

/// An image's chunks, by position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    digest: Digest,
    sizes: ChunkSizes,
    /// Where each chunk ends; ascending.
    ends: Vec<u64>,
    ids: Vec<ChunkId>,
}

impl Index {
    /// Of chunks that end where said.
    ///
    /// # Errors
    /// [`Damage`] if they do not make an index.
    pub fn new(
        digest: Digest,
        sizes: ChunkSizes,
        chunks: impl IntoIterator<Item = (u64, ChunkId)>,
    ) -> Result<Self, Damage> {
        let (ends, ids) = chunks.into_iter().unzip();
        let index = Self {
            digest,
            sizes,
            ends,
            ids,
        };
        index.check()?;
        Ok(index)
    }

    /// Length of an index file with so many chunks.
    #[must_use]
    pub const fn file_bytes(chunk_count: usize) -> u64 {
        (INDEX_HEADER_BYTES + TABLE_HEADER_BYTES + TAIL_BYTES) as u64
            + chunk_count as u64 * ITEM_BYTES as u64
    }

    /// Reads an index file.
    ///
    /// # Errors
    /// [`Damage`] says what is wrong with it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        let shortest = Self::file_bytes(0) as usize;
        if bytes.len() < shortest || number(bytes, 8) != INDEX_MAGIC {
            return Err(Damage::NotAnIndex);
        }
        let items_bytes = bytes.len() - shortest;
        let count = items_bytes / ITEM_BYTES;
        if count > DISK_INDEX_CHUNKS_MAX {
            return Err(Damage::IndexTooLong(count as u64));
        }
        let table_bytes = bytes.len() - INDEX_HEADER_BYTES;
        let tail = bytes.len() - TAIL_BYTES;
        let expected = [
            (0, INDEX_HEADER_BYTES as u64),
            (48, u64::MAX),
            (56, TABLE_MAGIC),
            (tail, 0),
            (tail + 8, 0),
            (tail + 16, INDEX_HEADER_BYTES as u64),
            (tail + 24, table_bytes as u64),
            (tail + 32, TAIL_MARKER),
        ];
        let fits = |&(at, wanted): &(usize, u64)| number(bytes, at) == wanted;
        if !items_bytes.is_multiple_of(ITEM_BYTES) || !expected.iter().all(fits) {
            return Err(Damage::Index("its frame"));
        }
        let size = |at| u32::try_from(number(bytes, at)).map_err(|_| Damage::Index("chunk sizes"));
        let sizes = ChunkSizes {
            min_bytes: size(24)?,
            avg_bytes: size(32)?,
            max_bytes: size(40)?,
        };
        let digest = if number(bytes, 16) & FLAG_SHA512_HALF == 0 {
            Digest::Sha256
        } else {
            Digest::Sha512Half
        };
        let (items, _) = bytes[INDEX_HEADER_BYTES + TABLE_HEADER_BYTES..tail].as_chunks();
        let items = items.iter().map(|item: &[u8; ITEM_BYTES]| {
            let mut id = [0; ChunkId::BYTES];
            id.copy_from_slice(&item[8..]);
            (number(item, 0), ChunkId(id))
        });
        Self::new(digest, sizes, items)
    }

    /// The index as a file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let length = Self::file_bytes(self.ids.len()) as usize;
        let mut bytes = Vec::with_capacity(length);
        let flags = match self.digest {
            Digest::Sha512Half => FLAG_EXCLUDE_NODUMP | FLAG_SHA512_HALF,
            Digest::Sha256 => FLAG_EXCLUDE_NODUMP,
        };
        let put = |bytes: &mut Vec<u8>, numbers: &[u64]| {
            for number in numbers {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        };
        let header = INDEX_HEADER_BYTES as u64;
        put(&mut bytes, &[header, INDEX_MAGIC, flags]);
        let sizes = self.sizes;
        let sizes = [sizes.min_bytes, sizes.avg_bytes, sizes.max_bytes];
        put(&mut bytes, &sizes.map(u64::from));
        put(&mut bytes, &[u64::MAX, TABLE_MAGIC]);
        for (end, id) in self.ends.iter().zip(&self.ids) {
            put(&mut bytes, &[*end]);
            bytes.extend_from_slice(&id.0);
        }
        put(&mut bytes, &[0, 0, header, length as u64 - header]);
        put(&mut bytes, &[TAIL_MARKER]);
        bytes
    }

    fn check(&self) -> Result<(), Damage> {
        let sizes = self.sizes;
        if self.ids.len() > DISK_INDEX_CHUNKS_MAX {
            return Err(Damage::IndexTooLong(self.ids.len() as u64));
        }
        if sizes.max_bytes > DISK_CHUNK_BYTES_MAX {
            return Err(Damage::ChunkTooLong(sizes.max_bytes.into()));
        }
        if sizes.min_bytes == 0
            || sizes.min_bytes > sizes.avg_bytes
            || sizes.avg_bytes > sizes.max_bytes
        {
            return Err(Damage::Index("chunk sizes"));
        }
        let mut start = 0;
        for &end in &self.ends {
            if end <= start || end - start > u64::from(sizes.max_bytes) {
                return Err(Damage::Index("a chunk's end"));
            }
            start = end;
        }
        if start > DISK_IMAGE_BYTES_MAX {
            return Err(Damage::Index("the image's length"));
        }
        Ok(())
    }

    /// By what its chunks are named.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The lengths of its chunks.
    #[must_use]
    pub fn sizes(&self) -> ChunkSizes {
        self.sizes
    }

    /// Length of the image in bytes.
    #[must_use]
    pub fn image_bytes(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// How many chunks there are, repeated ones included.
    #[must_use]
    pub fn chunk_count(&self) -> usize {
        self.ids.len()
    }

    /// The ids by position.
    #[must_use]
    pub fn ids(&self) -> &[ChunkId] {
        &self.ids
    }

    /// The chunk with this number.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn chunk(&self, number: usize) -> Placed {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        Placed {
            extent: Extent::between(start, self.ends[number]),
            id: self.ids[number],
        }
    }

    /// What the chunk with this number must be.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn spec(&self, number: usize) -> ChunkSpec {
        let chunk = self.chunk(number);
        ChunkSpec {
            id: chunk.id,
            digest: self.digest,
            len_bytes: u32::try_from(chunk.extent.len).expect("checked: at most the index's bound"),
        }
    }

    /// All chunks in order.
    pub fn chunks(&self) -> impl Iterator<Item = Placed> + '_ {
        (0..self.chunk_count()).map(|number| self.chunk(number))
    }

    /// The numbers of the chunks that have bytes of `extent`.
    #[must_use]
    pub fn chunks_of(&self, extent: Extent) -> Range<usize> {
        let first = self.ends.partition_point(|&end| end <= extent.offset);
        if extent.is_empty() || first == self.ends.len() {
            return first..first;
        }
        let last = self.ends.partition_point(|&end| end < extent.end());
        first..self.ends.len().min(last + 1)
    }

    /// The chunks of zeros that it may have.
    #[must_use]
    pub(crate) fn zeros(&self) -> Zeros {
        /// An index that cuts anywhere may have more; chunks of zeros of these are fetched.
        const LENGTHS_MAX: usize = 1024;
        let last = self.chunk_count().checked_sub(1);
        let last = last.map(|last| self.spec(last).len_bytes);
        let mut lengths: BTreeSet<u32> = last.into_iter().chain([self.sizes.max_bytes]).collect();
        for number in 0..self.chunk_count() {
            if lengths.len() == LENGTHS_MAX {
                break;
            }
            lengths.insert(self.spec(number).len_bytes);
        }
        Zeros::new(self.digest, &lengths)
    }

    /// The same image with other chunks in the same places.
    ///
    /// # Panics
    /// If a number is not one of this index.
    #[must_use]
    pub fn with_ids(&self, changed: impl IntoIterator<Item = (usize, ChunkId)>) -> Self {
        let mut index = self.clone();
        for (number, id) in changed {
            index.ids[number] = id;
        }
        index
    }
}

/// The little-endian number at an offset.
fn number(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

#[cfg(test)]
mod tests;
