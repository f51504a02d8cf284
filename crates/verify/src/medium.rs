//! A disk in memory whose content can be changed for another at once.

use base::{BlockDevice, DeviceError, Extent};
use sim::Image;
use std::sync::{Mutex, PoisonError};

/// Blocks of zeros take no memory, and stay so when zeros are written.
const BLOCK_BYTES: u64 = 4096;

/// What lies below the loop device. Contents share memory, so that a state costs what it changes
/// and whatever a recovery writes is gone with the state.
#[derive(Debug)]
pub struct Medium {
    len_bytes: u64,
    image: Mutex<Image>,
}

impl Medium {
    /// A disk of zeros.
    ///
    /// # Panics
    /// If the length is no whole number of blocks of 4,096 bytes.
    #[must_use]
    pub fn new(len_bytes: u64) -> Self {
        assert!(
            len_bytes.is_multiple_of(BLOCK_BYTES),
            "{len_bytes} bytes are no whole number of blocks"
        );
        let image = Mutex::new(Image::new(len_bytes));
        Self { len_bytes, image }
    }

    /// What is there now.
    #[must_use]
    pub fn image(&self) -> Image {
        self.with(|image| image.clone())
    }

    /// Replaces everything. Whoever keeps parts of it in memory must not use them any more.
    ///
    /// # Panics
    /// If the image has another length.
    pub fn load(&self, new: Image) {
        assert_eq!(new.len_bytes(), self.len_bytes, "a disk keeps its length");
        self.with(|image| *image = new);
    }

    /// The lock guards memory alone and nobody waits while holding it.
    fn with<R>(&self, act: impl FnOnce(&mut Image) -> R) -> R {
        act(&mut self.image.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl BlockDevice for Medium {
    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.extent_at(offset, into.len())?;
        self.with(|image| image.read_at(offset, into));
        Ok(())
    }

    fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.extent_at(offset, from.len())?;
        self.with(|image| image.write_at(offset, from));
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn trim(&self, extent: Extent) -> Result<(), DeviceError> {
        self.write_zeros(extent)
    }

    fn write_zeros(&self, extent: Extent) -> Result<(), DeviceError> {
        self.check_inside(extent)?;
        self.with(|image| zero(image, extent));
        Ok(())
    }
}

/// Makes bytes of an image zeros, and takes no memory for those that are.
pub(crate) fn zero(image: &mut Image, extent: Extent) {
    let mut found = [0; BLOCK_BYTES as usize];
    let mut offset = extent.offset;
    while offset < extent.end() {
        let end = (offset / BLOCK_BYTES + 1) * BLOCK_BYTES;
        let len = (end.min(extent.end()) - offset) as usize;
        image.read_at(offset, &mut found[..len]);
        if !is_zeros(&found[..len]) {
            found[..len].fill(0);
            image.write_at(offset, &found[..len]);
        }
        offset += len as u64;
    }
}

/// Of at most a block. Compared as a whole, which is quick without optimisation, too.
pub(crate) fn is_zeros(bytes: &[u8]) -> bool {
    static ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];
    bytes == &ZEROS[..bytes.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_changed_for_another_and_back() {
        let medium = Medium::new(64 << 10);
        let empty = medium.image();
        medium.write_at(4000, &[7; 200]).unwrap();
        let written = medium.image();
        medium.write_zeros(Extent::new(0, 4096)).unwrap();
        let mut bytes = [1; 200];
        medium.read_at(4000, &mut bytes).unwrap();
        assert_eq!((&bytes[..96], &bytes[96..]), (&[0; 96][..], &[7; 104][..]));
        medium.load(written);
        medium.read_at(4000, &mut bytes).unwrap();
        assert_eq!(bytes, [7; 200]);
        medium.load(empty.clone());
        assert_eq!(medium.image(), empty);
        assert!(medium.write_at((64 << 10) - 1, &[0; 2]).is_err());
    }
}
