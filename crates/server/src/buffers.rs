//! Buffers for file data, used again.
//!
//! A megabyte fresh from the operating system costs 256 page faults and as many cleared pages,
//! about as much as reading a megabyte from the page cache. What the socket has taken is therefore
//! kept for the next read.

use base::limits::FRAME_PAYLOAD_BYTES_MAX;
use bytes::{Bytes, BytesMut};
use std::sync::{Mutex, PoisonError};

/// Buffers kept, over all connections: 64 MiB of the largest.
const BUFFERS_MAX: usize = 64;
/// Smaller ones come from the allocator as quickly.
const BUFFER_BYTES_MIN: usize = 64 << 10;

/// A stock of empty buffers.
#[derive(Default)]
pub(crate) struct Buffers(Mutex<Vec<BytesMut>>);

impl Buffers {
    /// A buffer with room for at least `bytes`.
    pub(crate) fn take(&self, bytes: usize) -> BytesMut {
        if bytes >= BUFFER_BYTES_MIN {
            let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
            if let Some(buffer) = kept {
                return buffer;
            }
            return BytesMut::with_capacity(FRAME_PAYLOAD_BYTES_MAX);
        }
        BytesMut::with_capacity(bytes)
    }

    /// Takes a buffer back that nobody else looks at any more.
    pub(crate) fn put(&self, payload: Bytes) {
        if payload.len() < BUFFER_BYTES_MIN {
            return;
        }
        if let Ok(mut buffer) = payload.try_into_mut() {
            buffer.clear();
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < BUFFERS_MAX && buffer.capacity() >= FRAME_PAYLOAD_BYTES_MAX {
                kept.push(buffer);
            }
        }
    }
}
