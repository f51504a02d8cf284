//! `azekura verify crash`.

use super::mounted::{Judged, judged};
use super::print;
use super::scene::{Scene, clean_up_stale, leave_the_mounts_of_others};
use crate::cli::store::Interrupt;
use crate::errors::{Code, Context, Failure, Result};
use crate::progress::Progress;
use ::verify::crash::{
    CrashError, Options, Outcome, SECTOR_BYTES_DEFAULT, Stage, Subject, Target, replay, run,
};
use ::verify::log::Log;
use ::verify::states::State;
use ::verify::{Fault, report};
use base::limits::VERIFY_STATES_MAX;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// More targets at the same time than there can be.
const JOBS_MAX: u64 = 64;

/// Try what a file system is found as after a loss of power at every point
///
/// Workloads are run on a file system on a device in memory that records every write and flush.
/// From the record, crash states are made: writes since the last flush are lost, torn or out of
/// order. Each state is mounted for real, with the file system's own recovery, and what had been
/// made durable must be there. Ends with exit code 1 if something is not.
///
/// Nothing is written to any disk of this machine. Needs root.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura verify crash --target ext4,xfs --points 2000 --report crash.html
  azekura verify crash --mount-options nobarrier          a file system that must fail
  azekura verify crash --replay logs/ext4-two-5.azkc --state 3/without:2
  azekura verify crash --replay logs/ext4-two-5.azkc --export-log two-5.log")]
pub(in crate::cli) struct Crash {
    /// What to judge: ext4, xfs, btrfs, ext3, ext2, store (our own), volume (our own, with its
    /// server); or a path, with a slash in it: a file system of the kind that is mounted there,
    /// with its options
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "ext4",
        value_parser = judged
    )]
    target: Vec<Judged>,
    /// Crash states to try of each target, those of interrupted recoveries not counted
    #[arg(long, value_name = "COUNT", default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..=VERIFY_STATES_MAX))]
    points: u64,
    /// What is left to chance comes from this number
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Bytes that the disk keeps whole when power is lost: writes are torn at multiples of this.
    /// Disks of today say 4096; with 512, ext4 and btrfs are known to lose their superblocks
    #[arg(long, value_name = "BYTES", default_value_t = SECTOR_BYTES_DEFAULT,
        value_parser = sector_bytes)]
    sector: u64,
    /// Mount options of the file system that is judged
    #[arg(long, value_name = "OPTIONS", default_value = "",
        value_parser = super::matrix::mount_options)]
    mount_options: String,
    /// This workload alone: write-rename, append-log, pages, bystander, sqlite, one:NUMBER,
    /// two:NUMBER, or of the store object:NUMBER, objects:NUMBER; or `one` for all sequences of one
    /// operation
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
    /// How many targets are judged beside each other: as many as there are processors, unless said
    /// otherwise
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    jobs: Option<u64>,
    /// Do not interrupt recoveries
    #[arg(long)]
    no_recoveries: bool,
    /// Go wrong, to see that it is noticed: no-flush, lost-flush:NUMBER, lost-write:NUMBER and many
    /// more, which a wrong one lists
    #[arg(long, value_name = "FAULT")]
    plant: Option<Fault>,
    /// Let QEMU's blklogwrites record, too, judge both logs, and fail if the two do not agree
    #[arg(long, conflicts_with = "replay")]
    second_recorder: bool,
    /// Keep the logs of workloads that failed in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Try the states of a log that was kept, or that --export-log wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "workload"])]
    replay: Option<PathBuf>,
    /// Of the log, this state alone
    #[arg(long, value_name = "STATE", requires = "replay")]
    state: Option<State>,
    /// Of that state, what is left when its recovery is interrupted in this one
    #[arg(long, value_name = "STATE", requires = "state")]
    recovery: Option<State>,
    /// Write the log in the form of the kernel's dm-log-writes, for tools that replay it, and do
    /// nothing else
    #[arg(long, value_name = "FILE", requires = "replay", conflicts_with_all = ["state", "report"])]
    export_log: Option<PathBuf>,
    /// Write a page of HTML with everything
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn sector_bytes(text: &str) -> Result<u64, &'static str> {
    let bytes = text.parse().ok();
    let is_one = |bytes: &u64| bytes.is_power_of_two() && (512..=65_536).contains(bytes);
    bytes
        .filter(is_one)
        .ok_or("a power of two from 512 to 65536")
}

impl Crash {
    pub(super) fn run(self) -> Result<()> {
        let log = self.replay.as_deref().map(read_log).transpose()?;
        if let (Some(path), Some(log)) = (&self.export_log, &log) {
            return self.export(log, path);
        }
        self.check()?;
        let targets = match &log {
            Some(log) => vec![Judged::by_default(Subject::from_text(&log.subject)?.target)],
            None => self.target.clone(),
        };
        for one in &targets {
            one.target.check_tools()?;
        }
        if self.second_recorder {
            ::verify::crash::check_program(::verify::second::PROGRAM)?;
            if targets.iter().any(|one| one.target == Target::Store) {
                let message = "the second recorder is below a loop device, which a store has not";
                return Err(Failure::new(Code::CrashInvalid, message));
            }
        }
        leave_the_mounts_of_others()?;
        clean_up_stale();
        // A device must be written to when memory is short, and so must not wait for that itself.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        let interrupt = Interrupt::watch()?;
        let outcomes = self.all(&targets, log.as_ref(), &interrupt)?;
        self.tell(&outcomes)
    }

    /// Judges targets beside each other, each where nothing of the others is. The outcomes of those
    /// that were begun, in the order in which they were asked for; the first one that failed.
    fn all(
        &self,
        targets: &[Judged],
        log: Option<&Log>,
        interrupt: &Interrupt,
    ) -> Result<Vec<Outcome>> {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let wanted = self
            .jobs
            .map_or(processors, |jobs| usize::try_from(jobs).unwrap_or(1));
        let name = match targets {
            [only] => only.target.name(),
            _ => "crash states",
        };
        let bar = Progress::count(name, self.points.saturating_mul(targets.len() as u64));
        let next = AtomicUsize::new(0);
        let is_over = AtomicBool::new(false);
        let work = || {
            let mut told = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(judged) = targets.get(number) else {
                    break;
                };
                let mut is_wanted = || !(interrupt.is_wanted() || is_over.load(Ordering::Relaxed));
                let outcome = self.target(judged, log, &bar, &mut is_wanted);
                let is_last = match &outcome {
                    Ok(outcome) => outcome.was_interrupted,
                    Err(_) => true,
                };
                is_over.fetch_or(is_last, Ordering::Relaxed);
                told.push((number, outcome));
            }
            told
        };
        let mut told = thread::scope(|scope| {
            let others = 1..wanted.min(targets.len());
            let others: Vec<_> = others.map(|_| scope.spawn(work)).collect();
            let mut told = work();
            for other in others {
                told.extend(other.join().expect("it does not panic"));
            }
            told
        });
        bar.finish();
        told.sort_by_key(|(number, _)| *number);
        told.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Writes a log as others know it.
    fn export(&self, log: &Log, path: &Path) -> Result<()> {
        let file = File::create(path).context(path.display())?;
        let mut out = BufWriter::new(file);
        let written = log.export_to(&mut out);
        let entries = written.and_then(|entries| out.flush().map(|()| entries));
        let entries = entries.context(path.display())?;
        let path = path.display().to_string();
        if self.json {
            return crate::output::json(&serde_json::json!({"entries": entries, "file": path}));
        }
        let path = crate::output::plain(&path);
        crate::output::line(format_args!(
            "{path}: {entries} entries in the form of dm-log-writes"
        ))
    }

    /// What can be known to be wrong before anything is done.
    fn check(&self) -> Result<()> {
        if !rustix::process::geteuid().is_root() {
            let message = "a crash run mounts file systems, which only root may";
            return Err(Failure::new(Code::CrashNeeds, message));
        }
        if let Some(directory) = &self.keep {
            std::fs::create_dir_all(directory).context(directory.display())?;
        }
        if let Some(name) = self.workload.as_deref().filter(|name| *name != "one") {
            ::verify::workload::Workload::by_name(name, self.seed).map_err(CrashError::Workload)?;
        }
        Ok(())
    }

    fn target(
        &self,
        judged: &Judged,
        log: Option<&Log>,
        bar: &Progress,
        is_wanted: &mut dyn FnMut() -> bool,
    ) -> Result<Outcome> {
        let target = judged.target;
        // What is said goes before how it is mounted.
        let mount_options = match self.mount_options.is_empty() {
            true => judged.options.clone(),
            false => self.mount_options.clone(),
        };
        let options = Options {
            points: self.points,
            seed: self.seed,
            sector_bytes: self.sector,
            mount_options,
            workload: self.workload.clone(),
            recoveries: !self.no_recoveries,
            plant: self.plant,
            keep: self.keep.clone(),
        };
        let len_bytes = log.map_or(target.device_bytes(), |log| log.base.len_bytes());
        let mut scene = Scene::new(target, len_bytes, self.second_recorder)?;
        scene.add_states(target);
        let stage = Stage {
            medium: &scene.medium,
            recorder: &scene.recorder,
            actor: scene.actor.as_mut().expect("a new scene has one"),
            second: scene.second.as_mut(),
            states: scene.states.as_mut(),
        };
        let mut told = 0;
        let mut watch = |states: u64, _| {
            // With two recorders, each begins anew.
            bar.add(states.saturating_sub(told));
            told = states;
            is_wanted()
        };
        let outcome = match log {
            Some(log) => {
                let only = self.state.as_ref();
                let only = only.map(|state| (state, self.recovery.as_ref()));
                replay(log, only, stage, &options, &mut watch)
            }
            None => run(target, stage, &options, &mut watch),
        };
        outcome.map_err(|error| Failure::from(error).during(target.name()))
    }

    fn tell(&self, outcomes: &[Outcome]) -> Result<()> {
        if let Some(path) = &self.report {
            let conditions = print::conditions(outcomes);
            let page = report::crash_page(outcomes, &conditions);
            std::fs::write(path, page).context(path.display())?;
        }
        if self.json {
            crate::output::json(&print::json(outcomes, self.seed))?;
        } else {
            crate::output::write(&print::text(outcomes))?;
        }
        let bad: u64 = outcomes.iter().map(Outcome::broken_promises).sum();
        let states: u64 = outcomes.iter().map(|one| one.totals.states).sum();
        if bad > 0 {
            let message = format!("{bad} of {states} crash states are not as was promised");
            return Err(Failure::new(Code::CrashLoss, message));
        }
        let differs = |one: &&Outcome| one.agreement.is_some_and(|both| !both.is_whole());
        if let Some(one) = outcomes.iter().find(differs) {
            let message = format!("the two recorders do not agree on {}", one.target);
            return Err(Failure::new(Code::RecordersDiffer, message));
        }
        match outcomes.iter().any(|outcome| outcome.was_interrupted) {
            true => Err(Failure::interrupted(format!(
                "interrupted after {states} crash states"
            ))),
            false => Ok(()),
        }
    }
}

fn read_log(path: &Path) -> Result<Log> {
    let file = File::open(path).context(path.display())?;
    let mut file = BufReader::new(file);
    let first_bytes = file.fill_buf().context(path.display())?;
    let log = match Log::is_exported(first_bytes) {
        true => Log::import_from(&mut file),
        false => Log::read_from(&mut file),
    };
    log.map_err(|source| {
        let path = path.to_owned();
        CrashError::Log { path, source }.into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_powers_of_two() {
        assert_eq!(
            (sector_bytes("512"), sector_bytes("65536")),
            (Ok(512), Ok(65_536))
        );
        assert!(
            ["256", "1000", "x"]
                .iter()
                .all(|text| sector_bytes(text).is_err())
        );
    }
}
