//! Loop devices, and whether one is still what it was.
//!
//! A loop device has a number, and numbers are given away again: whoever goes by one alone may
//! detach a device that has become somebody else's. So what is remembered is one attachment. The
//! kernel numbers those of all disks (`diskseq`, since Linux 5.15); before, it is known by the name
//! of its file.

use super::output;
use crate::programs;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What the kernel says of disks.
const DISKS: &str = "/sys/block";
/// How long it may take to detach one: what the page cache has for it is written first.
const DETACH_TIME_MAX: Duration = Duration::from_secs(10);
/// How often is looked whether that is done.
const LOOKED_EVERY: Duration = Duration::from_millis(1);
/// What losetup says if it fails, a line.
const SAID_BYTES_MAX: u64 = 1024;

/// A loop device, as long as it is that of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loop {
    /// Its name, without a directory.
    name: String,
    /// The last part of the path of its file.
    file_name: String,
    /// The number of the attachment, if the kernel tells.
    sequence: Option<u64>,
}

impl Loop {
    /// Makes one of a file.
    ///
    /// # Errors
    /// In words.
    pub(super) fn attach(file: &Path, is_direct: bool) -> Result<Self, String> {
        let mut command = programs::command("losetup");
        command.args(["--find", "--show"]);
        command.args(is_direct.then_some("--direct-io=on"));
        let said = output(command.arg(file), 0)?;
        let name = Path::new(said.trim()).file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        let file_name = file.file_name().unwrap_or_default();
        Ok(Self {
            sequence: sequence(&name),
            name,
            file_name: file_name.to_string_lossy().into_owned(),
        })
    }

    /// Those whose file has this name, wherever that is or was.
    ///
    /// # Errors
    /// Of listing the disks of this machine.
    pub fn of(file_name: &str) -> io::Result<Vec<Self>> {
        let mut devices = Vec::new();
        for entry in fs::read_dir(DISKS)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            // First: of a device that becomes another one meanwhile, one of the two is another's.
            let sequence = sequence(&name);
            if file(&name).is_some_and(|file| is_of(&file, file_name)) {
                devices.push(Self {
                    name,
                    file_name: file_name.to_owned(),
                    sequence,
                });
            }
        }
        Ok(devices)
    }

    /// Where it is found.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new("/dev").join(&self.name)
    }

    /// Whether it is still attached to the same file.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        let Some(file) = file(&self.name) else {
            return false;
        };
        match self.sequence {
            Some(known) => sequence(&self.name) == Some(known),
            None => is_of(&file, &self.file_name),
        }
    }

    /// Detaches it, unless it has become another one. If it is in use, it goes with its last user.
    ///
    /// # Errors
    /// In words.
    pub fn detach(&self) -> Result<(), String> {
        if !self.is_attached() {
            return Ok(());
        }
        let mut command = programs::command("losetup");
        let detach = command.arg("--detach").arg(self.path());
        ends_within(detach, DETACH_TIME_MAX).map_err(|why| format!("losetup: {why}"))
    }

    /// Whether its name is that of a loop device.
    pub(crate) fn is_named_as_one(&self) -> bool {
        let number = self.name.strip_prefix("loop").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    }
}

/// Runs a program that may wait for a device that nobody serves any more.
fn ends_within(command: &mut Command, time: Duration) -> Result<(), String> {
    let words = |error: io::Error| error.to_string();
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = quiet.stderr(Stdio::piped()).spawn().map_err(words)?;
    let deadline = Instant::now() + time;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(words)? {
            break status;
        }
        if Instant::now() >= deadline {
            // Nobody waits for one that the kernel does not let go.
            let _ = child.kill();
            return Err("it does not end".to_owned());
        }
        sleep(LOOKED_EVERY);
    };
    if status.success() {
        return Ok(());
    }
    let said = child.stderr.take().map(|err| err.take(SAID_BYTES_MAX));
    let said = said.map(io::read_to_string).transpose();
    Err(format!(
        "{status}: {}",
        said.ok().flatten().unwrap_or_default().trim()
    ))
}

fn sequence(name: &str) -> Option<u64> {
    let said = fs::read_to_string(Path::new(DISKS).join(name).join("diskseq"));
    said.ok()?.trim().parse().ok()
}

/// The path of its file. A disk that is not attached, or is no loop device, has none.
fn file(name: &str) -> Option<String> {
    let disk = Path::new(DISKS).join(name);
    fs::read_to_string(disk.join("loop/backing_file")).ok()
}

/// Whether a file has this name. The kernel adds a remark to the path of one that is gone.
fn is_of(file: &str, name: &str) -> bool {
    let last = file.trim_end().trim_end_matches(" (deleted)");
    last.rsplit('/').next() == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn files_of_runs_are_known_by_their_name_wherever_they_were_mounted() {
        let name = "azekura-verify-x1";
        assert!(is_of(
            "/tmp/azekura-verify-x1/device/azekura-verify-x1\n",
            name
        ));
        assert!(is_of("/azekura-verify-x1 (deleted)\n", name));
        assert!(!is_of("/tmp/azekura-verify-x1/device/disk\n", name));
        assert!(!is_of("/azekura-verify-x12", name));
        assert!(!is_of("", name));
    }

    #[test]
    fn nobody_waits_for_ever_until_a_device_is_detached() {
        let long = Duration::from_secs(60);
        let run = |script: &str, time| ends_within(Command::new("sh").args(["-c", script]), time);
        assert_eq!(run("exit 0", long), Ok(()));
        let said = run("echo broken >&2; exit 1", long);
        assert_eq!(said, Err("exit status: 1: broken".to_owned()));
        let begun = Instant::now();
        let said = run("exec sleep 60", Duration::from_millis(10));
        assert!(said.is_err() && begun.elapsed() < long / 2, "{said:?}");
        assert!(ends_within(&mut Command::new("no-such-tool"), long).is_err());
    }

    #[test]
    fn a_device_that_has_become_somebody_elses_is_left_alone() {
        let directory = std::env::temp_dir().join(format!("loops-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let [own, other] = ["own", "other"].map(|name| {
            let path = directory.join(format!("{name}-{}", std::process::id()));
            File::create(&path).unwrap().set_len(1 << 20).unwrap();
            path
        });
        let Ok(device) = Loop::attach(&own, false) else {
            println!("skipped: there are no loop devices here");
            fs::remove_dir_all(&directory).unwrap();
            return;
        };
        let name = own.file_name().unwrap().to_str().unwrap();
        assert_eq!(Loop::of(name).unwrap(), std::slice::from_ref(&device));
        assert!(device.is_attached() && device.is_named_as_one());
        device.detach().unwrap();
        assert!(!device.is_attached() && Loop::of(name).unwrap().is_empty());
        // It is free, so that somebody else may have it at once; then this says nothing.
        let mut command = programs::command("losetup");
        if output(command.arg(device.path()).arg(&other), 0).is_ok() {
            let name = other.file_name().unwrap().to_str().unwrap();
            let theirs = Loop::of(name).unwrap();
            for sequence in [device.sequence, None] {
                let ours = Loop {
                    sequence,
                    ..device.clone()
                };
                assert!(!ours.is_attached());
                ours.detach().unwrap();
                assert!(theirs[0].is_attached(), "{ours:?}");
            }
            theirs[0].detach().unwrap();
        }
        fs::remove_dir_all(&directory).unwrap();
    }
}
