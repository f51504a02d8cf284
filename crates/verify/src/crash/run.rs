//! The run itself.

use super::names::Names;
use super::outcome::{Failure, Outcome, Place, Totals};
use super::reduce::{named, reduce};
use super::{CrashError, Subject, Target};
use crate::actor::{Actor, Answer, Device, MountAs, Request, Tool};
use crate::fault::About;
use crate::log::{Entry, Log, Mark};
use crate::oracle::{History, Judgement, judge_at_each};
use crate::second::is_same;
use crate::states::{Pattern, Plan, Policy, Said, State};
use crate::workload::Workload;
use crate::{Fault, Medium, Recorder, SecondRecorder, StateFile};
use base::limits::{VERIFY_FAILURES_MAX, VERIFY_RECOVERY_STATES_MAX};
use sim::{Image, Random};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A workload gets at most this part of the states of a run, so that there are several.
const SHARE: u64 = 8;
/// But so many in any case: fewer say nothing about it.
const STATES_MIN: u64 = 24;
/// What disks of today keep whole.
pub const SECTOR_BYTES_DEFAULT: u64 = 4096;
/// So many different failures are reduced, each of which takes many tries; the others are told as
/// they are.
const REDUCED_MAX: usize = 10;
/// The recoveries of so many states are interrupted: one of each.
const RECOVERY_EVERY: u64 = 16;

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many states to try, at most. Those of recoveries come on top.
    pub points: u64,
    /// From which everything that is left to chance is made.
    pub seed: u64,
    /// What the disk keeps whole when power is lost, in bytes.
    pub sector_bytes: u64,
    /// Mount options, with commas between.
    pub mount_options: String,
    /// This workload alone; `one`: all sequences of one operation, which share the states.
    pub workload: Option<String>,
    /// Recoveries are interrupted, too.
    pub recoveries: bool,
    /// Something that goes wrong, to see whether it is noticed.
    pub plant: Option<Fault>,
    /// Where the logs of workloads that failed are put.
    pub keep: Option<PathBuf>,
}

/// What a run works with: the actor has attached a file that shows the recorder, which records
/// the medium.
pub struct Stage<'a> {
    /// What is below.
    pub medium: &'a Medium,
    /// Its recorder.
    pub recorder: &'a Recorder,
    /// Who uses it.
    pub actor: &'a mut Actor,
    /// What else records it, between the two.
    pub second: Option<&'a mut SecondRecorder>,
    /// A file that the actor has attached as its device of states; without it, all states are put
    /// on the medium.
    pub states: Option<&'a mut StateFile>,
}

impl Stage<'_> {
    /// Puts something else on the medium.
    fn load(&mut self, image: Image) -> Result<(), CrashError> {
        if let Some(second) = &self.second {
            let file = second.file().to_owned();
            self.actor.must(&Request::Forget { file })?;
        }
        self.medium.load(image);
        Ok(())
    }
}

fn failed(error: std::io::Error) -> CrashError {
    CrashError::Second(error.into())
}

/// Is told how many states were tried, of how many at most; false ends the run.
pub type Watch<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// Judges a file system.
///
/// # Errors
/// [`CrashError`] if the run cannot go on; what a state is found to be is no error.
pub fn run(
    target: Target,
    stage: Stage<'_>,
    options: &Options,
    watch: Watch<'_>,
) -> Result<Outcome, CrashError> {
    let started = Instant::now();
    let mut run = Run::new(target, stage, options);
    let mut names = Names::new(target, options);
    let base = run.make_base()?;
    while let Some(name) = names.next() {
        let tried = run.outcome.totals.states - run.outcome.totals.recovery_states;
        if tried >= options.points || run.outcome.was_interrupted {
            break;
        }
        let workload = Workload::by_name(&name, options.seed).map_err(CrashError::Workload)?;
        if let Some(step) = workload.steps.iter().find(|step| !target.can(step)) {
            if options.workload.as_ref() == Some(&name) {
                let name = target.name();
                return Err(CrashError::Workload(format!("{name} cannot {step}")));
            }
            continue;
        }
        let (log, second) = run.record(&base, &workload)?;
        let left = options.points - tried;
        let share = match options.workload.as_deref() {
            // What one does not need is there for those behind it.
            Some("one") => (left / (names.ones_left() + 1)).max(STATES_MIN),
            Some(_) => left,
            None => (options.points / SHARE).max(STATES_MIN),
        };
        let states_max = share.min(left);
        match second {
            None => run.workload(&workload, &log, states_max, watch)?,
            Some(second) => run.both(&workload, [&log, &second], states_max, watch)?,
        }
    }
    run.outcome.time = started.elapsed();
    Ok(run.outcome)
}

/// Tries the states of a log again, or one of them; or, of that one, what is left when its recovery
/// is interrupted in this state.
///
/// # Errors
/// As [`run`]; [`CrashError::NoState`] if the log, or the recovery, has no such state.
pub fn replay(
    log: &Log,
    only: Option<(&State, Option<&State>)>,
    stage: Stage<'_>,
    options: &Options,
    watch: Watch<'_>,
) -> Result<Outcome, CrashError> {
    let started = Instant::now();
    let subject = Subject::from_text(&log.subject)?;
    let workload =
        Workload::by_name(&subject.workload, subject.seed).map_err(CrashError::Workload)?;
    let options = Options {
        seed: subject.seed,
        mount_options: subject.mount_options.clone(),
        ..options.clone()
    };
    let mut run = Run::new(subject.target, stage, &options);
    match only {
        None => run.workload(&workload, log, options.points, watch)?,
        Some((state, recovery)) => {
            let history = History::new(&workload, subject.target.promises())?;
            let plan = Plan::new(&log.base, &log.entries, &run.policy());
            let at = At {
                workload: &workload,
                history: &history,
                plan: &plan,
            };
            run.again(&at, state, recovery)?;
        }
    }
    run.outcome.time = started.elapsed();
    Ok(run.outcome)
}

/// What became of one state.
enum Verdict {
    /// It was mounted; what is right and wrong with it, when so much had been said.
    Found(Judgement, Said),
    /// It could not be.
    Unmountable(String),
}

impl Verdict {
    fn is_bad(&self) -> bool {
        !matches!(self, Self::Found(found, _) if found.findings.is_empty())
    }

    fn words(&self) -> Vec<String> {
        match self {
            Self::Found(found, _) => found.findings.iter().map(ToString::to_string).collect(),
            Self::Unmountable(why) => vec![format!("unmountable: {why}")],
        }
    }
}

/// What the states of one log are judged by.
struct At<'a> {
    workload: &'a Workload,
    history: &'a History,
    plan: &'a Plan,
}

struct Run<'a> {
    target: Target,
    stage: Stage<'a>,
    options: &'a Options,
    outcome: Outcome,
    random: Random,
    /// Failures that were reduced.
    reduced: usize,
}

impl<'a> Run<'a> {
    fn new(target: Target, stage: Stage<'a>, options: &'a Options) -> Self {
        Self {
            target,
            stage,
            options,
            outcome: Outcome {
                target: target.name().to_owned(),
                mount_options: options.mount_options.clone(),
                seed: options.seed,
                ..Outcome::default()
            },
            random: Random::new(options.seed),
            reduced: 0,
        }
    }

    fn policy(&self) -> Policy {
        Policy {
            sector_bytes: self.options.sector_bytes,
            ..Policy::new(self.options.seed)
        }
    }

    /// A file system that was made, filled and unmounted.
    fn make_base(&mut self) -> Result<Image, CrashError> {
        let target = self.target;
        self.stage.load(Image::new(target.device_bytes()))?;
        let medium = self.stage.medium;
        let actor = &mut *self.stage.actor;
        actor.must(&Request::Tool(target.make()))?;
        // The options are for what is judged; what lies there before is whole in any case.
        actor.must(&Request::Mount(target.mount_as("")))?;
        let first = target.first_workload();
        let workload = Workload::by_name(first, 0).map_err(CrashError::Workload)?;
        for step in workload.setup.into_iter().chain(target.deleted()) {
            actor.must(&Request::Run(step))?;
        }
        actor.must(&Request::Unmount)?;
        Ok(medium.image())
    }

    /// Runs a workload and records it; also what a second recorder says, if there is one.
    fn record(
        &mut self,
        base: &Image,
        workload: &Workload,
    ) -> Result<(Log, Option<Log>), CrashError> {
        self.stage.load(base.clone())?;
        let Stage {
            recorder,
            actor,
            second,
            ..
        } = &mut self.stage;
        recorder.start();
        if let Some(second) = second {
            second.begin().map_err(failed)?;
        }
        let mut mark = |mark| {
            if let Some(second) = second {
                second.mark(mark).map_err(failed)?;
            }
            recorder.mark(mark).map_err(CrashError::from)
        };
        let mount = self.target.mount_as(&self.options.mount_options);
        actor.must(&Request::Mount(mount))?;
        for (number, step) in (1..).zip(&workload.steps) {
            mark(Mark::Begun(number))?;
            if !self.options.plant.is_some_and(|fault| fault.skips(step)) {
                actor.must(&Request::Run(step.clone()))?;
            }
            mark(Mark::Done(number))?;
        }
        // What it would write later anyway is written now; all promises hold meanwhile.
        actor.must(&Request::Unmount)?;
        let ours = recorder.take();
        let theirs = second.as_mut().map(|second| second.take()).transpose();
        let theirs = theirs.map_err(CrashError::Second)?;
        let subject = Subject {
            target: self.target,
            mount_options: self.options.mount_options.clone(),
            workload: workload.name.clone(),
            seed: self.options.seed,
        };
        let about = About::new(workload, self.target.superblock());
        let log = |entries| Log {
            subject: subject.to_text(),
            base: base.clone(),
            entries: match self.options.plant {
                Some(fault) => fault.on_log(base, entries, &about),
                None => entries,
            },
        };
        Ok((log(ours), theirs.map(log)))
    }

    /// Tries the states of what two recorders have of one workload. What is wrong is counted of the
    /// first.
    fn both(
        &mut self,
        workload: &Workload,
        [ours, theirs]: [&Log; 2],
        states_max: u64,
        watch: Watch<'_>,
    ) -> Result<(), CrashError> {
        let fresh = Outcome {
            target: self.outcome.target.clone(),
            mount_options: self.outcome.mount_options.clone(),
            seed: self.outcome.seed,
            ..Outcome::default()
        };
        let whole = std::mem::replace(&mut self.outcome, fresh.clone());
        self.workload(workload, theirs, states_max, watch)?;
        let second = std::mem::replace(&mut self.outcome, fresh);
        self.workload(workload, ours, states_max, watch)?;
        let first = std::mem::replace(&mut self.outcome, whole);
        if first.was_interrupted || second.was_interrupted {
            // What was not tried of one log says nothing about the other.
            self.outcome.was_interrupted = true;
            self.outcome.add(first);
            return Ok(());
        }
        let wrong = |outcome: &Outcome| -> Vec<_> {
            let kinds = outcome.outcomes.keys().map(ToString::to_string);
            let unmountable = (outcome.totals.unmountable > 0).then(|| "unmountable".to_owned());
            kinds.chain(unmountable).collect()
        };
        let agreement = self.outcome.agreement.get_or_insert_default();
        agreement.logs += 1;
        agreement.equal_logs += u64::from(is_same(&ours.entries, &theirs.entries));
        agreement.states += second.totals.states;
        agreement.bad_states += second.totals.bad_states;
        agreement.equal_verdicts += u64::from(wrong(&first) == wrong(&second));
        self.outcome.add(first);
        Ok(())
    }

    /// Tries at most so many states of a log.
    fn workload(
        &mut self,
        workload: &Workload,
        log: &Log,
        states_max: u64,
        watch: Watch<'_>,
    ) -> Result<(), CrashError> {
        self.count_log(workload, &log.entries);
        let history = History::new(workload, self.target.promises())?;
        let plan = Plan::new(&log.base, &log.entries, &self.policy());
        let states = plan.sample(states_max, self.options.seed);
        let totals = &mut self.outcome.totals;
        totals.distinct += plan.states().len() as u64;
        totals.pruned += plan.pruned();
        let is_drawn = states.len() < plan.states().len();
        let at = At {
            workload,
            history: &history,
            plan: &plan,
        };
        let failed_before = self.outcome.totals.bad_states;
        for state in &states {
            let tried = self.state(&at, state, watch);
            tried.map_err(|error| self.stuck(error, log, workload, state))?;
            if self.outcome.was_interrupted {
                break;
            }
            // What was drawn and not tried is in no sample.
            let by_chance = is_drawn || plan.is_by_chance(state);
            self.outcome.totals.sampled += u64::from(by_chance);
            if !watch(self.outcome.totals.states, self.options.points) {
                self.outcome.was_interrupted = true;
                break;
            }
        }
        if self.outcome.totals.bad_states > failed_before {
            self.keep(log, workload)?;
        }
        Ok(())
    }

    /// What ended the run while a state was tried, with its log: what hangs is a finding, too.
    fn stuck(
        &self,
        error: CrashError,
        log: &Log,
        workload: &Workload,
        state: &State,
    ) -> CrashError {
        let mut again = self.command(&workload.name, state, None);
        let kept = match (self.log_path(&workload.name), self.keep(log, workload)) {
            (None, _) => {
                again += " --keep DIR";
                "whose log was not kept".to_owned()
            }
            (Some(path), Ok(())) => format!("whose log is {}", path.display()),
            (Some(_), Err(why)) => format!("whose log could not be kept: {why}"),
        };
        CrashError::Stuck {
            source: Box::new(error),
            state: state.to_string(),
            workload: workload.name.clone(),
            log: kept,
            again,
        }
    }

    /// Tries one state and, of some, what is left when their recovery is interrupted.
    fn state(&mut self, at: &At<'_>, state: &State, watch: Watch<'_>) -> Result<(), CrashError> {
        let said = at.plan.said(state);
        let image = at.plan.image(state).expect("it is one of the plan's");
        if !self.options.recoveries || self.random.below(RECOVERY_EVERY) > 0 {
            let verdict = self.attempt(&image, at.history, said)?;
            return match self.counts(&verdict, watch) {
                true => self.note(at, state, None, &verdict),
                false => Ok(()),
            };
        }
        let (verdict, recovery) = self.attempt_recorded(image.clone(), at.history, said)?;
        if !self.counts(&verdict, watch) {
            return Ok(());
        }
        self.note(at, state, None, &verdict)?;
        match verdict.is_bad() {
            true => Ok(()),
            false => self.interrupt(at, state, &image, recovery, watch),
        }
    }

    /// Whether what became of a state is a finding. If the run is to end, what is wrong may come
    /// from that: whoever wants it to end may have ended a program that it needs.
    fn counts(&mut self, verdict: &Verdict, watch: Watch<'_>) -> bool {
        let mut is_wanted = || watch(self.outcome.totals.states, self.options.points);
        let counts = !verdict.is_bad() || is_wanted();
        self.outcome.was_interrupted |= !counts;
        counts
    }

    /// Tries one state again, and if it is asked for and nothing is wrong with it, one state of its
    /// recovery, which is recorded anew.
    fn again(
        &mut self,
        at: &At<'_>,
        state: &State,
        inner: Option<&State>,
    ) -> Result<(), CrashError> {
        let said = at.plan.said(state);
        let image = at.plan.image(state);
        let image = image.ok_or_else(|| CrashError::NoState(state.to_string()))?;
        let Some(inner) = inner else {
            let verdict = self.attempt(&image, at.history, said)?;
            return self.note(at, state, None, &verdict);
        };
        let (verdict, recovery) = self.attempt_recorded(image.clone(), at.history, said)?;
        self.note(at, state, None, &verdict)?;
        if verdict.is_bad() {
            return Ok(());
        }
        let image = self.recovery_plan(&image, recovery).image(inner);
        let none = || CrashError::NoState(format!("{inner} of the recovery of {state}"));
        let verdict = self.attempt(&image.ok_or_else(none)?, at.history, said)?;
        self.outcome.totals.recovery_states += 1;
        self.note(at, state, Some(inner), &verdict)
    }

    /// The states of a recovery, which wrote this.
    fn recovery_plan(&self, image: &Image, recovery: Vec<Entry>) -> Plan {
        let policy = Policy {
            tears_max: 2,
            pairs_max: 2,
            ..self.policy()
        };
        let recovery = match self.options.plant {
            Some(fault) => fault.on_recovery(image, recovery),
            None => recovery,
        };
        Plan::new(image, &recovery, &policy)
    }

    /// Tries what is left of a state when its recovery, which wrote this, is interrupted.
    fn interrupt(
        &mut self,
        at: &At<'_>,
        state: &State,
        image: &Image,
        recovery: Vec<Entry>,
        watch: Watch<'_>,
    ) -> Result<(), CrashError> {
        let said = at.plan.said(state);
        let plan = self.recovery_plan(image, recovery);
        for inner in plan.sample(VERIFY_RECOVERY_STATES_MAX, self.random.next_u64()) {
            let image = plan.image(&inner).expect("it is one of the plan's");
            let verdict = self.attempt(&image, at.history, said)?;
            if !self.counts(&verdict, watch) {
                break;
            }
            self.outcome.totals.recovery_states += 1;
            self.outcome.totals.sampled += 1;
            self.note(at, state, Some(&inner), &verdict)?;
        }
        Ok(())
    }

    /// Counts what became of a state, and describes it if it is bad and there is room.
    fn note(
        &mut self,
        at: &At<'_>,
        state: &State,
        recovery: Option<&State>,
        verdict: &Verdict,
    ) -> Result<(), CrashError> {
        self.count(verdict);
        if verdict.is_bad() && self.outcome.failures.len() < VERIFY_FAILURES_MAX {
            let failure = self.describe(at, state, recovery, verdict)?;
            self.outcome.failures.push(failure);
        }
        Ok(())
    }

    /// Lets a state be repaired, mounted and looked at, where nothing is recorded if there is such
    /// a place.
    fn attempt(
        &mut self,
        image: &Image,
        history: &History,
        said: &[Said],
    ) -> Result<Verdict, CrashError> {
        let Some(states) = &mut self.stage.states else {
            return Ok(self.attempt_recorded(image.clone(), history, said)?.0);
        };
        states.load(image).map_err(CrashError::States)?;
        self.look(Device::States, history, said)
    }

    /// The same on the medium; also what the recovery wrote.
    fn attempt_recorded(
        &mut self,
        image: Image,
        history: &History,
        said: &[Said],
    ) -> Result<(Verdict, Vec<Entry>), CrashError> {
        self.stage.load(image)?;
        self.stage.recorder.start();
        let verdict = self.look(Device::Recorded, history, said)?;
        Ok((verdict, self.stage.recorder.take()))
    }

    /// Lets what is on a device be repaired, mounted and looked at, and judges it.
    fn look(
        &mut self,
        device: Device,
        history: &History,
        said: &[Said],
    ) -> Result<Verdict, CrashError> {
        let (repair, mount) = self.recovery();
        let request = Request::Try {
            device,
            repair,
            mount,
            databases: history.databases(),
        };
        match self.stage.actor.ask(&request)? {
            Answer::Found(found) => {
                let (judgement, said) = judge_at_each(history, said, &found);
                Ok(Verdict::Found(judgement, said))
            }
            Answer::Unmountable(why) => Ok(Verdict::Unmountable(why)),
            Answer::Failed(why) => Err(crate::actor::ActorError::Failed(why).into()),
            Answer::Done => Err(crate::actor::ActorError::Garbled.into()),
        }
    }

    /// What is done to a file system after a loss of power before it is looked at.
    fn recovery(&self) -> (Vec<Tool>, MountAs) {
        let options = &self.options.mount_options;
        match self.options.plant {
            Some(Fault::NoRecovery) => {
                let words = [options.as_str(), self.target.unrecovered()];
                (Vec::new(), self.target.mount_as(&words.join(",")))
            }
            _ => (self.target.repair(), self.target.mount_as(options)),
        }
    }

    fn count_log(&mut self, workload: &Workload, entries: &[Entry]) {
        let totals = &mut self.outcome.totals;
        totals.workloads += 1;
        totals.steps += workload.steps.len() as u64;
        for entry in entries {
            match entry {
                Entry::Write { data, .. } => {
                    totals.writes += 1;
                    totals.written_bytes += data.len() as u64;
                }
                Entry::Zeros(_) => totals.writes += 1,
                Entry::Flush => totals.flushes += 1,
                Entry::Mark(_) => {}
            }
        }
    }

    fn count(&mut self, verdict: &Verdict) {
        let Totals {
            states,
            bad_states,
            unmountable,
            lost_acks,
            exposed,
            intact,
            ..
        } = &mut self.outcome.totals;
        *states += 1;
        *bad_states += u64::from(verdict.is_bad());
        match verdict {
            Verdict::Unmountable(_) => *unmountable += 1,
            Verdict::Found(found, _) => {
                *intact += found.intact;
                for finding in &found.findings {
                    let count = if finding.was_promised {
                        &mut *lost_acks
                    } else {
                        &mut *exposed
                    };
                    *count += 1;
                    *self.outcome.outcomes.entry(finding.outcome).or_default() += 1;
                }
            }
        }
    }

    /// What an earlier failure of the same stretch was reduced to, if this state lacks all of that,
    /// too: then it is the same failure.
    fn known(&self, at: &At<'_>, state: &State) -> Option<State> {
        let missing = at.plan.missing(state);
        let mut failures = self.outcome.failures.iter();
        let same = failures.find(|failure| {
            failure.workload == at.workload.name
                && failure.reduced.stretch == state.stretch
                && matches!(&failure.reduced.pattern, Pattern::Missing(few)
                    if few.iter().all(|change| missing.contains(change)))
        })?;
        Some(same.reduced.clone())
    }

    fn reduce(&mut self, at: &At<'_>, state: &State) -> Result<State, CrashError> {
        self.reduced += 1;
        let missing = at.plan.missing(state);
        reduce(state, at.plan.change_count(state), missing, |smaller| {
            let image = at.plan.image(smaller).expect("its stretch is there");
            let said = at.plan.said(smaller);
            Ok(self.attempt(&image, at.history, said)?.is_bad())
        })
    }

    /// Reduces a failure and puts it into words.
    fn describe(
        &mut self,
        at: &At<'_>,
        state: &State,
        recovery: Option<&State>,
        verdict: &Verdict,
    ) -> Result<Failure, CrashError> {
        let said = match verdict {
            Verdict::Found(_, said) => *said,
            Verdict::Unmountable(_) => at.plan.said(state).last().copied().unwrap_or_default(),
        };
        let reduced = match self.known(at, state) {
            _ if recovery.is_some() => state.clone(),
            Some(known) => known,
            None if self.reduced == REDUCED_MAX => state.clone(),
            None => self.reduce(at, state)?,
        };
        let place = |number| {
            let (offset, len) = at.plan.place(&reduced, number)?;
            Some(Place {
                number,
                offset,
                len,
            })
        };
        let writes = named(&reduced.pattern);
        Ok(Failure {
            workload: at.workload.name.clone(),
            steps: at.workload.to_string(),
            state: state.clone(),
            recovery: recovery.cloned(),
            said,
            findings: verdict.words(),
            writes: writes.into_iter().filter_map(place).collect(),
            replay: self.command(&at.workload.name, &reduced, recovery),
            reduced,
        })
    }

    /// The command that tries a state again, or one of its recovery. Only a log has exactly the
    /// same state.
    fn command(&self, workload: &str, state: &State, recovery: Option<&State>) -> String {
        match self.log_path(workload) {
            Some(path) => {
                // What else was planted is in the log.
                let in_recovery = self.options.plant.filter(|fault| fault.is_in_recovery());
                let plant = in_recovery.map_or(String::new(), |fault| format!(" --plant {fault}"));
                let path = path.display();
                let inner = recovery.map_or(String::new(), |state| format!(" --recovery {state}"));
                format!("azekura verify crash --replay {path}{plant} --state {state}{inner}")
            }
            None => {
                let (target, seed) = (self.target.name(), self.options.seed);
                let mut options = String::new();
                if !self.options.mount_options.is_empty() {
                    options += &format!(" --mount-options {}", self.options.mount_options);
                }
                if let Some(plant) = self.options.plant {
                    options += &format!(" --plant {plant}");
                }
                if self.options.sector_bytes != SECTOR_BYTES_DEFAULT {
                    options += &format!(" --sector {}", self.options.sector_bytes);
                }
                format!(
                    "azekura verify crash --target {target}{options} --workload {workload} \
                     --seed {seed}"
                )
            }
        }
    }

    fn log_path(&self, workload: &str) -> Option<PathBuf> {
        let directory = self.options.keep.as_deref()?;
        let (target, workload) = (self.target.name(), workload.replace(':', "-"));
        Some(directory.join(format!("{target}-{workload}.azkc")))
    }

    fn keep(&self, log: &Log, workload: &Workload) -> Result<(), CrashError> {
        let Some(path) = self.log_path(&workload.name) else {
            return Ok(());
        };
        write_log(log, &path).map_err(|source| CrashError::Keep { path, source })
    }
}

fn write_log(log: &Log, path: &Path) -> std::io::Result<()> {
    use std::io::Write;
    let mut file = BufWriter::new(File::create(path)?);
    log.write_to(&mut file)?;
    file.flush()?;
    file.get_ref().sync_all()
}
