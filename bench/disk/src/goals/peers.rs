//! What others do with the same line, server and image: those of them that are here.
//!
//! ```text
//! nbdkit  its curl with a raw image; a file by nbdfuse, copied by nbdcopy
//! QEMU    its curl with a raw image; a file by qemu-storage-daemon, copied by qemu-img
//! casync  extract from the same chunks
//! curl    the raw image by one plain request
//! ```
//! One that cannot do it is told with what it says, and is no failure of the measurement.

use super::report::{Report, seconds};
use super::scattered::tar;
use super::site::{Site, has, mount, output, timed};
use anyhow::{Context, Result, bail, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// At which distance a tar is measured: beyond, it takes minutes.
pub(super) const TAR_RTT_MS: u64 = 25;
/// Until a peer has made a file of the image.
const READY_TIME_MAX: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Whoever makes a file of an image on a web server.
#[derive(Clone, Copy)]
enum Peer {
    Nbdkit,
    Qemu,
}

impl Peer {
    const ALL: [Self; 2] = [Self::Nbdkit, Self::Qemu];

    fn name(self) -> &'static str {
        match self {
            Self::Nbdkit => "nbdkit's curl",
            Self::Qemu => "QEMU's curl",
        }
    }

    fn is_here(self) -> bool {
        match self {
            Self::Nbdkit => has("nbdkit") && has("nbdfuse"),
            Self::Qemu => has("qemu-storage-daemon"),
        }
    }

    /// What makes `file`, which exists, the image at this address.
    fn command(self, site: &Site, url: &str, file: &Path) -> Command {
        match self {
            Self::Nbdkit => {
                let mut command = site.near("nbdfuse");
                command.arg(file).args(["--command", "nbdkit", "-s"]);
                command.args(["--exit-with-parent", "-r", "curl"]);
                command.arg(format!("url={url}"));
                command
            }
            Self::Qemu => {
                let mut command = site.near("qemu-storage-daemon");
                command.arg("--blockdev");
                command.arg(format!("driver=http,node-name=far,read-only=on,url={url}"));
                command.arg("--export").arg(format!(
                    "type=fuse,id=file,node-name=far,writable=off,mountpoint={}",
                    file.display()
                ));
                command
            }
        }
    }
}

/// A tar of the files in a list, by each peer.
pub(super) fn tars(site: &Site, image: &Path, list: &Path, report: &mut Report) -> Result<()> {
    let raw = Raw::new(site, image)?;
    for peer in Peer::ALL {
        let name = peer.name();
        if !peer.is_here() {
            report.note(format!("{name} is not here"));
            continue;
        }
        site.far(TAR_RTT_MS);
        let before = site.requests();
        match one_tar(site, peer, &raw, list) {
            Ok(took) => report.note(format!(
                "{name}, the same tar at {TAR_RTT_MS} ms on the raw image: {}, {} requests, \
                 {:.1} MB",
                seconds(took),
                site.requests() - before,
                site.wire_bytes() as f64 / 1e6,
            )),
            Err(error) => report.note(format!("{name}, the same tar: {error:#}")),
        }
    }
    Ok(())
}

fn one_tar(site: &Site, peer: Peer, raw: &Raw<'_>, list: &Path) -> Result<Duration> {
    let file = site.path("peer.img");
    File::create(&file)?;
    let mut command = peer.command(site, &raw.url(), &file);
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut using = Using {
        child: child.with_context(|| format!("{:?}", command.get_program()))?,
        file: file.clone(),
        mounted: None,
    };
    using.until_ready()?;
    let on = site.path("peer");
    mount(&file, &on, "loop,ro,noload")?;
    using.mounted = Some(on.clone());
    tar(&on, list)
}

/// The whole disk, by each peer; `share` says which part of the line was used for so long.
pub(super) fn wholes(
    site: &Site,
    image: &Path,
    rtt_ms: u64,
    share: &dyn Fn(Duration) -> f64,
    report: &mut Report,
) -> Result<()> {
    let raw = Raw::new(site, image)?;
    let out = site.path("peer.img");
    let mut casync = site.near("casync");
    casync.arg("extract");
    casync.arg(format!("--store={}", site.url("whole/default.castr")));
    casync.arg(site.url("whole/base@1.caibx")).arg(&out);
    let mut nbdkit = site.near("nbdkit");
    nbdkit.args(["-U", "-", "-r", "curl"]);
    nbdkit.arg(format!("url={}", raw.url()));
    nbdkit.args(["--run", "nbdcopy \"$uri\" null:"]);
    let mut qemu = site.near("qemu-img");
    qemu.args(["convert", "-f", "raw", "-O", "raw", "-m", "16", "-W"]);
    qemu.arg(raw.url()).arg(&out);
    let mut curl = site.near("curl");
    curl.args(["-sSf", "-o", "/dev/null"]).arg(raw.url());
    let peers = [
        ("casync extract", "the chunks", casync),
        ("nbdkit's curl and nbdcopy", "the raw disk", nbdkit),
        ("qemu-img convert", "the raw disk", qemu),
        ("curl, one request", "the raw disk", curl),
    ];
    for (name, what, mut command) in peers {
        if !has(&command.get_program().to_string_lossy()) {
            report.note(format!("{name}: it is not here"));
            continue;
        }
        site.far(rtt_ms);
        let before = site.requests();
        report.note(match timed(&mut command) {
            Ok(took) => format!(
                "{name}, {what} at {rtt_ms} ms: {}, {:.1} MB, {} requests, {:.0} % of the line",
                seconds(took),
                site.wire_bytes() as f64 / 1e6,
                site.requests() - before,
                100.0 * share(took),
            ),
            Err(error) => {
                let said = format!("{error:#}");
                let said = said.lines().last().unwrap_or_default();
                format!("{name}, {what}: {said}")
            }
        });
        let _ = fs::remove_file(&out);
    }
    Ok(())
}

/// An image as it is, at the web server; it goes with this.
pub(super) struct Raw<'a> {
    site: &'a Site,
    path: PathBuf,
}

impl<'a> Raw<'a> {
    pub(super) fn new(site: &'a Site, image: &Path) -> Result<Self> {
        let path = site.path("www/raw.img");
        // The machine's image may lie on another file system.
        if fs::hard_link(image, &path).is_err() {
            super::image::copy(image, &path)?;
        }
        Ok(Self { site, path })
    }

    pub(super) fn url(&self) -> String {
        self.site.url("raw.img")
    }
}

impl Drop for Raw<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A peer's file, and the file system in it; both end with this.
struct Using {
    child: Child,
    file: PathBuf,
    mounted: Option<PathBuf>,
}

impl Using {
    fn until_ready(&mut self) -> Result<()> {
        let end = Instant::now() + READY_TIME_MAX;
        while fs::metadata(&self.file)?.len() == 0 {
            if self.child.try_wait()?.is_some() {
                let errors = self.child.stderr.take();
                let said = errors.map(std::io::read_to_string).transpose()?;
                let said = said.unwrap_or_default();
                bail!("{}", said.lines().next().unwrap_or("it ends"));
            }
            ensure!(Instant::now() < end, "it does not begin");
            thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        if let Some(on) = &self.mounted {
            let _ = output(Command::new("umount").arg(on));
        }
        // The loop device may hold the file for a moment.
        let _ = output(Command::new("umount").arg("-l").arg(&self.file));
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.file);
    }
}
