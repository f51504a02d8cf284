//! From an address on the command line to a session with the server.
//!
//! A server on this machine may have been started a moment ago (`azekura server ... &` and the next
//! command behind it), so a refused connection to a loopback address is tried again for a few
//! seconds; longer if somebody has taken the address, as a server does that makes its store first.
//! A server takes its address before it makes its administrator's credential: where this user has
//! none and nobody has taken the address, only as long as a program needs to start. Elsewhere a
//! refusal is an answer and is reported at once.

use crate::address::{Address, VolumeAddress};
use crate::cli::Signals;
use crate::config::{Config, Span};
use crate::errors::{Code, Failure, Result, from_admin, plain_io};
use crate::heard::why_unreachable;
use base::Principal;
use client::transport::{CallError, ConnectError, Endpoint, Transport, TransportOptions};
use client::volume::Volume;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpSocket, TcpStream};
use wire::link::LinkError;
use wire::message::{AdminReply, AdminRequest, Farewell};

/// How long a server on this machine is given to come up.
const START_TIME_MAX: Duration = Duration::from_secs(5);
/// How long it has until it has taken its address, also on a busy machine, if this user has no
/// credential for it: most likely the port is mistyped.
const TAKE_TIME_MAX: Duration = Duration::from_secs(1);
/// How long, if it has taken its address: a new one makes its first store before it listens.
const PREPARE_TIME_MAX: Duration = Duration::from_secs(30);
/// How long managers of which none leads are given to agree on one: a seat that is silent is free
/// after some seconds, and the next one lets as many pass.
const TAKEOVER_TIME_MAX: Duration = Duration::from_secs(20);
/// How often it is tried meanwhile.
const START_RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// How long name resolution may take.
const RESOLVE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a server is given to take note that a session ends.
pub(crate) const GOODBYE_TIME_MAX: Duration = Duration::from_secs(1);

/// How a command talks to a server.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct WayArgs {
    /// Connect without TLS; the server must run with --plain
    #[arg(long)]
    pub(crate) plain: bool,
    /// Give up when the server has not answered for this long [default: 30s]
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Span>,
}

/// Threads of a runtime at most. One thread carries 0.7 GB/s under TLS where two processors are
/// shared with the server (measured); more than this many would outrun any line.
const RUNTIME_THREADS_MAX: usize = 16;

/// The runtime under every command that talks to a server. It has half of the processors: the
/// others are the kernel's and the programs'. With as many threads as processors, waking another
/// thread costs more than it brings (reading over loopback on two: 0.78 GB/s instead of 0.97).
///
/// # Errors
/// If the system gives no threads.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads((processors / 2).clamp(1, RUNTIME_THREADS_MAX))
        .enable_all()
        .build()
        .map_err(|error| {
            Failure::local("cannot start threads", plain_io(&error))
                .hint("this user is at a limit: `ulimit -a` shows them")
        })
}

/// The addresses that a server's name stands for.
///
/// # Errors
/// [`Code::Resolve`].
pub(crate) async fn resolve(server: &Address) -> Result<Vec<SocketAddr>> {
    let (mut found, mut failure) = (Vec::new(), None);
    for one in server.each() {
        match resolve_one(&one).await {
            Ok(addresses) => found.extend(addresses),
            Err(error) => failure = Some(error),
        }
    }
    match (found.is_empty(), failure) {
        // Of several managers the others may do.
        (true, Some(failure)) => Err(failure),
        _ => Ok(found),
    }
}

async fn resolve_one(server: &Address) -> Result<Vec<SocketAddr>> {
    let failed = |why: String| {
        Failure::new(
            Code::Resolve,
            format!("cannot resolve {:?}: {why}", server.host),
        )
    };
    let lookup = tokio::net::lookup_host((server.host.as_str(), server.port));
    let found = tokio::time::timeout(RESOLVE_TIME_MAX, lookup).await;
    let found = found.map_err(|_| failed("no answer from the name service".to_owned()))?;
    let addresses: Vec<SocketAddr> = found.map_err(|error| failed(error.to_string()))?.collect();
    if addresses.is_empty() {
        return Err(failed("the name has no address".to_owned()));
    }
    Ok(addresses)
}

/// The credential and address with which a server is connected to.
///
/// # Errors
/// [`Code::Resolve`], [`Code::NoCredential`], [`Code::BadCredential`].
pub(crate) async fn endpoint(config: &Config, server: &Address, plain: bool) -> Result<Endpoint> {
    let addresses = resolve(server).await?;
    if plain && !addresses.iter().all(|address| address.ip().is_loopback()) {
        tracing::warn!(%server, "without TLS, everything can be read and changed on the way");
    }
    let credential = config.credential(server, &addresses)?;
    Ok(Endpoint {
        name: server.to_string(),
        addresses,
        credential: Arc::new(credential),
        plain,
        host: host_name(),
        server: None,
    })
}

/// Connects, as the configuration and the flags say.
///
/// # Errors
/// What stands in the way, with its code.
pub(crate) async fn connect(
    config: &Config,
    server: &Address,
    way: &WayArgs,
    options: TransportOptions,
) -> Result<Transport> {
    let options = TransportOptions {
        request_time_max: config.timeout(server, way.timeout),
        ..options
    };
    let plain = config.is_plain(server, way.plain);
    let begin = Instant::now();
    let deadline = begin + START_TIME_MAX.min(options.request_time_max);
    let last = begin + PREPARE_TIME_MAX.min(options.request_time_max);
    let takeover = begin + TAKEOVER_TIME_MAX.min(options.request_time_max);
    loop {
        let failure = match attempt(config, server, plain, &options).await {
            Ok(transport) => return Ok(transport),
            Err(Attempt::Final(failure)) => return Err(failure),
            Err(Attempt::NotYet(failure)) => failure,
        };
        let now = Instant::now();
        let is_stranger = failure.code() == Code::NoCredential;
        if is_stranger && now >= begin + TAKE_TIME_MAX && is_free(server).await {
            return Err(failure);
        }
        if !server.others.is_empty() && now < takeover {
            tokio::time::sleep(START_RETRY_INTERVAL).await;
            continue;
        }
        if now >= last || (now >= deadline && !is_taken(server).await) {
            return Err(failure);
        }
        tokio::time::sleep(START_RETRY_INTERVAL).await;
    }
}

/// How one try to connect failed.
enum Attempt {
    /// It may be that a server on this machine is just starting.
    NotYet(Failure),
    Final(Failure),
}

async fn attempt(
    config: &Config,
    server: &Address,
    plain: bool,
    options: &TransportOptions,
) -> Result<Transport, Attempt> {
    let endpoint = match endpoint(config, server, plain).await {
        Ok(endpoint) => endpoint,
        // The server writes its administrator's credential before it listens.
        Err(failure) if failure.code() == Code::NoCredential => {
            let listens = is_listening(server).await;
            return Err(if listens {
                Attempt::Final(failure)
            } else {
                Attempt::NotYet(failure)
            });
        }
        Err(failure) => return Err(Attempt::Final(failure)),
    };
    let is_near = endpoint
        .addresses
        .iter()
        .all(|address| address.ip().is_loopback());
    let has_others = !server.others.is_empty();
    Transport::connect(endpoint, options.clone())
        .await
        .map_err(|error| {
            if (is_near && is_refusal(&error)) || (has_others && is_standby(&error)) {
                Attempt::NotYet(error.into())
            } else {
                Attempt::Final(error.into())
            }
        })
}

/// Whether all managers that answer stand by: soon one of them leads.
fn is_standby(error: &ConnectError) -> bool {
    let ConnectError::Refused { reason, .. } = error else {
        return false;
    };
    matches!(reason, Farewell::Standby { .. })
}

fn is_refusal(error: &ConnectError) -> bool {
    let ConnectError::Unreachable { error, .. } = error else {
        return false;
    };
    matches!(error, LinkError::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Whether a near server accepts connections already; of far ones it does not matter.
async fn is_listening(server: &Address) -> bool {
    let Ok(addresses) = resolve(server).await else {
        return true;
    };
    if !addresses.iter().all(|address| address.ip().is_loopback()) {
        return true;
    }
    let connecting = TcpStream::connect(addresses.as_slice());
    matches!(
        tokio::time::timeout(START_TIME_MAX, connecting).await,
        Ok(Ok(_))
    )
}

/// Whether somebody has taken an address of this machine and may listen on it later.
async fn is_taken(server: &Address) -> bool {
    let Ok(addresses) = resolve(server).await else {
        return false;
    };
    addresses
        .iter()
        .any(|address| is_held(*address) && !has_remains(address.port()))
}

/// Whether nobody has taken an address of this machine, nor does it hold anything of somebody who
/// had.
async fn is_free(server: &Address) -> bool {
    let addresses = resolve(server).await;
    addresses.is_ok_and(|addresses| !addresses.iter().any(|address| is_held(*address)))
}

fn is_held(address: SocketAddr) -> bool {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let bound = socket.and_then(|socket| socket.bind(address));
    bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

/// Whether connections of a server that has ended still hold the port, as those of its mounts do
/// for a minute. Then that the port is taken says nothing of a server to come.
fn has_remains(port: u16) -> bool {
    let table = |family: &str| std::fs::read_to_string(format!("/proc/net/{family}"));
    ["tcp", "tcp6"].iter().any(|family| {
        let table = table(family).unwrap_or_default();
        table.lines().any(|line| is_connection(line, port))
    })
}

/// Whether a line of `/proc/net/tcp` is of a connection, not of a listener, at this local port. A
/// socket that is only bound has no line there.
fn is_connection(line: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace().skip(1);
    let local = fields.next().and_then(|local| local.rsplit_once(':'));
    let state = fields.nth(1);
    local.is_some_and(|(_, hex)| u16::from_str_radix(hex, 16) == Ok(port))
        && state.is_some_and(|state| state != LISTEN)
}

/// Connects and enters a volume.
///
/// # Errors
/// As [`connect`], and what keeps this credential out of the volume.
pub(crate) async fn enter(
    config: &Config,
    address: &VolumeAddress,
    way: &WayArgs,
    options: TransportOptions,
) -> Result<Arc<Volume>> {
    let options = TransportOptions {
        volume: Some(address.volume.clone()),
        ..options
    };
    let transport = connect(config, &address.server, way, options).await?;
    match Volume::attach(transport.clone(), &address.volume).await {
        Ok(volume) => Ok(volume),
        Err(error) => {
            transport.close(GOODBYE_TIME_MAX).await;
            Err(enter_failed(address, error))
        }
    }
}

/// What it means that a volume could not be entered.
pub(crate) fn enter_failed(volume: &VolumeAddress, error: CallError) -> Failure {
    match error {
        CallError::Failed(base::FsError::NotFound) => {
            Failure::new(Code::NotFound, format!("there is no volume {volume}")).hint(format!(
                "azekura volume list {} shows what there is",
                volume.server
            ))
        }
        other => Failure::from(other).during(format!("volume {volume}")),
    }
}

/// Works until it is done, or a signal asks the process to end. Then what was begun is dropped, and
/// whoever called can say goodbye to the server: it would wait for a session that just breaks off,
/// and with it everybody who wants to change what that session had cached.
///
/// # Errors
/// The work's, or [`Code::Interrupted`].
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut signals = Signals::new()?;
    tokio::select! {
        outcome = work => outcome,
        () = signals.wait() => Err(Failure::interrupted("interrupted")),
    }
}

/// Asks one thing of a server's administration.
///
/// # Errors
/// That of the way there, and the server's own.
pub(crate) async fn admin(
    config: &Config,
    server: &Address,
    way: &WayArgs,
    request: AdminRequest,
) -> Result<AdminReply> {
    let options = TransportOptions {
        connections: 1,
        ..TransportOptions::default()
    };
    let transport = connect(config, server, way, options).await?;
    let reply = transport.admin(request).await;
    transport.close(GOODBYE_TIME_MAX).await;
    if matches!(reply, Err(CallError::TimedOut))
        && let Some(why) = why_unreachable(server).await
    {
        return Err(why);
    }
    match reply? {
        AdminReply::Failed { code, message } => Err(from_admin(server, code, &message)),
        reply => Ok(reply),
    }
}

/// A reply that is none to the question.
pub(crate) fn unexpected_reply(server: &Address) -> Failure {
    Failure::new(
        Code::Protocol,
        format!("{server} answered something else than was asked"),
    )
}

/// For whom this process asks: for its user, or with the credential of another one for that one.
pub(crate) fn principal(transport: &Transport) -> Result<Principal> {
    let own = transport.own();
    if own.uid != 0 && own.uid != rustix::process::geteuid().as_raw() {
        return Ok(own.clone());
    }
    let groups = rustix::process::getgroups()
        .map_err(|error| Failure::local("cannot read this user's groups", error))?;
    Ok(Principal::new(
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
        groups
            .into_iter()
            .map(rustix::process::Gid::as_raw)
            .collect(),
    ))
}

/// This machine's name, for the server's lists.
pub(crate) fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_hold_a_port_as_well_as_listeners() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt";
        let line =
            |state: &str| format!("   1: 0100007F:1E1F 0100007F:D754 {state} 00000000:00000000");
        assert!(is_connection(&line("06"), 7711), "TIME_WAIT");
        assert!(!is_connection(&line("0A"), 7711), "LISTEN");
        assert!(!is_connection(&line("06"), 55124), "the other end's");
        assert!(!is_connection(head, 7711));
    }
}
