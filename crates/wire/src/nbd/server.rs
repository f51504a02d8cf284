//! Listening, and the connections of one device.

use super::work::Served;
use super::{Export, connection};
use crate::link;
use base::limits::{NBD_CONNECTIONS_MAX, NBD_STOP_TIME_MAX};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;
/// After the system could not give a connection (no descriptors left, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where clients come in. A path that it has made goes with it.
#[derive(Debug)]
pub struct Listener(Kind);

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// A connection that has come in.
enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Listener {
    /// Listens on an address.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn tcp(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self(Kind::Tcp(TcpListener::from_std(socket.into())?)))
    }

    /// Listens on a socket of this machine, which only this user may use. A socket that somebody
    /// who is gone has left there is replaced.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::AddrInUse`] if there is something that lives.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let address = SockAddr::unix(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        if let Err(error) = socket.bind(&address) {
            if error.kind() != io::ErrorKind::AddrInUse || !is_left_over(path) {
                return Err(error);
            }
            fs::remove_file(path)?;
            socket.bind(&address)?;
        }
        // Nobody connects before it listens.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        let listener = UnixListener::from_std(StdUnixListener::from(socket))?;
        Ok(Self(Kind::Unix(listener, path.to_owned())))
    }

    /// Where it listens: `HOST:PORT` with the port that it was given, or `unix:PATH`.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.0 {
            Kind::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|_| String::new(), |address| address.to_string()),
            Kind::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    async fn accept(&self) -> io::Result<Accepted> {
        match &self.0 {
            Kind::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                link::prepare(&stream)?;
                Ok(Accepted::Tcp(stream))
            }
            Kind::Unix(listener, _) => Ok(Accepted::Unix(listener.accept().await?.0)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Kind::Unix(_, path) = &self.0 {
            // Somebody may have removed it already.
            let _ = fs::remove_file(path);
        }
    }
}

/// Whether there is a socket on which nobody listens.
fn is_left_over(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    is_socket && StdUnixStream::connect(path).is_err_and(is_refused)
}

/// Serves one device.
pub struct Server {
    served: Arc<Served>,
}

impl Server {
    /// Of this device, whose length stays what it is.
    #[must_use]
    pub fn new(export: Export) -> Self {
        Self {
            served: Arc::new(Served::new(export)),
        }
    }

    /// Serves all who come until `stop` is over; then no request is taken any more, and those that
    /// are under way have [`NBD_STOP_TIME_MAX`]. The device is not flushed by that.
    pub async fn run(&self, listener: Listener, stop: impl Future<Output = ()>) {
        let (stopping, _) = watch::channel(false);
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok(_) if connections.len() >= NBD_CONNECTIONS_MAX => {
                        tracing::warn!("a connection is closed: there are {NBD_CONNECTIONS_MAX}");
                    }
                    Ok(stream) => {
                        let stop = stopping.subscribe();
                        connections.spawn(connected(stream, Arc::clone(&self.served), stop));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        stopping.send_replace(true);
        let all = async { while connections.join_next().await.is_some() {} };
        if timeout(NBD_STOP_TIME_MAX, all).await.is_err() {
            tracing::warn!("requests that take too long are given up");
        }
    }
}

async fn connected(stream: Accepted, served: Arc<Served>, stop: watch::Receiver<bool>) {
    tracing::debug!("a client has connected");
    let outcome = match stream {
        Accepted::Tcp(stream) => {
            let (reader, writer) = stream.into_split();
            connection::serve(reader, writer, served, stop).await
        }
        Accepted::Unix(stream) => {
            let (reader, writer) = stream.into_split();
            connection::serve(reader, writer, served, stop).await
        }
    };
    match outcome {
        Ok(()) => tracing::debug!("a client has gone"),
        Err(error) => tracing::info!(%error, "a client's connection is closed"),
    }
}
