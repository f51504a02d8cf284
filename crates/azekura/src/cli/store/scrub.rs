//! `azekura store scrub`.

use super::{Interrupt, OnePath, findings, on};
use crate::errors::{Failure, Result};
use crate::output;
use crate::progress::Progress;
use ::store::Store;
use ::store::device::DeviceOptions;
use base::Rate;
use std::sync::Arc;

/// Read everything that a store has and hold it against its checksums
///
/// Reads records from the device and every byte of every object, from one end to the other. What
/// the store has in memory as well (superblocks, log, map of pages) is written anew if it is
/// damaged; anything else is named. Ends with exit code 1 if something is left.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura store scrub ./disk0
  azekura store scrub /dev/sdb --rate 50MiB/s")]
pub(in crate::cli) struct Scrub {
    #[command(flatten)]
    path: OnePath,
    /// Read no faster than this
    #[arg(long, value_parser = rate)]
    rate: Option<Rate>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A rate at which reading comes to an end.
const RATE_MIN: Rate = Rate(1_000_000);

fn rate(text: &str) -> std::result::Result<Rate, String> {
    match text.parse::<Rate>() {
        Ok(rate) if rate < RATE_MIN => Err(format!(
            "at {rate} the end would not be reached; give {RATE_MIN} or more"
        )),
        Ok(rate) => Ok(rate),
        Err(error) => Err(error.to_string()),
    }
}

impl Scrub {
    pub(super) fn run(self) -> Result<()> {
        let path = &self.path.path;
        let interrupt = Interrupt::watch()?;
        let device = super::open_device(path, DeviceOptions::default())?;
        let store = Store::open(device, self.path.options(), Arc::new(super::now));
        let store = store.map_err(|error| on(path, error.into()))?;
        let units = store.status().usage.used;
        let bar = Progress::bytes("reading", units * store.layout().au_bytes);
        let rate = self.rate.map(|rate| rate.0);
        let report = interrupt.with_bar(&bar, |progress| store.scrub(rate, progress));
        let stopped = store.stop();
        let report = report.map_err(|error| on(path, error.into()))?;
        findings::print(path, &report, true, self.json)?;
        stopped.map_err(|error| on(path, error.into()))?;
        if interrupt.is_wanted() {
            let read = output::size(report.verified_bytes);
            return Err(Failure::interrupted(format!("interrupted after {read}")));
        }
        Ok(())
    }
}
