//! `azekura verify ...`: what file systems, and our own store, are really like.

mod crash;
mod disks;
mod head;
mod matrix;
mod mounted;
mod objects;
mod part;
mod powercut;
mod powercut_print;
mod print;
mod profile;
mod profile_print;
mod report;
mod scene;
mod served;
mod speed;
mod speed_print;
mod store;
mod tune;
mod tune_print;
mod volume;

use crate::errors::{Code, Context, Failure, Result};
use ::verify::actor::{Kernel, serve};
use ::verify::speed::{NOT_RUN, exec_job, files};
use std::ffi::OsString;
use std::io::{stdin, stdout};
use std::path::{Path, PathBuf};

/// Find out what survives a crash, and how fast file systems are
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verify {
    Crash(Box<crash::Crash>),
    Speed(Box<speed::Speed>),
    Tune(Box<tune::Tune>),
    Powercut(Box<powercut::Powercut>),
    Run(profile::Run),
    Report(report::Report),
    /// The process of a run that uses the file system
    #[command(hide = true)]
    Actor {
        /// It uses stores
        #[arg(long)]
        store: bool,
        /// It uses a volume and its server
        #[arg(long, conflicts_with = "store")]
        volume: bool,
        /// It is that of a speed run
        #[arg(long, conflicts_with_all = ["store", "volume"])]
        speed: bool,
        /// It is that of a run of power cuts
        #[arg(long, conflicts_with_all = ["store", "speed"])]
        powercut: bool,
    },
    /// Become a program that ends with its parent
    #[command(hide = true)]
    Job {
        /// The process that wants it
        #[arg(long)]
        parent: u32,
        /// A control group to go into
        #[arg(long)]
        group: Option<PathBuf>,
        /// The program and its arguments
        #[arg(last = true, required = true)]
        words: Vec<OsString>,
    },
    /// Make small files in this directory, or delete them
    #[command(hide = true)]
    Files {
        /// create or delete
        what: What,
        /// How many
        count: u64,
    },
    #[command(hide = true)]
    Objects(objects::Work),
}

/// What is done with small files.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(super) enum What {
    Create,
    Delete,
}

impl Verify {
    pub(super) fn run(self) -> Result<()> {
        match self {
            Self::Crash(command) => command.run(),
            Self::Speed(command) => command.run(),
            Self::Tune(command) => command.run(),
            Self::Powercut(command) => command.run(),
            Self::Run(command) => command.run(),
            Self::Report(command) => command.run(),
            Self::Job {
                parent,
                group,
                words,
            } => {
                let error = exec_job(parent, group.as_deref(), &words);
                let program = words[0].to_string_lossy();
                let why = crate::errors::plain_io(&error);
                Err(Failure::local(program, why).exit(NOT_RUN))
            }
            Self::Objects(command) => command.run(),
            Self::Files { what, count } => {
                let took = match what {
                    What::Create => files::create(Path::new("."), count),
                    What::Delete => files::delete(Path::new("."), count),
                };
                let took = took.context("small files")?;
                let took = serde_json::to_value(took);
                let took = took.map_err(|e| Failure::new(Code::Internal, e.to_string()))?;
                crate::output::json(&took)
            }
            Self::Actor { speed: true, .. } => {
                let ground = scene::ground();
                Ok(::verify::speed::serve(
                    stdin(),
                    &mut stdout().lock(),
                    ground,
                )?)
            }
            Self::Actor { powercut: true, .. } => {
                let ground = scene::ground_beside_others();
                let (mut requests, mut answers) = (stdin().lock(), stdout().lock());
                Ok(::verify::powercut::serve(
                    &mut requests,
                    &mut answers,
                    ground,
                )?)
            }
            Self::Actor { store, volume, .. } => {
                scene::leave_the_mounts_of_the_run()?;
                let (mut requests, mut answers) = (stdin().lock(), stdout().lock());
                match (store, volume) {
                    (true, _) => serve(&mut requests, &mut answers, store::Stores::default())?,
                    (_, true) => serve(&mut requests, &mut answers, volume::Volumes::default())?,
                    _ => serve(&mut requests, &mut answers, Kernel::default())?,
                }
                Ok(())
            }
        }
    }
}
