//! A server, a volume and a mount of our own, for one suite.
//!
//! Everything goes through the command line that users have. The volume is the export of a
//! directory on an ext4 of our own, so that its results can be compared with ext4's; or a parallel
//! one, striped over stores on that ext4.

use super::loop_disk::LoopDisk;
use crate::process;
use crate::scratch::Scratch;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const START_LIMIT: Duration = Duration::from_secs(20);
/// An orderly `umount` writes back what is unwritten.
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// Stores of a parallel volume, and how large each is: all of it is written when it is made.
const STORES: usize = 2;
const STORE_SIZE: &str = "2GiB";
/// Small, so that small files are striped.
const STRIPE_UNIT: &str = "64KiB";

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VolumeKind {
    Export,
    Parallel,
}

impl VolumeKind {
    pub(crate) const ALL: [Self; 2] = [Self::Export, Self::Parallel];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Export => "export",
            Self::Parallel => "parallel",
        }
    }
}

/// No such kind.
#[derive(Debug)]
pub(crate) struct UnknownKind;

impl std::error::Error for UnknownKind {}

impl std::fmt::Display for UnknownKind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [one, other] = VolumeKind::ALL.map(VolumeKind::name);
        write!(formatter, "a volume is {one} or {other}")
    }
}

impl std::str::FromStr for VolumeKind {
    type Err = UnknownKind;

    fn from_str(text: &str) -> Result<Self, UnknownKind> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or(UnknownKind)
    }
}

/// A mounted volume. Fields are dropped in this order: the server before the disk that it serves.
pub(crate) struct Playground {
    volume: String,
    binary: PathBuf,
    home: PathBuf,
    mount: PathBuf,
    server: Server,
    disk: LoopDisk,
    scratch: Scratch,
}

/// The server's process, killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        process::kill_tree(&mut self.0);
    }
}

impl Playground {
    /// Serves and mounts.
    pub(crate) fn start(binary: &Path, kind: VolumeKind) -> Result<Self> {
        let scratch = Scratch::new("playground")?;
        let disk = LoopDisk::new(&scratch)?;
        let (home, mount) = (scratch.directory("home")?, scratch.directory("mount")?);
        let address = format!("127.0.0.1:{}", free_port()?);
        let stores = match kind {
            VolumeKind::Export => Vec::new(),
            VolumeKind::Parallel => make_stores(binary, disk.path())?,
        };
        let log = File::create(scratch.path().join("server.log"))?;
        let mut server = Command::new(binary);
        server.args(["server", "--listen", &address, "--init"]);
        server.args(["--store-size", "0", "--data"]);
        server
            .arg(scratch.path().join("srv"))
            .args(stores.iter().flat_map(|path| [Path::new("--store"), path]))
            .env("HOME", &home)
            .stdin(Stdio::null());
        let child = server
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("azekura server")?;
        let mut playground = Self {
            volume: format!("{address}/playground"),
            binary: binary.to_owned(),
            home,
            mount,
            server: Server(child),
            disk,
            scratch,
        };
        playground.await_server(&address)?;
        playground.create_volume(kind)?;
        playground.mount_volume()?;
        Ok(playground)
    }

    fn create_volume(&self, kind: VolumeKind) -> Result<()> {
        let mut create = self.azekura(&["volume", "create", &self.volume]);
        match kind {
            VolumeKind::Export => {
                let export = self.disk.path().join("export");
                std::fs::create_dir(&export).with_context(|| export.display().to_string())?;
                create.arg("--export").arg(&export);
            }
            VolumeKind::Parallel => {
                create.args(["--parallel", "--stripe-unit", STRIPE_UNIT]);
            }
        }
        process::check(&mut create, START_LIMIT)?;
        Ok(())
    }

    fn mount_volume(&self) -> Result<()> {
        // As the ext4 beneath is mounted: the suites have several users, set-id bits and devices.
        let options = ["mount", "-o", "allow_other,suid,dev", &self.volume];
        let mut mount = self.azekura(&options);
        process::check(mount.arg(&self.mount), START_LIMIT)?;
        Ok(())
    }

    /// The mounted directory.
    pub(crate) fn mount(&self) -> &Path {
        &self.mount
    }

    /// The ext4 that the volume lies on; an export is the directory `export` of it.
    pub(crate) fn disk(&self) -> &Path {
        self.disk.path()
    }

    /// Turns the rich ACLs of an export on, and mounts anew, as a mount that knows of them.
    pub(crate) fn enable_rich_acls(&self) -> Result<()> {
        process::check(
            &mut self.azekura(&["acl", "enable", &self.volume]),
            START_LIMIT,
        )?;
        process::check(self.azekura(&["umount"]).arg(&self.mount), STOP_LIMIT)?;
        self.mount_volume()
    }

    /// Unmounts in order, so that an error in writing back is an error of the suite.
    pub(crate) fn stop(self) -> Result<()> {
        process::check(self.azekura(&["umount"]).arg(&self.mount), STOP_LIMIT)?;
        Ok(())
    }

    fn azekura(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).env("HOME", &self.home);
        command
    }

    fn await_server(&mut self, address: &str) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while TcpStream::connect(address).is_err() {
            let ended = self.server.0.try_wait()?;
            if ended.is_some() || Instant::now() >= deadline {
                let log = self.scratch.path().join("server.log");
                let said = std::fs::read_to_string(log).unwrap_or_default();
                bail!("the server does not listen on {address} ({ended:?})\n{said}");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Playground {
    fn drop(&mut self) {
        // After `stop` there is nothing left to do here; after a failure this clears the way.
        for mount in crate::scratch::mounts_beneath(&self.mount).iter().rev() {
            crate::scratch::unmount(mount);
        }
    }
}

/// Rates are promised to nobody here, so the stores are not measured.
fn make_stores(binary: &Path, place: &Path) -> Result<Vec<PathBuf>> {
    let make = |index| {
        let store = place.join(format!("store-{index}"));
        let mut format = Command::new(binary);
        format.args(["store", "format", "--no-calibration", "--size", STORE_SIZE]);
        format.args(["--unit", STRIPE_UNIT]).arg(&store);
        process::check(&mut format, STOP_LIMIT)?;
        Ok(store)
    };
    (0..STORES).map(make).collect()
}

/// A port that was free a moment ago. Somebody else may take it; then the server says so.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox;

    #[test]
    fn a_server_that_does_not_start_is_an_error_and_leaves_nothing() {
        if let Some(why) = sandbox::obstacle() {
            crate::tools::skipped("playground", why);
            return;
        }
        let error = Playground::start(Path::new("/bin/false"), VolumeKind::Export)
            .err()
            .unwrap();
        assert!(error.to_string().contains("does not listen"), "{error:#}");
        let own = format!("azekura-playground-{}", std::process::id());
        let left = crate::scratch::mounts_beneath(&std::env::temp_dir());
        assert!(
            left.iter()
                .all(|path| !path.to_string_lossy().contains(&own)),
            "{left:?}"
        );
    }
}
