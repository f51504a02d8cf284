//! Peers that are missing are installed from the distribution; nothing else on the system changes.
//!
//! This runs inside the container: a service that a package wants to start (sshd's) finds no
//! service manager in the private `/run`, and if it starts all the same, it ends with the run.
//!
//! The distribution's rclone may lack parallel streams, the best peer's main feature. Then, if Go
//! is here, a newer one is built beside this program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::systems::rclone_has_streams;

const PACKAGES: [(&str, &str); 3] = [
    ("sshfs", "sshfs"),
    ("/usr/sbin/sshd", "openssh-server"),
    ("rclone", "rclone"),
];
/// Building rclone takes minutes on two cores.
const BUILD_MAX: &str = "1200";

fn is_there(program: &str) -> bool {
    if program.starts_with('/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

fn run(program: &str, arguments: &[&str], variables: &[(&str, &Path)]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).envs(variables.iter().copied());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Installs missing packages; a failure shows later as a skipped system.
pub(crate) fn packages() {
    let missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|(program, _)| !is_there(program))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() || !is_there("apt-get") {
        return;
    }
    eprintln!("installing {}", missing.join(", "));
    run("apt-get", &["update", "-q"], &[]);
    run(
        "apt-get",
        &[
            &["install", "-y", "-q", "--no-install-recommends"],
            &missing[..],
        ]
        .concat(),
        &[],
    );
}

/// The best rclone: the one given, one built before, the installed one, or one built now.
pub(crate) fn rclone(given: Option<&Path>, may_build: bool) -> PathBuf {
    if let Some(given) = given {
        return given.to_owned();
    }
    let installed = PathBuf::from("rclone");
    let Ok(own) = std::env::current_exe() else {
        return installed;
    };
    let peers = own.with_file_name("peers");
    let built = peers.join("rclone");
    if built.exists() || rclone_has_streams(&installed) || !may_build || !is_there("go") {
        return if built.exists() { built } else { installed };
    }
    eprintln!("the installed rclone has no parallel streams: building a newer one (minutes)");
    let go = peers.join("go");
    let cache = peers.join("cache");
    let variables: [(&str, &Path); 4] = [
        ("GOBIN", &peers),
        ("GOPATH", &go),
        ("GOCACHE", &cache),
        ("GOFLAGS", Path::new("-modcacherw")),
    ];
    let package = "github.com/rclone/rclone@latest";
    run(
        "timeout",
        &[BUILD_MAX, "nice", "go", "install", package],
        &variables,
    );
    for leftover in [go, cache] {
        // Gigabytes of sources and objects; only the program is wanted.
        let _ = std::fs::remove_dir_all(leftover);
    }
    if built.exists() { built } else { installed }
}
