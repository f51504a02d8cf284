//! A device some pages of which are read as they will be when they are mended.

use crate::layout::PAGE_BYTES;
use base::{BlockDevice, DeviceError, Extent};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The device, and the mended pages by their offsets. Nothing is written through it.
pub(super) struct Patched {
    device: Arc<dyn BlockDevice>,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Patched {
    pub(super) fn new(device: Arc<dyn BlockDevice>, pages: BTreeMap<u64, Vec<u8>>) -> Self {
        Self { device, pages }
    }
}

impl BlockDevice for Patched {
    fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    fn block_bytes(&self) -> u32 {
        self.device.block_bytes()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read_at(offset, into)?;
        let read = Extent::new(offset, into.len() as u64);
        let first = offset.saturating_sub(PAGE_BYTES);
        for (at, page) in self.pages.range(first..read.end()) {
            let part = read.intersection(Extent::new(*at, PAGE_BYTES));
            if !part.is_empty() {
                let from = &page[(part.offset - at) as usize..][..part.len as usize];
                into[(part.offset - offset) as usize..][..from.len()].copy_from_slice(from);
            }
        }
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn trim(&self, _: Extent) -> Result<(), DeviceError> {
        Err(DeviceError::ReadOnly)
    }
}
