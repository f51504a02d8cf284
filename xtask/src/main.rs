//! The project's chores, in the project's language.
//!
//! `cargo xtask ci` is what `make test` and the continuous integration run; everything that judges
//! a change is reachable from there and nothing else is. The long suites are `cargo xtask deep`.
//!
//! * [`ci`]: the steps that judge a change, within a time budget
//! * [`tidy`]: style as a test, one small module per rule
//! * [`floors`]: which crate may import which, and which must stay pure
//! * [`docs`]: runs the examples of the documents
//! * [`deep`]: file system suites and real applications on a mount
//! * [`mod@bench`]: measurements over emulated distance
//! * [`deps`]: Debian packages that a target needs
//!
//! This program is compiled first on a fresh machine, so it depends on two small crates and on no
//! crate of the product. What needs the operating system's help (mounts, namespaces, signals) it
//! gets from the tools of util-linux rather than from system calls of its own.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for a terminal"
)]

mod args;
mod bench;
mod ci;
mod deep;
mod deps;
mod docs;
mod floors;
mod process;
mod sandbox;
mod scratch;
mod source;
mod tidy;
mod tools;
mod tree;
mod workspace;

use anyhow::{Result, bail};
use args::Args;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  ci [STEP...]             judge the tree as `make test` does, or only the steps named
  tidy                     style rules
  floors                   dependencies between crates, purity of the lower floors
  docs [FILE...]           run the examples of README.md and docs/
  deps TARGET [--dry-run]  install Debian packages missing for build, demo, test, bench or deep
  bench NAME [ARG...]      release build, then the measurement NAME of bench/
  deep [SUITE...]          suites, or all: pjdfstest fsx apps consistency acl kill9 store ...
       --mount DIR         judge this directory instead of a mount made for the purpose
       --seed N            fsx, acl, store, verify: the first seed (1); consistency: the seed
       --seeds N           fsx: number of seeds (20)
       --operations N      fsx: operations per seed (20000)
       --cases N           acl: requests (1200000); overlay: kills (1000)
       --seconds N         fuzz: time per target; consistency: time (60)
";

fn main() -> ExitCode {
    match dispatch(Args::new(std::env::args().skip(1).collect())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(mut args: Args) -> Result<()> {
    let command = args.take_word();
    match command.as_deref() {
        Some("ci") => ci::run(args),
        Some("tidy") => tidy::run(args),
        Some("floors") => floors::run(args),
        Some("docs") => docs::run(args),
        Some("deps") => deps::run(args),
        Some("bench") => bench::run(args),
        Some("deep") => deep::run(args),
        None | Some("help" | "--help" | "-h") => {
            print!("{USAGE}");
            Ok(())
        }
        Some(other) => bail!("no command {other:?}\n\n{USAGE}"),
    }
}
