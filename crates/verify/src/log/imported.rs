//! Reads logs in the form of the kernel's dm-log-writes: those that [`Log::export_to`] wrote, and
//! what QEMU's blklogwrites records. The form is drawn in `exported.rs`.
//!
//! A write that was ordered to be durable when it is answered (FUA) is read as a write and a flush.
//! That says of what was written before it more than the device did, so that fewer states are made
//! of it than there may be; loop devices send no such writes.

use super::exported::{ABOUT, BASE, DISCARD, FLUSH, FUA, MAGIC, MARK, SECTOR_BYTES, VERSION};
use super::{Entry, Log, LogError, Mark, Marks};
use base::Extent;
use base::limits::{
    VERIFY_DEVICE_BYTES_MAX, VERIFY_LOG_BYTES_MAX, VERIFY_LOG_ENTRIES_MAX, VERIFY_RECORD_BYTES_MAX,
};
use sim::Image;
use std::io::Read;

/// Lengths of devices are multiples of this.
const BLOCK_BYTES: u64 = 4096;

/// One entry of such a log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// What was done to the device.
    Done(Vec<Entry>),
    /// Somebody's word.
    Mark(String),
}

/// Reads one entry after the other. Sectors are of [`SECTOR_BYTES`].
pub(crate) struct Reader<'a, R> {
    input: &'a mut R,
    /// Entries that are still to come.
    left: u64,
    /// The number of the next one, for messages.
    number: u64,
    /// Where in the file it begins, in bytes.
    position: u64,
}

impl<'a, R: Read> Reader<'a, R> {
    /// From the beginning of a log on.
    pub(crate) fn new(input: &'a mut R) -> Result<Self, LogError> {
        let mut head = [0; SECTOR_BYTES];
        input.read_exact(&mut head).map_err(|_| LogError::NotALog)?;
        let sector_bytes = u32::from_le_bytes(head[24..28].try_into().expect("four bytes"));
        let is_one = number_at(&head, 0) == MAGIC
            && number_at(&head, 8) == VERSION
            && sector_bytes as usize == SECTOR_BYTES;
        let left = number_at(&head, 16);
        is_one
            .then(|| Self::at(input, SECTOR_BYTES as u64, left))
            .ok_or(LogError::NotALog)
    }

    /// From an entry on that begins there in the file; at most so many.
    pub(crate) fn at(input: &'a mut R, position: u64, left: u64) -> Self {
        Self {
            input,
            left,
            number: 0,
            position,
        }
    }

    /// Where in the file the next entry begins.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The next entry; `None` behind the last one.
    pub(crate) fn next(&mut self) -> Result<Option<Item>, LogError> {
        if self.left == 0 {
            return Ok(None);
        }
        let damaged = LogError::Damaged(self.number);
        let mut sector = [0; SECTOR_BYTES];
        if self.input.read_exact(&mut sector).is_err() {
            return Err(damaged);
        }
        let [first, sectors, flags, mark_bytes] = [0, 8, 16, 24].map(|at| number_at(&sector, at));
        let unit = SECTOR_BYTES as u64;
        let (Some(offset), Some(len)) = (first.checked_mul(unit), sectors.checked_mul(unit)) else {
            return Err(damaged);
        };
        let has_data = flags & (DISCARD | MARK) == 0;
        if offset.checked_add(len).is_none() || (has_data && len > VERIFY_RECORD_BYTES_MAX) {
            return Err(damaged);
        }
        self.left -= 1;
        self.number += 1;
        self.position += unit;
        if flags & MARK != 0 {
            let end = usize::try_from(mark_bytes)
                .ok()
                .and_then(|len| len.checked_add(32));
            let words = end.and_then(|end| sector.get(32..end)).ok_or(damaged)?;
            return Ok(Some(Item::Mark(
                String::from_utf8_lossy(words).into_owned(),
            )));
        }
        let mut done = Vec::new();
        if flags & FLUSH != 0 {
            done.push(Entry::Flush);
        }
        if len > 0 && flags & DISCARD != 0 {
            done.push(Entry::Zeros(Extent::new(offset, len)));
        } else if len > 0 {
            let mut data = vec![0; usize::try_from(len).expect("bounded above")];
            if self.input.read_exact(&mut data).is_err() {
                return Err(damaged);
            }
            self.position += len;
            let data = data.into();
            done.push(Entry::Write { offset, data });
        }
        if flags & FUA != 0 {
            done.push(Entry::Flush);
        }
        Ok(Some(Item::Done(done)))
    }
}

impl Log {
    /// Whether a file that begins so is such a log.
    #[must_use]
    pub fn is_exported(first_bytes: &[u8]) -> bool {
        first_bytes.get(..8) == Some(&MAGIC.to_le_bytes())
    }

    /// Reads what [`Log::export_to`] wrote.
    ///
    /// # Errors
    /// [`LogError`]; no bytes whatsoever take more memory than the bounds of a log, or panic.
    pub fn import_from(input: &mut impl Read) -> Result<Self, LogError> {
        let mut reader = Reader::new(input)?;
        let (len_bytes, subject) = match reader.next()? {
            Some(Item::Mark(words)) => about(&words).ok_or(LogError::Unsaid)?,
            _ => return Err(LogError::Unsaid),
        };
        let mut log = Self {
            subject,
            base: Image::new(len_bytes),
            entries: Vec::new(),
        };
        let (mut is_base, mut bytes, mut marks) = (true, 0, Marks::default());
        while let Some(item) = reader.next()? {
            let damaged = || LogError::Damaged(reader.number - 1);
            let done = match item {
                Item::Mark(words) if words == BASE && is_base => {
                    is_base = false;
                    continue;
                }
                Item::Mark(words) => vec![Entry::Mark(mark(&words).ok_or_else(damaged)?)],
                Item::Done(done) => done,
            };
            for entry in done {
                if !is_inside(&entry, len_bytes) || !marks.take(&entry) {
                    return Err(damaged());
                }
                match entry {
                    Entry::Write { offset, data } if is_base => log.base.write_at(offset, &data),
                    Entry::Flush if is_base => {}
                    _ if is_base => return Err(damaged()),
                    entry => {
                        bytes += entry.memory_bytes();
                        log.entries.push(entry);
                    }
                }
            }
            if log.entries.len() > VERIFY_LOG_ENTRIES_MAX || bytes > VERIFY_LOG_BYTES_MAX {
                return Err(damaged());
            }
        }
        Ok(log)
    }
}

fn is_inside(entry: &Entry, len_bytes: u64) -> bool {
    let device = Extent::new(0, len_bytes);
    match entry {
        Entry::Write { offset, data } => device.covers(Extent::new(*offset, data.len() as u64)),
        Entry::Zeros(extent) => device.covers(*extent),
        Entry::Flush | Entry::Mark(_) => true,
    }
}

/// The device's length and the subject.
fn about(words: &str) -> Option<(u64, String)> {
    let (bytes, subject) = words.strip_prefix(ABOUT)?.split_once('\n')?;
    let bytes: u64 = bytes.parse().ok()?;
    let is_sound = bytes <= VERIFY_DEVICE_BYTES_MAX && bytes.is_multiple_of(BLOCK_BYTES);
    is_sound.then(|| (bytes, subject.to_owned()))
}

fn mark(words: &str) -> Option<Mark> {
    let (what, step) = words.split_once(' ')?;
    let step = step.parse().ok()?;
    match what {
        "begun" => Some(Mark::Begun(step)),
        "done" => Some(Mark::Done(step)),
        _ => None,
    }
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Log {
        let mut base = Image::new(1 << 20);
        base.write_at(70_000, &[7; 100]);
        Log {
            subject: "target=ext4\nseed=1\n".into(),
            base,
            entries: vec![
                Entry::Mark(Mark::Begun(1)),
                Entry::Write {
                    offset: 4096,
                    data: vec![1; 1024].into(),
                },
                Entry::Zeros(Extent::new(69_632, 4096)),
                Entry::Flush,
                Entry::Mark(Mark::Done(1)),
            ],
        }
    }

    fn exported() -> Vec<u8> {
        let mut bytes = Vec::new();
        log().export_to(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_was_exported_is_read_as_it_was() {
        let bytes = exported();
        assert!(Log::is_exported(&bytes) && !Log::is_exported(b"AZKC"));
        assert_eq!(Log::import_from(&mut bytes.as_slice()).unwrap(), log());
    }

    #[test]
    fn every_cut_is_noticed_and_no_flipped_bit_does_harm() {
        let bytes = exported();
        for len in (0..bytes.len()).step_by(97) {
            assert!(Log::import_from(&mut &bytes[..len]).is_err(), "{len}");
        }
        for at in 0..2048 {
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[at] ^= 1 << bit;
                // It has no checksums: some of these are other logs.
                drop(Log::import_from(&mut other.as_slice()));
            }
        }
    }

    #[test]
    fn flags_are_flushes_before_and_behind() {
        let mut sector = [0; SECTOR_BYTES];
        sector[..8].copy_from_slice(&3_u64.to_le_bytes());
        sector[8..16].copy_from_slice(&1_u64.to_le_bytes());
        sector[16..24].copy_from_slice(&(FLUSH | FUA).to_le_bytes());
        let bytes = [&sector[..], &[9; SECTOR_BYTES]].concat();
        let mut input = bytes.as_slice();
        let mut reader = Reader::at(&mut input, 512, 1);
        let Some(Item::Done(done)) = reader.next().unwrap() else {
            panic!("it is no mark");
        };
        assert!(matches!(
            &done[..],
            [
                Entry::Flush,
                Entry::Write { offset: 1536, .. },
                Entry::Flush
            ]
        ));
        assert_eq!(reader.position(), 1536);
        assert_eq!(reader.next().unwrap(), None);
    }
}
