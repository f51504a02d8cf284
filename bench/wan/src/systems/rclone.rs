//! rclone over HTTP (read-only) and over SFTP, with its full cache.
//!
//! Parallel streams within a file came with rclone 1.68; with an older one the HTTP row runs
//! without them and says so.

use std::path::{Path, PathBuf};
use std::process::Command;

use azlink::Side;

use super::{ServerKind, System, first_line, sshd};
use crate::mounted::Mounted;
use crate::process::Running;
use crate::site::{MOUNT_MAX, Site};

const HTTP_PORT: u16 = 8080;
const OPTIONS: [&str; 12] = [
    "--vfs-cache-mode",
    "full",
    "--vfs-read-ahead",
    "64M",
    "--vfs-read-chunk-size",
    "16M",
    "--buffer-size",
    "32M",
    "--dir-cache-time",
    "1h",
    "--attr-timeout",
    "60s",
];
const STREAMS_OPTION: &str = "--vfs-read-chunk-streams";

#[derive(Clone, Copy, PartialEq)]
enum Remote {
    Http,
    Sftp,
}

pub(crate) struct Rclone {
    program: PathBuf,
    remote: Remote,
    has_streams: bool,
}

/// Whether this rclone can read one file in parallel streams; false also when it cannot run.
pub(crate) fn has_streams(program: &Path) -> bool {
    Command::new(program)
        .args(["mount", "--help"])
        .output()
        .is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(STREAMS_OPTION))
}

impl Rclone {
    pub(crate) fn http(program: &Path) -> Box<dyn System> {
        Box::new(Self::new(program, Remote::Http))
    }

    pub(crate) fn sftp(program: &Path) -> Box<dyn System> {
        Box::new(Self::new(program, Remote::Sftp))
    }

    fn new(program: &Path, remote: Remote) -> Self {
        Self {
            program: program.to_owned(),
            remote,
            has_streams: has_streams(program),
        }
    }

    fn streams(&self) -> Option<&'static str> {
        self.has_streams.then_some(if self.remote == Remote::Http {
            "8"
        } else {
            "4"
        })
    }

    fn location(&self, site: &Site) -> String {
        let (address, data) = (site.server_address(), site.data());
        match self.remote {
            Remote::Http => format!(":http,url='http://{address}:{HTTP_PORT}':"),
            Remote::Sftp => {
                // Larger requests are of the same age as the streams.
                let tuned = if self.has_streams {
                    ",chunk_size=255k,concurrency=128"
                } else {
                    ""
                };
                format!(
                    ":sftp,host={address},port={},user=root,key_file='{}',\
                     disable_hashcheck=true{tuned}:{}",
                    sshd::PORT,
                    sshd::client_key(site).display(),
                    data.display()
                )
            }
        }
    }
}

impl System for Rclone {
    fn name(&self) -> &'static str {
        match self.remote {
            Remote::Http => "rclone-http",
            Remote::Sftp => "rclone-sftp",
        }
    }

    fn about(&self) -> String {
        let version = first_line(&self.program, "version").unwrap_or_default();
        let streams = self
            .streams()
            .map_or("no parallel streams (older than 1.68)".to_owned(), |n| {
                format!("{STREAMS_OPTION} {n}")
            });
        format!("{version}, {} {streams}", OPTIONS.join(" "))
    }

    fn why_not(&self) -> Option<String> {
        if first_line(&self.program, "version").is_none() {
            return Some("rclone is not installed".to_owned());
        }
        if self.remote == Remote::Sftp {
            sshd::why_not()
        } else {
            None
        }
    }

    fn server(&self) -> Option<ServerKind> {
        Some(match self.remote {
            Remote::Http => ServerKind::RcloneHttp,
            Remote::Sftp => ServerKind::Sshd,
        })
    }

    fn is_read_only(&self) -> bool {
        self.remote == Remote::Http
    }

    fn mount(&self, site: &Site) -> anyhow::Result<Mounted> {
        let point = site.mount_point();
        let mut command = site.command(Side::Client, &self.program);
        command
            .arg("mount")
            .arg(self.location(site))
            .arg(&point)
            .args(OPTIONS)
            .args(self.streams().into_iter().flat_map(|n| [STREAMS_OPTION, n]))
            .arg("--cache-dir")
            .arg(site.cache())
            .env("RCLONE_CONFIG", site.temp().join("rclone.conf"));
        if self.is_read_only() {
            command.arg("--read-only");
        }
        Mounted::by_daemon(command, &point, &site.mount_log(), MOUNT_MAX)
    }
}

pub(crate) fn start_http(site: &Site) -> anyhow::Result<Running> {
    let mut command = site.command(Side::Server, &site.programs.rclone);
    command
        .args(["serve", "http", "--read-only", "--addr"])
        .arg(format!("{}:{HTTP_PORT}", site.server_address()))
        .arg(site.data())
        .env("RCLONE_CONFIG", site.temp().join("rclone.conf"));
    let mut server = Running::start(command, &site.temp().join("rclone-http.log"))?;
    site.wait_port(&mut server, HTTP_PORT)?;
    Ok(server)
}
