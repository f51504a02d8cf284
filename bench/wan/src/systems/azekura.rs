//! Azekura by its own command line, without any tuning option.
//!
//! The plain variant goes without TLS, as data may on one machine. The blocking variant is the
//! paper's comparison (Figures 4 and 6): one request in flight with an RPC buffer of 64 MB,
//! everything else the same.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use azlink::Side;

use super::{ServerKind, System, first_line};
use crate::mounted::Mounted;
use crate::process::{Running, run};
use crate::site::{MOUNT_MAX, Site};

const PORT: u16 = 7700;
const VOLUME: &str = "bench";
/// The RPC buffer of the blocking client in the paper's figures.
const BLOCKING_BYTES: &str = "64MB";

#[derive(Clone, Copy, PartialEq)]
enum Variant {
    /// As everybody gets it.
    Usual,
    Plain,
    Blocking,
}

pub(crate) struct Azekura {
    program: PathBuf,
    variant: Variant,
}

impl Azekura {
    pub(crate) fn pipelined(program: &Path) -> Box<dyn System> {
        Self::boxed(program, Variant::Usual)
    }

    pub(crate) fn plain(program: &Path) -> Box<dyn System> {
        Self::boxed(program, Variant::Plain)
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

fn port(is_plain: bool) -> u16 {
    PORT + u16::from(is_plain)
}

fn volume(site: &Site, is_plain: bool) -> String {
    format!("{}:{}/{VOLUME}", site.server_address(), port(is_plain))
}

fn command(site: &Site, side: Side) -> Command {
    let mut command = site.command(side, &site.programs.azekura);
    command.env("AZEKURA_CONFIG_DIR", site.temp().join("azekura-config"));
    command
}

impl System for Azekura {
    fn name(&self) -> &'static str {
        match self.variant {
            Variant::Usual => "azekura",
            Variant::Plain => "azekura-plain",
            Variant::Blocking => "azekura-blocking",
        }
    }

    fn about(&self) -> String {
        let version = first_line(&self.program, "--version").unwrap_or_default();
        match self.variant {
            Variant::Usual => format!("{version}, no option"),
            Variant::Plain => format!("{version}, --plain: no TLS"),
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
            Variant::Usual | Variant::Blocking => ServerKind::Azekura,
        })
    }

    fn mount(&self, site: &Site) -> anyhow::Result<Mounted> {
        let point = site.mount_point();
        let mut mount = command(site, Side::Client);
        let is_plain = self.variant == Variant::Plain;
        mount
            .arg("mount")
            .arg(volume(site, is_plain))
            .arg(&point)
            .args(is_plain.then_some("--plain"));
        if self.variant == Variant::Blocking {
            mount.args(["--blocking", BLOCKING_BYTES]);
        }
        let mut umount = command(site, Side::Client);
        umount.arg("umount").arg(&point);
        Mounted::by_command(mount, umount, &point, &site.mount_log(), MOUNT_MAX)
    }
}

pub(crate) fn start(site: &Site, is_plain: bool) -> anyhow::Result<Running> {
    let temp = site.temp();
    let port = port(is_plain);
    let data = temp.join(format!("azekura-data-{port}"));
    // A server that is started again knows its volume.
    let is_new = !data.exists();
    let mut server = command(site, Side::Server);
    server
        .args(["server", "--init", "--store-size", "0", "--data"])
        .arg(&data)
        .arg("--listen")
        .arg(format!("{}:{port}", site.server_address()))
        .args(is_plain.then_some("--plain"));
    let log = temp.join(format!("azekura-server-{port}.log"));
    let mut running = Running::start(server, &log)?;
    site.wait_port(&mut running, port)?;
    if !is_new {
        return Ok(running);
    }
    let mut create = command(site, Side::Server);
    create
        .args(["volume", "create"])
        .arg(volume(site, is_plain))
        .arg("--export")
        .arg(site.data())
        .args(is_plain.then_some("--plain"));
    run(
        create,
        &temp.join("azekura-volume.log"),
        Duration::from_secs(30),
    )?;
    Ok(running)
}
