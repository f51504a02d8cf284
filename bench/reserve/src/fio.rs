//! fio on the store's file: what the device gives whoever has it alone.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// Reads at random places for some seconds; bytes a second.
pub(crate) fn read(path: &Path, block: u32, seconds: u64) -> Result<f64> {
    let output = Command::new("fio")
        .args(["--name=paired", "--direct=1", "--ioengine=io_uring"])
        .args(["--rw=randread", "--iodepth=8", "--time_based"])
        .args([
            "--output-format=json",
            "--allow_file_create=0",
            "--readonly",
        ])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--bs={block}"))
        .arg(format!("--runtime={seconds}"))
        .output()
        .context("fio")?;
    ensure!(output.status.success(), "fio failed");
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.find('{').context("fio says nothing")?;
    let figures: serde_json::Value = serde_json::from_str(&text[json..])?;
    let rate = figures["jobs"][0]["read"]["bw_bytes"].as_f64();
    rate.context("fio says no rate")
}
