//! `azekura store show`.

use super::OnePath;
use super::describe::Description;
use crate::errors::Result;

/// Show what a store is, what space it has, and what its device can do
///
/// In the table is what was found: the 5th percentile of the samples, or the lowest of less than
/// twenty. Less is promised, because requests of all kinds come together, a tenth of the device's
/// time is nobody's to reserve, and a moment's measurement counts for 60 %.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Show {
    #[command(flatten)]
    path: OnePath,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) fn run(self) -> Result<()> {
        let (device, core) = super::open(&self.path, true)?;
        Description::of(&device, &core)?.print(self.json)
    }
}
