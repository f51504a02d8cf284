//! `azekura store scrub`.

use super::findings::{self, Scope};
use super::{Interrupt, on, store_id};
use crate::address::Address;
use crate::config::Config;
use crate::connect::{WayArgs, admin, runtime, unexpected_reply};
use crate::errors::{Failure, Result};
use crate::output;
use crate::progress::Progress;
use ::store::device::DeviceOptions;
use ::store::{Options, Store, stopped_clock};
use base::{Rate, StoreId};
use std::path::{Path, PathBuf};
use wire::message::{AdminReply, AdminRequest};

/// Read everything that a store has and hold it against its checksums
///
/// Reads records from the device and every byte of every object, from one end to the other. What
/// the store has in memory as well (superblocks, log, map of pages) is written anew if it is
/// damaged; anything else is named. Ends with exit code 1 if something is left.
///
/// A server does so by itself every some days with the stores that it serves. With --server it
/// begins now; `azekura status` tells how far it is and what was found.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  azekura store scrub ./disk0
  azekura store scrub /dev/sdb --rate 50MiB/s
  azekura store scrub --server far.example:7700")]
pub(in crate::cli) struct Scrub {
    /// File or block device that no server uses
    #[arg(value_name = "PATH", required_unless_present = "server")]
    path: Option<PathBuf>,
    /// A server, which is to read its stores
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["path", "json"])]
    server: Option<Address>,
    /// The identity that the store must have, as `store show` prints it; with --server the store
    /// that is to be read, else all are
    #[arg(long, value_name = "ID", value_parser = store_id)]
    store: Option<StoreId>,
    /// Read no faster than this
    #[arg(long, value_parser = rate)]
    rate: Option<Rate>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    way: WayArgs,
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
        match (&self.server, &self.path) {
            (Some(server), _) => self.at_server(server),
            (None, Some(path)) => self.here(path),
            (None, None) => unreachable!("one of them is required"),
        }
    }

    /// Has a server begin.
    fn at_server(&self, server: &Address) -> Result<()> {
        let config = &Config::load()?;
        let request = AdminRequest::Scrub {
            store: self.store,
            bytes_per_second: self.rate.map(|rate| rate.0),
        };
        match runtime()?.block_on(admin(config, server, &self.way, request))? {
            AdminReply::Done => output::line(format_args!(
                "begun; `azekura status {server}` tells how far it is and what was found"
            )),
            _ => Err(unexpected_reply(server)),
        }
    }

    fn here(&self, path: &Path) -> Result<()> {
        let options = Options {
            store: self.store,
            ..Options::default()
        };
        let interrupt = Interrupt::watch()?;
        let device = super::open_device(path, DeviceOptions::default())?;
        let store = Store::open(device, options, stopped_clock());
        let store = store.map_err(|error| on(path, error.into()))?;
        let units = store.status().usage.used;
        let bar = Progress::bytes("reading", units * store.layout().au_bytes);
        let rate = self.rate.map(|rate| rate.0);
        let report = interrupt.with_bar(&bar, |progress| store.scrub(rate, progress));
        let stopped = store.stop();
        let report = report.map_err(|error| on(path, error.into()))?;
        findings::print(path, &report, Scope::Scrub, self.json)?;
        stopped.map_err(|error| on(path, error.into()))?;
        if interrupt.is_wanted() {
            let read = output::size(report.verified_bytes);
            return Err(Failure::interrupted(format!("interrupted after {read}")));
        }
        Ok(())
    }
}
