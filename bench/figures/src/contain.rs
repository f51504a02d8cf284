//! Namespaces for the whole run, so that nothing can stay behind: when it ends, however it does,
//! the kernel ends its processes, drops its mounts and with them the loop devices.

use anyhow::{Context, Result};
use std::process::{Command, ExitCode};

/// Says that this is the process inside.
const INSIDE: &str = "AZEKURA_BENCH_INSIDE";
/// The first process inside: it ends with the run or upon a signal. One without a handler would
/// ignore Ctrl-C.
const INIT: &str = "trap 'exit 130' INT TERM; \"$@\" & wait $!";

/// Runs `work` inside; this program must do nothing before that.
///
/// # Errors
/// Those of `work`, and if there can be no namespaces.
pub fn contained(work: impl FnOnce() -> Result<()>) -> Result<ExitCode> {
    if std::env::var_os(INSIDE).is_some() {
        return work().map(|()| ExitCode::SUCCESS);
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["--", "sh", "-c", INIT, "sh"]);
    command.arg(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env(INSIDE, "1");
    let status = command.status().context("unshare (util-linux)")?;
    Ok(ExitCode::from(status.code().unwrap_or(1) as u8))
}
