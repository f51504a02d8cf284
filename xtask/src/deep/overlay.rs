//! A disk under a file system, killed a thousand times while it is written to.
//!
//! The test itself is an end-to-end test of the product, which runs a few rounds in `cargo xtask
//! ci`: `crates/azekura/tests/e2e/disks/killed.rs`.

use super::Subject;
use crate::process;
use crate::workspace;
use anyhow::{Result, ensure};
use std::time::Duration;

const TEST: &str = "disks::killed::";
/// How often it is killed; `--cases` says otherwise.
const ROUNDS: u64 = 1000;
const LIMIT: Duration = Duration::from_secs(115 * 60);

pub(crate) fn prepare() -> Result<Option<String>> {
    Ok(None)
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    let arguments = ["test", "--locked", "--workspace", "--test", "e2e", TEST];
    let mut command = workspace::cargo(&arguments);
    command.args(["--", "--nocapture"]);
    let rounds = subject.options.cases.unwrap_or(ROUNDS);
    command.env("AZEKURA_KILL_ROUNDS", rounds.to_string());
    if let Some(seed) = subject.options.seed {
        command.env("AZEKURA_KILL_SEED", seed.to_string());
    }
    let said = process::tee(&mut command, LIMIT)?.check(TEST)?;
    let wanted = format!("{rounds} kills, ");
    ensure!(said.contains(&wanted), "there were fewer kills");
    Ok(())
}
