//! What was written onto an image: a block device over a base that never changes.
//!
//! ```text
//! head      which image, which version of it           4 KiB
//! map       the state of each block of 4 KiB           sectors of 512 bytes
//! data      the blocks that were written               each at its own place
//! ```
//!
//! A block is the base's, written, or zero (trimmed). Blocks are written in place, so what a loss
//! of power does to an unflushed write here is what it does to one on the device below: lost or
//! torn by sectors. Only a block's *first* write needs care: its state must not become durable
//! before its bytes, or the block would be neither old nor new. So a flush first flushes the data,
//! then writes the sectors of the map whose blocks were written until then, and flushes these. A
//! sector of the map is replaced at once or not at all, and every state of it that was ever written
//! speaks of durable blocks; there is no log to replay.
//!
//! A write of a part of a block that is still the base's fills the rest from there. The base may be
//! far away: it is read before the lock is taken, which is right because it does not change.
//!
//! After a failed flush the overlay is poisoned: reads go on, writes and flushes are refused.
//!
//! Drawn in `docs/formats/disk.md`. Blocks have no checksums: the file is as good as the disk that
//! it is on, until it is committed.

mod file;
mod head;
mod map;
#[cfg(test)]
mod tests;

pub use file::{create, create_unless_there, is_over, open};

use crate::error::DiskError;
use crate::manifest::VersionId;
use base::{BlockDevice, DeviceAction, DeviceError, Extent, ExtentSet};
use head::{Head, Layout};
use map::{BlockState, Map};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

/// The unit that is the base's or not.
const BLOCK_BYTES: u32 = 4096;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// A block device over a base.
pub struct Overlay {
    base: Arc<dyn BlockDevice>,
    backing: Arc<dyn BlockDevice>,
    layout: Layout,
    version: VersionId,
    map: Mutex<Map>,
    /// Shared by those who write blocks that are there or whole; alone who fills or trims.
    changes: RwLock<()>,
    /// One flush at a time.
    flushes: Mutex<()>,
    is_poisoned: AtomicBool,
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Overlay(over {})", self.version)
    }
}

/// Nobody writes while it is there.
#[derive(Debug)]
pub struct Frozen<'a> {
    _alone: RwLockWriteGuard<'a, ()>,
}

/// Bytes that a device must have to be the overlay of an image of so many.
#[must_use]
pub fn backing_bytes(image_bytes: u64) -> u64 {
    Layout::of(image_bytes).backing_bytes()
}

/// Makes an empty overlay over a version of an image. The device has zeros where the map will be.
///
/// # Errors
/// [`DeviceError`].
pub fn format(
    backing: &dyn BlockDevice,
    image_bytes: u64,
    version: VersionId,
) -> Result<(), DeviceError> {
    let head = Head {
        image_bytes,
        version,
    };
    backing.write_at(0, &head.to_bytes())?;
    backing.flush()
}

impl Overlay {
    /// Opens the overlay on `backing`, over `base`, which is the version that it was made for.
    ///
    /// # Errors
    /// [`DiskError::Damaged`], also if it was made for something else.
    pub fn on(
        backing: Arc<dyn BlockDevice>,
        base: Arc<dyn BlockDevice>,
        version: VersionId,
    ) -> Result<Self, DiskError> {
        let head = Head::read(&*backing)?;
        head.check_fits(base.len_bytes(), version)?;
        let layout = Layout::of(head.image_bytes);
        let map = Map::read(&*backing, &layout)?;
        Ok(Self {
            base,
            backing,
            layout,
            version,
            map: Mutex::new(map),
            changes: RwLock::default(),
            flushes: Mutex::default(),
            is_poisoned: AtomicBool::new(false),
        })
    }

    /// Over which version it is.
    #[must_use]
    pub fn version(&self) -> VersionId {
        self.version
    }

    /// Whether a flush has failed.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.is_poisoned.load(Ordering::Acquire)
    }

    /// What is not the base's, in whole blocks.
    #[must_use]
    pub fn changed(&self) -> ExtentSet {
        let image = Extent::new(0, self.layout.image_bytes);
        let mut changed = ExtentSet::new();
        for block in locked(&self.map).changed() {
            changed.insert(Extent::new(block * BLOCK, BLOCK).intersection(image));
        }
        changed
    }

    /// Waits until nobody writes, and keeps it so.
    pub fn freeze(&self) -> Frozen<'_> {
        let alone = self.changes.write();
        Frozen {
            _alone: alone.unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn state(&self, block: u64) -> BlockState {
        locked(&self.map).state(block)
    }

    fn check_writable(&self, action: DeviceAction, extent: Extent) -> Result<(), DeviceError> {
        if !self.is_poisoned() {
            return Ok(());
        }
        Err(DeviceError::Failed {
            action,
            extent,
            source: io::Error::other("an earlier flush has failed"),
        })
    }

    /// Runs of blocks in one state that have bytes of `extent`, each cut to it.
    fn runs(&self, extent: Extent) -> Vec<(Extent, BlockState)> {
        let map = locked(&self.map);
        let mut runs: Vec<(Extent, BlockState)> = Vec::new();
        for block in blocks_of(extent) {
            let state = map.state(block);
            match runs.last_mut() {
                Some((run, same)) if *same == state => run.len += BLOCK,
                _ => runs.push((Extent::new(block * BLOCK, BLOCK), state)),
            }
        }
        for (run, _) in &mut runs {
            *run = run.intersection(extent);
        }
        runs
    }

    /// The first and the last block of `extent`, where it has only a part of them.
    fn edges(&self, extent: Extent) -> Vec<u64> {
        let blocks = blocks_of(extent);
        let image = Extent::new(0, self.layout.image_bytes);
        let mut edges = vec![blocks.start, blocks.end - 1];
        edges.dedup();
        edges.retain(|block| !extent.covers(Extent::new(block * BLOCK, BLOCK).intersection(image)));
        edges
    }

    /// The bytes that a block has now. Those behind the end of the image are zeros.
    fn block(&self, block: u64, state: BlockState) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = vec![0; BLOCK as usize];
        let start = block * BLOCK;
        let len = BLOCK.min(self.layout.image_bytes - start) as usize;
        match state {
            BlockState::Base => self.base.read_at(start, &mut bytes[..len])?,
            BlockState::Written => {
                let offset = self.layout.data_offset + start;
                self.backing.read_at(offset, &mut bytes[..len])?;
            }
            BlockState::Zero => {}
        }
        Ok(bytes)
    }

    /// Writes where every block that is only partly written has its bytes here already. False if
    /// that is not so any more.
    fn write_in_place(&self, extent: Extent, from: &[u8]) -> Result<bool, DeviceError> {
        let _shared = self.changes.read().unwrap_or_else(PoisonError::into_inner);
        let edges = self.edges(extent);
        let are_here = |&block: &u64| self.state(block) == BlockState::Written;
        if !edges.iter().all(are_here) {
            return Ok(false);
        }
        self.backing
            .write_at(self.layout.data_offset + extent.offset, from)?;
        locked(&self.map).set(blocks_of(extent), BlockState::Written);
        Ok(true)
    }

    /// Writes whole blocks, those at the edges filled up. `fills` has what the base has there.
    fn write_filled(
        &self,
        extent: Extent,
        from: &[u8],
        fills: &[(u64, Vec<u8>)],
    ) -> Result<(), DeviceError> {
        let _alone = self.freeze();
        let blocks = blocks_of(extent);
        let whole = Extent::between(blocks.start * BLOCK, blocks.end * BLOCK);
        let mut bytes = vec![0; whole.len as usize];
        for edge in self.edges(extent) {
            let at = (edge * BLOCK - whole.offset) as usize;
            let fill = fills.iter().find(|(block, _)| *block == edge);
            let current = match (self.state(edge), fill) {
                (BlockState::Base, Some((_, fill))) => fill.clone(),
                (state, _) => self.block(edge, state)?,
            };
            bytes[at..at + BLOCK as usize].copy_from_slice(&current);
        }
        bytes[(extent.offset - whole.offset) as usize..][..from.len()].copy_from_slice(from);
        self.backing
            .write_at(self.layout.data_offset + whole.offset, &bytes)?;
        locked(&self.map).set(blocks, BlockState::Written);
        Ok(())
    }

    fn flush_now(&self) -> Result<(), DeviceError> {
        // Blocks whose state is in here have been written; blocks written from now on are not.
        let sectors = locked(&self.map).take_dirty();
        self.backing.flush()?;
        if sectors.is_empty() {
            return Ok(());
        }
        for (number, bytes) in sectors {
            let offset = self.layout.map_offset + u64::from(number) * map::SECTOR_BYTES as u64;
            self.backing.write_at(offset, &bytes)?;
        }
        self.backing.flush()
    }
}

/// The numbers of the blocks that have bytes of an extent that is not empty.
fn blocks_of(extent: Extent) -> std::ops::Range<u64> {
    extent.offset / BLOCK..extent.end().div_ceil(BLOCK)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BlockDevice for Overlay {
    fn len_bytes(&self) -> u64 {
        self.layout.image_bytes
    }

    fn block_bytes(&self) -> u32 {
        self.base.block_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.backing.sector_bytes()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let extent = self.extent_at(offset, into.len())?;
        if extent.is_empty() {
            return Ok(());
        }
        for (run, state) in self.runs(extent) {
            let into = &mut into[(run.offset - offset) as usize..][..run.len as usize];
            match state {
                BlockState::Base => self.base.read_at(run.offset, into)?,
                BlockState::Written => {
                    self.backing
                        .read_at(self.layout.data_offset + run.offset, into)?;
                }
                BlockState::Zero => into.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        let extent = self.extent_at(offset, from.len())?;
        self.check_writable(DeviceAction::Write, extent)?;
        if extent.is_empty() {
            return Ok(());
        }
        loop {
            let mut fills = Vec::new();
            let mut must_fill = false;
            for edge in self.edges(extent) {
                let state = self.state(edge);
                must_fill |= state != BlockState::Written;
                if state == BlockState::Base {
                    fills.push((edge, self.block(edge, state)?));
                }
            }
            if must_fill {
                return self.write_filled(extent, from, &fills);
            }
            if self.write_in_place(extent, from)? {
                return Ok(());
            }
            // It was trimmed meanwhile.
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let _turn = locked(&self.flushes);
        self.check_writable(DeviceAction::Flush, Extent::default())?;
        let flushed = self.flush_now();
        if flushed.is_err() {
            self.is_poisoned.store(true, Ordering::Release);
        }
        flushed
    }

    /// Whole blocks become zero and give back their space; others stay.
    fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check_inside(extent)?;
        self.check_writable(DeviceAction::Trim, extent)?;
        let end = if extent.end() == self.layout.image_bytes {
            extent.end().div_ceil(BLOCK)
        } else {
            extent.end() / BLOCK
        };
        let blocks = extent.offset.div_ceil(BLOCK)..end;
        if blocks.is_empty() {
            return Ok(());
        }
        let _alone = self.freeze();
        let whole = Extent::between(blocks.start * BLOCK, blocks.end * BLOCK);
        let written: Vec<_> = self
            .runs(whole)
            .into_iter()
            .filter(|(_, state)| *state == BlockState::Written)
            .collect();
        locked(&self.map).set(blocks, BlockState::Zero);
        for (run, _) in written {
            self.backing
                .trim(Extent::new(self.layout.data_offset + run.offset, run.len))?;
        }
        Ok(())
    }

    fn holes(&self, extent: Extent) -> Result<ExtentSet, DeviceError> {
        self.check_inside(extent)?;
        let mut holes = ExtentSet::new();
        if extent.is_empty() {
            return Ok(holes);
        }
        for (run, state) in self.runs(extent) {
            match state {
                BlockState::Base => {
                    for hole in self.base.holes(run)?.iter() {
                        holes.insert(hole);
                    }
                }
                BlockState::Written => {}
                BlockState::Zero => holes.insert(run),
            }
        }
        Ok(holes)
    }

    /// Whole blocks as by a trim, which makes them zeros here; the edges are written.
    fn write_zeros(&self, extent: Extent) -> Result<(), DeviceError> {
        self.trim(extent)?;
        if extent.is_empty() {
            return Ok(());
        }
        for edge in self.edges(extent) {
            let part = Extent::new(edge * BLOCK, BLOCK).intersection(extent);
            self.write_at(part.offset, &vec![0; part.len as usize])?;
        }
        Ok(())
    }
}
