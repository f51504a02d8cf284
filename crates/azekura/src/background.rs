//! A command that goes on in the background as a process of its own.
//!
//! The command starts the same program again, with `--foreground --report`, a session of its own
//! and a pipe, waits until it is ready, and returns; what goes wrong before comes back through the
//! pipe and is reported as if it had happened here. Starting the program again instead of forking
//! keeps threads out of the question.

use crate::errors::{Code, Context, Failure, Result};
use crate::{logging, output};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A process that is to be started.
pub(crate) struct Start<'a> {
    /// What it is, for people: `mount`.
    pub(crate) what: &'static str,
    /// What it means if it ends before it is ready.
    pub(crate) ended: Code,
    /// For the program; nothing secret.
    pub(crate) arguments: Vec<OsString>,
    /// What it reads on standard input, if anything.
    pub(crate) input: Option<String>,
    /// Where its standard error goes, and whatever it logs.
    pub(crate) log: &'a Path,
    /// How long it may take until it is ready.
    pub(crate) limit: Duration,
}

impl Start<'_> {
    /// Starts the process and waits until it is ready; what it has to say then.
    ///
    /// # Errors
    /// What it says instead, or that it has ended, or is not ready in time.
    pub(crate) fn run(&self) -> Result<Value> {
        let errors = logging::open(self.log).context(self.log.display())?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.arg0("azekura").args(&self.arguments);
        command
            .stdin(match self.input {
                Some(_) => Stdio::piped(),
                None => Stdio::null(),
            })
            .stdout(Stdio::piped())
            .stderr(errors);
        let what = format!("cannot start the {}'s process", self.what);
        let mut child = command.spawn().context(what)?;
        if let (Some(mut pipe), Some(input)) = (child.stdin.take(), self.input.clone()) {
            // A process that does not read it says why, or is not ready in time.
            std::thread::spawn(move || pipe.write_all(input.as_bytes()));
        }
        let outcome = self.hear(&mut child);
        if outcome.is_err() {
            // It ends by itself, unless it hangs.
            let _ = child.kill();
            let _ = child.wait();
        }
        outcome.map_err(|failure| match failure.code() {
            code if code == self.ended => {
                failure.hint(format!("its log is {}", self.log.display()))
            }
            _ => failure,
        })
    }

    fn hear(&self, child: &mut Child) -> Result<Value> {
        let what = self.what;
        let ended = || {
            let message = format!("the {what}'s process ended before it was ready");
            Failure::new(self.ended, message)
        };
        let pipe = child.stdout.take().ok_or_else(ended)?;
        let line = first_line(pipe, self.limit).ok_or_else(|| {
            let seconds = self.limit.as_secs();
            let message = format!("the {what} was not ready within {seconds} s");
            Failure::new(Code::TimedOut, message)
        })?;
        let message: Value = serde_json::from_str(&line).map_err(|_| ended())?;
        if let Some(ready) = message.get("ready") {
            return Ok(ready.clone());
        }
        let failure = message.get("failure").and_then(Failure::from_json);
        Err(failure.unwrap_or_else(ended))
    }
}

/// The first line of the pipe, empty if it ends without one; `None` if nothing comes in time.
fn first_line(pipe: ChildStdout, limit: Duration) -> Option<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        // An error reads like an end: the process is gone.
        let _ = BufReader::new(pipe).read_line(&mut line);
        let _ = sender.send(line);
    });
    receiver.recv_timeout(limit).ok()
}

/// Runs as the process that the command in the foreground started and listens to. `run` is given
/// what it calls when it is ready.
///
/// # Errors
/// Those of `run`, which the command has been told, or the log has.
pub(crate) fn run_reporting(
    log: Option<&Path>,
    verbose: u8,
    run: impl FnOnce(&dyn Fn(Value) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let ready = |what: Value| report(&json!({ "ready": what }));
    let outcome = detach_from_terminal(log, verbose).and_then(|()| run(&ready));
    if let Err(failure) = &outcome {
        tracing::error!(code = failure.code().number(), "{}", failure.message());
        // After it was ready, standard output leads nowhere.
        let _ = report(&json!({ "failure": failure.to_json() }));
    }
    outcome
}

fn detach_from_terminal(log: Option<&Path>, verbose: u8) -> Result<()> {
    if let Some(log) = log {
        logging::to_file(log, verbose)?;
    }
    rustix::process::setsid().context("cannot start a session")?;
    // It must not keep the directory busy in which it was started.
    std::env::set_current_dir("/").context("/")
}

/// Writes to the pipe and closes it.
fn report(message: &Value) -> Result<()> {
    output::line(message)?;
    let nothing = OpenOptions::new()
        .write(true)
        .open("/dev/null")
        .context("/dev/null")?;
    rustix::stdio::dup2_stdout(&nothing).context("standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_disk(log: &Path, limit: Duration) -> Start<'_> {
        Start {
            what: "disk",
            ended: Code::DiskEnded,
            // This program is the test itself, which has other things to say.
            arguments: vec!["--list".into()],
            input: None,
            log,
            limit,
        }
    }

    #[test]
    fn a_process_that_ends_before_it_is_ready_is_told_with_its_log() {
        let scratch = tempfile::tempdir().expect("a directory");
        let log = scratch.path().join("log");
        let disk = a_disk(&log, Duration::from_secs(60));
        let failure = disk.run().expect_err("it is no disk");
        assert_eq!(failure.code(), Code::DiskEnded);
        assert!(failure.hint_text().contains("/log"), "{failure}");
    }

    #[test]
    fn a_process_that_says_nothing_is_not_waited_for_without_end() {
        let disk = a_disk(Path::new("log"), Duration::from_millis(10));
        let mut silent = Command::new("sleep")
            .arg("600")
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let failure = disk.hear(&mut silent);
        silent.kill().expect("it still runs");
        silent.wait().expect("an end");
        let failure = failure.expect_err("it says nothing");
        assert_eq!(failure.code(), Code::TimedOut);
    }
}
