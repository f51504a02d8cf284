//! The binary `azekura`: command line, configuration, wiring. No logic of the file system is here.
//!
//! * `cli/`: one file per command, each a struct of its arguments with `run`
//! * [`config`]: directories, settings, credentials; the only place that reads the environment
//! * [`errors`]: what a user is told; every failure has a code with a page in `docs/errors/`
//! * [`address`], [`connect`], [`enrol`]: from words on the command line to a session with a server
//! * [`heard`]: servers that do not answer any more while a command works
//! * [`background`]: commands that go on as processes of their own
//! * [`mounts`]: the mounts of this machine, seen from outside
//! * [`process`]: what the kernel tells of other processes
//! * [`copy`]: trees copied between this machine and volumes
//! * [`output`], [`progress`], [`logging`], [`notify`]: what is said, where and to whom
//! * [`terminal`]: what is asked without showing the answer
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused with a counter-offer.

mod address;
mod background;
mod cli;
mod config;
mod connect;
mod copy;
mod enrol;
mod errors;
mod heard;
mod line;
mod logging;
mod mounts;
mod notify;
mod output;
mod process;
mod progress;
mod terminal;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::run(std::env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let exit_code = failure.exit_code();
            if failure.is_trouble() {
                output::note(failure);
            }
            exit_code
        }
    }
}
