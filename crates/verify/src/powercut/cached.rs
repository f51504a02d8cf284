//! A disk with a cache that is lost with the power.
//!
//! What a machine writes stays in memory until it tells the disk to flush; then it goes to the
//! file. Without power the rest is gone, and the file is what another machine finds. A machine that
//! is killed loses its own memory alone: only a disk like this one shows whether a file system
//! tells the disk to flush where it must.
//!
//! Nothing is written by itself before a flush, unless the cache is full: of all that such a disk
//! may do it is the worst. States between the two are those of [`crate::crash`].

use base::limits::VERIFY_POWERCUT_CACHE_BYTES_MAX;
use base::{BlockDevice, DeviceAction, DeviceError, Extent};
use rustix::fs::{FallocateFlags, fallocate};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

const BLOCK_BYTES: u64 = 4096;
const BLOCKS_MAX: usize = (VERIFY_POWERCUT_CACHE_BYTES_MAX / BLOCK_BYTES) as usize;

/// What of it is in memory; `None` is zeros.
type Block = Option<Box<[u8]>>;

/// See the module's head.
#[derive(Debug)]
pub(super) struct CachedDisk {
    file: File,
    len_bytes: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By their numbers.
    blocks: BTreeMap<u64, Block>,
    flushes: u64,
    has_no_power: bool,
}

/// What a disk was told, and what it lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    /// How often it was told to flush.
    pub(super) flushes: u64,
    /// What it had in its cache alone.
    pub(super) bytes: u64,
}

impl CachedDisk {
    /// On this file, whose length is that of the disk: whole blocks.
    ///
    /// # Errors
    /// Of opening it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let len_bytes = file.metadata()?.len();
        Ok(Self {
            file,
            len_bytes,
            state: Mutex::default(),
        })
    }

    /// Takes its power. Whatever comes later fails and changes nothing.
    pub(super) fn lose_power(&self) -> Lost {
        let mut state = self.lock();
        state.has_no_power = true;
        let blocks = std::mem::take(&mut state.blocks);
        Lost {
            flushes: state.flushes,
            bytes: blocks.len() as u64 * BLOCK_BYTES,
        }
    }

    /// A panic within leaves a state that the next request may use: blocks are changed whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(
        &self,
        action: DeviceAction,
        extent: Extent,
    ) -> Result<MutexGuard<'_, State>, DeviceError> {
        let state = self.lock();
        match state.has_no_power {
            false => Ok(state),
            true => {
                let source = io::Error::other("the disk has no power");
                Err(failed(action, extent)(source))
            }
        }
    }

    /// Writes a block to the file.
    fn write_back(&self, number: u64, block: &Block) -> io::Result<()> {
        let offset = number * BLOCK_BYTES;
        match block {
            Some(bytes) => self.file.write_all_at(bytes, offset),
            None => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Ok(fallocate(&self.file, hole, offset, BLOCK_BYTES)?)
            }
        }
    }

    /// A block as the machine sees it.
    fn block(&self, state: &State, number: u64) -> io::Result<Box<[u8]>> {
        let mut bytes = vec![0; BLOCK_BYTES as usize].into_boxed_slice();
        match state.blocks.get(&number) {
            Some(Some(known)) => bytes.copy_from_slice(known),
            Some(None) => {}
            None => self.file.read_exact_at(&mut bytes, number * BLOCK_BYTES)?,
        }
        Ok(bytes)
    }

    /// Puts bytes, or zeros, into the cache.
    fn put(&self, state: &mut State, extent: Extent, from: Option<&[u8]>) -> io::Result<()> {
        for (number, inside, at) in parts(extent) {
            let is_whole = inside.len() == BLOCK_BYTES as usize;
            let block = match from.map(|from| &from[at..at + inside.len()]) {
                None if is_whole => None,
                Some(from) if is_whole => Some(from.into()),
                from => {
                    let mut block = self.block(state, number)?;
                    match from {
                        Some(from) => block[inside].copy_from_slice(from),
                        None => block[inside].fill(0),
                    }
                    Some(block)
                }
            };
            state.blocks.insert(number, block);
            while state.blocks.len() > BLOCKS_MAX {
                if let Some((number, block)) = state.blocks.pop_first() {
                    self.write_back(number, &block)?;
                }
            }
        }
        Ok(())
    }
}

/// The blocks of an extent: the number of each, where in it, and where in the extent.
fn parts(extent: Extent) -> impl Iterator<Item = (u64, std::ops::Range<usize>, usize)> {
    let mut offset = extent.offset;
    std::iter::from_fn(move || {
        (offset < extent.end()).then(|| {
            let number = offset / BLOCK_BYTES;
            let begin = (offset % BLOCK_BYTES) as usize;
            let len = (BLOCK_BYTES - begin as u64).min(extent.end() - offset);
            let at = (offset - extent.offset) as usize;
            offset += len;
            (number, begin..begin + len as usize, at)
        })
    })
}

fn failed(action: DeviceAction, extent: Extent) -> impl Fn(io::Error) -> DeviceError {
    move |source| DeviceError::Failed {
        action,
        extent,
        source,
    }
}

impl BlockDevice for CachedDisk {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// That of the file systems' smallest writes.
    fn block_bytes(&self) -> u32 {
        512
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let extent = self.extent_at(offset, into.len())?;
        let state = self.state(DeviceAction::Read, extent)?;
        let read = self.file.read_exact_at(into, offset);
        read.map_err(failed(DeviceAction::Read, extent))?;
        for (number, inside, at) in parts(extent) {
            let into = &mut into[at..at + inside.len()];
            match state.blocks.get(&number) {
                Some(Some(block)) => into.copy_from_slice(&block[inside]),
                Some(None) => into.fill(0),
                None => {}
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        let extent = self.extent_at(offset, from.len())?;
        let mut state = self.state(DeviceAction::Write, extent)?;
        let put = self.put(&mut state, extent, Some(from));
        put.map_err(failed(DeviceAction::Write, extent))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let extent = Extent::default();
        let mut state = self.state(DeviceAction::Flush, extent)?;
        state.flushes += 1;
        while let Some((number, block)) = state.blocks.pop_first() {
            if let Err(error) = self.write_back(number, &block) {
                state.blocks.insert(number, block);
                return Err(failed(DeviceAction::Flush, extent)(error));
            }
        }
        Ok(())
    }

    /// What is trimmed may be anything; here it becomes zeros, so that it is one thing.
    fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        self.write_zeros(extent)
    }

    fn write_zeros(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check_inside(extent)?;
        let mut state = self.state(DeviceAction::Trim, extent)?;
        let put = self.put(&mut state, extent, None);
        put.map_err(failed(DeviceAction::Trim, extent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::Random;
    use std::fs;

    const LEN: u64 = 16 * BLOCK_BYTES;

    fn file(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("cached-{name}-{}", std::process::id()));
        fs::write(&path, vec![9; LEN as usize]).unwrap();
        path
    }

    #[test]
    fn without_power_what_was_not_flushed_is_lost() {
        let path = file("lost");
        let disk = CachedDisk::open(&path).unwrap();
        disk.write_at(100, &[1; 5000]).unwrap();
        disk.flush().unwrap();
        disk.write_at(0, &[2; 512]).unwrap();
        disk.write_zeros(Extent::new(8 * BLOCK_BYTES, 2 * BLOCK_BYTES))
            .unwrap();
        let mut seen = vec![0; LEN as usize];
        disk.read_at(0, &mut seen).unwrap();
        assert_eq!(
            (seen[0], seen[511], seen[600], seen[8 * 4096]),
            (2, 2, 1, 0)
        );
        let lost = disk.lose_power();
        assert_eq!((lost.flushes, lost.bytes), (1, 3 * BLOCK_BYTES));
        assert!(disk.write_at(0, &[3; 512]).is_err() && disk.flush().is_err());
        let left = fs::read(&path).unwrap();
        assert_eq!((left[0], left[100], left[5099], left[5100]), (9, 1, 1, 9));
        assert_eq!(left[8 * 4096], 9);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_machine_sees_what_it_wrote_and_the_file_has_what_was_flushed() {
        let path = file("model");
        let disk = CachedDisk::open(&path).unwrap();
        let mut random = Random::new(7);
        let (mut seen, mut kept) = (vec![9; LEN as usize], vec![9; LEN as usize]);
        for step in 0..2000_u32 {
            let offset = random.below(LEN);
            let len = random.below((LEN - offset).min(3 * BLOCK_BYTES)) as usize;
            let at = offset as usize..offset as usize + len;
            match random.below(8) {
                0 => {
                    disk.flush().unwrap();
                    kept.clone_from(&seen);
                    assert_eq!(fs::read(&path).unwrap(), kept, "at {step}");
                }
                1 => {
                    disk.write_zeros(Extent::new(offset, len as u64)).unwrap();
                    seen[at].fill(0);
                }
                2..5 => {
                    let mut read = vec![1; len];
                    disk.read_at(offset, &mut read).unwrap();
                    assert_eq!(read, seen[at], "at {step}");
                }
                _ => {
                    let byte = step as u8;
                    disk.write_at(offset, &vec![byte; len]).unwrap();
                    seen[at].fill(byte);
                }
            }
        }
        disk.lose_power();
        assert_eq!(fs::read(&path).unwrap(), kept);
        fs::remove_file(&path).unwrap();
    }
}
