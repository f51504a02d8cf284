//! Starting, accepting, stopping.

use crate::again::Again;
use crate::background::Background;
use crate::buffers::Buffers;
use crate::clock::Clock;
use crate::cluster::{self, Cluster, JoinedMember, Line};
use crate::connection;
use crate::core::Core;
use crate::data::{
    self, DataDirectory, Joining, JoiningManager, Lists, Members, MetaAddress, Registry,
    VolumeRecord,
};
use crate::error::ServerError;
use crate::journal::Journal;
use crate::judge::Judge;
use crate::lead::{self, Lead, Waiting};
use crate::lease::{Caching, Noted, Notes};
use crate::locks::{Locks, LocksNoted};
use crate::manager::Manager;
use crate::pending::{Pending, PendingPlace};
use crate::pool::Pool;
use crate::session::Sessions;
use crate::storage::{self, NewStore, Scrubs, Storage, StorageError};
use crate::volume::{Ground, Volumes};
use crate::{admin, overlap, reaper};
use base::limits::{
    CONNECTIONS_MAX, CONNECTIONS_PENDING_MAX, HANDSHAKE_TIME_MAX, SESSIONS_MAX,
    STORES_NOTED_INTERVAL, WORKERS_MIN,
};
use base::{BootId, ClusterId, SessionId, StoreId};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use wire::identity::{ClientVerifier, Credential, Fingerprint, server_config};
use wire::link::{Connection, LinkError};
use wire::message::{Farewell, ServerStatus};

/// Connections of a server, the unauthenticated included.
const CONNECTIONS_ALL_MAX: usize = SESSIONS_MAX * CONNECTIONS_MAX + CONNECTIONS_PENDING_MAX;
/// Waiting connections that the kernel keeps for us.
const BACKLOG: u32 = 1024;
/// First byte of a TLS handshake record; a frame begins with a letter.
const TLS_FIRST_BYTE: u8 = 22;
/// How long a failing accept waits before the next: descriptors may come free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long stopping waits for what is being carried out.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);
/// Time between two readings of all that a store has, if nobody says another. Errors that grow on
/// disks are to be found before the second copy, or the backup, has some as well.
const SCRUB_INTERVAL: Duration = Duration::from_secs(14 * 86_400);

/// How often one of several managers tries to open a volume, and how long it waits in between.
const VOLUME_TRIES: u32 = 20;
const VOLUME_PAUSE: Duration = Duration::from_millis(500);

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Its data directory, made by [`Server::init`].
    pub data_dir: PathBuf,
    /// Where it listens; port 0 for any.
    pub listen: SocketAddr,
    /// Whether clients may also connect without TLS. They still prove who they are, but everything
    /// they send and get can be read and changed on the way.
    pub plain: bool,
    /// Worker threads to begin with; more are added when requests wait for disks.
    pub workers: usize,
    /// Whether devices of stores serve who comes first, whatever was reserved: to measure what
    /// reservations are worth.
    pub first_come_first_served: bool,
    /// Time between two readings of all that a store has; none for never.
    pub scrub_interval: Option<Duration>,
    /// Stores that are taken as they are though they were further once, this time: a copy was put
    /// back, and what was written since is given up. Each of them must be one.
    pub older_stores_accepted: Vec<StoreId>,
    /// Stores that are missing and lost for good: what lay there is given up. Each must be missing.
    pub stores_given_up: Vec<StoreId>,
    /// How often it is noted how far stores are.
    pub stores_noted_interval: Duration,
    /// A way to other servers of the cluster; none for a server that is alone.
    pub line: Option<Arc<dyn Line>>,
    /// HOST:PORT at which this server is reached, if it has joined a cluster or is one of several
    /// managers; where it listens if there is none.
    pub addresses: Vec<String>,
    /// Name of this machine, for lists.
    pub label: String,
    /// Of one of several managers: is told who leads while another one does.
    pub standing_by: Option<watch::Sender<Option<String>>>,
}

impl ServerConfig {
    /// With TLS and the usual number of threads.
    #[must_use]
    pub fn new(data_dir: impl Into<PathBuf>, listen: SocketAddr) -> Self {
        Self {
            data_dir: data_dir.into(),
            listen,
            plain: false,
            workers: WORKERS_MIN,
            first_come_first_served: false,
            scrub_interval: Some(SCRUB_INTERVAL),
            older_stores_accepted: Vec::new(),
            stores_given_up: Vec::new(),
            stores_noted_interval: STORES_NOTED_INTERVAL,
            line: None,
            addresses: Vec::new(),
            label: String::new(),
            standing_by: None,
        }
    }
}

/// What a new cluster begins with.
#[derive(Debug)]
pub struct InitOutcome {
    /// Its identity.
    pub cluster: ClusterId,
    /// The administrator's credential, as it lies in [`Server::ADMIN`] within the data directory.
    pub admin: Credential,
}

/// A server of a cluster.
#[derive(Debug)]
pub struct Server;

/// An address that a server has taken. Who connects is refused until it starts: a port that listens
/// tells the commands of its machine that the server's credentials are in their places.
#[derive(Debug)]
pub struct BoundServer {
    socket: TcpSocket,
    address: SocketAddr,
}

impl BoundServer {
    /// The address, with the port that the system chose if none was named.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A server at work. Dropping it stops it the hard way; [`Self::shutdown`] says farewell first.
pub struct RunningServer {
    core: Arc<Core>,
    address: SocketAddr,
    stop: Arc<Notify>,
    accepting: Option<JoinHandle<()>>,
    reaping: JoinHandle<()>,
}

impl Server {
    /// Directory of the administrator's credential within the data directory. It lies beside the
    /// authority's key, which can make another one anyway, and may be moved away.
    pub const ADMIN: &str = crate::data::ADMIN;

    /// Makes a new cluster in `data_dir`, which must be empty or not exist; or hold what an earlier
    /// call has left that was cut short, which is made anew.
    ///
    /// # Errors
    /// [`ServerError::Data`].
    pub fn init(data_dir: &Path) -> Result<InitOutcome, ServerError> {
        Self::init_with_store(data_dir, None)
    }

    /// Whether there is a cluster in `data_dir`.
    ///
    /// # Errors
    /// [`ServerError::Data`] if that cannot be seen: no rights, or no directory.
    pub fn has_cluster(data_dir: &Path) -> Result<bool, ServerError> {
        Ok(DataDirectory::has_cluster(data_dir)?)
    }

    /// As [`Self::init`], with a first store if one is asked for. It counts as initialised when all
    /// is there.
    ///
    /// # Errors
    /// [`ServerError::Data`], [`ServerError::Storage`].
    pub fn init_with_store(
        data_dir: &Path,
        store: Option<&NewStore>,
    ) -> Result<InitOutcome, ServerError> {
        let (cluster, admin) = DataDirectory::init_with(data_dir, None, |new| match store {
            Some(store) => Self::add_store(new.path, store).map(drop),
            None => Ok(()),
        })?;
        Ok(InitOutcome { cluster, admin })
    }

    /// Makes a new cluster of which several servers can be managers: they keep together at `meta`
    /// what all of them need. Such a server has no store.
    ///
    /// # Errors
    /// [`ServerError::Data`].
    pub async fn init_with_meta(
        data_dir: &Path,
        meta: &MetaAddress,
    ) -> Result<InitOutcome, ServerError> {
        let (path, meta) = (data_dir.to_owned(), meta.clone());
        let runtime = tokio::runtime::Handle::current();
        let making = tokio::task::spawn_blocking(move || {
            DataDirectory::init_with(&path, Some(&meta), |new| {
                runtime.block_on(lead::claim(&meta, new))
            })
        });
        let made = making.await;
        let made = made.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        let (cluster, admin) = made?;
        Ok(InitOutcome { cluster, admin })
    }

    /// Begins a data directory for a manager that is to join others. It is completed when one of
    /// them has given what they have in common.
    ///
    /// # Errors
    /// [`ServerError::Data`].
    pub fn prepare_manager(data_dir: &Path) -> Result<JoiningManager, ServerError> {
        Ok(DataDirectory::join_managers(data_dir)?)
    }

    /// Begins a data directory for a server that is to join a cluster: with an identity, and a
    /// store if one is asked for. It is completed when the manager has signed its certificate.
    ///
    /// # Errors
    /// [`ServerError::Data`], [`ServerError::Storage`].
    pub fn prepare_join(data_dir: &Path, store: Option<&NewStore>) -> Result<Joining, ServerError> {
        DataDirectory::join_with(data_dir, |path| {
            if let Some(store) = store {
                Self::add_store(path, store)?;
            }
            Ok(storage::identity(path)?)
        })
    }

    /// Gives the server whose data directory this is a store, which it opens from its next start
    /// on; makes and measures it if it is to have a size. One that it has is left alone.
    ///
    /// # Errors
    /// [`ServerError::Storage`].
    pub fn add_store(data_dir: &Path, store: &NewStore) -> Result<StoreId, ServerError> {
        Ok(storage::add_store(data_dir, store)?)
    }

    /// Whether [`Self::add_store`] would take over the store at `path`; nothing is noted.
    ///
    /// # Errors
    /// [`ServerError::Storage`].
    pub fn try_store(data_dir: &Path, path: &Path) -> Result<(), ServerError> {
        Ok(storage::try_store(data_dir, path)?)
    }

    /// Takes the address, without listening yet. So a server that cannot have it has
    /// changed nothing.
    ///
    /// # Errors
    /// [`ServerError::Listen`].
    pub async fn bind(address: SocketAddr) -> Result<BoundServer, ServerError> {
        let listen_error = |source| ServerError::Listen { address, source };
        let socket = bind(address).map_err(listen_error)?;
        let address = socket.local_addr().map_err(listen_error)?;
        Ok(BoundServer { socket, address })
    }

    /// Starts a server within the calling tokio runtime.
    ///
    /// # Errors
    /// [`ServerError`].
    pub async fn start(config: ServerConfig) -> Result<RunningServer, ServerError> {
        let bound = Self::bind(config.listen).await?;
        Self::start_on(bound, config).await
    }

    /// As [`Self::start`], on an address that was taken before, whatever the configuration says.
    ///
    /// # Errors
    /// [`ServerError`].
    pub async fn start_on(
        bound: BoundServer,
        config: ServerConfig,
    ) -> Result<RunningServer, ServerError> {
        let BoundServer { socket, address } = bound;
        let mut opening = config.clone();
        if opening.addresses.is_empty() {
            opening.addresses.push(address.to_string());
        }
        let path = config.data_dir.clone();
        let entering = move || {
            let data = DataDirectory::enter(&path)?;
            let server = storage::identity(&path)?;
            Ok::<_, ServerError>((data, server))
        };
        let (data, server) = blocking(entering).await?;
        let client_verifier = ClientVerifier::new(&data.server)?;
        let tls = server_config(&data.server, &client_verifier)?;
        if config.plain && !address.ip().is_loopback() {
            tracing::warn!(%address, "connections without TLS can be read and changed on the way");
        }
        let listen_error = |source| ServerError::Listen { address, source };
        let (listener, core) = if let Some(meta) = &data.meta {
            let listener = socket.listen(BACKLOG).map_err(listen_error)?;
            let waiting = Waiting {
                data: &data,
                address: meta,
                server,
                label: &opening.label,
                addresses: &opening.addresses,
                listener: &listener,
                tls: tls.clone(),
                plain: config.plain,
                told: config.standing_by.clone(),
            };
            let (lead, from) = lead::wait(&waiting).await?;
            let core = blocking(move || open(&opening, data, Some(Arc::new(lead)))).await?;
            tokio::time::sleep_until(from).await;
            (listener, core)
        } else {
            let core = blocking(move || open(&opening, data, None)).await?;
            (socket.listen(BACKLOG).map_err(listen_error)?, core)
        };
        let served = Arc::clone(&core);
        blocking(move || Ok(served.data.begin_serving()?)).await?;
        let stop = Arc::new(Notify::new());
        let accept = Accept {
            core: core.clone(),
            tls,
            plain: config.plain,
            pending: Pending::new(),
            all: Arc::new(AtomicUsize::new(0)),
        };
        let accepting = tokio::spawn(accept.run(listener, stop.clone()));
        let reaping = tokio::spawn(reaper::run(core.clone()));
        let interval = config.stores_noted_interval;
        tokio::spawn(reaper::note_stores(Arc::downgrade(&core), interval));
        tracing::info!(%address, cluster = %core.data.cluster, "serving");
        Ok(RunningServer {
            core,
            address,
            stop,
            accepting: Some(accepting),
            reaping,
        })
    }
}

async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, ServerError> + Send + 'static,
) -> Result<T, ServerError> {
    let done = tokio::task::spawn_blocking(act).await;
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Everything that blocks: files, keys, exports.
fn open(
    config: &ServerConfig,
    data: DataDirectory,
    lead: Option<Arc<Lead>>,
) -> Result<Arc<Core>, ServerError> {
    let clock = Clock::start();
    let sessions = Arc::new(Sessions::new());
    let opening = storage::Opening {
        is_first_come: config.first_come_first_served,
        older_accepted: config.older_stores_accepted.clone(),
        given_up: config.stores_given_up.clone(),
    };
    let storage = Storage::open(data.path(), data.cluster, &opening)?;
    let runtime = tokio::runtime::Handle::current();
    let line = config.line.clone();
    let cluster = Arc::new(Cluster::new(storage.clone(), line, runtime.clone()));
    let (registry, members) = gather(&data, lead.as_deref(), &cluster)?;
    let volumes = Volumes::default();
    let ground = Ground {
        data: &data,
        cluster: &cluster,
        lead: lead.as_ref(),
        runtime: &runtime,
    };
    for record in registry.volumes() {
        serve_volume(&volumes, record, &ground);
    }
    let had_locks = had_locks(&data, lead.as_deref())?;
    let journal = Journal::open(data.path(), &volumes, data.lost_unflushed)?;
    data.begin_run()?;
    let background = Background::default();
    let scrubs = Scrubs::start(&storage, &background, config.scrub_interval)
        .map_err(StorageError::Thread)?;
    let manager = members.as_ref().map_or(Ok(Manager::none()), |_| {
        Manager::open(data.path(), &cluster, lead.as_ref())
    })?;
    let core = Arc::new(Core {
        client_verifier: ClientVerifier::new(&data.server)?,
        credentials: registry.valid_credentials(),
        registry: Mutex::new(registry),
        creating: Mutex::new(()),
        caching: Caching::new(sessions.clone(), former(&data, lead.as_deref())?, clock),
        locks: Locks::new(had_locks, clock.now()),
        again: Again::new(data.lost_unflushed, data.lost_earlier),
        journal,
        judge: Judge::default(),
        buffers: Buffers::default(),
        pool: Pool::start(config.workers)?,
        manager,
        storage,
        background,
        scrubs,
        cluster,
        lead,
        members: members.map(Mutex::new),
        member: joined(&data, config),
        stopping: AtomicBool::new(false),
        last_link: AtomicU64::new(0),
        locks_noted: LocksNoted::new(had_locks),
        data,
        volumes,
        sessions,
        clock,
        runtime,
    });
    begin(&core);
    Ok(core)
}

/// The lists, and who has joined, as they are now; none of one that is no manager.
fn gather(
    data: &DataDirectory,
    lead: Option<&Lead>,
    cluster: &Arc<Cluster>,
) -> Result<(Registry, Option<Members>), ServerError> {
    let Some(lead) = lead else {
        let mut registry = Registry::open(Lists::Directory(data.path().to_owned()))?;
        let members = meet(data, &mut registry, cluster)?;
        return Ok((registry, members));
    };
    let registry = Registry::open(lead.lists())?;
    cluster.set_credential(lead.credential(data)?);
    let members = know(Members::open(lead.lists())?, cluster);
    Ok((registry, Some(members)))
}

/// Who may believe what the run before has leased, and who has written into its stores.
fn former(
    data: &DataDirectory,
    lead: Option<&Lead>,
) -> Result<(Notes, Vec<(SessionId, Noted)>), ServerError> {
    match lead {
        // Whoever takes over lets the time pass in which anything is believed, and has no stores.
        Some(_) => Ok((Notes::none(), Vec::new())),
        None => Ok(Notes::open(data.path())?),
    }
}

/// Whether sessions may have held locks when somebody served last.
fn had_locks(data: &DataDirectory, lead: Option<&Lead>) -> Result<bool, ServerError> {
    match lead {
        Some(lead) => Ok(lead.had_locks()?),
        None => Ok(data.had_locks()),
    }
}

/// Opens a volume. What is in a cluster's engine may not be there for a moment, as when a member
/// was killed together with the manager that led; then it is tried again.
fn serve_volume(volumes: &Volumes, record: &VolumeRecord, ground: &Ground<'_>) {
    for _ in 0..VOLUME_TRIES {
        let is_served = volumes.add(record, ground).is_some();
        if is_served || !ground.lead.is_some_and(|lead| lead.is_trusted()) {
            return;
        }
        std::thread::sleep(VOLUME_PAUSE);
    }
}

/// Begins the work that nobody asks for.
fn begin(core: &Arc<Core>) {
    overlap::warn(&core.volumes.summaries());
    for volume in core.volumes.list() {
        admin::begin(core, &volume);
    }
    match &core.member {
        Some(_) => JoinedMember::start(core.background.add("membership"), core),
        None => cluster::start(core.background.add("storage servers"), &core.cluster),
    }
}

/// Who has joined the cluster of a manager, as they are now; none if this is not one.
fn meet(
    data: &DataDirectory,
    registry: &mut Registry,
    cluster: &Arc<Cluster>,
) -> Result<Option<Members>, ServerError> {
    if data.authority.is_none() {
        return Ok(None);
    }
    let members = Members::open(Lists::Directory(data.path().to_owned()))?;
    if members.list().is_empty() {
        return Ok(Some(members));
    }
    match data::manager_credential(data, registry) {
        Ok(credential) => cluster.set_credential(credential),
        Err(error) => tracing::error!(%error, "storage servers cannot be asked"),
    }
    Ok(Some(know(members, cluster)))
}

/// Looks at those who have joined, so that volumes find the stores that are there.
fn know(members: Members, cluster: &Arc<Cluster>) -> Members {
    for member in members.list() {
        cluster.know(member.clone());
    }
    tokio::runtime::Handle::current().block_on(cluster.look());
    members
}

/// What a server has that has joined; none of the manager.
fn joined(data: &DataDirectory, config: &ServerConfig) -> Option<JoinedMember> {
    if data.authority.is_some() {
        return None;
    }
    let Some(line) = config.line.clone() else {
        tracing::error!("there is no way to the manager");
        return None;
    };
    Some(JoinedMember::new(line, data, config.addresses.clone()))
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // A restarted server takes its port again while old connections linger.
    socket.set_reuseaddr(true)?;
    wire::link::prepare_unconnected(&socket);
    socket.bind(address)?;
    Ok(socket)
}

struct Accept {
    core: Arc<Core>,
    tls: Arc<rustls::ServerConfig>,
    plain: bool,
    pending: Pending,
    all: Arc<AtomicUsize>,
}

impl Accept {
    async fn run(self, listener: TcpListener, stop: Arc<Notify>) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.notified() => return,
            };
            match accepted {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Begins to serve a connection, if need be in the place of another that is not authenticated.
    fn admit(&self, stream: TcpStream, peer: SocketAddr) {
        if self.all.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_ALL_MAX {
            self.all.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (core, tls, all) = (self.core.clone(), self.tls.clone(), self.all.clone());
        let plain = self.plain;
        let place = self.pending.enter(peer.ip());
        tokio::spawn(async move {
            serve(core, stream, peer, tls, plain, place).await;
            all.fetch_sub(1, Ordering::Relaxed);
        });
    }
}

async fn serve(
    core: Arc<Core>,
    stream: TcpStream,
    peer: SocketAddr,
    tls: Arc<rustls::ServerConfig>,
    plain: bool,
    place: PendingPlace,
) {
    let accepted = tokio::select! {
        accepted = accept(stream, peer, tls, plain) => accepted,
        () = place.sent_away() => return,
    };
    match accepted {
        Ok(connection) => connection::serve(core, connection, place).await,
        Err(error) => tracing::debug!(%peer, %error, "no connection"),
    }
}

pub(crate) async fn accept(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Arc<rustls::ServerConfig>,
    plain: bool,
) -> Result<Connection, LinkError> {
    let mut tls = Some(tls);
    if plain {
        // Both kinds come to one port; the first byte tells which it is.
        let mut first = [0];
        let peek = tokio::time::timeout(HANDSHAKE_TIME_MAX, stream.peek(&mut first));
        match peek.await {
            Ok(Ok(1)) if first[0] == TLS_FIRST_BYTE => {}
            Ok(Ok(1)) => tls = None,
            _ => return Err(LinkError::Closed),
        }
    }
    wire::link::accept(stream, peer, tls).await
}

impl RunningServer {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Its cluster.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.core.data.cluster
    }

    /// This run.
    #[must_use]
    pub fn boot(&self) -> BootId {
        self.core.data.boot
    }

    /// What a join string pins.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self.core.data.server.authority())
    }

    /// Its role as a storage server; with no devices if it has no store.
    #[must_use]
    pub fn storage(&self) -> &Arc<Storage> {
        &self.core.storage
    }

    /// How it is, sessions included.
    #[must_use]
    pub fn status(&self) -> ServerStatus {
        admin::status(&self.core, true)
    }

    /// Waits until another manager may lead: this one says nothing any more, and is to begin anew.
    /// For ever of a manager that is alone.
    pub async fn deposed(&self) {
        match &self.core.lead {
            Some(lead) => lead.seat.lost().await,
            None => std::future::pending().await,
        }
    }

    /// Stops: accepts nobody any more, says farewell to everybody, finishes what is being carried
    /// out, within seconds.
    pub async fn shutdown(mut self) {
        self.stop_accepting().await;
        for session in self.core.sessions.list() {
            for link in session.links() {
                link.close(Some(&Farewell::Stopping));
            }
        }
        let core = self.core.clone();
        let stopped = tokio::task::spawn_blocking(move || {
            core.pool.stop(STOP_TIME_MAX);
            core.scrubs.stop();
            core.manager.stop();
            for volume in core.volumes.list() {
                if let Some(parallel) = volume.tree.parallel() {
                    parallel.close();
                }
            }
            if core.storage.stop() {
                core.caching.all_is_durable();
            }
            // What nobody holds when the server stops in order, nobody can want back.
            if core.locks.is_empty() {
                core.mark_locks(false);
            }
        });
        if stopped.await.is_err() {
            tracing::error!("stopping the workers ended by a panic");
        }
        // Farewells are on their way; connections end by themselves within moments.
        tokio::time::sleep(Duration::from_millis(10)).await;
        tracing::info!("stopped");
    }

    async fn stop_accepting(&mut self) {
        self.core.stopping.store(true, Ordering::Release);
        self.stop.notify_one();
        self.reaping.abort();
        if let Some(accepting) = self.accepting.take()
            && accepting.await.is_err()
        {
            tracing::error!("accepting connections ended by a panic");
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.core.stopping.store(true, Ordering::Release);
        self.reaping.abort();
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
        for session in self.core.sessions.list_all() {
            for link in session.end(self.core.clock.now()).into_iter().flatten() {
                link.close(None);
            }
            // They keep everything alive.
            let waiting = session.memory().close();
            drop(waiting);
        }
        self.core.pool.stop(Duration::ZERO);
    }
}

impl std::fmt::Debug for RunningServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_gets_through_before_it_starts_and_everybody_after() {
        let data = tempfile::tempdir().expect("a directory");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let bound = Server::bind(any).await.expect("a free port");
        let address = bound.address();
        // Here the server makes its keys.
        let early = TcpStream::connect(address).await;
        let refused = early.expect_err("it does not listen").kind();
        assert_eq!(refused, io::ErrorKind::ConnectionRefused);
        Server::init(data.path()).expect("an empty directory");
        let config = ServerConfig::new(data.path().to_owned(), address);
        let running = Server::start_on(bound, config)
            .await
            .expect("a data directory");
        TcpStream::connect(address).await.expect("it listens");
        let taken = Server::bind(address).await;
        assert!(matches!(taken, Err(ServerError::Listen { .. })));
        running.shutdown().await;
    }
}
