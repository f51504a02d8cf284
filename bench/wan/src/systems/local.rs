//! The data itself without any network, by a bind mount: what the machine can do at best.

use std::process::Command;

use super::{ServerKind, System};
use crate::mounted::Mounted;
use crate::site::{MOUNT_MAX, Site};

pub(crate) struct Local;

impl System for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn about(&self) -> String {
        "tmpfs, no network (upper bound)".to_owned()
    }

    fn why_not(&self) -> Option<String> {
        None
    }

    fn server(&self) -> Option<ServerKind> {
        None
    }

    fn mount(&self, site: &Site) -> anyhow::Result<Mounted> {
        let point = site.mount_point();
        let mut mount = Command::new("mount");
        mount.arg("--bind").arg(site.data()).arg(&point);
        let mut umount = Command::new("umount");
        umount.arg(&point);
        Mounted::by_command(mount, umount, &point, &site.mount_log(), MOUNT_MAX)
    }
}
