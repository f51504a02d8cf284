//! Memory for large payloads, used again.
//!
//! A megabyte fresh from the operating system costs 256 page faults and as many cleared pages,
//! about as much as taking it from the socket. So the memory of large payloads comes back here when
//! the last piece of it is dropped, wherever that is.
//!
//! Large payloads begin at a page: what is written to a device can go there from where it lies.

use base::limits::{FRAME_BUFFERS_SPARE_MAX, FRAME_PAYLOAD_BYTES_MAX};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::sync::{Mutex, PoisonError};

/// Smaller payloads get memory of their own: what is kept has room for the largest, and no payload
/// is to hold more than twice its size.
const KEPT_BYTES_MIN: usize = FRAME_PAYLOAD_BYTES_MAX / 2;
/// Devices take memory that begins at a multiple of this.
const PAGE_BYTES: usize = 4096;

/// Of all connections of the process.
static SPARE: Mutex<Vec<BytesMut>> = Mutex::new(Vec::new());

/// Memory that is kept when nobody looks at it any more.
struct Kept(BytesMut);

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut buffer = std::mem::take(&mut self.0);
        buffer.clear();
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < FRAME_BUFFERS_SPARE_MAX {
            spare.push(buffer);
        }
    }
}

/// Memory that a payload of so many bytes is put into, without asking for more.
pub(super) fn take(bytes: usize) -> BytesMut {
    if bytes <= KEPT_BYTES_MIN {
        return at_page(bytes);
    }
    let kept = SPARE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    kept.unwrap_or_else(|| at_page(FRAME_PAYLOAD_BYTES_MAX))
}

/// The payload in memory that was taken.
pub(super) fn freeze(buffer: BytesMut) -> Bytes {
    if buffer.len() <= KEPT_BYTES_MIN {
        return buffer.freeze();
    }
    Bytes::from_owner(Kept(buffer))
}

fn at_page(bytes: usize) -> BytesMut {
    let mut buffer = BytesMut::with_capacity(bytes + PAGE_BYTES - 1);
    let start = buffer.as_ptr().addr();
    let before = start.next_multiple_of(PAGE_BYTES) - start;
    buffer.put_bytes(0, before);
    buffer.advance(before);
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_begin_at_a_page_and_the_memory_of_large_ones_is_used_again() {
        let most = FRAME_PAYLOAD_BYTES_MAX;
        let payload = |bytes: usize, fill: u8| {
            let mut buffer = take(bytes);
            assert!(buffer.is_empty() && buffer.capacity() >= bytes);
            let place = buffer.as_ptr();
            buffer.put_bytes(fill, bytes);
            let payload = freeze(buffer);
            assert_eq!(payload.as_ptr(), place, "it has not moved");
            assert!(place.addr().is_multiple_of(PAGE_BYTES));
            assert!(payload.len() == bytes && payload.iter().all(|byte| *byte == fill));
            payload
        };
        // Other tests in this process take some meanwhile: it is tried until they do not.
        let is_used_again = |bytes: usize| {
            let first = payload(bytes, 1);
            let (piece, place) = (first.slice(..10), first.as_ptr());
            drop(first);
            let other = payload(bytes, 2);
            assert_ne!(other.as_ptr(), place, "a piece of it is still looked at");
            assert_eq!(piece[..], [1; 10]);
            drop((piece, other));
            let held: Vec<_> = (0..3).map(|_| payload(bytes, 3)).collect();
            held.iter().any(|payload| payload.as_ptr() == place)
        };
        for bytes in [most, most / 2 + 1] {
            assert!((0..1000).any(|_| is_used_again(bytes)));
        }
        for bytes in [1, 20_000, most / 2] {
            drop(payload(bytes, 4));
        }
        let many: Vec<_> = (0..2 * FRAME_BUFFERS_SPARE_MAX)
            .map(|_| payload(most, 5))
            .collect();
        drop(many);
        let spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(spare.len() <= FRAME_BUFFERS_SPARE_MAX);
        assert!(spare.iter().all(|it| it.capacity() >= most));
    }
}
