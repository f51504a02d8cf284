//! `azlink`: a link between two network namespaces, from the command line.
//!
//! ```text
//! azlink run --rtt 100ms --rate 1000Mbit -- CMD...   run CMD at the client's end of a link
//! azlink exec server -- CMD...                       inside it: run CMD at the other end
//! azlink ctl 'rtt 50ms'                              inside it: change the link, print its state
//! azlink up --control link.sock                      keep a link up until told to end
//! azlink probe --rtt 50ms                            measure round trips and goodput
//! ```
//! `run` and `up` end on SIGTERM, SIGINT and their parent's death, and take what they started
//! along. Namespaces and devices have no names and cannot be left behind.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("azlink: {error:#}");
            ExitCode::FAILURE
        }
    }
}
