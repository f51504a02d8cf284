//! Azekura by its own command line, without any tuning option.
//!
//! The plain variant goes without TLS, as data may on one machine. The blocking variant is the
//! paper's comparison (Figures 4 and 6): one request in flight with an RPC buffer of 64 MB,
//! everything else the same. The first variant knows nothing of the line from a mount before; the
//! others do, but for the first mount of a run, as in use. The parallel variant is a volume striped
//! over four stores of one server, without TLS; all stores are files on tmpfs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use azlink::Side;

use super::{ServerKind, System, first_line};
use crate::mounted::Mounted;
use crate::process::{Running, run};
use crate::site::{MOUNT_MAX, Site};

const PORT: u16 = 7700;
const PORT_PLAIN: u16 = 7701;
const PORT_PARALLEL: u16 = 7702;
/// For making a volume or a store.
const TIME_MAX: Duration = Duration::from_secs(60);
const VOLUME: &str = "bench";
/// The RPC buffer of the blocking client in the paper's figures.
const BLOCKING_BYTES: &str = "64MB";

#[derive(Clone, Copy, PartialEq)]
enum Variant {
    /// As everybody gets it.
    Usual,
    /// As it is on the first mount of that server.
    First,
    Plain,
    Blocking,
    Parallel,
}

/// Stores of the parallel variant, and the size of each.
const STORES: usize = 4;
const STORE_SIZE: &str = "1536MiB";

pub(crate) struct Azekura {
    program: PathBuf,
    variant: Variant,
}

impl Azekura {
    pub(crate) fn pipelined(program: &Path) -> Box<dyn System> {
        Self::boxed(program, Variant::Usual)
    }

    pub(crate) fn first(program: &Path) -> Box<dyn System> {
        Self::boxed(program, Variant::First)
    }

    pub(crate) fn plain(program: &Path) -> Box<dyn System> {
        Self::boxed(program, Variant::Plain)
    }

    pub(crate) fn parallel(program: &Path) -> Box<dyn System> {
        Self::boxed(program, Variant::Parallel)
    }

    pub(crate) fn blocking(program: &Path) -> Box<dyn System> {
        Self::boxed(program, Variant::Blocking)
    }

    fn boxed(program: &Path, variant: Variant) -> Box<dyn System> {
        Box::new(Self {
            program: program.to_owned(),
            variant,
        })
    }
}

impl Variant {
    fn port(self) -> u16 {
        match self {
            Self::Usual | Self::First | Self::Blocking => PORT,
            Self::Plain => PORT_PLAIN,
            Self::Parallel => PORT_PARALLEL,
        }
    }

    fn is_plain(self) -> bool {
        matches!(self, Self::Plain | Self::Parallel)
    }

    fn volume(self, site: &Site) -> String {
        format!("{}:{}/{VOLUME}", site.server_address(), self.port())
    }
}

fn config(site: &Site) -> PathBuf {
    site.temp().join("azekura-config")
}

fn command(site: &Site, side: Side) -> Command {
    let mut command = site.command(side, &site.programs.azekura);
    command.env("AZEKURA_CONFIG_DIR", config(site));
    command
}

impl System for Azekura {
    fn name(&self) -> &'static str {
        match self.variant {
            Variant::Usual => "azekura",
            Variant::First => "azekura-first",
            Variant::Plain => "azekura-plain",
            Variant::Blocking => "azekura-blocking",
            Variant::Parallel => "azekura-parallel",
        }
    }

    fn about(&self) -> String {
        let version = first_line(&self.program, "--version").unwrap_or_default();
        match self.variant {
            Variant::Usual => format!("{version}, no option"),
            Variant::First => format!("{version}, nothing known of the line from a mount before"),
            Variant::Plain => format!("{version}, --plain: no TLS"),
            Variant::Parallel => {
                format!("{version}, --plain, a parallel volume over {STORES} stores")
            }
            Variant::Blocking => {
                format!("{version}, --blocking {BLOCKING_BYTES}: one request in flight")
            }
        }
    }

    fn why_not(&self) -> Option<String> {
        if first_line(&self.program, "--version").is_none() {
            return Some(format!("no azekura at {}", self.program.display()));
        }
        None
    }

    fn takes_part(&self, op: &str) -> bool {
        self.variant != Variant::Blocking || matches!(op, "seq" | "stride")
    }

    fn server(&self) -> Option<ServerKind> {
        Some(match self.variant {
            Variant::Plain => ServerKind::AzekuraPlain,
            Variant::Parallel => ServerKind::AzekuraParallel,
            Variant::Usual | Variant::First | Variant::Blocking => ServerKind::Azekura,
        })
    }

    fn keeps_data(&self) -> bool {
        self.variant == Variant::Parallel
    }

    fn mount(&self, site: &Site) -> anyhow::Result<Mounted> {
        let point = site.mount_point();
        if self.variant == Variant::First {
            // It is not there before the first one.
            let _ = std::fs::remove_dir_all(config(site).join("state/lines"));
        }
        let mut mount = command(site, Side::Client);
        mount
            .arg("mount")
            .arg(self.variant.volume(site))
            .arg(&point)
            .args(self.variant.is_plain().then_some("--plain"));
        if self.variant == Variant::Blocking {
            mount.args(["--blocking", BLOCKING_BYTES]);
        }
        let mut umount = command(site, Side::Client);
        umount.arg("umount").arg(&point);
        Mounted::by_command(mount, umount, &point, &site.mount_log(), MOUNT_MAX)
    }
}

pub(crate) fn start(site: &Site, is_plain: bool) -> anyhow::Result<Running> {
    let variant = if is_plain {
        Variant::Plain
    } else {
        Variant::Usual
    };
    let (running, is_new) = start_server(site, variant, &["--store-size", "0"])?;
    if is_new {
        let mut create = command(site, Side::Server);
        create
            .args(["volume", "create", &variant.volume(site), "--export"])
            .arg(site.data())
            .args(is_plain.then_some("--plain"));
        run(create, &site.temp().join("azekura-volume.log"), TIME_MAX)?;
    }
    Ok(running)
}

pub(crate) fn start_parallel(site: &Site) -> anyhow::Result<Running> {
    let mut options = vec!["--store-size".to_owned(), STORE_SIZE.to_owned()];
    for number in 1..STORES {
        let path = site.temp().join(format!("store-{number}"));
        if !path.exists() {
            let mut format = command(site, Side::Server);
            format
                .args(["store", "format", "--size", STORE_SIZE])
                .args(["--unit", "256KiB", "--no-calibration"])
                .arg(&path);
            run(format, &site.temp().join("azekura-store.log"), TIME_MAX)?;
        }
        options.extend(["--store".to_owned(), path.to_string_lossy().into_owned()]);
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (running, is_new) = start_server(site, Variant::Parallel, &options)?;
    if is_new {
        let mut create = command(site, Side::Server);
        let volume = Variant::Parallel.volume(site);
        create.args(["volume", "create", &volume, "--plain"]);
        run(create, &site.temp().join("azekura-volume.log"), TIME_MAX)?;
    }
    Ok(running)
}

/// The server of a variant, and whether it is a new one: one that is started again knows its
/// volume and its stores.
fn start_server(
    site: &Site,
    variant: Variant,
    options: &[&str],
) -> anyhow::Result<(Running, bool)> {
    let temp = site.temp();
    let port = variant.port();
    let data = temp.join(format!("azekura-data-{port}"));
    let is_new = !data.exists();
    let mut server = command(site, Side::Server);
    server
        .args(["server", "--init", "--data"])
        .arg(&data)
        .arg("--listen")
        .arg(format!("{}:{port}", site.server_address()))
        .args(variant.is_plain().then_some("--plain"));
    if is_new {
        server.args(options);
    } else {
        server.args(["--store-size", "0"]);
    }
    let log = temp.join(format!("azekura-server-{port}.log"));
    let mut running = Running::start(server, &log)?;
    site.wait_port(&mut running, port)?;
    Ok((running, is_new))
}
