//! The log on disk: two files of fixed size, written in turns.
//!
//! ```text
//! file    magic "AZKJ" | format u32 | sequence u64 | crc32c u32 of these     20 bytes
//! record  length u32 | sequence (low half) u32 | crc32c u32 | body           12 bytes + length
//! ```
//! Little-endian; a record's checksum covers its length, sequence and body (one postcard value).
//! Reading ends at the first record that does not fit: a file is overwritten from its beginning,
//! and the sequence tells its records from those of its former use. Both files are allocated in
//! advance, so that a full disk does not stop the server in the middle of its work.

use super::record::Record;
use crate::data::DataError;
use base::limits::JOURNAL_BYTES_MAX;
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 4] = *b"AZKJ";
/// Drawn in `docs/formats/journal.md`.
pub(crate) const JOURNAL_FORMAT_VERSION: u32 = 3;
const HEAD_BYTES: usize = 20;
const RECORD_HEAD_BYTES: usize = 12;
/// Room kept at the end of a file so that one more record always fits.
const RECORD_BYTES_MAX: usize = 4096;

/// The two files and where writing stands.
pub(super) struct Ring {
    files: [File; 2],
    paths: [PathBuf; 2],
    sequence: u64,
    offset: u64,
    buffer: Vec<u8>,
}

impl Ring {
    /// Opens or makes the files; also returns all records, oldest first.
    pub(super) fn open(directory: &Path) -> Result<(Self, Vec<Record>), DataError> {
        let paths = ["journal.0", "journal.1"].map(|name| directory.join(name));
        let open = |path: &PathBuf| {
            open_file(path).map_err(|source| DataError::Io {
                path: path.clone(),
                source,
            })
        };
        let files = [open(&paths[0])?, open(&paths[1])?];
        let mut found = Vec::new();
        for (file, path) in files.iter().zip(&paths) {
            let read = read_file(file, path)?;
            found.extend(read);
        }
        found.sort_by_key(|(sequence, _)| *sequence);
        let sequence = found.last().map_or(0, |(sequence, _)| *sequence);
        let records = found.into_iter().flat_map(|(_, records)| records).collect();
        let ring = Self {
            files,
            paths,
            sequence,
            offset: u64::MAX,
            buffer: Vec::new(),
        };
        Ok((ring, records))
    }

    /// Which use of the files this is.
    #[cfg(test)]
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Whether the next file must be begun.
    pub(super) fn is_full(&self) -> bool {
        self.offset > JOURNAL_BYTES_MAX - RECORD_BYTES_MAX as u64
    }

    /// Goes on in the other file, which begins with what is still open. The present one stays as it
    /// is until then.
    pub(super) fn begin(&mut self, open: impl Iterator<Item = Record>) -> Result<(), DataError> {
        let sequence = self.sequence + 1;
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&JOURNAL_FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&sequence.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        for record in open {
            encode(&mut bytes, &record, sequence);
        }
        let place = usize::from(!sequence.is_multiple_of(2));
        let failed = |source| DataError::Io {
            path: self.paths[place].clone(),
            source,
        };
        // The header goes last: until then the file is what it was, or nothing.
        self.files[place]
            .write_all_at(&bytes[HEAD_BYTES..], HEAD_BYTES as u64)
            .map_err(failed)?;
        self.files[place]
            .write_all_at(&bytes[..HEAD_BYTES], 0)
            .map_err(failed)?;
        self.sequence = sequence;
        self.offset = bytes.len() as u64;
        Ok(())
    }

    /// Writes a record behind the last.
    pub(super) fn append(&mut self, record: &Record) -> io::Result<()> {
        self.buffer.clear();
        encode(&mut self.buffer, record, self.sequence);
        assert!(
            self.buffer.len() <= RECORD_BYTES_MAX,
            "handles and names are bounded"
        );
        let place = usize::from(!self.sequence.is_multiple_of(2));
        self.files[place].write_all_at(&self.buffer, self.offset)?;
        self.offset += self.buffer.len() as u64;
        Ok(())
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, JOURNAL_BYTES_MAX) {
        // Where the file system cannot, the space is taken as it is needed.
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(file),
        Err(errno) => Err(errno.into()),
    }
}

fn encode(out: &mut Vec<u8>, record: &Record, sequence: u64) {
    let start = out.len();
    out.extend_from_slice(&[0; RECORD_HEAD_BYTES]);
    let body = postcard::to_stdvec(record).expect("records are plain data");
    out.extend_from_slice(&body);
    let length = u32::try_from(body.len()).expect("records are small");
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&(sequence as u32).to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&out[start..start + 8]), &body);
    out[start + 8..start + 12].copy_from_slice(&checksum.to_le_bytes());
}

fn read_file(file: &File, path: &Path) -> Result<Option<(u64, Vec<Record>)>, DataError> {
    let failed = |source| DataError::Io {
        path: path.to_owned(),
        source,
    };
    let length = file
        .metadata()
        .map_err(failed)?
        .len()
        .min(4 * JOURNAL_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(length).expect("bounded above")];
    file.read_exact_at(&mut bytes, 0).map_err(failed)?;
    let Some((head, mut rest)) = bytes.split_at_checked(HEAD_BYTES) else {
        return Ok(None);
    };
    if head[..4] != MAGIC || crc32c::crc32c(&head[..16]) != number(&head[16..]) {
        return Ok(None);
    }
    let format = number(&head[4..]);
    if format > JOURNAL_FORMAT_VERSION {
        return Err(DataError::Format {
            path: path.to_owned(),
            found: format,
            known: JOURNAL_FORMAT_VERSION,
        });
    }
    let sequence = u64::from(number(&head[8..])) | u64::from(number(&head[12..])) << 32;
    let mut records = Vec::new();
    while let Some((head, body)) = rest.split_at_checked(RECORD_HEAD_BYTES) {
        let (length, mark, checksum) = (number(head), number(&head[4..]), number(&head[8..]));
        let Some((body, next)) = body.split_at_checked(length as usize) else {
            break;
        };
        let intact = crc32c::crc32c_append(crc32c::crc32c(&head[..8]), body) == checksum;
        if length == 0 || mark != sequence as u32 || !intact {
            break;
        }
        let Ok(record) = postcard::from_bytes(body) else {
            break;
        };
        records.push(record);
        rest = next;
    }
    Ok(Some((sequence, records)))
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}
