//! A database of SQLite, which is run as a program.
//!
//! Rows are looked at and not bytes: what a file holds in the middle of a transaction is SQLite's
//! own matter. A database is as a file whose content is its rows, one line each.
//!
//! Why `synchronous=EXTRA`: with FULL, the default, the end of a rollback journal is not made
//! durable, so that a transaction that was committed can be rolled back by a loss of power shortly
//! afterwards (SQLite's documentation of the pragma).

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// The program, and its Debian package.
pub const PROGRAM: (&str, &str) = ("sqlite3", "sqlite3");

/// What it says of a database whose first transaction was not committed.
const NO_TABLE: &str = "no such table";

/// A row as a line.
#[must_use]
pub(crate) fn line(row: u32) -> String {
    let word = u64::from(row).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{row}|{word:016x}\n")
}

pub(super) fn insert(path: &Path, row: u32) -> io::Result<()> {
    let line = line(row);
    let (_, word) = line
        .trim_end()
        .split_once('|')
        .expect("a line has two parts");
    let statement = format!(
        "pragma synchronous=extra; create table if not exists t(id integer primary key, word); \
         insert into t values({row}, '{word}');"
    );
    sqlite(path, &statement).map(drop)
}

/// The rows of a database that was checked, after a recovery if one is due.
///
/// # Errors
/// What SQLite says.
pub fn rows(path: &Path) -> io::Result<Vec<u8>> {
    let outcome = sqlite(
        path,
        "pragma integrity_check; select id, word from t order by id;",
    );
    let said = match outcome {
        Err(error) if error.to_string().contains(NO_TABLE) => return Ok(Vec::new()),
        said => said?,
    };
    let rows = said.strip_prefix(b"ok\n");
    rows.map(<[u8]>::to_vec)
        .ok_or_else(|| io::Error::other(String::from_utf8_lossy(&said).into_owned()))
}

fn sqlite(path: &Path, statement: &str) -> io::Result<Vec<u8>> {
    let output = Command::new(PROGRAM.0)
        .args(["-batch", "-bail", "-init", "/dev/null"])
        .arg(path)
        .arg(statement)
        .stdin(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(io::Error::other(why.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_as_they_were_inserted() {
        if Command::new(PROGRAM.0).arg("-version").output().is_err() {
            println!("skipped: sqlite3 is not installed");
            return;
        }
        let path = std::env::temp_dir().join(format!("verify-db-{}", std::process::id()));
        let remove = || drop(std::fs::remove_file(&path));
        remove();
        insert(&path, 1).unwrap();
        insert(&path, 2).unwrap();
        let expected = line(1) + &line(2);
        assert_eq!(rows(&path).unwrap(), expected.as_bytes());
        std::fs::write(&path, [7; 8192]).unwrap();
        assert!(rows(&path).is_err());
        std::fs::write(&path, []).unwrap();
        assert_eq!(rows(&path).unwrap(), b"");
        remove();
    }
}
