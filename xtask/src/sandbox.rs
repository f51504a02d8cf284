//! Namespaces in which a command can leave nothing behind.
//!
//! The command runs below the first process of a PID namespace, in a mount namespace of its own
//! and, if asked for, in a network namespace with nothing but a loopback device. When that first
//! process ends, for whatever reason, the kernel kills every other process in there, drops the
//! mounts and with them the loop devices, and frees the ports. No list of things to clean up can be
//! incomplete. Examples may therefore name fixed ports, and two runs do not disturb each other.

use std::ffi::OsStr;
use std::process::Command;

/// Which network the command sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    /// The machine's.
    Shared,
    /// Only a loopback device.
    Loopback,
}

/// The first process: it ends with the command or upon a signal. A first process without a handler
/// would ignore Ctrl-C.
const INIT: &str = "trap 'exit 130' INT TERM; \"$@\" & wait $!";
const INIT_WITH_LOOPBACK: &str =
    "ip link set lo up || exit; trap 'exit 130' INT TERM; \"$@\" & wait $!";

/// `program` in namespaces of its own; arguments can be added. Needs root.
pub(crate) fn command(network: Network, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    let init = match network {
        Network::Shared => INIT,
        Network::Loopback => {
            command.arg("--net");
            INIT_WITH_LOOPBACK
        }
    };
    command.args(["--", "sh", "-c", init, "sh"]).arg(program);
    command
}

/// Why no sandbox can be made here, if none can.
pub(crate) fn obstacle() -> Option<&'static str> {
    if !crate::workspace::is_root() {
        return Some("mounts and namespaces need root");
    }
    let missing = ["unshare", "ip"]
        .iter()
        .any(|program| crate::tools::find(program).is_none());
    missing.then_some("unshare (util-linux) or ip (iproute2) is missing")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;
    use std::time::Duration;

    const LIMIT: Duration = Duration::from_secs(20);

    fn run(network: Network, script: &str) -> Option<process::Outcome> {
        if let Some(why) = obstacle() {
            crate::tools::skipped("sandbox", why);
            return None;
        }
        let mut command = command(network, "sh");
        Some(process::capture(command.args(["-c", script]), LIMIT).unwrap())
    }

    #[test]
    fn nothing_stays_behind() {
        let scratch = crate::scratch::Scratch::new("sandbox").unwrap();
        let directory = scratch.path().display();
        let script =
            format!("mount -t tmpfs none {directory} && sleep 1000 & sleep 0.5; echo here");
        let Some(outcome) = run(Network::Shared, &script) else {
            return;
        };
        assert_eq!(outcome.output, "here\n");
        // It ended by itself, not by its limit: nobody waited for the sleeper.
        assert!(outcome.success, "{}", outcome.end);
        assert!(crate::scratch::mounts_beneath(scratch.path()).is_empty());
    }

    #[test]
    fn the_exit_status_comes_out() {
        let Some(outcome) = run(Network::Shared, "exit 7") else {
            return;
        };
        assert!(outcome.end.contains('7'), "{}", outcome.end);
    }

    #[test]
    fn loopback_works_and_nothing_else_is_there() {
        let script = "ip -o link | wc -l; ip -o addr show lo | grep -c 127.0.0.1";
        let Some(outcome) = run(Network::Loopback, script) else {
            return;
        };
        let first_links = outcome
            .output
            .lines()
            .next()
            .and_then(|line| line.trim().parse().ok());
        // Some kernels add tunnel fallbacks; none of them has an address.
        assert!(
            first_links.is_some_and(|links: u32| links >= 1),
            "{}",
            outcome.output
        );
        assert_eq!(outcome.output.lines().nth(1), Some("1"));
    }
}
