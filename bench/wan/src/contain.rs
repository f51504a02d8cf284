//! A container for the whole run, so that nothing can be left behind.
//!
//! ```text
//! wan ARGS              supervisor: new mount and process namespaces, waits
//!  `- wan ARGS          process 1 of the namespace: mounts private /proc and /run; reaps
//!      `- wan ARGS      the harness: servers, mounts, workloads
//! ```
//! When the harness ends, process 1 ends, and the kernel then kills every process in the
//! namespace and drops every mount, daemons that left their parents included. When the supervisor
//! is killed, process 1 is killed with it. All data lies in the
//! private `/run`, a tmpfs.

use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};

use anyhow::Context;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Signal, WaitOptions, set_parent_process_death_signal, wait};

/// Tells a process of this program which of the three it is.
const ROLE: &str = "AZEKURA_BENCH_ROLE";
/// Where everything of the run lies, inside.
pub(crate) const GROUND: &str = "/run/bench";

/// Runs `work` in the container; called again in each of the three processes.
pub(crate) fn contained(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    match std::env::var(ROLE).as_deref() {
        Ok("harness") => {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            work().map(|()| ExitCode::SUCCESS)
        }
        Ok("init") => {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            prepare_mounts()?;
            reap_until_done()
        }
        _ => {
            azlink::sys::unshare_mounts_and_processes()
                .context("making mount and process namespaces")?;
            let status = again("init").status().context("starting inside")?;
            Ok(exit_code(status))
        }
    }
}

/// The same program with the same arguments in another role.
fn again(role: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1)).env(ROLE, role);
    command
}

fn exit_code(status: ExitStatus) -> ExitCode {
    ExitCode::from(status.code().unwrap_or(1) as u8)
}

fn prepare_mounts() -> anyhow::Result<()> {
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private).context("making mounts private")?;
    mount("proc", "/proc", "proc", MountFlags::empty(), None).context("mounting /proc")?;
    mount(
        "tmpfs",
        "/run",
        "tmpfs",
        MountFlags::empty(),
        Some(c"size=75%,mode=755"),
    )
    .context("mounting a tmpfs on /run")?;
    std::fs::create_dir(GROUND)?;
    // Through this, a connection to a client that hangs can be ended. Without it, ending the
    // client has to do; kernels without FUSE have nothing to end.
    let _ = mount(
        "fusectl",
        "/sys/fs/fuse/connections",
        "fusectl",
        MountFlags::empty(),
        None,
    );
    // The private sshd wants this directory, which a system without its service lacks.
    std::fs::create_dir(Path::new("/run/sshd")).context("making /run/sshd")
}

/// Collects dead processes, as the first process of a namespace must, until the harness is dead.
fn reap_until_done() -> anyhow::Result<ExitCode> {
    let harness = again("harness").spawn().context("starting the harness")?;
    loop {
        let Some((pid, status)) = wait(WaitOptions::empty()).context("waiting")? else {
            continue;
        };
        if pid.as_raw_nonzero().get() as u32 == harness.id() {
            return Ok(ExitCode::from(status.exit_status().unwrap_or(1) as u8));
        }
    }
}
