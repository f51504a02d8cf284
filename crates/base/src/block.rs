//! The one door to storage.

use crate::{Extent, ExtentSet};
use std::{fmt, io};

/// Zeros are written in pieces of this length by devices that have no better way.
const ZEROS_BYTES: u64 = 256 << 10;

/// Bytes that survive, at fixed offsets: a file, a raw device, a disk of chunks, a simulated disk.
///
/// * What was written may be lost, in any order and torn at [`Self::sector_bytes`], until a flush
///   that began after it has returned successfully.
/// * A read sees every write that returned before it, flushed or not.
/// * After a flush has failed, nothing can be said of what was written before it; the caller must
///   not call any of it durable, whatever a later flush says.
///
/// Calls block. Offsets, lengths and buffers need no alignment; what is aligned to
/// [`Self::block_bytes`] is faster where the device works in blocks.
pub trait BlockDevice: Send + Sync {
    /// Length in bytes; a multiple of [`Self::block_bytes`].
    fn len_bytes(&self) -> u64;

    /// The unit that the device reads and writes in one piece, in bytes; a power of two.
    fn block_bytes(&self) -> u32 {
        4096
    }

    /// The largest unit that a loss of power leaves either old or new, in bytes.
    fn sector_bytes(&self) -> u32 {
        512
    }

    /// Fills `into` with the bytes at `offset`.
    ///
    /// # Errors
    /// [`DeviceError::Outside`], [`DeviceError::Failed`].
    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError>;

    /// Writes `from` at `offset`.
    ///
    /// # Errors
    /// [`DeviceError::Outside`], [`DeviceError::Failed`], [`DeviceError::ReadOnly`].
    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError>;

    /// Makes durable whatever had been written when it was called.
    ///
    /// # Errors
    /// [`DeviceError::Failed`].
    fn flush(&self) -> Result<(), DeviceError>;

    /// Says that the bytes are not needed any more. They may read as anything until written again;
    /// a device that cannot use the hint ignores it.
    ///
    /// # Errors
    /// [`DeviceError::Outside`], [`DeviceError::Failed`], [`DeviceError::ReadOnly`].
    fn trim(&self, extent: Extent) -> Result<(), DeviceError>;

    /// The parts of `extent` that are zeros and take no space, as far as that is known without
    /// reading them; none by a device that does not know.
    ///
    /// # Errors
    /// [`DeviceError::Outside`], [`DeviceError::Failed`].
    fn holes(&self, extent: Extent) -> Result<ExtentSet, DeviceError> {
        self.check_inside(extent)?;
        Ok(ExtentSet::new())
    }

    /// Makes bytes zeros, as a write of zeros does; a device that can gives their space back.
    ///
    /// # Errors
    /// [`DeviceError::Outside`], [`DeviceError::Failed`], [`DeviceError::ReadOnly`].
    fn write_zeros(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check_inside(extent)?;
        let zeros = vec![0; extent.len.min(ZEROS_BYTES) as usize];
        let mut left = extent;
        while !left.is_empty() {
            let len = left.len.min(ZEROS_BYTES);
            self.write_at(left.offset, &zeros[..len as usize])?;
            left = Extent::between(left.offset + len, left.end());
        }
        Ok(())
    }

    /// The extent of `len` bytes at `offset`, if they are on the device. Unlike an [`Extent`] made
    /// first and checked then, an end beyond the address space is noticed.
    ///
    /// # Errors
    /// [`DeviceError::Outside`].
    fn extent_at(&self, offset: u64, len: usize) -> Result<Extent, DeviceError> {
        let extent = Extent::new(offset, len as u64);
        if extent.len < len as u64 {
            let len_bytes = self.len_bytes();
            return Err(DeviceError::Outside { extent, len_bytes });
        }
        self.check_inside(extent)?;
        Ok(extent)
    }

    /// [`DeviceError::Outside`] if some of these bytes are not on the device.
    ///
    /// # Errors
    /// As said.
    fn check_inside(&self, extent: Extent) -> Result<(), DeviceError> {
        let len_bytes = self.len_bytes();
        if Extent::new(0, len_bytes).covers(extent) {
            Ok(())
        } else {
            Err(DeviceError::Outside { extent, len_bytes })
        }
    }
}

/// What a device is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceAction {
    /// [`BlockDevice::read_at`]
    Read,
    /// [`BlockDevice::write_at`]
    Write,
    /// [`BlockDevice::flush`]
    Flush,
    /// [`BlockDevice::trim`]
    Trim,
}

/// Why a device did not do it.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The caller's mistake, or a record that was damaged.
    #[error("{} are not on the device, which has {len_bytes} bytes", Bytes(*extent))]
    Outside {
        /// What was asked for.
        extent: Extent,
        /// What there is.
        len_bytes: u64,
    },
    /// The device says so.
    #[error("{}", Attempt(*action, *extent))]
    Failed {
        /// What was asked for.
        action: DeviceAction,
        /// Where; empty for a flush.
        extent: Extent,
        /// The system's reason.
        source: io::Error,
    },
    /// It was opened for reading only.
    #[error("the device is open for reading only")]
    ReadOnly,
}

/// Bytes of a device, for people.
struct Bytes(Extent);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bytes {} to {}", self.0.offset, self.0.end())
    }
}

/// What has failed, for people.
struct Attempt(DeviceAction, Extent);

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(action, extent) = self;
        let doing = match action {
            DeviceAction::Read => "reading",
            DeviceAction::Write => "writing",
            DeviceAction::Flush => return f.write_str("the device could not be flushed"),
            DeviceAction::Trim => "discarding",
        };
        write!(f, "{doing} {} of the device failed", Bytes(*extent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Knows nothing but how to read and write.
    struct Plain(Mutex<Vec<u8>>);

    impl BlockDevice for Plain {
        fn len_bytes(&self) -> u64 {
            self.0.lock().unwrap().len() as u64
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
            into.copy_from_slice(&self.0.lock().unwrap()[offset as usize..][..into.len()]);
            Ok(())
        }

        fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
            self.0.lock().unwrap()[offset as usize..][..from.len()].copy_from_slice(from);
            Ok(())
        }

        fn flush(&self) -> Result<(), DeviceError> {
            Ok(())
        }

        fn trim(&self, _: Extent) -> Result<(), DeviceError> {
            Ok(())
        }
    }

    #[test]
    fn a_device_that_knows_no_holes_writes_zeros() {
        let len = 2 * ZEROS_BYTES as usize + 9;
        let device = Plain(Mutex::new(vec![7; len]));
        let zeros = Extent::between(3, len as u64 - 1);
        device.write_zeros(zeros).unwrap();
        let bytes = device.0.lock().unwrap().clone();
        let kept = bytes.iter().filter(|byte| **byte == 7).count();
        assert_eq!((kept, bytes[2], bytes[3], bytes[len - 1]), (4, 7, 0, 7));
        assert!(device.holes(zeros).unwrap().is_empty());
        let outside = Extent::new(len as u64, 1);
        assert!(device.holes(outside).is_err() && device.write_zeros(outside).is_err());
        device.write_zeros(Extent::new(len as u64, 0)).unwrap();
    }

    #[test]
    fn errors_are_written_for_people() {
        let extent = Extent::new(4096, 512);
        let len_bytes = 0;
        let outside = DeviceError::Outside { extent, len_bytes };
        let said = "bytes 4096 to 4608 are not on the device, which has 0 bytes";
        assert_eq!(outside.to_string(), said);
        let failed = |action| {
            let source = io::ErrorKind::Other.into();
            let failed = DeviceError::Failed {
                action,
                extent,
                source,
            };
            failed.to_string()
        };
        let said = "writing bytes 4096 to 4608 of the device failed";
        assert_eq!(failed(DeviceAction::Write), said);
        assert_eq!(
            failed(DeviceAction::Flush),
            "the device could not be flushed"
        );
    }
}
