//! Getting a credential for a join string.
//!
//! The connection trusts the authority whose fingerprint the join string carries and nobody else,
//! makes one request and ends. The private key is made here and stays here; the server signs its
//! public half.

use crate::address::Address;
use crate::connect::{host_name, resolve};
use crate::errors::{Code, Failure, Result, from_link};
use base::limits::HANDSHAKE_TIME_MAX;
use base::{RequestId, ServerId, SessionId};
use std::time::Duration;
use wire::frame::FrameKind;
use wire::identity::{Credential, Enrolment, JoinString, enrol_config, server_name};
use wire::link::{self, Connection, LinkError};
use wire::message::{
    ConnectionRole, Farewell, Features, Hello, ManagerSecrets, Refusal, Reply, Request, Welcome,
    decode, frame,
};
use wire::version::WireVersion;

/// Connects to `server` and checks that it is of the join string's cluster, no more.
///
/// # Errors
/// What stands in the way.
pub(crate) async fn check(server: &Address, join: &JoinString) -> Result<()> {
    dial(server, join).await.map(drop)
}

/// Spends the join string for a credential, of a storage server if one is named, within `time_max`.
///
/// # Errors
/// [`Code::JoinStringUsed`], or what stands in the way.
pub(crate) async fn enrol(
    server: &Address,
    join: &JoinString,
    label: &str,
    storage_server: Option<ServerId>,
    time_max: Duration,
) -> Result<Credential> {
    let enrolment = Enrolment::new()?;
    let request = enrolling(join, &enrolment, label, storage_server);
    let (reply, connection) = within(time_max, server, exchange(server, join, &request)).await?;
    let proven = &connection.peer_certificates;
    match reply {
        Reply::Enrolled { certificate } => {
            Ok(enrolment.complete(&certificate, proven, join.fingerprint)?)
        }
        Reply::Refused(refusal) => Err(refused(server, refusal)),
        _ => Err(nonsense(server)),
    }
}

/// Spends the join string for what all managers have, and an administrator's credential for this
/// machine; none if it is not for that, and then it is still good.
///
/// # Errors
/// What stands in the way.
pub(crate) async fn enrol_manager(
    server: &Address,
    join: &JoinString,
    label: &str,
    time_max: Duration,
) -> Result<Option<(Credential, ManagerSecrets)>> {
    let enrolment = Enrolment::new()?;
    let request = Request::EnrolManager {
        secret: join.secret,
        signing_request: enrolment.signing_request().to_vec(),
        label: label.to_owned(),
    };
    let (reply, connection) = within(time_max, server, exchange(server, join, &request)).await?;
    let proven = &connection.peer_certificates;
    match reply {
        Reply::ManagerEnrolled(given) => {
            let admin = enrolment.complete(&given.certificate, proven, join.fingerprint)?;
            Ok(Some((admin, *given)))
        }
        Reply::Refused(Refusal::JoinString) => Ok(None),
        Reply::Refused(refusal) => Err(refused(server, refusal)),
        _ => Err(nonsense(server)),
    }
}

async fn within<T>(
    time_max: Duration,
    server: &Address,
    exchange: impl Future<Output = Result<T>>,
) -> Result<T> {
    let outcome = tokio::time::timeout(time_max, exchange).await;
    outcome.unwrap_or_else(|_| {
        let late = LinkError::Stalled(time_max);
        Err(from_link(&server.to_string(), &late))
    })
}

/// Asks the one of the managers that leads; also gives the connection, with the certificates by
/// which it has proven itself.
async fn exchange(
    server: &Address,
    join: &JoinString,
    request: &Request,
) -> Result<(Reply, Connection)> {
    let mut last = None;
    for one in server.each() {
        let asked = async {
            let mut connection = dial(&one, join).await?;
            let reply = ask(&one, &mut connection, request).await?;
            Ok((reply, connection))
        };
        match asked.await {
            Ok(answered) => return Ok(answered),
            Err(failure) => last = Some(failure),
        }
    }
    Err(last.expect("an address has at least one server"))
}

async fn dial(server: &Address, join: &JoinString) -> Result<Connection> {
    let config = enrol_config(join.fingerprint)?;
    let mut last = LinkError::Closed;
    for address in resolve(server).await? {
        let tls = Some((config.clone(), server_name()));
        match link::connect(address, tls, HANDSHAKE_TIME_MAX).await {
            Ok(connection) => return Ok(connection),
            Err(error) => last = error,
        }
    }
    Err(not_reached(server, &last))
}

/// What it means that no connection was made in which the join string's authority is believed.
fn not_reached(server: &Address, error: &LinkError) -> Failure {
    let failure = from_link(&server.to_string(), error);
    // rustls calls a chain without that authority so. What else can be wrong with a certificate,
    // such as its dates by this machine's clock, says nothing of the join string.
    if failure.code() != Code::OtherCluster || !failure.message().contains("UnknownIssuer") {
        return failure;
    }
    let message = format!("the join string was made by another server than {server}");
    Failure::new(Code::JoinStringUsed, message).hint(format!(
        "ask an administrator of {server} for one: azekura join create {server}"
    ))
}

async fn ask(server: &Address, connection: &mut Connection, request: &Request) -> Result<Reply> {
    let broken = |error| from_link(&server.to_string(), &error);
    let hello = Hello {
        version_min: WireVersion::OLDEST,
        version_max: WireVersion::NEWEST,
        features: Features::OURS,
        session: random_session()?,
        role: ConnectionRole::Enrolment,
        cluster: None,
        last_boot: None,
        host: host_name(),
    };
    let writer = &mut connection.writer;
    writer
        .write(frame(FrameKind::Hello, RequestId(0), &hello))
        .await
        .map_err(broken)?;
    writer
        .write(frame(FrameKind::Request, RequestId(1), request))
        .await
        .map_err(broken)?;
    writer.flush().await.map_err(broken)?;
    loop {
        let frame = connection.reader.read().await.map_err(broken)?;
        match frame.kind {
            FrameKind::Welcome => {
                decode::<Welcome>(&frame.body).map_err(|_| nonsense(server))?;
            }
            FrameKind::Reply => {
                return decode(&frame.body).map_err(|_| nonsense(server));
            }
            FrameKind::Farewell => {
                let reason: Farewell = decode(&frame.body).map_err(|_| nonsense(server))?;
                let name = server.to_string();
                return Err(client::transport::ConnectError::Refused { name, reason }.into());
            }
            _ => return Err(nonsense(server)),
        }
    }
}

fn enrolling(
    join: &JoinString,
    enrolment: &Enrolment,
    label: &str,
    storage_server: Option<ServerId>,
) -> Request {
    let secret = join.secret;
    let signing_request = enrolment.signing_request().to_vec();
    let label = label.to_owned();
    match storage_server {
        Some(server) => Request::EnrolServer {
            secret,
            signing_request,
            label,
            server,
        },
        None => Request::Enrol {
            secret,
            signing_request,
            label,
        },
    }
}

fn refused(server: &Address, refusal: Refusal) -> Failure {
    let failure = Failure::from(client::transport::CallError::Refused(refusal));
    match refusal {
        Refusal::JoinString => failure.hint(format!(
            "ask an administrator for a new one: azekura join create {server}"
        )),
        _ => failure,
    }
}

fn nonsense(server: &Address) -> Failure {
    Failure::new(
        Code::Protocol,
        format!("{server} does not answer as an Azekura server"),
    )
}

fn random_session() -> Result<SessionId> {
    let mut id = [0; 16];
    rustix::rand::getrandom(&mut id, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Failure::local("no random numbers", error))?;
    Ok(SessionId(id))
}
