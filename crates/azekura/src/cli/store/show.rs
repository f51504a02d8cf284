//! `azekura store show`.

use super::OnePath;
use super::describe::Description;
use crate::errors::Result;

/// Show what a store is, what space it has, and what its device can do
///
/// Rates are those that can be promised: the 5th percentile of the samples.
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
