//! `disk`: what an image far away costs, beside what others need for the same.
//!
//! ```text
//! main -> goals     the program itself behind an emulated line: each goal with its measurement
//!      -> replay    a run that nbdkit has recorded, done again in this process
//! both -> paper     the paper's Table 1 and figures, by lengths of chunks and distances
//!          -> server, trace, replay
//! ```

mod goals;
mod paper;
mod replay;
mod server;
mod trace;

use anyhow::Result;
use clap::Parser;
use disk::{Profile, Trace};
use paper::{Grid, Measured};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use trace::Step;

/// Images from chunks, measured.
#[derive(Debug, Parser)]
#[command(name = "disk", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    mode: Option<Mode>,
    #[command(flatten)]
    goals: goals::Options,
}

#[derive(Debug, clap::Subcommand)]
enum Mode {
    /// Do a recorded run again on an image, at several distances and with several lengths of chunks
    Replay(Replay),
}

#[derive(Debug, clap::Args)]
struct Replay {
    /// The image.
    #[arg(long)]
    image: PathBuf,
    /// The runs by which the image is trained; their profiles are merged.
    #[arg(long, value_delimiter = ',', required = true)]
    train: Vec<PathBuf>,
    /// The run that is measured.
    #[arg(long)]
    run: PathBuf,
    #[command(flatten)]
    grid: Grid,
    /// Think before each read as long as the machine did that was recorded.
    #[arg(long)]
    pace: bool,
    /// Where repositories and caches lie meanwhile.
    #[arg(long, default_value = "/var/tmp")]
    directory: PathBuf,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Where to write charts.
    #[arg(long)]
    svg: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    match cli.mode {
        Some(Mode::Replay(replay)) => replay.run().map(|()| ExitCode::SUCCESS),
        None => goals::run(&cli.goals),
    }
}

impl Replay {
    fn run(&self) -> Result<()> {
        let run = trace::read(&self.run)?;
        let mut profile: Option<Profile> = None;
        let length = std::fs::metadata(&self.image)?.len();
        for path in &self.train {
            let recorded = recorded(length, &trace::read(path)?)?;
            profile = Some(match profile {
                Some(profile) => profile.merged(&recorded),
                None => recorded,
            });
        }
        let profile = profile.expect("one at least is required");
        if self.train.contains(&self.run) {
            println!("trained by the run that is measured: an upper bound");
        }
        let measured = Measured {
            image: &self.image,
            profile: &profile,
            run: &run,
            pace: self.pace,
            directory: self.directory.clone(),
        };
        let rows = measured.rows(&self.grid)?;
        if let Some(path) = &self.json {
            figures::save_json(path, &rows)?;
        }
        if let Some(path) = &self.svg {
            let conditions = figures::Machine::now().to_string();
            figures::save_charts(path, &paper::charts(&rows, &conditions))?;
        }
        Ok(())
    }
}

fn recorded(image_bytes: u64, steps: &[Step]) -> Result<Profile> {
    let mut trace = Trace::new(image_bytes);
    let mut time = Duration::ZERO;
    for step in steps {
        time += step.think;
        trace.on_read(time, step.extent);
    }
    Ok(Profile::new("run", &trace)?)
}
