//! A log in the form of the kernel's dm-log-writes, which other tools replay: `replay-log` of
//! xfstests, and what reads the logs of QEMU's blklogwrites.
//!
//! The form (Linux, `drivers/md/dm-log-writes.c`), all numbers little-endian, all in sectors:
//!
//! ```text
//! sector 0    magic u64, version u64, entries u64, bytes of a sector u32
//! an entry    one sector: first sector u64, sectors u64, flags u64, bytes of a mark u64, the mark
//!             and for a write as many sectors of data
//! ```
//!
//! That form knows no device before its log, nor what it is about. The first entry is a mark
//! `about bytes=LENGTH` with the lines of the subject. What was on the device is written next,
//! flushed, and marked `base`. The workload's marks are `begun N` and `done N`. What became zeros
//! is a discard, without data: on a device where discarded sectors are not zeros, they must be made
//! so.

use super::{Entry, Log, Mark};
use std::io::{self, Write};

/// Of the kernel's form.
pub(super) const MAGIC: u64 = 0x006a_7366_7773_6872;
pub(super) const VERSION: u64 = 1;
/// Of a sector: what the kernel uses for devices that have nothing larger.
pub(super) const SECTOR_BYTES: usize = 512;

pub(super) const FLUSH: u64 = 1 << 0;
pub(super) const FUA: u64 = 1 << 1;
pub(super) const DISCARD: u64 = 1 << 2;
pub(super) const MARK: u64 = 1 << 3;

/// What the first mark begins with; the device's length follows.
pub(super) const ABOUT: &str = "about bytes=";
/// The mark behind what was on the device before.
pub(super) const BASE: &str = "base";
/// What a mark may have: a sector without the numbers before it.
const MARK_BYTES_MAX: usize = SECTOR_BYTES - 32;

/// Pieces in which what was on the device is written; those of zeros are left out.
const PIECE_BYTES: usize = 64 << 10;

impl Log {
    /// Writes the log in that form; how many entries it has there.
    ///
    /// # Errors
    /// Of writing; [`io::ErrorKind::InvalidData`] if something is not whole sectors, which no block
    /// device writes, or the subject is longer than a mark may be.
    pub fn export_to(&self, out: &mut impl Write) -> io::Result<u64> {
        let pieces = self.base_pieces();
        let about = format!("{ABOUT}{}\n{}", self.base.len_bytes(), self.subject);
        if about.len() > MARK_BYTES_MAX {
            let why = "the subject of the log is too long";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        // What it is about, each piece, a flush and a mark behind them.
        let entries = (pieces.len() + 3 + self.entries.len()) as u64;
        let mut head = [0; SECTOR_BYTES];
        head[..8].copy_from_slice(&MAGIC.to_le_bytes());
        head[8..16].copy_from_slice(&VERSION.to_le_bytes());
        head[16..24].copy_from_slice(&entries.to_le_bytes());
        head[24..28].copy_from_slice(&(SECTOR_BYTES as u32).to_le_bytes());
        out.write_all(&head)?;
        add(out, MARK, (0, 0), about.as_bytes())?;
        let mut piece = vec![0; PIECE_BYTES];
        for (offset, len) in pieces {
            self.base.read_at(offset, &mut piece[..len]);
            add(out, 0, (offset, len as u64), &[])?;
            out.write_all(&piece[..len])?;
        }
        add(out, FLUSH, (0, 0), &[])?;
        add(out, MARK, (0, 0), BASE.as_bytes())?;
        for entry in &self.entries {
            match entry {
                Entry::Write { offset, data } => {
                    add(out, 0, (*offset, data.len() as u64), &[])?;
                    out.write_all(data)?;
                }
                Entry::Zeros(extent) => add(out, DISCARD, (extent.offset, extent.len), &[])?,
                Entry::Flush => add(out, FLUSH, (0, 0), &[])?,
                Entry::Mark(mark) => {
                    let words = match mark {
                        Mark::Begun(step) => format!("begun {step}"),
                        Mark::Done(step) => format!("done {step}"),
                    };
                    add(out, MARK, (0, 0), words.as_bytes())?;
                }
            }
        }
        Ok(entries)
    }

    /// Where there is something on the device before, and how much of it.
    fn base_pieces(&self) -> Vec<(u64, usize)> {
        let mut piece = vec![0; PIECE_BYTES];
        let starts = (0..self.base.len_bytes()).step_by(PIECE_BYTES);
        let pieces = starts.map(|offset| {
            let left = self.base.len_bytes() - offset;
            (offset, left.min(PIECE_BYTES as u64) as usize)
        });
        pieces
            .filter(|(offset, len)| {
                self.base.read_at(*offset, &mut piece[..*len]);
                piece[..*len].iter().any(|byte| *byte != 0)
            })
            .collect()
    }
}

/// Writes the sector of an entry, which is about these bytes.
fn add(out: &mut impl Write, flags: u64, (offset, len): (u64, u64), mark: &[u8]) -> io::Result<()> {
    let unit = SECTOR_BYTES as u64;
    if !offset.is_multiple_of(unit) || !len.is_multiple_of(unit) {
        let why = "something in the log is not whole sectors";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let mut sector = [0; SECTOR_BYTES];
    let numbers = [offset / unit, len / unit, flags, mark.len() as u64];
    for (number, place) in numbers.iter().zip(sector.chunks_exact_mut(8)) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    // None is longer than its sector has room for.
    sector[32..32 + mark.len()].copy_from_slice(mark);
    out.write_all(&sector)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Extent;
    use sim::Image;

    fn log() -> Log {
        let mut base = Image::new(1 << 20);
        base.write_at(70_000, &[7; 100]);
        let write = |offset: u64, byte: u8, len: usize| Entry::Write {
            offset,
            data: vec![byte; len].into(),
        };
        Log {
            subject: "x".into(),
            base,
            entries: vec![
                Entry::Mark(Mark::Begun(1)),
                write(4096, 1, 1024),
                Entry::Zeros(Extent::new(69_632, 4096)),
                Entry::Flush,
                Entry::Mark(Mark::Done(1)),
                write(512, 2, 512),
            ],
        }
    }

    fn exported(log: &Log) -> Vec<u8> {
        let mut bytes = Vec::new();
        log.export_to(&mut bytes).unwrap();
        bytes
    }

    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn the_form_is_that_of_the_kernel_byte_by_byte() {
        let bytes = exported(&log());
        // "jsfwshr", backwards as the kernel has it, version 1, ten entries, sectors of 512.
        assert_eq!(bytes[..8], [0x72, 0x68, 0x73, 0x77, 0x66, 0x73, 0x6a, 0]);
        assert_eq!((u64_at(&bytes, 8), u64_at(&bytes, 16)), (1, 10));
        assert_eq!(bytes[24..28], [0, 2, 0, 0]);
        assert!(bytes[28..512].iter().all(|byte| *byte == 0));
        let about = &bytes[512..1024];
        assert_eq!((u64_at(about, 16), u64_at(about, 24)), (8, 21));
        assert_eq!(&about[32..53], b"about bytes=1048576\nx");
        // The piece of 64 KiB that has something in it: from sector 128 on.
        let entry = &bytes[1024..1536];
        assert_eq!([0, 8, 16, 24].map(|at| u64_at(entry, at)), [128, 128, 0, 0]);
        let after = 1536 + 65_536;
        let flush = &bytes[after..after + 512];
        assert_eq!([0, 8, 16, 24].map(|at| u64_at(flush, at)), [0, 0, 1, 0]);
        let mark = &bytes[after + 512..after + 1024];
        assert_eq!([0, 8, 16, 24].map(|at| u64_at(mark, at)), [0, 0, 8, 4]);
        assert_eq!(&mark[32..38], b"base\0\0");
        let begun = &bytes[after + 1024..after + 1536];
        assert_eq!((&begun[32..39], u64_at(begun, 24)), (&b"begun 1"[..], 7));
        // A head, ten entries, and the data of three writes.
        assert_eq!(bytes.len(), 11 * 512 + 65_536 + 1024 + 512);
    }

    /// What another tool makes of it: every entry is carried out on a device of zeros.
    #[test]
    fn who_replays_it_has_the_same_device() {
        let log = log();
        let bytes = exported(&log);
        let mut device = vec![0; 1 << 20];
        let mut at = 512;
        let mut marks = Vec::new();
        for _ in 0..u64_at(&bytes, 16) {
            let numbers = [0, 8, 16, 24].map(|by| u64_at(&bytes, at + by) as usize);
            let [sector, sectors, flags, mark] = numbers;
            let place = sector * 512..(sector + sectors) * 512;
            if flags & 8 != 0 {
                let words = &bytes[at + 32..at + 32 + mark];
                marks.push(String::from_utf8(words.to_vec()).unwrap());
            }
            at += 512;
            if flags & 4 != 0 {
                device[place].fill(0);
            } else {
                let len = place.len();
                device[place].copy_from_slice(&bytes[at..at + len]);
                at += len;
            }
        }
        assert_eq!(
            (at, marks.join(",").as_str()),
            (bytes.len(), "about bytes=1048576\nx,base,begun 1,done 1")
        );
        let mut known = log.base.clone();
        for entry in &log.entries {
            match entry {
                Entry::Write { offset, data } => known.write_at(*offset, data),
                Entry::Zeros(extent) => {
                    known.write_at(extent.offset, &vec![0; extent.len as usize]);
                }
                Entry::Flush | Entry::Mark(_) => {}
            }
        }
        let mut found = vec![0; 1 << 20];
        known.read_at(0, &mut found);
        assert!(device == found, "the two differ");
    }

    #[test]
    fn what_is_not_whole_sectors_is_refused() {
        let mut odd = log();
        odd.entries.push(Entry::Write {
            offset: 100,
            data: vec![1; 512].into(),
        });
        let error = odd.export_to(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
