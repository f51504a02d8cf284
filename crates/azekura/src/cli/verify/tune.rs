//! `azekura verify tune`.

use super::matrix::{self, Values};
use super::scene::{Scene, leave_the_mounts_of_others};
use super::speed::start_actor;
use super::tune_print;
use crate::cli::store::Interrupt;
use crate::errors::{Context, Failure, Result};
use crate::progress::Progress;
use ::verify::actor::{Actor, ActorError};
use ::verify::crash::{CrashError, Stage, Target};
use ::verify::report;
use ::verify::speed::actor::Answer;
use ::verify::speed::{
    Cell, LeftOut, Matrix, Measure, Options, Outcome, Place, Plan, Summary, Work, check, run, set,
};
use ::verify::tune::Point;
use ::verify::tune::recovery::{Written, recover};
use base::ByteSize;
use base::limits::{VERIFY_SPEED_FILES_MAX, VERIFY_SPEED_REPEATS_MAX};
use std::path::PathBuf;
use std::time::Duration;

/// Files that are written before power is lost.
const WRITTEN_FILES: u64 = 16;
/// And how long each is.
const WRITTEN_BYTES: u64 = 256 << 10;
/// Power is lost at the latest so long after the last write.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Find the settings that are fast and lose little
///
/// For each combination of flush times, parameters and mount options two things are measured: the
/// speed, as `verify speed` does it, and the recovery rate: files are written and closed, power is
/// lost some seconds later, and what is there after the recovery is compared with what was written.
/// Combinations that no other one beats in both are the Pareto front. The rank correlation says
/// whether what is faster loses more.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura verify tune --flush-time 30s,10s,3s,1s
  azekura verify tune --target ext3 --mount-options data=journal --mount-options data=writeback")]
pub(in crate::cli) struct Tune {
    /// The file system: ext4, xfs, btrfs, ext3, ext2, store (our own); several are compared
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "ext4",
        value_parser = target
    )]
    target: Vec<Target>,
    #[command(flatten)]
    values: Values,
    /// The speed that counts: block_write, cached_write, block_read, create, delete, char_write,
    /// char_read, rewrite, seeks
    #[arg(long, value_name = "MEASURE", default_value = "block_write", value_parser = measure)]
    by: Measure,
    /// How long after the last write power is lost
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "0s,5s,10s",
        value_parser = wait)]
    waits: Vec<Duration>,
    /// How often each combination is measured, in both respects
    #[arg(long, value_name = "COUNT", default_value_t = 5,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(VERIFY_SPEED_REPEATS_MAX)))]
    repeat: u32,
    /// For the speed: how much is written and read in blocks
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = matrix::size)]
    size: ByteSize,
    /// For the speed: how much is written and read character by character
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = matrix::size)]
    char_size: ByteSize,
    /// For the speed: how many small files are made and deleted
    #[arg(long, value_name = "COUNT", default_value_t = 10_000,
        value_parser = clap::value_parser!(u64).range(1..=VERIFY_SPEED_FILES_MAX))]
    files: u64,
    /// The order of the measurements comes from this number
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Where the file of the device is made: $TMPDIR, or /var/tmp, unless said otherwise
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Write a page of HTML with everything
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn target(text: &str) -> Result<Target, String> {
    match matrix::place(text)? {
        Place::Made(target) => Ok(target),
        Place::Directory(_) => Err("power cannot be lost in a directory that is there".into()),
    }
}

fn measure(text: &str) -> Result<Measure, String> {
    let names = Measure::ALL.map(Measure::name).join(", ");
    Measure::by_name(text).ok_or(format!("there are {names}"))
}

fn wait(text: &str) -> Result<Duration, String> {
    super::speed::wait(text, WAIT_MAX)
}

impl Tune {
    pub(super) fn run(self) -> Result<()> {
        let mut options = self.options()?;
        let unlost = without_recovery(&options.plan.cells);
        options.plan.left_out.extend(unlost);
        for left_out in &options.plan.left_out {
            let text = format!("left out: {}: {}", left_out.what, left_out.why);
            crate::output::note(crate::output::plain(&text));
        }
        leave_the_mounts_of_others()?;
        // A device must be written to when memory is short, and so must not wait for that itself.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        let interrupt = Interrupt::watch()?;
        let mut actor = start_actor()?;
        let speeds = self.speeds(&mut actor, &options, &interrupt)?;
        let summaries = speeds.summaries();
        let mut points: Vec<Point> = speeds
            .cells
            .iter()
            .enumerate()
            .map(|(number, cell)| Point {
                cell: cell.clone(),
                speed: self.of(&summaries, number),
                recovered: Vec::new(),
            })
            .collect();
        let was_interrupted =
            speeds.was_interrupted || !self.recoveries(&mut actor, &mut points, &interrupt)?;
        self.tell(&speeds, &points, was_interrupted)
    }

    fn of(&self, summaries: &[Summary], cell: usize) -> Option<Summary> {
        let mut all = summaries.iter().copied();
        all.find(|summary| summary.cell == cell && summary.measure == self.by)
    }

    fn options(&self) -> Result<Options> {
        let is_root = rustix::process::geteuid().is_root();
        let matrix = Matrix {
            places: self.target.iter().copied().map(Place::Made).collect(),
            flush_times: self.values.flush_times(),
            settings: self.values.settings()?,
            mount_options: self.values.mount_options.clone(),
            ..Matrix::default()
        };
        check::places(&matrix, is_root)?;
        let (groups, _) = check::groups(&[self.by.group()], true)?;
        Ok(Options {
            plan: Plan::new(&matrix).map_err(matrix::refused)?,
            work: Work {
                groups,
                bytes: self.size.0,
                io_bytes: (128 << 10).min(self.size.0),
                char_bytes: self.char_size.0,
                files: self.files,
            },
            repeats: self.repeat,
            seed: self.seed,
            scratch: matrix::scratch(self.scratch.as_deref())?,
            device: None,
            is_root,
            empties_caches: false,
        })
    }

    fn speeds(
        &self,
        actor: &mut Actor<Answer>,
        options: &Options,
        interrupt: &Interrupt,
    ) -> Result<Outcome> {
        let repeats = options.plan.cells.len() as u64 * u64::from(self.repeat);
        let bar = Progress::count("measuring", repeats);
        let mut watch = |done, what: &str| {
            bar.set_of(done, what);
            !interrupt.is_wanted()
        };
        let outcome = run(actor, options, &mut watch);
        bar.finish();
        Ok(outcome?)
    }

    /// Loses power, for every point as often as is asked for; false if it was interrupted.
    fn recoveries(
        &self,
        actor: &mut Actor<Answer>,
        points: &mut [Point],
        interrupt: &Interrupt,
    ) -> Result<bool> {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        waits.dedup();
        let written = Written {
            files: WRITTEN_FILES,
            bytes: WRITTEN_BYTES,
            waits,
        };
        let lost = points.iter().filter(|one| !sets_a_device(&one.cell));
        let all = lost.count() as u64 * u64::from(self.repeat);
        let bar = Progress::count("losing power", all);
        let mut done = 0;
        for target in &self.target {
            let mut scene = Scene::new(*target, target.device_bytes(), false)?;
            for repeat in 0..self.repeat {
                let of = |point: &&mut Point| {
                    let is_its = point.cell.place == Place::Made(*target);
                    is_its && !sets_a_device(&point.cell)
                };
                for point in points.iter_mut().filter(of) {
                    let mut stage = Stage {
                        medium: &scene.medium,
                        recorder: &scene.recorder,
                        actor: scene.actor.as_mut().expect("a new scene has one"),
                        second: None,
                        states: None,
                    };
                    set(actor, point.cell.all_settings())?;
                    let mut is_wanted = || !interrupt.is_wanted();
                    let repeat = u64::from(repeat);
                    let recovered = recover(
                        *target,
                        &mut stage,
                        &point.cell,
                        &written,
                        repeat,
                        &mut is_wanted,
                    );
                    set(actor, Vec::new())?;
                    match recovered {
                        Ok(recovered) => point.recovered.push(recovered),
                        Err(CrashError::Actor(ActorError::Interrupted)) => {
                            bar.finish();
                            return Ok(false);
                        }
                        Err(error) => return Err(Failure::from(error).during(target.name())),
                    }
                    done += 1;
                    bar.set(done);
                }
            }
        }
        bar.finish();
        Ok(true)
    }

    fn tell(&self, speeds: &Outcome, points: &[Point], was_interrupted: bool) -> Result<()> {
        let facts = tune_print::Facts {
            by: self.by,
            waits: &self.waits,
            repeats: self.repeat,
            seed: self.seed,
            was_interrupted,
        };
        if let Some(path) = &self.report {
            let page = report::tune_page(speeds, points, &tune_print::conditions(speeds, &facts));
            std::fs::write(path, page).context(path.display())?;
        }
        if self.json {
            crate::output::json(&tune_print::json(speeds, points, &facts))?;
        } else {
            crate::output::write(&tune_print::text(speeds, points, &facts))?;
        }
        if was_interrupted {
            return Err(Failure::interrupted(
                "interrupted before everything was measured",
            ));
        }
        match &*speeds.failed {
            [] => Ok(()),
            failed => Err(super::speed::could_not(failed)),
        }
    }
}

/// Whether a cell has a parameter of the device. Power is lost on another device, in memory, where
/// it would say nothing: what is recovered there is not that cell's.
fn sets_a_device(cell: &Cell) -> bool {
    let settings = cell.all_settings();
    settings
        .iter()
        .any(|setting| setting.tunable.is_of_a_device())
}

/// Whose recovery is not measured: they are neither on the front nor in the correlation.
fn without_recovery(cells: &[Cell]) -> Vec<LeftOut> {
    let mut left_out: Vec<LeftOut> = Vec::new();
    for cell in cells {
        let settings = cell.all_settings();
        let of_device = settings.iter().map(|setting| setting.tunable);
        for tunable in of_device.filter(|tunable| tunable.is_of_a_device()) {
            let what = format!("{}: the recovery with {}", cell.place, tunable.name());
            if left_out.iter().all(|one| one.what != what) {
                let why = "power is lost on a device in memory, which has no such parameter; \
                           without --set of it the recovery is measured";
                let why = why.to_owned();
                left_out.push(LeftOut { what, why });
            }
        }
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::verify::speed::Tunable;

    #[test]
    fn a_parameter_of_the_device_leaves_no_recovery_to_compare() {
        let plan = Plan::new(&Matrix {
            places: vec![Place::Made(Target::Ext4)],
            settings: vec![
                (Tunable::MaxSectors, vec![64, 512]),
                (Tunable::Swappiness, vec![60]),
            ],
            ..Matrix::default()
        });
        let plan = plan.unwrap();
        assert!(plan.cells.len() == 2 && plan.cells.iter().all(sets_a_device));
        let left_out = without_recovery(&plan.cells);
        assert_eq!(left_out.len(), 1, "{left_out:?}");
        assert_eq!(left_out[0].what, "ext4: the recovery with max_sectors_kb");
        assert!(left_out[0].why.contains("without --set"));
        let of_machine = Matrix {
            places: vec![Place::Made(Target::Ext4)],
            settings: vec![(Tunable::Swappiness, vec![10, 60])],
            ..Matrix::default()
        };
        let plan = Plan::new(&of_machine).unwrap();
        assert!(!plan.cells.iter().any(sets_a_device) && without_recovery(&plan.cells).is_empty());
    }

    #[test]
    fn moments_and_measures_are_named_as_the_help_says() {
        assert_eq!(wait("0s"), Ok(Duration::ZERO));
        assert_eq!(wait("5s"), Ok(Duration::from_secs(5)));
        assert!(wait("1h").is_err() && wait("x").is_err());
        assert_eq!(measure("create"), Ok(Measure::Create));
        assert!(measure("iops").is_err_and(|said| said.contains("block_read")));
        assert!(target("/tmp").is_err() && target("ext3") == Ok(Target::Ext3));
    }
}
