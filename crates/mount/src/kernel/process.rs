//! What the system knows about the thread that a request came from.
//!
//! The thread waits for the answer, so it stays what it is for as long as the request is not
//! answered. Requests without a thread (write-back, release) have pid 0, as those have whose thread
//! is not in a PID namespace that is seen from here.
//!
//! A request tells one user and one group. Its thread's other groups are those of the call only
//! while the thread acts for itself. A worker of `io_uring` acts for its process and has the groups
//! of the time when it began; the kernel acts for others in threads of its own, and for whoever has
//! mounted an overlay in anybody's. So groups are believed only where user and group of the call
//! are those of the thread, and a worker's are those of its process if all threads have the same:
//! then a call through a worker may what the process may.

use std::io;
use std::sync::LazyLock;

/// Signals that end nothing unless they are caught: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH.
const HARMLESS: [u32; 8] = [17, 18, 19, 20, 21, 22, 23, 28];
/// All signals but KILL and STOP: what every worker blocks (`copy_process` of Linux).
const BLOCKED_BY_WORKERS: u64 = !(1 << 8 | 1 << 18);
/// `PF_IO_WORKER` and `PF_USER_WORKER` of Linux's `sched.h`.
const WORKER_FLAGS: u32 = 0x10 | 0x4000;
/// Threads of a process that are looked at for one request of a worker.
const THREADS_MAX: usize = 256;

/// What `/proc/PID/status` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The supplementary groups.
    pub groups: Vec<u32>,
    /// A signal has come that ends it: it will not look at any answer, and only waits for one.
    pub dying: bool,
    /// Real, effective, saved and that for files.
    uids: [u32; 4],
    gids: [u32; 4],
    /// The process that it is a thread of.
    leader: u32,
    is_like_a_worker: bool,
}

impl Process {
    /// Asks about the thread `pid` of a request.
    ///
    /// # Errors
    /// Of reading `/proc`: it is gone, or was never visible from here.
    pub fn of(pid: u32) -> io::Result<Self> {
        Self::read(&format!("/proc/{pid}/status"))
    }

    /// The supplementary groups of a call that the thread `pid` makes as a user and a group;
    /// `None` if that cannot be known.
    #[must_use]
    pub fn groups_of_call(pid: u32, uid: u32, gid: u32) -> Option<Vec<u32>> {
        static IS_OURS: LazyLock<bool> = LazyLock::new(|| {
            let own = std::fs::read_to_string("/proc/self/status");
            own.is_ok_and(|status| is_of_own_namespace(&status))
        });
        if pid == 0 || !*IS_OURS {
            return None;
        }
        let process = Self::of(pid).ok()?;
        if process.is_like_a_worker && is_worker(&format!("/proc/{pid}/stat"))? {
            return groups_of_threads(process.leader, uid, gid);
        }
        process.acts_as(uid, gid).then_some(process.groups)
    }

    /// access(2) asks as the real user and group.
    fn acts_as(&self, uid: u32, gid: u32) -> bool {
        self.uids.contains(&uid) && self.gids.contains(&gid)
    }

    fn read(path: &str) -> io::Result<Self> {
        let status = std::fs::read(path)?;
        // The thread's name comes first and can hold any byte but a line end.
        Self::parse(&String::from_utf8_lossy(&status))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no status of a process"))
    }

    fn parse(status: &str) -> Option<Self> {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let mask = |name: &str| u64::from_str_radix(field(name)?.trim(), 16).ok();
        let numbers = |name: &str| -> Option<Vec<u32>> {
            let numbers = field(name)?.split_whitespace();
            numbers.map(|number| number.parse().ok()).collect()
        };
        // Mostly a signal that ends a process is turned into SIGKILL for each of its threads, which
        // nothing blocks or catches. It is not while another signal is pending already.
        let pending = mask("SigPnd:")? | mask("ShdPnd:")?;
        let blocked = mask("SigBlk:")?;
        let survived = blocked | mask("SigIgn:")? | mask("SigCgt:")? | harmless();
        Some(Self {
            groups: numbers("Groups:")?,
            dying: pending & !survived != 0,
            uids: numbers("Uid:")?.try_into().ok()?,
            gids: numbers("Gid:")?.try_into().ok()?,
            leader: field("Tgid:")?.trim().parse().ok()?,
            is_like_a_worker: blocked == BLOCKED_BY_WORKERS,
        })
    }
}

/// Whether a `/proc` that says this of the process that reads it numbers processes as requests do.
/// One that was mounted outside the PID namespace of that process names all its numbers, the one
/// out there first, and what has a request's number there is somebody else.
fn is_of_own_namespace(status: &str) -> bool {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() == 1)
}

/// Whether a thread is one that the kernel has made to work for a process; `None` if it is gone. A
/// program can name its threads and block signals as it likes, and no flag.
fn is_worker(stat: &str) -> Option<bool> {
    let stat = std::fs::read(stat).ok()?;
    flags_in(&String::from_utf8_lossy(&stat)).map(|flags| flags & WORKER_FLAGS != 0)
}

/// The flags in a line of `/proc/PID/stat`. The name before them can hold blanks and brackets.
fn flags_in(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(6)?.parse().ok()
}

/// The supplementary groups of all threads of a process but workers, if they are the same and act
/// as this user and group.
fn groups_of_threads(leader: u32, uid: u32, gid: u32) -> Option<Vec<u32>> {
    let tasks = format!("/proc/{leader}/task");
    let mut groups: Option<Vec<u32>> = None;
    for (number, entry) in std::fs::read_dir(&tasks).ok()?.enumerate() {
        let thread = entry.ok()?.file_name();
        let thread = format!("{tasks}/{}", thread.to_str()?);
        let Ok(process) = Process::read(&format!("{thread}/status")) else {
            // It has ended meanwhile.
            continue;
        };
        if process.is_like_a_worker && is_worker(&format!("{thread}/stat"))? {
            continue;
        }
        let differs = groups
            .as_ref()
            .is_some_and(|known| *known != process.groups);
        if number >= THREADS_MAX || differs || !process.acts_as(uid, gid) {
            return None;
        }
        groups = Some(process.groups);
    }
    groups
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
            "Name:\tGroups:\nTgid:\t77\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n\
             Groups:\t4 27 1000 \n\
             SigPnd:\t{own}\nShdPnd:\t{shared}\n\
             SigBlk:\t{blocked}\nSigIgn:\t{ignored}\nSigCgt:\t{caught}\n"
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
                    dying,
                    uids: [1, 2, 3, 4],
                    gids: [5, 6, 7, 8],
                    leader: 77,
                    is_like_a_worker: false,
                },
                "{masks:x?}"
            );
        }
        assert_eq!(Process::parse("Name:\tx\n"), None);
    }

    #[test]
    fn groups_are_those_of_a_call_only_if_user_and_group_are() {
        let (pid, uid, gid) = (
            std::process::id(),
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let own = Process::of(pid).unwrap().groups;
        assert_eq!(Process::groups_of_call(pid, uid, gid), Some(own.clone()));
        assert_eq!(Process::groups_of_call(pid, uid + 1, gid), None);
        assert_eq!(Process::groups_of_call(pid, uid, gid + 1), None);
        assert_eq!(Process::groups_of_call(0, uid, gid), None);
        assert_eq!(Process::groups_of_call(u32::MAX, uid, gid), None);
        assert_eq!(groups_of_threads(pid, uid, gid), Some(own));
        assert_eq!(groups_of_threads(pid, uid, gid + 1), None);
        assert_eq!(groups_of_threads(u32::MAX, uid, gid), None);
    }

    #[test]
    fn the_numbers_of_another_namespace_are_not_believed() {
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(is_of_own_namespace(&own));
        assert!(!is_of_own_namespace("Name:\tx\nNSpid:\t4711\t1\n"));
        assert!(!is_of_own_namespace("Name:\tx\n"));
    }

    #[test]
    fn workers_are_known_by_their_flags() {
        let like = Process::parse(&status([0, 0, 0xffff_ffff_fffb_feff, 0, 0])).unwrap();
        assert!(like.is_like_a_worker);
        let stat = "12 (iou-wrk-11 ) 3 (x) S 1 2 3 0 -1 4194384 0 0";
        assert_eq!(flags_in(stat), Some(4_194_384));
        assert_ne!(4_194_384 & WORKER_FLAGS, 0);
        assert_eq!(flags_in("12 (x"), None);
        assert_eq!(is_worker("/proc/self/stat"), Some(false));
        assert_eq!(is_worker("/proc/4294967295/stat"), None);
    }

    #[test]
    fn this_process_is_alive_and_a_thread_that_is_not_there_is_an_error() {
        assert!(!Process::of(std::process::id()).unwrap().dying);
        assert!(Process::of(u32::MAX).is_err());
    }
}
