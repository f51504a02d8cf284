//! A log as a file. See `docs/formats/crash-log.md`.

use super::{Entry, Log, Mark, Marks};
use base::Extent;
use base::limits::{
    VERIFY_DEVICE_BYTES_MAX, VERIFY_LOG_BYTES_MAX, VERIFY_LOG_ENTRIES_MAX, VERIFY_RECORD_BYTES_MAX,
    VERIFY_TEXT_BYTES_MAX,
};
use sim::Image;
use std::io::{self, Read, Write};

/// The version that is written, and the only one so far.
pub const CRASH_LOG_FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 4] = *b"AZKC";
const HEAD_BYTES: usize = 32;
const RECORD_BYTES: usize = 32;
/// Lengths of devices are multiples of this.
const BLOCK_BYTES: u64 = 4096;
/// Pieces in which what was on the device is written; those of zeros are left out.
const PIECE_BYTES: u64 = 64 << 10;

const SUBJECT: u32 = 1;
const BASE: u32 = 2;
const WRITE: u32 = 3;
const ZEROS: u32 = 4;
const FLUSH: u32 = 5;
const BEGUN: u32 = 6;
const DONE: u32 = 7;
const END: u32 = 8;

/// Why bytes are no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// They cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// They are something else.
    #[error("this is no crash log")]
    NotALog,
    /// A later release wrote them.
    #[error("the log has version {0}; this release reads {CRASH_LOG_FORMAT_VERSION}")]
    Newer(u32),
    /// They are a log of writes, and nothing says of what.
    #[error("the log does not say what it is about; those that --export-log wrote do")]
    Unsaid,
    /// They were changed, or end too early.
    #[error("the log is damaged at record {0}")]
    Damaged(u64),
}

/// The fixed part of a record.
struct Record {
    kind: u32,
    offset: u64,
    length: u64,
}

impl Log {
    /// Writes the log as a file.
    ///
    /// # Errors
    /// Of writing; [`io::ErrorKind::InvalidInput`] if the subject is too long.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        if self.subject.len() > VERIFY_TEXT_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(&MAGIC);
        head[4..8].copy_from_slice(&CRASH_LOG_FORMAT_VERSION.to_le_bytes());
        head[8..16].copy_from_slice(&self.base.len_bytes().to_le_bytes());
        let sum = crc32c::crc32c(&head[..28]);
        head[28..].copy_from_slice(&sum.to_le_bytes());
        out.write_all(&head)?;
        let mut records = Records { out, sequence: 0 };
        let subject = self.subject.as_bytes();
        records.add(SUBJECT, 0, subject.len() as u64, subject)?;
        self.write_base(&mut records)?;
        for entry in &self.entries {
            match entry {
                Entry::Write { offset, data } => {
                    records.add(WRITE, *offset, data.len() as u64, data)?;
                }
                Entry::Zeros(extent) => records.add(ZEROS, extent.offset, extent.len, &[])?,
                Entry::Flush => records.add(FLUSH, 0, 0, &[])?,
                Entry::Mark(Mark::Begun(step)) => records.add(BEGUN, u64::from(*step), 0, &[])?,
                Entry::Mark(Mark::Done(step)) => records.add(DONE, u64::from(*step), 0, &[])?,
            }
        }
        records.add(END, 0, 0, &[])
    }

    fn write_base<W: Write>(&self, records: &mut Records<'_, W>) -> io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES as usize];
        let mut offset = 0;
        while offset < self.base.len_bytes() {
            let len = PIECE_BYTES.min(self.base.len_bytes() - offset);
            let piece = &mut piece[..len as usize];
            self.base.read_at(offset, piece);
            if piece.iter().any(|byte| *byte != 0) {
                records.add(BASE, offset, len, piece)?;
            }
            offset += len;
        }
        Ok(())
    }

    /// Reads a log. What comes after its end is left unread.
    ///
    /// # Errors
    /// [`LogError`]; no bytes whatsoever take more memory than the bounds of a log, or panic.
    pub fn read_from(input: &mut impl Read) -> Result<Self, LogError> {
        let len_bytes = read_head(input)?;
        let mut log = Self {
            subject: String::new(),
            base: Image::new(len_bytes),
            entries: Vec::new(),
        };
        let (mut bytes, mut marks) = (0, Marks::default());
        for sequence in 0.. {
            let damaged = || LogError::Damaged(sequence);
            let (record, body) = read_record(input, sequence)?;
            let inside = Extent::new(0, len_bytes)
                .covers(Extent::new(record.offset, record.length))
                && record.offset.checked_add(record.length).is_some();
            match record.kind {
                SUBJECT if sequence == 0 => {
                    log.subject = String::from_utf8(body).map_err(|_| damaged())?;
                }
                _ if sequence == 0 => return Err(damaged()),
                END => return Ok(log),
                BASE if inside && log.entries.is_empty() => log.base.write_at(record.offset, &body),
                WRITE | ZEROS if !inside || record.length == 0 => return Err(damaged()),
                _ => {
                    let entry = record.entry(body).filter(|entry| marks.take(entry));
                    log.entries.push(entry.ok_or_else(damaged)?);
                }
            }
            bytes += log.entries.last().map_or(0, Entry::memory_bytes);
            if log.entries.len() > VERIFY_LOG_ENTRIES_MAX || bytes > VERIFY_LOG_BYTES_MAX {
                return Err(damaged());
            }
        }
        unreachable!("there are fewer records than numbers")
    }
}

/// Writes records one after the other.
struct Records<'a, W> {
    out: &'a mut W,
    sequence: u64,
}

impl<W: Write> Records<'_, W> {
    fn add(&mut self, kind: u32, offset: u64, length: u64, body: &[u8]) -> io::Result<()> {
        let mut head = [0; RECORD_BYTES];
        head[..8].copy_from_slice(&self.sequence.to_le_bytes());
        head[8..16].copy_from_slice(&offset.to_le_bytes());
        head[16..24].copy_from_slice(&length.to_le_bytes());
        head[24..28].copy_from_slice(&kind.to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&head[..28]), body);
        head[28..].copy_from_slice(&sum.to_le_bytes());
        self.sequence += 1;
        self.out.write_all(&head)?;
        self.out.write_all(body)
    }
}

impl Record {
    /// The entry that it is, if it is one.
    fn entry(&self, body: Vec<u8>) -> Option<Entry> {
        let step = u32::try_from(self.offset);
        match self.kind {
            WRITE => Some(Entry::Write {
                offset: self.offset,
                data: body.into(),
            }),
            ZEROS => Some(Entry::Zeros(Extent::new(self.offset, self.length))),
            FLUSH => Some(Entry::Flush),
            BEGUN => step.ok().map(|step| Entry::Mark(Mark::Begun(step))),
            DONE => step.ok().map(|step| Entry::Mark(Mark::Done(step))),
            _ => None,
        }
    }
}

/// The device's length.
fn read_head(input: &mut impl Read) -> Result<u64, LogError> {
    let mut head = [0; HEAD_BYTES];
    input.read_exact(&mut head).map_err(|_| LogError::NotALog)?;
    let version = u32_at(&head, 4);
    if head[..4] != MAGIC {
        return Err(LogError::NotALog);
    }
    if version > CRASH_LOG_FORMAT_VERSION {
        return Err(LogError::Newer(version));
    }
    let len_bytes = u64_at(&head, 8);
    let is_sound = u32_at(&head, 28) == crc32c::crc32c(&head[..28])
        && version == CRASH_LOG_FORMAT_VERSION
        && len_bytes <= VERIFY_DEVICE_BYTES_MAX
        && len_bytes.is_multiple_of(BLOCK_BYTES);
    is_sound.then_some(len_bytes).ok_or(LogError::NotALog)
}

fn read_record(input: &mut impl Read, sequence: u64) -> Result<(Record, Vec<u8>), LogError> {
    let damaged = || LogError::Damaged(sequence);
    let mut head = [0; RECORD_BYTES];
    input.read_exact(&mut head).map_err(|_| damaged())?;
    let record = Record {
        offset: u64_at(&head, 8),
        length: u64_at(&head, 16),
        kind: u32_at(&head, 24),
    };
    let body_bytes = match record.kind {
        SUBJECT | BASE | WRITE => record.length,
        _ => 0,
    };
    if u64_at(&head, 0) != sequence || body_bytes > VERIFY_RECORD_BYTES_MAX {
        return Err(damaged());
    }
    let mut body = vec![0; usize::try_from(body_bytes).map_err(|_| damaged())?];
    input.read_exact(&mut body).map_err(|_| damaged())?;
    let sum = crc32c::crc32c_append(crc32c::crc32c(&head[..28]), &body);
    if u32_at(&head, 28) != sum {
        return Err(damaged());
    }
    Ok((record, body))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
