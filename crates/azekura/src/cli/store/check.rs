//! `azekura store check`.

use super::{OnePath, on, shown};
use crate::errors::{Code, Failure, Result};
use crate::output;
use ::store::{Report, StoreError};
use serde_json::json;

/// Check every record of a store against every other
///
/// Nobody can change the store meanwhile, and nothing is written to it. Ends with exit code 1 if
/// something is wrong.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Check {
    #[command(flatten)]
    path: OnePath,
    /// Also read every byte of the objects and hold it against its checksum
    #[arg(long)]
    data: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn run(self) -> Result<()> {
        let path = &self.path.path;
        let (_device, core) = super::open(path)?;
        let report = match core.check(self.data) {
            Ok(report) => report,
            // What cannot be read cannot be checked; that is the finding.
            Err(error @ StoreError::Damaged(_)) => Report {
                findings: vec![error.to_string()],
                ..Report::default()
            },
            Err(error) => return Err(on(path, error.into())),
        };
        self.print(&report)?;
        match report.findings.len() {
            0 => Ok(()),
            found => {
                let found = output::count(found as u64, "finding");
                let message = format!("{}: {found}", shown(path));
                Err(Failure::new(Code::StoreFindings, message))
            }
        }
    }

    fn print(&self, report: &Report) -> Result<()> {
        if self.json {
            return output::json(&json!({
                "path": self.path.path.to_string_lossy(),
                "objects": report.objects,
                "verified_bytes": report.verified_bytes,
                "findings": report.findings,
            }));
        }
        for finding in &report.findings {
            output::line(output::plain(finding))?;
        }
        let data = match self.data {
            true => format!(", {} read", output::size(report.verified_bytes)),
            false => String::new(),
        };
        let objects = output::count(report.objects, "object");
        output::line(format_args!(
            "{objects} checked{data}, {}",
            output::count(report.findings.len() as u64, "finding")
        ))
    }
}
