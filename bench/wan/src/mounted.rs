//! A mount of a system under test, and how it ends whatever state the system is in.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::mount::{UnmountFlags, unmount};

use crate::process::Running;

/// An orderly unmount may have to carry away what is unwritten.
const UNMOUNT_MAX: Duration = Duration::from_secs(60);

/// Major and minor number of what is mounted at `point`, from the mount table: asking the file
/// system itself would cost a round trip.
pub(crate) fn device_of(point: &Path) -> Option<(u32, u32)> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    table.lines().rev().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        if Path::new(fields.get(4)?) != point {
            return None;
        }
        let (major, minor) = fields.get(2)?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    })
}

/// A mount; dropping it unmounts by force.
pub(crate) struct Mounted {
    point: PathBuf,
    device: (u32, u32),
    /// The client's process, when it stays in the foreground.
    client: Option<Running>,
    /// A system's own way to unmount.
    umount: Option<Command>,
    log: PathBuf,
    /// From the start of the client's process to the first answer of the root.
    pub(crate) mount_s: f64,
    is_closed: bool,
}

impl Mounted {
    /// Starts a client in the foreground and waits for its mount.
    pub(crate) fn by_daemon(
        command: Command,
        point: &Path,
        log: &Path,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let start = Instant::now();
        let mut client = Running::start(command, log)?;
        client.wait_until("mounting", limit, || device_of(point).is_some())?;
        Self::made(start, point, log, Some(client), None, limit)
    }

    /// Runs a mount command that returns when the mount is ready.
    pub(crate) fn by_command(
        mount: Command,
        umount: Command,
        point: &Path,
        log: &Path,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let start = Instant::now();
        crate::process::run(mount, log, limit)?;
        Self::made(start, point, log, None, Some(umount), limit)
    }

    fn made(
        start: Instant,
        point: &Path,
        log: &Path,
        client: Option<Running>,
        umount: Option<Command>,
        limit: Duration,
    ) -> anyhow::Result<Self> {
        let device = device_of(point)
            .with_context(|| format!("nothing is mounted at {}", point.display()))?;
        let mut mounted = Self {
            point: point.to_owned(),
            device,
            client,
            umount,
            log: log.to_owned(),
            mount_s: 0.0,
            is_closed: false,
        };
        mounted.wait_answer(limit)?;
        mounted.mount_s = start.elapsed().as_secs_f64();
        Ok(mounted)
    }

    /// Waits until the root answers: only then have kernel and client agreed on their terms (the
    /// read-ahead among them), and only then would a user call it mounted.
    fn wait_answer(&mut self, limit: Duration) -> anyhow::Result<()> {
        let (answer, answered) = std::sync::mpsc::channel();
        let point = self.point.clone();
        std::thread::spawn(move || {
            // Nobody listens any more after the limit.
            let _ = answer.send(std::fs::metadata(point).map(drop));
        });
        match answered.recv_timeout(limit) {
            Ok(result) => result.context("asking for the root"),
            Err(_) => {
                self.abort();
                bail!("the root does not answer")
            }
        }
    }

    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    pub(crate) fn client_id(&self) -> Option<u32> {
        self.client.as_ref().map(Running::id)
    }

    /// Sets the kernel's read-ahead for this mount.
    pub(crate) fn set_read_ahead(&self, kib: u32) -> anyhow::Result<()> {
        let path = format!(
            "/sys/class/bdi/{}:{}/read_ahead_kb",
            self.device.0, self.device.1
        );
        std::fs::write(&path, kib.to_string()).with_context(|| format!("writing {path}"))
    }

    /// Unmounts in order and waits for the client's end.
    pub(crate) fn close(mut self) -> anyhow::Result<()> {
        self.is_closed = true;
        let closed = self.unmount_in_order();
        if closed.is_err() {
            self.abort();
        }
        closed
    }

    fn unmount_in_order(&mut self) -> anyhow::Result<()> {
        let start = Instant::now();
        if let Some(umount) = self.umount.take() {
            crate::process::run(umount, &self.log, UNMOUNT_MAX)?;
        } else {
            while let Err(error) = unmount(&self.point, UnmountFlags::empty()) {
                if error != rustix::io::Errno::BUSY || start.elapsed() > UNMOUNT_MAX {
                    return Err(error).context("unmounting");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        if let Some(client) = &mut self.client {
            client
                .wait_end(UNMOUNT_MAX)?
                .context("the client lives on after its unmount")?;
        }
        if device_of(&self.point).is_some() {
            bail!("still mounted after the unmount");
        }
        Ok(())
    }

    /// Ends the connection between kernel and client: whoever waits for an answer gets an error.
    pub(crate) fn abort(&mut self) {
        let connection = format!("/sys/fs/fuse/connections/{}/abort", self.device.1);
        // The control file system may not be mounted; ending the client has the same effect.
        let _ = std::fs::write(connection, "1");
        self.client = None;
        let _ = unmount(&self.point, UnmountFlags::DETACH);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.is_closed {
            self.abort();
        }
    }
}
