//! Azekura by its own command line, without any tuning option.
//!
//! The blocking variant is the paper's comparison (Figures 4 and 6): one request in flight with an
//! RPC buffer of 64 MB, everything else the same.

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

pub(crate) struct Azekura {
    program: PathBuf,
    is_blocking: bool,
}

impl Azekura {
    pub(crate) fn pipelined(program: &Path) -> Box<dyn System> {
        Box::new(Self {
            program: program.to_owned(),
            is_blocking: false,
        })
    }

    pub(crate) fn blocking(program: &Path) -> Box<dyn System> {
        Box::new(Self {
            program: program.to_owned(),
            is_blocking: true,
        })
    }
}

fn volume(site: &Site) -> String {
    format!("{}:{PORT}/{VOLUME}", site.server_address())
}

fn command(site: &Site, side: Side) -> Command {
    let mut command = site.command(side, &site.programs.azekura);
    command.env("AZEKURA_CONFIG_DIR", site.temp().join("azekura-config"));
    command
}

impl System for Azekura {
    fn name(&self) -> &'static str {
        if self.is_blocking {
            "azekura-blocking"
        } else {
            "azekura"
        }
    }

    fn about(&self) -> String {
        let version = first_line(&self.program, "--version").unwrap_or_default();
        if self.is_blocking {
            format!("{version}, --blocking {BLOCKING_BYTES}: one request in flight")
        } else {
            format!("{version}, no option")
        }
    }

    fn why_not(&self) -> Option<String> {
        if first_line(&self.program, "--version").is_none() {
            return Some(format!("no azekura at {}", self.program.display()));
        }
        None
    }

    fn takes_part(&self, op: &str) -> bool {
        !self.is_blocking || matches!(op, "seq" | "stride")
    }

    fn server(&self) -> Option<ServerKind> {
        Some(ServerKind::Azekura)
    }

    fn mount(&self, site: &Site) -> anyhow::Result<Mounted> {
        let point = site.mount_point();
        let mut mount = command(site, Side::Client);
        mount.arg("mount").arg(volume(site)).arg(&point);
        if self.is_blocking {
            mount.args(["--blocking", BLOCKING_BYTES]);
        }
        let mut umount = command(site, Side::Client);
        umount.arg("umount").arg(&point);
        Mounted::by_command(mount, umount, &point, &site.mount_log(), MOUNT_MAX)
    }
}

pub(crate) fn start(site: &Site) -> anyhow::Result<Running> {
    let temp = site.temp();
    let mut server = command(site, Side::Server);
    server
        .args(["server", "--init", "--data"])
        .arg(temp.join("azekura-data"))
        .arg("--listen")
        .arg(format!("{}:{PORT}", site.server_address()));
    let mut running = Running::start(server, &temp.join("azekura-server.log"))?;
    site.wait_port(&mut running, PORT)?;
    let mut create = command(site, Side::Server);
    create
        .args(["volume", "create"])
        .arg(volume(site))
        .arg("--export")
        .arg(site.data());
    run(
        create,
        &temp.join("azekura-volume.log"),
        Duration::from_secs(30),
    )?;
    Ok(running)
}
