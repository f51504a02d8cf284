//! A stream of frames, cut into pieces anywhere.
//!
//! The input describes frames and how the stream is cut; a byte of the stream may be damaged.
//! Checksums are made here, because no fuzzer guesses them.
#![no_main]

use azekura_fuzz::Input;
use base::RequestId;
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wire::frame::{Class, Frame, FrameKind};
use wire::link::over;

/// Gives `bytes` in pieces, then ends.
struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    cuts: Vec<usize>,
    piece: usize,
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let cut = self.cuts.get(self.piece).copied().unwrap_or(usize::MAX);
        self.piece += 1;
        let len = cut
            .max(1)
            .min(self.bytes.len() - self.at)
            .min(buf.remaining());
        buf.put_slice(&self.bytes[self.at..self.at + len]);
        self.at += len;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// All frames of a stream, and the error that ends it.
fn read_all(bytes: &[u8], cuts: Vec<usize>) -> (Vec<Frame>, String) {
    let stream = Pieces {
        bytes: bytes.to_vec(),
        at: 0,
        cuts,
        piece: 0,
    };
    let somewhere = ([127, 0, 0, 1], 1).into();
    let mut reader = over(stream, somewhere).reader;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime without drivers needs nothing");
    runtime.block_on(async {
        let mut frames = Vec::new();
        loop {
            match reader.read().await {
                Ok(frame) => frames.push(frame),
                Err(error) => return (frames, error.to_string()),
            }
        }
    })
}

const KINDS: [FrameKind; 3] = [FrameKind::Request, FrameKind::Reply, FrameKind::Cancel];

fn frame(kind: u8, input: &mut Input<'_>) -> Option<Frame> {
    let body_bytes = usize::from(input.byte()?);
    // Up to 64 KiB: both sides of the size up to which a payload is copied.
    let payload_bytes = usize::from(input.byte()?) << (kind % 9);
    Some(Frame {
        kind: KINDS[usize::from(kind) % KINDS.len()],
        class: Class::ALL[usize::from(kind) % Class::ALL.len()],
        resent: kind & 1 == 1,
        request: RequestId(u64::from(kind)),
        body: Bytes::from(vec![kind; body_bytes]),
        payload: vec![!kind; payload_bytes].into(),
    })
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input::new(data);
    let mut bytes = Vec::new();
    let mut sent = Vec::new();
    while let Some(kind) = input.byte().filter(|kind| *kind < 250 && sent.len() < 8) {
        let Some(frame) = frame(kind, &mut input) else {
            break;
        };
        bytes.extend_from_slice(&frame.encode_header(kind & 2 == 2));
        bytes.extend_from_slice(&frame.body);
        for piece in frame.payload.pieces() {
            bytes.extend_from_slice(piece);
        }
        sent.push(frame);
    }
    let damage = (
        input.byte().unwrap_or(0),
        input.byte().unwrap_or(0),
        input.byte().unwrap_or(0),
    );
    let at = usize::from(damage.0) << 8 | usize::from(damage.1);
    let damaged = damage.2 != 0 && at < bytes.len();
    if damaged {
        bytes[at] ^= damage.2;
    }
    // What follows cuts the stream; the rest of it comes behind the frames as it is.
    let rest = input.rest();
    let cuts = rest
        .iter()
        .map(|byte| usize::from(*byte) * usize::from(*byte))
        .collect();
    bytes.extend_from_slice(&rest[..rest.len() / 2]);
    let whole = read_all(&bytes, Vec::new());
    let cut = read_all(&bytes, cuts);
    assert_eq!(whole, cut);
    if !damaged {
        assert_eq!(whole.0[..sent.len()], sent);
    }
});
