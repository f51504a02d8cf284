//! git: clone, check, repack and change the work tree of a repository made here.

use super::{Place, STEP_LIMIT};
use crate::deep::seed::Seed;
use crate::process;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

const COMMITS: u32 = 40;
const FILES_PER_COMMIT: u32 = 20;

pub(crate) fn run(place: &Place) -> Result<String> {
    let (origin, clone) = (place.local.join("origin"), place.directory.join("clone"));
    make_repository(&origin)?;
    let tree = git(&origin, &["rev-parse", "HEAD^{tree}"])?;

    // Through the transport, as from another machine: a local clone would make hard links.
    let mut command = isolated(&place.local);
    command
        .args(["clone", "--quiet", "--no-local"])
        .arg(&origin)
        .arg(&clone);
    process::check(&mut command, STEP_LIMIT)?;
    git(&clone, &["fsck", "--full", "--strict"])?;
    for commit in ["main~20", "main~35", "main~1"] {
        git(&clone, &["checkout", "--quiet", commit])?;
    }
    git(&clone, &["gc", "--quiet", "--prune=now"])?;
    git(&clone, &["fsck", "--full", "--strict"])?;
    git(
        &clone,
        &[
            "checkout",
            "--quiet",
            "--force",
            "-B",
            "check",
            "origin/HEAD",
        ],
    )?;

    let changed = git(&clone, &["status", "--porcelain"])?;
    if !changed.is_empty() || git(&clone, &["rev-parse", "HEAD^{tree}"])? != tree {
        bail!("the clone differs from its origin: {changed}");
    }
    let files = git(&clone, &["ls-files"])?.lines().count();
    Ok(format!(
        "{COMMITS} commits, {files} files: clone, fsck, checkout, gc, fsck"
    ))
}

fn make_repository(path: &Path) -> Result<()> {
    let mut seed = Seed::new(2);
    std::fs::create_dir(path)?;
    git(path, &["init", "--quiet", "--initial-branch=main"])?;
    for commit in 0..COMMITS {
        for _ in 0..FILES_PER_COMMIT {
            let directory = path.join(format!("d{}", seed.between(0, 10)));
            std::fs::create_dir_all(&directory)?;
            let size = seed.between(0, 40_000) as usize;
            std::fs::write(
                directory.join(format!("f{}", seed.between(0, 60))),
                seed.bytes(size),
            )?;
        }
        git(path, &["add", "--all"])?;
        git(
            path,
            &[
                "commit",
                "--quiet",
                "--message",
                &format!("commit {commit}"),
            ],
        )?;
    }
    Ok(())
}

fn git(repository: &Path, arguments: &[&str]) -> Result<String> {
    let home = repository
        .parent()
        .context("a repository lies in a directory")?;
    let mut command = isolated(home);
    command.arg("-C").arg(repository).args(arguments);
    process::check(&mut command, STEP_LIMIT)
}

/// Without the user's own configuration.
fn isolated(home: &Path) -> Command {
    let mut command = Command::new("git");
    command.env("HOME", home).env("GIT_CONFIG_NOSYSTEM", "1");
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "Test");
        command.env(format!("GIT_{role}_EMAIL"), "test@example.org");
    }
    command
}
