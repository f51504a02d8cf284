//! Loop devices over files in memory: a plain one, and one that this process serves.

use anyhow::{Context, Result, ensure};
use base::BlockDevice;
use mount::disk::{DiskConfig, DiskMount};
use mount::kernel::MountPoint;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use tempfile::TempDir;

/// What the files below loop devices of this program are called.
const NAME: &str = "azekura-bench-verify";
/// Where files are in memory.
const MEMORY: &str = "/dev/shm";

/// A loop device with direct I/O. Detached when dropped.
pub(crate) struct Loop {
    pub(crate) path: PathBuf,
}

impl Loop {
    fn new(file: &Path) -> Result<Self> {
        let path = losetup(&["--direct-io=on", "--find", "--show", text(file)?])?;
        Ok(Self {
            path: path.trim().into(),
        })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // What stays attached is detached by the next run.
        let _ = Command::new("losetup").arg("-d").arg(&self.path).status();
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

fn losetup(arguments: &[&str]) -> Result<String> {
    let output = Command::new("losetup").args(arguments).output();
    let output = output.context("losetup (util-linux)")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "losetup failed: {said}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Detaches loop devices of a run that was killed.
pub(crate) fn detach_left_over() -> Result<()> {
    for line in losetup(&["--list", "--noheadings", "--output", "NAME,BACK-FILE"])?.lines() {
        let mut words = line.split_ascii_whitespace();
        if let (Some(device), Some(file)) = (words.next(), words.next())
            && file.rsplit('/').next() == Some(NAME)
        {
            losetup(&["--detach", device])?;
        }
    }
    Ok(())
}

/// A loop device over a file of a file system in memory.
pub(crate) struct Plain {
    pub(crate) device: Loop,
    _directory: TempDir,
}

impl Plain {
    pub(crate) fn new(len_bytes: u64) -> Result<Self> {
        let directory = tempfile::tempdir_in(MEMORY).context(MEMORY)?;
        let file = directory.path().join(NAME);
        File::create_new(&file)?.set_len(len_bytes)?;
        Ok(Self {
            device: Loop::new(&file)?,
            _directory: directory,
        })
    }
}

/// A loop device over a file that this process serves, as in a crash run.
pub(crate) struct Served {
    // Dropped first: it uses what is served.
    device: Option<Loop>,
    served: Option<(MountPoint, JoinHandle<()>)>,
    _directory: TempDir,
}

impl Served {
    pub(crate) fn new(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let config = DiskConfig {
            source: NAME.to_owned(),
            allow_other: true,
            read_only: false,
        };
        let files = DiskMount::direct(device, directory.path(), &config, NAME)?;
        let point = files.mount_point().clone();
        let thread = std::thread::spawn(move || {
            if let Err(error) = files.run() {
                eprintln!("the device is not served any more: {error}");
            }
        });
        let mut served = Self {
            device: None,
            served: Some((point, thread)),
            _directory: directory,
        };
        let file = served._directory.path().join(NAME);
        served.device = Some(Loop::new(&file)?);
        Ok(served)
    }

    pub(crate) fn path(&self) -> &Path {
        self.device.as_ref().map_or(Path::new(""), |one| &one.path)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.device = None;
        if let Some((point, thread)) = self.served.take() {
            if point.unmount(true).is_err() {
                let _ = point.abort();
            }
            let _ = thread.join();
        }
    }
}
