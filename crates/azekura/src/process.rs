//! What the kernel tells of another process, in `/proc`.

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
    fn a_process_began_before_it_asks() {
        let own = std::process::id().into();
        let began = began(own).expect("it is in the list");
        let age = SystemTime::now().duration_since(began).expect("the past");
        assert!(age < Duration::from_secs(86_400), "{age:?}");
        assert!(is_of_this_user(own));
        assert!(!names(own, Path::new("/no/argument/of/it")));
    }
}
