//! The place of a run: two ends, the data, the servers, and the running of workloads.

use std::collections::{BTreeMap, HashSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use azlink::{Link, Namespace, Side};

use crate::app::{Outcome, Workload};
use crate::contain::GROUND;
use crate::mounted::Mounted;
use crate::process::Running;
use crate::systems::{ServerKind, System, start_server};

/// A mount must be there after this time, whatever the distance.
pub(crate) const MOUNT_MAX: Duration = Duration::from_secs(60);
/// A workload that does not stop this long after its cap hangs.
const HANG_MAX: Duration = Duration::from_secs(90);

/// Where the two ends are.
pub(crate) enum Ends {
    /// At the ends of a link.
    Link(Link),
    /// Both in one namespace, joined by loopback.
    Loopback(Namespace),
}

/// Programs found on this machine.
#[derive(Debug, Clone, Default)]
pub(crate) struct Programs {
    pub(crate) azekura: PathBuf,
    pub(crate) rclone: PathBuf,
    pub(crate) null: PathBuf,
}

/// The place.
pub(crate) struct Site {
    pub(crate) ends: Ends,
    pub(crate) programs: Programs,
    servers: BTreeMap<ServerKind, Running>,
    mounts: u32,
}

impl Site {
    pub(crate) fn new(ends: Ends, programs: Programs) -> anyhow::Result<Self> {
        let site = Self {
            ends,
            programs,
            servers: BTreeMap::new(),
            mounts: 0,
        };
        for dir in [site.data(), site.temp(), site.mount_point()] {
            std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        }
        Ok(site)
    }

    /// The tree that servers serve, on tmpfs.
    pub(crate) fn data(&self) -> PathBuf {
        Path::new(GROUND).join("data")
    }

    /// Keys, configurations, logs and caches.
    pub(crate) fn temp(&self) -> PathBuf {
        Path::new(GROUND).join("temp")
    }

    pub(crate) fn mount_point(&self) -> PathBuf {
        Path::new(GROUND).join("mount")
    }

    pub(crate) fn link(&self) -> Option<&Link> {
        match &self.ends {
            Ends::Link(link) => Some(link),
            Ends::Loopback(_) => None,
        }
    }

    pub(crate) fn server_address(&self) -> Ipv4Addr {
        match &self.ends {
            Ends::Link(_) => azlink::SERVER_ADDRESS,
            Ends::Loopback(_) => Ipv4Addr::LOCALHOST,
        }
    }

    /// A command at one end.
    pub(crate) fn command(&self, side: Side, program: impl AsRef<std::ffi::OsStr>) -> Command {
        match &self.ends {
            Ends::Link(link) => link.command(side, program),
            Ends::Loopback(namespace) => namespace.command(program),
        }
    }

    /// Starts the server that a system needs, unless it runs.
    pub(crate) fn serve(&mut self, system: &dyn System) -> anyhow::Result<()> {
        let Some(kind) = system.server() else {
            return Ok(());
        };
        if !self.servers.contains_key(&kind) {
            let server = start_server(kind, self)?;
            self.servers.insert(kind, server);
        }
        Ok(())
    }

    /// Ends all servers.
    pub(crate) fn stop_servers(&mut self) {
        self.servers.clear();
    }

    pub(crate) fn server_ids(&self) -> HashSet<u32> {
        self.servers.values().map(Running::id).collect()
    }

    /// Waits until a TCP port of a server answers at its own end.
    pub(crate) fn wait_port(&self, running: &mut Running, port: u16) -> anyhow::Result<()> {
        let address = (self.server_address(), port).into();
        let connect =
            || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok();
        let namespace = match &self.ends {
            Ends::Link(link) => link.namespace(Side::Server),
            Ends::Loopback(namespace) => namespace,
        };
        running.wait_until("starting a server", Duration::from_secs(20), || {
            namespace.run(connect).unwrap_or(false)
        })
    }

    /// A fresh mount of a system, with an empty cache.
    pub(crate) fn mount(&mut self, system: &dyn System) -> anyhow::Result<Mounted> {
        self.mounts += 1;
        self.serve(system)?;
        let cache = self.cache();
        if cache.exists() {
            std::fs::remove_dir_all(&cache).context("emptying the cache")?;
        }
        std::fs::create_dir_all(&cache)?;
        system
            .mount(self)
            .with_context(|| format!("mounting {}", system.name()))
    }

    /// Where the present mount may keep a cache.
    pub(crate) fn cache(&self) -> PathBuf {
        self.temp().join("cache")
    }

    /// The log of the present mount.
    pub(crate) fn mount_log(&self) -> PathBuf {
        self.temp().join("mount.log")
    }

    /// The same number never comes twice: for directories that no cache can know.
    pub(crate) fn mount_number(&self) -> u32 {
        self.mounts
    }

    /// Runs a workload in a process of its own; `meanwhile` runs beside it.
    pub(crate) fn run_app(
        &self,
        workload: &Workload,
        cap: Duration,
        mounted: &mut Mounted,
        meanwhile: impl FnOnce(),
    ) -> anyhow::Result<Outcome> {
        let log = self.temp().join("app.log");
        let mut command = self.command(Side::Client, "/proc/self/exe");
        command
            .args(["app", &serde_json::to_string(workload)?])
            .args(["--cap", &format!("{:.3}", cap.as_secs_f64())]);
        let mut app = Running::start(command, &log)?;
        meanwhile();
        if app.wait_end(cap + HANG_MAX)?.is_none() {
            mounted.abort();
            bail!("the workload hung {} s after its cap", HANG_MAX.as_secs());
        }
        let text = std::fs::read_to_string(&log)?;
        let outcome: Outcome = serde_json::from_str(&text)
            .with_context(|| format!("the workload said: {}", app.log_tail()))?;
        match &outcome.error {
            Some(error) => bail!("{error}"),
            None => Ok(outcome),
        }
    }
}
