//! Which disk a file or a block device lies on: those on the same one share what it can do.
//!
//! ```text
//! file ──► its file system's device ──► partition ──► disk
//!                                  ├──► loop device ──► its file ──► as above
//!                                  └──► device mapper over one device ──► that
//! ```
//! What the system does not tell ends the way down: a device over several others is taken for a
//! disk, and so is a file system without a device; of a file system on several devices the first
//! counts. Two disks of one cable, one controller or one
//! host behind a virtual machine are two.

use super::loops::{NUMBERS, file_of};
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, makedev, statx};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Devices between a file and its disk; more than that is a circle.
const STEPS_MAX: usize = 16;

/// A disk, for as long as the system runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Disk(u64);

/// The disk of a file or block device.
///
/// # Errors
/// What the system says about `path`.
pub fn disk_of(path: &Path) -> io::Result<Disk> {
    let mut at = device_of(path)?;
    for _ in 0..STEPS_MAX {
        at = match below(Path::new(NUMBERS), at) {
            Some(Below::Device(device)) => device,
            // A file that is gone by now is as good as none.
            Some(Below::File(file)) => match device_of(&file) {
                Ok(device) => device,
                Err(_) => break,
            },
            None => break,
        };
    }
    Ok(Disk(at))
}

/// What a device lies on.
#[derive(Debug, PartialEq, Eq)]
enum Below {
    Device(u64),
    File(PathBuf),
}

/// The block device that this is or lies on; of a file system without one, its number.
fn device_of(path: &Path) -> io::Result<u64> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
    let found = statx(CWD, path, AtFlags::empty(), wanted)?;
    if FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice {
        return Ok(makedev(found.stx_rdev_major, found.stx_rdev_minor));
    }
    let device = makedev(found.stx_dev_major, found.stx_dev_minor);
    let has_mount = found.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    // Btrfs has numbers of its own, which belong to no device.
    if found.stx_dev_major == 0
        && has_mount
        && let Some(source) = source_of(found.stx_mnt_id)
        && let Ok(source) = statx(CWD, &source, AtFlags::empty(), StatxFlags::BASIC_STATS)
        && FileType::from_raw_mode(source.stx_mode.into()) == FileType::BlockDevice
    {
        return Ok(makedev(source.stx_rdev_major, source.stx_rdev_minor));
    }
    Ok(device)
}

/// What is mounted by this number, if it has a path.
fn source_of(mount: u64) -> Option<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo").ok()?;
    let own = mount.to_string();
    let mut lines = mounts.split(|byte| *byte == b'\n');
    let line = lines.find(|line| {
        let number = line.split(|byte| *byte == b' ').next();
        number == Some(own.as_bytes())
    })?;
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    // Behind a dash: the kind of file system, and what is mounted.
    let dash = words.iter().position(|word| *word == b"-")?;
    let source = words.get(dash + 2)?;
    let path = Path::new(OsStr::from_bytes(source));
    path.is_absolute().then(|| path.to_owned())
}

/// What lies directly below a block device, by the kernel's directory of them.
fn below(numbers: &Path, device: u64) -> Option<Below> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let directory = fs::canonicalize(numbers.join(format!("{major}:{minor}"))).ok()?;
    if let Some(file) = file_of(&directory) {
        return Some(Below::File(file));
    }
    if directory.join("partition").exists() {
        return number(directory.parent()?).map(Below::Device);
    }
    let mut parts = fs::read_dir(directory.join("slaves")).ok()?.flatten();
    match (parts.next(), parts.next()) {
        (Some(one), None) => number(&one.path()).map(Below::Device),
        _ => None,
    }
}

/// The number of the device that has this directory.
fn number(directory: &Path) -> Option<u64> {
    let text = fs::read_to_string(directory.join("dev")).ok()?;
    let (major, minor) = text.trim_end().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn partitions_and_what_is_mapped_to_one_device_lie_on_its_disk() {
        let tree = tempfile::tempdir().unwrap();
        let numbers = tree.path().join("dev/block");
        fs::create_dir_all(&numbers).unwrap();
        let device = |path: &str, is: &str| {
            let directory = tree.path().join("devices").join(path);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("dev"), format!("{is}\n")).unwrap();
            symlink(&directory, numbers.join(is)).unwrap();
            directory
        };
        let disk = device("sda", "8:0");
        let partition = device("sda/sda1", "8:1");
        fs::write(partition.join("partition"), "1\n").unwrap();
        let (mapped, striped) = (device("dm-0", "253:0"), device("md0", "9:0"));
        for (over, under) in [
            (&mapped, &partition),
            (&striped, &disk),
            (&striped, &mapped),
        ] {
            let slaves = over.join("slaves");
            fs::create_dir_all(&slaves).unwrap();
            symlink(under, slaves.join(under.file_name().unwrap())).unwrap();
        }
        let looped = device("loop0", "7:0");
        fs::create_dir(looped.join("loop")).unwrap();
        fs::write(looped.join("loop/backing_file"), "/images/a b\n").unwrap();
        let of = |major, minor| below(&numbers, makedev(major, minor));
        assert_eq!(of(8, 0), None);
        assert_eq!(of(8, 1), Some(Below::Device(makedev(8, 0))));
        assert_eq!(of(253, 0), Some(Below::Device(makedev(8, 1))));
        assert_eq!(of(9, 0), None, "a device over two is one of its own");
        assert_eq!(of(7, 0), Some(Below::File("/images/a b".into())));
        assert_eq!(of(7, 1), None, "there is none");
    }

    #[test]
    fn files_of_one_file_system_lie_on_one_disk_and_a_loop_device_on_that_of_its_file() {
        let directory = tempfile::tempdir().unwrap();
        let [one, other] = ["one", "other"].map(|name| directory.path().join(name));
        for path in [&one, &other] {
            fs::write(path, vec![0; 1 << 20]).unwrap();
        }
        let disk = disk_of(&one).unwrap();
        assert_eq!(disk_of(&other).unwrap(), disk);
        assert_eq!(disk_of(directory.path()).unwrap(), disk);
        assert_ne!(disk_of(Path::new("/proc/self/status")).unwrap(), disk);
        assert!(disk_of(&directory.path().join("none")).is_err());
        let arguments = ["--find", "--show", one.to_str().unwrap()];
        let made = Command::new("losetup").args(arguments).output();
        let Some(made) = made.ok().filter(|made| made.status.success()) else {
            println!("skipped: no loop device can be had");
            return;
        };
        let device = String::from_utf8(made.stdout).unwrap().trim().to_owned();
        let found = disk_of(Path::new(&device));
        let detached = Command::new("losetup").args(["-d", &device]).status();
        assert!(detached.unwrap().success(), "{device} stays");
        assert_eq!(found.unwrap(), disk);
    }
}
