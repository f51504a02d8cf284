//! `meta`: what the metadata engines carry, each answer durable.
//!
//! ```text
//! main -> place     an engine in a file, or in three members of etcd on loopback; the disk itself
//!      -> work      transactions of many clients; admissions that a leader gathers; reads
//!      -> report    JSON, and a table for docs/performance.md
//! ```
//! The disk's own flushes a second are measured before and after each engine, on the same file
//! system: on a machine that is shared they vary more than anything here.

mod place;
mod report;
mod work;

use anyhow::bail;
use clap::Parser;
use place::Place;
use report::{Report, Row};
use std::path::PathBuf;
use std::time::Duration;
use work::{admissions, opening, reads, transactions};

/// Metadata engines, measured.
#[derive(Debug, Parser)]
#[command(name = "meta", version)]
struct Cli {
    /// Where the engines keep their files; removed at the end.
    #[arg(long, default_value = "/var/tmp")]
    directory: PathBuf,
    /// Which engines.
    #[arg(long, value_delimiter = ',', default_value = "embedded,etcd")]
    engines: Vec<String>,
    /// How many clients at once.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    clients: Vec<usize>,
    /// Admissions in one transaction of a leader.
    #[arg(long, default_value_t = 100)]
    rows: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 4)]
    seconds: u64,
    /// Reservations in the file that is opened after a kill.
    #[arg(long, default_value_t = 1_000_000)]
    opened: usize,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Document whose marked part becomes the table; printed when absent.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Fill the engine at this path until it has so many reservations, and die.
    #[arg(long, hide = true)]
    fill: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    if let Some(path) = &cli.fill {
        return runtime.block_on(work::fill(path, cli.opened));
    }
    let mut report = Report::new(cli.seconds, cli.rows);
    for name in &cli.engines {
        runtime.block_on(measure(&cli, name, &mut report))?;
    }
    report.write(cli.json.as_deref(), cli.markdown.as_deref())
}

async fn measure(cli: &Cli, name: &str, report: &mut Report) -> anyhow::Result<()> {
    let time = Duration::from_secs(cli.seconds);
    let place = match name {
        "embedded" => Place::embedded(&cli.directory)?,
        "etcd" => Place::etcd(&cli.directory)?,
        other => bail!("no engine {other:?}; there are: embedded, etcd"),
    };
    let mut rows = Vec::new();
    let before = place.flushes_per_second()?;
    let engine = place.open().await?;
    for clients in &cli.clients {
        let what = format!("transactions, {clients} clients");
        rows.push(Row::new(
            &what,
            transactions(&engine, *clients, time).await?,
        ));
    }
    for clients in &cli.clients {
        let what = format!("admissions, {clients} clients, one leader");
        let admitted = admissions(&engine, *clients, cli.rows, time).await?;
        rows.push(Row::new(&what, admitted));
    }
    let admitted = admissions(&engine, 1024, cli.rows, time).await?;
    rows.push(Row::new("admissions, 1024 clients, one leader", admitted));
    rows.push(Row::new(
        "reads, 16 clients",
        reads(&engine, 16, time).await?,
    ));
    drop(engine);
    let after = place.flushes_per_second()?;
    if name == "embedded" {
        rows.push(Row::seconds(
            "opening after a kill",
            opening(&cli.directory, cli.opened)?,
        ));
    }
    report.add(name, (before, after), rows);
    Ok(())
}
