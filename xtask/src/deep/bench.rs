//! The programs that measure, themselves: the emulated line keeps its figures, and the harness says
//! what was and was not measured.

use super::Subject;
use crate::process;
use crate::workspace;
use anyhow::Result;
use std::process::Command;
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(25 * 60);
const RUN_LIMIT: Duration = Duration::from_secs(20 * 60);

/// Builds them, where the network is as usual.
pub(crate) fn prepare() -> Result<Option<String>> {
    process::check(&mut test(&["--no-run"]), BUILD_LIMIT)?;
    Ok(None)
}

pub(crate) fn run(_: &Subject) -> Result<()> {
    // One after the other: most of them judge times.
    let mut command = test(&["--", "--test-threads=1", "--nocapture"]);
    process::stream(&mut command, RUN_LIMIT)?.check("bench")?;
    Ok(())
}

fn test(arguments: &[&str]) -> Command {
    let test = ["test", "--release", "--locked"];
    let manifest = ["--manifest-path", "bench/Cargo.toml"];
    let packages = ["--package", "azlink", "--package", "wan"];
    workspace::cargo(&[&test[..], &manifest, &packages, arguments].concat())
}
