//! Memory that a device can fill without a copy.

use std::fmt;
use std::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// One page. Its alignment is what direct I/O asks for.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; super::BLOCK_BYTES as usize]);

const _: () = assert!(size_of::<Page>() == super::BLOCK_BYTES as usize);

/// Bytes on whole pages of their own. The length is any; what is behind it up to the end of the
/// page is never seen.
#[derive(Clone)]
pub struct AlignedBuffer {
    pages: Vec<Page>,
    len: usize,
}

impl AlignedBuffer {
    /// Zeros. The system hands pages of zeros out when they are first touched, so a large buffer
    /// costs nothing before that.
    ///
    /// # Panics
    /// If there is no memory, as every container does.
    #[must_use]
    pub fn new(len: usize) -> Self {
        let pages = len.div_ceil(size_of::<Page>());
        Self {
            pages: Page::new_vec_zeroed(pages).expect("there is memory"),
            len,
        }
    }

    /// Cuts the buffer off; the memory stays.
    ///
    /// # Panics
    /// If it is shorter.
    pub fn truncate(&mut self, len: usize) {
        assert!(len <= self.len, "{len} bytes of a buffer of {}", self.len);
        self.len = len;
    }
}

impl From<&[u8]> for AlignedBuffer {
    fn from(bytes: &[u8]) -> Self {
        let mut buffer = Self::new(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.pages.as_bytes()[..self.len]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_bytes()[..self.len]
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_of_any_length() {
        for len in [0, 1, 4095, 4096, 4097, 1 << 20] {
            let mut buffer = AlignedBuffer::new(len);
            assert!(buffer.iter().all(|byte| *byte == 0));
            assert_eq!((buffer.len(), buffer.as_ptr().addr() % 4096), (len, 0));
            buffer.fill(7);
            let copy = AlignedBuffer::from(&buffer[..]);
            assert_eq!(copy[..], buffer[..]);
            buffer.truncate(len / 2);
            assert_eq!(buffer.len(), len / 2);
        }
    }
}
