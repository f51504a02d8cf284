//! Where the program's own remarks go: standard error, or for a mount in the background a file that
//! cannot grow without end.
//!
//! `RUST_LOG` chooses what is logged, else `-v`, else warnings. Nothing secret is ever logged: the
//! types that hold secrets have no way to show them.

use crate::config;
use crate::errors::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Largest log file of a mount; one older file of the same size is kept beside it. Enough for weeks
/// of warnings, or for the last minutes at the most talkative level.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// What is logged unless told otherwise.
const WARNINGS: &str = "warn";
/// The same without what concerns caches, which matters where something is mounted.
const WARNINGS_BESIDES_CACHES: &str = "warn,client::volume::recall=error";
/// The same also without what could not be written.
const WARNINGS_BESIDES_LOSSES: &str =
    "warn,client::volume::recall=error,client::volume::write=error";

fn filter(verbose: u8, quietest: &str) -> EnvFilter {
    let level = match verbose {
        0 => quietest,
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    // A wish that cannot be read is no reason not to run.
    let wish = config::log_filter().and_then(|wish| EnvFilter::try_new(wish).ok());
    wish.unwrap_or_else(|| EnvFilter::new(level))
}

/// Logs to standard error.
pub(crate) fn to_stderr(verbose: u8) {
    log_to_stderr(filter(verbose, WARNINGS));
}

/// Logs to standard error, for a command that ends soon and says itself what a server does not
/// answer.
pub(crate) fn to_stderr_besides_caches(verbose: u8) {
    log_to_stderr(filter(verbose, WARNINGS_BESIDES_CACHES));
}

/// The same for a command that also says itself which files could not be written.
pub(crate) fn to_stderr_besides_losses(verbose: u8) {
    log_to_stderr(filter(verbose, WARNINGS_BESIDES_LOSSES));
}

fn log_to_stderr(filter: EnvFilter) {
    let logger = tracing_subscriber::fmt().with_env_filter(filter);
    // A second call finds the first one's logger in force, which is as good.
    let _ = logger.with_writer(io::stderr).with_ansi(false).try_init();
}

/// Logs to `path`.
///
/// # Errors
/// If the file cannot be opened for writing.
pub(crate) fn to_file(path: &Path, verbose: u8) -> Result<()> {
    let log = BoundedLog::open(path).context(path.display())?;
    // A mount in the background says when it came and went, without being asked.
    let logger = tracing_subscriber::fmt().with_env_filter(filter(verbose.max(1), WARNINGS));
    let _ = logger.with_writer(log).with_ansi(false).try_init();
    Ok(())
}

/// Opens a log for appending; others may not read it, for it names files.
///
/// # Errors
/// The system's.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

/// A file that is renamed to `NAME.old` when it is full.
struct BoundedLog {
    path: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    file: File,
    bytes: u64,
}

impl BoundedLog {
    fn open(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        let bytes = file.metadata()?.len();
        let current = Mutex::new(Current { file, bytes });
        Ok(Self {
            path: path.to_owned(),
            current,
        })
    }
}

/// The right to write one entry.
struct Entry<'a> {
    current: MutexGuard<'a, Current>,
    path: &'a Path,
}

impl Write for Entry<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.current.bytes + bytes.len() as u64 > LOG_BYTES_MAX {
            let mut old = self.path.as_os_str().to_owned();
            old.push(".old");
            std::fs::rename(self.path, old)?;
            self.current.file = open(self.path)?;
            self.current.bytes = 0;
        }
        let written = self.current.file.write(bytes)?;
        self.current.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for BoundedLog {
    type Writer = Entry<'a>;

    fn make_writer(&'a self) -> Entry<'a> {
        Entry {
            // A panic while an entry was written leaves a file that can be appended to.
            current: self
                .current
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner),
            path: &self.path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_stays_within_its_bound() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = scratch.path().join("mount.log");
        let log = BoundedLog::open(&path).expect("a file");
        let entry = vec![b'x'; 1 << 20];
        for _ in 0..11 {
            log.make_writer()
                .write_all(&entry)
                .expect("room on the disk");
        }
        let bytes = |path: &Path| std::fs::metadata(path).expect("it is there").len();
        assert_eq!(bytes(&path), 3 << 20);
        assert_eq!(bytes(&scratch.path().join("mount.log.old")), 4 << 20);
        assert_eq!(
            std::fs::read_dir(scratch.path())
                .expect("a directory")
                .count(),
            2
        );
    }
}
