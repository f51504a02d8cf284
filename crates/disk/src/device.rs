//! An image as a block device that can be read.
//!
//! Chunks of zeros are known by their ids and never fetched. A read has all its chunks under way at
//! once, in portions that bound the memory.

use crate::chunk::{ChunkId, ChunkSpec};
use crate::fetch::Fetcher;
use crate::index::Index;
use crate::source::{FetchError, Source};
use base::limits::DISK_READ_CHUNKS_MAX;
use base::{BlockDevice, DeviceAction, DeviceError, Extent, ExtentSet};
use std::io;
use std::sync::Arc;

/// What loop devices and virtual machines address.
const SECTOR_BYTES: u32 = 512;
const BLOCK_BYTES: u32 = 4096;

/// One version of an image. Clones share everything.
#[derive(Clone, Debug)]
pub struct ImageDevice {
    index: Arc<Index>,
    source: Arc<dyn Source>,
    fetcher: Fetcher,
    /// Of the lengths that chunks usually have: a whole one, and the last.
    zeros: [(u32, ChunkId); 2],
    len_bytes: u64,
}

impl ImageDevice {
    /// The image with this index, whose chunks `source` has. An image whose length is no whole
    /// number of sectors is followed by zeros up to the next.
    #[must_use]
    pub fn new(index: Arc<Index>, source: Arc<dyn Source>, fetcher: Fetcher) -> Self {
        let whole = index.sizes().max_bytes;
        let last = index.chunk_count().checked_sub(1);
        let last = last.map_or(whole, |last| index.spec(last).len_bytes);
        let zeros = [whole, last].map(|len| (len, index.digest().id_of(&vec![0; len as usize])));
        Self {
            zeros,
            len_bytes: index.image_bytes().next_multiple_of(SECTOR_BYTES.into()),
            index,
            source,
            fetcher,
        }
    }

    /// Its index.
    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    fn is_zero(&self, spec: &ChunkSpec) -> bool {
        self.zeros.contains(&(spec.len_bytes, spec.id))
    }

    fn read(&self, extent: Extent, into: &mut [u8]) -> Result<(), FetchError> {
        into.fill(0);
        let mut numbers = self.index.chunks_of(extent);
        loop {
            let portion: Vec<_> = numbers
                .by_ref()
                .filter(|&number| !self.is_zero(&self.index.spec(number)))
                .take(DISK_READ_CHUNKS_MAX)
                .collect();
            if portion.is_empty() {
                return Ok(());
            }
            let specs: Vec<_> = portion
                .iter()
                .map(|&number| self.index.spec(number))
                .collect();
            let chunks = self.fetcher.get(&self.source, &specs)?;
            for (number, bytes) in portion.into_iter().zip(chunks) {
                let placed = self.index.chunk(number).extent;
                let both = placed.intersection(extent);
                let len = both.len as usize;
                let from = &bytes[(both.offset - placed.offset) as usize..][..len];
                into[(both.offset - extent.offset) as usize..][..len].copy_from_slice(from);
            }
        }
    }
}

impl BlockDevice for ImageDevice {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn block_bytes(&self) -> u32 {
        if self.len_bytes.is_multiple_of(BLOCK_BYTES.into()) {
            BLOCK_BYTES
        } else {
            SECTOR_BYTES
        }
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let extent = self.extent_at(offset, into.len())?;
        self.read(extent, into).map_err(|error| {
            // Bytes that were there before the error are not the answer to anything.
            into.fill(0);
            DeviceError::Failed {
                action: DeviceAction::Read,
                extent,
                source: io::Error::other(error),
            }
        })
    }

    fn write_at(&self, _offset: u64, _from: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn trim(&self, _extent: Extent) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    /// Chunks of zeros, and what follows the image up to the next sector.
    fn holes(&self, extent: Extent) -> Result<ExtentSet, DeviceError> {
        self.check_inside(extent)?;
        let mut holes = ExtentSet::new();
        for number in self.index.chunks_of(extent) {
            if self.is_zero(&self.index.spec(number)) {
                holes.insert(self.index.chunk(number).extent.intersection(extent));
            }
        }
        let behind = Extent::between(self.index.image_bytes(), self.len_bytes);
        holes.insert(behind.intersection(extent));
        Ok(holes)
    }

    fn write_zeros(&self, _extent: Extent) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }
}
