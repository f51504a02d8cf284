//! sshfs with the options that served it best, and with a larger read-ahead of the kernel.

use azlink::Side;

use super::{ServerKind, System, first_line, sshd};
use crate::mounted::Mounted;
use crate::site::{MOUNT_MAX, Site};

const OPTIONS: &str = "Ciphers=aes128-gcm@openssh.com,Compression=no,cache=yes,kernel_cache,\
                       dcache_timeout=600,max_conns=1,max_read=1048576";

pub(crate) struct Sshfs {
    /// Read-ahead of the kernel, set from outside after the mount.
    read_ahead_kib: Option<u32>,
}

impl Sshfs {
    pub(crate) fn tuned() -> Box<dyn System> {
        Box::new(Self {
            read_ahead_kib: None,
        })
    }

    pub(crate) fn with_read_ahead() -> Box<dyn System> {
        Box::new(Self {
            read_ahead_kib: Some(16 << 10),
        })
    }
}

impl System for Sshfs {
    fn name(&self) -> &'static str {
        if self.read_ahead_kib.is_some() {
            "sshfs-ra16"
        } else {
            "sshfs"
        }
    }

    fn about(&self) -> String {
        let version = std::process::Command::new("sshfs")
            .arg("--version")
            .output()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default();
        let version = version
            .lines()
            .find(|line| line.starts_with("SSHFS"))
            .unwrap_or("?")
            .to_owned();
        let ssh = first_line("ssh", "-V").unwrap_or_default();
        let ahead = match self.read_ahead_kib {
            Some(kib) => format!(", kernel read-ahead {} MiB", kib >> 10),
            None => String::new(),
        };
        format!("{version}, {ssh}, -o {OPTIONS}{ahead}")
    }

    fn why_not(&self) -> Option<String> {
        if first_line("sshfs", "--version").is_none() {
            return Some("sshfs is not installed".to_owned());
        }
        sshd::why_not()
    }

    fn takes_part(&self, op: &str) -> bool {
        self.read_ahead_kib.is_none() || !matches!(op, "walk" | "small" | "write" | "create")
    }

    fn server(&self) -> Option<ServerKind> {
        Some(ServerKind::Sshd)
    }

    fn mount(&self, site: &Site) -> anyhow::Result<Mounted> {
        let point = site.mount_point();
        let mut command = site.command(Side::Client, "sshfs");
        command
            .args(["-f", "-p", &sshd::PORT.to_string(), "-o", OPTIONS])
            .args([
                "-o",
                "StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null,BatchMode=yes",
            ])
            .arg("-o")
            .arg(format!("IdentityFile={}", sshd::client_key(site).display()))
            .arg(format!(
                "root@{}:{}",
                site.server_address(),
                site.data().display()
            ))
            .arg(&point);
        let mounted = Mounted::by_daemon(command, &point, &site.mount_log(), MOUNT_MAX)?;
        if let Some(kib) = self.read_ahead_kib {
            mounted.set_read_ahead(kib)?;
        }
        Ok(mounted)
    }
}
