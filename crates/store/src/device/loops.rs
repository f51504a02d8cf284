//! Loop devices: one device under two names, whose locks do not know of each other.
//!
//! A file that a loop device has is not opened by itself: the device may be mounted, or have a
//! store that is in use. And a loop device is not opened while somebody has locked its file. What
//! the system does not tell (another mount namespace, a `/sys` that is not there) counts as no loop
//! device: then it is as it would be without this.

use super::error::OpenError;
use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Where the kernel has a directory for each block device.
const DEVICES: &str = "/sys/block";
/// Where it has a link to that by the device's number.
pub(super) const NUMBERS: &str = "/sys/dev/block";

/// Refuses what is in use under its other name.
///
/// # Errors
/// [`OpenError::InUse`].
pub(super) fn check(path: &Path, opened: &fs::Stat, is_shared: bool) -> Result<(), OpenError> {
    let is_in_use = match FileType::from_raw_mode(opened.st_mode) {
        FileType::BlockDevice => is_file_locked(opened, is_shared),
        _ => has_device(opened),
    };
    match is_in_use {
        true => Err(OpenError::InUse { path: path.into() }),
        false => Ok(()),
    }
}

/// The file of a loop device, by its directory in `/sys`; none if it is no loop device.
pub(super) fn file_of(device: &Path) -> Option<PathBuf> {
    let name = std::fs::read(device.join("loop/backing_file")).ok()?;
    let name = name.strip_suffix(b"\n").unwrap_or(&name);
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// Whether a loop device has this file.
fn has_device(file: &fs::Stat) -> bool {
    let devices = std::fs::read_dir(DEVICES).into_iter().flatten().flatten();
    let files = devices.filter_map(|device| file_of(&device.path()));
    let mut stats = files.filter_map(|file| fs::stat(&file).ok());
    stats.any(|other| (other.st_dev, other.st_ino) == (file.st_dev, file.st_ino))
}

/// Whether somebody has locked the file of this loop device so that it cannot be locked, too.
fn is_file_locked(device: &fs::Stat, is_shared: bool) -> bool {
    let (major, minor) = (fs::major(device.st_rdev), fs::minor(device.st_rdev));
    let Some(file) = file_of(&Path::new(NUMBERS).join(format!("{major}:{minor}"))) else {
        return false;
    };
    let lock = match is_shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    fs::open(&file, flags, Mode::empty()).is_ok_and(|file| {
        // Given back at once: from now on the file is not opened because of the device.
        fs::flock(&file, lock) == Err(Errno::WOULDBLOCK)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{DeviceOptions, FileDevice};
    use super::*;
    use std::process::Command;

    fn losetup(arguments: &[&str]) -> Option<String> {
        let output = Command::new("losetup").args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    }

    #[test]
    fn a_device_that_can_only_be_read_is_not_opened_for_writing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let name = path.to_str().unwrap();
        let Some(device) = losetup(&["--read-only", "--find", "--show", name]) else {
            println!("skipped: no loop device can be had");
            return;
        };
        let open = |read_only| {
            let options = DeviceOptions {
                read_only,
                ..DeviceOptions::default()
            };
            FileDevice::open(Path::new(&device), options).map(drop)
        };
        let (reading, writing) = (open(true), open(false));
        assert!(losetup(&["-d", &device]).is_some(), "{device} stays");
        assert!(reading.is_ok(), "{reading:?}");
        let Err(OpenError::System { source, .. }) = &writing else {
            panic!("{writing:?}")
        };
        assert_eq!(source.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }

    #[test]
    fn a_file_and_its_loop_device_are_not_open_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        let name = path.to_str().unwrap();
        let Some(device) = losetup(&["--find", "--show", name]) else {
            println!("skipped: no loop device can be had");
            return;
        };
        let options = [false, true].map(|read_only| DeviceOptions {
            read_only,
            ..DeviceOptions::default()
        });
        let open = |path: &Path| options.map(|options| FileDevice::open_now(path, options));
        let is_in_use = |opened: &Result<_, _>| matches!(opened, Err(OpenError::InUse { .. }));
        let of_file = open(&path);
        let opened = FileDevice::open(Path::new(&device), options[0]).map(drop);
        let detached = losetup(&["-d", &device]);
        assert!(detached.is_some(), "{device} stays");
        assert!(of_file.iter().all(is_in_use), "{of_file:?}");
        assert!(opened.is_ok(), "{opened:?}");
        let file = FileDevice::open(&path, options[0]).unwrap();
        let Some(device) = losetup(&["--find", "--show", name]) else {
            return;
        };
        let of_device = open(Path::new(&device));
        let detached = losetup(&["-d", &device]);
        assert!(detached.is_some(), "{device} stays");
        assert!(of_device.iter().all(is_in_use), "{of_device:?}");
        drop(file);
    }
}
