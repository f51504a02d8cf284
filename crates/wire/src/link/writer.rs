//! Frames to a socket.

use super::LinkError;
use crate::frame::Frame;
use crate::payload::Payload;
use base::limits::WRITE_STALL_TIME_MAX;
use bytes::{Buf, BytesMut};
use std::io::{self, IoSlice};
use std::pin::Pin;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// A payload up to this size is copied behind its header; larger ones are sent from where they lie.
const COPY_BYTES_MAX: usize = 16 << 10;
/// Copied bytes gathered before the socket is written to.
const GATHER_BYTES: usize = 64 << 10;
/// Pieces given to the socket at once; more go in several turns.
const SLICES_MAX: usize = 64;

/// Writes frames, gathering small ones into few system calls.
pub struct FrameWriter {
    stream: Pin<Box<dyn AsyncWrite + Send>>,
    checksum_payload: bool,
    gathered: BytesMut,
    bytes_written: u64,
}

impl FrameWriter {
    pub(super) fn new(stream: Pin<Box<dyn AsyncWrite + Send>>, checksum_payload: bool) -> Self {
        Self {
            stream,
            checksum_payload,
            gathered: BytesMut::with_capacity(GATHER_BYTES),
            bytes_written: 0,
        }
    }

    /// All bytes written to the socket so far.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Queues a frame; it is on its way after [`Self::flush`], or earlier.
    ///
    /// # Errors
    /// The connection is broken, or took no byte for [`WRITE_STALL_TIME_MAX`].
    pub async fn write(&mut self, frame: Frame) -> Result<(), LinkError> {
        self.gathered
            .extend_from_slice(&frame.encode_header(self.checksum_payload));
        self.gathered.extend_from_slice(&frame.body);
        if frame.payload.len() <= COPY_BYTES_MAX {
            for piece in frame.payload.pieces() {
                self.gathered.extend_from_slice(piece);
            }
            if self.gathered.len() >= GATHER_BYTES {
                self.push(Payload::new()).await?;
            }
            return Ok(());
        }
        self.push(frame.payload).await
    }

    /// Sends everything queued.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn flush(&mut self) -> Result<(), LinkError> {
        self.push(Payload::new()).await?;
        Ok(self.stream.flush().await?)
    }

    /// Closes the sending side after everything queued is sent.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn finish(&mut self) -> Result<(), LinkError> {
        self.flush().await?;
        Ok(self.stream.shutdown().await?)
    }

    /// Writes the gathered bytes, then `payload`, whose pieces are given back as they are written.
    async fn push(&mut self, mut payload: Payload) -> Result<(), LinkError> {
        while !self.gathered.is_empty() || !payload.is_empty() {
            let gathered = Some(&self.gathered[..]).filter(|bytes| !bytes.is_empty());
            let pieces = payload.pieces().map(|piece| &piece[..]);
            let slices = gathered.into_iter().chain(pieces).take(SLICES_MAX);
            let slices: Vec<IoSlice<'_>> = slices.map(IoSlice::new).collect();
            let write = self.stream.write_vectored(&slices);
            let count = tokio::time::timeout(WRITE_STALL_TIME_MAX, write)
                .await
                .map_err(|_| LinkError::Stalled(WRITE_STALL_TIME_MAX))??;
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
            self.bytes_written += count as u64;
            let from_gathered = count.min(self.gathered.len());
            self.gathered.advance(from_gathered);
            payload.advance(count - from_gathered);
        }
        self.gathered.clear();
        Ok(())
    }
}
