//! The run: every cell as often as is asked for, one after the other.

use super::actor::{Answer, Ran, Request};
use super::machine::{Others, Ticks, load, was_busy};
use super::outcome::{Outcome, Sample};
use super::plan::{Cell, LeftOut, Place, Plan, order};
use super::tunable::Setting;
use super::work::{Act, Program, Work};
use super::{SpeedError, check};
use crate::actor::{Actor, ActorError};
use crate::crash::Target;
use base::limits::{VERIFY_SPEED_JOB_TIME_MAX, VERIFY_SPEED_STEP_TIME_MAX};
use std::path::PathBuf;
use std::thread::{available_parallelism, sleep};
use std::time::{Duration, Instant};

/// For so long is looked what others do, before each repeat.
const OBSERVED: Duration = Duration::from_millis(200);

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What.
    pub plan: Plan,
    /// With how much.
    pub work: Work,
    /// How often each cell is measured.
    pub repeats: u32,
    /// From which the order of the cells is made.
    pub seed: u64,
    /// Where the file of the device is made.
    pub scratch: PathBuf,
    /// The device on which file systems are made instead; everything on it is lost.
    pub device: Option<PathBuf>,
    /// Whether the user may mount, and set what is the machine's.
    pub is_root: bool,
    /// Whether the machine's caches are emptied before something is read in a directory. Those of
    /// a file system that was made are in any case.
    pub empties_caches: bool,
}

/// Is told how many repeats of all are done, and what is measured now; false ends the run. It is
/// asked several times a second.
pub type Watch<'a> = &'a mut dyn FnMut(u64, &str) -> bool;

/// Measures.
///
/// # Errors
/// [`SpeedError`] if nothing can be measured, or the actor is gone. A cell that fails is in the
/// outcome.
pub fn run(
    actor: &mut Actor<Answer>,
    options: &Options,
    watch: Watch<'_>,
) -> Result<Outcome, SpeedError> {
    let processors = available_parallelism().map_or(1, std::num::NonZero::get);
    let load = load_now();
    let started = Instant::now();
    let mut run = Run {
        actor,
        options,
        watch,
        done: 0,
        what: String::new(),
    };
    let mut outcome = Outcome {
        cells: options.plan.cells.clone(),
        left_out: options.plan.left_out.clone(),
        processors,
        load,
        are_caches_dropped: options.empties_caches || !has_directory(&options.plan.cells),
        ..Outcome::default()
    };
    match run.all(&mut outcome) {
        Ok(()) => {}
        Err(SpeedError::Actor(ActorError::Interrupted)) => outcome.was_interrupted = true,
        Err(error) => return Err(error),
    }
    outcome.is_loaded = was_busy(load, processors) || outcome.disturbed() > 0;
    outcome.time = started.elapsed();
    Ok(outcome)
}

/// Sets these parameters, and all others as they were.
///
/// # Errors
/// [`SpeedError`]
pub fn set(actor: &mut Actor<Answer>, settings: Vec<Setting>) -> Result<(), SpeedError> {
    let request = Request::Tune(settings);
    match actor.ask_while(&request, VERIFY_SPEED_STEP_TIME_MAX, &mut || true)? {
        Answer::Done => Ok(()),
        Answer::Failed(why) => Err(SpeedError::of(why)),
        Answer::Busy => Err(SpeedError::Busy),
        Answer::Ran(_) => Err(ActorError::Garbled.into()),
    }
}

fn ticks_now() -> Ticks {
    let said = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    Ticks::parse(&said).unwrap_or_default()
}

fn load_now() -> f64 {
    let said = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load(&said).unwrap_or(0.0)
}

struct Run<'a> {
    actor: &'a mut Actor<Answer>,
    options: &'a Options,
    watch: Watch<'a>,
    done: u64,
    what: String,
}

impl Run<'_> {
    fn all(&mut self, outcome: &mut Outcome) -> Result<(), SpeedError> {
        let options = self.options;
        check::queue(options)?;
        self.must(&Request::Begin)?;
        check::room(options)?;
        if outcome.has_made() {
            self.must(&match &options.device {
                Some(device) => Request::Take(device.clone()),
                None => Request::Attach {
                    scratch: options.scratch.clone(),
                    len_bytes: check::device_bytes(options),
                },
            })?;
        }
        let mut is_failed = vec![false; outcome.cells.len()];
        for (round, number) in order(outcome.cells.len(), options.repeats, options.seed) {
            if is_failed[number] {
                self.done += 1;
                continue;
            }
            let cell = outcome.cells[number].clone();
            self.what = outcome.name(&cell);
            let load = load_now();
            let measured = self.cell(&cell);
            // Also after a failure: the next cell begins as the first one did.
            let reset = match &measured {
                Err(error) if !is_of_cell(error) => Ok(()),
                _ => self.must(&Request::Reset),
            };
            self.done += 1;
            match measured.and_then(|sample| reset.map(|()| sample)) {
                Ok(sample) => outcome.samples.push(Sample {
                    cell: number,
                    round,
                    load,
                    ..sample
                }),
                Err(error) if is_of_cell(&error) => {
                    is_failed[number] = true;
                    outcome.failed.push(LeftOut {
                        what: self.what.clone(),
                        why: error.to_string(),
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Measures a cell once.
    fn cell(&mut self, cell: &Cell) -> Result<Sample, SpeedError> {
        let others = self.observe()?;
        let started = Instant::now();
        let mut below = None;
        match &cell.place {
            Place::Directory(path) => below = Some(path.clone()),
            Place::Made(target) => self.make(*target, cell)?,
        }
        self.must(&Request::Enter(below))?;
        self.must(&Request::Tune(cell.all_settings()))?;
        if let Some(bytes) = cell.memory_bytes {
            self.must(&Request::Bound(bytes))?;
        }
        let mut sample = Sample {
            cell: 0,
            round: 0,
            values: Vec::new(),
            others,
            load: 0.0,
            time: started.elapsed(),
        };
        let work = &self.options.work;
        let acts = match is_store(cell) {
            true => work.store_acts(),
            false => work.acts(),
        };
        for act in acts {
            match act {
                Act::Run(program) => self.measure(program, cell, &mut sample)?,
                Act::Forget if self.options.empties_caches || cell.format().is_some() => {
                    self.must(&Request::Forget)?;
                }
                // fio asks the kernel to forget the file, which everybody may.
                Act::Forget => {}
                Act::Clear => self.must(&Request::Clear)?,
            }
        }
        sample.time = started.elapsed();
        Ok(sample)
    }

    fn make(&mut self, target: Target, cell: &Cell) -> Result<(), SpeedError> {
        if let Some(tool) = cell.format() {
            self.must(&Request::Tool(tool))?;
        }
        if target == Target::Store {
            return Ok(());
        }
        self.must(&Request::Mount(target.mount_as(&cell.options(target))))
    }

    /// What others do while the run does nothing.
    fn observe(&mut self) -> Result<Others, SpeedError> {
        if !(self.watch)(self.done, &self.what) {
            return Err(ActorError::Interrupted.into());
        }
        let (before, started) = (ticks_now(), Instant::now());
        sleep(OBSERVED);
        let ticks = ticks_now() - before;
        Ok(Others::new(ticks, Duration::ZERO, started.elapsed()))
    }

    fn measure(
        &mut self,
        program: Program,
        cell: &Cell,
        sample: &mut Sample,
    ) -> Result<(), SpeedError> {
        let job = program.job(&self.options.work, self.options.is_root);
        let Answer::Ran(ran) = self.ask(&Request::Run(job), VERIFY_SPEED_JOB_TIME_MAX)? else {
            return Err(ActorError::Garbled.into());
        };
        let values = program.values(&ran.said).map_err(SpeedError::Program)?;
        let share = share_of_processor(&ran);
        let mut others = Others::new(ran.ticks, ran.user, ran.time);
        if matches!(cell.place, Place::Directory(_)) {
            // The programs that serve it work for the run, and nobody knows which they are.
            others.programs = 0.0;
        }
        sample.others = sample.others.most(others);
        sample.values.extend(values.into_iter().map(|mut value| {
            value.cpu = value.cpu.or(Some(share));
            value
        }));
        Ok(())
    }

    fn must(&mut self, request: &Request) -> Result<(), SpeedError> {
        match self.ask(request, VERIFY_SPEED_STEP_TIME_MAX)? {
            Answer::Done => Ok(()),
            _ => Err(ActorError::Garbled.into()),
        }
    }

    fn ask(&mut self, request: &Request, limit: Duration) -> Result<Answer, SpeedError> {
        let Self {
            actor,
            watch,
            done,
            what,
            ..
        } = self;
        if !watch(*done, what) {
            return Err(ActorError::Interrupted.into());
        }
        match actor.ask_while(request, limit, &mut || watch(*done, what))? {
            Answer::Failed(why) => Err(SpeedError::of(why)),
            Answer::Busy => Err(SpeedError::Busy),
            answer => Ok(answer),
        }
    }
}

fn is_store(cell: &Cell) -> bool {
    cell.place == Place::Made(Target::Store)
}

fn has_directory(cells: &[Cell]) -> bool {
    let mut cells = cells.iter();
    cells.any(|cell| matches!(cell.place, Place::Directory(_)))
}

fn share_of_processor(ran: &Ran) -> f64 {
    (ran.user + ran.system).as_secs_f64() / ran.time.as_secs_f64().max(1e-3)
}

/// Whether other cells can still be measured.
fn is_of_cell(error: &SpeedError) -> bool {
    matches!(error, SpeedError::Program(_))
}
