//! Disks in a bucket of S3, at a real server: the tests that are skipped without one.
//!
//! Debian's rclone is older than `rclone serve s3`, so the server is s3s-fs, from its crate. It
//! checks signatures and knows conditional writes.

use super::{Subject, install};
use crate::process;
use crate::workspace;
use anyhow::{Context, Result, ensure};
use std::time::Duration;

const SERVER: &str = "s3s-fs";
const VERSION: &str = "0.14.1";
const LIMIT: Duration = Duration::from_secs(25 * 60);

pub(crate) fn prepare() -> Result<Option<String>> {
    install::install(SERVER, VERSION, "binary")?;
    Ok(None)
}

pub(crate) fn run(_: &Subject) -> Result<()> {
    let program = install::path(SERVER);
    let directory = program.parent().context("where programs lie")?;
    let mut path = directory.as_os_str().to_owned();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    for what in [
        // With the features that the other has compiled.
        &[
            "--package",
            "azekura",
            "--package",
            "disk",
            "--lib",
            "bucket::",
        ][..],
        &["--workspace", "--test", "e2e", "disks::bucket::"],
    ] {
        let mut command = workspace::cargo(&[&["test", "--locked"], what].concat());
        command.args(["--", "--nocapture"]).env("PATH", &path);
        let said = process::check(&mut command, LIMIT)?;
        ensure!(!said.contains("skipped:"), "skipped:\n{said}");
        let result = said.lines().rfind(|line| line.starts_with("test result:"));
        println!("bucket: {}", result.context("no test was run")?);
    }
    Ok(())
}
