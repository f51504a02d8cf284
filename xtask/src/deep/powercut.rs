//! Emulated machines whose power is cut, of every file system that this machine can make: it needs
//! QEMU and a kernel's package, which `cargo xtask ci` does without.
//!
//! What was synced must be whole on the file systems that are known to keep it. JFS and ReiserFS
//! are run, too, and what they lose is told (docs/decisions/0027-power-cuts.md).

use super::Subject;
use crate::process;
use crate::workspace;
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(50 * 60);
/// Tests of the product; with this variable, what they lack is an error.
const TEST: &str = "powercut::";
const REQUIRED: &str = "AZEKURA_MACHINES_REQUIRED";
const KEEP: &str = "ext3,ext4,xfs,btrfs";
const OTHERS: &str = "ext2,jfs,reiserfs";
/// What a run says that has found a lost acknowledgement.
const FOUND: &str = "AZ1201";

pub(crate) fn prepare() -> Result<Option<String>> {
    Ok(None)
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    // Of the whole workspace: with the features that `cargo xtask ci` has compiled.
    let arguments = ["test", "--locked", "--workspace", "--test", "e2e", TEST];
    let mut command = workspace::cargo(&arguments);
    command.args(["--", "--nocapture"]).env(REQUIRED, "1");
    process::stream(&mut command, LIMIT)?.check("end-to-end tests")?;
    let binary = workspace::build_azekura(true)?;
    let seed = subject.options.first_seed().to_string();
    cut(&binary, &seed, KEEP)?.check("power cuts of file systems that keep what was synced")?;
    let others = cut(&binary, &seed, OTHERS)?;
    if !others.success && !others.output.contains(FOUND) {
        bail!("power cuts of {OTHERS}: {}", others.end);
    }
    Ok(())
}

fn cut(binary: &Path, seed: &str, targets: &str) -> Result<process::Outcome> {
    let mut command = Command::new(binary);
    command.args(["verify", "powercut", "--target", targets]);
    command.args(["--how", "close,fsync", "--size", "1MiB", "--wait", "0s,5s"]);
    command.args(["--cuts-max", "3", "--seed", seed]);
    process::stream(&mut command, LIMIT)
}
