//! Where things lie: the checkout, cargo's target directory, the product's binary.

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The checkout's root: the parent of this package.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this package lies in the checkout")
}

/// Cargo's target directory, as cargo itself would choose it without further configuration.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => root().join(directory),
        None => root().join("target"),
    }
}

/// `cargo` at the root of the checkout.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    // Set by cargo for the programs that it runs; the bare name serves a direct call.
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Builds the product and returns the binary's path. The test profile is the default, and then it
/// is built with the tests that run it: alone it would have fewer features of its dependencies,
/// and most of them were compiled once more.
pub(crate) fn build_azekura(release: bool) -> Result<PathBuf> {
    let mut command = if release {
        cargo(&[
            "build",
            "--quiet",
            "--locked",
            "--package",
            "azekura",
            "--release",
        ])
    } else {
        let with_tests = ["--workspace", "--no-run", "--test", "e2e"];
        let mut command = cargo(&["test", "--quiet", "--locked"]);
        command.args(with_tests);
        command
    };
    if !command.status()?.success() {
        bail!("azekura does not build");
    }
    Ok(target()
        .join(if release { "release" } else { "debug" })
        .join("azekura"))
}

/// Builds the file system that does nothing but FUSE, for comparison; its path.
pub(crate) fn build_null() -> Result<PathBuf> {
    let what = ["build", "--quiet", "--locked", "--package", "mount"];
    let mut command = cargo(&what);
    command.args(["--release", "--example", "null"]);
    if !command.status()?.success() {
        bail!("the null file system does not build");
    }
    Ok(target().join("release/examples/null"))
}

/// Whether this process may mount and make namespaces.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    // The owner of a process's own directory is its effective user.
    std::fs::metadata("/proc/self").is_ok_and(|metadata| metadata.uid() == 0)
}
