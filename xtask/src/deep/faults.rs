//! All faults that can be planted in a program, a file system, a disk or a recovery: a crash run
//! must find each as what it is, and nothing in the same run without it. Prints what found which.

use super::Subject;
use crate::process;
use crate::workspace;
use anyhow::Result;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(55 * 60);
/// The test of the product; with this variable it plants all faults instead of some.
const TEST: &str = "faults::";
const ALL: (&str, &str) = ("AZEKURA_FAULTS", "all");

pub(crate) fn prepare() -> Result<Option<String>> {
    Ok(None)
}

pub(crate) fn run(_: &Subject) -> Result<()> {
    // Of the whole workspace: with the features that `cargo xtask ci` has compiled.
    let arguments = ["test", "--locked", "--workspace", "--test", "e2e", TEST];
    let mut command = workspace::cargo(&arguments);
    command.args(["--", "--nocapture"]).env(ALL.0, ALL.1);
    process::stream(&mut command, LIMIT)?.check("planted faults")?;
    Ok(())
}
