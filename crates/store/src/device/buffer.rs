//! Memory that a device can fill without a copy.
//!
//! Memory fresh from the operating system costs a page fault and a cleared page for each 4 KiB, for
//! many devices more than the read itself. So the pages of large buffers are kept for the next one.

use base::limits::DEVICE_BUFFERS_SPARE_BYTES_MAX;
use bytes::Bytes;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// One page. Its alignment is what direct I/O asks for.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; super::BLOCK_BYTES as usize]);

const _: () = assert!(size_of::<Page>() == super::BLOCK_BYTES as usize);

/// Pages of the smallest buffers that are kept: 64 KiB. Smaller ones come from the allocator as
/// quickly.
const SPARE_PAGES_MIN: usize = 16;
/// Sizes that are kept, each twice the one before: up to 1 MiB.
const SPARE_SIZES: usize = 5;

/// Buffers that nobody uses, by size.
struct Spare {
    buffers: [Vec<Vec<Page>>; SPARE_SIZES],
    bytes: u64,
}

/// Of all devices of the process.
static SPARE: Mutex<Spare> = Mutex::new(Spare {
    buffers: [const { Vec::new() }; SPARE_SIZES],
    bytes: 0,
});

impl Spare {
    fn lock() -> MutexGuard<'static, Self> {
        SPARE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which of the sizes that are kept these are, if they are one.
    fn size(pages: usize) -> Option<usize> {
        let is_kept = pages.is_power_of_two() && pages >= SPARE_PAGES_MIN;
        let size = is_kept.then(|| (pages / SPARE_PAGES_MIN).ilog2() as usize);
        size.filter(|size| *size < SPARE_SIZES)
    }

    fn take(pages: usize) -> Option<Vec<Page>> {
        let size = Self::size(pages)?;
        let mut spare = Self::lock();
        let taken = spare.buffers[size].pop()?;
        spare.bytes -= bytes_of(pages);
        Some(taken)
    }

    /// Keeps one, in place of others if there is no room: the size that has most gives way.
    fn put(pages: Vec<Page>) {
        let Some(size) = Self::size(pages.len()) else {
            return;
        };
        let bytes = bytes_of(pages.len());
        let mut spare = Self::lock();
        while spare.bytes + bytes > DEVICE_BUFFERS_SPARE_BYTES_MAX {
            let most = (0..SPARE_SIZES).max_by_key(|size| spare.buffers[*size].len() << size);
            let given_up = most.filter(|most| *most != size);
            let Some(gone) = given_up.and_then(|most| spare.buffers[most].pop()) else {
                return;
            };
            spare.bytes -= bytes_of(gone.len());
        }
        spare.bytes += bytes;
        spare.buffers[size].push(pages);
    }
}

fn bytes_of(pages: usize) -> u64 {
    (pages * size_of::<Page>()) as u64
}

/// Pages that are kept when nobody uses them any more.
struct Pages(Vec<Page>);

impl Pages {
    fn zeroed(pages: usize) -> Self {
        Self(Page::new_vec_zeroed(pages).expect("there is memory"))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        Spare::put(std::mem::take(&mut self.0));
    }
}

/// Where the bytes lie.
#[derive(Clone)]
enum Memory {
    /// Here; which page is the first.
    Own(Arc<Pages>, usize),
    /// Somebody else's, never changed here.
    Lent(Bytes),
}

/// Bytes that begin at a page. The length is any; what is behind it up to the end of the page is
/// never seen.
///
/// A clone shares the memory, and so does a [`Self::share`] of a part: what is written to a device
/// in several places needs no copies. Whoever changes a buffer that others share gets its own copy
/// first.
#[derive(Clone)]
pub struct AlignedBuffer {
    memory: Memory,
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
        let pages = Pages::zeroed(len.div_ceil(size_of::<Page>()));
        Self {
            memory: Memory::Own(Arc::new(pages), 0),
            len,
        }
    }

    /// For who fills all of it before anybody looks: what is there is anything, such as what a
    /// buffer had before that was used and given back.
    ///
    /// # Panics
    /// As [`Self::new`].
    pub(crate) fn to_fill(len: usize) -> Self {
        let pages = len.div_ceil(size_of::<Page>());
        let pages = Spare::take(pages).map_or_else(|| Pages::zeroed(pages), Pages);
        Self {
            memory: Memory::Own(Arc::new(pages), 0),
            len,
        }
    }

    /// These bytes, where they lie; none if they do not begin at a page.
    #[must_use]
    pub fn lent(bytes: Bytes) -> Option<Self> {
        let is_aligned = bytes.as_ptr().addr().is_multiple_of(size_of::<Page>());
        is_aligned.then(|| Self {
            len: bytes.len(),
            memory: Memory::Lent(bytes),
        })
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
        let memory = match &self.memory {
            Memory::Own(pages, first) => {
                Memory::Own(Arc::clone(pages), first + part.start / size_of::<Page>())
            }
            Memory::Lent(bytes) => Memory::Lent(bytes.slice(part.clone())),
        };
        Self {
            memory,
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
        let mut buffer = Self::to_fill(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Own(pages, first) => &pages.0[*first..].as_bytes()[..self.len],
            Memory::Lent(bytes) => &bytes[..self.len],
        }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let is_own = match &mut self.memory {
            Memory::Own(pages, _) => Arc::get_mut(pages).is_some(),
            Memory::Lent(_) => false,
        };
        if !is_own {
            *self = Self::from(&**self);
        }
        let Memory::Own(pages, first) = &mut self.memory else {
            unreachable!("it was copied")
        };
        let pages = Arc::get_mut(pages).expect("nobody shares it");
        &mut pages.0[*first..].as_mut_bytes()[..self.len]
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

    #[test]
    fn what_is_lent_is_the_lenders_memory_until_somebody_changes_it() {
        let bytes: Vec<u8> = (0..30_000).map(|at| (at % 251) as u8).collect();
        let bytes = Bytes::from(bytes);
        let start = bytes.as_ptr().addr().next_multiple_of(4096) - bytes.as_ptr().addr();
        assert!(AlignedBuffer::lent(bytes.slice(start + 1..)).is_none());
        let page = bytes.slice(start..start + 20_000);
        let mut whole = AlignedBuffer::lent(page.clone()).unwrap();
        let share = whole.share_of(&page[4096..8192]).unwrap();
        assert_eq!(share.as_ptr(), page[4096..].as_ptr(), "no copy");
        assert_eq!((share[..].len(), &share[..]), (4096, &page[4096..8192]));
        whole[0] ^= 1;
        assert_eq!(whole[0], page[0] ^ 1);
        assert_eq!(whole[1..], page[1..]);
        assert_eq!(share[..], page[4096..8192]);
    }

    #[test]
    fn large_buffers_are_used_again_and_new_ones_are_zeros_all_the_same() {
        // Others in this process take and give back meanwhile: it is tried until they do not.
        let is_used_again = |len: usize| {
            let mut buffer = AlignedBuffer::to_fill(len);
            buffer.fill(7);
            let place = buffer.as_ptr();
            drop(buffer);
            AlignedBuffer::to_fill(len).as_ptr() == place
        };
        for len in [64 << 10, 1 << 20] {
            assert!((0..1000).any(|_| is_used_again(len)), "{len} bytes");
            assert!(AlignedBuffer::new(len).iter().all(|byte| *byte == 0));
        }
        for pages in [0, 1, 15, 17, 24, 512] {
            assert_eq!(Spare::size(pages), None, "{pages} pages");
        }
        let most = DEVICE_BUFFERS_SPARE_BYTES_MAX / (1 << 20) + 5;
        let many: Vec<_> = (0..most).map(|_| AlignedBuffer::to_fill(1 << 20)).collect();
        drop(many);
        assert!(Spare::lock().bytes <= DEVICE_BUFFERS_SPARE_BYTES_MAX);
    }
}
