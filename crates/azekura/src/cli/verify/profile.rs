//! `azekura verify run`: all that can be verified, and its report, by one command.
//!
//! The directory of a run has the result of each part, and the report. A part whose result is
//! there, of the same command, release and kernel, is not run again: so a run that was ended in any
//! way goes on where it was.

use super::part::{self, Bounds, Ended, Said};
use super::{head, matrix, print, profile_print, report};
use crate::cli::store::Interrupt;
use crate::config::Span;
use crate::errors::{Code, Context, Failure, Result};
use crate::output;
use crate::progress::Progress;
use ::verify::actor::{RunLock, lock_run};
use ::verify::crash::Target;
use ::verify::powercut::Summary;
use ::verify::profile::{Budget, Given, Part, Parts, Profile, Share};
use ::verify::results::{Found, Kind, Run as Outcome};
use ::verify::speed::{LeftOut, MACHINE};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Who holds a lock on this runs a profile: it is there on every machine, and what measures locks
/// another one.
const PROFILES: &str = "/proc/sys";
/// The code of what was promised and lost.
const LOSS: &str = "AZ1201";

/// Verify everything that can be verified here, and write the report
///
/// The profile `quick` takes at most five minutes: crash states, speed, tuning and power cuts, each
/// as far as its share of the time goes; what does not fit is left out and named. The profile
/// `full` has all sequences and states, all sizes of memory, flush times and parameters, and every
/// file system; it takes days, and the same command goes on where an earlier one was ended.
///
/// The directory gets a result for each part, report.html with all of them, and report.csv. What
/// cannot be done here is named with what is missing for it, and the command ends with exit code 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura verify run --out quick
  azekura verify run --out quick --part crash-ext4,crash-store --budget 1m
  azekura verify run --profile full --out full")]
pub(in crate::cli) struct Run {
    /// quick or full
    #[arg(long, value_name = "NAME", default_value = "quick", value_parser = profile)]
    profile: Profile,
    /// Where results and report go; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Only these parts; --dry-run lists them
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    part: Vec<String>,
    /// How long it may take: 5m for quick, as long as it takes for full, unless said otherwise
    #[arg(long, value_name = "TIME")]
    budget: Option<Span>,
    /// Where the files of devices are made: $TMPDIR, or /var/tmp, unless said otherwise
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn profile(text: &str) -> Result<Profile, String> {
    let names = Profile::ALL.map(Profile::name).join(", ");
    Profile::by_name(text).ok_or(format!("there are {names}"))
}

/// What became of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its result was there.
    Kept,
    Done,
    /// Its time was over: what it had found until then is there.
    Early,
    /// Some of it failed, now or when its result was made.
    Partly,
    Failed,
    /// It was not begun.
    LeftOut,
    /// It does not exist on this machine.
    Absent,
}

/// A part and what became of it.
pub(super) struct Told {
    pub(super) name: String,
    pub(super) state: State,
    /// What was found, or why nothing was.
    pub(super) words: String,
    pub(super) said: Said,
    pub(super) time: Duration,
    pub(super) file: Option<PathBuf>,
    pub(super) command: String,
    /// Something that was promised is lost.
    pub(super) is_loss: bool,
}

/// A run of a profile.
struct Course {
    profile: Profile,
    directory: PathBuf,
    parts: Parts,
    _locks: [RunLock; 2],
}

impl Run {
    pub(super) fn run(self) -> Result<()> {
        let parts = self.parts()?;
        if self.dry_run {
            return self.plan(&parts);
        }
        std::fs::create_dir_all(&self.out).context(self.out.display())?;
        let interrupt = Interrupt::watch()?;
        let course = Course {
            profile: self.profile,
            directory: self.out.clone(),
            _locks: locks(&self.out, &parts)?,
            parts,
        };
        let started = Instant::now();
        let told = course.run(self.time(), started, &interrupt)?;
        let page = course.report(&told)?;
        self.tell(
            &told,
            page.as_deref(),
            started.elapsed(),
            interrupt.is_wanted(),
        )
    }

    fn time(&self) -> Option<Duration> {
        self.budget.map(|span| span.0).or(self.profile.time())
    }

    fn parts(&self) -> Result<Parts> {
        let scratch = self.scratch.as_deref();
        let scratch = scratch
            .map(|path| matrix::scratch(Some(path)))
            .transpose()?;
        let out = std::path::absolute(&self.out).context(self.out.display())?;
        let text = |path: &Path| {
            let text = path.to_str().map(str::to_owned);
            text.ok_or_else(|| matrix::refused(format!("{} is not UTF-8", path.display())))
        };
        let given = Given {
            is_root: rustix::process::geteuid().is_root(),
            made: Target::ALL
                .into_iter()
                .filter(|target| target.check_tools().is_ok())
                .collect(),
            memory_bytes: memory_bytes(),
            scratch: scratch.as_deref().map(text).transpose()?,
            directory: text(&out)?,
        };
        let mut parts = Parts::new(self.profile, &given);
        if !self.part.is_empty() {
            parts.only(&self.part).map_err(matrix::refused)?;
        }
        Ok(parts)
    }

    /// Says what would be done.
    fn plan(&self, parts: &Parts) -> Result<()> {
        let planned = parts.parts.iter().map(|part| {
            let file = file(&self.out, self.profile, part);
            let run = is_kept(&file, part).then(|| result(&file)).flatten();
            (part, run.map(|run| kept(&run, &file).0))
        });
        let planned: Vec<(&Part, Option<State>)> = planned.collect();
        match self.json {
            true => output::json(&profile_print::plan_json(&planned, &parts.absent)),
            false => output::write(&profile_print::plan_text(&planned, &parts.absent)),
        }
    }

    fn tell(
        &self,
        told: &[Told],
        page: Option<&Path>,
        time: Duration,
        was_interrupted: bool,
    ) -> Result<()> {
        let facts = profile_print::Facts {
            profile: self.profile,
            told,
            page,
            time,
            was_interrupted,
        };
        match self.json {
            true => output::json(&facts.json())?,
            false => output::write(&facts.text())?,
        }
        let goes_on = "the same command goes on where this one was";
        if was_interrupted {
            let done = told.iter().filter(|one| one.file.is_some()).count();
            let message = format!("interrupted; {done} of {} parts have a result", told.len());
            return Err(Failure::interrupted(message).hint(goes_on));
        }
        let lost: Vec<&str> = told
            .iter()
            .filter(|one| one.is_loss)
            .map(|one| one.name.as_str())
            .collect();
        if !lost.is_empty() {
            let message = format!("something that was promised is lost: {}", lost.join(", "));
            return Err(Failure::new(Code::CrashLoss, message).hint("the report says what"));
        }
        let missing: Vec<String> = told
            .iter()
            .filter(|one| is_missing(self.profile, one.state))
            .map(|one| format!("{}: {}", one.name, one.words))
            .collect();
        match missing.is_empty() {
            true => Ok(()),
            false => {
                let message = format!("not everything could be done: {}", missing.join("; "));
                Err(Failure::new(
                    Code::ProfileIncomplete,
                    output::plain(&message),
                ))
            }
        }
    }
}

/// Whether a part in this state is a failure of the run: in the quick profile, not to be done in
/// time is none.
fn is_missing(profile: Profile, state: State) -> bool {
    match state {
        State::Kept | State::Done => false,
        State::Early | State::LeftOut => profile == Profile::Full,
        State::Partly | State::Failed | State::Absent => true,
    }
}

/// The locks of a run: on its directory, and on the machine. If it measures, nobody else may.
fn locks(directory: &Path, parts: &Parts) -> Result<[RunLock; 2]> {
    let lock = |path: &Path| {
        let lock = lock_run(path).context(path.display())?;
        let busy = || Failure::new(Code::SpeedBusy, "another run measures on this machine");
        lock.ok_or_else(busy)
    };
    let own = lock_run(directory).context(directory.display())?;
    let own = own.ok_or_else(|| {
        let directory = output::plain(&directory.display().to_string());
        Failure::new(Code::SpeedBusy, format!("another run works in {directory}"))
    })?;
    let machine = lock(Path::new(PROFILES))?;
    let measures = |part: &Part| matches!(part.kind, Kind::Speed | Kind::Tune);
    if parts.parts.iter().any(measures) {
        lock(Path::new(MACHINE)).map(drop)?;
    }
    Ok([own, machine])
}

fn memory_bytes() -> u64 {
    let said = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    memory_of(&said).unwrap_or_default()
}

fn memory_of(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

/// The result of a part.
fn file(directory: &Path, profile: Profile, part: &Part) -> PathBuf {
    directory.join(format!("{}-{}.json", profile.name(), part.name))
}

fn result(file: &Path) -> Option<Outcome> {
    let runs = report::read(&[file.to_owned()]).ok()?;
    runs.into_iter().next()
}

/// Whether a part has been done already: by the same command, release and kernel, to its end.
fn is_kept(file: &Path, part: &Part) -> bool {
    let Some(run) = result(file) else {
        return false;
    };
    // The kernel of machines is the command's matter.
    let is_here = run.head.kernel == print::kernel() || run.head.kind == Kind::Powercut;
    let is_same = run.head.command == head::command(&part.arguments);
    is_here && is_same && run.head.release == head::RELEASE && !run.head.was_interrupted
}

/// What of it failed, in words: nothing if it is whole.
fn failed(run: &Outcome) -> Vec<String> {
    let words = |all: &[LeftOut]| {
        let words = all.iter().map(|one| format!("{}: {}", one.what, one.why));
        words.collect()
    };
    match &run.found {
        Found::Crash(_) => Vec::new(),
        Found::Powercut(cuts) => cuts.failed.clone(),
        Found::Speed(speeds) => words(&speeds.outcome.failed),
        Found::Tune(tuning) => words(&tuning.failed),
    }
}

/// What became of a part whose result was there. One in which something failed stays so: it is not
/// made again, which may take days and end alike.
fn kept(run: &Outcome, file: &Path) -> (State, String) {
    let (found, failed) = (summary(run), failed(run));
    if failed.is_empty() {
        return (State::Kept, found);
    }
    let (failed, file) = (failed.join("; "), file.display());
    let words = format!("{found}; {failed} (it is made again when {file} is removed)");
    (State::Partly, words)
}

/// What was found, in a few words.
fn summary(run: &Outcome) -> String {
    match &run.found {
        Found::Crash(outcomes) => {
            let states: u64 = outcomes.iter().map(|one| one.totals.states).sum();
            let bad: u64 = outcomes.iter().map(|one| one.totals.bad_states).sum();
            format!("{states} states, {bad} wrong")
        }
        Found::Powercut(cuts) => {
            let all: u64 = cuts.cells.iter().map(|cell| cell.cuts).sum();
            let lost: u64 = cuts.cells.iter().map(|cell| cell.lost_acks).sum();
            let gone: u64 = cuts.cells.iter().map(Summary::unmountable).sum();
            let all = output::count(all, "cut");
            format!("{all}, {lost} lost what was synced, {gone} cannot be mounted")
        }
        Found::Speed(speeds) => {
            let repeats = speeds.outcome.samples.len() as u64;
            let cells = output::count(speeds.outcome.cells.len() as u64, "cell");
            format!("{} of {cells}", output::count(repeats, "repeat"))
        }
        Found::Tune(tuning) => output::count(tuning.points.len() as u64, "point"),
    }
}

fn is_loss(run: &Outcome) -> bool {
    match &run.found {
        Found::Crash(outcomes) => outcomes.iter().any(|one| one.broken_promises() > 0),
        Found::Powercut(cuts) => {
            let mut cells = cuts.cells.iter();
            cells.any(|cell| cell.lost_acks > 0 || cell.unmountable() > 0)
        }
        Found::Speed(_) | Found::Tune(_) => false,
    }
}

impl Course {
    fn file(&self, part: &Part) -> PathBuf {
        file(&self.directory, self.profile, part)
    }

    /// Runs all parts that are not done yet.
    fn run(
        &self,
        time: Option<Duration>,
        started: Instant,
        interrupt: &Interrupt,
    ) -> Result<Vec<Told>> {
        let parts = &self.parts.parts;
        let kept: Vec<bool> = parts
            .iter()
            .map(|one| is_kept(&self.file(one), one))
            .collect();
        let left = parts.iter().zip(&kept).filter(|(_, is_kept)| !**is_kept);
        let mut budget = Budget::new(time, left.map(|(part, _)| part.weight));
        let bar = match time {
            Some(time) => Progress::time("verifying", u64::try_from(time.as_millis()).unwrap_or(0)),
            None => Progress::count("verifying", parts.len() as u64),
        };
        let mut told = Vec::new();
        for (done, (part, is_kept)) in (0..).zip(parts.iter().zip(kept)) {
            let tell = || match time {
                Some(_) => {
                    let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                    bar.set_of(millis, &part.name);
                }
                None => bar.set_of(done, &part.name),
            };
            tell();
            told.push(match (is_kept, interrupt.is_wanted()) {
                (true, _) => self.kept(part),
                (false, true) => self.left_out(part, "it was not begun"),
                (false, false) => {
                    let share = budget.take(started.elapsed(), part.weight, part.least);
                    self.part(part, share, budget.grace(), interrupt, &tell)?
                }
            });
        }
        bar.finish();
        for absent in &self.parts.absent {
            told.push(Told {
                name: absent.name.clone(),
                state: State::Absent,
                words: absent.why.clone(),
                said: Said::default(),
                time: Duration::ZERO,
                file: None,
                command: String::new(),
                is_loss: false,
            });
        }
        Ok(told)
    }

    /// `run` is the result that the part has; what else may lie at its place, of another command or
    /// release or of a run that was ended, is none of this run.
    fn told(&self, part: &Part, state: State, words: String, run: Option<&Outcome>) -> Told {
        Told {
            name: part.name.clone(),
            state,
            words,
            said: Said::default(),
            time: Duration::ZERO,
            is_loss: run.is_some_and(is_loss),
            file: run.map(|_| self.file(part)),
            command: head::command(&part.arguments),
        }
    }

    fn kept(&self, part: &Part) -> Told {
        let file = self.file(part);
        let run = result(&file);
        let found = run.as_ref().map(|run| kept(run, &file));
        let (state, words) = found.unwrap_or((State::Kept, String::new()));
        self.told(part, state, words, run.as_ref())
    }

    fn left_out(&self, part: &Part, why: &str) -> Told {
        self.told(part, State::LeftOut, why.to_owned(), None)
    }

    fn part(
        &self,
        part: &Part,
        share: Share,
        grace: Duration,
        interrupt: &Interrupt,
        tell: &dyn Fn(),
    ) -> Result<Told> {
        let share = match share {
            Share::Unbounded => None,
            Share::Bounded(share) => Some(share),
            Share::TooShort(share) => {
                let (left, needed) = (output::span(share), output::span(part.least));
                let why = format!("{left} of the time are left for it, and it needs {needed}");
                return Ok(self.left_out(part, &why));
            }
        };
        let file = self.file(part);
        part::clean_up(&file);
        let bounds = Bounds {
            share,
            grace,
            is_wanted: &|| !interrupt.is_wanted(),
            tell,
        };
        let ended = part::run(part, &file, &bounds)?;
        Ok(self.ended(part, ended, share))
    }

    fn ended(&self, part: &Part, ended: Ended, share: Option<Duration>) -> Told {
        let (state, words) = judged(&ended, share);
        let told = self.told(part, state, words, ended.run.as_ref());
        Told {
            said: ended.said.unwrap_or_default(),
            time: ended.time,
            ..told
        }
    }

    /// Writes the report of what is there; nothing is a report of nothing.
    fn report(&self, told: &[Told]) -> Result<Option<PathBuf>> {
        let files: Vec<PathBuf> = told.iter().filter_map(|one| one.file.clone()).collect();
        if files.is_empty() {
            return Ok(None);
        }
        let runs = report::read(&files)?;
        let page = self.directory.join("report.html");
        report::write_page(&page, &runs)?;
        report::write_csv(&self.directory.join("report.csv"), &runs)?;
        Ok(Some(page))
    }
}

/// What became of a part that was run, and in which words.
fn judged(ended: &Ended, share: Option<Duration>) -> (State, String) {
    let why = ended.said.as_ref().map(|said| said.message.clone());
    let share = share.map_or(String::new(), output::span);
    let Some(run) = &ended.run else {
        return match (ended.is_over, why) {
            (true, _) => (State::LeftOut, format!("it had no result after {share}")),
            (false, Some(why)) => (State::Failed, why),
            (false, None) => (State::Failed, "it ended without a result".to_owned()),
        };
    };
    let found = summary(run);
    if ended.is_over && run.head.was_interrupted {
        return (
            State::Early,
            format!("{found}; its share of the time was {share}"),
        );
    }
    let failed = failed(run);
    if !(failed.is_empty() || run.head.was_interrupted) {
        return (State::Partly, format!("{found}; {}", failed.join("; ")));
    }
    match &ended.said {
        // Who asked for the end is told that at last.
        Some(said) if said.code != LOSS && !run.head.was_interrupted => {
            (State::Partly, format!("{found}; {}", said.message))
        }
        Some(_) if run.head.was_interrupted => (State::Early, found),
        _ => (State::Done, found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::verify::results::{Cuts, Head};

    fn run(was_interrupted: bool) -> Outcome {
        Outcome {
            name: "x".into(),
            head: Head {
                kind: Kind::Crash,
                date: String::new(),
                command: String::new(),
                release: String::new(),
                kernel: String::new(),
                load: String::new(),
                seed: 1,
                was_interrupted,
            },
            found: Found::Crash(Vec::new()),
        }
    }

    fn ended(run: Option<Outcome>, code: &str, is_over: bool) -> Ended {
        let said = Said {
            message: "why".into(),
            hint: String::new(),
            code: code.into(),
        };
        Ended {
            run,
            said: Some(said).filter(|said| !said.code.is_empty()),
            is_over,
            time: Duration::ZERO,
        }
    }

    #[test]
    fn what_became_of_a_part_follows_from_its_result_and_its_end() {
        let share = Some(Duration::from_secs(9));
        let cases = [
            (ended(Some(run(false)), "", false), State::Done),
            (ended(Some(run(false)), "AZ1201", false), State::Done),
            (ended(Some(run(false)), "AZ1206", false), State::Partly),
            (ended(Some(run(true)), "AZ0004", true), State::Early),
            (ended(Some(run(true)), "AZ1201", true), State::Early),
            (ended(Some(run(true)), "AZ0004", false), State::Early),
            // It was done in the moment in which its time was over.
            (ended(Some(run(false)), "", true), State::Done),
            (ended(None, "AZ1202", false), State::Failed),
            (ended(None, "", false), State::Failed),
            (ended(None, "AZ0004", true), State::LeftOut),
        ];
        for (ended, known) in cases {
            let (state, words) = judged(&ended, share);
            assert_eq!(state, known, "{words}: {ended:?}");
        }
    }

    /// A result of power cuts with these cells that were given up.
    fn cuts(failed: &[&str]) -> Outcome {
        Outcome {
            found: Found::Powercut(Cuts {
                cells: Vec::new(),
                failed: failed.iter().map(|one| (*one).to_owned()).collect(),
                left_out: Vec::new(),
                memory_bytes: 1 << 29,
            }),
            ..run(false)
        }
    }

    #[test]
    fn what_is_there_in_part_stays_in_part() {
        let file = Path::new("/x/quick-powercut.json");
        let (state, words) = kept(&cuts(&["jfs close: no answer"]), file);
        assert_eq!(state, State::Partly);
        assert!(words.contains("jfs close: no answer"), "{words}");
        assert!(words.contains("quick-powercut.json is removed"), "{words}");
        assert!(is_missing(Profile::Quick, state));
        assert_eq!(kept(&cuts(&[]), file).0, State::Kept);
        // Also if something that was promised is lost beside it.
        let lost = ended(Some(cuts(&["jfs close: no answer"])), "AZ1201", false);
        assert_eq!(judged(&lost, None).0, State::Partly);
        let whole = ended(Some(cuts(&[])), "AZ1201", false);
        assert_eq!(judged(&whole, None).0, State::Done);
    }

    #[test]
    fn in_a_quick_run_only_what_cannot_be_is_a_failure() {
        for state in [State::Early, State::LeftOut] {
            assert!(!is_missing(Profile::Quick, state) && is_missing(Profile::Full, state));
        }
        for profile in Profile::ALL {
            assert!(is_missing(profile, State::Failed) && is_missing(profile, State::Absent));
            assert!(!is_missing(profile, State::Done) && !is_missing(profile, State::Kept));
        }
    }

    /// A result of this part by another command.
    const OTHERS: &str = r#"{"kind":"crash","version":1,"kernel":"Linux 6","seed":1,"targets":[]}"#;

    #[test]
    fn what_this_run_did_not_make_is_not_told_as_its_result() {
        let directory = tempfile::tempdir().unwrap();
        let lock = |name: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir(&path).unwrap();
            lock_run(&path).unwrap().expect("nobody else has it")
        };
        let part = Part {
            name: "crash-ext4".into(),
            kind: Kind::Crash,
            arguments: vec!["verify".into(), "crash".into()],
            weight: 1,
            least: Duration::ZERO,
        };
        let course = Course {
            profile: Profile::Quick,
            directory: directory.path().to_owned(),
            parts: Parts::default(),
            _locks: [lock("one"), lock("two")],
        };
        let file = course.file(&part);
        std::fs::write(&file, OTHERS).unwrap();
        assert!(result(&file).is_some() && !is_kept(&file, &part));
        assert_eq!(course.left_out(&part, "no time").file, None);
        let failed = course.ended(&part, ended(None, "AZ1202", false), None);
        assert_eq!((failed.state, &failed.file), (State::Failed, &None));
        assert_eq!(course.report(&[failed]).unwrap(), None);
        let done = course.ended(&part, ended(Some(run(false)), "", false), None);
        assert_eq!((done.state, done.file), (State::Done, Some(file)));
    }

    #[test]
    fn memory_is_read_as_the_kernel_tells_it() {
        let said = "MemFree:  1 kB\nMemTotal:       16384 kB\n";
        assert_eq!(memory_of(said), Some(16 << 20));
        assert_eq!(memory_of("MemFree: 1 kB\n"), None);
        assert!(memory_bytes() > 1 << 20);
    }
}
