//! Frames from a socket.

use super::{LinkError, spare};
use crate::frame::{Frame, HEADER_BYTES, Header};
use bytes::{BufMut, Bytes, BytesMut};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Semaphore;

/// Bytes asked of the socket at once for headers and bodies.
const BUFFER_BYTES: usize = 64 << 10;
/// A payload up to this size is copied out of the buffer, so that a few kept bytes do not keep the
/// whole buffer.
const COPY_BYTES_MAX: usize = 16 << 10;
/// Bytes asked of the socket behind a frame with a large payload. The next one probably has one,
/// too: whatever of it came into this buffer would have to be copied out.
const HEAD_BYTES: usize = 256;

/// Reads frames. Large payloads go from the socket straight into a buffer of their own.
pub struct FrameReader {
    stream: Pin<Box<dyn AsyncRead + Send>>,
    buffer: BytesMut,
    bytes_read: u64,
    /// Whether the last frame had a large payload.
    was_large: bool,
    /// Bytes of large payloads that may be read at once, with others.
    room: Option<Arc<Semaphore>>,
}

impl FrameReader {
    pub(super) fn new(stream: Pin<Box<dyn AsyncRead + Send>>) -> Self {
        Self {
            stream,
            buffer: BytesMut::with_capacity(BUFFER_BYTES),
            bytes_read: 0,
            was_large: false,
            room: None,
        }
    }

    /// From now on, a large payload is read only once there is room for it among all readers that
    /// share this; its bytes are given back when it is complete. There must be room for the largest
    /// one.
    pub fn share_room(&mut self, room: Arc<Semaphore>) {
        self.room = Some(room);
    }

    /// All bytes read from the socket so far.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Whether a further frame can be read, at least in part, without the socket.
    #[must_use]
    pub fn has_buffered(&self) -> bool {
        self.buffer.len() >= HEADER_BYTES
    }

    /// The next frame.
    ///
    /// # Errors
    /// [`LinkError::Closed`] if the peer closed between frames; everything else is a broken
    /// connection. Dropping the future in between loses bytes: the connection must then be closed.
    pub async fn read(&mut self) -> Result<Frame, LinkError> {
        if !self.fill(HEADER_BYTES).await? {
            return Err(LinkError::Closed);
        }
        let head: [u8; HEADER_BYTES] = self.buffer[..HEADER_BYTES]
            .try_into()
            .expect("a slice of this length");
        let header = Header::decode(&head)?;
        if !self.fill(HEADER_BYTES + header.body_bytes()).await? {
            return Err(cut_off().into());
        }
        let head_and_body = self.buffer.split_to(HEADER_BYTES + header.body_bytes());
        let body = Bytes::copy_from_slice(&head_and_body[HEADER_BYTES..]);
        header.check_body(&body)?;
        self.was_large = header.payload_bytes() > COPY_BYTES_MAX;
        let payload = self.read_payload(header.payload_bytes()).await?;
        Ok(header.into_frame(body, payload)?)
    }

    /// The next frame, however long it lets itself be awaited; but once its first byte is there,
    /// the rest must follow within `frame_time_max`.
    ///
    /// # Errors
    /// As [`Self::read`], and [`LinkError::Stalled`].
    pub async fn read_within(&mut self, frame_time_max: Duration) -> Result<Frame, LinkError> {
        if !self.fill(1).await? {
            return Err(LinkError::Closed);
        }
        match tokio::time::timeout(frame_time_max, self.read()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(LinkError::Stalled(frame_time_max)),
        }
    }

    /// Makes the buffer hold `bytes` bytes. `false` if the stream ends before the first of them.
    async fn fill(&mut self, bytes: usize) -> Result<bool, LinkError> {
        while self.buffer.len() < bytes {
            self.buffer
                .reserve((bytes - self.buffer.len()).max(BUFFER_BYTES / 2));
            let asked = if self.was_large {
                HEAD_BYTES.max(bytes - self.buffer.len())
            } else {
                usize::MAX
            };
            let into = &mut (&mut self.buffer).limit(asked);
            let count = self.stream.read_buf(into).await?;
            self.bytes_read += count as u64;
            if count == 0 {
                return if self.buffer.is_empty() {
                    Ok(false)
                } else {
                    Err(cut_off().into())
                };
            }
        }
        Ok(true)
    }

    async fn read_payload(&mut self, bytes: usize) -> Result<Bytes, LinkError> {
        if bytes == 0 {
            return Ok(Bytes::new());
        }
        if bytes <= COPY_BYTES_MAX {
            if !self.fill(bytes).await? {
                return Err(cut_off().into());
            }
            let payload = Bytes::copy_from_slice(&self.buffer[..bytes]);
            let _ = self.buffer.split_to(bytes);
            return Ok(payload);
        }
        let _room = match self.room.clone() {
            // Nobody closes it.
            Some(room) => room.acquire_many_owned(bytes as u32).await.ok(),
            None => None,
        };
        let mut payload = spare::take(bytes);
        let buffered = self.buffer.len().min(bytes);
        payload.extend_from_slice(&self.buffer.split_to(buffered));
        while payload.len() < bytes {
            let room = bytes - payload.len();
            let count = self
                .stream
                .read_buf(&mut (&mut payload).limit(room))
                .await?;
            self.bytes_read += count as u64;
            if count == 0 {
                return Err(cut_off().into());
            }
        }
        Ok(spare::freeze(payload))
    }
}

fn cut_off() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "connection ended within a frame",
    )
}
