//! The workloads, as plain programs: each runs in its own process, knows nothing of the system
//! under test, and uses only open, read, write, stat, readdir, fsync and unlink.
//!
//! A workload comes as JSON in the argument and answers with one line of JSON. It stops at its
//! time cap and then says how far it came.

mod latency;
mod metadata;
mod read;
mod tree;
mod write;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub(crate) use latency::Latencies;
pub(crate) use read::Pattern;

use crate::content::Verify;

/// What to do. Paths are inside the mount; `seed` names the expected content.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// Reads one file in a pattern, one call after another.
    Read {
        file: String,
        seed: u64,
        pattern: Pattern,
        call_bytes: u64,
        verify: Verify,
    },
    /// Several readers at random places of one file.
    Random {
        file: String,
        seed: u64,
        file_bytes: u64,
        call_bytes: u64,
        readers: u32,
        reads_each: u32,
        draw: u64,
    },
    /// Small reads of one file while another is read from end to end.
    Demand {
        bulk: String,
        bulk_seed: u64,
        bulk_bytes: u64,
        file: String,
        seed: u64,
        file_bytes: u64,
        reads: u32,
        draw: u64,
    },
    /// Lists a tree and asks for the attributes of every entry.
    Walk { root: String, entries: u64 },
    /// Reads all files of a directory, one after another in the order of names.
    Small {
        dir: String,
        files: u64,
        file_bytes: u64,
    },
    /// Writes a file and calls fsync.
    Write {
        file: String,
        seed: u64,
        bytes: u64,
        call_bytes: u64,
    },
    /// Creates files with content, one after another, then calls fsync on the directory.
    Create {
        dir: String,
        files: u64,
        file_bytes: u64,
    },
    /// Creates empty files by several processes, each in its own directory.
    CreateEmpty {
        dir: String,
        files: u64,
        processes: u32,
    },
    /// Asks for the attributes of files whose names are known.
    Stat { dir: String, files: u64 },
    /// Lists one directory and asks for the attributes of every entry.
    List { dir: String, files: u64 },
    /// Removes files whose names are known.
    Unlink { dir: String, files: u64 },
}

/// How it went.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Bytes or items done, and how many there were to do.
    pub(crate) done: u64,
    pub(crate) total: u64,
    pub(crate) seconds: f64,
    /// Time within `seconds` that does not grow with what is done, as a listing beforehand.
    pub(crate) setup_s: f64,
    /// CLOCK_MONOTONIC at the start.
    pub(crate) start_s: f64,
    /// From open to the first data.
    pub(crate) first_byte_s: Option<f64>,
    /// Rate over the second half of what was done.
    pub(crate) steady_bytes_per_s: Option<f64>,
    /// The last fsync, within `seconds`.
    pub(crate) fsync_s: Option<f64>,
    pub(crate) latency: Option<Latencies>,
    /// (seconds, bytes so far), at least 5 ms apart.
    pub(crate) timeline: Vec<(f64, u64)>,
    /// CPU of this process.
    pub(crate) cpu_s: f64,
    /// Content that was wrong, or a call that failed.
    pub(crate) error: Option<String>,
}

impl Outcome {
    /// Nothing done yet of so many bytes or items.
    pub(crate) fn out_of(total: u64) -> Self {
        Self {
            total,
            ..Self::default()
        }
    }

    pub(crate) fn is_capped(&self) -> bool {
        self.done < self.total
    }

    /// Seconds for everything, had there been no cap.
    pub(crate) fn whole_s(&self) -> f64 {
        let share_done = self.done.max(1) as f64 / self.total.max(1) as f64;
        self.setup_s + (self.seconds - self.setup_s) / share_done
    }
}

/// The time cap of a workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
    cap: Duration,
}

impl Clock {
    pub(crate) fn elapsed_s(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.start.elapsed() >= self.cap
    }
}

/// CLOCK_MONOTONIC in seconds, comparable between processes.
pub(crate) fn monotonic_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Runs one workload with its cap and says how it went.
pub(crate) fn run(workload: &Workload, cap: Duration) -> Outcome {
    let start_s = monotonic_s();
    let clock = Clock {
        start: Instant::now(),
        cap,
    };
    let result = match workload {
        Workload::Read {
            file,
            seed,
            pattern,
            call_bytes,
            verify,
        } => read::in_pattern(file, *seed, &pattern.calls(*call_bytes), *verify, clock),
        Workload::Random { .. } => read::at_random(workload, clock),
        Workload::Demand { .. } => read::on_demand(workload, clock),
        Workload::Walk { root, entries } => tree::walk(root, *entries, clock),
        Workload::Small {
            dir,
            files,
            file_bytes,
        } => tree::small(dir, *files, *file_bytes, clock),
        Workload::Write {
            file,
            seed,
            bytes,
            call_bytes,
        } => write::stream(file, *seed, *bytes, *call_bytes, clock),
        Workload::Create {
            dir,
            files,
            file_bytes,
        } => write::create(dir, *files, *file_bytes, clock),
        Workload::CreateEmpty {
            dir,
            files,
            processes,
        } => metadata::create(dir, *files, *processes, clock),
        Workload::Stat { dir, files } => metadata::stat(dir, *files, clock),
        Workload::List { dir, files } => metadata::list(dir, *files, clock),
        Workload::Unlink { dir, files } => metadata::unlink(dir, *files, clock),
    };
    let elapsed_s = clock.elapsed_s();
    let mut outcome = result.unwrap_or_else(|error| Outcome {
        error: Some(format!("{error:#}")),
        ..Outcome::default()
    });
    outcome.start_s = start_s;
    if outcome.seconds == 0.0 {
        outcome.seconds = elapsed_s;
    }
    outcome.cpu_s = crate::cpu::of_process("self").unwrap_or(0.0);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capped_run_is_extrapolated_without_its_setup() {
        let outcome = Outcome {
            done: 10,
            total: 100,
            seconds: 8.0,
            setup_s: 6.0,
            ..Outcome::default()
        };
        assert_eq!(outcome.whole_s(), 26.0);
        let whole = Outcome {
            done: 100,
            ..outcome
        };
        assert_eq!(whole.whole_s(), 8.0);
    }
}
