//! The operations of SPECsfs2008 (the paper's Table 3) on trees with the lengths of its Table 2,
//! by the export's own code, as a server of many clients makes them.
//!
//! Two questions, two mixes. *What do rich ACLs cost who does not look at them?* The operations as
//! they are, with rich ACLs on and off. *Which rule for storing is the best?* The same with a look
//! at the rich ACL in the place of each ACCESS, as Samba and clients of NFSv4 take one; with rich
//! ACLs off the look is at the POSIX ACL.
//!
//! Every mode begins with a copy of the same image, mounted anew. A pass goes over the files as
//! the benchmark does: three in ten are used at all, four times each on average. The first pass is
//! cold, the second, the same once more, is warm. Views are stored by a thread of its own beside
//! it, as in the server. *Ahead* are modes whose views were all stored before the mount. Each rule
//! is measured with lists and views kept in memory, as the server keeps them, and without (the
//! paper's `c` and `n`).
//!
//! One thread, so a rate is the inverse of the mean response time; what several clients at once get
//! is in [`crate::load`].

use crate::Cli;
use crate::lists::Service;
use crate::place::{Kind, open, open_keeping, served};
use crate::report::{Goal, Report, median};
use crate::tree::{FILE_BYTES, Found, Tree, somebody};
use acl::{Costs, Policy};
use anyhow::{Context, Result};
use base::{Access, AttributeChange, Handle, Name, Principal, Rights, SetTime};
use bytes::BytesMut;
use export::{Create, Export, OpenOptions, ViewWalk, ViewWork, Worker};
use figures::{Chart, Colour, Random, Series};
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The part of the files that is used, and how often each is on average.
const USED_PART: f64 = 0.3;
const USES: f64 = 4.0;
pub(crate) const LISTED_MAX: usize = 64;
const NFS4: &[u8] = b"system.nfs4_acl";
const POSIX: &[u8] = b"system.posix_acl_access";
/// How long the thread that stores waits for something to store.
const STORING_TIME: Duration = Duration::from_millis(5);
/// What rich ACLs may take away, cold and warm.
const COLD_GOAL: f64 = 0.98;
const WARM_GOAL: f64 = 0.995;
/// How much less than the best fixed rule counts as no less: what rounds differ by anyway.
const EQUAL: f64 = 0.99;

/// An operation, with its part in a hundred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Lookup,
    Read,
    Write,
    Attributes,
    ReadLink,
    List,
    Create,
    Remove,
    Space,
    SetTimes,
    ListPlus,
    Judge,
}

/// The paper's Table 3.
const OPS: [(Op, u64); 12] = [
    (Op::Lookup, 24),
    (Op::Read, 18),
    (Op::Write, 10),
    (Op::Attributes, 26),
    (Op::ReadLink, 1),
    (Op::List, 1),
    (Op::Create, 1),
    (Op::Remove, 1),
    (Op::Space, 1),
    (Op::SetTimes, 4),
    (Op::ListPlus, 2),
    (Op::Judge, 11),
];

/// How a tree is served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mode {
    pub(crate) name: &'static str,
    /// None with rich ACLs off.
    policy: Option<Policy>,
    /// Whether the lists are looked at.
    has_looks: bool,
    /// Whether views were stored before.
    is_ahead: bool,
    /// Whether lists and views are kept in memory.
    pub(crate) is_kept: bool,
}

impl Mode {
    /// Its name, apart from those of all others.
    fn label(&self) -> String {
        match self.is_kept {
            true => self.name.to_owned(),
            false => format!("{}, not kept", self.name),
        }
    }
}

const fn mode(name: &'static str, policy: Option<Policy>, has_looks: bool, is_ahead: bool) -> Mode {
    Mode {
        name,
        policy,
        has_looks,
        is_ahead,
        is_kept: true,
    }
}

const fn from(from: u32, to: Option<u32>) -> Option<Policy> {
    Some(Policy::Entries { from, to })
}

/// The paper's conditions 0 to 3 are `always`, `4+`, `6+` and `6..34`.
const KEPT: [Mode; 13] = [
    mode("off", None, false, false),
    mode("on", Some(Policy::Measured), false, false),
    mode("POSIX", None, true, false),
    mode("measured", Some(Policy::Measured), true, false),
    mode("never", Some(Policy::Never), true, false),
    mode("always", Some(Policy::Always), true, false),
    mode("4+", from(4, None), true, false),
    mode("6+", from(6, None), true, false),
    mode("6..34", from(6, Some(34)), true, false),
    mode("always, ahead", Some(Policy::Always), true, true),
    mode("4+, ahead", from(4, None), true, true),
    mode("6+, ahead", from(6, None), true, true),
    mode("6..34, ahead", from(6, Some(34)), true, true),
];
/// With lists in memory, then without, but for those to which that makes no difference.
pub(crate) const MODES: [Mode; KEPT.len() + WITHOUT.len()] = {
    let mut modes = [KEPT[OFF]; KEPT.len() + WITHOUT.len()];
    let mut index = 0;
    while index < modes.len() {
        modes[index] = match index.checked_sub(KEPT.len()) {
            None => KEPT[index],
            Some(place) => Mode {
                is_kept: false,
                ..KEPT[WITHOUT[place]]
            },
        };
        index += 1;
    }
    modes
};
/// Those of the first that are measured without as well.
const WITHOUT: [usize; 11] = [ON, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
const OFF: usize = 0;
const ON: usize = 1;
pub(crate) const LOOKS_POSIX: usize = 2;
pub(crate) const MEASURED: usize = 3;
pub(crate) const NEVER: usize = 4;
pub(crate) const ALWAYS: usize = 5;
pub(crate) const SIX: usize = 7;
/// Rules that are fixed, without those whose views were stored ahead.
const FIXED: std::ops::Range<usize> = 4..9;

/// The same mode with lists in memory or without, if it has one of each kind.
fn with_lists(mode: usize, is_kept: bool) -> usize {
    match WITHOUT.iter().position(|with| *with == mode) {
        Some(place) if !is_kept => KEPT.len() + place,
        _ => mode,
    }
}

/// Both passes of one mode in one round.
#[derive(Clone, Copy, Debug, Serialize)]
struct Passed {
    cold_per_second: f64,
    warm_per_second: f64,
    /// Reads of the device in the first pass.
    cold_reads: u64,
}

/// All rounds on one file system with one service.
#[derive(Serialize)]
struct Rounds {
    file_system: Kind,
    service: &'static str,
    modes: Vec<String>,
    /// By mode, then round.
    passed: Vec<Vec<Passed>>,
    operations: usize,
}

pub(crate) fn measure(cli: &Cli, report: &mut Report) -> Result<()> {
    let mut all = Vec::new();
    for kind in &cli.file_systems {
        for service in Service::ALL {
            eprintln!("mix: {kind}, {}", service.name());
            let tree = Tree::new(cli, *kind, service)?;
            let costs = calibrate(&tree)?;
            let mut rounds = Rounds {
                file_system: *kind,
                service: service.name(),
                modes: MODES.iter().map(Mode::label).collect(),
                passed: vec![Vec::new(); MODES.len()],
                operations: operations(cli),
            };
            for round in 0..cli.repeat {
                for turn in 0..MODES.len() {
                    // Each begins as often as the others.
                    let index = (turn + round) % MODES.len();
                    let passed = run(&tree, &MODES[index], &costs, rounds.operations)?;
                    rounds.passed[index].push(passed);
                }
            }
            rounds.tell(report);
            all.push(rounds);
        }
    }
    for service in Service::ALL {
        report.chart(chart(&all, service));
    }
    report.section("mix", &all)
}

/// How many operations a pass has.
pub(crate) fn operations(cli: &Cli) -> usize {
    (cli.files as f64 * USED_PART * USES) as usize
}

pub(crate) fn calibrate(tree: &Tree) -> Result<Costs> {
    let copy = tree.image.copy()?;
    let mounted = copy.mount()?;
    let export = open(mounted.path())?;
    let calibrated = served(&export, |worker| Ok(export.calibrate_views(worker)?))?;
    drop(export);
    Ok(calibrated.costs)
}

fn run(tree: &Tree, mode: &Mode, costs: &Costs, operations: usize) -> Result<Passed> {
    let image = tree.image.copy()?;
    if mode.is_ahead {
        let mounted = image.mount()?;
        let export = open(mounted.path())?;
        set(&export, mode, costs);
        served(&export, |worker| convert(&export, worker))?;
        drop(export);
    }
    let mounted = image.mount()?;
    let export = open_keeping(mounted.path(), mode.is_kept)?;
    set(&export, mode, costs);
    let is_over = AtomicBool::new(false);
    let reads = mounted.reads()?;
    let passed = thread::scope(|scope| {
        let storing = scope.spawn(|| store_meanwhile(&export, &is_over));
        let passing = served(&export, |worker| {
            let mut client = Client::new(&export, worker, &tree.found, mode);
            let cold = client.pass(operations, 0)?;
            let cold_reads = mounted.reads()? - reads;
            let warm = client.pass(operations, 1)?;
            Ok(Passed {
                cold_per_second: operations as f64 / cold.as_secs_f64(),
                warm_per_second: operations as f64 / warm.as_secs_f64(),
                cold_reads,
            })
        });
        is_over.store(true, Ordering::Relaxed);
        storing.join().expect("a thread does not panic")?;
        passing
    });
    drop(export);
    passed.with_context(|| format!("mode {}", mode.label()))
}

/// Stores the views that requests ask for, as the server does beside them.
pub(crate) fn store_meanwhile(export: &Export, is_over: &AtomicBool) -> Result<()> {
    let worker = Worker::new()?;
    while !is_over.load(Ordering::Relaxed) {
        export.store_views(&worker, STORING_TIME);
    }
    Ok(())
}

pub(crate) fn set(export: &Export, mode: &Mode, costs: &Costs) {
    export.set_rich(mode.policy.is_some());
    if let Some(policy) = mode.policy {
        export.set_storing(policy, costs.clone());
    }
}

/// Stores the views of all files that the rule says.
fn convert(export: &Export, worker: &Worker) -> Result<()> {
    let mut walk = ViewWalk::new(export, ViewWork::Convert { all: false }, false, Vec::new());
    while !walk.is_over() {
        export.walk_views(worker, &mut walk, Duration::from_secs(1))?;
    }
    Ok(())
}

/// Who makes the operations.
pub(crate) struct Client<'a> {
    export: &'a Export,
    worker: &'a Worker,
    found: &'a Found,
    who: Principal,
    has_looks: bool,
    /// Names that it has made.
    made: Vec<(usize, Name)>,
    buffer: BytesMut,
}

impl<'a> Client<'a> {
    pub(crate) fn new(
        export: &'a Export,
        worker: &'a Worker,
        found: &'a Found,
        mode: &Mode,
    ) -> Self {
        Self {
            export,
            worker,
            found,
            who: somebody(),
            has_looks: mode.has_looks,
            made: Vec::new(),
            buffer: BytesMut::with_capacity(2 * FILE_BYTES),
        }
    }

    /// The same operations each time, but for names of new files.
    fn pass(&mut self, operations: usize, pass: usize) -> Result<Duration> {
        let mut random = Random::new(2012);
        let begin = Instant::now();
        for number in 0..operations {
            let file = self.file(&mut random);
            let op = drawn(&mut random);
            self.make(op, file, (pass, number))
                .with_context(|| format!("{op:?} of file {file}"))?;
        }
        Ok(begin.elapsed())
    }

    /// One of the files that are used; they lie all over the tree.
    pub(crate) fn file(&self, random: &mut Random) -> usize {
        used(self.found.files.len(), random)
    }

    pub(crate) fn make(&mut self, op: Op, file: usize, number: (usize, usize)) -> Result<()> {
        let Self {
            export,
            worker,
            found,
            ref who,
            ..
        } = *self;
        let (at, name, handle) = &found.files[file];
        let directory = &found.directories[*at];
        match op {
            Op::Lookup => drop(export.lookup(worker, who, directory, name)?),
            Op::Attributes => {
                export.attributes(worker, who, handle)?;
            }
            Op::Read => {
                let options = OpenOptions::new(Access::Read);
                let opened = export.open_file(worker, who, handle, options)?;
                self.buffer.clear();
                opened.read_at(0, FILE_BYTES, &mut self.buffer)?;
            }
            Op::Write => {
                let options = OpenOptions::new(Access::Write);
                let opened = export.open_file(worker, who, handle, options)?;
                opened.write_at(worker, who, 0, &[number.1 as u8; FILE_BYTES])?;
            }
            Op::ReadLink => drop(export.read_link(worker, who, &found.links[*at])?),
            Op::List | Op::ListPlus => {
                let plus = op == Op::ListPlus;
                drop(export.read_directory(worker, who, directory, 0, LISTED_MAX, plus)?);
            }
            Op::Create => {
                let name = Name::new(format!("new-{}-{}", number.0, number.1))?;
                let how = Create {
                    mode: 0o644,
                    umask: 0o022,
                    exclusive: true,
                    open: OpenOptions::new(Access::Write),
                };
                export.create(worker, who, directory, &name, &how)?;
                self.made.push((*at, name));
            }
            Op::Remove => {
                if let Some((at, name)) = self.made.pop() {
                    export.unlink(worker, who, &found.directories[at], &name)?;
                }
            }
            Op::Space => {
                export.statfs(worker, who, directory)?;
            }
            Op::SetTimes => {
                let change = AttributeChange {
                    accessed: Some(SetTime::Now),
                    modified: Some(SetTime::Now),
                    ..AttributeChange::default()
                };
                export.set_attributes(worker, who, handle, &change, None)?;
            }
            Op::Judge if self.has_looks => self.look(handle)?,
            Op::Judge => {
                let read = Rights {
                    read: true,
                    ..Rights::default()
                };
                export.check_access(worker, who, handle, read)?;
            }
        }
        Ok(())
    }

    fn look(&self, handle: &Handle) -> Result<()> {
        let name = if self.export.is_rich() { NFS4 } else { POSIX };
        let looked = self.export.get_xattr(self.worker, &self.who, handle, name);
        match looked {
            // That is how a file without a list answers.
            Err(base::FsError::NoData) if name == POSIX => Ok(()),
            looked => {
                looked?;
                Ok(())
            }
        }
    }
}

/// One of the files that are used, of so many that lie all over the tree.
pub(crate) fn used(files: usize, random: &mut Random) -> usize {
    let used = (files as f64 * USED_PART).ceil() as u64;
    random.below(used) as usize * files / used as usize
}

pub(crate) fn drawn(random: &mut Random) -> Op {
    let all = OPS.iter().map(|(_, part)| part).sum();
    let mut left = random.below(all);
    for (op, part) in OPS {
        if left < part {
            return op;
        }
        left -= part;
    }
    unreachable!("what is drawn is below the sum of all parts")
}

impl Rounds {
    fn rates(&self, mode: usize, is_cold: bool) -> Vec<f64> {
        let rate = |passed: &Passed| match is_cold {
            true => passed.cold_per_second,
            false => passed.warm_per_second,
        };
        self.passed[mode].iter().map(rate).collect()
    }

    /// One mode beside another, round by round.
    fn ratios(&self, mode: usize, beside: usize, is_cold: bool) -> Vec<f64> {
        let pairs = self.rates(mode, is_cold).into_iter();
        let pairs = pairs.zip(self.rates(beside, is_cold));
        pairs.map(|(ours, theirs)| ours / theirs).collect()
    }

    fn reads(&self, mode: usize) -> f64 {
        let reads = self.passed[mode]
            .iter()
            .map(|passed| passed.cold_reads as f64);
        median(&reads.collect::<Vec<_>>()) / self.operations as f64
    }

    fn tell(&self, report: &mut Report) {
        let place = format!("{}, {}", self.file_system, self.service);
        for (is_cold, word, goal) in [
            (true, "cold", Goal::at_least(COLD_GOAL, "at least 98 %")),
            (false, "warm", Goal::at_least(WARM_GOAL, "at least 99.5 %")),
        ] {
            let [ratios, without] =
                [true, false].map(|is_kept| self.ratios(with_lists(ON, is_kept), OFF, is_cold));
            let [off, on] = [OFF, ON].map(|mode| median(&self.rates(mode, is_cold)));
            let text = format!(
                "**{:.1} %** of {off:.0} operations/s ({:+.2} us each); {:.1} % without lists in \
                 memory",
                median(&ratios) * 100.0,
                (1.0 / on - 1.0 / off) * 1e6,
                median(&without) * 100.0
            );
            let what = format!("{place}: rich ACLs on, beside off, {word}");
            report.row(&what, &ratios, goal, text);
        }
        for is_kept in [true, false] {
            self.tell_best(report, &place, is_kept);
        }
        report.table(&self.markdown());
    }

    /// `measured` beside the fixed rule that was the fastest.
    fn tell_best(&self, report: &mut Report, place: &str, is_kept: bool) {
        let memory = if is_kept {
            ""
        } else {
            ", without lists in memory"
        };
        for (is_cold, word) in [(true, "cold"), (false, "warm")] {
            let fixed = FIXED.map(|mode| with_lists(mode, is_kept));
            let best = fixed.max_by(|a, b| {
                let rate = |mode: &usize| median(&self.rates(*mode, is_cold));
                rate(a).total_cmp(&rate(b))
            });
            let best = best.expect("there are rules");
            let ratios = self.ratios(with_lists(MEASURED, is_kept), best, is_cold);
            let text = format!(
                "**{:.1} %** of `{}`",
                median(&ratios) * 100.0,
                MODES[best].name
            );
            let what = format!("{place}: `measured` beside the best fixed rule{memory}, {word}");
            let goal = Goal::at_least(EQUAL, "at least as fast (within 1 %)");
            report.row(&what, &ratios, goal, text);
        }
    }

    fn markdown(&self) -> String {
        let mut out = format!(
            "**{}, {}**, with looks at lists: operations a second beside those with looks at \
             POSIX ACLs, lists kept in memory and not\n\n\
             | rule | cold | reads for each | warm | not kept: cold | reads for each | warm |\n\
             | --- | --- | --- | --- | --- | --- | --- |\n",
            self.file_system, self.service
        );
        out.push_str(&format!(
            "| POSIX ACLs, rich off | {:.0}/s | {:.2} | {:.0}/s | | | |\n",
            median(&self.rates(LOOKS_POSIX, true)),
            self.reads(LOOKS_POSIX),
            median(&self.rates(LOOKS_POSIX, false))
        ));
        let share = |mode, is_cold| median(&self.ratios(mode, LOOKS_POSIX, is_cold)) * 100.0;
        for (index, mode) in KEPT.iter().enumerate().skip(MEASURED) {
            out.push_str(&format!("| {} |", mode.name));
            for mode in [true, false].map(|is_kept| with_lists(index, is_kept)) {
                let (cold, warm) = (share(mode, true), share(mode, false));
                let reads = self.reads(mode);
                out.push_str(&format!(" {cold:.0} % | {reads:.2} | {warm:.0} % |"));
            }
            out.push('\n');
        }
        out
    }

    /// Shares of all rules, cold, from left to right.
    fn shares(&self, is_kept: bool) -> Vec<(f64, f64)> {
        let shares = (LOOKS_POSIX..KEPT.len()).map(|mode| {
            let mode = with_lists(mode, is_kept);
            median(&self.ratios(mode, LOOKS_POSIX, true)) * 100.0
        });
        (0..).map(f64::from).zip(shares).collect()
    }
}

/// Each rule, cold, on each file system, with lists in memory and without.
fn chart(all: &[Rounds], service: Service) -> Chart {
    let colours = [
        (Colour::Blue, Colour::SkyBlue),
        (Colour::Vermilion, Colour::Orange),
        (Colour::Green, Colour::Grey),
    ];
    let of_service = all.iter().filter(|rounds| rounds.service == service.name());
    let series = of_service
        .zip(colours)
        .flat_map(|(rounds, (with, without))| {
            let (name, n) = (rounds.file_system, format!("{} n", rounds.file_system));
            [
                Series::with_dots(&name.to_string(), with, rounds.shares(true)),
                Series::with_dots(&n, without, rounds.shares(false)),
            ]
        });
    let names = KEPT[LOOKS_POSIX..].iter().map(|mode| match mode.is_ahead {
        true => mode.name.replace(", ahead", "*"),
        false => mode.name.to_owned(),
    });
    Chart {
        title: format!("Operations a second by rule, cold: {}", service.name()),
        subtitle: "share of that with POSIX ACLs; * stored ahead, n not kept in memory".into(),
        x_label: "rule".to_owned(),
        x_names: names.collect(),
        y_label: "%".to_owned(),
        series: series.collect(),
        ..Chart::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_is_measured_with_lists_in_memory_and_without() {
        for (index, mode) in KEPT.iter().enumerate() {
            let [with, without] = [true, false].map(|is_kept| MODES[with_lists(index, is_kept)]);
            assert_eq!(with, *mode);
            let changes = mode.policy.is_some();
            let expected = Mode {
                is_kept: !changes,
                ..*mode
            };
            assert_eq!(without, expected);
        }
    }

    #[test]
    fn operations_come_as_often_as_in_the_papers_table() {
        assert_eq!(OPS.iter().map(|(_, part)| part).sum::<u64>(), 100);
        let mut random = Random::new(5);
        let judged = (0..100_000).filter(|_| drawn(&mut random) == Op::Judge);
        let judged = judged.count();
        assert!((10_500..11_500).contains(&judged), "{judged}");
    }
}
