//! `wan`: Azekura and its peers on one link, workload by workload.
//!
//! ```text
//! cli -> contain     a container of namespaces: nothing survives the run
//!     -> wan         round trips x operations x repeats x systems    loopback   the same, no link
//!         -> measure     fresh mount, workload, unmount, counters
//!             -> systems     how each is served and mounted          site   ends, data, servers
//!             -> app         the workloads, as processes of their own
//!         -> results     JSON, medians -> markdown, charts
//! ```
//! The systems are judged from outside: by what a program sees that reads and writes files, by the
//! link's byte counters, by /proc, and by the server's own copy of what was written.

mod app;
mod charts;
mod cli;
mod conditions;
mod contain;
mod content;
mod cpu;
mod dataset;
mod install;
mod loopback;
mod markdown;
mod measure;
mod mounted;
mod plan;
mod process;
mod results;
mod site;
mod steps;
mod systems;
mod wan;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("wan: {error:#}");
            ExitCode::FAILURE
        }
    }
}
