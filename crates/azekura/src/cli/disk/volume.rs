//! Repositories in volumes, `HOST:PORT/VOLUME:/PATH`: mounted for as long as a command needs them.
//!
//! A volume is mounted by this program, as `azekura mount` does it, in a directory of its own below
//! what is remembered of disks. The mount is taken off when the command ends; whatever was written
//! is durable before, because a repository flushes each file. What a killed command leaves mounted
//! is taken off by the next one that needs a volume.

use crate::address::VolumeAddress;
use crate::config::Config;
use crate::errors::{Code, Context, Failure, Result};
use crate::output;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where mounts lie, among what is remembered of disks: for each a directory named after the
/// process, and a number.
const DIRECTORY: &str = "volumes";

/// The mounts of this process, with what is mounted there.
static MOUNTED: Mutex<Vec<(String, PathBuf)>> = Mutex::new(Vec::new());

fn mounted() -> MutexGuard<'static, Vec<(String, PathBuf)>> {
    MOUNTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the root of a volume is, until [`release`].
///
/// # Errors
/// [`Code::DiskRepository`] if it cannot be mounted.
pub(super) fn directory(volume: &VolumeAddress) -> Result<PathBuf> {
    let mut mounted = mounted();
    let address = volume.to_string();
    if let Some((_, path)) = mounted.iter().find(|(known, _)| *known == address) {
        return Ok(path.clone());
    }
    let parent = Config::load()?.disks(DIRECTORY)?;
    sweep(&parent);
    let path = parent.join(format!("{}-{}", std::process::id(), mounted.len()));
    fs::create_dir_all(&path).context(path.display())?;
    let mut mount = own(&["mount", &address])?;
    let ran = mount.arg(&path).output().context("azekura mount")?;
    if !ran.status.success() {
        let _ = fs::remove_dir(&path);
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        let reason = said.lines().next().unwrap_or_default();
        let reason = reason.strip_prefix("error: ").unwrap_or(reason);
        let message = output::plain(&format!("{address} cannot be mounted: {reason}"));
        let failure = Failure::new(Code::DiskRepository, message);
        return Err(failure.hint(format!("`azekura mount {address} DIR` says more")));
    }
    mounted.push((address, path.clone()));
    Ok(path)
}

/// Takes off what this process has mounted.
pub(super) fn release() {
    for (_, path) in mounted().drain(..) {
        take_off(&path);
    }
}

/// Takes off what processes have left behind that were killed.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.split('-').next());
        let is_left = pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists());
        if is_left {
            take_off(&entry.path());
        }
    }
}

/// Nothing is lost by what fails here: the next one tries again.
fn take_off(path: &Path) {
    let umount = |words: &[&str]| {
        let ran = own(words).map(|mut command| command.arg(path).output());
        matches!(ran, Ok(Ok(ran)) if ran.status.success())
    };
    // Somebody may still be reading a file for whom nobody waits any more.
    if !umount(&["umount"]) && !umount(&["umount", "--lazy"]) {
        tracing::debug!(path = %path.display(), "not taken off");
    }
    let _ = fs::remove_dir(path);
}

fn own(words: &[&str]) -> Result<Command> {
    let program = std::env::current_exe().context("this program")?;
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    Ok(command)
}
