//! `acl`: what rich ACLs cost on trees with POSIX ACLs, on XFS, ext4 and Btrfs of its own.
//!
//! ```text
//! main -> lengths   an access that converts, that converts and stores, that reads what was stored,
//!                   by the length of the list (the paper's Figure 3), reads of the device counted
//!      -> mix       the operations of the paper's Table 3 on trees with the lengths of Table 2:
//!                   rich beside plain, each rule for storing (Figures 5 to 7)
//!      -> served    rich beside plain once more, of a whole server over loopback
//!      -> load      the same by several clients at once: response time against throughput
//!                   (Figure 8)
//!      -> reads     reads beyond the inode of a first access to each file of such trees
//!      -> enable    turning rich ACLs on under users, with few files and with many
//!      -> decide    one decision, in nanoseconds
//!      -> report    JSON, tables and charts for docs/performance.md
//! ```
//! `lengths`, `mix`, `load` and `reads` run the export's own code in this process, without a
//! network: what differs between the modes is there alone, and a network would hide it. `served`
//! has a server beside it and asks that; `enable` runs the program itself, with a server and a
//! mount. File systems lie in files on loop devices
//! with direct I/O; cold means mounted anew, so that nothing of them is in memory; nobody else's
//! memory is emptied.
//!
//! Source: Nakamura and others, concurrent use of heterogeneous access control information,
//! sections 3.2 and 4.

mod decide;
mod enable;
mod lengths;
mod lists;
mod load;
mod mix;
mod place;
mod reads;
mod report;
mod served;
mod tree;

use anyhow::{Result, bail};
use clap::Parser;
use place::Kind;
use report::Report;
use std::path::PathBuf;
use std::process::ExitCode;

/// Rich ACLs, measured.
#[derive(Debug, Parser)]
#[command(name = "acl", version)]
struct Cli {
    /// Where the files are made that the file systems lie in; they are removed at the end.
    #[arg(long, default_value = "/var/tmp")]
    directory: PathBuf,
    /// Which parts, by their names; none if it is empty.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "lengths,mix,served,load,reads,enable,decide"
    )]
    parts: Vec<String>,
    /// Which file systems.
    #[arg(long, value_delimiter = ',', default_value = "xfs,ext4,btrfs")]
    file_systems: Vec<Kind>,
    /// How often each thing is measured; what is compared takes turns.
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Files of one length and kind of access (lengths).
    #[arg(long, default_value_t = 12)]
    same: usize,
    /// Files in a tree (mix, load, reads).
    #[arg(long, default_value_t = 6_000)]
    files: usize,
    /// Different lists in a tree; 0 for as many as files (mix, load, reads).
    #[arg(long, default_value_t = 0)]
    distinct: usize,
    /// Files in the trees for which rich ACLs are turned on (enable). Making a million takes a
    /// minute or two.
    #[arg(long, value_delimiter = ',', default_value = "1000,1000000")]
    enabled: Vec<u64>,
    /// The program that is measured (enable).
    #[arg(long, env = "AZEKURA", default_value = "target/release/azekura")]
    azekura: PathBuf,
    /// Figures of earlier runs of other parts, as --json wrote them; their tables and charts come
    /// before those of this run.
    #[arg(long, value_delimiter = ',')]
    join: Vec<PathBuf>,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Document whose marked part becomes the tables; printed when absent.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Where to write the charts.
    #[arg(long)]
    svg: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: file systems of our own and users of all kinds need root");
        return Ok(ExitCode::SUCCESS);
    }
    figures::contained(|| run(&cli))
}

fn run(cli: &Cli) -> Result<()> {
    let mut report = Report::new(cli);
    for earlier in &cli.join {
        report.join(earlier)?;
    }
    for part in &cli.parts {
        match part.as_str() {
            "lengths" => lengths::measure(cli, &mut report)?,
            "load" => load::measure(cli, &mut report)?,
            "mix" => mix::measure(cli, &mut report)?,
            "reads" => reads::measure(cli, &mut report)?,
            "served" => served::measure(cli, &mut report)?,
            "enable" => enable::measure(cli, &mut report)?,
            "decide" => decide::measure(cli, &mut report),
            "" => {}
            other => bail!("there is no part {other}"),
        }
    }
    report.write(cli)
}
