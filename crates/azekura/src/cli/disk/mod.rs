//! `azekura disk ...`: disk images as chunks in a repository, read from far away.
//!
//! ```text
//! publish export check gc tag log diff web a repository                  one file each
//! serve attach detach list                 a disk that is in use         process.rs, running.rs
//! commit rollback reset                    what was written onto it      overlay.rs
//! train prefetch map                       what is done with a disk      recording.rs
//!  opened                                   a disk with its chunks' way   opened.rs
//!  place, keys                              where from, and whose word    place.rs, keys.rs
//!   bucket, volume                           repositories elsewhere       bucket.rs, volume.rs
//! ```
//!
//! A disk is named by a repository and a name in it: `http://far/images base:2`. What is written
//! onto it lies in an overlay on this machine, which `--overlay` names; without that, each disk has
//! a place of its own in the state directory.

mod attach;
mod bucket;
mod check;
mod commit;
mod detach;
mod diff;
mod export;
mod gc;
mod image;
mod keys;
mod list;
mod log;
mod map;
mod opened;
mod overlay;
mod place;
mod prefetch;
mod process;
mod publish;
mod recording;
mod running;
mod serve;
mod tag;
mod target;
mod train;
mod volume;
mod web;

use crate::config::Config;
use crate::errors::{Failure, Result};
use crate::progress::Progress;
use ::disk::Progress as Stored;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::runtime::Runtime;

/// Publish disk images as chunks on any web server; boot, mount, change and commit them elsewhere
///
/// An image is named IMAGE:LABEL, such as base:1. A repository is a directory that any web server
/// can serve; to read it, a directory or an http:// or https:// URL. It can lie in a bucket of S3
/// as well: s3://BUCKET/PREFIX, with the environment variables of other programs for S3; or in a
/// volume: HOST:PORT/VOLUME:/PATH.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Disk {
    Publish(publish::Publish),
    Log(log::Log),
    Diff(diff::Diff),
    Tag(tag::Tag),
    Check(check::Check),
    Gc(gc::Gc),
    Export(export::Export),
    Serve(serve::Serve),
    Attach(attach::Attach),
    Detach(detach::Detach),
    List(list::List),
    Train(train::Train),
    Prefetch(prefetch::Prefetch),
    Map(map::Map),
    Web(web::Web),
    Commit(commit::Commit),
    Rollback(overlay::Rollback),
    Reset(overlay::Reset),
}

impl Disk {
    /// Whether it takes care of its log itself.
    pub(super) fn has_own_log(&self) -> bool {
        match self {
            Self::Serve(command) => command.is_reporting(),
            Self::Attach(command) => command.is_reporting(),
            _ => false,
        }
    }

    pub(super) fn run(self, config: &Config, verbose: u8) -> Result<()> {
        let outcome = self.run_mounted(config, verbose);
        volume::release();
        outcome
    }

    fn run_mounted(self, config: &Config, verbose: u8) -> Result<()> {
        match self {
            Self::Publish(command) => command.run(config),
            Self::Log(command) => command.run(config),
            Self::Diff(command) => command.run(config),
            Self::Tag(command) => command.run(config),
            Self::Check(command) => command.run(config),
            Self::Gc(command) => command.run(config),
            Self::Export(command) => command.run(config),
            Self::Serve(command) => command.run(config, verbose),
            Self::Attach(command) => command.run(config, verbose),
            Self::Detach(command) => command.run(config),
            Self::List(command) => command.run(config),
            Self::Train(command) => command.run(config),
            Self::Prefetch(command) => command.run(config),
            Self::Map(command) => command.run(config),
            Self::Web(command) => command.run(config),
            Self::Commit(command) => command.run(config),
            Self::Rollback(command) => command.run(config),
            Self::Reset(command) => command.run(config),
        }
    }
}

/// Threads for requests of images. Whoever waits for a chunk is no task, so a few serve many.
fn runtime() -> Result<Runtime> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(processors.clamp(2, 4))
        .enable_all()
        .build()
        .map_err(|error| Failure::local("cannot start threads", error))
}

/// The time of this machine in seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

/// Runs work that stores chunks, with a bar.
fn with_bar<T>(what: &'static str, work: impl FnOnce(&(dyn Fn(Stored) + Sync)) -> T) -> T {
    let bar: Mutex<Option<Progress>> = Mutex::new(None);
    let outcome = work(&|stored: Stored| {
        let mut bar = bar.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let bar = bar.get_or_insert_with(|| Progress::bytes(what, stored.total_bytes));
        bar.set(stored.done_bytes);
    });
    let bar = bar
        .into_inner()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(bar) = bar {
        bar.finish();
    }
    outcome
}
