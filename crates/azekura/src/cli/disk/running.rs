//! Disks that are in use: one file for each, locked by its process for as long as that lives.
//!
//! Whoever finds a file that is not locked finds a process that has ended, however it has; so
//! nobody is taken for another process that has got its number.

use crate::config::Config;
use crate::errors::{Code, Context, Failure, Result};
use crate::output;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the files lie, among what is remembered of disks.
const DIRECTORY: &str = "running";
/// Nobody writes longer ones.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// How often it is looked whether a process has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A disk that is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Running {
    /// Where programs find it: `HOST:PORT`, `unix:PATH`, or a directory.
    #[serde(rename = "where")]
    pub(super) place: String,
    /// `nbd` or `file`.
    pub(super) kind: String,
    pub(super) repository: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) writable: bool,
    /// Where what is written lies.
    pub(super) overlay: Option<PathBuf>,
    /// The loop device.
    pub(super) device: Option<String>,
    pub(super) pid: u32,
    /// Seconds since 1970.
    pub(super) since: i64,
}

/// The file of this process.
pub(super) struct Registered {
    path: PathBuf,
    _locked: File,
}

/// A file that was found.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) running: Running,
    path: PathBuf,
}

/// Notes a disk of this process.
///
/// # Errors
/// Of the file.
pub(super) fn register(config: &Config, running: &Running) -> Result<Registered> {
    let directory = config.disks(DIRECTORY)?;
    let pid = running.pid;
    let new = directory.join(format!(".{pid}"));
    let path = directory.join(format!("{pid}.json"));
    let note = || -> std::io::Result<File> {
        let mut file = File::create(&new)?;
        // Before it has its name: nobody finds it unlocked.
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all(&serde_json::to_vec(running)?)?;
        fs::rename(&new, &path)?;
        Ok(file)
    };
    Ok(Registered {
        _locked: note().context(path.display())?,
        path,
    })
}

impl Registered {
    /// Leaves word of how it was used and how it ended, for whoever ends it: whole or not at all.
    pub(super) fn leave(self, used: &Value, failure: Option<&Failure>) {
        let failure = failure.map(Failure::to_json);
        let word = json!({ "used": used, "failure": failure });
        let new = self.path.with_extension("word");
        let left = fs::write(&new, word.to_string()).and_then(|()| fs::rename(&new, &self.path));
        if let Err(error) = left {
            tracing::warn!(%error, "cannot leave word of the end");
            // A part of it is nobody's.
            let _ = fs::remove_file(&new);
        }
        // The file stays; the lock goes.
        std::mem::forget(self);
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Somebody may have removed it already.
        let _ = fs::remove_file(&self.path);
    }
}

/// The disks that are in use, in order of their places. What processes have left behind is removed.
///
/// # Errors
/// Of the directory.
pub(super) fn list(config: &Config) -> Result<Vec<Entry>> {
    let directory = config.disks(DIRECTORY)?;
    let mut entries = Vec::new();
    for found in fs::read_dir(&directory).context(directory.display())? {
        let path = found.context(directory.display())?.path();
        let is_whole = path
            .extension()
            .is_some_and(|extension| extension == "json");
        if !is_whole {
            continue;
        }
        if !is_locked(&path) {
            // Another process may remove it as well.
            let _ = fs::remove_file(&path);
            continue;
        }
        if let Some(running) = read(&path).and_then(|text| serde_json::from_slice(&text).ok()) {
            entries.push(Entry { running, path });
        }
    }
    entries.sort_by(|a, b| a.running.place.cmp(&b.running.place));
    Ok(entries)
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let file = File::open(path).ok()?;
    file.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
    Some(text)
}

/// Whether the process that has made the file lives.
fn is_locked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

impl Entry {
    /// Waits until the process has ended, at most so long; how the disk was used, or null if nobody
    /// has said. None if it has not ended.
    ///
    /// # Errors
    /// Word that it has left of how it ended; [`Code::DiskUnwritten`] if it has left none and was
    /// written to.
    pub(super) fn until_ended(&self, limit: Duration) -> Result<Option<Value>> {
        let deadline = Instant::now() + limit;
        while is_locked(&self.path) {
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        let text = read(&self.path).unwrap_or_default();
        let _ = fs::remove_file(&self.path);
        let word: Value = serde_json::from_slice(&text).unwrap_or_default();
        if let Some(failure) = word.get("failure").and_then(Failure::from_json) {
            return Err(failure);
        }
        match word.get("used") {
            Some(used) => Ok(Some(used.clone())),
            None if self.running.writable => {
                let name = output::plain(&self.running.name);
                let message = format!("the process of {name} ended without a word");
                let hint = "what programs flushed is safe, what they wrote since may be lost; \
                            look at the file system in it when it is in use again";
                Err(Failure::new(Code::DiskUnwritten, message).hint(hint))
            }
            None => Ok(Some(Value::Null)),
        }
    }
}
