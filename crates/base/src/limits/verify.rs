//! Bounds of what judges file systems.

use std::time::Duration;

/// Bytes that one crash log holds: a workload of a few hundred steps writes some megabytes, and
/// what is recorded is in memory. A device that would be written more is full.
pub const VERIFY_LOG_BYTES_MAX: u64 = 1 << 30;
/// Writes, flushes and marks of one crash log.
pub const VERIFY_LOG_ENTRIES_MAX: usize = 1 << 20;
/// Length of a device for crash states. Zeros take no memory; the rest must fit into it.
pub const VERIFY_DEVICE_BYTES_MAX: u64 = 4 << 30;
/// Longest piece of a device in one record of a crash log: the largest write that FUSE passes on.
pub const VERIFY_RECORD_BYTES_MAX: u64 = 1 << 20;
/// Steps of one workload.
pub const VERIFY_STEPS_MAX: usize = 1024;
/// Largest file of a workload: the judge keeps every version of it.
pub const VERIFY_FILE_BYTES_MAX: u64 = 1 << 20;
/// Workloads of one run; the states of each are at least one.
pub const VERIFY_WORKLOADS_MAX: u64 = 100_000;
/// Crash states of one run.
pub const VERIFY_STATES_MAX: u64 = 10_000_000;
/// Ways to tear one write that are gone through; of a write with more sectors they are drawn.
pub const VERIFY_TEARS_MAX: u64 = 16;
/// Pairs of writes that are left out together in one stretch between two flushes.
pub const VERIFY_PAIRS_MAX: u64 = 64;
/// Sectors that are looked at to find out which states of a stretch are equal: about a second. In
/// a longer stretch the states are drawn.
pub const VERIFY_PRUNE_SECTORS_MAX: u64 = 200_000_000;
/// Names that are looked at in a file system after a crash.
pub const VERIFY_FOUND_MAX: usize = 4096;
/// Bytes that are read of these.
pub const VERIFY_FOUND_BYTES_MAX: u64 = 64 << 20;
/// One message between a run and its actor: what was found, with its names.
pub const VERIFY_MESSAGE_BYTES_MAX: usize = 80 << 20;
/// How long one step, check or mount of an actor may take, on a machine that is busy.
pub const VERIFY_STEP_TIME_MAX: Duration = Duration::from_secs(120);
/// How long an actor may take to clean up.
pub const VERIFY_END_TIME_MAX: Duration = Duration::from_secs(30);
/// What a tool says that is kept.
pub const VERIFY_TEXT_BYTES_MAX: usize = 4096;
/// Failures of one run that are kept; all are counted.
pub const VERIFY_FAILURES_MAX: usize = 100;
/// States that are tried to find out which few writes a failure is about.
pub const VERIFY_REDUCE_TRIES_MAX: u32 = 100;
/// Combinations that one run measures: at half a minute for each repeat, days.
pub const VERIFY_SPEED_CELLS_MAX: usize = 1024;
/// Repeats of each: more would tell no more about a median.
pub const VERIFY_SPEED_REPEATS_MAX: u32 = 1000;
/// What is written, read or made in one of them: as much as a large disk takes in an hour.
pub const VERIFY_SPEED_BYTES_MAX: u64 = 1 << 40;
/// Small files that are made.
pub const VERIFY_SPEED_FILES_MAX: u64 = 10_000_000;
/// What a program that measures prints and that is looked at: a report of fio has some kilobytes.
pub const VERIFY_SPEED_SAID_BYTES_MAX: u64 = 1 << 20;
/// How long one program may measure.
pub const VERIFY_SPEED_JOB_TIME_MAX: Duration = Duration::from_secs(4 * 3600);
/// How long everything else may take: a large file system is made, or what was written to a slow
/// disk goes there.
pub const VERIFY_SPEED_STEP_TIME_MAX: Duration = Duration::from_secs(1800);
/// How long cleaning up may take: what was written is written to the disk before it is unmounted.
pub const VERIFY_SPEED_END_TIME_MAX: Duration = Duration::from_secs(300);
/// States of one recovery that is itself interrupted.
pub const VERIFY_RECOVERY_STATES_MAX: u64 = 12;
/// Cells of one run of power cuts: at some seconds for each cut, days.
pub const VERIFY_POWERCUT_CELLS_MAX: usize = 4096;
/// Cuts of one cell: an interval of 3 points to each side, whatever the share.
pub const VERIFY_POWERCUT_CUTS_MAX: u64 = 1000;
/// The file that a guest writes: the paper's largest is 1 GB.
pub const VERIFY_POWERCUT_BYTES_MAX: u64 = 4 << 30;
/// Guests beside each other: each has memory of its own, and is one thread that never waits.
pub const VERIFY_POWERCUT_LANES_MAX: u64 = 64;
/// What the cache of a guest's disk holds at the most, in memory: as much as large disks have.
pub const VERIFY_POWERCUT_CACHE_BYTES_MAX: u64 = 256 << 20;
/// How long a guest may boot: 75 s were seen on a machine with a load of 22.
pub const VERIFY_POWERCUT_BOOT_TIME_MAX: Duration = Duration::from_secs(600);
/// How long a guest may take to write or to recover, besides what a large file takes.
pub const VERIFY_POWERCUT_ANSWER_TIME_MAX: Duration = Duration::from_secs(300);
/// How many bytes a second a guest writes at the least, before it counts as one that hangs.
pub const VERIFY_POWERCUT_RATE_MIN: u64 = 256 << 10;
/// One line of a guest, or of QEMU.
pub const VERIFY_POWERCUT_LINE_BYTES_MAX: u64 = 64 << 10;
/// Results that one report is of, together: a run of days has some megabytes.
pub const VERIFY_RESULT_BYTES_MAX: u64 = 256 << 20;
/// And how many: with more nobody finds anything in it.
pub const VERIFY_RESULTS_MAX: usize = 1000;
/// What a part of a profile may say beside its result: some lines.
pub const VERIFY_PART_SAID_BYTES_MAX: u64 = 1 << 20;
/// The file with what a run has found: some hundred bytes for each cut.
pub const VERIFY_POWERCUT_STATE_BYTES_MAX: u64 = 1 << 30;
