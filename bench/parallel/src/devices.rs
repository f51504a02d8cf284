//! fio on as many files as there are stores, at once: what the disk gives for the same.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// Requests that each file has under way.
const DEPTH: u32 = 4;

/// Writes or reads files in a directory, from end to end; bytes a second of all together, flush
/// included.
pub(crate) fn run(directory: &Path, direction: &str, files: usize, bytes: u64) -> Result<f64> {
    let output = Command::new("fio")
        .args(["--name=store", "--direct=1", "--ioengine=io_uring"])
        .args(["--bs=1M", "--group_reporting", "--end_fsync=1"])
        .args(["--output-format=json", "--randrepeat=0"])
        .arg(format!("--directory={}", directory.display()))
        .arg(format!("--rw={direction}"))
        .arg(format!("--iodepth={DEPTH}"))
        .arg(format!("--numjobs={files}"))
        .arg(format!("--size={}", bytes / files as u64))
        .output()
        .context("fio is not installed")?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "fio failed: {errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').context("fio says nothing")?;
    let figures: serde_json::Value = serde_json::from_str(&text[json..]).context("fio's JSON")?;
    let job = &figures["jobs"][0];
    let done = job[direction]["io_bytes"].as_f64().context("bytes")?;
    // In milliseconds; of the slowest, flush included.
    let time = job["job_runtime"].as_f64().context("time")?;
    let runtime = job[direction]["runtime"].as_f64().context("time")?;
    // `job_runtime` is the sum over grouped jobs.
    let seconds = runtime.max(time / files as f64) / 1000.0;
    ensure!(seconds > 0.0, "fio did nothing");
    Ok(done / seconds)
}
