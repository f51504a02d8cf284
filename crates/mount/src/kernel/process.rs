//! What the system knows about the thread that a request came from.
//!
//! The thread waits for the answer, so it stays what it is for as long as the request is not
//! answered. Requests without a thread (write-back, release) have pid 0.

use std::io;

/// Signals that end nothing unless they are caught: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH.
const HARMLESS: [u32; 8] = [17, 18, 19, 20, 21, 22, 23, 28];

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
        let mask = |name: &str| u64::from_str_radix(field(name)?.trim(), 16).ok();
        let groups = field("Groups:")?
            .split_whitespace()
            .map(|group| group.parse().ok());
        // Mostly a signal that ends a process is turned into SIGKILL for each of its threads, which
        // nothing blocks or catches. It is not while another signal is pending already.
        let pending = mask("SigPnd:")? | mask("ShdPnd:")?;
        let survived = mask("SigBlk:")? | mask("SigIgn:")? | mask("SigCgt:")? | harmless();
        Some(Self {
            groups: groups.collect::<Option<_>>()?,
            dying: pending & !survived != 0,
        })
    }
}

/// In a mask, signal 1 is bit 0.
fn harmless() -> u64 {
    HARMLESS
        .iter()
        .fold(0, |mask, signal| mask | 1 << (signal - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(masks: [u64; 5]) -> String {
        let [own, shared, blocked, ignored, caught] = masks.map(|mask| format!("{mask:016x}"));
        format!(
            "Name:\tGroups:\nUid:\t0\t0\t0\t0\nGroups:\t4 27 1000 \nSigPnd:\t{own}\n\
             ShdPnd:\t{shared}\nSigBlk:\t{blocked}\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n"
        )
    }

    #[test]
    fn groups_are_read_and_signals_judged() {
        let (kill, term, usr1, child) = (1 << 8, 1 << 14, 1 << 9, 1 << 16);
        let cases = [
            ([0; 5], false),
            ([kill, 0, 0, 0, 0], true),
            ([0, term, 0, 0, 0], true),
            ([0, term, term, 0, 0], false),
            ([0, term, 0, term, 0], false),
            ([0, term, 0, 0, term], false),
            ([0, term | usr1, 0, 0, usr1], true),
            ([0, child, 0, 0, 0], false),
            ([0, 1 << 40, 0, 0, 0], true),
        ];
        for (masks, dying) in cases {
            let process = Process::parse(&status(masks)).unwrap();
            assert_eq!(
                process,
                Process {
                    groups: vec![4, 27, 1000],
                    dying
                },
                "{masks:x?}"
            );
        }
        assert_eq!(Process::parse("Name:\tx\n"), None);
    }

    #[test]
    fn this_process_is_alive_and_a_thread_that_is_not_there_is_an_error() {
        assert!(!Process::of(std::process::id()).unwrap().dying);
        assert!(Process::of(u32::MAX).is_err());
    }
}
