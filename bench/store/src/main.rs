//! `store`: the object store beside fio and ext4 on the same file system.
//!
//! ```text
//! main -> stream     objects of the allocation unit's size, and of others (Figure 6)
//!      -> loop       the former on a loop device of the file
//!      -> append     one object or many, written and read in sequence (Figures 7 and 8), and a
//!                    naive record of an object beside them
//!      -> overwrite  4 KiB at random places, with group commit
//!      -> creates    small objects made durable by 32 threads; files on ext4
//!      -> opening    after a kill, with a million objects
//!      -> report     JSON, a table and charts for docs/performance.md
//! ```
//! Each pair is measured in turn, again and again, on one file that was written from end to end;
//! what is told is the median of the ratios. Nothing is compared over time: the machine is shared.

mod append;
mod creates;
mod fio;
mod opening;
mod overwrite;
mod place;
mod report;
mod stream;

use clap::Parser;
use report::Report;
use std::path::PathBuf;

/// The object store, measured.
#[derive(Debug, Parser)]
#[command(name = "store", version)]
struct Cli {
    /// Where the file is made that is measured on; it is removed at the end.
    #[arg(long, default_value = "/var/tmp")]
    directory: PathBuf,
    /// Which parts, by their names.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "stream,loop,append,overwrite,creates,opening"
    )]
    parts: Vec<String>,
    /// How often each pair is measured.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Size of an allocation unit, in bytes.
    #[arg(long, default_value_t = 1 << 20)]
    unit: u64,
    /// Appends of 16 MiB to one object.
    #[arg(long, default_value_t = 1024)]
    appends: u64,
    /// Objects in the store that is opened after a crash.
    #[arg(long, default_value_t = 1_000_000)]
    objects: u64,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Document whose marked part becomes the table; printed when absent.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Where to write the charts.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Make objects in the store at this path until killed.
    #[arg(long, hide = true)]
    fill: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if let Some(path) = &cli.fill {
        return opening::fill(path, cli.objects);
    }
    let mut report = Report::new(cli.repeat, cli.unit);
    for part in &cli.parts {
        match part.as_str() {
            "stream" => stream::measure(&cli, &mut report)?,
            "loop" => stream::measure_loop(&cli, &mut report)?,
            "append" => append::measure(&cli, &mut report)?,
            "overwrite" => overwrite::measure(&cli, &mut report)?,
            "creates" => creates::measure(&cli, &mut report)?,
            "opening" => opening::measure(&cli, &mut report)?,
            other => anyhow::bail!("there is no part {other}"),
        }
    }
    report.write(
        cli.json.as_deref(),
        cli.markdown.as_deref(),
        cli.svg.as_deref(),
    )
}
