//! `reserve`: what a reservation is worth.
//!
//! ```text
//! main -> place     a store in a file, its server in this process, clients over loopback
//!      -> parts     reader: a paced reader under 50 greedy readers and writers, reserved, and
//!                   first come first served; tickets: 32 that have 90 % together; leftover:
//!                   nobody has one
//!      -> elsewhere  threads of clients that stand for other machines
//!      -> load      what clients do, and what is noted of it
//!      -> admissions  a manager's durable answers, its ledger in a file and on etcd
//!      -> report    JSON and a table
//! ```
//! Server and clients share the machine's processors, which is part of what is measured. In each
//! round fio reads the same file before and after, and the same users have it first come, first
//! served; what is told is the median of the rounds' ratios.

mod admissions;
mod elsewhere;
// Where an engine lives is the same as in `meta`.
#[path = "../../meta/src/place.rs"]
mod engine_place;
mod fio;
mod load;
mod parts;
mod place;
mod report;

use clap::Parser;
use report::Report;
use std::path::PathBuf;
use std::time::Duration;

/// Reservations, measured.
#[derive(Debug, Parser)]
#[command(name = "reserve", version)]
pub(crate) struct Cli {
    /// Where the store's file is made; it is removed at the end.
    #[arg(long, default_value = "/var/tmp")]
    directory: PathBuf,
    /// Which parts, by their names: reader, tickets, leftover, admissions.
    #[arg(long, value_delimiter = ',', default_value = "reader,tickets,leftover")]
    parts: Vec<String>,
    /// Size of the store.
    #[arg(long, default_value_t = 4 << 30)]
    size: u64,
    /// How long each run takes.
    #[arg(long, default_value_t = 15)]
    seconds: u64,
    /// How often everything is run, in turn.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Greedy users, half of whom write.
    #[arg(long, default_value_t = 50)]
    users: usize,
    /// Requests that each of them has under way.
    #[arg(long, default_value_t = 8)]
    depth: usize,
    /// What the reserved reader wants, in bytes a second, or half of what the device does.
    #[arg(long, default_value_t = 400 << 20)]
    rate: u64,
    /// Engines for admissions.
    #[arg(long, value_delimiter = ',', default_value = "embedded,etcd")]
    engines: Vec<String>,
    /// Clients that ask for admissions at once.
    #[arg(long, value_delimiter = ',', default_value = "1,64,1024")]
    clients: Vec<usize>,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Document whose marked part becomes the table; printed when absent.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let mut cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let all = cli.parts.len();
    cli.parts.retain(|part| part != "admissions");
    if cli.parts.len() < all {
        let time = Duration::from_secs(cli.seconds);
        let measuring = admissions::measure(&cli.directory, &cli.engines, &cli.clients, time);
        let admitted = runtime.block_on(measuring)?;
        println!("{}", admissions::table(&admitted));
        println!("{}", admissions::json(&admitted)?);
    }
    if cli.parts.is_empty() {
        return Ok(());
    }
    let mut report = Report::new(&cli);
    runtime.block_on(parts::measure(&cli, &mut report))?;
    report.write(cli.json.as_deref(), cli.markdown.as_deref())
}
