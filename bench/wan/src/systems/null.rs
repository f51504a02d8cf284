//! FUSE alone: a file system in memory with no server and no network, mounted as Azekura mounts.
//! What a mount can give at best on this machine, so that figures can be read as shares of it.

use std::path::{Path, PathBuf};

use azlink::Side;

use super::{ServerKind, System};
use crate::mounted::Mounted;
use crate::site::{MOUNT_MAX, Site};

pub(crate) struct Null {
    program: PathBuf,
}

impl Null {
    pub(crate) fn mounted(program: &Path) -> Box<dyn System> {
        Box::new(Self {
            program: program.to_owned(),
        })
    }
}

impl System for Null {
    fn name(&self) -> &'static str {
        "null"
    }

    fn about(&self) -> String {
        "FUSE alone, in memory, mounted as azekura mounts (upper bound)".to_owned()
    }

    fn why_not(&self) -> Option<String> {
        let why = "no null file system; cargo build --release --package mount --example null";
        (!self.program.exists()).then(|| why.to_owned())
    }

    fn server(&self) -> Option<ServerKind> {
        None
    }

    /// It copies the data into its memory first, which is not what is measured.
    fn mount(&self, site: &Site) -> anyhow::Result<Mounted> {
        let point = site.mount_point();
        let mut command = site.command(Side::Client, &self.program);
        command.arg(site.data()).arg(&point);
        Mounted::by_daemon(command, &point, &site.mount_log(), MOUNT_MAX)
    }
}
