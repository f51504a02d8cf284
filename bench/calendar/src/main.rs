//! `calendar`: what an admission costs with a million live reservations.
//!
//! ```text
//! main -> one        one device: question, take, give back; beside a segment tree of seconds
//!      -> manager    64 devices, four of sixteen by most room, through the ledger
//!      -> search     when would it fit: a usual calendar, and one with gaps that are too short
//!      -> memory     a calendar of three, of a million; the ledger made anew
//!      -> scale      if asked: 10,000 servers through a year in virtual time, alone
//!      -> report     JSON, and a table for docs/performance.md
//! ```
//! All from one seed, one thread, no I/O. Each change of the population is undone by another one,
//! so that it stays as large as it is said to be; only the operation named is timed.

mod manager;
mod memory;
mod one;
mod report;
mod scale;
mod search;
mod segments;
mod times;
mod workload;

use clap::Parser;
use report::{Report, Row};
use std::path::PathBuf;

/// Admission with many live reservations.
#[derive(Debug, Parser)]
#[command(name = "calendar", version)]
struct Cli {
    /// Live reservations.
    #[arg(long, default_value_t = 1_000_000)]
    reservations: usize,
    /// Timed operations of each kind.
    #[arg(long, default_value_t = 200_000)]
    operations: usize,
    /// Where the reservations come from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Instead, run a year of 10,000 servers in virtual time.
    #[arg(long)]
    year: bool,
    /// Days of that year.
    #[arg(long, default_value_t = 365)]
    days: u64,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Document whose marked part becomes the table; printed when absent.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let (count, operations, seed) = (cli.reservations, cli.operations, cli.seed);
    let (json, markdown) = (cli.json.as_deref(), cli.markdown.as_deref());
    if cli.year {
        let rows = scale::year(count, cli.days, seed)?;
        let report = Report::new(count, 0, seed, rows);
        return report.write("year", json, markdown);
    }
    let mut rows: Vec<Row> = Vec::new();
    rows.extend(one::changes(count, operations, seed));
    rows.extend(one::segments(count, operations, seed));
    rows.extend(manager::admissions(count, operations, seed)?);
    rows.extend(search::searches(count, operations, seed));
    rows.extend(memory::sizes(count, seed));
    let report = Report::new(count, operations, seed, rows);
    report.write("calendar", json, markdown)
}
