//! The run itself: one guest boots, and then lanes beside each other cut what the schedule says.

use super::cached::{CachedDisk, Lost};
use super::guest::{DISK, DISK_SOCKET, IsWanted, Machine, OUT, SOURCE, Silence, unexpected};
use super::judge::{Found, judge, write_source};
use super::kernel::Kernel;
use super::message::{Message, check, write};
use super::plan::{Bound, Cell, Schedule};
use super::sample::Sample;
use super::subject::{DiskCache, How};
use super::{DiskServer, PowercutError, tools};
use crate::outcome::Outcome;
use base::limits::{VERIFY_POWERCUT_ANSWER_TIME_MAX, VERIFY_POWERCUT_RATE_MIN};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// What a guest runs.
const INIT: &str = include_str!("init.sh");
/// A device is so much longer than two of the longest files: room for the old one, the new one and
/// what the file system needs; mkfs.xfs takes nothing below 300 MiB.
const ROOM_BYTES: u64 = 512 << 20;
/// What a new file system takes of its disk, at the most: the log of XFS and that of JFS.
const METADATA_BYTES: u64 = 96 << 20;
/// How often a cut of a cell may fail before the cell is given up: on a machine that is busy, one
/// guest may come too late.
const FAILURES_MAX: u32 = 3;
/// How often somebody who waits for the cut is asked whether it is still wanted.
const ASKED_EVERY: Duration = Duration::from_millis(50);
/// How many bytes more of a file are looked at than it should have.
const OUT_ROOM_BYTES: u64 = 1 << 20;

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is cut.
    pub cells: Vec<Cell>,
    /// How often.
    pub bound: Bound,
    /// Guests beside each other.
    pub lanes: usize,
    /// Memory of each.
    pub memory_bytes: u64,
    /// From which contents are made.
    pub seed: u64,
    /// The guest's kernel.
    pub kernel: Kernel,
    /// The directory of the run, which somebody else removes.
    pub directory: PathBuf,
}

/// Who looks on.
pub trait Watch: Sync {
    /// Whether it is to go on.
    fn is_wanted(&self) -> bool;

    /// So many cuts of about so many are made, and this is going on.
    fn tell(&self, made: u64, all: u64, what: &str);
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// All samples, those of earlier runs among them.
    pub samples: Vec<Sample>,
    /// Cells that were given up, and why.
    pub failed: Vec<(Cell, String)>,
    /// Cells of which cuts were thrown away, because a machine failed before anything was looked
    /// at, and how many.
    pub thrown_away: Vec<(Cell, u64)>,
    /// How long the guest took to be ready.
    pub boot_time: Duration,
    /// How long everything took.
    pub time: Duration,
    /// Whether the user ended it early.
    pub was_interrupted: bool,
}

impl Run {
    fn throw_away(&mut self, cell: &Cell) {
        match self.thrown_away.iter_mut().find(|(known, _)| known == cell) {
            Some((_, count)) => *count += 1,
            None => self.thrown_away.push((cell.clone(), 1)),
        }
    }
}

fn local(path: &Path) -> impl Fn(io::Error) -> PowercutError {
    move |source| PowercutError::Local {
        path: path.to_owned(),
        source,
    }
}

/// Cuts until every cell is known well enough. `before` are samples of earlier runs; each new one
/// goes to `keep`; disks with a cache are shown by `server`.
///
/// # Errors
/// [`PowercutError`] if nothing can be cut, or a sample not be kept.
pub fn run(
    options: &Options,
    before: Vec<Sample>,
    keep: &mut dyn FnMut(&Sample) -> Result<(), PowercutError>,
    watch: &dyn Watch,
    server: &dyn DiskServer,
) -> Result<Run, PowercutError> {
    let started = Instant::now();
    let mut schedule = Schedule::new(options.cells.len(), options.bound);
    for sample in &before {
        let cell = options.cells.iter().position(|cell| *cell == sample.cell);
        if let Some(cell) = cell {
            schedule.note(cell, sample.is_hit());
        }
    }
    let mut outcome = Run {
        samples: before,
        ..Run::default()
    };
    let is_left = schedule.cells_done() < options.cells.len() as u64;
    if is_left {
        let (made, all) = schedule.expected();
        watch.tell(made, all, "booting");
        match stage(options, watch, server) {
            Ok((stage, boot_time)) => {
                outcome.boot_time = boot_time;
                cut_all(options, &stage, &mut schedule, &mut outcome, keep, watch)?;
            }
            Err(PowercutError::Interrupted) => outcome.was_interrupted = true,
            Err(error) => return Err(error),
        }
    }
    outcome.time = started.elapsed();
    Ok(outcome)
}

/// The longest file.
fn longest<'a>(cells: impl Iterator<Item = &'a Cell>) -> u64 {
    cells.map(|cell| cell.bytes).max().unwrap_or_default()
}

/// How long the disks of all guests are that cut these cells.
pub(super) fn device_bytes<'a>(cells: impl Iterator<Item = &'a Cell>) -> u64 {
    2 * longest(cells) + ROOM_BYTES
}

/// What all lanes use.
struct Stage<'a> {
    server: &'a dyn DiskServer,
    machine: Machine,
    directory: PathBuf,
    device_bytes: u64,
    out_bytes: u64,
    source_bytes: u64,
    seed: u64,
}

/// Bytes that a run may take at the same time: the snapshot, what is written, and for each lane two
/// files on its disk and one that is handed out. A guest whose disk finds no room would stand
/// still.
fn needed(options: &Options) -> u64 {
    let sizes: BTreeSet<u64> = options.cells.iter().map(|cell| cell.bytes).collect();
    let most = sizes.last().copied().unwrap_or_default();
    let sources: u64 = sizes.iter().map(|bytes| 2 * bytes).sum();
    let lanes = options.lanes as u64 + 1;
    options.memory_bytes + sources + lanes * (3 * most + METADATA_BYTES)
}

fn check_room(options: &Options) -> Result<(), PowercutError> {
    let path = &options.directory;
    let found = rustix::fs::statvfs(path).map_err(|errno| local(path)(errno.into()))?;
    let (needed, free) = (needed(options), found.f_bavail * found.f_frsize);
    match needed <= free {
        true => Ok(()),
        false => Err(PowercutError::NoRoom {
            path: path.clone(),
            needed,
            free,
        }),
    }
}

/// Makes what all guests have in common, boots one, and takes the snapshot; how long the boot took.
fn stage<'a>(
    options: &Options,
    watch: &dyn Watch,
    server: &'a dyn DiskServer,
) -> Result<(Stage<'a>, Duration), PowercutError> {
    check_room(options)?;
    let most = longest(options.cells.iter());
    let modules: BTreeSet<&str> = options
        .cells
        .iter()
        .map(|cell| cell.file_system.module())
        .collect();
    let modules: Vec<&str> = modules.into_iter().collect();
    let directory = options.directory.clone();
    let initrd = directory.join("initrd");
    let archive = options.kernel.initrd(INIT, &modules)?;
    fs::write(&initrd, archive).map_err(local(&initrd))?;
    let image = &options.kernel.image;
    let stage = Stage {
        server,
        machine: Machine {
            kernel: fs::canonicalize(image).map_err(local(image))?,
            initrd,
            memory_bytes: options.memory_bytes,
        },
        // The guests' disks have the lengths that they had when the snapshot was taken.
        device_bytes: device_bytes(options.cells.iter()),
        out_bytes: most + OUT_ROOM_BYTES,
        source_bytes: 2 * most,
        seed: options.seed,
        directory,
    };
    let sizes: BTreeSet<u64> = options.cells.iter().map(|cell| cell.bytes).collect();
    for bytes in sizes {
        let path = stage.source(bytes);
        let made = File::create(&path).and_then(|file| {
            file.set_len(stage.source_bytes)?;
            let mut out = BufWriter::new(file);
            write_source(&mut out, options.seed, bytes)?;
            out.flush()
        });
        made.map_err(local(&path))?;
    }
    let first = stage.lane("boot")?;
    stage.renew(&first, most)?;
    let started = Instant::now();
    let is_wanted = || watch.is_wanted();
    stage.machine.take_snapshot(&first, &is_wanted)?;
    Ok((stage, started.elapsed()))
}

impl Stage<'_> {
    fn source(&self, bytes: u64) -> PathBuf {
        self.directory.join(format!("source-{bytes}"))
    }

    /// The directory of a guest.
    fn lane(&self, name: &str) -> Result<PathBuf, PowercutError> {
        let path = self.directory.join(name);
        fs::create_dir(&path).map_err(local(&path))?;
        Ok(path)
    }

    /// Gives a guest new disks.
    fn renew(&self, lane: &Path, bytes: u64) -> Result<(), PowercutError> {
        for (name, len) in [(DISK, self.device_bytes), (OUT, self.out_bytes)] {
            let path = lane.join(name);
            // Emptied, it has neither content nor blocks.
            let made = File::create(&path).and_then(|file| file.set_len(len));
            made.map_err(local(&path))?;
        }
        let path = lane.join(SOURCE);
        let _ = fs::remove_file(&path);
        symlink(self.source(bytes), &path).map_err(local(&path))
    }

    /// Makes one cut.
    fn cut(
        &self,
        lane: &Path,
        cell: &Cell,
        is_wanted: IsWanted<'_>,
    ) -> Result<Sample, PowercutError> {
        let (started, load) = (Instant::now(), load());
        self.renew(lane, cell.bytes)?;
        let made = tools::run(&cell.file_system.make(), lane, is_wanted)?;
        made.map_err(PowercutError::Guest)?;
        let (write_time, cut_after, lost) = self.write_and_cut(lane, cell, is_wanted)?;
        let (found, words) = self.recover(lane, cell, is_wanted)?;
        Ok(Sample {
            cell: cell.clone(),
            outcome: found.outcome,
            size_share: found.size_share,
            content_share: found.content_share,
            write_time,
            cut_after,
            time: started.elapsed(),
            load,
            words,
            flushes: lost.map_or(0, |lost| lost.flushes),
            lost_bytes: lost.map_or(0, |lost| lost.bytes),
        })
    }

    /// Shows the disk with its cache, if it has one, until what is returned is dropped.
    fn served(&self, lane: &Path, cell: &Cell) -> Result<Option<Served>, PowercutError> {
        if cell.disk_cache == DiskCache::None {
            return Ok(None);
        }
        let path = lane.join(DISK);
        let disk = Arc::new(CachedDisk::open(&path).map_err(local(&path))?);
        let shown = self.server.serve(disk.clone(), lane, DISK_SOCKET);
        let shown = shown.map_err(local(&lane.join(DISK_SOCKET)))?;
        Ok(Some(Served { disk, shown }))
    }

    /// How long the guest wrote, how long after that it was killed, and what its disk lost.
    fn write_and_cut(
        &self,
        lane: &Path,
        cell: &Cell,
        is_wanted: IsWanted<'_>,
    ) -> Result<(Duration, Duration, Option<Lost>), PowercutError> {
        let served = self.served(lane, cell)?;
        let mut guest = self.machine.restore(lane, cell.disk_cache, is_wanted)?;
        guest.tell(&write(cell))?;
        let write_time = match guest.hear(limit(cell), is_wanted)? {
            Message::Done(time) => time,
            other => return Err(unexpected(&other)),
        };
        let done = Instant::now();
        while let Some(left) = cell.wait.checked_sub(done.elapsed()) {
            if !is_wanted() {
                return Err(PowercutError::Interrupted);
            }
            thread::sleep(left.min(ASKED_EVERY));
        }
        let cut_after = done.elapsed();
        drop(guest);
        Ok((write_time, cut_after, served.map(Served::lose_power)))
    }

    /// What is there after the recovery that the file system's tools prescribe.
    fn recover(
        &self,
        lane: &Path,
        cell: &Cell,
        is_wanted: IsWanted<'_>,
    ) -> Result<(Found, String), PowercutError> {
        let unmountable = |why: String| Ok((Found::nothing(Outcome::Unmountable), why));
        let mut words = String::new();
        if let Some(recovery) = cell.file_system.recovery() {
            // It may have found the log unusable and be content all the same.
            match tools::run(&recovery, lane, is_wanted)? {
                Ok(said) => words = said,
                Err(why) => return unmountable(why),
            }
        }
        let line = check(cell.file_system, &cell.mount_options, self.out_bytes);
        let said = heard(&mut || {
            let mut guest = self.machine.restore(lane, DiskCache::None, is_wanted)?;
            guest.tell(&line)?;
            guest.hear(limit(cell), is_wanted)
        })?;
        let share = |size: u64| size as f64 / cell.bytes.max(1) as f64;
        let found = match said {
            Message::Found(size) => {
                let path = lane.join(OUT);
                let had_old = cell.how == How::Rename;
                File::open(&path)
                    .and_then(|mut out| judge(&mut out, size, self.seed, cell.bytes, had_old))
                    .map_err(local(&path))?
            }
            Message::Missing => Found::nothing(Outcome::Missing),
            Message::Unreadable(size) => Found {
                size_share: share(size),
                ..Found::nothing(Outcome::Unreadable)
            },
            Message::Unmountable(why) => return unmountable(why),
            other => return Err(unexpected(&other)),
        };
        Ok((found, words))
    }
}

/// What a machine says that looks what is there, from when it was told to. One whose kernel crashes
/// over a file system cannot mount that, and neither can one that hangs, twice, for the first time
/// this machine may have been busy: to cut anew until it goes well would hide what was found.
fn heard(look: &mut dyn FnMut() -> Result<Message, Silence>) -> Result<Message, PowercutError> {
    let looked = match look() {
        Err(Silence::Late(_)) => look(),
        looked => looked,
    };
    match looked {
        Err(Silence::Crashed(why) | Silence::Late(why)) => Ok(Message::Unmountable(why)),
        looked => Ok(looked?),
    }
}

/// A disk with a cache that is shown to a guest.
struct Served {
    disk: Arc<CachedDisk>,
    shown: Box<dyn Send>,
}

impl Served {
    /// Together with the guest, which is gone: what that had sent is done before.
    fn lose_power(self) -> Lost {
        drop(self.shown);
        self.disk.lose_power()
    }
}

/// How long a guest may take for a cell.
fn limit(cell: &Cell) -> Duration {
    let seconds = cell.bytes / VERIFY_POWERCUT_RATE_MIN;
    VERIFY_POWERCUT_ANSWER_TIME_MAX + Duration::from_secs(seconds)
}

fn load() -> f64 {
    let averages = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = averages.split(' ').next().unwrap_or_default();
    first.parse().unwrap_or_default()
}

/// The end of a cut.
type Ended = (usize, usize, Result<Sample, PowercutError>);

/// Cuts what the schedule says, in lanes beside each other.
fn cut_all(
    options: &Options,
    stage: &Stage<'_>,
    schedule: &mut Schedule,
    outcome: &mut Run,
    keep: &mut dyn FnMut(&Sample) -> Result<(), PowercutError>,
    watch: &dyn Watch,
) -> Result<(), PowercutError> {
    let mut lanes = Vec::new();
    for number in 0..options.lanes.max(1) {
        lanes.push(stage.lane(&format!("lane-{number}"))?);
    }
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let relaxed = std::sync::atomic::Ordering::Relaxed;
    thread::scope(|scope| {
        let (results, ended) = channel();
        let mut jobs = Vec::new();
        for (number, lane) in lanes.into_iter().enumerate() {
            let (sender, receiver) = sync_channel(1);
            jobs.push(sender);
            let (results, is_over) = (results.clone(), &is_over);
            scope.spawn(move || {
                let is_wanted = || watch.is_wanted() && !is_over.load(relaxed);
                serve_lane(
                    stage, options, &lane, number, &receiver, &results, &is_wanted,
                );
            });
        }
        drop(results);
        let cuts = collect(options, schedule, outcome, keep, watch, (&jobs, &ended));
        // What is still being cut is not worth waiting for.
        is_over.store(true, relaxed);
        drop(jobs);
        cuts
    })
}

fn serve_lane(
    stage: &Stage<'_>,
    options: &Options,
    lane: &Path,
    number: usize,
    jobs: &Receiver<usize>,
    results: &Sender<Ended>,
    is_wanted: IsWanted<'_>,
) {
    while let Ok(cell) = jobs.recv() {
        let cut = stage.cut(lane, &options.cells[cell], is_wanted);
        if results.send((number, cell, cut)).is_err() {
            return;
        }
    }
}

/// Hands out cuts and takes what came of them, until nothing is left.
fn collect(
    options: &Options,
    schedule: &mut Schedule,
    outcome: &mut Run,
    keep: &mut dyn FnMut(&Sample) -> Result<(), PowercutError>,
    watch: &dyn Watch,
    (jobs, ended): (&[SyncSender<usize>], &Receiver<Ended>),
) -> Result<(), PowercutError> {
    let gone = || PowercutError::Guest("a lane has ended".to_owned());
    let mut failures: BTreeMap<usize, u32> = BTreeMap::new();
    let mut idle: Vec<usize> = (0..jobs.len()).collect();
    loop {
        while let Some(lane) = idle.pop() {
            let Some((cell, _)) = schedule.begin() else {
                idle.push(lane);
                break;
            };
            let (made, all) = schedule.expected();
            watch.tell(made, all, &options.cells[cell].to_string());
            jobs[lane].send(cell).map_err(|_| gone())?;
        }
        if idle.len() == jobs.len() {
            return Ok(());
        }
        let (lane, cell, cut) = ended.recv().map_err(|_| gone())?;
        idle.push(lane);
        match cut {
            Ok(sample) => {
                keep(&sample)?;
                schedule.done(cell, sample.is_hit());
                outcome.samples.push(sample);
            }
            Err(PowercutError::Interrupted) => {
                outcome.was_interrupted = true;
                return Ok(());
            }
            Err(PowercutError::Guest(why)) => {
                let count = failures.entry(cell).or_default();
                *count += 1;
                let is_given_up = *count == FAILURES_MAX;
                schedule.failed(cell, is_given_up);
                outcome.throw_away(&options.cells[cell]);
                if is_given_up {
                    outcome.failed.push((options.cells[cell].clone(), why));
                }
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::BLOCK_BYTES;
    use super::super::subject::FileSystem;
    use super::*;

    fn cell() -> Cell {
        Cell {
            file_system: FileSystem::Ext4,
            bytes: BLOCK_BYTES,
            wait: Duration::ZERO,
            flush_time: Duration::from_secs(30),
            how: How::Close,
            mount_options: String::new(),
            disk_cache: DiskCache::None,
        }
    }

    /// What comes of looks that end so, and how many there were.
    fn looked(ends: Vec<Result<Message, Silence>>) -> (Result<Message, PowercutError>, usize) {
        let (mut ends, mut looks) = (ends.into_iter(), 0);
        let said = heard(&mut || {
            looks += 1;
            ends.next().expect("it looks no further")
        });
        (said, looks)
    }

    #[test]
    fn what_crashes_or_hangs_a_machine_that_recovers_it_cannot_be_mounted() {
        let late = || Err(Silence::Late("no answer".into()));
        let (said, looks) = looked(vec![Err(Silence::Crashed("panic".into()))]);
        assert_eq!(
            (said.unwrap(), looks),
            (Message::Unmountable("panic".into()), 1)
        );
        let (said, looks) = looked(vec![late(), late()]);
        assert_eq!(
            (said.unwrap(), looks),
            (Message::Unmountable("no answer".into()), 2)
        );
        // This machine was busy.
        let (said, looks) = looked(vec![late(), Ok(Message::Missing)]);
        assert_eq!((said.unwrap(), looks), (Message::Missing, 2));
        let (said, looks) = looked(vec![late(), Err(Silence::Crashed("panic".into()))]);
        assert_eq!(
            (said.unwrap(), looks),
            (Message::Unmountable("panic".into()), 2)
        );
        // Nothing of the file system.
        let other = Err(Silence::Other(PowercutError::Guest("killed".into())));
        assert!(matches!(
            looked(vec![other]),
            (Err(PowercutError::Guest(_)), 1)
        ));
    }

    #[test]
    fn cuts_that_are_thrown_away_are_counted_for_each_cell() {
        let other = Cell {
            how: How::Fsync,
            ..cell()
        };
        let mut run = Run::default();
        for cell in [&cell(), &other, &cell()] {
            run.throw_away(cell);
        }
        assert_eq!(run.thrown_away, [(cell(), 2), (other, 1)]);
    }

    #[test]
    fn large_files_have_longer() {
        let mut cell = cell();
        assert_eq!(limit(&cell), VERIFY_POWERCUT_ANSWER_TIME_MAX);
        cell.bytes = 1 << 30;
        let longer = Duration::from_secs((1 << 30) / VERIFY_POWERCUT_RATE_MIN);
        assert_eq!(limit(&cell), VERIFY_POWERCUT_ANSWER_TIME_MAX + longer);
    }
}
