//! An image as a block device that can be read.
//!
//! Chunks of zeros are known by their ids and never fetched. A read has all its chunks under way at
//! once, in portions that bound the memory. What will be read next may be fetched meanwhile
//! ([`crate::ahead`]); what was read is noted ([`crate::observe`]).

mod uncut;

use crate::ahead::{Ahead, AheadCounts, Foresight};
use crate::chunk::{ChunkSpec, Zeros};
use crate::fetch::Fetcher;
use crate::index::Index;
use crate::manifest::Manifest;
use crate::observe::{ChunkUse, Observer, Use};
use crate::profile::Trace;
use crate::source::{FetchError, Source};
use base::limits::DISK_READ_CHUNKS_MAX;
use base::{BlockDevice, DeviceAction, DeviceError, Extent, ExtentSet};
use bytes::Bytes;
use std::io;
use std::slice;
use std::sync::Arc;
use uncut::Uncut;

/// What loop devices and virtual machines address.
const SECTOR_BYTES: u32 = 512;
const BLOCK_BYTES: u32 = 4096;

/// One version of an image. Clones share everything.
#[derive(Clone, Debug)]
pub struct ImageDevice {
    index: Arc<Index>,
    source: Arc<dyn Source>,
    fetcher: Fetcher,
    zeros: Zeros,
    observer: Arc<Observer>,
    ahead: Option<Arc<Ahead>>,
    uncut: Option<Arc<Uncut>>,
    len_bytes: u64,
}

impl ImageDevice {
    /// The image with this index, whose chunks `source` has. An image whose length is no whole
    /// number of sectors is followed by zeros up to the next.
    #[must_use]
    pub fn new(index: Arc<Index>, source: Arc<dyn Source>, fetcher: Fetcher) -> Self {
        Self {
            zeros: index.zeros(),
            observer: Arc::new(Observer::new(&index)),
            ahead: None,
            uncut: None,
            len_bytes: index.image_bytes().next_multiple_of(SECTOR_BYTES.into()),
            index,
            source,
            fetcher,
        }
    }

    /// The same, of a version with this manifest, if its index was cut since: a chunk of it that is
    /// gone is put together from those that the version itself has.
    #[must_use]
    pub fn cut_from(mut self, manifest: Option<Manifest>) -> Self {
        self.uncut = manifest.map(|manifest| Arc::new(Uncut::new(manifest)));
        self
    }

    /// The same, fetched ahead of what is read. It begins at once.
    #[must_use]
    pub fn foreseen(mut self, foresight: Foresight) -> Self {
        let (source, fetcher) = (&self.source, &self.fetcher);
        let observer = &self.observer;
        let ahead = Ahead::new(
            &self.index,
            &self.zeros,
            source,
            fetcher,
            observer,
            foresight,
        );
        self.ahead = Some(ahead);
        self
    }

    /// Follows a profile from now on, because somebody is about to do that for which it was
    /// recorded. False if there is none of this name.
    #[must_use]
    pub fn follow(&self, profile: &str) -> bool {
        self.ahead
            .as_ref()
            .is_some_and(|ahead| ahead.follow(profile))
    }

    /// How it was used so far.
    #[must_use]
    pub fn uses(&self) -> Use {
        self.observer.uses(&self.index)
    }

    /// How each of its chunks was used so far: the paper's figure 5.
    #[must_use]
    pub fn map(&self) -> Vec<ChunkUse> {
        self.observer.map(&self.index)
    }

    /// What fetching ahead has come to so far.
    #[must_use]
    pub fn ahead_counts(&self) -> AheadCounts {
        self.ahead
            .as_ref()
            .map(|ahead| ahead.counts())
            .unwrap_or_default()
    }

    /// What was read first, in order, since the beginning or since [`Self::restart_trace`].
    #[must_use]
    pub fn trace(&self) -> Trace {
        self.observer.trace()
    }

    /// Ends the trace and begins another one, for instance after a boot and before a program is
    /// run. What was read before counts as read again.
    pub fn restart_trace(&self) -> Trace {
        self.observer.restart_trace()
    }

    /// Its index.
    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    fn is_zero(&self, spec: &ChunkSpec) -> bool {
        self.zeros.has(spec)
    }

    fn read(&self, extent: Extent, into: &mut [u8]) -> Result<(), FetchError> {
        into.fill(0);
        self.observer.on_read(extent);
        let mut numbers = self.index.chunks_of(extent);
        loop {
            let portion: Vec<_> = numbers
                .by_ref()
                .filter(|&number| !self.is_zero(&self.index.spec(number)))
                .take(DISK_READ_CHUNKS_MAX)
                .collect();
            let Some((first, last)) = portion.first().zip(portion.last()) else {
                return Ok(());
            };
            let start = self.index.chunk(*first).extent.offset;
            let end = self.index.chunk(*last).extent.end();
            let part = Extent::between(start, end).intersection(extent);
            let chunks = self.get(part, &portion)?;
            for (number, bytes) in portion.into_iter().zip(chunks) {
                let placed = self.index.chunk(number).extent;
                let both = placed.intersection(extent);
                let len = both.len as usize;
                let from = &bytes[(both.offset - placed.offset) as usize..][..len];
                into[(both.offset - extent.offset) as usize..][..len].copy_from_slice(from);
            }
        }
    }

    /// Gets chunks for a read: asks for them, then for what may be needed next, and then waits.
    fn get(&self, extent: Extent, numbers: &[usize]) -> Result<Vec<Bytes>, FetchError> {
        let specs: Vec<_> = numbers.iter().map(|&at| self.index.spec(at)).collect();
        let asked = self.fetcher.ask(&self.source, &specs);
        let must_wait = asked.must_wait();
        self.observer.on_inflated(numbers.iter().copied());
        let ahead = self.ahead.as_ref();
        let noted = ahead.map(|ahead| ahead.on_read(extent, numbers, must_wait));
        let waiting = must_wait.then(|| self.observer.wait());
        let chunks = self.fetcher.wait(&self.source, &specs, asked);
        let chunks = match chunks {
            Err(error) if is_gone(&error) && self.uncut.is_some() => self.get_each(numbers),
            chunks => chunks,
        };
        drop(waiting);
        if let Some((ahead, noted)) = ahead.zip(noted) {
            ahead.on_answered(extent, noted);
        }
        chunks
    }

    /// Gets chunks of which some are gone, one by one.
    fn get_each(&self, numbers: &[usize]) -> Result<Vec<Bytes>, FetchError> {
        let (source, fetcher) = (&self.source, &self.fetcher);
        let mut chunks = Vec::with_capacity(numbers.len());
        for &number in numbers {
            let (spec, extent) = (self.index.spec(number), self.index.chunk(number).extent);
            match fetcher.get(source, slice::from_ref(&spec)) {
                Err(error) if is_gone(&error) => {
                    let known = (&spec, self.index.digest());
                    let uncut = self.uncut.as_ref();
                    let chunk = uncut.and_then(|uncut| uncut.chunk(fetcher, source, extent, known));
                    chunks.push(chunk.ok_or(error)?);
                }
                got => chunks.extend(got?),
            }
        }
        Ok(chunks)
    }
}

fn is_gone(error: &FetchError) -> bool {
    matches!(error, FetchError::Source(error) if error.refusal.is_not_found())
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
