//! File systems in files, copied, mounted and taken away; and the export's code on them.

use anyhow::{Context, Result, bail, ensure};
use base::VolumeId;
use export::{Export, ExportOptions, HandleKey, Worker};
use serde::Serialize;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// For what was just closed to be let go of.
const BUSY_TIME_MAX: Duration = Duration::from_secs(20);

/// A kind of file system, as its mkfs makes it by itself: XFS with inodes of 512 bytes, ext4 with
/// 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Xfs,
    Ext4,
    Btrfs,
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "xfs" => Ok(Self::Xfs),
            "ext4" => Ok(Self::Ext4),
            "btrfs" => Ok(Self::Btrfs),
            _ => Err("xfs, ext4 or btrfs".to_owned()),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xfs => "XFS",
            Self::Ext4 => "ext4",
            Self::Btrfs => "Btrfs",
        })
    }
}

/// A file with a file system in it; removed when dropped.
pub(crate) struct Image {
    file: PathBuf,
    kind: Kind,
}

impl Image {
    /// An empty one, sparse, with room for so many files.
    pub(crate) fn new(directory: &Path, kind: Kind, bytes: u64, files: u64) -> Result<Self> {
        let file = tempfile::Builder::new()
            .prefix("azekura-bench-acl-")
            .tempfile_in(directory)?;
        file.as_file().set_len(bytes)?;
        let image = Self {
            file: file.into_temp_path().keep()?,
            kind,
        };
        let inodes = (files + files / 4 + 10_000).to_string();
        let mut command = match kind {
            Kind::Xfs => Command::new("mkfs.xfs"),
            Kind::Ext4 => {
                let mut command = Command::new("mkfs.ext4");
                // Nothing is made later, behind the back of who counts reads.
                command.args(["-E", "lazy_itable_init=0,lazy_journal_init=0"]);
                command.args(["-N", &inodes]);
                command
            }
            Kind::Btrfs => Command::new("mkfs.btrfs"),
        };
        check(command.arg("-q").arg(&image.file))?;
        Ok(image)
    }

    /// Another one with the same contents.
    pub(crate) fn copy(&self) -> Result<Self> {
        let mut file = self.file.as_os_str().to_owned();
        file.push(".copy");
        let copy = Self {
            file: file.into(),
            kind: self.kind,
        };
        let mut command = Command::new("cp");
        command.args(["--sparse=always", "--reflink=auto"]);
        check(command.arg(&self.file).arg(&copy.file))?;
        Ok(copy)
    }

    /// Mounted, with nothing of it in memory: the device is a new one, and passes reads on past
    /// the memory of the file system below, if that can.
    pub(crate) fn mount(&self) -> Result<Mounted> {
        let own = tempfile::Builder::new()
            .prefix("azekura-bench-")
            .tempdir()?;
        let mut mounted = self.mount_on(own.path())?;
        mounted._own = Some(own);
        Ok(mounted)
    }

    /// The same on a directory that is there.
    pub(crate) fn mount_on(&self, point: &Path) -> Result<Mounted> {
        let direct = self.attach(&["--direct-io=on"]);
        let device = direct.or_else(|_| self.attach(&[]))?;
        let detach = || check(Command::new("losetup").arg("-d").arg(&device));
        if self.kind == Kind::Btrfs {
            // It remembers where it has seen this file system, and refuses an older copy.
            let _ = Command::new("btrfs")
                .args(["device", "scan", "--forget"])
                .output();
        }
        let mut command = Command::new("mount");
        let mounted = check(command.args(["-o", "noatime"]).arg(&device).arg(point));
        // The mount holds it from here on, and the device goes with the mount.
        detach()?;
        mounted?;
        let name = device.strip_prefix("/dev/").context("a device")?;
        let mounted = Mounted {
            counters: format!("/sys/block/{name}/stat").into(),
            point: point.to_owned(),
            _own: None,
        };
        fs::set_permissions(point, permissions(0o755))?;
        Ok(mounted)
    }

    fn attach(&self, options: &[&str]) -> Result<String> {
        let mut command = Command::new("losetup");
        command.args(options).args(["--find", "--show"]);
        let output = command.arg(&self.file).output().context("losetup")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "losetup failed: {said}");
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // What stays in the way is in a directory for such files.
        let _ = fs::remove_file(&self.file);
    }
}

/// A file system that is mounted until this is dropped.
pub(crate) struct Mounted {
    point: PathBuf,
    counters: PathBuf,
    /// The directory that was made for it, which goes after it.
    _own: Option<TempDir>,
}

impl Mounted {
    pub(crate) fn path(&self) -> &Path {
        &self.point
    }

    /// Reads that the device has answered.
    pub(crate) fn reads(&self) -> Result<u64> {
        let counters = fs::read_to_string(&self.counters)?;
        let first = counters.split_whitespace().next();
        let first = first.context("a device without counters")?;
        Ok(first.parse()?)
    }

    /// Writes everything out, so that no writing back disturbs what is measured next.
    pub(crate) fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(File::open(self.path())?)?)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let end = Instant::now() + BUSY_TIME_MAX;
        while Instant::now() < end {
            let unmounted = Command::new("umount").arg(self.path()).output();
            if unmounted.is_ok_and(|output| output.status.success()) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        eprintln!("{} stays mounted until the end", self.path().display());
    }
}

pub(crate) fn permissions(mode: u32) -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(mode)
}

/// Runs a program that has to succeed.
pub(crate) fn check(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}: {said}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A tree as a server has it, with handles that are good for each opening of it.
pub(crate) fn open(path: &Path) -> Result<Export> {
    open_keeping(path, true)
}

/// The same; lists are kept in memory, or each request reads them.
pub(crate) fn open_keeping(path: &Path, lists: bool) -> Result<Export> {
    let options = ExportOptions {
        keeps_lists: lists,
        ..ExportOptions::new(VolumeId([7; 16]), HandleKey::new([42; 32]))
    };
    Ok(Export::open(path, &options)?)
}

/// Does `work` on a thread of its own, which acts for callers from then on.
pub(crate) fn served<T: Send>(
    export: &Export,
    work: impl FnOnce(&Worker) -> Result<T> + Send,
) -> Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| work(&Worker::new()?));
        thread.join().expect("a thread does not panic")
    })
    .with_context(|| format!("with a tree of {} descriptors", export.descriptors()))
}
