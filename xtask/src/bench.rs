//! `cargo xtask bench NAME ARGS...`: measurements.
//!
//! The measuring programs live in `bench/`, a workspace of its own, so that peers and emulators
//! never slow the normal build. What they measure is the release build, made here first and named
//! to them by `AZEKURA`.

use crate::args::Args;
use crate::workspace;
use anyhow::{Context, Result, bail};

pub(crate) fn run(mut args: Args) -> Result<()> {
    let name = args
        .take_word()
        .context("bench needs a name, for example: bench wan")?;
    let binary = workspace::build_azekura(true)?;
    let null = workspace::build_null()?;
    let arguments = [
        "run",
        "--release",
        "--locked",
        "--manifest-path",
        "bench/Cargo.toml",
    ];
    let mut command = workspace::cargo(&arguments);
    command
        .args(["--package", &name, "--"])
        .args(args.take_rest())
        .env("AZEKURA", binary)
        .env("AZEKURA_NULL", null);
    if !command.status()?.success() {
        bail!("bench {name} failed");
    }
    Ok(())
}
