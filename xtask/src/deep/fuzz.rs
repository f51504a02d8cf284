//! Every fuzz target of `fuzz/` for a while, with cargo-fuzz on the nightly toolchain.

use super::Subject;
use crate::process;
use crate::tools::find;
use crate::workspace;
use anyhow::{Result, bail};
use std::process::Command;
use std::time::Duration;

/// The first build of the instrumented tree.
const BUILD_LIMIT: Duration = Duration::from_secs(15 * 60);

pub(crate) fn prepare() -> Result<Option<String>> {
    if !workspace::root().join("fuzz/Cargo.toml").exists() {
        return Ok(Some("fuzz/Cargo.toml does not exist".to_owned()));
    }
    if find("cargo-fuzz").is_none() {
        return Ok(Some(
            "cargo-fuzz is missing: cargo install cargo-fuzz".to_owned(),
        ));
    }
    let nightly = process::capture(fuzz().arg("list"), BUILD_LIMIT)?;
    Ok((!nightly.success).then(|| format!("cargo +nightly fuzz list: {}", nightly.end)))
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    let seconds = subject.options.seconds;
    let targets = process::check(fuzz().arg("list"), BUILD_LIMIT)?;
    process::check(fuzz().arg("build"), BUILD_LIMIT)?;
    let mut crashed = Vec::new();
    for target in targets.split_whitespace() {
        let mut command = fuzz();
        command.args(["run", target, "--", &format!("-max_total_time={seconds}")]);
        // Beyond twice its time a target hangs; libFuzzer's own limit for one input is 20 minutes.
        let limit = Duration::from_secs(60 + 2 * seconds);
        let outcome = process::capture(command.arg("-timeout=20"), limit)?;
        if outcome.success {
            println!("{target}: {seconds} s, {}", executions(&outcome.output));
        } else {
            println!("{target}: {}\n{}", outcome.end, outcome.output.trim_end());
            crashed.push(target.to_owned());
        }
    }
    if !crashed.is_empty() {
        bail!("targets that crash: {crashed:?}");
    }
    Ok(())
}

fn fuzz() -> Command {
    let mut command = Command::new("cargo");
    command
        .args(["+nightly", "fuzz"])
        .current_dir(workspace::root());
    command
}

/// libFuzzer's last words: "Done 12345 runs in 61 second(s)".
fn executions(output: &str) -> String {
    let done = output
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("Done "));
    done.unwrap_or("no count of runs").to_owned()
}
