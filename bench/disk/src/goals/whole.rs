//! The disk from end to end by dd, on a line that the processors can fill: share of the line, and
//! memory of the process beyond what it keeps of chunks.

use super::Options;
use super::image::Images;
use super::peers;
use super::report::{Goal, Report, seconds};
use super::site::{How, Site, timed};
use anyhow::Result;
use std::process::Command;
use std::time::Duration;

const RTT_MS: u64 = 50;
/// Chunks in memory, unpacked: `MEMORY_BYTES_MAX` of the program.
const CHUNKS_BYTES: u64 = 32 << 20;

pub(super) fn measure(
    site: &Site,
    images: &Images,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    site.publish(&images.fresh, "whole", "base:1")?;
    let apply = |rate| site.link.apply(&azlink::Command::Rate(None, rate));
    let usual = site.link.settings().to_client.rate_bits_per_s;
    apply(Some(options.rate * 1_000_000));
    let share = |took| share(site, options, took);
    let measured = read(site, options, report)
        .and_then(|()| peers::wholes(site, &images.fresh, RTT_MS, &share, report));
    apply(usual);
    measured
}

/// The share of the line that was used for so long.
fn share(site: &Site, options: &Options, took: Duration) -> f64 {
    let bits = site.link.counters().to_client.wire_bytes as f64 * 8.0;
    bits / (took.as_secs_f64() * options.rate as f64 * 1e6)
}

fn read(site: &Site, options: &Options, report: &mut Report) -> Result<()> {
    let how = How {
        is_bare: true,
        ..How::default()
    };
    let disk = site.attach(&site.url("whole"), "base:1", how)?;
    let before = disk.memory("VmRSS")?;
    site.far(RTT_MS);
    let mut command = Command::new("dd");
    command.arg(format!("if={}", disk.file().display()));
    let took = timed(command.args(["of=/dev/null", "bs=1M", "status=none"]))?;
    let share = share(site, options, took);
    let peak = disk.memory("VmHWM")?;
    let used = disk.end()?;
    let text = format!(
        "{:.0} %: {}, {:.1} MB on the line, {} requests",
        share * 100.0,
        seconds(took),
        site.wire_bytes() as f64 / 1e6,
        used["requests"],
    );
    let what = format!(
        "the whole disk by dd at {RTT_MS} ms and {} Mbit/s, share of the line",
        options.rate
    );
    report.row(&what, Goal::at_least(0.9, ">= 90 %"), share, text);
    let beyond = peak.saturating_sub(before).saturating_sub(CHUNKS_BYTES) as f64 / 1e6;
    let text = format!(
        "{beyond:.1} MB: at most {:.1} MB resident, {:.1} MB before the first read",
        peak as f64 / 1e6,
        before as f64 / 1e6
    );
    let goal = Goal::at_most(32.0, "<= 32 MB");
    report.row("the same, memory beyond that of chunks", goal, beyond, text);
    Ok(())
}
