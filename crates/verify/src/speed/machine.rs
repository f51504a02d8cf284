//! How busy the machine is: a speed says nothing without it.
//!
//! The load average is raised by the run itself, so it judges only the moment before the run.
//! Later, what counts is the time that others' programs take from the processors, in a moment
//! before each repeat and while something is measured, and the time that the host gives to other
//! machines (steal). The kernel's own time is left out: a file system's threads work for the run.
//! So do the programs that serve a directory, where therefore only the moment before counts.

use serde::{Deserialize, Serialize};
use std::ops::Sub;
use std::time::Duration;

/// Ticks of a second in what the kernel tells about processor time, on every architecture on which
/// this program runs.
pub const TICKS_PER_SECOND: u64 = 100;
/// Load average of one minute, by processor, from which a machine is busy before a run.
const LOAD_MAX: f64 = 0.5;
/// What others may use of one processor while something is measured.
const OTHERS_MAX: f64 = 0.15;
/// The share of all processors that the host may give to others.
const STEAL_MAX: f64 = 0.02;

/// What processors did since the machine was started, in ticks, over all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticks {
    /// In programs.
    pub user: u64,
    /// In the kernel, interrupts included.
    pub system: u64,
    /// Nothing, also while waiting for a disk.
    pub idle: u64,
    /// Something else: the host ran another machine.
    pub steal: u64,
}

impl Ticks {
    /// From the first line of `/proc/stat`.
    #[must_use]
    pub fn parse(stat: &str) -> Option<Self> {
        let mut words = stat.lines().next()?.split_ascii_whitespace();
        if words.next()? != "cpu" {
            return None;
        }
        let counts: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; time of guests is part of user time.
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *counts.first_chunk()?;
        Some(Self {
            user: user + nice,
            system: system + irq + softirq,
            idle: idle + iowait,
            steal,
        })
    }

    /// All of them.
    #[must_use]
    pub const fn sum(self) -> u64 {
        self.user + self.system + self.idle + self.steal
    }
}

impl Sub for Ticks {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        // Idle time is known to go backwards on some machines.
        Self {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            idle: self.idle.saturating_sub(before.idle),
            steal: self.steal.saturating_sub(before.steal),
        }
    }
}

/// The processor time of children that have ended, in programs and in the kernel, from
/// `/proc/self/stat`.
pub(super) fn children(stat: &str) -> Option<(Duration, Duration)> {
    // The name of the program may have anything in it, and ends with the last parenthesis.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_ascii_whitespace().skip(13);
    let mut time = || -> Option<Duration> {
        let ticks: u64 = words.next()?.parse().ok()?;
        Some(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
    };
    Some((time()?, time()?))
}

/// The load average of one minute, from `/proc/loadavg`.
#[must_use]
pub fn load(loadavg: &str) -> Option<f64> {
    loadavg.split(' ').next()?.parse().ok()
}

/// How busy others kept the machine while something was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Others {
    /// Of one processor, what programs used that were not the run's.
    pub programs: f64,
    /// Of all processors, the share that the host gave to others.
    pub steal: f64,
}

impl Others {
    /// From what the processors did, of which `own` was the run's program.
    pub(super) fn new(ticks: Ticks, own: Duration, time: Duration) -> Self {
        let seconds = time.as_secs_f64().max(1e-3);
        let user = ticks.user as f64 / TICKS_PER_SECOND as f64;
        // Each of the two is rounded to a tick.
        let rounding = 2.0 / TICKS_PER_SECOND as f64;
        let programs = (user - own.as_secs_f64() - rounding).max(0.0) / seconds;
        let steal = ticks.steal as f64 / ticks.sum().max(1) as f64;
        Self { programs, steal }
    }

    /// The busier of the two, in each respect.
    #[must_use]
    pub(super) fn most(self, other: Self) -> Self {
        Self {
            programs: self.programs.max(other.programs),
            steal: self.steal.max(other.steal),
        }
    }

    /// Whether what was measured meanwhile is not to be believed.
    #[must_use]
    pub fn is_busy(self) -> bool {
        self.programs > OTHERS_MAX || self.steal > STEAL_MAX
    }
}

/// Whether a machine with so many processors was busy before a run.
#[must_use]
pub fn was_busy(load: f64, processors: usize) -> bool {
    load > LOAD_MAX * processors as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read_as_the_kernel_writes_them() {
        let stat = "cpu  206850 7 24129 57408 4587 1 290 70 5 0\ncpu0 1 2 3\n";
        let ticks = Ticks::parse(stat).unwrap();
        let known = Ticks {
            user: 206_857,
            system: 24_420,
            idle: 61_995,
            steal: 70,
        };
        assert_eq!(ticks, known);
        assert_eq!(ticks - ticks, Ticks::default());
        for other in ["", "cpu 1 2", "intr 1 2 3 4 5 6 7 8"] {
            assert_eq!(Ticks::parse(other), None, "{other}");
        }
        assert_eq!(load("3.01 3.10 2.25 3/118 25390\n"), Some(3.01));
        assert_eq!(load(""), None);
    }

    #[test]
    fn the_time_of_children_is_found_whatever_the_program_is_called() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 2 3 0 0 11 12 250 75 20 0 1 0 99";
        let (user, system) = children(stat).unwrap();
        assert_eq!((user.as_millis(), system.as_millis()), (2500, 750));
        assert_eq!(children("7 (x"), None);
    }

    #[test]
    fn a_machine_that_others_use_is_busy() {
        let second = Duration::from_secs(1);
        let ticks = |user, steal| Ticks {
            user,
            system: 50,
            idle: 150 - user - steal,
            steal,
        };
        let others = |user, steal, own_millis| {
            Others::new(
                ticks(user, steal),
                Duration::from_millis(own_millis),
                second,
            )
        };
        // A second of two processors, most of it in the run's own program.
        assert!(!others(90, 0, 900).is_busy());
        assert!(others(90, 0, 300).is_busy());
        assert!(others(90, 10, 900).is_busy());
        assert!(was_busy(1.1, 2) && !was_busy(0.9, 2));
        let most = others(90, 0, 300).most(others(90, 10, 900));
        assert!(most.programs > 0.5 && most.steal > 0.04);
    }
}
