//! `verify`: what recording costs, and how many crash states a second are tried.
//!
//! ```text
//! main -> recorder   writes of 1 MiB and of 4 KiB to a loop device whose file is recorded, beside
//!                    a plain loop device, and one whose file is served and not recorded
//!      -> states     crash states a second on one processor, by the program itself
//!      -> all        all states of all sequences of one operation, of every file system
//!      -> report     JSON, and a table for docs/verification.md
//! ```
//! All devices lie in memory, so that no disk is measured. What is compared takes turns, each comes
//! first as often, and what is told is the median of the turns and of the ratios in them.

mod place;
mod recorder;
mod report;
mod states;

use anyhow::{Result, bail};
use clap::Parser;
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;

/// Crash runs, measured.
#[derive(Debug, Parser)]
#[command(name = "verify", version)]
struct Cli {
    /// Which parts, by their names: recorder, states, all.
    #[arg(long, value_delimiter = ',', default_value = "recorder,states")]
    parts: Vec<String>,
    /// How often each thing is measured.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Which targets (states, all).
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ext4,xfs,btrfs,ext3,ext2,store"
    )]
    targets: Vec<String>,
    /// Crash states of a turn (states).
    #[arg(long, default_value_t = 1500)]
    points: u64,
    /// MiB that are written of a turn (recorder); a log holds 1024.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(2..=1000))]
    mebibytes: u64,
    /// The program that is measured.
    #[arg(long, env = "AZEKURA", default_value = "target/release/azekura")]
    azekura: PathBuf,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Document whose marked part becomes the table; printed when absent.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: loop devices and mounts need root");
        return Ok(ExitCode::SUCCESS);
    }
    figures::contained(|| run(&cli))
}

fn run(cli: &Cli) -> Result<()> {
    place::detach_left_over()?;
    let mut report = Report::new(cli);
    for part in &cli.parts {
        match part.as_str() {
            "recorder" => recorder::measure(cli, &mut report)?,
            "states" => states::measure(cli, &mut report)?,
            "all" => states::measure_all(cli, &mut report)?,
            other => bail!("there is no part {other}"),
        }
    }
    report.write(cli)
}
