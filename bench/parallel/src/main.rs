//! `parallel`: files of a parallel volume through a mount, on a disk.
//!
//! ```text
//! main -> site      a server with some stores in files, a volume over them, mounts
//!      -> striped   a file written and read, beside fio on as many files at once
//!      -> job       workers that compute and do I/O step by step, alone and beside others, with a
//!                   reservation and without
//!      -> others    users who take what they get, in a process and on a mount of their own
//!      -> devices   fio: what the disk gives for the same
//!      -> data      what files hold, written and checked
//!      -> report    JSON and a table
//! ```
//! Server, mounts and users share the machine's processors, so how busy these were is said with
//! each rate. Rounds go in turn; what is told is the median of their ratios.

mod data;
mod devices;
mod job;
mod others;
mod processors;
mod report;
mod site;
mod striped;

use anyhow::{Context, bail};
use clap::Parser;
use report::Report;
use std::path::PathBuf;
use std::time::Duration;

/// Parallel volumes, measured.
#[derive(Debug, Parser)]
#[command(name = "parallel", version)]
pub(crate) struct Cli {
    /// Where stores and files are made; removed at the end.
    #[arg(long, default_value = "/var/tmp")]
    directory: PathBuf,
    /// Which parts, by their names: striped, job.
    #[arg(long, value_delimiter = ',', default_value = "striped,job")]
    parts: Vec<String>,
    /// How often everything is measured, in turn.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Stores of the server.
    #[arg(long, default_value_t = 4)]
    stores: usize,
    /// Bytes that are written and read, over all stores.
    #[arg(long, default_value_t = 2 << 30)]
    size: u64,
    /// With TLS, as in use between machines.
    #[arg(long)]
    tls: bool,
    /// Workers of the job.
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// Steps of the job.
    #[arg(long, default_value_t = 20)]
    steps: u64,
    /// What each step computes, in milliseconds.
    #[arg(long, default_value_t = 500)]
    compute: u64,
    /// What the job reserves of reading and of writing, in bytes a second each.
    #[arg(long, default_value_t = 48 << 20)]
    rate: u64,
    /// Users beside the job, half of whom write.
    #[arg(long, default_value_t = 8)]
    users: usize,
    /// The program.
    #[arg(long, env = "AZEKURA")]
    azekura: PathBuf,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Document whose marked part becomes the table; printed when absent.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Take what one gets in this directory until killed.
    #[arg(long, hide = true)]
    greedy: Option<PathBuf>,
}

impl Cli {
    pub(crate) fn compute(&self) -> Duration {
        Duration::from_millis(self.compute)
    }
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if let Some(directory) = &cli.greedy {
        return others::take(directory, cli.users);
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: mounting takes root");
        return Ok(());
    }
    let mut report = Report::new(&cli);
    for part in &cli.parts {
        match part.as_str() {
            "striped" => striped::measure(&cli, &mut report).context("striped")?,
            "job" => job::measure(&cli, &mut report).context("job")?,
            other => bail!("no part {other:?}; there are: striped, job"),
        }
    }
    report.write(cli.json.as_deref(), cli.markdown.as_deref())
}
