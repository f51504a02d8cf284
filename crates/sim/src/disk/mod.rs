//! A disk whose power can be cut at every point of its history.
//!
//! [`CrashDisk`] is memory, and a log of every write, trim and flush. From the log it makes crash
//! states: contents that a real disk with a volatile cache may have when power comes back. What is
//! legal follows from the contract of [`BlockDevice`]:
//!
//! * everything that was written before a successful flush is there;
//! * of what was written since, each sector of 512 bytes is as it was, or as any of the writes
//!   since made it, independent of every other sector: writes are lost, torn and reordered;
//! * after a failed flush, what was not durable before it stays in doubt: a later flush that
//!   succeeds does not make it certain, only writing it again does;
//! * a trimmed sector reads as a pattern of its own, or as before after a crash.
//!
//! ```
//! use base::BlockDevice;
//! use sim::{CrashDisk, Policy};
//!
//! let disk = CrashDisk::new(1 << 20);
//! disk.write_at(0, b"kept").expect("no fault is armed");
//! disk.flush().expect("no fault is armed");
//! let acknowledged = disk.position();
//! disk.write_at(512, b"may be lost").expect("no fault is armed");
//! for state in disk.crash_states(&Policy::new(7)).filter(|s| s.position >= acknowledged) {
//!     let mut found = [0; 4];
//!     state.disk().read_at(0, &mut found).expect("no fault is armed");
//!     assert_eq!(&found, b"kept", "{state}");
//! }
//! ```
//!
//! A state's position tells a test what must be there: all that was acknowledged while
//! [`CrashDisk::position`] was at most that. A failure's text names seed and number;
//! [`CrashStates::get`] makes that state again from the same history.
//!
//! Which states are taken from how large a stretch of history: `window.rs`. What a write changes
//! and when it is certain: `log.rs`. Contents share memory: `image.rs`; a state costs what it
//! changes. The log keeps every byte written until [`CrashDisk::restart_log`]. Errors, lies and
//! flipped bits: [`Fault`]. Mistakes of whoever uses a device, to see whether a test would notice
//! them: [`Planted`].
//!
//! Not modelled: a device that loses what it said was durable (that is [`Effect::Lies`]), and
//! damage to sectors that nobody wrote (that is [`CrashDisk::flip_bit`]).

mod cell;
mod fault;
mod image;
mod log;
mod planted;
mod states;
#[cfg(test)]
mod tests;
mod window;

pub use fault::{Effect, Failure, Fault};
pub use image::Image;
pub use planted::{Plant, Planted, Which};
pub use states::{CrashState, CrashStates, Policy};

use crate::Random;
use base::{BlockDevice, DeviceAction, DeviceError, Extent};
use cell::Turns;
use log::{Certainty, Change, Flushed, Operation, SECTOR_BYTES, TRIMMED};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

/// The unit in which it claims to work, in bytes; a disk's length is a multiple.
const BLOCK_BYTES: u32 = 4096;

/// A disk in memory with a history. Clones are the same disk: keep one, give one away.
#[derive(Clone, Debug)]
pub struct CrashDisk {
    len_bytes: u64,
    state: Arc<Turns<State>>,
}

/// How often each operation was asked for, failed ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Calls of `read_at`.
    pub reads: u64,
    /// Calls of `write_at`.
    pub writes: u64,
    /// Bytes of those writes.
    pub written_bytes: u64,
    /// Calls of `flush`.
    pub flushes: u64,
    /// Calls of `trim`.
    pub trims: u64,
}

#[derive(Debug)]
struct State {
    /// What a read sees.
    now: Image,
    /// What is certain where the log begins.
    start: Certainty,
    start_position: u64,
    operations: Vec<Operation>,
    counts: DiskCounts,
    faults: Vec<Fault>,
    /// Sectors whose bytes the medium does not give any more.
    unreadable: BTreeSet<u64>,
    is_off: bool,
}

impl CrashDisk {
    /// A disk of zeros.
    ///
    /// # Panics
    /// If the length is no multiple of 4,096.
    #[must_use]
    pub fn new(len_bytes: u64) -> Self {
        Self::from_image(Image::new(len_bytes))
    }

    /// A disk on which exactly this is durable.
    ///
    /// # Panics
    /// See [`Self::new`].
    #[must_use]
    pub fn from_image(image: Image) -> Self {
        let len_bytes = image.len_bytes();
        assert!(
            len_bytes.is_multiple_of(u64::from(BLOCK_BYTES)),
            "{len_bytes} bytes are no whole number of blocks"
        );
        let state = State {
            now: image.clone(),
            start: Certainty::new(image),
            start_position: 0,
            operations: Vec::new(),
            counts: DiskCounts::default(),
            faults: Vec::new(),
            unreadable: BTreeSet::new(),
            is_off: false,
        };
        Self {
            len_bytes,
            state: Arc::new(Turns::new(state)),
        }
    }

    /// How many writes, trims and flushes have had an effect so far.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.state.with(|state| state.position())
    }

    /// How often each operation was asked for.
    #[must_use]
    pub fn counts(&self) -> DiskCounts {
        self.state.with(|state| state.counts)
    }

    /// What reads see now.
    #[must_use]
    pub fn image(&self) -> Image {
        self.state.with(|state| state.now.clone())
    }

    /// The states that power loss may leave, from the beginning of the log to now.
    #[must_use]
    pub fn crash_states(&self, policy: &Policy) -> CrashStates {
        let (start, position, operations) = self.state.with(|state| {
            // Operations share their bytes; copying the list is cheap beside using it.
            let operations = state.operations.clone();
            (state.start.clone(), state.start_position, operations)
        });
        CrashStates::new(*policy, start, position, &operations)
    }

    /// Forgets the log: crash states begin at what may be there now. The position goes on.
    pub fn restart_log(&self) {
        self.state.with(|state| {
            for operation in std::mem::take(&mut state.operations) {
                state.start.follow(state.start_position, &operation);
                state.start_position += 1;
            }
        });
    }

    /// From now on, this goes wrong.
    pub fn arm(&self, fault: Fault) {
        self.state.with(|state| state.faults.push(fault));
    }

    /// Takes back every fault.
    pub fn disarm(&self) {
        self.state.with(|state| state.faults.clear());
    }

    /// Every later operation fails and leaves no trace, so that what runs on the disk comes to an
    /// end.
    pub fn power_off(&self) {
        self.state.with(|state| state.is_off = true);
    }

    /// Turns one bit of the medium around, wherever its sector is kept: `bit` 0 is the lowest of
    /// the byte at `offset`.
    ///
    /// # Panics
    /// If the byte is not on the disk.
    pub fn flip_bit(&self, offset: u64, bit: u8) {
        self.state.with(|state| {
            state.now.flip_bit(offset, bit);
            state.operations.push(Operation::Flip { offset, bit });
        });
    }

    /// From now on, reads that touch these sectors fail as `EIO`, as those of a medium that wears
    /// out. A sector that is written can be read again: a disk has others to put in its place.
    ///
    /// # Panics
    /// If they are not on the disk.
    pub fn make_unreadable(&self, extent: Extent) {
        assert!(self.check_inside(extent).is_ok(), "{extent} is not there");
        self.state
            .with(|state| state.unreadable.extend(sectors_around(extent)));
    }

    /// Turns a bit of `within` around and says which.
    ///
    /// # Panics
    /// If `within` is empty or not on the disk.
    pub fn flip_random_bit(&self, random: &mut Random, within: Extent) -> (u64, u8) {
        let (offset, bit) = (
            random.within(within.offset..within.end()),
            random.below(8) as u8,
        );
        self.flip_bit(offset, bit);
        (offset, bit)
    }
}

impl State {
    fn position(&self) -> u64 {
        self.start_position + self.operations.len() as u64
    }

    /// The effect on this operation; an error if it fails whole.
    fn begin(&mut self, action: DeviceAction, extent: Extent) -> Result<Next, DeviceError> {
        let failed = |source| DeviceError::Failed {
            action,
            extent,
            source,
        };
        if self.is_off {
            let off = io::Error::new(io::ErrorKind::NotConnected, "the power is off");
            return Err(failed(off));
        }
        match fault::strike(&mut self.faults, action) {
            None => Ok(Next::Goes),
            Some(Effect::Fails(failure)) => Err(failed(failure.error())),
            Some(Effect::FailsHalfway(failure, random)) => {
                Ok(Next::FailsHalfway(failed(failure.error()), random))
            }
            Some(Effect::Lies) => Ok(Next::Lies),
            Some(Effect::FlipsBit(random)) => Ok(Next::FlipsBit(random)),
        }
    }

    /// Fails if the medium does not give all of these bytes.
    fn check_readable(&self, extent: Extent) -> Result<(), DeviceError> {
        match self.unreadable.range(sectors_around(extent)).next() {
            None => Ok(()),
            Some(_) => Err(DeviceError::Failed {
                action: DeviceAction::Read,
                extent,
                source: Failure::InputOutput.error(),
            }),
        }
    }

    /// Does what is left of a write or trim, whole sectors at a time.
    fn change(&mut self, change: Change, next: Next) -> Result<(), DeviceError> {
        match next {
            Next::Lies => Ok(()),
            Next::Goes | Next::FlipsBit(_) => {
                self.apply(change);
                Ok(())
            }
            Next::FailsHalfway(error, mut random) => {
                for number in 0..change.sector_count {
                    if random.chance(0.5) {
                        let start = number as usize * SECTOR_BYTES;
                        let part = |bytes: &Arc<[u8]>| bytes[start..][..SECTOR_BYTES].into();
                        self.apply(Change {
                            first_sector: change.first_sector + number,
                            sector_count: 1,
                            bytes: change.bytes.as_ref().map(part),
                        });
                    }
                }
                Err(error)
            }
        }
    }

    fn apply(&mut self, change: Change) {
        let offset = change.first_sector * SECTOR_BYTES as u64;
        match &change.bytes {
            Some(bytes) => self.now.write_at(offset, bytes),
            None => (0..change.sector_count).for_each(|number| {
                self.now
                    .write_at(offset + number * SECTOR_BYTES as u64, &TRIMMED);
            }),
        }
        for sector in change.first_sector..change.first_sector + change.sector_count {
            self.unreadable.remove(&sector);
        }
        if change.sector_count > 0 {
            self.operations.push(Operation::Change(change));
        }
    }

    /// The whole sectors that a write changes, with what is around it.
    fn sectors_of(&self, offset: u64, from: &[u8]) -> Change {
        let sector = SECTOR_BYTES as u64;
        let first_sector = offset / sector;
        let end = (offset + from.len() as u64).div_ceil(sector);
        let sector_count = if from.is_empty() {
            0
        } else {
            end - first_sector
        };
        let bytes = if from.len() as u64 == sector_count * sector {
            from.into()
        } else {
            let mut whole = vec![0; (sector_count * sector) as usize];
            self.now.read_at(first_sector * sector, &mut whole);
            whole[(offset % sector) as usize..][..from.len()].copy_from_slice(from);
            whole.into()
        };
        Change {
            first_sector,
            sector_count,
            bytes: Some(bytes),
        }
    }
}

/// The sectors that have bytes of an extent.
fn sectors_around(extent: Extent) -> std::ops::Range<u64> {
    let sector = SECTOR_BYTES as u64;
    match extent.is_empty() {
        true => 0..0,
        false => extent.offset / sector..extent.end().div_ceil(sector),
    }
}

/// How an operation goes on.
enum Next {
    Goes,
    Lies,
    FailsHalfway(DeviceError, Random),
    FlipsBit(Random),
}

impl BlockDevice for CrashDisk {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES
    }

    fn sector_bytes(&self) -> u32 {
        SECTOR_BYTES as u32
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let extent = self.extent_at(offset, into.len())?;
        self.state.with(|state| {
            state.counts.reads += 1;
            let next = state.begin(DeviceAction::Read, extent)?;
            state.check_readable(extent)?;
            state.now.read_at(offset, into);
            match next {
                Next::FailsHalfway(error, _) => return Err(error),
                Next::FlipsBit(mut random) if !into.is_empty() => {
                    into[random.below(into.len() as u64) as usize] ^= 1 << random.below(8);
                }
                Next::Goes | Next::Lies | Next::FlipsBit(_) => {}
            }
            Ok(())
        })
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        let extent = self.extent_at(offset, from.len())?;
        self.state.with(|state| {
            state.counts.writes += 1;
            state.counts.written_bytes += extent.len;
            let next = state.begin(DeviceAction::Write, extent)?;
            let change = state.sectors_of(offset, from);
            state.change(change, next)
        })
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.state.with(|state| {
            state.counts.flushes += 1;
            let next = state.begin(DeviceAction::Flush, Extent::default());
            // A flush that the power did not reach is not a failed one: it did not happen.
            if !state.is_off {
                state.operations.push(Operation::Flush(match &next {
                    Ok(Next::Goes | Next::FlipsBit(_)) => Flushed::Durable,
                    Ok(Next::Lies) => Flushed::Lied,
                    Ok(Next::FailsHalfway(..)) | Err(_) => Flushed::Failed,
                }));
            }
            match next? {
                Next::FailsHalfway(error, _) => Err(error),
                Next::Goes | Next::Lies | Next::FlipsBit(_) => Ok(()),
            }
        })
    }

    /// Trims the whole sectors within the extent.
    fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check_inside(extent)?;
        self.state.with(|state| {
            state.counts.trims += 1;
            let next = state.begin(DeviceAction::Trim, extent)?;
            let first_sector = extent.offset.div_ceil(SECTOR_BYTES as u64);
            let end = extent.end() / SECTOR_BYTES as u64;
            let change = Change {
                first_sector,
                sector_count: end.saturating_sub(first_sector),
                bytes: None,
            };
            state.change(change, next)
        })
    }
}
