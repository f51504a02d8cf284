//! Metadata rates without content: what a local measurement compares.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use super::{Clock, Outcome, Workload};
use crate::dataset::file_name;

/// Creates empty files; several processes each take a share, in a directory of their own.
pub(crate) fn create(
    dir: &str,
    files: u64,
    processes: u32,
    clock: Clock,
) -> anyhow::Result<Outcome> {
    if processes > 1 {
        return create_by_children(dir, files, processes, clock);
    }
    let mut outcome = Outcome::out_of(files);
    while outcome.done < files && !clock.is_over() {
        let path = Path::new(dir).join(file_name(outcome.done));
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .with_context(|| format!("creating {}", path.display()))?;
        outcome.done += 1;
    }
    Ok(outcome)
}

/// Starts this program again for each share, so that the creators are real processes.
fn create_by_children(
    dir: &str,
    files: u64,
    processes: u32,
    clock: Clock,
) -> anyhow::Result<Outcome> {
    let mut children = Vec::new();
    for number in 0..processes {
        let own = Path::new(dir).join(format!("by-{number}"));
        fs::create_dir(&own).with_context(|| format!("making {}", own.display()))?;
        let share = Workload::CreateEmpty {
            dir: own.to_string_lossy().into_owned(),
            files: files / u64::from(processes),
            processes: 1,
        };
        children.push(
            Command::new("/proc/self/exe")
                .args(["app", &serde_json::to_string(&share)?])
                .args(["--cap", &format!("{:.3}", clock.cap.as_secs_f64())])
                .stdout(Stdio::piped())
                .spawn()
                .context("starting a creator")?,
        );
    }
    let mut outcome = Outcome::default();
    for child in children {
        let output = child.wait_with_output()?;
        let share: Outcome = serde_json::from_slice(&output.stdout).context("a creator's word")?;
        if let Some(error) = share.error {
            bail!("a creator: {error}");
        }
        outcome.done += share.done;
        outcome.total += share.total;
    }
    Ok(outcome)
}

/// Attributes of files by name, without listing.
pub(crate) fn stat(dir: &str, files: u64, clock: Clock) -> anyhow::Result<Outcome> {
    each(dir, files, clock, attributes)
}

/// What ls(1), find(1), tar(1) and git(1) ask for. The standard library asks for the time of birth
/// too, which over FUSE comes with no look-up: Linux sends a second request for every file.
fn attributes(path: &Path) -> io::Result<()> {
    rustix::fs::lstat(path)?;
    Ok(())
}

/// Removal of files by name.
pub(crate) fn unlink(dir: &str, files: u64, clock: Clock) -> anyhow::Result<Outcome> {
    each(dir, files, clock, |path| fs::remove_file(path))
}

fn each(
    dir: &str,
    files: u64,
    clock: Clock,
    act: impl Fn(&Path) -> io::Result<()>,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::out_of(files);
    while outcome.done < files && !clock.is_over() {
        let path = Path::new(dir).join(file_name(outcome.done));
        act(&path).with_context(|| path.display().to_string())?;
        outcome.done += 1;
    }
    Ok(outcome)
}

/// A listing and the attributes of every entry in it.
pub(crate) fn list(dir: &str, files: u64, clock: Clock) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::out_of(files);
    for entry in fs::read_dir(dir).with_context(|| format!("listing {dir}"))? {
        let path = entry?.path();
        attributes(&path).with_context(|| path.display().to_string())?;
        outcome.done += 1;
        if clock.is_over() {
            return Ok(outcome);
        }
    }
    if outcome.done != files {
        bail!("found {} of {files} entries", outcome.done);
    }
    Ok(outcome)
}
