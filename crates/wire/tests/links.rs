//! Links over real streams: in memory, where the test decides when bytes move, and over loopback
//! sockets with TLS and without.
#![expect(clippy::unwrap_used, reason = "a panic is a failed test")]

use base::limits::{FRAME_BODY_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX, WRITE_STALL_TIME_MAX};
use base::{ClusterId, RequestId};
use bytes::Bytes;
use sim::Random;
use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use wire::frame::{Class, Frame, FrameError, FrameKind, HEADER_BYTES};
use wire::identity::{Authority, ClientVerifier, client_config, server_config, server_name};
use wire::link::{Connection, LinkError, accept, connect, over};
use wire::message::CredentialKind;
use wire::payload::Payload;

const SOMEWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1);
const KINDS: [FrameKind; 8] = [
    FrameKind::Hello,
    FrameKind::Welcome,
    FrameKind::Proof,
    FrameKind::Request,
    FrameKind::Reply,
    FrameKind::Cancel,
    FrameKind::Notice,
    FrameKind::Farewell,
];

fn frame(random: &mut Random, body_bytes: usize, payload_bytes: usize) -> Frame {
    let mut bytes = |len: usize| -> Bytes {
        let first = random.next_u64();
        (0..len)
            .map(|at| (first >> (at % 57)) as u8 ^ at as u8)
            .collect()
    };
    let (body, payload) = (bytes(body_bytes), bytes(payload_bytes));
    let payload = scattered(random, payload);
    Frame {
        kind: *random.pick(&KINDS),
        class: *random.pick(&Class::ALL),
        resent: random.chance(0.5),
        request: RequestId(random.next_u64()),
        body,
        payload,
    }
}

/// The same bytes in one piece or in several, in more than a socket is given at once now and then.
fn scattered(random: &mut Random, mut bytes: Bytes) -> Payload {
    let piece_bytes_max = *random.pick(&[bytes.len(), bytes.len() / 3, bytes.len() / 100]);
    let mut payload = Payload::new();
    while !bytes.is_empty() {
        let len = 1 + random.below(piece_bytes_max.max(1) as u64) as usize;
        payload.push(bytes.split_to(len.min(bytes.len())));
    }
    payload
}

/// Frames around every size at which a reader or writer does something else: nothing, one byte, the
/// copy limit, the buffer, the largest.
fn frames(seed: u64) -> Vec<Frame> {
    let mut random = Random::new(seed);
    let edges = [0, 1, HEADER_BYTES, 16 << 10, 32 << 10, 64 << 10, 128 << 10];
    let mut sizes: Vec<(usize, usize)> = Vec::new();
    for edge in edges {
        for payload in [edge.saturating_sub(1), edge, edge + 1] {
            sizes.push((random.below(300) as usize, payload));
        }
        sizes.push((edge, 3));
    }
    sizes.push((FRAME_BODY_BYTES_MAX, 0));
    sizes.push((0, FRAME_PAYLOAD_BYTES_MAX));
    sizes.push((FRAME_BODY_BYTES_MAX, FRAME_PAYLOAD_BYTES_MAX));
    for _ in 0..100 {
        sizes.push((random.below(200) as usize, random.below(2000) as usize));
    }
    let frames = sizes.into_iter();
    frames
        .map(|(body, payload)| frame(&mut random, body, payload))
        .collect()
}

/// A stream that moves a random number of bytes at a time, now and then none.
struct Halting {
    stream: DuplexStream,
    random: Random,
    bytes_max: u64,
}

impl Halting {
    /// How much may move now; 0 for "not now".
    fn turn(&mut self, cx: &Context<'_>) -> usize {
        let bytes = self.random.below(self.bytes_max) as usize;
        if bytes == 0 {
            cx.waker().wake_by_ref();
        }
        bytes
    }
}

impl AsyncRead for Halting {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let bytes = self.turn(cx);
        if bytes == 0 {
            return Poll::Pending;
        }
        let mut part = vec![0; bytes.min(buf.remaining())];
        let mut part = ReadBuf::new(&mut part);
        let outcome = Pin::new(&mut self.stream).poll_read(cx, &mut part);
        buf.put_slice(part.filled());
        outcome
    }
}

impl AsyncWrite for Halting {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let count = self.turn(cx).min(bytes.len());
        if count == 0 {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_write(cx, &bytes[..count])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Sends `sent` from one end to the other and looks whether the same comes out, and then the end.
async fn pass(sent: Vec<Frame>, mut from: Connection, mut to: Connection) {
    let expected = sent.clone();
    let bytes: usize = sent.iter().map(Frame::wire_bytes).sum();
    let sending = async {
        let mut random = Random::new(9);
        for frame in sent {
            from.writer.write(frame).await.unwrap();
            if random.chance(0.1) {
                from.writer.flush().await.unwrap();
            }
        }
        from.writer.finish().await.unwrap();
        assert_eq!(from.writer.bytes_written(), bytes as u64);
    };
    let receiving = async {
        for (number, expected) in expected.into_iter().enumerate() {
            let frame = to.reader.read().await.unwrap();
            assert!(frame == expected, "frame {number} came out otherwise");
        }
        assert!(matches!(to.reader.read().await, Err(LinkError::Closed)));
        assert_eq!(to.reader.bytes_read(), bytes as u64);
    };
    tokio::join!(sending, receiving);
}

#[tokio::test]
async fn frames_of_all_sizes_pass_whatever_the_pieces_are() {
    for (seed, bytes_max) in [(1, 2), (2, 50), (3, 5000), (4, 200_000)] {
        let (a, b) = duplex(100_000);
        let halting = |stream, seed| Halting {
            stream,
            random: Random::new(seed),
            bytes_max,
        };
        let mut frames = frames(seed);
        if bytes_max < 5000 {
            // Byte by byte the large ones would take minutes and show nothing more.
            frames.retain(|frame| frame.wire_bytes() < 40_000);
        }
        let ends = (
            over(halting(a, seed), SOMEWHERE),
            over(halting(b, seed + 9), SOMEWHERE),
        );
        pass(frames, ends.0, ends.1).await;
    }
}

/// Both ends of a connection over a loopback socket.
async fn sockets(with_tls: bool) -> (Connection, Connection) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (client_tls, server_tls) = if with_tls {
        let authority = Authority::create(ClusterId([1; 16])).unwrap();
        let server = authority.issue_server().unwrap();
        let verifier = ClientVerifier::new(&server).unwrap();
        let kind = CredentialKind::Host;
        let client = authority
            .issue_local(kind, "test", SystemTime::now())
            .unwrap();
        let client = (client_config(&client).unwrap(), server_name());
        (
            Some(client),
            Some(server_config(&server, &verifier).unwrap()),
        )
    } else {
        (None, None)
    };
    let serving = async {
        let (stream, peer) = listener.accept().await.unwrap();
        accept(stream, peer, server_tls).await.unwrap()
    };
    let time_max = Duration::from_secs(20);
    let (client, server) = tokio::join!(connect(address, client_tls, time_max), serving);
    let client = client.unwrap();
    assert_eq!((client.encrypted, server.encrypted), (with_tls, with_tls));
    assert_eq!(server.peer_certificates.is_empty(), !with_tls);
    (client, server)
}

#[tokio::test]
async fn frames_of_all_sizes_pass_over_sockets_with_tls_and_without() {
    for with_tls in [false, true] {
        let (client, server) = sockets(with_tls).await;
        pass(frames(5), client, server).await;
        let (client, server) = sockets(with_tls).await;
        pass(frames(6), server, client).await;
    }
}

#[tokio::test]
async fn payloads_carry_a_checksum_where_nothing_else_protects_them() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let connecting = connect(address, None, Duration::from_secs(20));
    let (client, stream) = tokio::join!(connecting, listener.accept());
    let (mut client, mut stream) = (client.unwrap(), stream.unwrap().0);
    let sent = frame(&mut Random::new(1), 10, 100);
    client.writer.write(sent.clone()).await.unwrap();
    client.writer.flush().await.unwrap();
    let mut bytes = vec![0; sent.wire_bytes()];
    stream.read_exact(&mut bytes).await.unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    let (mut raw, end) = duplex(10_000);
    raw.write_all(&bytes).await.unwrap();
    let damaged = over(end, SOMEWHERE).reader.read().await;
    assert!(matches!(
        damaged,
        Err(LinkError::Frame(FrameError::PayloadChecksum))
    ));
}

/// A stream that notes from where it is written.
struct Noting(Arc<Mutex<Vec<(usize, usize)>>>);

impl AsyncRead for Noting {
    fn poll_read(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        _buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Noting {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let places = slices
            .iter()
            .map(|slice| (slice.as_ptr().addr(), slice.len()));
        self.0.lock().unwrap().extend(places);
        Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn the_pieces_of_a_payload_are_written_from_where_they_lie() {
    let noted = Arc::new(Mutex::new(Vec::new()));
    let mut connection = over(Noting(noted.clone()), SOMEWHERE);
    let pieces: Vec<Bytes> = (0..100).map(|at| Bytes::from(vec![at; 5000])).collect();
    let places = pieces
        .iter()
        .map(|piece| (piece.as_ptr().addr(), piece.len()));
    let places: Vec<_> = places.collect();
    let sent = Frame {
        payload: pieces.iter().cloned().collect(),
        ..frame(&mut Random::new(1), 10, 0)
    };
    connection.writer.write(sent).await.unwrap();
    let noted = noted.lock().unwrap();
    assert_eq!(noted[0].1, HEADER_BYTES + 10);
    assert_eq!(noted[1..], places);
}

/// What a connection says to raw bytes.
async fn reads(bytes: &[u8]) -> Result<Frame, LinkError> {
    let (mut raw, end) = duplex(1 << 20);
    raw.write_all(bytes).await.unwrap();
    drop(raw);
    over(end, SOMEWHERE).reader.read().await
}

fn encoded(frame: &Frame) -> Vec<u8> {
    let payload = frame.payload.clone().into_bytes();
    [&frame.encode_header(true)[..], &frame.body, &payload].concat()
}

#[tokio::test]
async fn a_connection_that_ends_within_a_frame_is_no_orderly_end() {
    let frame = frame(&mut Random::new(2), 40, 60);
    let bytes = encoded(&frame);
    assert!(matches!(reads(&[]).await, Err(LinkError::Closed)));
    for len in 1..bytes.len() {
        let outcome = reads(&bytes[..len]).await;
        let cut_off = |e: &std::io::Error| e.kind() == std::io::ErrorKind::UnexpectedEof;
        assert!(
            matches!(&outcome, Err(LinkError::Io(e)) if cut_off(e)),
            "{len}: {outcome:?}"
        );
    }
    assert_eq!(reads(&bytes).await.unwrap(), frame);
}

#[tokio::test]
async fn damage_anywhere_in_the_stream_ends_it_with_an_error() {
    let bytes = encoded(&frame(&mut Random::new(3), 20, 30));
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(reads(&bad).await.is_err(), "bit {bit}");
    }
}

/// Large enough for a frame to be begun, too small for it to be finished.
const SMALL: usize = 4096;

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_is_given_up_after_the_stated_time() {
    let (end, _peer) = duplex(SMALL);
    let mut connection = over(end, SOMEWHERE);
    let began = tokio::time::Instant::now();
    let large = frame(&mut Random::new(4), 0, 1 << 20);
    let outcome = connection.writer.write(large).await;
    assert!(matches!(outcome, Err(LinkError::Stalled(_))), "{outcome:?}");
    assert_eq!(began.elapsed(), WRITE_STALL_TIME_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_slowly_is_not_given_up() {
    let (end, mut peer) = duplex(SMALL);
    let mut connection = over(end, SOMEWHERE);
    let large = frame(&mut Random::new(4), 0, 64 << 10);
    let bytes = large.wire_bytes();
    let reading = async {
        let mut buffer = vec![0; SMALL];
        let mut read = 0;
        while read < bytes {
            tokio::time::sleep(WRITE_STALL_TIME_MAX - Duration::from_secs(1)).await;
            read += peer.read(&mut buffer).await.unwrap();
        }
    };
    let writing = async {
        connection.writer.write(large).await.unwrap();
        connection.writer.flush().await.unwrap();
    };
    tokio::join!(reading, writing);
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_was_begun_must_be_complete_in_time_however_slowly_it_trickles() {
    let (mut raw, end) = duplex(SMALL);
    let mut reader = over(end, SOMEWHERE).reader;
    let frame_time_max = Duration::from_secs(10);
    let bytes = encoded(&frame(&mut Random::new(5), 100, 100));
    let trickling = async {
        // Silence between frames is no offence.
        tokio::time::sleep(Duration::from_secs(3600)).await;
        for byte in &bytes {
            if raw.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let reading = async {
        let began = tokio::time::Instant::now();
        let outcome = reader.read_within(frame_time_max).await;
        assert!(matches!(outcome, Err(LinkError::Stalled(_))), "{outcome:?}");
        let waited = began.elapsed();
        assert_eq!(waited, Duration::from_secs(3600) + frame_time_max);
        drop(reader);
    };
    tokio::join!(trickling, reading);
}

#[tokio::test(start_paused = true)]
async fn halves_of_frames_take_no_more_room_than_their_readers_share() {
    let large = frame(&mut Random::new(6), 0, 64 << 10);
    let bytes = encoded(&large);
    let room = Arc::new(Semaphore::new(100 << 10));
    let reader = || {
        let (raw, end) = duplex(2 * bytes.len());
        let mut reader = over(end, SOMEWHERE).reader;
        reader.share_room(room.clone());
        (raw, reader)
    };
    let ((mut slow, mut first), (mut quick, mut second)) = (reader(), reader());
    let (half, rest) = bytes.split_at(bytes.len() / 2);
    slow.write_all(half).await.unwrap();
    let first = tokio::spawn(async move { first.read().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    quick.write_all(&bytes).await.unwrap();
    let second = tokio::spawn(async move { second.read().await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!second.is_finished(), "there is room for one only");
    slow.write_all(rest).await.unwrap();
    assert_eq!(first.await.unwrap().unwrap(), large);
    assert_eq!(second.await.unwrap().unwrap(), large);
    assert_eq!(room.available_permits(), 100 << 10);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_says_nothing_does_not_hold_a_client_for_ever() {
    let authority = Authority::create(ClusterId([1; 16])).unwrap();
    let kind = CredentialKind::Host;
    let client = authority
        .issue_local(kind, "test", SystemTime::now())
        .unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = Some((client_config(&client).unwrap(), server_name()));
    let time_max = Duration::from_secs(7);
    let outcome = connect(address, tls, time_max).await;
    assert!(matches!(outcome.err(), Some(LinkError::Stalled(after)) if after == time_max));
}
