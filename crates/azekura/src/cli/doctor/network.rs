//! The way to a server: name, port, credential, handshake, version, round trip, the volume.

use super::{Check, Subject};
use crate::address::{Address, VolumeAddress};
use crate::config::Config;
use crate::connect::{WayArgs, endpoint, enter_failed, resolve};
use crate::errors::{Code, Failure, plain_io};
use crate::output::span;
use base::Rate;
use client::transport::{Transport, TransportOptions};
use client::volume::Volume;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use wire::message::{AdminReply, AdminRequest, VolumeSummary};

/// How long a connection is waited for.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// A session that received less says nothing of the rate that its line can carry.
const RECEIVED_BYTES_MIN: u64 = 16 << 20;
/// Questions asked to measure the round trip; the fastest counts.
const ROUNDS: usize = 3;

/// All checks of the way to `server`. The first one that fails ends them: the rest would only say
/// the same again.
pub(super) async fn checks(config: &Config, subject: &Subject, way: &WayArgs) -> Vec<Check> {
    let server = &subject.server;
    let mut checks = Vec::new();
    let addresses = match resolve(server).await {
        Ok(addresses) => addresses,
        Err(failure) => {
            checks.push(Check::failure("name", &failure));
            return checks;
        }
    };
    let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    checks.push(Check::good(
        "name",
        format!("{server} is {}", shown.join(", ")),
    ));
    match reach(server, &addresses).await {
        Ok(check) => checks.push(check),
        Err(check) => {
            checks.push(check);
            return checks;
        }
    }
    let credential = match config.credential(server, &addresses) {
        Ok(credential) => credential,
        Err(failure) => {
            checks.push(Check::failure("credential", &failure));
            return checks;
        }
    };
    checks.push(Check::good(
        "credential",
        format!("for cluster {}", credential.cluster()),
    ));
    if let Err(failure) = session(config, subject, way, &mut checks).await {
        checks.push(Check::failure("session", &failure));
        return checks;
    }
    checks.extend(line(config, server));
    checks
}

async fn reach(server: &Address, addresses: &[SocketAddr]) -> Result<Check, Check> {
    let name = "port";
    let begun = Instant::now();
    let connecting = tokio::time::timeout(CONNECT_TIME_MAX, TcpStream::connect(addresses)).await;
    let advice = format!(
        "is the server running (azekura server --listen {server})? does a firewall let port {} \
         through?",
        server.port
    );
    match connecting {
        Ok(Ok(_)) => Ok(Check::good(
            name,
            format!("answers in {}", span(begun.elapsed())),
        )),
        Ok(Err(error)) => Err(Check::failed(name, plain_io(&error), advice)),
        Err(_) => {
            let found = format!("no answer within {}", span(CONNECT_TIME_MAX));
            Err(Check::failed(name, found, advice))
        }
    }
}

async fn session(
    config: &Config,
    Subject { server, volume }: &Subject,
    way: &WayArgs,
    checks: &mut Vec<Check>,
) -> Result<(), Failure> {
    let plain = config.is_plain(server, way.plain);
    let endpoint = endpoint(config, server, plain).await?;
    let options = TransportOptions {
        connections: 1,
        request_time_max: config.timeout(server, way.timeout),
        ..TransportOptions::default()
    };
    let begun = Instant::now();
    let transport = Transport::connect(endpoint, options).await?;
    let how = if plain { "without TLS" } else { "TLS 1.3" };
    checks.push(Check::good(
        "session",
        format!("{how}, set up in {}", span(begun.elapsed())),
    ));
    let outcome = ask(&transport, checks).await;
    if outcome.is_ok() {
        checks.extend(unserved(&transport, server, volume.as_ref()).await);
    }
    if let (Ok(()), Some(volume)) = (&outcome, volume) {
        checks.push(entered(&transport, volume).await);
    }
    transport.close(Duration::from_secs(1)).await;
    outcome
}

async fn ask(transport: &Transport, checks: &mut Vec<Check>) -> Result<(), Failure> {
    let mut fastest = Duration::MAX;
    let mut version = String::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        match transport.admin(AdminRequest::Status).await? {
            AdminReply::Status(status) => version = status.version,
            _ => return Err(Failure::new(Code::Protocol, "the answer is no status")),
        }
        fastest = fastest.min(begun.elapsed());
    }
    checks.push(Check::good("round trip", span(fastest)));
    let ours = env!("CARGO_PKG_VERSION");
    checks.push(if version == ours {
        Check::good("server version", version)
    } else {
        let advice = "both sides work together; the newer one's features need the newer one";
        Check::warning("server version", format!("{version}, here {ours}"), advice)
    });
    Ok(())
}

/// The volumes that the server has and cannot serve; one that is `named` is looked at by itself.
async fn unserved(
    transport: &Transport,
    server: &Address,
    named: Option<&VolumeAddress>,
) -> Vec<Check> {
    let Ok(AdminReply::Volumes(volumes)) = transport.admin(AdminRequest::VolumeList).await else {
        return Vec::new();
    };
    let is_other = |name: &str| named.is_none_or(|named| named.volume != name);
    let check = |volume: VolumeSummary| {
        let found = format!("{} is not served: {}", volume.name, volume.trouble?);
        let advice = format!(
            "put that right on the machine of the server and start it again; `azekura volume show \
             {server}/{}` says more",
            volume.name
        );
        Some(Check::failed("volume", found, advice))
    };
    let others = volumes.into_iter().filter(|volume| is_other(&volume.name));
    others.filter_map(check).collect()
}

/// Whether the volume can be entered.
async fn entered(transport: &Transport, address: &VolumeAddress) -> Check {
    match Volume::attach(transport.clone(), &address.volume).await {
        Ok(volume) if volume.is_read_only() => {
            Check::good("volume", format!("{} can be read", address.volume))
        }
        Ok(_) => Check::good("volume", format!("{} can be entered", address.volume)),
        Err(error) => Check::failure("volume", &enter_failed(address, error)),
    }
}

/// The line as the last mount measured it.
fn line(config: &Config, server: &Address) -> Option<Check> {
    let download = config.line(server).0?;
    let round_trip = span(Duration::from_nanos(download.rtt_nanos));
    let rate = match config.line_received_bytes(server) {
        // The rate is the highest that was needed, of however little.
        ..RECEIVED_BYTES_MIN => "rate unknown, for too little was read".to_owned(),
        _ => format!("carried up to {}", Rate(download.rate_bytes_per_second)),
    };
    Some(Check::good(
        "line, last mount",
        format!("{rate}, round trip {round_trip}"),
    ))
}
