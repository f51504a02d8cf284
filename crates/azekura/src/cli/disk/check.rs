//! `azekura disk check`.

use super::place::At;
use super::runtime;
use crate::config::Config;
use crate::errors::{Code, Failure, Result};
use crate::output;
use crate::progress::Progress;
use ::disk::check::{Checking, Finding, Report, check, remove_damaged};
use ::disk::{Tag, Trust};
use serde_json::{Value, json};
use std::sync::OnceLock;
use std::time::Duration;

/// Reads at once: a directory is read by few, a web server is far away.
const WORKERS: usize = 16;
/// How long a removal waits for publishers.
const TURN_TIME_MAX: Duration = Duration::from_secs(30);

/// Check that everything is there that names point to, and is what it should be
///
/// Reads every chunk once and holds it against its digest. Ends with exit code 1 if something is
/// wrong. A damaged chunk that is removed is stored again by whoever publishes an image that has
/// it.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura disk check --at ./www/images
  azekura disk check base:2 --at http://far.example/images --records")]
pub(in crate::cli) struct Check {
    /// IMAGE:LABEL, several times for several; without it all names, which only a directory tells
    #[arg(value_name = "NAME")]
    names: Vec<Tag>,
    #[command(flatten)]
    at: At,
    /// Only names, manifests and indexes, not the chunks
    #[arg(long)]
    records: bool,
    /// Remove chunks that are damaged
    #[arg(long, conflicts_with = "records")]
    remove_damaged: bool,
    /// Only say what --remove-damaged would remove
    #[arg(long, requires = "remove_damaged")]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn run(self, config: &Config) -> Result<()> {
        let place = self.at.place(config)?;
        let mut keys = self.at.keys(config, &place)?;
        let runtime = runtime()?;
        let source = place.source(&runtime, &self.at.way)?;
        let names = match self.names.is_empty() {
            true => place.repository(&runtime, &self.at.way)?.tags()?,
            false => self.names.clone(),
        };
        // The first key is believed before all the others are judged.
        if let Some(name) = names.first() {
            let read = |trust: &Trust| ::disk::TagRecord::find(&*source, name, trust);
            // What is wrong with it is a finding.
            let _ = keys.believing(read);
        }
        let how = Checking {
            trust: keys.trust()?,
            read_chunks: !self.records,
            workers: WORKERS,
        };
        let bar = OnceLock::new();
        let report = check(&*source, &names, &how, &|done, total| {
            let bar: &Progress = bar.get_or_init(|| Progress::time("checking", total));
            bar.set(done);
        });
        if let Some(bar) = bar.get() {
            bar.finish();
        }
        let mut removed = 0;
        if self.remove_damaged {
            let repository = place.repository(&runtime, &self.at.way)?;
            for spec in report.findings.iter().filter_map(|finding| finding.chunk) {
                removed +=
                    u64::from(self.dry_run || remove_damaged(&repository, &spec, TURN_TIME_MAX)?);
            }
        }
        self.print(&report, removed)?;
        match report.finding_count {
            0 => Ok(()),
            count => {
                let message = format!("{place}: {}", output::count(count, "finding"));
                Err(Failure::new(Code::DiskFindings, message))
            }
        }
    }

    fn print(&self, report: &Report, removed: u64) -> Result<()> {
        if self.json {
            let findings: Vec<Value> = report.findings.iter().map(to_json).collect();
            return output::json(&json!({
                "versions": report.versions,
                "chunks": report.chunks,
                "bytes": report.bytes,
                "findings": findings,
                "finding_count": report.finding_count,
                "removed": removed,
            }));
        }
        let mut page: String = report
            .findings
            .iter()
            .map(|finding| format!("{} ({}): {}\n", finding.file, finding.tag, said(finding)))
            .collect();
        page += &format!(
            "{}, {} of {} read, {}",
            output::count(report.versions, "version"),
            output::count(report.chunks, "chunk"),
            output::size(report.bytes),
            output::count(report.finding_count, "finding"),
        );
        let would = if self.dry_run { " would be" } else { "" };
        if self.remove_damaged {
            page += &format!(", {}{would} removed", output::count(removed, "chunk"));
        }
        output::line(page)
    }
}

fn said(finding: &Finding) -> String {
    output::plain(&finding.problem)
}

fn to_json(finding: &Finding) -> Value {
    json!({
        "file": finding.file.to_string(),
        "name": finding.tag.to_string(),
        "message": said(finding),
    })
}
