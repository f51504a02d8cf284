//! `azekura store check`.

use super::findings::{self, Scope};
use super::{OnePath, on};
use crate::errors::Result;
use crate::progress::Progress;
use ::store::Examination;
use ::store::device::DeviceOptions;
use base::BlockDevice;
use std::sync::Arc;

/// Check every record of a store against every other
///
/// Nobody can change the store meanwhile, and without --repair nothing is written to it. With it,
/// everything is put right that follows from what else is on the device: a superblock from the
/// other one, damaged records from the older ones and the log, maps, lists and counts from the
/// records. Data that does not fit its checksum, and records of which there is nothing else, are
/// named and stay errors for whoever reads them. Ends with exit code 1 if something is left.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura store check ./disk0 --data
  azekura store check /dev/sdb --repair")]
pub(in crate::cli) struct Check {
    #[command(flatten)]
    path: OnePath,
    /// Also read every byte of the objects and hold it against its checksum
    #[arg(long)]
    data: bool,
    /// Put right what can be
    #[arg(long)]
    repair: bool,
    /// With --repair, if the log is damaged: give up what was acknowledged after the damage. The
    /// store is what it was before
    #[arg(long, requires = "repair")]
    give_up_log: bool,
    /// Only say what --repair would do
    #[arg(long, requires = "repair")]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Check {
    pub(super) fn run(self) -> Result<()> {
        let path = &self.path.path;
        let writes = self.repair && !self.dry_run;
        let options = DeviceOptions {
            read_only: !writes,
            ..DeviceOptions::default()
        };
        let device: Arc<dyn BlockDevice> = super::open_device(path, options)?;
        let examination = Examination {
            options: self.path.options(),
            data: self.data,
            repair: writes,
            give_up_log: self.give_up_log,
        };
        let mut bar: Option<Progress> = None;
        let report = examination.run(&device, &mut |done, total| {
            let bar = bar.get_or_insert_with(|| Progress::bytes("reading", total));
            bar.set(done);
        });
        if let Some(bar) = bar {
            bar.finish();
        }
        let report = report.map_err(|error| on(path, error.into()))?;
        let scope = match self.data {
            true => Scope::All,
            false => Scope::Records,
        };
        findings::print(path, &report, scope, self.json)
    }
}
