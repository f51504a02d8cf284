//! `azekura server`.

use super::login::{LOGIN_TIME, read_join};
use super::store;
use crate::address::{Address, AddressError};
use crate::config::{Config, Span};
use crate::connect::{host_name, resolve, runtime};
use crate::errors::{Code, Context, Failure, Result};
use crate::line::Sessions;
use crate::{enrol, notify, output};
use ::server::{
    BoundServer, DataError, MetaAddress, MissingStore, NewStore, RunningServer, Server as Service,
    ServerConfig, ServerError,
};
use ::store::device::Direction;
use base::{ByteSize, Rate, StoreId};
use rustix::process::{Resource, Rlimit};
use rustix::thread::CapabilitySet;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::Command;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use wire::identity::Credential;

/// Serve volumes; stays in the foreground
///
/// With --init a new cluster is made in the data directory if there is none yet, and its
/// administrator's credential is kept for this user, who needs no log-in on this machine. With
/// --join the server belongs to a cluster that is there. It keeps objects, and files of parallel
/// volumes are striped over the stores of all servers; or it is a manager beside others, stands by,
/// and takes the place of one that is gone. The server ends in order upon SIGTERM or SIGINT.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  azekura server --data ./srv --listen 127.0.0.1:7700 --init\n  \
                  azekura join create manager.example:7700 --kind storage\n  \
                  azekura server --data ./disks --listen 0.0.0.0:7700 --join manager.example:7700 -"
)]
pub(super) struct Server {
    /// Where the server keeps its keys and lists; files of volumes stay where they are
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// HOST:PORT to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", value_parser = one_address)]
    listen: Address,
    /// Make a new cluster if the data directory has none
    #[arg(long, group = "begin")]
    init: bool,
    /// With --init: keep what managers have to know in this etcd cluster, so that several servers
    /// can be managers; such a server keeps no objects. The directory remembers it
    #[arg(long, value_name = "etcd://HOST:PORT,...[/PREFIX]", requires = "init")]
    meta: Option<MetaAddress>,
    /// Join the cluster of this manager if the data directory belongs to none yet, by a join string
    /// of `azekura join create ADDR --kind storage`, or `--kind manager`; `-` reads it from a
    /// terminal or a pipe
    #[arg(long, num_args = 2, value_names = ["ADDR", "-|JOIN_STRING"], group = "begin")]
    join: Option<Vec<String>>,
    /// HOST:PORT at which others reach this server, if that is not where it listens; may be
    /// repeated, the best first
    #[arg(long, value_name = "ADDR", value_parser = one_address)]
    address: Vec<Address>,
    /// With --init or --join: size of the store that is made in the data directory; 0 for none.
    /// Without it 1 GiB, or a quarter of what is free there if that is less
    #[arg(long, value_name = "SIZE", requires = "begin")]
    store_size: Option<ByteSize>,
    /// Also serve the store at this file or block device, as `azekura store format` has made it,
    /// from now on; may be repeated
    #[arg(long, value_name = "PATH")]
    store: Vec<PathBuf>,
    /// Take this store as it is though it was further once: a copy of it was put back. What was
    /// written since that copy was made is lost. For this start only; may be repeated
    #[arg(long, value_name = "ID", value_parser = store::store_id)]
    accept_older_store: Vec<StoreId>,
    /// Give this store up, which is missing and does not come back: what lay there is lost, and
    /// nothing waits for it any more. For good; may be repeated
    #[arg(long, value_name = "ID", value_parser = store::store_id)]
    give_up_store: Vec<StoreId>,
    /// Also accept clients without TLS: what they send and get can be read and changed on the way
    #[arg(long)]
    plain: bool,
    /// Threads for file operations to begin with; more are added when disks make them wait
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Read all that stores have every so many days and hold it against its checksums, in the
    /// background; 0 for never
    #[arg(long, value_name = "DAYS", default_value_t = 14)]
    #[arg(value_parser = clap::value_parser!(u32).range(..=3650))]
    scrub_days: u32,
    /// Check the data directory and the address, without starting or making anything
    #[arg(long)]
    dry_run: bool,
    /// How often it is noted how far stores are
    #[arg(long, hide = true)]
    note_stores_every: Option<Span>,
    /// End when the process that started this one ends
    #[arg(long, hide = true)]
    with_parent: bool,
}

impl Server {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        if self.with_parent {
            let term = Some(rustix::process::Signal::TERM);
            rustix::process::set_parent_process_death_signal(term).context("with-parent")?;
        }
        raise_descriptor_limit();
        runtime()?.block_on(self.serve(config))
    }

    async fn serve(self, config: &Config) -> Result<()> {
        let addresses = resolve(&self.listen).await?;
        let listen = addresses
            .first()
            .copied()
            .expect("resolving gives at least one");
        let data = std::path::absolute(&self.data).context(self.data.display())?;
        if self.dry_run {
            return self.check(&data, listen);
        }
        let mut signals = Signals::new()?;
        // Before anything is made: a server that runs at this address keeps its administrator.
        let bound = Service::bind(listen).await?;
        let address = bound.address();
        let is_new = match (self.init, &self.join) {
            (true, _) => self.initialise(&data).await?,
            (false, Some(join)) => self.enter(&data, join).await?,
            (false, None) => false,
        };
        self.add_stores(&data)?;
        // Before it answers: whoever gets through shall find the credential.
        let named = Address::new(&self.listen.host, address.port());
        share_admin(config, &data, &named, address)?;
        let mut settings = ServerConfig::new(data.clone(), listen);
        settings.plain = self.plain;
        settings.older_stores_accepted = self.accept_older_store.clone();
        settings.stores_given_up = self.give_up_store.clone();
        if let Some(Span(interval)) = self.note_stores_every {
            settings.stores_noted_interval = interval;
        }
        settings.line = Some(std::sync::Arc::new(Sessions::default()));
        settings.addresses = self.addresses(address);
        if let Some(workers) = self.workers {
            settings.workers = usize::from(workers);
        }
        let days = Duration::from_secs(86_400).checked_mul(self.scrub_days);
        settings.scrub_interval = days.filter(|time| !time.is_zero());
        settings.label = host_name();
        let Some(running) = begin(bound, settings, &mut signals).await? else {
            return Ok(());
        };
        // First, so that whoever waits for it to be ready has been told.
        tell_missing(&running);
        announce(&running)?;
        if is_new {
            tell_rates(&running);
        }
        tokio::select! {
            () = signals.wait() => {}
            () = running.deposed() => return anew(address),
        }
        notify::tell("STOPPING=1");
        running.shutdown().await;
        Ok(())
    }

    /// Joins a cluster unless the directory belongs to one; says whether it did.
    async fn enter(&self, data: &Path, join: &[String]) -> Result<bool> {
        if Service::has_cluster(data)? {
            return Ok(false);
        }
        check_privileges()?;
        let [manager, string] = join else {
            unreachable!("the option has two values");
        };
        let manager: Address = manager
            .parse()
            .map_err(|error| Failure::new(Code::Invalid, format!("--join: {error}")))?;
        let join = read_join(string.clone()).await?;
        // Before the store is made, which takes a while.
        enrol::check(&manager, &join).await?;
        // Whether the join string is for a manager only those know who have made it.
        if self.has_no_store() {
            let joining = Service::prepare_manager(data)?;
            let given = enrol::enrol_manager(&manager, &join, &host_name(), LOGIN_TIME).await?;
            if let Some((admin, given)) = given {
                let completed = joining.complete(&admin, &given);
                completed.map_err(ServerError::from)?;
                return Ok(true);
            }
        }
        let size = self.check_store(data)?;
        let store = NewStore {
            path: PathBuf::from(FIRST_STORE),
            size_bytes: Some(size),
        };
        let joining = Service::prepare_join(data, (size > 0).then_some(&store))?;
        let own = Some(joining.server());
        let credential = enrol::enrol(&manager, &join, &host_name(), own, LOGIN_TIME).await?;
        let managers = manager.each().map(|one| one.to_string()).collect();
        let completed = joining.complete(&credential, managers);
        completed.map_err(ServerError::from)?;
        Ok(true)
    }

    /// Where others reach this server.
    fn addresses(&self, bound: SocketAddr) -> Vec<String> {
        if !self.address.is_empty() {
            return self.address.iter().map(Address::to_string).collect();
        }
        let host = match bound.ip().is_unspecified() {
            true => host_name(),
            false => self.listen.host.clone(),
        };
        let port = bound.port();
        vec![Address::new(host, port).to_string()]
    }

    /// Makes a cluster unless there is one; says whether it did.
    async fn initialise(&self, data: &Path) -> Result<bool> {
        // What cannot be seen is not to be made anew.
        if Service::has_cluster(data)? {
            return Ok(false);
        }
        check_privileges()?;
        if let Some(meta) = &self.meta {
            self.refuse_stores()?;
            Service::init_with_meta(data, meta).await?;
            return Ok(true);
        }
        let size = self.check_store(data)?;
        let store = NewStore {
            path: PathBuf::from(FIRST_STORE),
            size_bytes: Some(size),
        };
        match Service::init_with_store(data, (size > 0).then_some(&store)) {
            Ok(_) => Ok(true),
            Err(ServerError::Data(DataError::Initialised(_))) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the first store can be made, before anything is; its size, 0 for none.
    fn check_store(&self, data: &Path) -> Result<u64> {
        let size = self
            .store_size
            .map_or_else(|| store_size(data), |size| size.0);
        if size > 0 {
            let path = data.join(FIRST_STORE);
            store::check_sizes(&path, size, None)
                .map_err(|failure| failure.leaving("--store-size 0 makes none"))?;
            let there = data.ancestors().find(|path| path.exists());
            store::check_directory(there.unwrap_or(Path::new("/")), size)?;
        }
        Ok(size)
    }

    /// Whether nothing says that it is to have one.
    fn has_no_store(&self) -> bool {
        self.store_size.is_none_or(|size| size.0 == 0) && self.store.is_empty()
    }

    /// One of several managers keeps no objects: what lay there would go with it.
    fn refuse_stores(&self) -> Result<()> {
        if self.has_no_store() {
            return Ok(());
        }
        let message = "a server that is one of several managers has no store";
        Err(Failure::new(Code::Invalid, message).hint(
            "start another one for it on this machine, with a data directory and a port of its \
             own: azekura join create ADDR --kind storage",
        ))
    }

    /// Takes stores over that were made elsewhere.
    fn add_stores(&self, data: &Path) -> Result<()> {
        if !self.store.is_empty() && !Service::has_cluster(data)? {
            return Err(ServerError::from(DataError::NotInitialised(data.to_owned())).into());
        }
        for path in &self.store {
            let store = NewStore {
                path: std::path::absolute(path).context(path.display())?,
                size_bytes: None,
            };
            Service::add_store(data, &store)?;
        }
        Ok(())
    }

    fn check(&self, data: &Path, listen: SocketAddr) -> Result<()> {
        drop(
            std::net::TcpListener::bind(listen)
                .map_err(|error| crate::errors::listen_failure(listen, &error))?,
        );
        let there = Service::has_cluster(data)?;
        let mut store_bytes = 0;
        if !there && !self.init {
            return Err(ServerError::from(DataError::NotInitialised(data.to_owned())).into());
        }
        if !there {
            check_rights(data)?;
            check_privileges()?;
            match self.meta {
                Some(_) => self.refuse_stores()?,
                None => store_bytes = self.check_store(data)?,
            }
        }
        for path in &self.store {
            let path = std::path::absolute(path).context(path.display())?;
            Service::try_store(data, &path)?;
        }
        let would = if there { "serve" } else { "make a cluster in" };
        let store = match store_bytes {
            0 => String::new(),
            bytes => format!(", with a store of {}", output::size(bytes)),
        };
        output::line(format_args!(
            "would {would} {}{store}, and listen on {listen}",
            data.display()
        ))
    }
}

/// One server, and not several managers.
fn one_address(text: &str) -> Result<Address, AddressError> {
    let address: Address = text.parse()?;
    match address.others.is_empty() {
        true => Ok(address),
        false => Err(AddressError(format!("{text:?} are several addresses"))),
    }
}

/// How long a manager waits before it begins anew because it could not lead.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts it. One of several managers says that it stands by, and waits for its turn; none if it is
/// to end before that.
async fn begin(
    bound: BoundServer,
    mut settings: ServerConfig,
    signals: &mut Signals,
) -> Result<Option<RunningServer>> {
    let address = bound.address();
    let (tell, mut told) = watch::channel(None);
    settings.standing_by = Some(tell);
    let mut stands_by = false;
    let mut starting = pin!(Service::start_on(bound, settings));
    loop {
        tokio::select! {
            running = &mut starting => return match running {
                Err(error) if stands_by => {
                    // It may be better in a moment; nobody else can take this place.
                    output::note(Failure::from(error));
                    tokio::time::sleep(PAUSE).await;
                    anew(address).map(|()| None)
                }
                // The code's hint says what to do, for all that a server may lack.
                Err(ServerError::Export(_)) if lacking().is_some() => Err(unprivileged()),
                running => Ok(Some(running?)),
            },
            () = signals.wait() => return Ok(None),
            Ok(()) = told.changed() => {
                stands_by = true;
                let leader = told.borrow_and_update().clone().unwrap_or_default();
                stand_by(address, &leader)?;
            }
        }
    }
}

fn stand_by(address: SocketAddr, leader: &str) -> Result<()> {
    let leader = match leader {
        "" => "nobody".to_owned(),
        leader => output::plain(leader),
    };
    output::line(format_args!(
        "azekura server: standing by on {address}, {leader} leads"
    ))?;
    notify::tell("READY=1");
    Ok(())
}

/// Begins anew as the same process: nothing is left of what a manager had in memory whose seat is
/// another one's now, and nothing of it is under way any more.
fn anew(address: SocketAddr) -> Result<()> {
    tracing::warn!("the seat is another manager's; this one begins anew");
    let program = std::env::current_exe().context("this program")?;
    let arguments = at_same_address(std::env::args_os().skip(1), address);
    let failed = Command::new(program).args(arguments).exec();
    Err(Failure::local("cannot begin anew", failed))
}

/// Arguments of a server that is to listen where it did, although it may have been told to take any
/// port.
fn at_same_address(
    arguments: impl Iterator<Item = OsString>,
    address: SocketAddr,
) -> Vec<OsString> {
    let mut is_next = false;
    let at_port = |argument: OsString| {
        let text = argument.to_str().unwrap_or_default();
        let is_address = std::mem::replace(&mut is_next, text == "--listen");
        let any = text.strip_suffix(":0");
        match any.filter(|any| is_address || any.starts_with("--listen=")) {
            Some(any) => format!("{any}:{}", address.port()).into(),
            None => argument,
        }
    };
    arguments.map(at_port).collect()
}

/// The store that a new server has, in its data directory.
const FIRST_STORE: &str = "stores/0";

/// Which stores the server works without.
fn tell_missing(running: &RunningServer) {
    for missing in running.storage().missing().values() {
        output::note(missing_failure(missing));
    }
}

fn missing_failure(missing: &MissingStore) -> Failure {
    let MissingStore {
        store,
        path,
        why,
        is_older,
    } = missing;
    // Errors of a device name its path.
    let place = path.display().to_string();
    let at = match why.contains(&place) {
        true => String::new(),
        false => format!(" at {place}"),
    };
    let message = format!("store {store}{at} is missing: {why}; the server works without it");
    match is_older {
        false => Failure::new(Code::StoreMissing, message),
        true => Failure::new(Code::StoreOlder, message).hint(format!(
            "put the newest one back; --accept-older-store {store} takes this one, and what was \
             written since is lost"
        )),
    }
}

/// What was found of the stores that a new server has, and how far that goes.
fn tell_rates(running: &RunningServer) {
    for device in running.storage().devices() {
        let quick = device.capability.as_ref().filter(|found| found.is_quick());
        if quick.is_some() {
            let rate = |operation| Rate(device.plan.promised_bytes_per_second(operation));
            output::note(format_args!(
                "store {}: promises reading {} or writing {};\n{:14}{}",
                device.path.display(),
                rate(Direction::Read),
                rate(Direction::Write),
                "",
                store::caution(),
            ));
        }
    }
}

/// Whether this user may make `data`, or files in it if it is there.
fn check_rights(data: &Path) -> Result<()> {
    let there = data.ancestors().find(|path| path.exists());
    let there = there.unwrap_or(Path::new("/"));
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(there, access).map_err(|errno| {
        let error = DataError::Io {
            path: there.to_owned(),
            source: errno.into(),
        };
        ServerError::from(error).into()
    })
}

/// What a server cannot do without, whatever it serves: its threads act for those who ask.
const NEEDED: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::SETUID, "CAP_SETUID"),
    (CapabilitySet::SETGID, "CAP_SETGID"),
    (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
];

/// The first right that this process lacks for a server.
fn lacking() -> Option<&'static str> {
    // What cannot be asked is found out when it is needed.
    let has = rustix::thread::capabilities(None).ok()?.effective;
    let lacking = NEEDED.iter().find(|(needed, _)| !has.contains(*needed));
    lacking.map(|(_, name)| *name)
}

/// Whether this process may act for others, before anything is made: keys and a store of a server
/// that cannot start would be in the way of one that can.
fn check_privileges() -> Result<()> {
    match lacking() {
        Some(_) => Err(unprivileged()),
        None => Ok(()),
    }
}

fn unprivileged() -> Failure {
    let lacking = lacking().unwrap_or("root's rights");
    let message = format!("a server acts for the users who ask it, which takes {lacking}");
    Failure::new(Code::ServerRights, message)
}

/// Size of a first store if nobody says one: enough to try everything out, and no burden. None
/// where a quarter of what is free would be too small for one.
fn store_size(data: &Path) -> u64 {
    const USUAL: u64 = 1 << 30;
    const LEAST: u64 = 64 << 20;
    let there = data.ancestors().find(|path| path.exists());
    let stat = there.and_then(|path| rustix::fs::statvfs(path).ok());
    let free = stat.map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    match USUAL.min(free / 4) {
        size if size >= LEAST => size,
        _ => 0,
    }
}

/// Lets this user administer the server under every address that it now has on this machine. A
/// credential of the same cluster that is there already stays.
fn share_admin(config: &Config, data: &Path, named: &Address, listen: SocketAddr) -> Result<()> {
    let admin = match Credential::load(&data.join(Service::ADMIN)) {
        Ok(admin) => admin,
        // The data directory was made on another machine, or the credential moved away on purpose.
        Err(error) => {
            tracing::debug!(%error, "no administrator's credential to share");
            return Ok(());
        }
    };
    for address in addresses(named, listen) {
        let known = Credential::load(&config.credential_directory(&address));
        if !known.is_ok_and(|known| known.cluster() == admin.cluster()) {
            config.save_credential(&address, &admin)?;
        }
    }
    Ok(())
}

/// The addresses by which a user of this machine would call the server.
fn addresses(named: &Address, listen: SocketAddr) -> Vec<Address> {
    let port = listen.port();
    let host = |host: &str| Address::new(host, port);
    let mut all = vec![named.clone(), Address::from(listen)];
    if listen.ip().is_unspecified() {
        all.extend([host("127.0.0.1"), host("::1"), host(&host_name())]);
    }
    if listen.ip().is_unspecified() || listen.ip() == IpAddr::from([127, 0, 0, 1]) {
        all.push(host("localhost"));
    }
    all.sort_by_key(ToString::to_string);
    all.dedup();
    all
}

fn announce(running: &RunningServer) -> Result<()> {
    let (address, cluster) = (running.address(), running.cluster());
    output::line(format_args!(
        "azekura server: ready on {address}, cluster {cluster}"
    ))?;
    notify::tell("READY=1");
    Ok(())
}

/// Connections and files under way take descriptors; the usual soft limit of 1,024 is for programs
/// that use select(2).
pub(super) fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// The signals that end a process in order.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Of a terminal that is closed; `None` if it is nothing to this process (`nohup`).
    hangup: Option<Signal>,
}

impl Signals {
    /// Takes the signals over; must be called within a runtime.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn new() -> Result<Self> {
        let listen = |kind| signal(kind).context("cannot take signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: match std::fs::read_to_string("/proc/self/status") {
                Ok(status) if ignores_hangup(&status) => None,
                _ => Some(listen(SignalKind::hangup())?),
            },
        })
    }

    /// Waits for one.
    pub(crate) async fn wait(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            _ = hangup => {}
        }
    }
}

/// Whether a process ignores, by its status, that its terminal is closed: whoever started it wanted
/// that.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    ignored.is_some_and(|set| set & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_started_to_outlive_its_terminal_does() {
        let status = |set: &str| format!("SigBlk:\t0000000000000001\nSigIgn:\t{set}\n");
        assert!(ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")));
        assert!(!ignores_hangup("") && !ignores_hangup("SigIgn: 1x"));
    }

    #[test]
    fn a_server_that_begins_anew_listens_where_it_did() {
        let address = SocketAddr::from(([127, 0, 0, 1], 7));
        let shown = |text: &str| {
            let arguments = text.split(' ').map(OsString::from);
            at_same_address(arguments, address).join(" ".as_ref())
        };
        let apart = "server --listen h:0 --data d:0";
        assert_eq!(shown(apart), "server --listen h:7 --data d:0");
        assert_eq!(shown("server --listen=[::1]:0"), "server --listen=[::1]:7");
        assert_eq!(shown("server --listen h:70"), "server --listen h:70");
    }

    #[test]
    fn a_server_on_all_addresses_is_known_by_the_near_ones() {
        let shown = |text: &str| {
            let listen: SocketAddr = text.parse().expect("an address");
            let all = addresses(&Address::from(listen), listen);
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let any = shown("0.0.0.0:7");
        for expected in ["0.0.0.0:7", "127.0.0.1:7", "localhost:7", "[::1]:7"] {
            assert!(any.iter().any(|address| address == expected), "{any:?}");
        }
        assert_eq!(shown("127.0.0.1:7"), ["127.0.0.1:7", "localhost:7"]);
        assert_eq!(shown("192.0.2.1:7"), ["192.0.2.1:7"]);
    }
}
