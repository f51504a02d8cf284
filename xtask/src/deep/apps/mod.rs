//! Real applications on the subject: what users do, and what they would notice first.
//!
//! Each application is one module with one function that either returns a line of figures or fails.
//! An application that is not installed is skipped with a reason.

mod acks;
mod cargo;
mod git;
mod postgres;
mod sqlite;
mod tar;

use super::Subject;
use crate::tools::{find, skipped};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// For any single program that an application calls.
const STEP_LIMIT: Duration = Duration::from_secs(5 * 60);

/// One application: its name, the programs it needs, its run.
struct Application {
    name: &'static str,
    programs: &'static [&'static str],
    run: fn(&Place) -> Result<String>,
}

/// Where an application runs.
struct Place {
    /// An empty directory on the subject.
    directory: PathBuf,
    /// An empty local directory: what must not depend on the subject.
    local: PathBuf,
}

const APPLICATIONS: [Application; 6] = [
    Application {
        name: "git",
        programs: &["git"],
        run: git::run,
    },
    Application {
        name: "tar",
        programs: &["tar", "setfacl", "setfattr"],
        run: tar::run,
    },
    Application {
        name: "cargo",
        programs: &["cargo"],
        run: cargo::run,
    },
    Application {
        name: "sqlite-rollback",
        programs: &["sqlite3"],
        run: sqlite::run_rollback,
    },
    Application {
        name: "sqlite-wal",
        programs: &["sqlite3"],
        run: sqlite::run_wal,
    },
    Application {
        name: "postgresql",
        programs: &[postgres::INITDB, "runuser"],
        run: postgres::run,
    },
];

/// Nothing to build: the programs are Debian's.
pub(crate) fn prepare() -> Result<Option<String>> {
    Ok(None)
}

pub(crate) fn run(subject: &Subject) -> Result<()> {
    let mut failed = Vec::new();
    for Application {
        name,
        programs,
        run,
    } in APPLICATIONS
    {
        if let Some(missing) = programs.iter().find(|program| find(program).is_none()) {
            skipped(name, &format!("{missing} is missing"));
            continue;
        }
        let place = Place {
            directory: make(&subject.directory, name)?,
            local: make(&subject.scratch, name)?,
        };
        let started = Instant::now();
        let result = run(&place);
        let seconds = started.elapsed().as_secs_f64();
        match result {
            Ok(figures) => println!("{name:<16} {seconds:>6.1} s  {figures}"),
            Err(error) => {
                println!("{name:<16} {seconds:>6.1} s  FAILED: {error:#}");
                failed.push(name);
            }
        }
    }
    if !failed.is_empty() {
        bail!("applications that fail: {failed:?}");
    }
    Ok(())
}

fn make(parent: &Path, name: &str) -> Result<PathBuf> {
    let path = parent.join(name);
    std::fs::create_dir(&path)?;
    Ok(path)
}
