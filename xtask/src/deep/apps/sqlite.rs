//! SQLite, killed while it writes, in both of its journal modes.
//!
//! The rollback mode depends on the order of writes, `fsync` and `unlink`; the WAL mode on shared
//! mappings and locks. `synchronous=FULL` promises every acknowledged row.

use super::{Place, STEP_LIMIT, acks};
use crate::deep::seed::Seed;
use crate::process;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const KILLS: u32 = 10;

pub(crate) fn run_rollback(place: &Place) -> Result<String> {
    run(place, "delete")
}

pub(crate) fn run_wal(place: &Place) -> Result<String> {
    run(place, "wal")
}

fn run(place: &Place, mode: &str) -> Result<String> {
    // A new directory that is in use: where a file system answers creations early, if it does.
    let directory = place.directory.join("database");
    fs::create_dir(&directory)?;
    fs::write(directory.join("first"), "")?;
    let database = directory.join("rows.db");
    let create = format!("PRAGMA journal_mode={mode}; CREATE TABLE acks (id INTEGER PRIMARY KEY);");
    let said = query(&database, &create)?;
    if said.trim() != mode {
        bail!("journal mode {mode} is not available: {said}");
    }
    let mut seed = Seed::new(1);
    let mut next = 0;
    for kill in 1..=KILLS {
        let mut shell = sqlite(&database);
        shell.args(["-cmd", "PRAGMA synchronous=FULL"]);
        let writer = acks::RowWriter::start(&mut shell, next)?;
        std::thread::sleep(Duration::from_millis(seed.between(100, 600)));
        next = writer.kill()?;
        let verdict = query(&database, "PRAGMA integrity_check")?;
        if verdict.trim() != "ok" {
            bail!("after kill {kill}: {verdict}");
        }
        let rows = query(&database, "SELECT id FROM acks")?;
        acks::check(&rows, next).with_context(|| format!("after kill {kill}"))?;
        // The row under way may have arrived.
        next = next.max(rows.lines().count() as u64);
    }
    if next < u64::from(KILLS) {
        bail!("only {next} rows in {KILLS} rounds: this proves nothing");
    }
    Ok(format!("{next} rows kept through {KILLS} kills"))
}

fn sqlite(database: &Path) -> Command {
    let mut command = Command::new("sqlite3");
    command
        .args(["-batch", "-bail", "-init", "/dev/null"])
        .arg(database);
    command
}

fn query(database: &Path, statement: &str) -> Result<String> {
    process::check(sqlite(database).arg(statement), STEP_LIMIT)
}
