//! `verify`: what recording costs, and how many crash states a second are tried.
//!
//! ```text
//! main -> recorder   writes of 1 MiB and of 4 KiB to a loop device whose file is recorded, beside
//!                    a plain loop device, and one whose file is served and not recorded
//!      -> states     crash states a second on one processor, by the program itself
//!      -> all        all states of all sequences of one operation, of every file system
//!      -> report     JSON, and a table for docs/verification.md
//!      -> results    cuts, matrix, crash: what the program itself measures, as other tables of it;
//!                    tables: the same, of what was measured before
//! ```
//! All devices lie in memory, so that no disk is measured. What is compared takes turns, each comes
//! first as often, and what is told is the median of the turns and of the ratios in them.

mod place;
mod recorder;
mod report;
mod results;
mod states;
mod tables;

use anyhow::{Result, bail};
use clap::Parser;
use report::Report;
use results::Part;
use std::path::PathBuf;
use std::process::ExitCode;

/// Crash runs, measured.
#[derive(Debug, Parser)]
#[command(name = "verify", version)]
struct Cli {
    /// Which parts, by their names: recorder, states, all; cuts, matrix, crash; tables.
    #[arg(long, value_delimiter = ',', default_value = "recorder,states")]
    parts: Vec<String>,
    /// How often each thing is measured.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Which targets (states, all).
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "xfs,btrfs,ext4,ext3,ext2,store"
    )]
    targets: Vec<String>,
    /// Crash states of a turn (states).
    #[arg(long, default_value_t = 1500)]
    points: u64,
    /// MiB that are written of a turn (recorder); a log holds 1024.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(2..=1000))]
    mebibytes: u64,
    /// What power cuts are made with (cuts), as on the command line of `azekura verify powercut`.
    #[arg(
        long,
        allow_hyphen_values = true,
        default_value = "--how close,fsync --size 1MiB,10MiB --wait 0s,5s,10s --half-width 0.3"
    )]
    cuts: String,
    /// What speed is measured with (matrix), as for `azekura verify speed`.
    #[arg(
        long,
        allow_hyphen_values = true,
        default_value = "--target ext4,xfs,btrfs,ext3,ext2,store --size 256MiB --files 10000"
    )]
    matrix: String,
    /// What states are tried with (crash), as for `azekura verify crash`.
    #[arg(
        long,
        allow_hyphen_values = true,
        default_value = "--target store --points 10000 --seed 7"
    )]
    crash: String,
    /// Where results of the program are kept (cuts, matrix, crash, tables).
    #[arg(long, default_value = "target/verify")]
    results: PathBuf,
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
        match (part.as_str(), Part::by_name(part)) {
            ("recorder", _) => recorder::measure(cli, &mut report)?,
            ("states", _) => states::measure(cli, &mut report)?,
            ("all", _) => states::measure_all(cli, &mut report)?,
            ("tables", _) => {
                for part in Part::ALL {
                    results::publish(cli, part)?;
                }
            }
            (_, Some(part)) => {
                results::measure(cli, part)?;
                results::publish(cli, part)?;
            }
            (other, None) => bail!("there is no part {other}"),
        }
    }
    report.write(cli)
}
