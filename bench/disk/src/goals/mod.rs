//! The goals of disks, each with its measurement: the program itself, behind an emulated line, on
//! an ext4 with real files, cold each time.
//!
//! ```text
//! mod -> image      the file system: fresh, and aged by deleting and writing
//!     -> site       line, web server, repository; disks that are attached or served
//!     -> peers      what others do with the same line, server and image
//!     -> scattered  a tar of files here and there, at each distance; the paper's figures
//!     -> program    a program on runs that nobody has recorded, and on the next version
//!     -> boot       a Debian that boots, trained by another boot
//!     -> whole      the disk from end to end: share of the line, memory
//!     -> once       how often one chunk is asked for, over images, mounts and restarts
//!     -> publish    publishing and committing, which need no line
//!     -> report     tables, charts, JSON
//! ```
//! Peers are those that are here: casync, nbdkit with its curl, QEMU with its own, and a plain web
//! client; each on the same line in the same run. Requests and bytes say more than seconds on a
//! busy machine: they are told with each row.

mod boot;
mod image;
mod once;
mod peers;
mod program;
mod publish;
mod report;
mod scattered;
mod site;
mod whole;

use crate::paper::Grid;
use anyhow::{Result, bail};
use report::Report;
use site::Site;
use std::path::PathBuf;
use std::process::ExitCode;

const PARTS: &str = "scattered,paper,program,boot,whole,once,publish,commit";

/// What is measured, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Where images, repositories and caches are made; removed at the end.
    #[arg(long, default_value = "/var/tmp")]
    directory: PathBuf,
    /// Which parts, by their names.
    #[arg(long, value_delimiter = ',', default_value = PARTS)]
    parts: Vec<String>,
    /// Files of the file system, about.
    #[arg(long, default_value_t = 46_000)]
    files: usize,
    /// Length of the image in MiB.
    #[arg(long, default_value_t = 1024)]
    size: u64,
    /// Files of the tar.
    #[arg(long, default_value_t = 1000)]
    scattered: usize,
    /// How often each tar and each run of the program is measured; the median is told.
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    #[command(flatten)]
    grid: Grid,
    /// Rate of the line when the whole disk is read, in Mbit/s: one that the processors can fill.
    #[arg(long, default_value_t = 200)]
    rate: u64,
    /// Length of the long disk of which a part is committed, in MiB.
    #[arg(long, default_value_t = 10 * 1024)]
    long: u64,
    /// How much of it is changed, in MiB.
    #[arg(long, default_value_t = 100)]
    changed: u64,
    /// Directory with a Debian that boots: root.img, vmlinuz, initrd.img. One is made if it is not
    /// named, which takes a few minutes and Debian's servers.
    #[arg(long)]
    machine: Option<PathBuf>,
    /// What everything by chance follows from.
    #[arg(long, default_value_t = 6)]
    seed: u64,
    /// The program.
    #[arg(long, env = "AZEKURA")]
    azekura: Option<PathBuf>,
    /// Where to write the figures as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Where to write charts.
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Document whose marked part becomes the table; printed when absent.
    #[arg(long)]
    markdown: Option<PathBuf>,
}

/// Measures, in namespaces of its own: when the run ends, however it does, the kernel ends its
/// processes and drops its mounts, and with them the loop devices.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Some(why) = azlink::why_not() {
        println!("skipped: {why}");
        return Ok(ExitCode::SUCCESS);
    }
    figures::contained(|| measure(options))
}

fn measure(options: &Options) -> Result<()> {
    let mut report = Report::new(options);
    let site = Site::new(options)?;
    let images = image::Images::make(&site, options)?;
    for note in images.notes() {
        report.note(note);
    }
    for part in &options.parts {
        let measured = match part.as_str() {
            "scattered" => scattered::measure(&site, &images, options, &mut report),
            "paper" => scattered::paper(&site, &images, options, &mut report),
            "program" => program::measure(&site, &images, options, &mut report),
            "boot" => boot::measure(&site, options, &mut report),
            "whole" => whole::measure(&site, &images, options, &mut report),
            "once" => once::measure(&site, &images, &mut report),
            "publish" => publish::measure(&site, &images, &mut report),
            "commit" => publish::commit(&site, &images, options, &mut report),
            other => bail!("no part {other:?}; there are: {PARTS}"),
        };
        // What was measured before is worth having all the same.
        if let Err(error) = measured {
            report.failed(part, &error);
        }
    }
    report.write(options)
}
