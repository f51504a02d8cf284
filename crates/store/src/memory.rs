//! A device in memory, for tests of this crate.

use base::{BlockDevice, DeviceError, Extent};
use std::sync::Mutex;

/// Bytes in memory, all of them durable at once.
#[derive(Debug)]
pub(crate) struct MemoryDevice(Mutex<Vec<u8>>);

impl MemoryDevice {
    pub(crate) fn new(len: usize) -> Self {
        Self(Mutex::new(vec![0xA5; len]))
    }

    /// Flips one bit.
    pub(crate) fn flip(&self, bit: u64) {
        self.0.lock().unwrap()[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

impl BlockDevice for MemoryDevice {
    fn len_bytes(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.check_inside(Extent::new(offset, into.len() as u64))?;
        into.copy_from_slice(&self.0.lock().unwrap()[offset as usize..][..into.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.check_inside(Extent::new(offset, from.len() as u64))?;
        self.0.lock().unwrap()[offset as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check_inside(extent)
    }
}
