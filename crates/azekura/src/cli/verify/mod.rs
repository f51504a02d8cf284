//! `azekura verify ...`: what file systems, and our own store, are really like.

mod crash;
mod print;
mod scene;
mod store;

use crate::errors::Result;
use ::verify::actor::{Kernel, serve};
use std::io::{stdin, stdout};

/// Find out what survives a crash
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verify {
    Crash(Box<crash::Crash>),
    /// The process of a crash run that uses the file system
    #[command(hide = true)]
    Actor {
        /// It uses stores
        #[arg(long)]
        store: bool,
    },
}

impl Verify {
    pub(super) fn run(self) -> Result<()> {
        match self {
            Self::Crash(command) => command.run(),
            Self::Actor { store } => {
                let (mut requests, mut answers) = (stdin().lock(), stdout().lock());
                match store {
                    true => serve(&mut requests, &mut answers, store::Stores::default())?,
                    false => serve(&mut requests, &mut answers, Kernel::default())?,
                }
                Ok(())
            }
        }
    }
}
