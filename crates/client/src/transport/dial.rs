//! One connection, from an address to a welcome.

use super::TransportOptions;
use crate::clock::now;
use base::limits::HANDSHAKE_TIME_MAX;
use base::{BootId, RequestId, ServerId, SessionId};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::ClientConfig;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use wire::frame::{Frame, FrameKind};
use wire::identity::{Credential, IdentityError};
use wire::link::{self, Connection, LinkError};
use wire::message::{ConnectionRole, Farewell, Features, Hello, Welcome, decode, frame};
use wire::version::WireVersion;

/// Where a server is and how to prove oneself to it.
#[derive(Clone)]
pub struct Endpoint {
    /// As the user wrote it, for messages.
    pub name: String,
    /// Addresses to try in turn: of one server, or of several managers, of which one answers.
    pub addresses: Vec<SocketAddr>,
    /// Credential of this client.
    pub credential: Arc<Credential>,
    /// Whether to go without TLS.
    pub plain: bool,
    /// Name of this machine, for the server's lists.
    pub host: String,
    /// The storage server that is to answer; none for the manager of the cluster.
    pub server: Option<ServerId>,
}

/// Why no connection could be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No address answered; the last one's error.
    #[error("{name} cannot be reached: {error}")]
    Unreachable {
        /// The server as the user wrote it.
        name: String,
        /// What the last address said.
        error: LinkError,
    },
    /// The server ended the connection and said why.
    #[error("{name} refused the connection: {reason}")]
    Refused {
        /// The server as the user wrote it.
        name: String,
        /// Its reason.
        reason: Farewell,
    },
    /// It is not a server of ours.
    #[error("{name} does not answer as an Azekura server")]
    Protocol {
        /// The server as the user wrote it.
        name: String,
    },
    /// The credential of this client is not usable.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The system has no randomness.
    #[error("no random numbers from the operating system")]
    Random,
}

/// A connection that has been welcomed.
pub(super) struct Dialled {
    pub(super) connection: Connection,
    /// Where it is.
    pub(super) address: SocketAddr,
    pub(super) welcome: Welcome,
    /// From the greeting to its answer: one round trip, and a moment at the server.
    pub(super) greeting_time: Duration,
}

pub(super) fn random_bytes<const N: usize>() -> Result<[u8; N], ConnectError> {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| ConnectError::Random)?;
    Ok(bytes)
}

pub(super) fn hello(
    endpoint: &Endpoint,
    session: SessionId,
    index: usize,
    last_boot: Option<BootId>,
) -> Hello {
    Hello {
        version_min: WireVersion::OLDEST,
        version_max: WireVersion::NEWEST,
        features: Features::OURS,
        session,
        role: if index == 0 {
            ConnectionRole::Main
        } else {
            ConnectionRole::Bulk
        },
        cluster: Some(endpoint.credential.cluster()),
        last_boot,
        host: endpoint.host.chars().take(64).collect(),
    }
}

/// How a transport's connections are encrypted, if they are: one for all of them, because it keeps
/// the tickets by which later ones resume what the first has proven.
pub(super) fn tls(endpoint: &Endpoint) -> Result<Option<Arc<ClientConfig>>, ConnectError> {
    if endpoint.plain {
        return Ok(None);
    }
    Ok(Some(wire::identity::client_config(&endpoint.credential)?))
}

/// Connects to the first address at which somebody answers who does not stand by, and exchanges
/// `Hello` and `Welcome`. Under TLS `early` goes right behind the greeting.
pub(super) async fn dial(
    endpoint: &Endpoint,
    addresses: &[SocketAddr],
    tls: Option<&Arc<ClientConfig>>,
    hello: Hello,
    early: &[Frame],
    options: &TransportOptions,
) -> Result<Dialled, ConnectError> {
    let time_max = options.request_time_max.min(HANDSHAKE_TIME_MAX);
    let name = endpoint.name.clone();
    let mut last = ConnectError::Unreachable {
        name: name.clone(),
        error: LinkError::Closed,
    };
    for address in addresses {
        let server = match endpoint.server {
            Some(server) => wire::identity::storage_server_name(server),
            None => wire::identity::server_name(),
        };
        let tls = tls.map(|config| (Arc::clone(config), server));
        let error = match link::connect(*address, tls, time_max).await {
            Ok(connection) => {
                let greeting = greet(endpoint, (*address, &hello), early, connection);
                match tokio::time::timeout(time_max, greeting).await {
                    Ok(Err(error)) if is_standby(&error) => {
                        last = error;
                        continue;
                    }
                    Ok(outcome) => return outcome,
                    Err(_) => LinkError::Stalled(time_max),
                }
            }
            Err(error) => error,
        };
        // That somebody stands by says more than that another one does not answer.
        if !is_standby(&last) {
            let name = name.clone();
            last = ConnectError::Unreachable { name, error };
        }
    }
    Err(last)
}

/// Whether it is a manager that does not lead who has refused the connection.
pub(super) fn is_standby(error: &ConnectError) -> bool {
    let ConnectError::Refused { reason, .. } = error else {
        return false;
    };
    matches!(reason, Farewell::Standby { .. })
}

async fn greet(
    endpoint: &Endpoint,
    (address, hello): (SocketAddr, &Hello),
    early: &[Frame],
    mut connection: Connection,
) -> Result<Dialled, ConnectError> {
    let unreachable = |error| ConnectError::Unreachable {
        name: endpoint.name.clone(),
        error,
    };
    let protocol = || ConnectError::Protocol {
        name: endpoint.name.clone(),
    };
    let Connection { reader, writer, .. } = &mut connection;
    let begun = now();
    writer
        .write(frame(FrameKind::Hello, RequestId(0), hello))
        .await
        .map_err(unreachable)?;
    for request in early {
        writer.write(request.clone()).await.map_err(unreachable)?;
    }
    writer.flush().await.map_err(unreachable)?;
    let answer = reader.read().await.map_err(unreachable)?;
    let greeting_time = now().since(begun);
    let welcome: Welcome = match answer.kind {
        FrameKind::Welcome => decode(&answer.body).map_err(|_| protocol())?,
        FrameKind::Farewell => {
            let reason: Farewell = decode(&answer.body).map_err(|_| protocol())?;
            return Err(ConnectError::Refused {
                name: endpoint.name.clone(),
                reason,
            });
        }
        _ => return Err(protocol()),
    };
    if WireVersion::negotiate(welcome.version, welcome.version).is_none() {
        return Err(protocol());
    }
    if welcome.cluster != endpoint.credential.cluster() {
        return Err(ConnectError::Refused {
            name: endpoint.name.clone(),
            reason: Farewell::Cluster,
        });
    }
    if let Some(challenge) = &welcome.challenge {
        // Under TLS the certificates have proven everything. Whoever asks for a signature all the
        // same may want to show it elsewhere.
        if !endpoint.plain {
            return Err(protocol());
        }
        let proof = endpoint.credential.sign_proof(challenge, hello.session)?;
        writer
            .write(frame(FrameKind::Proof, RequestId(0), &proof))
            .await
            .map_err(unreachable)?;
        writer.flush().await.map_err(unreachable)?;
    }
    Ok(Dialled {
        connection,
        address,
        welcome,
        greeting_time,
    })
}
