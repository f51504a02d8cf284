//! `azekura disk attach`.

use super::detach::is_own_loop;
use super::place::Image;
use super::process::{How, Plan};
use crate::cli::Signals;
use crate::cli::mount::mount_point;
use crate::config::Config;
use crate::errors::{Code, Context, Failure, Result, plain_io};
use crate::mounts::Mounted;
use crate::output;
use ::mount::disk::{DiskConfig, DiskMount, FILE_NAME};
use ::mount::kernel::MountPoint;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Attach a disk as one file, disk.img in a directory, by FUSE; returns when it is ready
///
/// With --loop, as a loop device, too, whose partitions and file systems the kernel reads; that
/// needs root. What was written is durable after fsync of the file (`sync mnt/disk/disk.img`;
/// `sync` alone does not reach it). It ends with `azekura disk detach`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura disk attach http://far.example/images base:2 mnt/disk
  azekura disk attach ./www/images base:2 mnt/disk --loop --writable")]
pub(in crate::cli) struct Attach {
    #[command(flatten)]
    image: Image,
    /// An existing directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Make a loop device of the file, and print its name
    #[arg(long = "loop")]
    as_loop: bool,
    /// Let users other than this one read it, and write if it is writable
    #[arg(long)]
    allow_other: bool,
    #[command(flatten)]
    how: How,
}

impl Attach {
    pub(super) fn is_reporting(&self) -> bool {
        self.how.is_reporting()
    }

    pub(super) fn run(self, config: &Config, verbose: u8) -> Result<()> {
        let directory = match self.how.is_reporting() {
            true => self.directory,
            false => free_directory(&self.directory)?,
        };
        let switches = [
            (self.as_loop, "--loop"),
            (self.allow_other, "--allow-other"),
        ];
        let switches = switches.iter().filter(|(on, _)| *on);
        let mut command = vec!["attach".into()];
        command.extend(switches.map(|(_, name)| (*name).into()));
        let plan = Plan {
            command,
            directory: Some(directory.clone()),
            place: directory.to_string_lossy().into_owned(),
            done: "attached at",
            ..Plan::new(config, self.image, self.how, verbose)?
        };
        plan.go(config, &|runtime, opened, ready| {
            let image = &plan.image;
            let is_read_only = opened.overlay.is_none();
            let settings = DiskConfig {
                source: format!("{} {}", image.place, image.name),
                allow_other: self.allow_other,
                read_only: is_read_only,
            };
            let mut signals = runtime.block_on(async { Signals::new() })?;
            let handle = runtime.handle().clone();
            let mounted = DiskMount::mount(opened.device(), &directory, &settings, handle)?;
            let point = mounted.mount_point().clone();
            // It answers from here on; the loop device is made of what it answers.
            let answering = std::thread::spawn(move || mounted.run());
            let mut running = plan.running(opened, "file", plan.place.clone());
            let got_ready = match self.as_loop {
                true => set_up_loop(&point.path().join(FILE_NAME), is_read_only),
                false => Ok(None),
            };
            let got_ready = got_ready.and_then(|device| {
                running.device = device;
                tracing::info!(on = running.place, name = running.name, "attached");
                ready(running.clone())
            });
            if got_ready.is_err() {
                release(running.device.as_deref(), &point);
            } else {
                let (point, device) = (point.clone(), running.device.clone());
                runtime.spawn(async move {
                    signals.wait().await;
                    let release = move || release(device.as_deref(), &point);
                    // It is waited for by whoever waits for the end of the mount.
                    drop(tokio::task::spawn_blocking(release));
                });
            }
            let ended = answering.join();
            got_ready?;
            match ended {
                Ok(ended) => {
                    tracing::info!("detached");
                    ended.map(drop).map_err(Failure::from)
                }
                Err(_) => Err(Failure::new(
                    Code::Internal,
                    "a thread of the mount panicked",
                )),
            }
        })
    }
}

/// A directory that can be mounted on, as an absolute path without links.
fn free_directory(directory: &Path) -> Result<PathBuf> {
    let directory = mount_point(directory)?;
    if Mounted::disk_at(&directory).is_ok() {
        let shown = directory.display();
        let message = format!("cannot mount on {shown}: a disk is attached there");
        return Err(Failure::new(Code::MountPoint, message)
            .hint(format!("azekura disk detach {shown} takes it off")));
    }
    Ok(directory)
}

/// Makes a loop device of a file.
fn set_up_loop(file: &Path, is_read_only: bool) -> Result<Option<String>> {
    let mut command = Command::new("losetup");
    command.args(["--find", "--show", "--partscan"]);
    command.args(is_read_only.then_some("--read-only"));
    let output = command.arg("--").arg(file).stdin(Stdio::null()).output();
    let output = output.map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "there is no losetup here".to_owned(),
            _ => format!("losetup: {}", plain_io(&error)),
        };
        Failure::new(Code::NoLoop, why)
    })?;
    let text = |bytes: &[u8]| output::plain(String::from_utf8_lossy(bytes).trim());
    if !output.status.success() {
        let said = text(&output.stderr);
        return Err(Failure::new(
            Code::NoLoop,
            format!("no loop device: {said}"),
        ));
    }
    Ok(Some(text(&output.stdout)))
}

/// Takes the loop device and the mount off, whoever uses them.
fn release(device: Option<&str>, point: &MountPoint) {
    if let Some(device) = device
        && is_own_loop(device, point.path())
        && let Err(failure) = take_off_loop(device)
    {
        tracing::warn!("{}", failure.message());
    }
    if let Err(error) = point.unmount(false).or_else(|_| point.unmount(true)) {
        tracing::error!(%error, "cannot unmount");
    }
}

/// Takes a loop device off; it goes when nobody uses it any more.
///
/// # Errors
/// What losetup says.
pub(super) fn take_off_loop(device: &str) -> Result<()> {
    let mut command = Command::new("losetup");
    let output = command
        .args(["--detach", device])
        .stdin(Stdio::null())
        .output();
    let output = output.context("losetup")?;
    if output.status.success() {
        return Ok(());
    }
    let said = output::plain(String::from_utf8_lossy(&output.stderr).trim());
    Err(Failure::new(
        Code::NoLoop,
        format!("cannot take {device} off: {said}"),
    ))
}
