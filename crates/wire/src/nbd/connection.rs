//! One connection: a task that reads requests, a task for each of them, a task that writes replies.
//!
//! A request takes a place and memory before its bytes are read, and gives both back when its reply
//! is with the kernel. So a client that does not read its replies is not read from, and in the end
//! its connection is closed, because writing stands still.

use super::NbdError;
use super::negotiation::{Agreement, Facts, Negotiation, Progress};
use super::request::Request;
use super::work::Served;
use base::limits::{
    HANDSHAKE_TIME_MAX, NBD_CONNECTION_BYTES_MAX, NBD_CONNECTION_REQUESTS_MAX, WRITE_STALL_TIME_MAX,
};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::timeout;

/// Bytes asked of the socket at once, except for what is to be written.
const BUFFER_BYTES: usize = 64 << 10;
/// A part of a reply up to this size is copied behind the one before; larger ones are sent from
/// where they lie.
const COPY_BYTES_MAX: usize = 8 << 10;
/// Copied parts before the socket is written to.
const GATHER_BYTES: usize = 64 << 10;
/// Memory is counted in units of this length.
const UNIT_BYTES: u32 = 4096;

/// A reply on its way, with the memory and the place that its request has taken.
struct Reply {
    parts: Vec<Bytes>,
    _taken: [OwnedSemaphorePermit; 2],
}

/// Serves a client until it goes, `stop` says so, or one of both sides cannot go on. What is under
/// way is finished first.
pub(super) async fn serve(
    reader: impl AsyncRead + Unpin + Send,
    writer: impl AsyncWrite + Unpin + Send + 'static,
    served: Arc<Served>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), NbdError> {
    let mut input = Input {
        stream: reader,
        buffer: BytesMut::with_capacity(BUFFER_BYTES),
    };
    let mut output = Output {
        stream: writer,
        gathered: BytesMut::with_capacity(GATHER_BYTES),
    };
    let negotiated = tokio::select! {
        () = is_over(&mut stop) => return Ok(()),
        negotiated = timeout(
            HANDSHAKE_TIME_MAX,
            negotiate(&mut input, &mut output, &served.facts),
        ) => negotiated,
    };
    let negotiated = negotiated.map_err(|_| NbdError::Stalled(HANDSHAKE_TIME_MAX))??;
    let Some(agreement) = negotiated else {
        return Ok(());
    };
    let (sender, receiver) = mpsc::channel(NBD_CONNECTION_REQUESTS_MAX);
    let writing = tokio::spawn(output.write_replies(receiver));
    let read = read_requests(&mut input, &served, agreement, sender, stop).await;
    // Requests that are under way keep their senders; the writer ends behind the last reply.
    let written = match writing.await {
        Ok(written) => written,
        Err(error) => Err(io::Error::other(error).into()),
    };
    read.and(written)
}

/// Waits until it is said that it is over.
async fn is_over(stop: &mut watch::Receiver<bool>) {
    // Whoever would say so is gone: then it is over as well.
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn negotiate<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
    input: &mut Input<R>,
    output: &mut Output<W>,
    facts: &Facts,
) -> Result<Option<Agreement>, NbdError> {
    let mut negotiation = Negotiation::begin(facts, &mut output.gathered);
    output.push(Bytes::new()).await?;
    loop {
        let progress = negotiation.advance(&mut input.buffer, &mut output.gathered);
        output.push(Bytes::new()).await?;
        match progress? {
            Progress::Wants(bytes) => {
                if !input.fill(bytes).await? {
                    return Ok(None);
                }
            }
            Progress::Agreed(agreement) => return Ok(Some(agreement)),
            Progress::Ended => return Ok(None),
        }
    }
}

async fn read_requests<R: AsyncRead + Unpin>(
    input: &mut Input<R>,
    served: &Arc<Served>,
    agreement: Agreement,
    sender: mpsc::Sender<Reply>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), NbdError> {
    let places = Arc::new(Semaphore::new(NBD_CONNECTION_REQUESTS_MAX));
    let memory = Arc::new(Semaphore::new(
        (NBD_CONNECTION_BYTES_MAX / UNIT_BYTES) as usize,
    ));
    loop {
        let request = tokio::select! {
            biased;
            () = is_over(&mut stop) => return Ok(()),
            // The writer has ended, and says why.
            () = sender.closed() => return Ok(()),
            request = input.request() => request?,
        };
        let Some(request) = request.filter(|request| !request.is_disconnect()) else {
            return Ok(());
        };
        let units = request.memory_bytes().div_ceil(UNIT_BYTES);
        let taken = [
            take(&places, 1).await,
            take(&memory, units.min(NBD_CONNECTION_BYTES_MAX / UNIT_BYTES)).await,
        ];
        let payload = input.payload(request.payload_bytes()).await?;
        let (served, sender) = (Arc::clone(served), sender.clone());
        tokio::spawn(async move {
            let reply = Reply {
                parts: served.answer(request, payload, agreement).await,
                _taken: taken,
            };
            // If the writer is gone, so is whoever would read it.
            let _ = sender.send(reply).await;
        });
    }
}

async fn take(semaphore: &Arc<Semaphore>, permits: u32) -> OwnedSemaphorePermit {
    let taken = Arc::clone(semaphore).acquire_many_owned(permits).await;
    taken.expect("nobody closes it")
}

/// What comes from a client.
struct Input<R> {
    stream: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> Input<R> {
    /// Makes the buffer hold `bytes` bytes. False if the stream ends before the first of them.
    async fn fill(&mut self, bytes: usize) -> Result<bool, NbdError> {
        while self.buffer.len() < bytes {
            self.buffer
                .reserve(BUFFER_BYTES.max(bytes) - self.buffer.len());
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return match self.buffer.is_empty() {
                    true => Ok(false),
                    false => Err(NbdError::CutOff),
                };
            }
        }
        Ok(true)
    }

    /// The next request without its payload, however long the client takes; but once its first
    /// byte is there, the rest must follow.
    async fn request(&mut self) -> Result<Option<Request>, NbdError> {
        if !self.fill(1).await? {
            return Ok(None);
        }
        moving(self.fill(Request::BYTES)).await?;
        let head = self.buffer.split_to(Request::BYTES);
        Request::parse(&head).map(Some)
    }

    async fn payload(&mut self, bytes: usize) -> Result<Bytes, NbdError> {
        let mut payload = BytesMut::with_capacity(bytes);
        let buffered = self.buffer.len().min(bytes);
        payload.extend_from_slice(&self.buffer.split_to(buffered));
        while payload.len() < bytes {
            let room = bytes - payload.len();
            let mut into = (&mut payload).limit(room);
            let read = async { Ok(self.stream.read_buf(&mut into).await?) };
            if moving(read).await? == 0 {
                return Err(NbdError::CutOff);
            }
        }
        Ok(payload.freeze())
    }
}

/// What goes to a client.
struct Output<W> {
    stream: W,
    gathered: BytesMut,
}

impl<W: AsyncWrite + Unpin> Output<W> {
    async fn write_replies(mut self, mut replies: mpsc::Receiver<Reply>) -> Result<(), NbdError> {
        // Those whose last bytes are not written yet.
        let mut waiting = Vec::new();
        while let Some(mut reply) = replies.recv().await {
            for part in std::mem::take(&mut reply.parts) {
                if part.len() <= COPY_BYTES_MAX {
                    self.gathered.extend_from_slice(&part);
                } else {
                    self.push(part).await?;
                }
            }
            waiting.push(reply);
            if replies.is_empty() || self.gathered.len() >= GATHER_BYTES {
                self.push(Bytes::new()).await?;
                waiting.clear();
            }
        }
        moving(async { Ok(self.stream.shutdown().await?) }).await
    }

    /// Writes what is gathered, then `part`.
    async fn push(&mut self, part: Bytes) -> Result<(), NbdError> {
        let mut bytes = self.gathered.split().freeze().chain(part);
        while bytes.has_remaining() {
            let write = async { Ok(self.stream.write_buf(&mut bytes).await?) };
            if moving(write).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero).into());
            }
        }
        Ok(())
    }
}

/// Something that moves, or stands still for too long.
async fn moving<T>(step: impl Future<Output = Result<T, NbdError>>) -> Result<T, NbdError> {
    let stepped = timeout(WRITE_STALL_TIME_MAX, step).await;
    stepped.map_err(|_| NbdError::Stalled(WRITE_STALL_TIME_MAX))?
}
