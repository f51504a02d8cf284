//! `cargo xtask bench NAME ARGS...`: measurements.
//!
//! The measuring programs live in `bench/`, a workspace of its own, so that peers and emulators
//! never slow the normal build. What they measure is the release build, made here first and named
//! to them by `AZEKURA`. A measurement of a single crate imports it and needs no program.

use crate::args::Args;
use crate::workspace;
use anyhow::{Context, Result, bail};

/// Measurements that need neither the program nor the file system to compare it with.
const OF_CRATES: [&str; 4] = ["calendar", "meta", "reserve", "store"];

pub(crate) fn run(mut args: Args) -> Result<()> {
    let name = args
        .take_word()
        .context("bench needs a name, for example: bench wan")?;
    let arguments = [
        "run",
        "--release",
        "--locked",
        "--manifest-path",
        "bench/Cargo.toml",
    ];
    let mut command = workspace::cargo(&arguments);
    command.args(["--bin", &name, "--"]).args(args.take_rest());
    if !OF_CRATES.contains(&name.as_str()) {
        command
            .env("AZEKURA", workspace::build_azekura(true)?)
            .env("AZEKURA_NULL", workspace::build_null()?);
    }
    if !command.status()?.success() {
        bail!("bench {name} failed");
    }
    Ok(())
}
