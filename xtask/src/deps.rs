//! `cargo xtask deps TARGET`: Debian packages, and programs that cargo builds, which a target needs
//! and this machine lacks.
//!
//! What is there is found by its programs, not by package names: a machine that has them from
//! elsewhere is left alone. Packages are installed as root or through `sudo -n`; when neither is
//! possible, the command for the administrator is printed and the run ends.

use crate::args::Args;
use crate::process;
use crate::tools::find;
use crate::workspace;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Downloading over a slow line is no failure; hanging for ever is.
const INSTALL_LIMIT: Duration = Duration::from_secs(15 * 60);

/// A package, a program or file by which its presence is known, and what needs it.
struct Package {
    name: &'static str,
    program: &'static str,
    reason: &'static str,
}

const fn package(name: &'static str, program: &'static str, reason: &'static str) -> Package {
    Package {
        name,
        program,
        reason,
    }
}

const BUILD: &[Package] = &[
    package("protobuf-compiler", "protoc", "building the client of etcd"),
    package(
        "libprotobuf-dev",
        "/usr/include/google/protobuf/descriptor.proto",
        "building the client of etcd",
    ),
];
const DEMO: &[Package] = &[package("fuse3", "fusermount3", "mounts")];
const TEST: &[Package] = &[
    package("acl", "setfacl", "tests of POSIX ACLs"),
    package("attr", "setfattr", "tests of extended attributes"),
    package(
        "btrfs-progs",
        "mkfs.btrfs",
        "a file system to be judged by crash runs",
    ),
    package(
        "bonnie++",
        "bonnie++",
        "a program that measures, for speed runs",
    ),
    package("casync", "casync", "images of others"),
    package(
        "e2fsprogs",
        "mkfs.ext4",
        "a small file system that can be filled",
    ),
    package("etcd-server", "etcd", "a cluster of three members"),
    package("fio", "fio", "examples of the documents"),
    package("git", "git", "a real application on a mount"),
    package("iproute2", "ip", "network namespaces"),
    package("libnbd-bin", "nbdcopy", "another client of NBD"),
    package("python3", "python3", "a web server of the documents"),
    package(
        "qemu-utils",
        "qemu-img",
        "another client of NBD, and images of others",
    ),
    package("nfs4-acl-tools", "nfs4_getfacl", "tests of rich ACLs"),
    package("sqlite3", "sqlite3", "a real application on a mount"),
    package("util-linux", "unshare", "namespaces"),
    package(
        "xfsprogs",
        "mkfs.xfs",
        "a file system to be judged by crash runs",
    ),
];
const BENCH: &[Package] = &[
    package("openssh-server", "sshd", "the server of the peer sshfs"),
    package("rclone", "rclone", "a peer"),
    package("sshfs", "sshfs", "a peer"),
];
const DEEP: &[Package] = &[
    package("busybox", "busybox", "a web server of disks"),
    package("chromium", "chromium", "a reader of reports"),
    package(
        "jfsutils",
        "mkfs.jfs",
        "a file system whose machine's power is cut",
    ),
    package("curl", "curl", "the tests of the package acl"),
    package(
        "mmdebstrap",
        "mmdebstrap",
        "a machine that boots from a disk",
    ),
    package(
        "postgresql",
        "/usr/lib/postgresql/*/bin/initdb",
        "a real application on a mount",
    ),
    package(
        "qemu-system-x86",
        "qemu-system-x86_64",
        "machines whose power is cut",
    ),
    package(
        "reiserfsprogs",
        "mkfs.reiserfs",
        "a file system whose machine's power is cut",
    ),
    package("samba", "smbd", "rich ACLs over SMB"),
    package(
        "samba-testsuite",
        "smbtorture",
        "what Samba's own tests say of rich ACLs",
    ),
    package(
        "samba-vfs-modules",
        "/usr/share/doc/samba-vfs-modules/copyright",
        "rich ACLs over SMB",
    ),
    package("smbclient", "smbcacls", "rich ACLs over SMB"),
];

/// A program that cargo builds, which has the package's name, and what needs it.
struct Tool {
    target: &'static str,
    name: &'static str,
    version: &'static str,
    reason: &'static str,
}

const TOOLS: &[Tool] = &[Tool {
    target: "deep",
    name: "cargo-fuzz",
    version: "0.13.2",
    reason: "fuzz targets",
}];

/// Each target with the groups of packages that it needs.
const TARGETS: [(&str, &[&[Package]]); 5] = [
    ("build", &[BUILD]),
    ("demo", &[BUILD, DEMO]),
    ("test", &[BUILD, DEMO, TEST]),
    ("bench", &[BUILD, DEMO, TEST, BENCH]),
    ("deep", &[BUILD, DEMO, TEST, DEEP]),
];

/// `cargo xtask deps TARGET [--dry-run]`
pub(crate) fn run(mut args: Args) -> Result<()> {
    let target = args
        .take_word()
        .context("deps needs a target: build, demo, test, bench or deep")?;
    let dry_run = args.take_flag("--dry-run");
    args.finish_empty()?;
    let Some((_, groups)) = TARGETS.iter().find(|(name, _)| *name == target) else {
        bail!("no target {target:?}; there are: build, demo, test, bench, deep");
    };
    let lacking = missing(groups, |program| find(program).is_some());
    let tools = lacking_tools(&target, |program| find(program).is_some());
    if !lacking.is_empty() {
        install_packages(&target, &lacking, dry_run)?;
    }
    for tool in tools {
        println!("{target} needs {} ({})", tool.name, tool.reason);
        if !dry_run {
            let mut cargo = Command::new("cargo");
            cargo.args(["install", "--locked", "--version", tool.version, tool.name]);
            process::check(&mut cargo, INSTALL_LIMIT)?;
        }
    }
    Ok(())
}

fn lacking_tools(target: &str, is_there: impl Fn(&str) -> bool) -> Vec<&'static Tool> {
    let tools = TOOLS.iter().filter(|tool| tool.target == target);
    tools.filter(|tool| !is_there(tool.name)).collect()
}

fn install_packages(target: &str, lacking: &[&Package], dry_run: bool) -> Result<()> {
    let names: Vec<_> = lacking.iter().map(|package| package.name).collect();
    let reasons: Vec<_> = lacking
        .iter()
        .map(|package| format!("{} ({})", package.name, package.reason))
        .collect();
    println!("{target} needs Debian packages: {}", reasons.join(", "));
    if dry_run {
        return Ok(());
    }
    install(&names)
}

fn missing(
    groups: &[&'static [Package]],
    is_there: impl Fn(&str) -> bool,
) -> Vec<&'static Package> {
    let packages = groups.iter().flat_map(|group| group.iter());
    packages
        .filter(|package| !is_there(package.program))
        .collect()
}

fn install(names: &[&str]) -> Result<()> {
    let remedy = format!("as root: apt-get install {}", names.join(" "));
    if find("apt-get").is_none() {
        bail!("there is no apt-get here; install what these Debian packages hold: {names:?}");
    }
    let prefix: &[&str] = match (workspace::is_root(), find("sudo").is_some()) {
        (true, _) => &[],
        (false, true) => &["sudo", "-n"],
        (false, false) => bail!("only root can install packages and sudo is missing; {remedy}"),
    };
    let arguments = ["install", "--yes", "--no-install-recommends"];
    let attempt = || -> Result<process::Outcome> {
        process::capture(apt_get(prefix, &arguments).args(names), INSTALL_LIMIT)
    };
    // A fresh machine has no package lists, an old one has stale ones; both need one update.
    if has_package_lists() && attempt()?.success {
        return Ok(());
    }
    process::check(&mut apt_get(prefix, &["update"]), INSTALL_LIMIT)
        .with_context(|| remedy.clone())?;
    attempt()?
        .check("apt-get install")
        .with_context(|| remedy)?;
    Ok(())
}

fn apt_get(prefix: &[&str], arguments: &[&str]) -> Command {
    let words = [
        prefix,
        &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"],
        arguments,
    ]
    .concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

fn has_package_lists() -> bool {
    let Ok(entries) = std::fs::read_dir(Path::new("/var/lib/apt/lists")) else {
        return false;
    };
    entries
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn names(groups: &[&'static [Package]], is_there: impl Fn(&str) -> bool) -> Vec<&'static str> {
        missing(groups, is_there)
            .iter()
            .map(|package| package.name)
            .collect()
    }

    #[test]
    fn only_what_is_missing_is_wanted() {
        assert!(names(&[DEMO, TEST], |_| true).is_empty());
        assert_eq!(names(&[DEMO, TEST], |program| program != "fio"), ["fio"]);
        assert_eq!(names(&[DEMO], |_| false), ["fuse3"]);
    }

    #[test]
    fn programs_that_cargo_builds_are_wanted_where_they_are_used() {
        let names = |target, is_there: bool| -> Vec<_> {
            let tools = lacking_tools(target, |_| is_there);
            tools.into_iter().map(|tool| tool.name).collect()
        };
        assert_eq!(names("deep", false), ["cargo-fuzz"]);
        assert!(names("deep", true).is_empty());
        assert!(names("test", false).is_empty());
    }

    #[test]
    fn apt_get_runs_as_root_or_through_sudo() {
        let direct = process::describe(&apt_get(&[], &["update"]));
        assert_eq!(direct, "env DEBIAN_FRONTEND=noninteractive apt-get update");
        assert!(
            process::describe(&apt_get(&["sudo", "-n"], &["update"])).starts_with("sudo -n env")
        );
    }

    #[test]
    fn the_readme_asks_for_the_version_of_rust_that_is_pinned() {
        let root = workspace::root();
        let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
        let pinned = read("rust-toolchain.toml");
        let channel = pinned.split('"').nth(1).unwrap();
        let minor = channel.rsplit_once('.').unwrap().0;
        assert!(read("README.md").contains(&format!("Rust {minor} or newer")));
    }

    #[test]
    fn a_toolchain_that_is_missing_is_said_in_two_lines() {
        use std::os::unix::fs::PermissionsExt;
        let root = workspace::root();
        let scratch = Scratch::new("bootstrap").unwrap();
        let program = |name: &str, script: &str| {
            let path = scratch.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        program(
            "cargo",
            "echo error: it is not installed >&2; seq 30 >&2; exit 1",
        );
        program("rustup", "exit 1");
        let output = Command::new("sh")
            .arg("xtask/bootstrap.sh")
            .current_dir(root)
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", scratch.path().display()),
            )
            .output()
            .unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8(output.stderr).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 2, "{said}");
        assert!(lines[0].ends_with("error: it is not installed"), "{said}");
        assert!(lines[1].contains("rustup toolchain install 1."), "{said}");
    }

    #[test]
    fn an_unknown_target_is_refused() {
        let args = |line: &str| Args::new(line.split(' ').map(str::to_owned).collect());
        assert!(run(args("dmo")).is_err());
        assert!(run(args("demo --dry-rum")).is_err());
    }
}
