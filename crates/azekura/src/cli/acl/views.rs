//! `azekura acl calibrate|convert|compact`: copies of what POSIX ACLs say beside the files.

use super::switch::asked;
use crate::address::VolumeAddress;
use crate::config::Config;
use crate::connect::WayArgs;
use crate::errors::{Code, Failure, Result};
use crate::output;
use crate::progress::Progress;
use acl::{Costs, Point};
use serde_json::{Value, json};
use std::time::Duration;
use wire::message::{AclCost, AclCosts, AclViewWork, AclViews, AclViewsAsk, AclWork, AclWorkState};

/// How often it is asked how far work on all files is.
const ASK_INTERVAL: Duration = Duration::from_millis(300);

/// Measure what looking at a view costs on a volume's file system, stored and not
///
/// In files without names, which are gone afterwards, in about a second. The policy `measured`
/// decides by it; it is measured once by itself when that policy is first in force. Nothing that
/// others have in memory is dropped: times are of calls that find everything in memory, and each
/// block that an inode has got by its attributes counts as a read, which is timed on a file of
/// which nothing is in memory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura acl calibrate 127.0.0.1:7700/office")]
pub(in crate::cli) struct Calibrate {
    /// HOST:PORT/VOLUME
    #[arg(value_name = "ADDR/VOLUME")]
    volume: VolumeAddress,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

/// Store views with all files of a volume now
///
/// With those for which the policy would ever store one; with all files at --all, which is what a
/// conversion before the move to rich ACLs amounts to. A view is not the truth: a file without one
/// shows the same. What is stored is looked at only where the policy would have stored it. It goes
/// on at the server when this command is interrupted; the same command shows it again, and --stop
/// ends it. Begun anew, also after a restart of the server, it passes by what is done.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura acl convert 127.0.0.1:7700/office --all")]
pub(in crate::cli) struct Convert {
    /// Those that the policy never stores as well
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    walk: Walk,
}

/// Remove what is stored with the files of a volume and says what mode and POSIX ACL say
///
/// Stored views, and rich ACLs that say just that, as they are there when a backup was restored by
/// a program that sets the list of each file; mode and POSIX ACL are the truth of these again.
/// Nobody's rights change by it. Other rich ACLs stay; `azekura acl rollback` takes those away.
///
/// What mode and POSIX ACL of these were before they got their lists is forgotten: a rollback
/// later does not bring it back. Roll back first where that is wanted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  azekura acl compact 127.0.0.1:7700/office --dry-run")]
pub(in crate::cli) struct Compact {
    #[command(flatten)]
    walk: Walk,
}

#[derive(Debug, clap::Args)]
struct Walk {
    /// HOST:PORT/VOLUME
    #[arg(value_name = "ADDR/VOLUME")]
    volume: VolumeAddress,
    /// Only count
    #[arg(long)]
    dry_run: bool,
    /// End what is under way
    #[arg(long, conflicts_with = "dry_run")]
    stop: bool,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
}

impl Calibrate {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let views = asked(config, &self.volume, &self.way, AclViewsAsk::Calibrate)?;
        let costs = views.costs.as_ref().ok_or_else(|| {
            let message = format!("{} has measured nothing", self.volume.server);
            Failure::new(Code::Protocol, message)
        })?;
        match self.json {
            true => output::json(&costs_json(costs)),
            false => output::write(&costs_text(costs)),
        }
    }
}

impl Convert {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let work = match self.all {
            true => AclViewWork::ConvertAll,
            false => AclViewWork::Convert,
        };
        self.walk.run(config, work)
    }
}

impl Compact {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        self.walk.run(config, AclViewWork::Compact)
    }
}

impl Walk {
    fn run(self, config: &Config, work: AclViewWork) -> Result<()> {
        let ask = |what| asked(config, &self.volume, &self.way, what);
        let begun = ask(match self.stop {
            true => AclViewsAsk::Stop,
            false => AclViewsAsk::Work {
                work,
                dry_run: self.dry_run,
            },
        })?;
        let mut at = begun.work;
        if let Some(other) = at.filter(|at| !self.stop && at.work != work) {
            let message = format!("{} is under way for {}", word(other.work), self.volume);
            return Err(Failure::new(Code::InUse, message)
                .hint("wait for its end, or end it with the same command and --stop"));
        }
        if self.stop {
            // What has ended by itself was not stopped.
            at = at.filter(|at| matches!(at.state, AclWorkState::Running | AclWorkState::Stopped));
        }
        let bar = Progress::count("looking at files", at.map_or(0, |at| at.files_max));
        while let Some(work) = at
            && work.state == AclWorkState::Running
        {
            std::thread::sleep(ASK_INTERVAL);
            at = ask(AclViewsAsk::Show)?.work;
            bar.set(at.map_or(0, |at| at.files));
        }
        bar.finish();
        let Some(done) = at else {
            return match self.json {
                true => output::json(&Value::Null),
                false => output::line("nothing is under way"),
            };
        };
        self.show(&done)
    }

    fn show(&self, done: &AclWork) -> Result<()> {
        if self.json {
            output::json(&work_json(done))?;
        } else {
            output::line(work_text(done))?;
        }
        let why = match done.state {
            AclWorkState::Running | AclWorkState::Done | AclWorkState::Stopped => return Ok(()),
            AclWorkState::ReadOnly => "the file system cannot be written",
            AclWorkState::Full => "the file system is full, or nearly",
        };
        let message = format!(
            "{} of {} has ended early: {why}",
            word(done.work),
            self.volume
        );
        Err(Failure::new(Code::ServerDisk, message))
    }
}

fn word(work: AclViewWork) -> &'static str {
    match work {
        AclViewWork::Convert => "convert",
        AclViewWork::ConvertAll => "convert --all",
        AclViewWork::Compact => "compact",
    }
}

fn state_word(state: AclWorkState) -> &'static str {
    match state {
        AclWorkState::Running => "running",
        AclWorkState::Done => "done",
        AclWorkState::Stopped => "stopped",
        AclWorkState::ReadOnly => "read_only",
        AclWorkState::Full => "full",
    }
}

fn work_text(done: &AclWork) -> String {
    let would = if done.dry_run { "would be " } else { "" };
    let (one, what) = match done.work {
        AclViewWork::Convert | AclViewWork::ConvertAll => ("view", "stored"),
        AclViewWork::Compact => ("copy", "removed"),
    };
    let files = output::count(done.files, "file");
    let copies = output::count(done.changed, one);
    let mut text = format!("{copies} of {files} {would}{what}");
    if done.failed > 0 {
        text.push_str(&format!(", {} could not be", done.failed));
    }
    if done.state == AclWorkState::Stopped {
        text.push_str(", then it was ended");
    }
    text
}

fn work_json(work: &AclWork) -> Value {
    json!({
        "work": word(work.work),
        "dry_run": work.dry_run,
        "state": state_word(work.state),
        "files": work.files,
        "changed": work.changed,
        "failed": work.failed,
        "files_max": work.files_max,
    })
}

/// Views as in `docs/reference/json.md`.
pub(super) fn views_json(views: &AclViews) -> Value {
    let unstored = &views.unstored;
    json!({
        "policy": views.policy,
        "made": views.made,
        "used": views.used,
        "stored": views.stored,
        "waiting": views.waiting,
        "unstored": {
            "policy": unstored.policy,
            "busy": unstored.busy,
            "read_only": unstored.read_only,
            "full": unstored.full,
            "too_large": unstored.too_large,
            "protected": unstored.protected,
            "failed": unstored.failed,
        },
        "costs": views.costs.as_ref().map(costs_json),
        "work": views.work.as_ref().map(work_json),
    })
}

/// Views as rows of a table.
pub(super) fn views_rows(views: &AclViews) -> Vec<[String; 2]> {
    let row = |name: &str, value: String| [name.to_owned(), value];
    let unstored = &views.unstored;
    let mut rows = vec![
        row("views are stored", output::plain(&views.policy)),
        row("views shown as stored", views.used.to_string()),
        row("views stored", views.stored.to_string()),
        row("views waiting to be", views.waiting.to_string()),
        row("not, by policy", unstored.policy.to_string()),
    ];
    let rare = [
        ("not, too many waited", unstored.busy),
        ("not, read-only", unstored.read_only),
        ("not, full", unstored.full),
        ("not, too large", unstored.too_large),
        ("not, immutable", unstored.protected),
        ("not, failed", unstored.failed),
    ];
    let rare = rare.into_iter().filter(|(_, count)| *count > 0);
    rows.extend(rare.map(|(name, count)| row(name, count.to_string())));
    if let Some(work) = &views.work {
        let state = format!("{}: {}", state_word(work.state), work_text(work));
        rows.push(row(word(work.work), state));
    }
    rows
}

fn costs_of(costs: &AclCosts) -> Costs {
    let point = |cost: &AclCost| Point {
        entries: cost.entries,
        stored_nanos: cost.stored_nanos,
        converted_nanos: cost.converted_nanos,
        storing_nanos: cost.storing_nanos,
        stored_reads: cost.stored_reads,
        converted_reads: cost.converted_reads,
    };
    Costs::new(costs.points.iter().map(point).collect())
}

/// From which access on it pays to have stored a view; `None` if never.
fn pays_from(costs: &Costs, entries: u32) -> Option<u64> {
    costs.at(entries).and_then(|cost| cost.pays_from())
}

fn costs_json(costs: &AclCosts) -> Value {
    let all = costs_of(costs);
    let points = costs.points.iter().map(|cost| {
        json!({
            "entries": cost.entries,
            "stored_nanos": cost.stored_nanos,
            "converted_nanos": cost.converted_nanos,
            "storing_nanos": cost.storing_nanos,
            "stored_reads": cost.stored_reads,
            "converted_reads": cost.converted_reads,
            "pays_from": pays_from(&all, cost.entries),
        })
    });
    let steps = all.steps().map(|step| {
        json!({
            "before": step.before,
            "after": step.after,
            "stored_reads": step.stored_reads,
            "converted_reads": step.converted_reads,
        })
    });
    json!({
        "measured": costs.measured,
        "file_system": costs.file_system,
        "read_nanos": costs.read_nanos,
        "points": points.collect::<Vec<_>>(),
        "steps": steps.collect::<Vec<_>>(),
    })
}

fn costs_text(costs: &AclCosts) -> String {
    let all = costs_of(costs);
    let span = |nanos| output::span(Duration::from_nanos(nanos));
    let rows = costs.points.iter().map(|cost| {
        let pays = match pays_from(&all, cost.entries) {
            Some(first) => format!("from access {first} on"),
            None => "never".to_owned(),
        };
        [
            cost.entries.to_string(),
            span(cost.stored_nanos),
            cost.stored_reads.to_string(),
            span(cost.converted_nanos),
            cost.converted_reads.to_string(),
            span(cost.storing_nanos),
            pays,
        ]
    });
    let rows: Vec<[String; 7]> = rows.collect();
    let head = [
        "ENTRIES",
        "STORED",
        "READS",
        "CONVERTED",
        "READS",
        "STORING",
        "STORING PAYS",
    ];
    let mut text = output::table(head, &rows);
    text.push_str(&format!(
        "on {}, where a read takes {}; calls are timed with everything in memory, and reads \
         counted\n",
        output::plain(&costs.file_system),
        span(costs.read_nanos)
    ));
    text
}
