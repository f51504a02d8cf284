//! What the kernel tells of another process, in `/proc`.

use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Ticks in a second as the kernel counts them for programs, on every architecture of ours.
const TICKS_PER_SECOND: u64 = 100;
/// Fields between the state of a process and the time at which it began.
const FIELDS_TO_START: usize = 19;

/// Whether it is there and has not ended: one that nobody has waited for stays in the list as a
/// zombie.
pub(crate) fn is_running(process: u64) -> bool {
    match std::fs::read(format!("/proc/{process}/stat")) {
        Ok(stat) => !matches!(state_of(&stat), Some(b'Z' | b'X')),
        Err(_) => false,
    }
}

/// Whether it names `path` among its arguments; one that does not, where it should, is another by
/// now, or of another process namespace.
pub(crate) fn names(process: u64, path: &Path) -> bool {
    let arguments = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let wanted = path.as_os_str().as_encoded_bytes();
    arguments
        .split(|byte| *byte == 0)
        .any(|argument| argument == wanted)
}

/// Whether it runs as this process's user.
pub(crate) fn is_of_this_user(process: u64) -> bool {
    let found = std::fs::metadata(format!("/proc/{process}"));
    found.is_ok_and(|found| found.uid() == rustix::process::geteuid().as_raw())
}

/// When it began.
pub(crate) fn began(process: u64) -> Option<SystemTime> {
    let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    let began = Duration::from_millis(start_ticks(&stat)? * (1000 / TICKS_PER_SECOND));
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let now = Duration::new(now.tv_sec.try_into().ok()?, now.tv_nsec.try_into().ok()?);
    SystemTime::now().checked_sub(now.saturating_sub(began))
}

/// Whether a process keeps the mount on `path` from being taken off, with a file that it has open
/// or mapped, or its working or root directory. The mount has the number `id` in the kernel's list
/// and the device number `minor`; it is not asked. What this user may not look at does not count.
pub(crate) fn is_used(path: &Path, id: u32, minor: u32) -> bool {
    let Ok(list) = std::fs::read_dir("/proc") else {
        return false;
    };
    let is_number = |name: &OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    list.flatten()
        .filter(|entry| is_number(&entry.file_name()))
        .any(|entry| {
            let process = entry.path();
            is_within(&process, path, id)
                || has_open(&process, path, id)
                || has_mapped(&process, minor)
        })
}

fn is_within(process: &Path, path: &Path, id: u32) -> bool {
    ["cwd", "root"].iter().any(|name| {
        let link = process.join(name);
        // To open what lies elsewhere could ask a server that does not answer.
        if !leads_below(&link, path) {
            return false;
        }
        let opened = rustix::fs::open(&link, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
        opened.is_ok_and(|opened| {
            let own = format!("/proc/self/fdinfo/{}", opened.as_raw_fd());
            mount_of(Path::new(&own)) == Some(id)
        })
    })
}

fn has_open(process: &Path, path: &Path, id: u32) -> bool {
    let Ok(list) = std::fs::read_dir(process.join("fd")) else {
        return false;
    };
    list.flatten().any(|entry| {
        let about = || mount_of(&process.join("fdinfo").join(entry.file_name()));
        leads_below(&entry.path(), path) && about() == Some(id)
    })
}

/// Whether a link of `/proc` leads there by its text: what lies below the mount, or is covered by
/// it, or has that path in another namespace.
fn leads_below(link: &Path, path: &Path) -> bool {
    std::fs::read_link(link).is_ok_and(|target| target.starts_with(path))
}

/// The number of the mount of an open file, by the kernel's text about that.
fn mount_of(about: &Path) -> Option<u32> {
    let text = std::fs::read_to_string(about).ok()?;
    let number = text.lines().find_map(|line| line.strip_prefix("mnt_id:"))?;
    number.trim().parse().ok()
}

/// A program that runs from the mount has it mapped, too. Here only the device is told, which
/// mounts of another namespace share.
fn has_mapped(process: &Path, minor: u32) -> bool {
    let namespace = |process: &Path| std::fs::read_link(process.join("ns/mnt")).ok();
    if namespace(process) != namespace(Path::new("/proc/self")) {
        return false;
    }
    let maps = std::fs::read(process.join("maps")).unwrap_or_default();
    maps.split(|byte| *byte == b'\n')
        .any(|line| is_of_device(line, minor))
}

/// Whether a line of `/proc/PID/maps`, "ADDRESSES RIGHTS OFFSET MAJOR:MINOR INODE PATH", is of
/// this device, which has no block device below it.
fn is_of_device(line: &[u8], minor: u32) -> bool {
    let device = line.split(|byte| *byte == b' ').nth(3);
    device == Some(format!("00:{minor:02x}").as_bytes())
}

/// What follows the name in `/proc/PID/stat`; the name can hold brackets and spaces itself.
fn behind_name(stat: &[u8]) -> Option<&[u8]> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    stat.get(name_end + 2..)
}

fn state_of(stat: &[u8]) -> Option<u8> {
    behind_name(stat)?.first().copied()
}

fn start_ticks(stat: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(behind_name(stat)?).ok()?;
    text.split(' ').nth(FIELDS_TO_START)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_has_ended() {
        assert_eq!(state_of(b"7 (a) Z (b) S 1 7"), Some(b'S'));
        assert_eq!(state_of(b"7 (azekura"), None);
        assert!(is_running(std::process::id().into()));
        let mut child = std::process::Command::new("true").spawn().expect("a child");
        let process = u64::from(child.id());
        while is_running(process) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let list = format!("/proc/{process}");
        assert!(Path::new(&list).exists(), "nobody has waited for it");
        child.wait().expect("it is ours");
        assert!(!is_running(process));
    }

    #[test]
    fn what_is_mapped_is_known_by_its_device() {
        let line = b"7f10-7f20 r-xp 00002000 00:62 1234                 /mnt/a program";
        assert!(is_of_device(line, 0x62));
        assert!(!is_of_device(line, 0x63));
        assert!(!is_of_device(b"", 0x62));
    }

    #[test]
    fn what_this_process_has_open_it_uses() {
        let scratch = tempfile::tempdir().expect("a directory");
        let root = scratch.path().canonicalize().expect("it is there");
        let file = std::fs::File::create(root.join("file")).expect("room on the disk");
        let about = format!("/proc/self/fdinfo/{}", file.as_raw_fd());
        let id = mount_of(Path::new(&about)).expect("it is open");
        let own = Path::new("/proc/self");
        assert!(has_open(own, &root, id));
        assert!(
            !has_open(own, &root, id + 1),
            "a mount of that path that covers it"
        );
        assert!(!has_open(own, &root.join("other"), id));
        assert!(!is_within(own, &root, id));
    }

    #[test]
    fn a_process_began_before_it_asks() {
        let own = std::process::id().into();
        let began = began(own).expect("it is in the list");
        let age = SystemTime::now().duration_since(began).expect("the past");
        assert!(age < Duration::from_secs(86_400), "{age:?}");
        assert!(is_of_this_user(own));
        assert!(!names(own, Path::new("/no/argument/of/it")));
    }
}
