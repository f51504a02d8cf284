//! Mistakes on purpose, between a device and what runs on it.
//!
//! A test that finds nothing may be blind. [`Planted`] commits one mistake that a programmer could
//! have made above it; a test that deserves its name fails then. What is swapped or left out stays
//! invisible as long as power lasts: reads see every write in its order.

use super::cell::Turns;
use base::{BlockDevice, DeviceError, Extent};

/// A device with a mistake above it.
#[derive(Debug)]
pub struct Planted<D: BlockDevice> {
    inner: D,
    plant: Plant,
    state: Turns<Held>,
}

/// The mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    /// A flush is left out.
    SkipFlush(Which),
    /// A write goes to the device only after the next write, past any flush between them. If they
    /// overlap, they are not swapped.
    SwapWrites(Which),
    /// A write never gets to the device. The only mistake that reads can see.
    LoseWrite(Which),
}

/// Which flushes or writes, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// This one.
    Nth(u64),
    /// Numbers 0, n, 2n, ...; `Every(1)` is all. Not 0.
    Every(u64),
}

impl Which {
    fn is(self, number: u64) -> bool {
        match self {
            Self::Nth(nth) => number == nth,
            Self::Every(n) => number.is_multiple_of(n),
        }
    }
}

/// How far it has counted, and the write that waits to be overtaken.
#[derive(Debug, Default)]
struct Held {
    writes: u64,
    flushes: u64,
    mistakes: u64,
    write: Option<(u64, Vec<u8>)>,
}

impl Held {
    fn overlaps(&self, extent: Extent) -> bool {
        let held = self.write.as_ref();
        held.is_some_and(|(offset, bytes)| {
            Extent::new(*offset, bytes.len() as u64).overlaps(extent)
        })
    }

    fn release(&mut self, device: &impl BlockDevice) -> Result<(), DeviceError> {
        let Some((offset, bytes)) = self.write.take() else {
            return Ok(());
        };
        device.write_at(offset, &bytes)
    }
}

impl<D: BlockDevice> Planted<D> {
    /// Plants one mistake above `inner`.
    #[must_use]
    pub fn new(inner: D, plant: Plant) -> Self {
        Self {
            inner,
            plant,
            state: Turns::new(Held::default()),
        }
    }

    /// How often the mistake has been made: a test in which it never was has shown nothing.
    #[must_use]
    pub fn mistakes(&self) -> u64 {
        self.state.with(|held| held.mistakes)
    }
}

impl<D: BlockDevice> BlockDevice for Planted<D> {
    fn len_bytes(&self) -> u64 {
        self.inner.len_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.inner.sector_bytes()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let extent = self.extent_at(offset, into.len())?;
        self.state.with(|held| {
            self.inner.read_at(offset, into)?;
            if let Some((start, bytes)) = held.write.as_ref().filter(|_| held.overlaps(extent)) {
                let both = Extent::new(*start, bytes.len() as u64).intersection(extent);
                let len = both.len as usize;
                into[(both.offset - offset) as usize..][..len]
                    .copy_from_slice(&bytes[(both.offset - start) as usize..][..len]);
            }
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        let extent = self.extent_at(offset, from.len())?;
        // The turn lasts over both writes: a read between them would see that they are swapped.
        self.state.with(|held| {
            let number = held.writes;
            held.writes += 1;
            match self.plant {
                Plant::LoseWrite(which) if which.is(number) => {
                    held.mistakes += 1;
                    Ok(())
                }
                Plant::SwapWrites(_) if held.write.is_some() => {
                    if held.overlaps(extent) {
                        held.release(&self.inner)?;
                        self.inner.write_at(offset, from)
                    } else {
                        held.mistakes += 1;
                        self.inner.write_at(offset, from)?;
                        held.release(&self.inner)
                    }
                }
                Plant::SwapWrites(which) if which.is(number) => {
                    held.write = Some((offset, from.to_vec()));
                    Ok(())
                }
                _ => self.inner.write_at(offset, from),
            }
        })
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let skip = self.state.with(|held| {
            let skip = matches!(self.plant, Plant::SkipFlush(which) if which.is(held.flushes));
            held.flushes += 1;
            held.mistakes += u64::from(skip);
            skip
        });
        if skip { Ok(()) } else { self.inner.flush() }
    }

    fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check_inside(extent)?;
        self.state.with(|held| {
            if held.overlaps(extent) {
                held.release(&self.inner)?;
            }
            self.inner.trim(extent)
        })
    }
}

impl<D: BlockDevice> Drop for Planted<D> {
    /// What nothing came to overtake is written after all.
    fn drop(&mut self) {
        let left = self.state.with(|held| held.release(&self.inner));
        // A device that fails now has failed for everything else, too: the test sees it there.
        drop(left);
    }
}
