//! fio, on the same file.

use crate::place::Place;
use anyhow::{Context, Result, ensure};
use std::process::Command;

/// What fio measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    /// MB/s.
    pub(crate) rate: f64,
    pub(crate) per_second: f64,
}

/// Runs fio on a part of the file, with `O_DIRECT` and io_uring.
pub(crate) fn run(
    place: &Place,
    direction: &str,
    block: u64,
    size_bytes: u64,
    more: &[&str],
) -> Result<Outcome> {
    let mut command = Command::new("fio");
    command
        .args(["--name=paired", "--direct=1", "--ioengine=io_uring"])
        .args(["--output-format=json", "--allow_file_create=0"])
        .args(["--fallocate=none", "--overwrite=1", "--randrepeat=0"])
        .arg(format!("--filename={}", place.path.display()))
        .arg(format!("--rw={direction}"))
        .arg(format!("--bs={block}"))
        .arg(format!("--offset={}", place.grid_offset()?))
        .arg(format!("--size={size_bytes}"))
        .args(more);
    let output = command.output().context("fio is not installed")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "fio failed: {text}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).context("fio's JSON")?;
    let job = &json["jobs"][0];
    let side = if direction.ends_with("read") {
        "read"
    } else {
        "write"
    };
    let number = |value: &serde_json::Value| value.as_f64().context("a figure of fio's");
    let bytes = number(&job[side]["io_bytes"])?;
    let seconds = number(&job["job_runtime"])? / 1000.0;
    ensure!(seconds > 0.0, "fio did nothing");
    Ok(Outcome {
        rate: bytes / 1e6 / seconds,
        per_second: number(&job[side]["total_ios"])? / seconds,
    })
}
