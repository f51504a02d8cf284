//! Rows written one by one through a database's own shell, until something kills it.
//!
//! A row counts as acknowledged when the shell has printed the answer to the statement after its
//! `INSERT`; the shell must be told to end at the first error. Numbers are kept here, in memory, on
//! no disk that is judged.

use crate::process;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// A shell that writes rows.
pub(crate) struct RowWriter {
    shell: Child,
    thread: JoinHandle<u64>,
}

impl RowWriter {
    /// Starts `shell` and writes rows from number `first` on into the table `acks`.
    pub(crate) fn start(shell: &mut Command, first: u64) -> Result<Self> {
        shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut shell = shell.spawn().context("the database's shell")?;
        let mut input = shell.stdin.take().context("its input")?;
        let output = shell.stdout.take().context("its output")?;
        let thread = std::thread::spawn(move || {
            let mut answers = BufReader::new(output).lines();
            let mut next = first;
            // Any error here is the expected end: the shell was killed or lost its server.
            while writeln!(
                input,
                "INSERT INTO acks VALUES ({next}); SELECT 'ack {next}';"
            )
            .is_ok()
            {
                let ack = format!("ack {next}");
                if !answers
                    .by_ref()
                    .map_while(Result::ok)
                    .any(|line| line == ack)
                {
                    break;
                }
                next += 1;
            }
            next
        });
        Ok(Self { shell, thread })
    }

    /// Ends the shell by `SIGKILL`; returns the number after the last acknowledged row.
    pub(crate) fn kill(mut self) -> Result<u64> {
        // With its children: the shell may have been started through another program.
        process::kill_tree(&mut self.shell);
        self.thread.join().ok().context("the writer panicked")
    }
}

/// Checks that every number from 0 to below `end` is among the rows read back. The row that was
/// under way may be there or not.
pub(crate) fn check(rows: &str, end: u64) -> Result<()> {
    let mut found: Vec<u64> = rows
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect();
    found.sort_unstable();
    let wanted: Vec<u64> = (0..end).collect();
    let surplus = found.len().saturating_sub(wanted.len());
    if surplus > 1 || found.get(..wanted.len()) != Some(&wanted[..]) {
        bail!("{end} rows were acknowledged, {} are there", found.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn acknowledged_rows_must_be_there() {
        assert!(check("0\n1\n2\n", 3).is_ok());
        assert!(
            check("0\n1\n2\n3\n", 3).is_ok(),
            "the row under way may be there"
        );
        assert!(check("0\n2\n3\n", 3).is_err(), "row 1 is lost");
        assert!(check("0\n1\n", 3).is_err(), "row 2 is lost");
        assert!(check("0\n1\n2\n3\n4\n", 3).is_err(), "nobody wrote row 4");
    }

    #[test]
    fn only_answered_rows_count() {
        // A stand-in that answers three statements and then no more.
        let script = "for i in 1 2 3; do read line; echo \"ack ${line##*ack }\" | tr -d \"';\"\n\
                      done; sleep 60";
        let writer = RowWriter::start(Command::new("sh").args(["-c", script]), 0).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(writer.kill().unwrap(), 3);
    }
}
