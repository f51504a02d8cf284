//! Small state files: TOML with a version and a checksum in the first line, replaced whole.
//!
//! ```text
//! # azekura volumes, format 1, crc32c 1a2b3c4d
//! [[volume]]
//! ...
//! ```
//! The checksum covers every byte after the first line. A change is written beside, made durable,
//! renamed over, and the directory made durable; so whenever the power fails, a file is the old one
//! or the new one.

use super::DataError;
use serde::{Serialize, de::DeserializeOwned};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Format of all state files; drawn in `docs/formats/server-data.md`.
pub(crate) const SERVER_DATA_FORMAT_VERSION: u32 = 1;

/// No state file is larger than this: 65,536 credentials whose labels are the longest there are
/// take a kilobyte each.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Writes the state called `name`.
pub(crate) fn write<T: Serialize>(
    directory: &Path,
    name: &str,
    value: &T,
) -> Result<(), DataError> {
    let path = directory.join(format!("{name}.toml"));
    let format = SERVER_DATA_FORMAT_VERSION;
    let body = toml::to_string(value).expect("state is plain data");
    let checksum = crc32c::crc32c(body.as_bytes());
    let text = format!("# azekura {name}, format {format}, crc32c {checksum:08x}\n{body}");
    replace(directory, &path, text.as_bytes()).map_err(|source| DataError::Io { path, source })
}

fn replace(directory: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    // Left by a run that was killed here; the lock file says that there is no other run.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(directory)?.sync_all()
}

/// Reads the state called `name`.
pub(crate) fn read<T: DeserializeOwned>(directory: &Path, name: &str) -> Result<T, DataError> {
    let path = directory.join(format!("{name}.toml"));
    let mut text = String::new();
    File::open(&path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
        .map_err(|source| DataError::Io {
            path: path.clone(),
            source,
        })?;
    let damaged = |why: &str| DataError::Damaged {
        path: path.clone(),
        why: why.to_owned(),
    };
    let (head, body) = text
        .split_once('\n')
        .ok_or_else(|| damaged("it has no first line"))?;
    let (format, checksum) = parse_head(head, name).ok_or_else(|| damaged("its first line"))?;
    if format > SERVER_DATA_FORMAT_VERSION {
        return Err(DataError::Format {
            path,
            found: format,
            known: SERVER_DATA_FORMAT_VERSION,
        });
    }
    if crc32c::crc32c(body.as_bytes()) != checksum {
        return Err(damaged("its checksum does not match"));
    }
    toml::from_str(body).map_err(|error| damaged(error.message()))
}

fn parse_head(head: &str, name: &str) -> Option<(u32, u32)> {
    let rest = head
        .strip_prefix("# azekura ")?
        .strip_prefix(name)?
        .strip_prefix(", format ")?;
    let (format, checksum) = rest.split_once(", crc32c ")?;
    let format = format.parse().ok().filter(|format| *format > 0)?;
    Some((format, u32::from_str_radix(checksum, 16).ok()?))
}
