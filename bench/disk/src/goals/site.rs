//! A line, a web server at its far end, a repository there; and disks at its near end: as a file,
//! mounted, or served over NBD.

use super::Options;
use crate::server::Server;
use anyhow::{Context, Result, bail};
use azlink::{Link, LinkOptions, SERVER_ADDRESS, Side};
use serde_json::Value;
use std::cell::Cell;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A loop device that nobody uses goes within this time.
const LOOP_TIME_MAX: Duration = Duration::from_secs(2);
const LOOP_LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// See the module's head.
pub(super) struct Site {
    pub(super) link: Link,
    pub(super) server: Server,
    azekura: PathBuf,
    directory: TempDir,
    used: Cell<u32>,
}

/// A disk that is attached, with its file system if it was mounted. Both go with this.
pub(super) struct Disk<'a> {
    site: &'a Site,
    point: PathBuf,
    /// Removed at the end.
    cache: Option<PathBuf>,
    mounted: Option<PathBuf>,
    is_there: bool,
    pub(super) pid: u64,
    /// From the command to the file system.
    pub(super) ready: Duration,
}

/// How a disk is attached.
#[derive(Clone, Copy, Default)]
pub(super) struct How<'a> {
    /// Its chunks are kept there; a new directory if it is not named.
    pub(super) cache: Option<&'a str>,
    pub(super) profile: Option<&'a str>,
    pub(super) record: Option<&'a Path>,
    /// Without its file system: one file.
    pub(super) is_bare: bool,
    pub(super) is_writable: bool,
    /// The rest of it is fetched meanwhile.
    pub(super) is_whole: bool,
}

/// A disk that is served. A process that is not ended goes with the namespaces of the run.
pub(super) struct Served<'a> {
    site: &'a Site,
    pub(super) socket: PathBuf,
    /// Removed at the end.
    cache: Option<PathBuf>,
    /// From the command to its answer that it is ready.
    pub(super) ready: Duration,
}

impl Site {
    pub(super) fn new(options: &Options) -> Result<Self> {
        let azekura = options.azekura.clone();
        let azekura = azekura.context("AZEKURA names no program: use cargo xtask bench disk")?;
        let builder = tempfile::Builder::new()
            .prefix("azekura-bench-")
            .tempdir_in(&options.directory);
        let directory = builder?;
        let www = directory.path().join("www");
        fs::create_dir(&www)?;
        let link = Link::start(&LinkOptions::default())?;
        let far = link.namespace(Side::Server);
        let listener = far.run(|| TcpListener::bind((SERVER_ADDRESS, 8080)))??;
        Ok(Self {
            server: Server::on(listener, &www, Duration::ZERO)?,
            link,
            azekura,
            directory,
            used: Cell::new(0),
        })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The address of what lies in `www` under this name.
    pub(super) fn url(&self, name: &str) -> String {
        format!("{}{name}", self.server.url())
    }

    /// Sets the line's length, and what has passed on it to nothing.
    pub(super) fn far(&self, rtt_ms: u64) {
        let mut settings = self.link.settings();
        settings.rtt = Duration::from_millis(rtt_ms);
        self.link.set(settings);
        self.link.apply(&azlink::Command::Reset);
    }

    /// The longest of these distances, in milliseconds, is the line's from now on.
    pub(super) fn farthest(&self, options: &Options) -> Result<u64> {
        let far = options.grid.rtts.iter().max();
        let far = *far.context("no distance is named")?;
        self.far(far);
        Ok(far)
    }

    /// Requests that the web server was asked so far.
    pub(super) fn requests(&self) -> u64 {
        self.server.counts.requests.load(Ordering::SeqCst)
    }

    /// IP bytes that have come since.
    pub(super) fn wire_bytes(&self) -> u64 {
        self.link.counters().to_client.ip_bytes()
    }

    /// A program at the near end, in the site's directory.
    pub(super) fn near(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = self.link.command(Side::Client, program);
        command
            .current_dir(self.directory.path())
            .env("AZEKURA_CONFIG_DIR", self.path("config"));
        command
    }

    /// `azekura disk ...` at the near end; what it prints.
    pub(super) fn disk(&self, words: &[&str]) -> Result<String> {
        output(self.near(&self.azekura).arg("disk").args(words))
    }

    /// The same, as JSON.
    pub(super) fn json(&self, words: &[&str]) -> Result<Value> {
        let said = self.disk(&[words, &["--json"]].concat())?;
        serde_json::from_str(&said).with_context(|| said)
    }

    /// Publishes an image into `www/NAME`.
    pub(super) fn publish(&self, image: &Path, to: &str, name: &str) -> Result<Value> {
        let image = image.to_string_lossy();
        let to = format!("www/{to}");
        self.json(&["publish", &image, "--to", &to, "--name", name])
    }

    /// `azekura disk VERB REPOSITORY NAME ...`, a number that no other disk has, and its cache if
    /// that is its own.
    fn using(
        &self,
        verb: &str,
        repository: &str,
        name: &str,
        how: How<'_>,
    ) -> (Command, u32, Option<PathBuf>) {
        let number = self.used.get();
        self.used.set(number + 1);
        let cache = how.cache.map_or_else(
            || format!("cache-{number}"),
            |cache| format!("cache-{cache}"),
        );
        let mut command = self.near(&self.azekura);
        command.args(["disk", verb, repository, name, "--json"]);
        command.args(["--cache", &cache]);
        if let Some(profile) = how.profile {
            command.args(["--profile", profile]);
        }
        if let Some(record) = how.record {
            command.arg("--record").arg(record);
        }
        command.args(how.is_writable.then_some("--writable"));
        command.args(how.is_whole.then_some("--fetch-all"));
        let own = how.cache.is_none().then(|| self.path(&cache));
        (command, number, own)
    }

    /// Serves a disk over NBD.
    pub(super) fn serve(&self, repository: &str, name: &str, how: How<'_>) -> Result<Served<'_>> {
        let (mut command, number, cache) = self.using("serve", repository, name, how);
        let socket = self.path(&format!("disk-{number}.sock"));
        command.arg(format!("--nbd=unix:{}", socket.display()));
        let ready = timed(&mut command)?;
        Ok(Served {
            site: self,
            socket,
            cache,
            ready,
        })
    }

    /// Attaches a disk of a repository: a URL, or a directory.
    pub(super) fn attach(&self, repository: &str, name: &str, how: How<'_>) -> Result<Disk<'_>> {
        let (mut command, number, cache) = self.using("attach", repository, name, how);
        let point = self.path(&format!("disk-{number}"));
        fs::create_dir(&point)?;
        command.arg(&point);
        let begin = Instant::now();
        let said = output(&mut command)?;
        let said: Value = serde_json::from_str(&said).with_context(|| said.clone())?;
        let mut disk = Disk {
            site: self,
            point,
            cache,
            mounted: None,
            is_there: true,
            pid: said["pid"].as_u64().unwrap_or_default(),
            ready: Duration::ZERO,
        };
        if !how.is_bare {
            let on = self.path(&format!("files-{number}"));
            mount(&disk.file(), &on, "loop,ro,noload")?;
            disk.mounted = Some(on);
        }
        disk.ready = begin.elapsed();
        Ok(disk)
    }
}

impl Disk<'_> {
    /// The whole disk.
    pub(super) fn file(&self) -> PathBuf {
        self.point.join("disk.img")
    }

    /// The root of its file system.
    pub(super) fn root(&self) -> Result<&Path> {
        self.mounted.as_deref().context("it is not mounted")
    }

    /// A field of `/proc/PID/status` of its process, in bytes.
    pub(super) fn memory(&self, field: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
        let kib: u64 = kib.context("no such field")?.parse()?;
        Ok(kib << 10)
    }

    /// Takes it off; how it was used.
    pub(super) fn end(mut self) -> Result<Value> {
        if let Some(on) = self.mounted.take() {
            output(Command::new("umount").arg(&on))?;
        }
        let deadline = Instant::now() + LOOP_TIME_MAX;
        let said = loop {
            let said = self.site.json(&["detach", &self.point.to_string_lossy()]);
            match said {
                // A loop device may hold the file for a moment after its file system is gone.
                Err(_) if Instant::now() < deadline => thread::sleep(LOOP_LOOK_INTERVAL),
                said => break said?,
            }
        };
        self.is_there = false;
        remove(self.cache.as_deref())?;
        Ok(said["used"].clone())
    }
}

impl Served<'_> {
    /// Ends it; how it was used.
    pub(super) fn end(self) -> Result<Value> {
        let place = format!("unix:{}", self.socket.display());
        let said = self.site.json(&["detach", &place])?;
        remove(self.cache.as_deref())?;
        Ok(said["used"].clone())
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // Something has failed that is told already; the loop device goes with its mount.
        if let Some(on) = &self.mounted {
            let _ = Command::new("umount").arg("-l").arg(on).output();
        }
        if self.is_there {
            let _ = Command::new("umount").arg("-l").arg(&self.point).output();
        }
    }
}

/// Removes a cache that was used once.
fn remove(cache: Option<&Path>) -> Result<()> {
    let removed = cache.map(fs::remove_dir_all);
    removed.transpose().map(drop).context("removing a cache")
}

/// Mounts a file or device on a directory, which is made.
pub(super) fn mount(device: &Path, on: &Path, options: &str) -> Result<()> {
    fs::create_dir_all(on)?;
    let mut command = Command::new("mount");
    output(command.args(["-o", options]).arg(device).arg(on)).map(drop)
}

/// Runs a program; what it prints.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{:?}", command.get_program()))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}", errors.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A program and its time.
pub(super) fn timed(command: &mut Command) -> Result<Duration> {
    let begin = Instant::now();
    output(command)?;
    Ok(begin.elapsed())
}

/// Whether a program is here.
pub(super) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}
