//! The storage servers of a volume: where they are, a session with each.
//!
//! Some stores are the manager's own and are used on the session that there is. Others are reached
//! by sessions of their own, begun when a layout first names them; each proves to be the very
//! server that is meant. Where they are the manager says, once, and again when one cannot be
//! reached. Nothing of this holds up those who use other servers.

use super::super::Volume;
use crate::clock::now;
use crate::object::{MountTicket, StorageServer, StoreClient};
use crate::transport::{CallError, Listener, Runs, Transport, WeakTransport};
use base::{FsError, Rate, ServerId, StoreId, Time, WriteVerifier};
use readahead::Line;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use wire::message::{ClusterReply, ClusterRequest, FileColumn, Notice};

/// How often a server that is not reached is looked for somewhere else.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// How long resolving the name of a server may take.
const RESOLVE_TIME_MAX: Duration = Duration::from_secs(5);

/// A session with another server.
struct Session {
    server: StorageServer,
    addresses: Vec<String>,
    /// When it was last looked whether it is somewhere else.
    looked: Time,
}

impl Session {
    fn is_connected(&self) -> bool {
        self.server.transport().figures().connected
    }
}

type Slot = Arc<tokio::sync::Mutex<Option<Session>>>;

/// See the module's head.
pub(super) struct Servers {
    manager: Transport,
    /// The server that the manager is itself, and its stores.
    own: ServerId,
    here: StorageServer,
    pub(super) runs: Arc<Runs>,
    addresses: Mutex<BTreeMap<ServerId, Vec<String>>>,
    sessions: Mutex<BTreeMap<ServerId, Slot>>,
}

impl Servers {
    /// Asks which there are.
    pub(super) async fn open(manager: &Transport) -> Result<Self, CallError> {
        let (own, addresses) = ask(manager).await?;
        let runs = Arc::<Runs>::default();
        manager.write_objects(&runs, own);
        let here = StorageServer::over(manager.clone()).await;
        Ok(Self {
            manager: manager.clone(),
            own,
            here: here.map_err(|error| match error {
                crate::object::ObjectCallError::Call(error) => error,
                crate::object::ObjectCallError::Object(_) => CallError::Protocol,
            })?,
            runs,
            addresses: Mutex::new(addresses),
            sessions: Mutex::default(),
        })
    }

    fn addresses(&self) -> MutexGuard<'_, BTreeMap<ServerId, Vec<String>>> {
        let addresses = self.addresses.lock();
        addresses.expect("no panic happens under this lock")
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<ServerId, Slot>> {
        let sessions = self.sessions.lock();
        sessions.expect("no panic happens under this lock")
    }

    /// The stores on the manager's own server, each with its ticket.
    pub(super) fn own_stores(
        &self,
        ticket: impl Fn(StoreId) -> Option<Arc<MountTicket>>,
    ) -> BTreeMap<(ServerId, StoreId), StoreClient> {
        let stores = self.here.stores().iter().map(|summary| summary.store);
        let client = |store| {
            let client = self.here.store_under(store, ticket(store));
            ((self.own, store), client)
        };
        stores.map(client).collect()
    }

    /// The manager's own stores.
    pub(super) fn manager(&self) -> &StorageServer {
        &self.here
    }

    /// Whether this is the manager.
    pub(super) fn is_manager(&self, server: ServerId) -> bool {
        server == self.own
    }

    /// Who is to judge a ticket for this server; one that nobody knows is shown to the manager,
    /// which says what is wrong with it.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub(super) async fn for_ticket(
        &self,
        volume: &Volume,
        server: ServerId,
    ) -> Result<StorageServer, FsError> {
        let is_known = self.addresses().contains_key(&server);
        match is_known {
            true => self.session(volume, server).await,
            false => Ok(self.here.clone()),
        }
    }

    /// Whether the session with a server stands, or is to be looked for first.
    pub(super) fn is_ready(&self, server: ServerId) -> bool {
        if server == self.own {
            return true;
        }
        let slot = self.sessions().get(&server).cloned();
        let session = slot.as_ref().and_then(|slot| slot.try_lock().ok());
        session.is_some_and(|session| session.as_ref().is_some_and(Session::is_connected))
    }

    /// A store that a layout names.
    ///
    /// # Errors
    /// [`FsError::TimedOut`] if its server cannot be reached in the time that a request has.
    pub(super) async fn store(
        &self,
        volume: &Volume,
        column: FileColumn,
        ticket: Option<Arc<MountTicket>>,
    ) -> Result<StoreClient, FsError> {
        if column.server == self.own {
            return Ok(self.here.store_under(column.store, ticket));
        }
        let server = self.session(volume, column.server).await?;
        Ok(server.store_under(column.store, ticket))
    }

    async fn session(&self, volume: &Volume, server: ServerId) -> Result<StorageServer, FsError> {
        let slot = self.sessions().entry(server).or_default().clone();
        let mut patience = volume.patience();
        loop {
            match self.try_session(volume, server, &slot).await {
                Ok(session) => return Ok(session),
                Err(why) => {
                    tracing::debug!(%server, why, "a storage server is not reached");
                    patience.wait().await?;
                }
            }
        }
    }

    async fn try_session(
        &self,
        volume: &Volume,
        server: ServerId,
        slot: &Slot,
    ) -> Result<StorageServer, String> {
        let mut held = slot.lock().await;
        if let Some(session) = &mut *held {
            let is_due = now().since(session.looked) >= LOOK_INTERVAL;
            if session.is_connected() || !is_due {
                return Ok(session.server.clone());
            }
            session.looked = now();
            // It comes back by itself, unless it is somewhere else now.
            let there = self.look_for(server).await;
            if there.is_none_or(|there| there == session.addresses) {
                return Ok(session.server.clone());
            }
            session.server.transport().abandon();
            *held = None;
        }
        let known = self.addresses().get(&server).cloned();
        let mut tried = None;
        if let Some(addresses) = known {
            match self.connect(volume, server, &addresses).await {
                Ok(session) => return Ok(held.insert(session).server.clone()),
                Err(why) => tried = Some((addresses, why)),
            }
        }
        let there = self.look_for(server).await;
        match (there, tried) {
            (None, _) => Err("the manager does not know where it is".to_owned()),
            (Some(there), Some((addresses, why))) if there == addresses => Err(why),
            (Some(there), _) => {
                let session = self.connect(volume, server, &there).await?;
                Ok(held.insert(session).server.clone())
            }
        }
    }

    /// Asks the manager once more where a server is.
    async fn look_for(&self, server: ServerId) -> Option<Vec<String>> {
        let (_, addresses) = ask(&self.manager).await.ok()?;
        let there = addresses.get(&server).cloned();
        *self.addresses() = addresses;
        there
    }

    async fn connect(
        &self,
        volume: &Volume,
        server: ServerId,
        addresses: &[String],
    ) -> Result<Session, String> {
        let resolved = resolve(addresses).await?;
        let name = addresses.join(", ");
        let (endpoint, options) = self.manager.elsewhere(server, name, resolved);
        let connected = StorageServer::connect(endpoint, options).await;
        let session = connected.map_err(|error| error.to_string())?;
        let transport = session.transport();
        // A session before this one may have written in a run that is over.
        volume.replay(transport.write_objects(&self.runs, server));
        transport.set_listener(Arc::new(Ear {
            volume: volume.this.clone(),
            transport: transport.downgrade(),
        }));
        Ok(Session {
            server: session,
            addresses: addresses.to_vec(),
            looked: now(),
        })
    }

    /// The lines to these servers as one, as far as they are used; none if none is.
    pub(super) fn line(&self, servers: impl Iterator<Item = ServerId>) -> Option<Line> {
        let lines = servers.filter_map(|server| self.line_to(server));
        lines.reduce(|all, line| Line {
            rtt: all.rtt.max(line.rtt),
            rtt_deviation: all.rtt_deviation.max(line.rtt_deviation),
            server_time: all.server_time.max(line.server_time),
            rate: Rate(all.rate.0.saturating_add(line.rate.0)),
            window_bytes: all.window_bytes.saturating_add(line.window_bytes),
            extent_bytes: all.extent_bytes.max(line.extent_bytes),
        })
    }

    fn line_to(&self, server: ServerId) -> Option<Line> {
        if server == self.own {
            return Some(self.manager.download_room().0);
        }
        let slot = self.sessions().get(&server).cloned()?;
        let session = slot.try_lock().ok()?;
        let transport = session.as_ref()?.server.transport();
        Some(transport.download_room().0)
    }

    /// Ends all sessions but the manager's.
    pub(super) async fn close(&self, time_max: Duration) {
        let slots: Vec<Slot> = self.sessions().values().cloned().collect();
        let mut closing = tokio::task::JoinSet::new();
        for slot in slots {
            closing.spawn(async move {
                if let Some(session) = slot.lock().await.take() {
                    session.server.close(time_max).await;
                }
            });
        }
        let _ = tokio::time::timeout(time_max, closing.join_all()).await;
    }
}

/// Which server the manager is itself, and where the others are.
async fn ask(
    manager: &Transport,
) -> Result<(ServerId, BTreeMap<ServerId, Vec<String>>), CallError> {
    let reply = manager.cluster_request(ClusterRequest::Servers).await?;
    let ClusterReply::Servers(servers) = reply else {
        return Err(CallError::Protocol);
    };
    let own = servers.iter().find(|server| server.is_here);
    let own = own.ok_or(CallError::Protocol)?.server;
    let others = servers.into_iter().filter(|server| !server.is_here);
    let addresses = others.map(|server| (server.server, server.addresses));
    Ok((own, addresses.collect()))
}

async fn resolve(addresses: &[String]) -> Result<Vec<SocketAddr>, String> {
    let mut all = Vec::new();
    let mut why = "it has no address".to_owned();
    for address in addresses {
        let found = tokio::time::timeout(RESOLVE_TIME_MAX, tokio::net::lookup_host(address)).await;
        match found {
            Ok(Ok(found)) => all.extend(found),
            Ok(Err(error)) => why = format!("{address}: {error}"),
            Err(_) => why = format!("{address}: no answer from the name service"),
        }
    }
    match all.is_empty() {
        true => Err(why),
        false => Ok(all),
    }
}

/// Hears what the session with a storage server says, for a volume that may be gone.
struct Ear {
    volume: Weak<Volume>,
    transport: WeakTransport,
}

impl Listener for Ear {
    fn on_notice(&self, notice: Notice) -> bool {
        let ends = (self.volume.upgrade(), self.transport.upgrade());
        match (notice, ends) {
            (Notice::WriteAgain { id }, (Some(volume), Some(transport))) => {
                volume.write_again(id, transport)
            }
            // Nothing is leased there.
            _ => true,
        }
    }

    fn on_connected(&self, _: bool, _: bool) {}

    fn on_verifier(&self, verifier: WriteVerifier) {
        if let Some(volume) = self.volume.upgrade() {
            volume.replay(verifier);
        }
    }

    fn on_silence(&self) {}
}
