//! `azekura verify speed`.

use super::matrix::{self, Rival, Values};
use super::scene::leave_the_mounts_of_others;
use super::speed_print;
use crate::cli::store::Interrupt;
use crate::config::Span;
use crate::errors::{Code, Context, Failure, Result};
use crate::progress::Progress;
use ::verify::actor::Actor;
use ::verify::crash::Target;
use ::verify::report;
use ::verify::speed::actor::Answer;
use ::verify::speed::{Group, LeftOut, Matrix, Options, Outcome, Place, Plan, Work, check, run};
use base::ByteSize;
use base::limits::{VERIFY_SPEED_END_TIME_MAX, VERIFY_SPEED_FILES_MAX, VERIFY_SPEED_REPEATS_MAX};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Measure how fast file systems are, and under which conditions
///
/// Characters and blocks are written and read, and small files made and deleted, by bonnie++, fio
/// and this program. Each cell, which is one combination of what is asked for, is measured several
/// times; medians are printed with the interval in which they lie. Caches are dropped before
/// something is read, but by bonnie++, which reads what it has just written; and what others did to
/// the machine meanwhile is told.
///
/// A file system is made on a loop device over a file that is removed afterwards. In a directory
/// that is named, also one of a remote mount, files are made and deleted and nothing else is done.
/// Everything that is set for it, the kernel's parameters included, is set back at the end, however
/// it ends.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura verify speed --target ext4,xfs,btrfs --report speed.html
  azekura verify speed --target ext4,/mnt/lab --measure block,files
  azekura verify speed --against ext4,xfs,sshfs --report speed.html
  azekura verify speed --target ext3 --block-size 1KiB,4KiB --size 1GiB --files 100000
  azekura verify speed --memory 256MiB,512MiB,1GiB,2GiB,4GiB --size 1GiB --measure block
  azekura verify speed --flush-time 30s,10s,3s,1s --set dirty_ratio=5,20")]
pub(in crate::cli) struct Speed {
    /// What to measure: ext4, xfs, btrfs, ext3, ext2, store (our own), or a directory, with a slash
    /// in its name; ext4 unless said otherwise, beside --against the store
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = matrix::place)]
    target: Vec<Place>,
    /// Measure these beside it: the same, or azekura, sshfs, rclone, nfs, cifs, which stand for
    /// whatever is mounted by them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = matrix::rival)]
    against: Vec<Rival>,
    #[command(flatten)]
    values: Values,
    /// Memory that may be used, its share of the page cache included: for each value a cell
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = matrix::memory)]
    memory: Vec<ByteSize>,
    /// Block sizes of the file systems that are made: 1KiB, 2KiB, 4KiB
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = matrix::block_size)]
    block_size: Vec<ByteSize>,
    /// Only these: char, block, files
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = group)]
    measure: Vec<Group>,
    /// How much is written and read in blocks
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = matrix::size)]
    size: ByteSize,
    /// How much of it by one call
    #[arg(long, value_name = "SIZE", default_value = "128KiB", value_parser = matrix::io_size)]
    io_size: ByteSize,
    /// How much is written and read character by character
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = matrix::size)]
    char_size: ByteSize,
    /// How many small files, of 1 to 8 KiB, are made and deleted
    #[arg(long, value_name = "COUNT", default_value_t = 10_000,
        value_parser = clap::value_parser!(u64).range(1..=VERIFY_SPEED_FILES_MAX))]
    files: u64,
    /// How often each cell is measured
    #[arg(long, value_name = "COUNT", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(VERIFY_SPEED_REPEATS_MAX)))]
    repeat: u32,
    /// The order of the cells comes from this number
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Do not empty the machine's caches, which are everybody's, before something is read in a
    /// directory
    #[arg(long)]
    keep_caches: bool,
    /// Where the file of the device is made: $TMPDIR, or /var/tmp, unless said otherwise
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Make the file systems on this block device. Everything on it is lost
    #[arg(long, value_name = "DEVICE")]
    yes_destroy: Option<PathBuf>,
    /// Write a page of HTML with everything
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn group(text: &str) -> Result<Group, String> {
    let names = Group::ALL.map(Group::name).join(", ");
    Group::by_name(text).ok_or(format!("there are {names}"))
}

impl Speed {
    pub(super) fn run(self) -> Result<()> {
        let is_root = rustix::process::geteuid().is_root();
        let options = self.options(is_root)?;
        for left_out in &options.plan.left_out {
            let text = format!("left out: {}: {}", left_out.what, left_out.why);
            crate::output::note(crate::output::plain(&text));
        }
        let makes = |cell: &::verify::speed::Cell| matches!(cell.place, Place::Made(_));
        if options.plan.cells.iter().any(makes) {
            leave_the_mounts_of_others()?;
        }
        let interrupt = Interrupt::watch()?;
        let outcome = measure(&options, &interrupt)?;
        self.tell(&outcome)
    }

    fn options(&self, is_root: bool) -> Result<Options> {
        let (places, absent) = self.places();
        let matrix = Matrix {
            places,
            block_bytes: self.block_size.iter().map(|size| size.0).collect(),
            memory_bytes: self.memory.iter().map(|size| Some(size.0)).collect(),
            flush_times: self.values.flush_times(),
            settings: self.values.settings()?,
            mount_options: self.values.mount_options.clone(),
        };
        check::places(&matrix, is_root)?;
        let are_named = !self.measure.is_empty();
        let wanted = match are_named {
            true => &self.measure[..],
            false => &Group::ALL[..],
        };
        let (groups, left_out) = check::groups(wanted, are_named)?;
        let mut plan = Plan::new(&matrix).map_err(matrix::refused)?;
        plan.left_out.extend(left_out.into_iter().chain(absent));
        Ok(Options {
            plan,
            work: Work {
                groups,
                bytes: self.size.0,
                io_bytes: self.io_size.0.min(self.size.0),
                char_bytes: self.char_size.0,
                files: self.files,
            },
            repeats: self.repeat,
            seed: self.seed,
            scratch: matrix::scratch(self.scratch.as_deref())?,
            device: self.device()?,
            is_root,
            empties_caches: is_root && !self.keep_caches,
        })
    }

    /// What is measured, and what of it is not there.
    fn places(&self) -> (Vec<Place>, Vec<LeftOut>) {
        let mut places = match (self.target.is_empty(), self.against.is_empty()) {
            (false, _) => self.target.clone(),
            (true, true) => vec![Place::Made(Target::Ext4)],
            (true, false) => vec![Place::Made(Target::Store)],
        };
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let absent = matrix::add_rivals(&mut places, &self.against, &mounts);
        (places, absent)
    }

    /// The device that may be destroyed, by the name that the kernel gives it.
    fn device(&self) -> Result<Option<PathBuf>> {
        let named = self.yes_destroy.as_deref();
        named
            .map(|path| std::fs::canonicalize(path).context(path.display()))
            .transpose()
    }

    fn tell(&self, outcome: &Outcome) -> Result<()> {
        let facts = speed_print::Facts {
            seed: self.seed,
            repeats: self.repeat,
            bytes: self.size.0,
            files: self.files,
        };
        if let Some(path) = &self.report {
            let page = report::speed_page(outcome, &speed_print::conditions(outcome, &facts));
            std::fs::write(path, page).context(path.display())?;
        }
        if self.json {
            crate::output::json(&speed_print::json(outcome, &facts))?;
        } else {
            crate::output::write(&speed_print::text(outcome))?;
        }
        if outcome.was_interrupted {
            let count = crate::output::count(outcome.samples.len() as u64, "repeat");
            return Err(Failure::interrupted(format!("interrupted after {count}")));
        }
        match &*outcome.failed {
            [] => Ok(()),
            failed => Err(could_not(failed)),
        }
    }
}

/// What is told last if cells failed: nothing else says it in JSON to somebody at a terminal.
pub(super) fn could_not(failed: &[LeftOut]) -> Failure {
    let words: Vec<String> = failed
        .iter()
        .map(|one| format!("{}: {}", one.what, one.why))
        .collect();
    let message = format!("not everything could be measured: {}", words.join("; "));
    Failure::new(Code::SpeedFailed, crate::output::plain(&message))
}

/// Starts the process that acts.
pub(super) fn start_actor() -> Result<Actor<Answer>> {
    let mut command = Command::new(std::env::current_exe().context("this program")?);
    command.args(["verify", "actor", "--speed"]);
    let mut actor = Actor::start(&mut command)?;
    actor.end_within(VERIFY_SPEED_END_TIME_MAX);
    Ok(actor)
}

fn measure(options: &Options, interrupt: &Interrupt) -> Result<Outcome> {
    let mut actor = start_actor()?;
    let repeats = options.plan.cells.len() as u64 * u64::from(options.repeats);
    let bar = Progress::count("measuring", repeats);
    let mut watch = |done, what: &str| {
        bar.set_of(done, what);
        !interrupt.is_wanted()
    };
    let outcome = run(&mut actor, options, &mut watch);
    bar.finish();
    Ok(outcome?)
}

/// The directory as a path that others understand, too.
pub(super) fn whole(path: &Path) -> Result<PathBuf, String> {
    let whole = std::fs::canonicalize(path).or_else(|_| std::path::absolute(path));
    whole.map_err(|error| crate::errors::plain_io(&error))
}

/// A span of time, for lists of them.
pub(super) fn span(text: &str) -> Result<Span, String> {
    text.parse()
}

/// A time between something and a loss of power; it may be none.
pub(super) fn wait(text: &str, max: Duration) -> Result<Duration, String> {
    let is_none = matches!(text, "0" | "0s");
    let wait = match is_none {
        true => Duration::ZERO,
        false => span(text)?.0,
    };
    match wait <= max {
        true => Ok(wait),
        false => Err(format!("it is at most {} s", max.as_secs())),
    }
}
