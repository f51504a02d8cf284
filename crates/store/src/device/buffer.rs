//! Memory that a device can fill without a copy.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// One page. Its alignment is what direct I/O asks for.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; super::BLOCK_BYTES as usize]);

const _: () = assert!(size_of::<Page>() == super::BLOCK_BYTES as usize);

/// Bytes that begin at a page. The length is any; what is behind it up to the end of the page is
/// never seen.
///
/// A clone shares the memory, and so does a [`Self::share`] of a part: what is written to a device
/// in several places needs no copies. Whoever changes a buffer that others share gets its own copy
/// first.
#[derive(Clone)]
pub struct AlignedBuffer {
    pages: Arc<Vec<Page>>,
    /// Which page is the first.
    first: usize,
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
            pages: Arc::new(Page::new_vec_zeroed(pages).expect("there is memory")),
            first: 0,
            len,
        }
    }

    /// A part of the buffer, without a copy; it begins at a page of it.
    ///
    /// # Panics
    /// If it does not begin at a page, or is not a part.
    #[must_use]
    pub fn share(&self, part: Range<usize>) -> Self {
        assert!(
            part.start <= part.end && part.end <= self.len,
            "{part:?} of a buffer of {}",
            self.len
        );
        assert!(
            part.start.is_multiple_of(size_of::<Page>()),
            "a share begins at a page"
        );
        Self {
            pages: Arc::clone(&self.pages),
            first: self.first + part.start / size_of::<Page>(),
            len: part.len(),
        }
    }

    /// The share of this buffer that `bytes` are, if they are one: a part of its own memory that
    /// begins at a page.
    #[must_use]
    pub(crate) fn share_of(&self, bytes: &[u8]) -> Option<Self> {
        let start = bytes.as_ptr().addr().checked_sub(self.as_ptr().addr())?;
        let is_part = start.checked_add(bytes.len())? <= self.len;
        (is_part && start.is_multiple_of(size_of::<Page>()))
            .then(|| self.share(start..start + bytes.len()))
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
        &self.pages[self.first..].as_bytes()[..self.len]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        if Arc::get_mut(&mut self.pages).is_none() {
            let pages = self.len.div_ceil(size_of::<Page>());
            let own = self.pages[self.first..][..pages].to_vec();
            (self.pages, self.first) = (Arc::new(own), 0);
        }
        let pages = Arc::get_mut(&mut self.pages).expect("nobody shares it");
        &mut pages[self.first..].as_mut_bytes()[..self.len]
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

    #[test]
    fn a_share_is_the_same_memory_until_somebody_changes_it() {
        let bytes: Vec<u8> = (0..20_000).map(|at| (at % 251) as u8).collect();
        let whole = AlignedBuffer::from(&bytes[..]);
        let mut share = whole.share(8192..20_000);
        assert_eq!(share.as_ptr(), whole[8192..].as_ptr());
        assert_eq!(share[..], bytes[8192..]);
        let again = whole.share_of(&share[4096..8192]).unwrap();
        assert_eq!(again[..], bytes[12_288..16_384]);
        assert!(whole.share_of(&whole[1..4097]).is_none(), "not at a page");
        assert!(whole.share_of(&bytes).is_none(), "other memory");
        assert!(share.share_of(&whole[..4096]).is_none(), "before it");
        share[0] ^= 1;
        assert_eq!(whole[..], bytes[..]);
        assert_eq!(share[1..], bytes[8193..]);
        assert_eq!(share.as_ptr().addr() % 4096, 0);
    }
}
