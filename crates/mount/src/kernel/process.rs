//! What the system knows about the thread that a request came from.
//!
//! The thread waits for the answer, so it stays what it is for as long as the request is not
//! answered. Requests without a thread (write-back, release) have pid 0.

use std::io;

/// SIGKILL in the masks of `/proc/PID/status`. A signal that ends a process, whichever it is, is
/// turned into SIGKILL for each of its threads.
const SIGKILL_BIT: u64 = 1 << 8;

/// What `/proc/PID/status` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The supplementary groups.
    pub groups: Vec<u32>,
    /// A signal has come that ends it: it will not look at any answer, and only waits for one.
    pub dying: bool,
}

impl Process {
    /// Asks about the thread `pid` of a request.
    ///
    /// # Errors
    /// Of reading `/proc`: it is gone, or was never visible from here.
    pub fn of(pid: u32) -> io::Result<Self> {
        let status = std::fs::read(format!("/proc/{pid}/status"))?;
        // The thread's name comes first and can hold any byte but a line end.
        Self::parse(&String::from_utf8_lossy(&status))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no status of a process"))
    }

    fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let groups = field("Groups:")?
            .split_whitespace()
            .map(|group| group.parse().ok());
        let pending = u64::from_str_radix(field("SigPnd:")?.trim(), 16).ok()?;
        Some(Self {
            groups: groups.collect::<Option<_>>()?,
            dying: pending & SIGKILL_BIT != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_pending_signals_are_read() {
        let status = "Name:\tGroups:\nUid:\t0\t0\t0\t0\nGroups:\t4 27 1000 \n\
                      SigPnd:\t0000000000000100\nShdPnd:\t0000000000000002\n";
        let process = Process::parse(status).unwrap();
        assert_eq!(
            process,
            Process {
                groups: vec![4, 27, 1000],
                dying: true
            }
        );
        let alive = Process::parse("Groups:\t\nSigPnd:\t0000000000000002\n").unwrap();
        assert_eq!(
            alive,
            Process {
                groups: vec![],
                dying: false
            }
        );
        assert_eq!(Process::parse("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_is_alive_and_a_thread_that_is_not_there_is_an_error() {
        assert!(!Process::of(std::process::id()).unwrap().dying);
        assert!(Process::of(u32::MAX).is_err());
    }
}
