//! Memory to read the device into.
//!
//! A thread reads into one buffer again and again. When a large write arrives, its data stays where
//! it is: the buffer is given away with it and comes back when the last part of the data is
//! dropped. So data is not copied, and the memory is warm: fresh memory costs a page fault per
//! 4 KiB, which for 1 MiB takes about as long as copying it.
//!
//! A message begins so that a write's data, after two headers of 80 bytes, begins on a page: then
//! it can go to a device with direct I/O, and copies of it run on whole cache lines.

use super::abi::input::{InHeader, WriteIn};
use base::limits::KERNEL_BUFFERS_SPARE_MAX;
use bytes::Bytes;
use std::sync::{Arc, Mutex, PoisonError};

/// Where data begins: pages of 4 KiB, whatever the machine's own are.
const PAGE_BYTES: usize = 4096;
/// The headers before a write's data.
pub(crate) const WRITE_HEADERS_BYTES: usize = size_of::<InHeader>() + size_of::<WriteIn>();

/// Room for one message.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize) -> Self {
        let memory = vec![0; len + PAGE_BYTES];
        let headers_end = memory.as_ptr().wrapping_add(WRITE_HEADERS_BYTES);
        // `align_offset` may give up; then data is merely not aligned.
        let start = headers_end.align_offset(PAGE_BYTES).min(PAGE_BYTES);
        Self { memory, start, len }
    }

    /// The room, to read into.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }

    /// The first `len` bytes read.
    pub(crate) fn message(&self, len: usize) -> &[u8] {
        &self.memory[self.start..][..len]
    }
}

/// Buffers of one size, some of them spare.
#[derive(Debug)]
pub(crate) struct Pool {
    buffer_bytes: usize,
    spare: Mutex<Vec<Buffer>>,
}

impl Pool {
    pub(crate) fn new(buffer_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            buffer_bytes,
            spare: Mutex::default(),
        })
    }

    /// A spare buffer, or a new one.
    pub(crate) fn take(&self) -> Buffer {
        let spare = self
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        spare.unwrap_or_else(|| Buffer::new(self.buffer_bytes))
    }

    fn give(&self, buffer: Buffer) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < KERNEL_BUFFERS_SPARE_MAX {
            spare.push(buffer);
        }
    }

    /// Gives `buffer` away with the first `len` bytes read into it. It comes back to the pool when
    /// all of them are dropped.
    pub(crate) fn freeze(self: &Arc<Self>, buffer: Buffer, len: usize) -> Bytes {
        Bytes::from_owner(Frozen {
            buffer: Some(buffer),
            len,
            pool: Arc::clone(self),
        })
    }
}

struct Frozen {
    buffer: Option<Buffer>,
    len: usize,
    pool: Arc<Pool>,
}

impl AsRef<[u8]> for Frozen {
    fn as_ref(&self) -> &[u8] {
        self.buffer
            .as_ref()
            .expect("taken by drop only")
            .message(self.len)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.give(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_write_begins_on_a_page() {
        let mut buffer = Buffer::new(1 << 20);
        assert_eq!(buffer.room().len(), 1 << 20);
        assert_eq!(
            buffer.message(1 << 20)[WRITE_HEADERS_BYTES..]
                .as_ptr()
                .addr()
                % 4096,
            0
        );
    }

    #[test]
    fn a_buffer_comes_back_when_the_last_part_of_its_data_is_dropped() {
        let pool = Pool::new(65536);
        let mut buffer = pool.take();
        buffer.room()[..3].copy_from_slice(b"abc");
        let address = buffer.room().as_ptr();
        let bytes = pool.freeze(buffer, 3);
        let part = bytes.slice(1..2);
        drop(bytes);
        assert!(pool.spare.lock().unwrap().is_empty());
        assert_eq!(part, b"b"[..]);
        drop(part);
        assert_eq!(pool.take().room().as_ptr(), address);
    }

    #[test]
    fn spare_buffers_are_bounded() {
        let pool = Pool::new(4096);
        let taken: Vec<Buffer> = (0..KERNEL_BUFFERS_SPARE_MAX + 3)
            .map(|_| pool.take())
            .collect();
        for buffer in taken {
            drop(pool.freeze(buffer, 1));
        }
        assert_eq!(pool.spare.lock().unwrap().len(), KERNEL_BUFFERS_SPARE_MAX);
    }
}
