//! `azekura verify powercut`.

use super::disks::NbdDisks;
use super::matrix;
use super::powercut_print as print;
use crate::cli::store::Interrupt;
use crate::config::{Config, Span};
use crate::errors::{Code, Context, Failure, Result};
use crate::progress::Progress;
use ::verify::actor::Actor;
use ::verify::powercut::{
    BLOCK_BYTES, Bound, Cell, DiskCache, FileSystem, Header, How, KERNEL_DEFAULT, Kernel, Made,
    Matrix, Options, PowercutError, Run, Sample, State, Watch, check_tools, is_cached, resolve,
    run,
};
use ::verify::report;
use base::ByteSize;
use base::limits::{
    VERIFY_POWERCUT_BYTES_MAX, VERIFY_POWERCUT_CUTS_MAX, VERIFY_POWERCUT_LANES_MAX,
    VERIFY_STEP_TIME_MAX,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Power is lost at the latest so long after the last write.
const WAIT_MAX: Duration = Duration::from_secs(3600);
/// What a guest needs to boot at all, and more than it can address here.
const MEMORY_BYTES: std::ops::RangeInclusive<u64> = 256 << 20..=64 << 30;

/// Cut the power of machines that write, and see what is there
///
/// A machine is emulated (QEMU), boots a kernel of Debian, mounts a new file system, writes a file
/// and says so. Some seconds later it is killed, which takes its memory and leaves what its disk
/// was given. The file system is recovered as its tools prescribe, by another machine with the same
/// kernel, and the file is compared with what was written: its length and its content apart.
///
/// Each cell, which is one combination of what is asked for, is cut until the interval (Wilson,
/// 95 %) of the share of files that were recovered whole is narrow enough. With --state a run that
/// ended early goes on where it was. Root is not needed, and neither are loop devices or mounts.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura verify powercut --dry-run
  azekura verify powercut --target ext4 --how close,fsync --wait 0s,5s
  azekura verify powercut --how fsync --wait 0s --disk-cache none,lost
  azekura verify powercut --size 1MiB,10MiB,100MiB --flush-time 30s,3s,1s --state cuts.jsonl
  azekura verify powercut --half-width 0.1 --cuts-max 100 --report powercut.html")]
pub(in crate::cli) struct Powercut {
    /// File systems: ext2, ext3, ext4, jfs, reiserfs, xfs, btrfs; all that this machine can make
    /// unless said otherwise
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = target)]
    target: Vec<FileSystem>,
    /// In which way the file is written: close, fsync, fdatasync, or rename, which replaces an old
    /// file without syncing anything
    #[arg(long, value_name = "WAYS", value_delimiter = ',', default_value = "close",
        value_parser = how)]
    how: Vec<How>,
    /// How long the file is
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "10MiB",
        value_parser = size)]
    size: Vec<ByteSize>,
    /// How long after the file was written the power is cut
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "0s,5s,10s",
        value_parser = wait)]
    wait: Vec<Duration>,
    /// When the machine's kernel sends what was written to the disk
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "30s",
        value_parser = matrix::flush_time)]
    flush_time: Vec<Span>,
    /// Mount options; given several times, for each a cell
    #[arg(long, value_name = "OPTIONS", value_parser = mount_options)]
    mount_options: Vec<String>,
    /// What the disk of the machine does when power is lost: none, it has no cache, so what it was
    /// given is there; lost, what it was not told to flush is gone
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "none",
        value_parser = disk_cache)]
    disk_cache: Vec<DiskCache>,
    /// A cell is known well enough when its interval is so wide to each side
    #[arg(long, value_name = "SHARE", default_value_t = 0.2, value_parser = half_width)]
    half_width: f64,
    /// How often a cell is cut at the most
    #[arg(long, value_name = "COUNT", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=VERIFY_POWERCUT_CUTS_MAX))]
    cuts_max: u64,
    /// How many machines run beside each other
    #[arg(long, value_name = "COUNT", default_value_t = 2,
        value_parser = clap::value_parser!(u64).range(1..=VERIFY_POWERCUT_LANES_MAX))]
    jobs: u64,
    /// Memory of each
    #[arg(long, value_name = "SIZE", default_value = "512MiB", value_parser = memory)]
    memory: ByteSize,
    /// The package of Debian with the kernel; it is downloaded and not installed
    #[arg(long, value_name = "PACKAGE", default_value = KERNEL_DEFAULT)]
    kernel: String,
    /// What is written comes from this number
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Keep what was found in this file, and go on behind what is in it
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Where the disks of the machines are made: $TMPDIR, or /var/tmp, unless said otherwise
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Write a page of HTML with everything
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn target(text: &str) -> Result<FileSystem, String> {
    let names = FileSystem::ALL.map(FileSystem::name).join(", ");
    FileSystem::by_name(text).ok_or(format!("there are {names}"))
}

fn how(text: &str) -> Result<How, String> {
    let names = How::ALL.map(How::name).join(", ");
    How::by_name(text).ok_or(format!("there are {names}"))
}

fn disk_cache(text: &str) -> Result<DiskCache, String> {
    let names = DiskCache::ALL.map(DiskCache::name).join(", ");
    DiskCache::by_name(text).ok_or(format!("there are {names}"))
}

fn bytes(text: &str) -> Result<ByteSize, String> {
    text.parse::<ByteSize>().map_err(|error| error.to_string())
}

fn size(text: &str) -> Result<ByteSize, String> {
    let size = bytes(text)?;
    let is_whole = size.0.is_multiple_of(BLOCK_BYTES);
    match (BLOCK_BYTES..=VERIFY_POWERCUT_BYTES_MAX).contains(&size.0) && is_whole {
        true => Ok(size),
        false => Err("it is from 4KiB to 4GiB, a multiple of 4KiB".to_owned()),
    }
}

fn memory(text: &str) -> Result<ByteSize, String> {
    let size = bytes(text)?;
    let is_whole = size.0.is_multiple_of(1 << 20);
    match MEMORY_BYTES.contains(&size.0) && is_whole {
        true => Ok(size),
        false => Err("it is from 256MiB to 64GiB, a multiple of 1MiB".to_owned()),
    }
}

fn wait(text: &str) -> Result<Duration, String> {
    super::speed::wait(text, WAIT_MAX)
}

fn half_width(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "write it like 0.1".to_owned())?;
    match (0.01..=0.5).contains(&share) {
        true => Ok(share),
        false => Err("it is from 0.01 to 0.5".to_owned()),
    }
}

/// They go to the machine as one word.
fn mount_options(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ",=_-.".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) && !text.starts_with('-') {
        true => Ok(text.to_owned()),
        false => Err("write them like noatime,data=journal".to_owned()),
    }
}

/// What a run looks at, and tells.
struct Watched<'a> {
    bar: &'a Progress,
    interrupt: &'a Interrupt,
}

impl Watch for Watched<'_> {
    fn is_wanted(&self) -> bool {
        !self.interrupt.is_wanted()
    }

    fn tell(&self, made: u64, all: u64, what: &str) {
        self.bar.set_total(all);
        self.bar.set_of(made, what);
    }
}

impl Powercut {
    pub(super) fn run(self) -> Result<()> {
        let (mut targets, mut left_out) = self.targets();
        tell_left_out(&left_out);
        if self.dry_run {
            return self.plan(&self.cells(&targets)?);
        }
        check_tools()?;
        for target in &targets {
            target.check()?;
        }
        let interrupt = Interrupt::watch()?;
        let scratch = matrix::scratch(self.scratch.as_deref())?;
        let package = resolve(&self.kernel)?;
        let kernel = kernel(&package)?;
        let unknown = unknown(&kernel, &mut targets)?;
        tell_left_out(&unknown);
        left_out.extend(unknown);
        let cells = self.cells(&targets)?;
        let header = Header::new(kernel.version.clone(), self.memory.0, self.seed, &cells);
        let state = self.state.as_deref();
        let (mut state, before) = match state.map(|path| State::open(path, &header)) {
            Some(opened) => opened.map(|(state, before)| (Some(state), before))?,
            None => (None, Vec::new()),
        };
        let (_guard, directory) = guard(&scratch)?;
        let options = self.options(cells, kernel, directory);
        let mut keep = |sample: &Sample| state.as_mut().map_or(Ok(()), |state| state.take(sample));
        let bar = Progress::count("booting", 0);
        let watched = Watched {
            bar: &bar,
            interrupt: &interrupt,
        };
        let server = NbdDisks::new()?;
        let found = run(&options, before, &mut keep, &watched, &server);
        bar.finish();
        self.tell(&options, &found?, &left_out)
    }

    /// What is cut, and what is not if nobody has asked for it by name.
    fn targets(&self) -> (Vec<FileSystem>, Vec<LeftOut>) {
        if !self.target.is_empty() {
            return (self.target.clone(), Vec::new());
        }
        let all = FileSystem::ALL.into_iter();
        let (made, others): (Vec<_>, Vec<_>) = all.partition(|target| target.is_makeable());
        let why = |target: FileSystem| {
            let package = target.maker().1;
            (target.name(), format!("{package} is not installed"))
        };
        (made, others.into_iter().map(why).collect())
    }

    fn cells(&self, targets: &[FileSystem]) -> Result<Vec<Cell>> {
        let matrix = Matrix {
            file_systems: targets.to_vec(),
            bytes: self.size.iter().map(|size| size.0).collect(),
            waits: self.wait.clone(),
            flush_times: self.flush_time.iter().map(|time| time.0).collect(),
            hows: self.how.clone(),
            mount_options: self.mount_options.clone(),
            disk_caches: self.disk_cache.clone(),
        };
        matrix.cells().map_err(matrix::refused)
    }

    fn bound(&self) -> Bound {
        Bound {
            half_width: self.half_width,
            cuts_max: self.cuts_max,
        }
    }

    fn options(&self, cells: Vec<Cell>, kernel: Kernel, directory: PathBuf) -> Options {
        Options {
            cells,
            bound: self.bound(),
            lanes: usize::try_from(self.jobs).unwrap_or(1),
            memory_bytes: self.memory.0,
            seed: self.seed,
            kernel,
            directory,
        }
    }

    /// Says what would be done.
    fn plan(&self, cells: &[Cell]) -> Result<()> {
        let package = resolve(&self.kernel).ok();
        let cached = match &package {
            Some(package) => is_cached(&cache()?, package),
            None => false,
        };
        let plan = print::Plan {
            cells,
            bound: self.bound(),
            lanes: self.jobs,
            kernel: package.as_deref().unwrap_or(&self.kernel),
            is_kernel_cached: cached,
        };
        match self.json {
            true => crate::output::json(&plan.json()),
            false => crate::output::write(&plan.text()),
        }
    }

    fn tell(&self, options: &Options, found: &Run, left_out: &[LeftOut]) -> Result<()> {
        let facts = print::Facts {
            options,
            found,
            left_out,
        };
        if let Some(path) = &self.report {
            let (cells, failed) = (facts.summaries(), facts.failed());
            let page = report::powercut_page(&cells, &failed, &facts.conditions());
            std::fs::write(path, page).context(path.display())?;
        }
        match self.json {
            true => crate::output::json(&facts.json())?,
            false => crate::output::write(&facts.text())?,
        }
        let cuts = found.samples.len() as u64;
        if found.was_interrupted {
            let count = crate::output::count(cuts, "cut");
            let hint = match self.state {
                Some(_) => "the same command goes on where this one was",
                None => "with --state FILE the next run goes on where this one was",
            };
            return Err(Failure::interrupted(format!("interrupted after {count}")).hint(hint));
        }
        if let Some(message) = facts.findings() {
            return Err(Failure::new(Code::CrashLoss, message).hint("the table says which"));
        }
        match facts.failed().is_empty() {
            true => Ok(()),
            false => {
                let words = facts.failed().join("; ");
                let message = format!("not everything could be cut: {words}");
                Err(Failure::new(
                    Code::PowercutGuest,
                    crate::output::plain(&message),
                ))
            }
        }
    }
}

/// What is not cut, by its name, and why.
type LeftOut = (&'static str, String);

fn tell_left_out(left_out: &[LeftOut]) {
    for (name, why) in left_out {
        crate::output::note(crate::output::plain(&format!("left out: {name}: {why}")));
    }
}

/// Takes out what the kernel does not know.
fn unknown(kernel: &Kernel, targets: &mut Vec<FileSystem>) -> Result<Vec<LeftOut>> {
    let mut left_out = Vec::new();
    let mut known = Vec::new();
    for target in targets.drain(..) {
        match kernel.has(target.module())? {
            true => known.push(target),
            false => {
                let why = format!("the kernel {} has no {}", kernel.version, target.module());
                left_out.push((target.name(), why));
            }
        }
    }
    *targets = known;
    match (targets.is_empty(), left_out.first()) {
        (true, Some((_, why))) => Err(PowercutError::Kernel(why.clone()).into()),
        _ => Ok(left_out),
    }
}

fn cache() -> Result<PathBuf> {
    let cache = Config::load()?.cache().join("powercut");
    std::path::absolute(&cache).context(cache.display())
}

/// Has the kernel, which takes a moment if it is to be downloaded.
fn kernel(package: &str) -> Result<Kernel> {
    let cache = cache()?;
    let bar = Progress::unknown("getting the kernel");
    let kernel = Kernel::get(&cache, package);
    bar.finish();
    Ok(kernel?)
}

/// Starts the process that removes the run's directory, which it makes.
fn guard(scratch: &Path) -> Result<(Actor<Made>, PathBuf)> {
    let mut command = Command::new(std::env::current_exe().context("this program")?);
    command.args(["verify", "actor", "--powercut"]);
    let mut guard: Actor<Made> = Actor::start(&mut command)?;
    let scratch = scratch.to_path_buf();
    let made = guard.ask_while(&scratch, VERIFY_STEP_TIME_MAX, &mut || true)?;
    let directory = made.map_err(|why| {
        Failure::new(Code::Local, crate::output::plain(&why))
            .hint("--scratch DIR says where the disks of the machines are made")
    })?;
    Ok((guard, directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_asked_for_is_refused() {
        assert!(size("10MiB").is_ok() && size("10MB").is_err() && size("8GiB").is_err());
        assert!(memory("512MiB").is_ok() && memory("64MiB").is_err());
        assert_eq!(wait("0s"), Ok(Duration::ZERO));
        assert!(wait("10s").is_ok() && wait("2h").is_err());
        assert!(half_width("0.1").is_ok() && half_width("10").is_err());
        assert!(mount_options("noatime,data=journal").is_ok());
        for text in ["", "a b", "noatime;reboot", "-o", "a\n"] {
            assert!(mount_options(text).is_err(), "{text}");
        }
        assert_eq!(target("jfs"), Ok(FileSystem::Jfs));
        assert!(target("fat").is_err_and(|said| said.contains("reiserfs")));
        assert!(how("sync").is_err_and(|said| said.contains("fdatasync")));
        assert_eq!(disk_cache("lost"), Ok(DiskCache::Lost));
        assert!(disk_cache("some").is_err_and(|said| said.contains("none")));
    }
}
