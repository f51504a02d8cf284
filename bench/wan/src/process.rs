//! Processes that the harness starts and is answerable for.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

/// A polite end gets this long before it becomes a kill.
const GRACE: Duration = Duration::from_secs(5);
/// How much of a log goes into an error.
const LOG_TAIL_BYTES: usize = 600;

/// A process in the background; it is ended, by its id, when this is dropped.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// Starts a command with its output in a log file.
    pub(crate) fn start(mut command: Command, log: &Path) -> anyhow::Result<Self> {
        let file = File::create(log).with_context(|| format!("making {}", log.display()))?;
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("starting {program}"))?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `is_ready`, with a limit; an early end is an error with the log's tail.
    pub(crate) fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        mut is_ready: impl FnMut() -> bool,
    ) -> anyhow::Result<()> {
        let start = Instant::now();
        while !is_ready() {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "{what}: the process ended early ({status}): {}",
                    self.log_tail()
                );
            }
            if start.elapsed() > limit {
                bail!(
                    "{what}: not ready after {} s: {}",
                    limit.as_secs(),
                    self.log_tail()
                );
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Waits for the end; `None` when it does not come within the limit.
    pub(crate) fn wait_end(&mut self, limit: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if start.elapsed() > limit {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn log_tail(&self) -> String {
        tail(&self.log)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // Errors here mean that it is gone, which is what is wanted.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        if !matches!(self.wait_end(GRACE), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let start = text.len().saturating_sub(LOG_TAIL_BYTES);
    String::from_utf8_lossy(&text[start..])
        .trim()
        .replace('\n', " | ")
}

/// Runs a command to its end within a limit; failure is an error with its output's tail.
pub(crate) fn run(command: Command, log: &Path, limit: Duration) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut running = Running::start(command, log)?;
    match running.wait_end(limit)? {
        Some(status) if status.success() => Ok(tail(log)),
        Some(status) => bail!("{program}: {status}: {}", running.log_tail()),
        None => bail!(
            "{program}: no end after {} s: {}",
            limit.as_secs(),
            running.log_tail()
        ),
    }
}
