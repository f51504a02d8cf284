//! A manager that stands by: it waits for the seat, and says to everybody who leads.
//!
//! Nothing that it says is of any state of the cluster but that one address, and it says it under
//! the certificate of a manager. It judges no credential: whoever connects is told the same.

use super::roll::{self, Roll};
use super::{Lead, SEAT};
use crate::data::shared::{self, ListSeal, Shared};
use crate::data::{DataDirectory, DataError, MetaAddress, NewCluster, to_hex};
use crate::pending::Pending;
use crate::server::accept;
use base::ServerId;
use base::limits::{HANDSHAKE_TIME_MAX, LEASE_TRUST_TIME, META_CAMPAIGN_INTERVAL};
use meta::{Condition, Engine, Etcd, KeyRange, MetaError, Transaction};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;
use wire::frame::FrameKind;
use wire::link::LinkError;
use wire::message::{Farewell, Hello, ManagerSummary, decode};

/// List and name of the entry that says whose the prefix is.
const CLUSTER: (&str, &str) = ("cluster", "cluster");
/// How long to wait before an engine that cannot be reached is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// What a manager waits with.
pub(crate) struct Waiting<'a> {
    pub(crate) data: &'a DataDirectory,
    pub(crate) address: &'a MetaAddress,
    pub(crate) server: ServerId,
    pub(crate) label: &'a str,
    /// HOST:PORT at which it is reached.
    pub(crate) addresses: &'a [String],
    pub(crate) listener: &'a TcpListener,
    pub(crate) tls: Arc<rustls::ServerConfig>,
    pub(crate) plain: bool,
    /// Is told who leads while another one does.
    pub(crate) told: Option<watch::Sender<Option<String>>>,
}

/// Makes the lists of a new cluster.
///
/// # Errors
/// [`DataError::MetaInUse`] if there is one that a manager has ever served.
pub(crate) async fn claim(address: &MetaAddress, new: &NewCluster<'_>) -> Result<(), DataError> {
    let engine = Etcd::open(address.options()).await?;
    let seal = ListSeal::new(&new.secret);
    let nobody = Condition::Empty(KeyRange::prefix(shared::key(roll::MANAGERS, "")));
    let (serial, line) = new.first_credential()?;
    // What a try has left that was cut short is another cluster's.
    let clearing = Transaction::new()
        .when(nobody.clone())
        .delete_range(&KeyRange::prefix("l/"));
    let credential = shared::key("credentials", &serial);
    let cluster = shared::key(CLUSTER.0, CLUSTER.1);
    let making = Transaction::new()
        .when(nobody)
        .put(&credential, seal.close(&credential, &line))
        .put(
            &cluster,
            seal.close(&cluster, to_hex(&new.cluster.0).as_bytes()),
        );
    for step in [clearing, making] {
        let done = shared::commit(&*engine, step, || true).await;
        done.map_err(|error| match error {
            DataError::Engine(MetaError::Conflict { .. }) => {
                DataError::MetaInUse(address.to_string())
            }
            other => other,
        })?;
    }
    Ok(())
}

/// Waits for the seat. Also says from when on the one that had it before is believed by nobody any
/// more.
///
/// # Errors
/// [`DataError`]: it never will be had.
pub(crate) async fn wait(waiting: &Waiting<'_>) -> Result<(Lead, Instant), DataError> {
    let leader = Mutex::new(String::new());
    tokio::select! {
        lead = campaign(waiting, &leader) => lead,
        never = answer_all(waiting, &leader) => never,
    }
}

async fn campaign(
    waiting: &Waiting<'_>,
    leader: &Mutex<String>,
) -> Result<(Lead, Instant), DataError> {
    let seal = ListSeal::new(&waiting.data.names_key);
    let engine: Arc<dyn Engine> = open(waiting.address).await?;
    patiently(|| check(&*engine, &seal, waiting)).await?;
    let own = ManagerSummary {
        server: waiting.server,
        label: waiting.label.to_owned(),
        addresses: waiting.addresses.to_vec(),
        leads: false,
        is_there: true,
    };
    let (roll, is_first) = patiently(|| Roll::begin(engine.clone(), seal.clone(), &own)).await?;
    let holder = roll::holder(waiting.server, waiting.addresses);
    let own = to_hex(&waiting.server.0);
    let tell = |at: &str| {
        at.clone_into(&mut leader.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(told) = &waiting.told {
            let at = Some(at.to_owned());
            told.send_if_modified(|known| std::mem::replace(known, at.clone()) != at);
        }
    };
    let mut another_led = false;
    let begun = Instant::now();
    let seat = loop {
        match engine.lead(SEAT, &holder).await {
            Ok(seat) => break Arc::new(seat),
            Err(MetaError::Held { holder, .. }) => match roll::held_by(&holder) {
                // The last run of this one, whose process is gone.
                (id, _) if id == own => {}
                (_, at) => {
                    another_led = true;
                    tell(at);
                }
            },
            Err(MetaError::Unavailable(why)) => {
                tracing::warn!(why, "the cluster's metadata cannot be reached");
                tell("");
            }
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(META_CAMPAIGN_INTERVAL).await;
    };
    let from = Instant::now();
    // So that nobody is told that the one before still leads.
    patiently(|| roll.look()).await?;
    tracing::info!(
        epoch = seat.epoch().0,
        another_led,
        "this manager leads from now on"
    );
    let runtime = tokio::runtime::Handle::current();
    let lead = Lead {
        address: waiting.address.clone(),
        shared: Arc::new(Shared::new(engine.clone(), seat.clone(), seal, runtime)),
        engine,
        seat,
        roll,
    };
    // Clients may believe for that long what they were told just now by the one before, or before
    // this process began by an earlier one.
    let from = match another_led {
        _ if is_first => from,
        true => from + LEASE_TRUST_TIME,
        false => from.max(begun + LEASE_TRUST_TIME),
    };
    Ok((lead, from))
}

async fn open(address: &MetaAddress) -> Result<Arc<Etcd>, DataError> {
    patiently(|| async { Ok(Etcd::open(address.options()).await?) }).await
}

/// Again and again as long as nobody answers.
async fn patiently<T, F>(mut act: impl FnMut() -> F) -> Result<T, DataError>
where
    F: Future<Output = Result<T, DataError>>,
{
    loop {
        match act().await {
            Err(DataError::Engine(error @ (MetaError::Unavailable(_) | MetaError::Unknown(_)))) => {
                tracing::warn!(%error, "the cluster's metadata cannot be reached");
                tokio::time::sleep(PAUSE).await;
            }
            other => return other,
        }
    }
}

/// Whether the prefix is that of this cluster.
async fn check(
    engine: &dyn Engine,
    seal: &ListSeal,
    waiting: &Waiting<'_>,
) -> Result<(), DataError> {
    let there = shared::read(engine, seal, CLUSTER.0).await?;
    let wanted = to_hex(&waiting.data.cluster.0);
    match there.get(&shared::key(CLUSTER.0, CLUSTER.1)) {
        Some(cluster) if *cluster == wanted.as_bytes() => Ok(()),
        _ => Err(DataError::MetaForeign(waiting.address.to_string())),
    }
}

/// Says to everybody that another one leads.
async fn answer_all(
    waiting: &Waiting<'_>,
    leader: &Mutex<String>,
) -> Result<(Lead, Instant), DataError> {
    let pending = Pending::new();
    loop {
        let (stream, peer) = match waiting.listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let leader = leader
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let (tls, plain) = (waiting.tls.clone(), waiting.plain);
        let place = pending.enter(peer.ip());
        tokio::spawn(async move {
            let answering = answer(stream, peer, tls, plain, leader);
            tokio::select! {
                answered = tokio::time::timeout(HANDSHAKE_TIME_MAX, answering) => {
                    if let Ok(Err(error)) = answered {
                        tracing::debug!(%peer, %error, "no connection");
                    }
                }
                () = place.sent_away() => {}
            }
        });
    }
}

async fn answer(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Arc<rustls::ServerConfig>,
    plain: bool,
    leader: String,
) -> Result<(), LinkError> {
    let mut connection = accept(stream, peer, tls, plain).await?;
    let hello = connection.reader.read().await?;
    let is_hello = hello.kind == FrameKind::Hello && decode::<Hello>(&hello.body).is_ok();
    let farewell = match is_hello {
        true => Farewell::Standby { leader },
        false => Farewell::Protocol,
    };
    let writer = &mut connection.writer;
    writer.write(crate::link::last_frame(&farewell)).await?;
    writer.finish().await
}
