//! The systems under test: how each is served and mounted, with the options it is given.

mod azekura;
mod local;
mod null;
mod rclone;
mod sshd;
mod sshfs;

use std::process::{Command, Stdio};

use crate::mounted::Mounted;
use crate::process::Running;
use crate::site::{Programs, Site};

/// Servers, each shared by the systems that talk to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerKind {
    Sshd,
    RcloneHttp,
    Azekura,
    AzekuraPlain,
    AzekuraParallel,
}

/// One way to reach the data.
pub(crate) trait System {
    /// The name in results.
    fn name(&self) -> &'static str;
    /// Program version and options, for the record.
    fn about(&self) -> String;
    /// Why it cannot take part.
    fn why_not(&self) -> Option<String>;
    fn server(&self) -> Option<ServerKind>;
    fn is_read_only(&self) -> bool {
        false
    }
    /// False for operations in which a variant cannot differ from its base.
    fn takes_part(&self, _op: &str) -> bool {
        true
    }
    /// Whether its data is in its own keeping: what is read is then written through a mount, and
    /// [`Site::data`] is not served.
    fn keeps_data(&self) -> bool {
        false
    }
    fn mount(&self, site: &Site) -> anyhow::Result<Mounted>;
}

/// The systems of a list of names; `sshfs` and `rclone` stand for all their variants.
pub(crate) fn systems(
    names: &[String],
    programs: &Programs,
) -> anyhow::Result<Vec<Box<dyn System>>> {
    let mut found: Vec<Box<dyn System>> = Vec::new();
    for name in names {
        match name.as_str() {
            "azekura" => found.push(azekura::Azekura::pipelined(&programs.azekura)),
            "azekura-first" => found.push(azekura::Azekura::first(&programs.azekura)),
            "azekura-plain" => found.push(azekura::Azekura::plain(&programs.azekura)),
            "azekura-parallel" => found.push(azekura::Azekura::parallel(&programs.azekura)),
            "azekura-blocking" => found.push(azekura::Azekura::blocking(&programs.azekura)),
            "sshfs" => found.extend([sshfs::Sshfs::tuned(), sshfs::Sshfs::with_read_ahead()]),
            "sshfs-tuned" => found.push(sshfs::Sshfs::tuned()),
            "sshfs-ra16" => found.push(sshfs::Sshfs::with_read_ahead()),
            "rclone" => {
                found.push(rclone::Rclone::http(&programs.rclone));
                found.push(rclone::Rclone::sftp(&programs.rclone));
            }
            "rclone-http" => found.push(rclone::Rclone::http(&programs.rclone)),
            "rclone-sftp" => found.push(rclone::Rclone::sftp(&programs.rclone)),
            "local" => found.push(Box::new(local::Local)),
            "null" => found.push(null::Null::mounted(&programs.null)),
            other => anyhow::bail!("unknown system `{other}`"),
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|system| seen.insert(system.name()));
    Ok(found)
}

pub(crate) use rclone::has_streams as rclone_has_streams;

pub(crate) fn start_server(kind: ServerKind, site: &Site) -> anyhow::Result<Running> {
    match kind {
        ServerKind::Sshd => sshd::start(site),
        ServerKind::RcloneHttp => rclone::start_http(site),
        ServerKind::Azekura => azekura::start(site, false),
        ServerKind::AzekuraPlain => azekura::start(site, true),
        ServerKind::AzekuraParallel => azekura::start_parallel(site),
    }
}

/// The first line that a program says to a question about itself; `None` when there is none.
fn first_line(program: impl AsRef<std::ffi::OsStr>, argument: &str) -> Option<String> {
    let output = Command::new(program)
        .arg(argument)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = if output.stdout.is_empty() {
        output.stderr
    } else {
        output.stdout
    };
    String::from_utf8_lossy(&text)
        .lines()
        .next()
        .map(str::to_owned)
}
