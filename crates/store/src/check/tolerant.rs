//! A device some of whose bytes cannot be read, for who wants to know about all the others.
//!
//! Where the medium gives no bytes, a pattern is read that fits no checksum: so what lies there is
//! damaged like anything else that is not what was written, and whoever reads it knows already what
//! to do. Which bytes these are is kept in mind. A device of which too much cannot be read is not
//! there at all, or about to go: that stays an error, and nothing is repaired on it.

use super::{Finding, Kind, Mend};
use crate::layout::Layout;
use base::{BlockDevice, DeviceAction, DeviceError, Extent, ExtentSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is read again on its own: no disk gives less that is worth anything.
const PART_BYTES: u64 = 4096;
/// How often such a part is read before it counts as unreadable.
const TRIES: u32 = 2;
/// Bytes that may be unreadable: 4,096 parts, each of which a disk tries for seconds.
const UNREADABLE_BYTES_MAX: u64 = 16 << 20;
/// What is read instead.
const FILL: u8 = 0xB7;

/// A device some of whose bytes cannot be read.
pub(crate) struct Tolerant {
    device: Arc<dyn BlockDevice>,
    unreadable: Mutex<ExtentSet>,
}

/// Whether it is the medium that does not give the bytes, and not the way there.
pub(crate) fn is_unreadable(error: &DeviceError) -> bool {
    // EIO, ENODATA, EILSEQ, EREMOTEIO: what Linux makes of a medium's errors.
    const MEDIUM: [i32; 4] = [5, 61, 84, 121];
    matches!(error, DeviceError::Failed { action: DeviceAction::Read, source, .. }
        if source.raw_os_error().is_some_and(|errno| MEDIUM.contains(&errno)))
}

impl Tolerant {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self {
            device,
            unreadable: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ExtentSet> {
        self.unreadable
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether some of these bytes could not be read.
    #[cfg(test)]
    fn lacks(&self, extent: Extent) -> bool {
        self.lock().iter().any(|other| other.overlaps(extent))
    }

    /// Reads or fails.
    pub(crate) fn read_strictly(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read_at(offset, into)
    }

    /// A finding for each run of bytes that could not be read. Superblocks and log are written
    /// anew by a repair; whether a disk has another place for them shows then.
    pub(crate) fn findings(&self, layout: &Layout) -> Vec<Finding> {
        self.find(|extent| match extent.end() <= layout.record_offset() {
            true => Mend::Possible,
            false => Mend::Impossible,
        })
    }

    /// The same after a repair: what can be read by now was written anew.
    pub(crate) fn findings_now(&self) -> Vec<Finding> {
        self.find(|extent| {
            let mut bytes = vec![0; extent.len as usize];
            match self.device.read_at(extent.offset, &mut bytes) {
                Ok(()) => Mend::Done,
                Err(_) => Mend::Impossible,
            }
        })
    }

    fn find(&self, mend: impl Fn(Extent) -> Mend) -> Vec<Finding> {
        let unreadable: Vec<Extent> = self.lock().iter().collect();
        let finding = |extent: Extent| {
            let (from, to) = (extent.offset, extent.end());
            let what = format!("the device does not give its bytes {from} to {to}");
            Finding::new(Kind::Device, mend(extent), what)
        };
        unreadable.into_iter().map(finding).collect()
    }

    /// Reads as much as there is of what could not be read at once.
    fn read_parts(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let all = Extent::new(offset, into.len() as u64);
        let mut at = offset;
        while at < all.end() {
            let end = (at - at % PART_BYTES + PART_BYTES).min(all.end());
            let part = &mut into[(at - offset) as usize..(end - offset) as usize];
            let mut read = self.device.read_at(at, part);
            for _ in 1..TRIES {
                if read.as_ref().is_err_and(is_unreadable) {
                    read = self.device.read_at(at, part);
                }
            }
            match read {
                Err(error) if is_unreadable(&error) => {
                    self.note(Extent::between(at, end), error)?;
                    part.fill(FILL);
                }
                other => other?,
            }
            at = end;
        }
        Ok(())
    }

    fn note(&self, extent: Extent, error: DeviceError) -> Result<(), DeviceError> {
        let mut unreadable = self.lock();
        unreadable.insert(extent);
        match unreadable.bytes() > UNREADABLE_BYTES_MAX {
            true => Err(error),
            false => Ok(()),
        }
    }
}

impl BlockDevice for Tolerant {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.device.block_bytes()
    }

    fn sector_bytes(&self) -> u32 {
        self.device.sector_bytes()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        match self.device.read_at(offset, into) {
            Err(error) if is_unreadable(&error) => self.read_parts(offset, into),
            read => read,
        }
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.device.write_at(offset, from)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        self.device.trim(extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::sector;
    use sim::{CrashDisk, Effect, Failure, Fault};

    #[test]
    fn what_is_beside_a_bad_sector_is_read_and_the_sector_fits_nothing() {
        let disk = CrashDisk::new(1 << 20);
        disk.write_at(0, &[1; 1 << 20]).unwrap();
        disk.make_unreadable(Extent::new(9_000, 10));
        disk.make_unreadable(Extent::new(40_000, 3_000));
        let tolerant = Tolerant::new(Arc::new(disk.clone()));
        let mut bytes = vec![0; 100_000];
        tolerant.read_at(100, &mut bytes).unwrap();
        let bad = [
            Extent::between(8192, 12_288),
            Extent::between(36_864, 45_056),
        ];
        for (at, byte) in (100..).zip(&bytes) {
            let is_bad = bad.iter().any(|extent| extent.contains(at));
            assert_eq!(*byte, if is_bad { FILL } else { 1 }, "byte {at}");
            assert_eq!(tolerant.lacks(Extent::new(at, 1)), is_bad);
        }
        let mut nothing = vec![FILL; sector::SECTOR_BYTES];
        assert!(sector::decode(&mut nothing, 0).is_err());
    }

    #[test]
    fn a_device_that_is_gone_is_an_error() {
        let disk = CrashDisk::new(32 << 20);
        disk.arm(Fault::from(
            DeviceAction::Read,
            0,
            Effect::Fails(Failure::InputOutput),
        ));
        let tolerant = Tolerant::new(Arc::new(disk.clone()));
        let mut bytes = vec![0; 17 << 20];
        let read = tolerant.read_at(0, &mut bytes);
        assert!(matches!(read, Err(DeviceError::Failed { .. })));
        disk.power_off();
        let read = Tolerant::new(Arc::new(disk)).read_at(0, &mut bytes[..512]);
        assert!(matches!(read, Err(DeviceError::Failed { .. })));
    }
}
