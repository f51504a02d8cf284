//! The state file: what a run has found so far, so that another one goes on behind it.
//!
//! A line of JSON that says what all samples have in common, then one for each sample, durable
//! before the next one begins. A last line that is not whole was being written when the run was
//! killed: it is taken off.

use super::PowercutError;
use super::plan::Cell;
use super::run::device_bytes;
use super::sample::Sample;
use base::limits::VERIFY_POWERCUT_STATE_BYTES_MAX;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The version of this file.
const VERSION: u32 = 1;

/// What all samples of a file have in common: those of another kernel, or of more memory, do not go
/// with them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    version: u32,
    /// The guest's kernel.
    pub kernel: String,
    /// Memory of the guest in bytes.
    pub memory_bytes: u64,
    /// From which contents are made.
    pub seed: u64,
    /// How long the guests' disks are: file systems are made differently on others. Files from
    /// before it was written down have none; it follows from their longest file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device_bytes: Option<u64>,
}

impl Header {
    /// Of this version, for a run that cuts these cells.
    #[must_use]
    pub fn new(kernel: String, memory_bytes: u64, seed: u64, cells: &[Cell]) -> Self {
        Self {
            version: VERSION,
            kernel,
            memory_bytes,
            seed,
            device_bytes: Some(device_bytes(cells.iter())),
        }
    }
}

/// A state file that is being written.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    file: File,
}

impl State {
    /// Opens a file, or begins one, and reads what is there.
    ///
    /// # Errors
    /// [`PowercutError::State`] if it is another run's, or no state file, or cannot be used.
    pub fn open(path: &Path, header: &Header) -> Result<(Self, Vec<Sample>), PowercutError> {
        let why = |why: String| PowercutError::State {
            path: path.to_owned(),
            why,
        };
        let words = |error: io::Error| why(error.to_string());
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(words)?;
        // It ends with the file's last descriptor.
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| why("another run uses it".to_owned()))?;
        let mut text = Vec::new();
        let most = VERIFY_POWERCUT_STATE_BYTES_MAX;
        Read::by_ref(&mut file)
            .take(most + 1)
            .read_to_end(&mut text)
            .map_err(words)?;
        if text.len() as u64 > most {
            return Err(why("it is too long for a state file".to_owned()));
        }
        let (samples, len) = parse(&text, header).map_err(why)?;
        file.set_len(len).map_err(words)?;
        file.seek(SeekFrom::Start(len)).map_err(words)?;
        let path = path.to_owned();
        let mut state = Self { path, file };
        if len == 0 {
            state.append(header)?;
        }
        Ok((state, samples))
    }

    /// Appends a sample, durably.
    ///
    /// # Errors
    /// Of writing.
    pub fn take(&mut self, sample: &Sample) -> Result<(), PowercutError> {
        self.append(sample)
    }

    fn append(&mut self, what: &impl Serialize) -> Result<(), PowercutError> {
        let line = serde_json::to_string(what).map_err(io::Error::other);
        let written = line.and_then(|line| {
            self.file.write_all(format!("{line}\n").as_bytes())?;
            self.file.sync_data()
        });
        written.map_err(|error| PowercutError::State {
            path: self.path.clone(),
            why: error.to_string(),
        })
    }
}

/// The samples in a file, and the length of what of it is whole.
fn parse(text: &[u8], header: &Header) -> Result<(Vec<Sample>, u64), String> {
    let mut samples: Vec<Sample> = Vec::new();
    let mut len = 0;
    let mut has_length = true;
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if line.last() != Some(&b'\n') {
            break;
        }
        if number == 0 {
            let is: Header = serde_json::from_slice(line)
                .map_err(|_| "it is no state file of this release".to_owned())?;
            has_length = is.device_bytes.is_some();
            let device_bytes = is.device_bytes.or(header.device_bytes);
            let is = Header { device_bytes, ..is };
            if is != *header {
                return Err(differs(&is, header));
            }
        } else {
            let sample = serde_json::from_slice(line);
            samples.push(sample.map_err(|error| format!("line {}: {error}", number + 1))?);
        }
        len += line.len() as u64;
    }
    if !(has_length || samples.is_empty()) {
        let device_bytes = Some(device_bytes(samples.iter().map(|sample| &sample.cell)));
        let is = Header {
            device_bytes,
            ..header.clone()
        };
        if is != *header {
            return Err(differs(&is, header));
        }
    }
    // What has no whole line and is not the beginning of a header is somebody else's.
    let begun = b"{\"version\":";
    if len == 0 && !text.starts_with(begun) && !begun.starts_with(text) {
        return Err("it is no state file of this release".to_owned());
    }
    Ok((samples, len))
}

fn differs(is: &Header, wanted: &Header) -> String {
    let (what, is, wanted) = match (is, wanted) {
        _ if is.version != wanted.version => (
            "version",
            is.version.to_string(),
            wanted.version.to_string(),
        ),
        _ if is.kernel != wanted.kernel => ("kernel", is.kernel.clone(), wanted.kernel.clone()),
        _ if is.memory_bytes != wanted.memory_bytes => (
            "memory",
            is.memory_bytes.to_string(),
            wanted.memory_bytes.to_string(),
        ),
        _ if is.seed != wanted.seed => ("seed", is.seed.to_string(), wanted.seed.to_string()),
        _ => return differs_in_disks(is, wanted),
    };
    format!("it is of a run with another {what}: {is}, not {wanted}")
}

fn differs_in_disks(is: &Header, wanted: &Header) -> String {
    let bytes = |header: &Header| header.device_bytes.unwrap_or_default();
    format!(
        "it is of a run whose machines have disks of {} bytes, not {}: they follow from the \
         longest file; ask for the same longest --size as before, or use another file",
        bytes(is),
        bytes(wanted)
    )
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::sample;
    use super::super::subject::{DiskCache, How};
    use super::*;
    use crate::outcome::Outcome;
    use std::fs;
    use std::time::{Duration, Instant};

    fn header() -> Header {
        let cell = sample(How::Close, Outcome::Missing, 0.0).cell;
        Header::new("6.1.0-56-amd64".into(), 512 << 20, 7, &[cell])
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("powercut-{name}-{}", std::process::id()))
    }

    /// Opens a state that nobody uses. A program that another test is just starting has its lock
    /// for a moment.
    fn reopened(path: &Path) -> (State, Vec<Sample>) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match State::open(path, &header()) {
                Ok(opened) => return opened,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        }
    }

    #[test]
    fn a_run_goes_on_behind_one_that_was_killed() {
        let path = path("resume");
        let first = sample(How::Close, Outcome::Missing, 0.0);
        let second = sample(How::Fsync, Outcome::Intact, 1.0);
        let (mut state, samples) = State::open(&path, &header()).unwrap();
        assert!(samples.is_empty());
        state.take(&first).unwrap();
        state.take(&second).unwrap();
        drop(state);
        let whole = fs::read(&path).unwrap();
        // Killed at any byte: what was whole is there, and what comes next is whole again.
        let mut seen = 0;
        for len in 0..=whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            let (mut state, samples) = reopened(&path);
            assert!(samples.len() >= seen, "at {len}");
            seen = samples.len();
            state.take(&second).unwrap();
            assert!(State::open(&path, &header()).is_err(), "it is in use");
            drop(state);
            let (_, samples) = reopened(&path);
            assert_eq!(samples.len(), seen + 1, "at {len}");
            assert_eq!(samples[seen], second);
        }
        assert_eq!(seen, 2);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_was_found_before_disks_had_caches_is_read() {
        let mut short = sample(How::Close, Outcome::Missing, 0.0).cell;
        short.bytes = 4096;
        let wanted = Header::new("6.1.0-56-amd64".into(), 512 << 20, 7, &[short]);
        let line = r#"{"cell":{"file_system":"ext4","bytes":4096,"wait":{"secs":5,"nanos":0},
            "flush_time":{"secs":30,"nanos":0},"how":"close","mount_options":""},"outcome":"old",
            "size_share":1.0,"content_share":0.0,"write_time":{"secs":1,"nanos":0},"cut_after":
            {"secs":5,"nanos":0},"time":{"secs":9,"nanos":0},"load":0.5,"words":""}"#;
        let head = serde_json::to_string(&Header {
            device_bytes: None,
            ..wanted.clone()
        });
        let head = head.unwrap();
        assert!(!head.contains("device_bytes"), "{head}");
        let text = format!("{head}\n{}\n", line.replace('\n', ""));
        let (samples, len) = parse(text.as_bytes(), &wanted).unwrap();
        // The longest file of another run is longer than that of this one.
        assert!(parse(text.as_bytes(), &header()).is_err_and(|why| why.contains("--size")));
        assert_eq!((samples.len(), len), (1, text.len() as u64));
        assert_eq!(samples[0].cell.disk_cache, DiskCache::None);
    }

    #[test]
    fn what_is_of_another_run_or_no_state_is_refused_and_left_alone() {
        let path = path("refused");
        drop(State::open(&path, &header()).unwrap());
        let other = Header {
            kernel: "6.12.1".into(),
            ..header()
        };
        let error = State::open(&path, &other).unwrap_err().to_string();
        assert!(error.contains("another kernel: 6.1.0-56-amd64, not 6.12.1"));
        let mut long = sample(How::Close, Outcome::Missing, 0.0).cell;
        long.bytes *= 2;
        let longer = Header::new("6.1.0-56-amd64".into(), 512 << 20, 7, &[long]);
        let error = State::open(&path, &longer).unwrap_err().to_string();
        assert!(error.contains("ask for the same longest --size"), "{error}");
        for text in ["a letter", "a letter\n", "{\"version\":1}\n"] {
            fs::write(&path, text).unwrap();
            assert!(State::open(&path, &header()).is_err(), "{text}");
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        fs::remove_file(&path).unwrap();
    }
}
