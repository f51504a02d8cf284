//! Test programs that Debian does not have, built from their crates into `target/tools`.

use crate::process;
use crate::workspace;
use anyhow::Result;
use std::path::PathBuf;
use std::time::Duration;

/// Measured 36 s to 11 min, depending on what else the machine does.
const BUILD_LIMIT: Duration = Duration::from_secs(20 * 60);

/// Where a program lies once it is installed.
pub(crate) fn path(program: &str) -> PathBuf {
    workspace::target().join("tools/bin").join(program)
}

/// Installs exactly this version, with these features of its crate, unless it is there. The version
/// is fixed, because a suite's count of passes is compared between runs.
pub(crate) fn install(name: &str, version: &str, features: &str) -> Result<()> {
    let root = workspace::target().join("tools");
    let record = std::fs::read_to_string(root.join(".crates.toml")).unwrap_or_default();
    if path(name).is_file() && record.contains(&format!("\"{name} {version} ")) {
        return Ok(());
    }
    println!("deep: building {name} {version}");
    let mut command = workspace::cargo(&["install", "--locked", "--force", name]);
    command
        .args(["--version", version, "--features", features])
        .arg("--root")
        .arg(&root);
    // A target directory of its own: this build shall not wait for the workspace's lock.
    command.env("CARGO_TARGET_DIR", root.join("build"));
    process::check(&mut command, BUILD_LIMIT)?;
    Ok(())
}
