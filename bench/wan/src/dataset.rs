//! The data that is served: made once per run, on tmpfs, so that no disk is measured.
//!
//! ```text
//! big                    one large file for the reading patterns
//! other                  a second one for demand reads
//! walk/d000..d099/...    100 directories of 100 files: 10,100 entries
//! small/file-000000...   2,000 files of 8 KiB
//! out-N/                 empty, made for each writing measurement
//! ```

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::content::{Verify, differs_at, fill, seed_of};

pub(crate) const BIG: &str = "big";
pub(crate) const OTHER: &str = "other";
pub(crate) const WALK: &str = "walk";
pub(crate) const SMALL: &str = "small";
pub(crate) const WALK_DIRS: u64 = 100;
pub(crate) const WALK_FILES_EACH: u64 = 100;
pub(crate) const SMALL_FILES: u64 = 2_000;
pub(crate) const SMALL_BYTES: u64 = 8 << 10;
pub(crate) const OTHER_BYTES: u64 = 256 << 20;

/// Memory for the data, a copy in the client's page cache and one in a client's own cache.
const COPIES: u64 = 4;

/// Makes everything.
pub(crate) fn make(root: &Path, big_bytes: u64) -> anyhow::Result<()> {
    let needed_bytes = COPIES * (big_bytes + OTHER_BYTES);
    let available_bytes = memory_available().unwrap_or(u64::MAX);
    if needed_bytes > available_bytes {
        bail!(
            "the data would need {} MiB of memory, {} are available (try --quick)",
            needed_bytes >> 20,
            available_bytes >> 20
        );
    }
    make_file(&root.join(BIG), seed_of(BIG), big_bytes)?;
    make_file(&root.join(OTHER), seed_of(OTHER), OTHER_BYTES)?;
    for dir in 0..WALK_DIRS {
        let dir = root.join(WALK).join(format!("d{dir:03}"));
        fs::create_dir_all(&dir)?;
        for file in 0..WALK_FILES_EACH {
            File::create(dir.join(format!("f{file:03}")))?;
        }
    }
    make_files(&root.join(SMALL), SMALL_FILES, SMALL_BYTES)
}

/// Makes numbered files with their content.
pub(crate) fn make_files(dir: &Path, files: u64, file_bytes: u64) -> anyhow::Result<()> {
    fs::create_dir_all(dir)?;
    for number in 0..files {
        let name = file_name(number);
        make_file(&dir.join(&name), seed_of(&name), file_bytes)?;
    }
    Ok(())
}

/// The name of the file with this number, in the order of numbers.
pub(crate) fn file_name(number: u64) -> String {
    format!("file-{number:06}")
}

fn make_file(path: &Path, seed: u64, bytes: u64) -> anyhow::Result<()> {
    let mut file = File::create(path).with_context(|| format!("making {}", path.display()))?;
    write_content(&mut file, seed, bytes).with_context(|| format!("making {}", path.display()))
}

/// Writes the content of a seed from the start.
pub(crate) fn write_content(file: &mut File, seed: u64, bytes: u64) -> std::io::Result<()> {
    let mut buffer = vec![0u8; bytes.min(1 << 20) as usize];
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(buffer.len() as u64) as usize;
        fill(seed, at, &mut buffer[..len]);
        file.write_all(&buffer[..len])?;
        at += len as u64;
    }
    Ok(())
}

fn memory_available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10)
}

/// What a writing workload should have left at the server.
#[derive(Debug, Clone)]
pub(crate) enum Expected {
    OneFile {
        path: PathBuf,
        seed: u64,
        bytes: u64,
    },
    Files {
        dir: PathBuf,
        files: u64,
        file_bytes: u64,
    },
}

impl Expected {
    /// Looks at the server's own copy; says what is missing or wrong.
    pub(crate) fn missing(&self) -> Option<String> {
        match self {
            Self::OneFile { path, seed, bytes } => file_missing(path, *seed, *bytes),
            Self::Files {
                dir,
                files,
                file_bytes,
            } => (0..*files).find_map(|number| {
                let name = file_name(number);
                file_missing(&dir.join(&name), seed_of(&name), *file_bytes)
            }),
        }
    }
}

fn file_missing(path: &Path, seed: u64, bytes: u64) -> Option<String> {
    let Ok(content) = fs::read(path) else {
        return Some(format!("{} is missing", path.display()));
    };
    if content.len() as u64 != bytes {
        return Some(format!(
            "{} has {} of {bytes} bytes",
            path.display(),
            content.len()
        ));
    }
    differs_at(seed, 0, &content, Verify::Full)
        .map(|at| format!("{} has wrong content at {at}", path.display()))
}
