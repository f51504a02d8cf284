//! The server killed at any moment, again and again, every acknowledgement checked.
//!
//! The test itself is an end-to-end test of the product, `crates/azekura/tests/kill9.rs`: it runs a
//! few rounds in `cargo xtask ci` and as many here as `AZEKURA_KILL_ROUNDS` says.

use super::{Subject, end_to_end};
use crate::workspace;
use anyhow::Result;
use std::time::Duration;

const TEST: &str = "crates/azekura/tests/kill9.rs";
const ROUNDS: &str = "200";
const LIMIT: Duration = Duration::from_secs(55 * 60);

pub(crate) fn prepare() -> Result<Option<String>> {
    let exists = workspace::root().join(TEST).exists();
    Ok((!exists).then(|| format!("{TEST} does not exist")))
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    let rounds = ("AZEKURA_KILL_ROUNDS", ROUNDS.to_owned());
    end_to_end("kill9", &[rounds], subject.options.volume, LIMIT)
}
