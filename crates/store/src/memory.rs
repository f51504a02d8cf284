//! A device in memory, for tests of this crate and for fuzzing.

use base::{BlockDevice, DeviceError, Extent};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes in memory, all of them durable at once.
#[derive(Debug)]
pub(crate) struct MemoryDevice(Mutex<Vec<u8>>);

impl MemoryDevice {
    pub(crate) fn new(len: usize) -> Self {
        Self(Mutex::new(vec![0xA5; len]))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Flips one bit.
    #[cfg(test)]
    pub(crate) fn flip(&self, bit: u64) {
        self.lock()[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

impl BlockDevice for MemoryDevice {
    fn len_bytes(&self) -> u64 {
        self.lock().len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.check_inside(Extent::new(offset, into.len() as u64))?;
        into.copy_from_slice(&self.lock()[offset as usize..][..into.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.check_inside(Extent::new(offset, from.len() as u64))?;
        self.lock()[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check_inside(extent)
    }
}
