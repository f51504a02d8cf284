//! Connections: a TCP socket, TLS or not, as a stream of frames.
//!
//! [`FrameReader`] and [`FrameWriter`] are owned by one task each. Nothing here decides what is
//! sent or when; that is [`crate::session`] at the client and the dispatcher at the server.
//!
//! Socket options, and why: `TCP_NODELAY`, because small requests must not wait for
//! acknowledgements; CUBIC, and for bulk data BBR ([`BulkSocket`] says when and why); no
//! `SO_SNDBUF` or `SO_RCVBUF`, because setting them turns the kernel's tuning off;
//! `TCP_USER_TIMEOUT` and keep-alive, because a cut line must be noticed; `TCP_NOTSENT_LOWAT`, so
//! that bytes wait in our queues, ordered by class, and not in the kernel's.

mod reader;
mod spare;
mod writer;

pub use reader::FrameReader;
pub use writer::FrameWriter;

use crate::frame::FrameError;
use base::limits::{HANDSHAKE_TIME_MAX, WRITE_STALL_TIME_MAX};
use rustls::pki_types::{CertificateDer, ServerName};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Bytes that the kernel may hold unsent for one socket before it stops asking for more.
const UNSENT_BYTES_MAX: u32 = 256 << 10;

/// Bytes sent on a connection for bulk data after which it is given to BBR: a cold connection is
/// through five rounds of slow start by then.
const BULK_BYTES_MIN: u64 = 384 << 10;

/// Why a connection ended or never began.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The socket failed.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    /// The peer sent something that is not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Nothing moved for too long.
    #[error("no progress for {0:?}")]
    Stalled(Duration),
    /// The peer closed the connection between two frames.
    #[error("connection closed by the peer")]
    Closed,
}

/// The two halves of a connection.
pub struct Connection {
    /// Frames from the peer.
    pub reader: FrameReader,
    /// Frames to the peer.
    pub writer: FrameWriter,
    /// Certificates that the peer proved under TLS, its own first. Empty without TLS or without
    /// one.
    pub peer_certificates: Vec<CertificateDer<'static>>,
    /// Whether TLS protects the bytes.
    pub encrypted: bool,
    /// Where the peer is.
    pub peer: SocketAddr,
    /// The socket below; `None` over other streams.
    pub socket: Option<BulkSocket>,
}

/// Congestion control of a connection that carries bulk data.
///
/// *CUBIC first.* BBR spreads each burst over time by the low rate that it has seen between pauses,
/// so that exchanges of small bursts never make it faster. CUBIC sends what its window allows at
/// once, and the window doubles each round trip; but only on a socket that never had BBR, because
/// the pacing that BBR turns on stays on (a 128 KiB answer then took a quarter of a round trip
/// longer at 100 ms).
///
/// *Then BBR*, after [`BULK_BYTES_MIN`], because loss is not congestion on long lines. It starts
/// from the window that it finds.
///
/// *Anew when the line has changed.* BBR believes the smallest round trip of ten seconds, and takes
/// eighty round trips to find a tenfold rate. Given to the socket again it doubles its rate each
/// round trip; but it would begin with the smallest round trip of the connection's life, so on a
/// line that has become longer CUBIC takes over, in slow start, until the connection ends.
pub struct BulkSocket {
    socket: OwnedFd,
    stage: AtomicU8,
}

/// The stages of a [`BulkSocket`].
const YOUNG: u8 = 0;
const GROWN: u8 = 1;
const LONGER: u8 = 2;

impl BulkSocket {
    fn of(stream: &TcpStream) -> Option<Self> {
        let socket = stream.as_fd().try_clone_to_owned().ok()?;
        let stage = AtomicU8::new(YOUNG);
        Some(Self { socket, stage })
    }

    /// The connection has carried so many bytes from here.
    pub fn on_written(&self, bytes_written: u64) {
        if bytes_written >= BULK_BYTES_MIN && self.stage.load(Ordering::Relaxed) == YOUNG {
            self.stage.store(GROWN, Ordering::Relaxed);
            set_congestion(&self.socket, "bbr");
        }
    }

    /// The line has changed: its round trip has grown (`is_longer`), or its rate.
    pub fn restart(&self, is_longer: bool) {
        if is_longer {
            self.stage.store(LONGER, Ordering::Relaxed);
        }
        // What a socket has already is not begun anew, so it goes through other hands. Only BBR
        // forgets where slow start has ended, which a step of the round trip sets very low.
        let names: &[&str] = match self.stage.load(Ordering::Relaxed) {
            LONGER => &["cubic", "bbr", "cubic"],
            GROWN => &["cubic", "bbr"],
            _ => return,
        };
        for name in names {
            set_congestion(&self.socket, name);
        }
    }
}

fn set_congestion(socket: impl AsFd, name: &str) {
    if let Err(error) = rustix::net::sockopt::set_tcp_congestion(socket, name) {
        tracing::debug!(%error, name, "congestion control is not available");
    }
}

/// Sets what a listening socket hands on to those that it accepts, or a socket must have before it
/// connects: see [`BulkSocket`].
pub fn prepare_unconnected(socket: impl AsFd) {
    set_congestion(socket, "cubic");
}

pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(5))
        .with_interval(Duration::from_secs(5))
        .with_retries(4);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(WRITE_STALL_TIME_MAX))?;
    // This only makes things better; a kernel without it still works.
    if let Err(error) = socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX) {
        tracing::debug!(%error, "TCP_NOTSENT_LOWAT is not available");
    }
    Ok(())
}

fn join(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    certificates: Option<&[CertificateDer<'_>]>,
    peer: SocketAddr,
) -> Connection {
    let (read, write) = tokio::io::split(stream);
    Connection {
        reader: FrameReader::new(Box::pin(read)),
        writer: FrameWriter::new(Box::pin(write), false),
        peer_certificates: certificates
            .unwrap_or_default()
            .iter()
            .map(|c| c.clone().into_owned())
            .collect(),
        encrypted: true,
        peer,
        socket: None,
    }
}

fn join_plain(stream: TcpStream, peer: SocketAddr) -> Connection {
    let socket = BulkSocket::of(&stream);
    let (read, write) = stream.into_split();
    Connection {
        reader: FrameReader::new(Box::pin(read)),
        writer: FrameWriter::new(Box::pin(write), true),
        peer_certificates: Vec::new(),
        encrypted: false,
        peer,
        socket,
    }
}

/// Connects to `address`, with TLS if a configuration is given.
///
/// # Errors
/// [`LinkError::Io`] where the socket or the handshake fails, [`LinkError::Stalled`] after
/// `time_max`.
pub async fn connect(
    address: SocketAddr,
    tls: Option<(Arc<rustls::ClientConfig>, ServerName<'static>)>,
    time_max: Duration,
) -> Result<Connection, LinkError> {
    let attempt = async {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        prepare_unconnected(&socket);
        let stream = socket.connect(address).await?;
        prepare(&stream)?;
        match tls {
            None => Ok(join_plain(stream, address)),
            Some((config, name)) => {
                let socket = BulkSocket::of(&stream);
                let stream = TlsConnector::from(config).connect(name, stream).await?;
                let handshake = stream.get_ref().1.handshake_kind();
                tracing::debug!(%address, ?handshake, "encrypted");
                let certificates = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec);
                Ok(Connection {
                    socket,
                    ..join(stream, certificates.as_deref(), address)
                })
            }
        }
    };
    match tokio::time::timeout(time_max, attempt).await {
        Ok(outcome) => outcome,
        Err(_) => Err(LinkError::Stalled(time_max)),
    }
}

/// Makes a connection of an accepted socket, with TLS if a configuration is given.
///
/// # Errors
/// As [`connect`]; the handshake has [`HANDSHAKE_TIME_MAX`].
pub async fn accept(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<Arc<rustls::ServerConfig>>,
) -> Result<Connection, LinkError> {
    prepare(&stream)?;
    let Some(config) = tls else {
        return Ok(join_plain(stream, peer));
    };
    let socket = BulkSocket::of(&stream);
    match tokio::time::timeout(HANDSHAKE_TIME_MAX, TlsAcceptor::from(config).accept(stream)).await {
        Ok(stream) => {
            let stream = stream?;
            let certificates = stream.get_ref().1.peer_certificates().map(<[_]>::to_vec);
            Ok(Connection {
                socket,
                ..join(stream, certificates.as_deref(), peer)
            })
        }
        Err(_) => Err(LinkError::Stalled(HANDSHAKE_TIME_MAX)),
    }
}

/// Takes one half of a connection over any byte stream (tests, tunnels).
#[must_use]
pub fn over(stream: impl AsyncRead + AsyncWrite + Send + 'static, peer: SocketAddr) -> Connection {
    let mut connection = join(stream, None, peer);
    connection.encrypted = false;
    connection
}
