//! The log: what was committed since the last checkpoint, in order.
//!
//! One entry is one group commit: written in one piece, made durable by one flush, and no entry is
//! written before the one before it is durable. So at most the last entry can be torn, and a torn
//! one was never acknowledged. An entry fills whole pages; each of its sectors carries its number
//! and a checksum (see [`sector`]).
//!
//! The log is circular, and its places are counted as if it were not. An entry is never cut in two
//! at the end: it begins at the first byte again instead. What lies behind the *older* superblock's
//! head may be written over; the newer one's comes later, so that either superblock finds all the
//! entries that it needs.

pub(crate) mod entry;
pub(crate) mod sector;

use crate::device::AlignedBuffer;
use crate::layout::{LOG_OFFSET, Layout, PAGE_BYTES};
use crate::planted::{Mistake, planted};
use crate::superblock::LogHead;
use crate::{Damage, StoreError};
use base::BlockDevice;
use sector::{BODY_BYTES, SECTOR_BYTES, Stamp};

const PAGE: usize = PAGE_BYTES as usize;
const PAGE_SECTORS: usize = PAGE / SECTOR_BYTES;
/// Longest entry that any log takes: larger ones gain nothing and would make the next commit wait.
const ENTRY_BYTES_MAX: u64 = 4 << 20;
/// Bytes of format's blank log that are written at once.
const FORMAT_BYTES: u64 = 1 << 20;

/// Where the log stands.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    capacity_bytes: u64,
    opening: u32,
    /// What the newer and the older superblock begin at.
    heads: [LogHead; 2],
    next: LogHead,
}

impl Log {
    /// A log whose next entry is at `next`; `head` is what both superblocks may begin at.
    pub(crate) fn new(layout: &Layout, opening: u32, head: LogHead, next: LogHead) -> Self {
        Self {
            capacity_bytes: layout.log_bytes,
            opening,
            heads: [head; 2],
            next,
        }
    }

    /// Writes blank sectors all over the log.
    pub(crate) fn format(device: &dyn BlockDevice, layout: &Layout) -> Result<(), StoreError> {
        let mut blank = vec![0; FORMAT_BYTES.min(layout.log_bytes) as usize];
        for sector in blank.chunks_mut(SECTOR_BYTES) {
            sector::blank(sector);
        }
        let mut at = 0;
        while at < layout.log_bytes {
            let len = FORMAT_BYTES.min(layout.log_bytes - at);
            device.write_at(LOG_OFFSET + at, &blank[..len as usize])?;
            at += len;
        }
        Ok(())
    }

    /// Longest body of an entry.
    pub(crate) fn body_bytes_max(&self) -> usize {
        body_bytes_max(self.capacity_bytes)
    }

    /// Where the next entry will be.
    pub(crate) fn next(&self) -> LogHead {
        self.next
    }

    /// Bytes that would be replayed now.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.next.position - self.heads[0].position
    }

    /// Whether it is time for a checkpoint: a third is in use, so that this third and that of the
    /// checkpoint before fit in with room for what comes during the next one; or there is little
    /// room, as there may be after an opening.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        let part = if planted(Mistake::LogTooLong) { 2 } else { 3 };
        self.live_bytes() > self.capacity_bytes / part
            || self.oldest().position + self.capacity_bytes
                < self.next.position + 2 * self.largest_entry_bytes()
    }

    /// Whether an entry with a body of `len` bytes fits.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        self.end_of(len) <= self.oldest().position + self.capacity_bytes
    }

    /// Whether it fits so that, when the checkpoint under way is done, there is room for the entry
    /// with which the next one begins, and for what that one loses at the end of the log.
    pub(crate) fn has_room_beside_checkpoint(&self, len: usize) -> bool {
        let after = self.heads[0].position + self.capacity_bytes;
        self.has_room(len) && self.end_of(len) + 2 * self.largest_entry_bytes() <= after
    }

    /// The head before which nothing is needed any more.
    fn oldest(&self) -> LogHead {
        self.heads[usize::from(!planted(Mistake::LogTooLong))]
    }

    fn end_of(&self, len: usize) -> u64 {
        let bytes = entry_bytes(len);
        self.position_for(bytes) + bytes
    }

    fn largest_entry_bytes(&self) -> u64 {
        entry_bytes(self.body_bytes_max())
    }

    /// The next entry: where it has to be written, and its bytes. It is durable after the next
    /// flush; no other one may be written before that.
    ///
    /// # Panics
    /// If there is no room.
    pub(crate) fn append(&mut self, body: &[u8]) -> (u64, AlignedBuffer) {
        assert!(self.has_room(body.len()), "a checkpoint was due before");
        let bytes = encode(self.next.sequence, self.opening, body);
        let len = bytes.len() as u64;
        let position = self.position_for(len);
        self.next = LogHead {
            position: position + len,
            sequence: self.next.sequence + 1,
        };
        (LOG_OFFSET + position % self.capacity_bytes, bytes)
    }

    /// A superblock is durable that begins at `head`.
    pub(crate) fn superblock_is_durable(&mut self, head: LogHead) {
        self.heads = [head, self.heads[0]];
    }

    fn position_for(&self, len: u64) -> u64 {
        let position = self.next.position;
        let left = self.capacity_bytes - position % self.capacity_bytes;
        if len <= left {
            position
        } else {
            position + left
        }
    }
}

/// Longest body of an entry: what a sixteenth of the log carries. Two thirds that checkpoints leave
/// in use, each with an entry that passed the mark, an entry's worth lost at the end and one more
/// entry are together less than the log.
fn body_bytes_max(capacity_bytes: u64) -> usize {
    let pages = (capacity_bytes / 16).min(ENTRY_BYTES_MAX) / PAGE_BYTES;
    pages as usize * PAGE_SECTORS * BODY_BYTES
}

/// Bytes of an entry with a body of `len` bytes.
fn entry_bytes(len: usize) -> u64 {
    let sectors = len.div_ceil(BODY_BYTES).max(1);
    (sectors.div_ceil(PAGE_SECTORS) * PAGE) as u64
}

/// The bytes of an entry.
pub(crate) fn encode(sequence: u64, opening: u32, body: &[u8]) -> AlignedBuffer {
    let mut bytes = AlignedBuffer::new(entry_bytes(body.len()) as usize);
    let count = u16::try_from(bytes.len() / SECTOR_BYTES).expect("4 MiB at most");
    let mut parts = body.chunks(BODY_BYTES);
    for (index, sector) in (0..count).zip(bytes.chunks_mut(SECTOR_BYTES)) {
        let stamp = Stamp {
            sequence,
            opening,
            index,
            count,
        };
        sector::encode(stamp, parts.next().unwrap_or_default(), sector);
    }
    bytes
}

/// Writes the entry that is there once more, as it is. It is durable after the next flush.
///
/// # Errors
/// [`StoreError::Damaged`] if it cannot be read any more; the device's.
pub(crate) fn write_again(
    device: &dyn BlockDevice,
    layout: &Layout,
    entry: LogHead,
) -> Result<(), StoreError> {
    let offset = LOG_OFFSET + entry.position % layout.log_bytes;
    let mut replay = Replay::new(device, layout, entry);
    let body = replay.read_at(entry.position)?;
    let body = body.ok_or(Damage::Log(offset))?;
    let bytes = encode(entry.sequence, replay.opening, &body);
    Ok(device.write_at(offset, &bytes)?)
}

/// Goes through the log from a superblock's head on.
pub(crate) struct Replay<'a> {
    device: &'a dyn BlockDevice,
    capacity_bytes: u64,
    next: LogHead,
    opening: u32,
    last: Option<LogHead>,
}

impl<'a> Replay<'a> {
    /// From `head` on.
    pub(crate) fn new(device: &'a dyn BlockDevice, layout: &Layout, head: LogHead) -> Self {
        Self {
            device,
            capacity_bytes: layout.log_bytes,
            next: head,
            opening: 0,
            last: None,
        }
    }

    /// Where the next entry would be, and the latest opening that was seen.
    pub(crate) fn end(&self) -> (LogHead, u32) {
        (self.next, self.opening)
    }

    /// Where the entry is that was read last; none if there was none.
    pub(crate) fn last(&self) -> Option<LogHead> {
        self.last
    }

    /// The next entry's body with zeros behind it; none at the end of the log.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a sector went bad where an entry may have been; the device's.
    pub(crate) fn read(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let within = self.next.position % self.capacity_bytes;
        if let Some(body) = self.read_at(self.next.position)? {
            return Ok(Some(body));
        }
        // An entry that did not fit before the end is at the first byte.
        if within == 0 {
            return Ok(None);
        }
        self.read_at(self.next.position + self.capacity_bytes - within)
    }

    /// Whether the end that [`Self::read`] came to is one. Nothing is written behind an entry
    /// before it is durable: what has a number beyond the next one was acknowledged, and so was the
    /// entry that is missing here. Looks where the entry behind that one can be.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if an entry is missing; the device's.
    pub(crate) fn check_end(&self) -> Result<(), StoreError> {
        let within = self.next.position % self.capacity_bytes;
        let reach = entry_bytes(body_bytes_max(self.capacity_bytes)) + PAGE_BYTES;
        let ahead = within..(within + reach).min(self.capacity_bytes);
        // One of the two that did not fit before the end is at the first byte.
        let is_near_end = within + 2 * reach > self.capacity_bytes;
        let first = 0..if is_near_end { reach } else { 0 };
        for places in [ahead, first] {
            let mut bytes = vec![0; (places.end - places.start) as usize];
            (self.device).read_at(LOG_OFFSET + places.start, &mut bytes)?;
            let is_missing = |page: &mut [u8]| {
                // What is bad here is no entry that anybody needs, or not the first of them.
                let stamp = sector::decode(&mut page[..SECTOR_BYTES], 0).ok().flatten();
                stamp.is_some_and(|stamp| stamp.sequence > self.next.sequence)
            };
            if bytes.chunks_mut(PAGE).any(is_missing) {
                return Err(Damage::Log(LOG_OFFSET + within).into());
            }
        }
        Ok(())
    }

    fn read_at(&mut self, position: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let within = position % self.capacity_bytes;
        let mut sector = vec![0; SECTOR_BYTES];
        self.device.read_at(LOG_OFFSET + within, &mut sector)?;
        let Some(first) = sector::decode(&mut sector, LOG_OFFSET + within)? else {
            return Ok(None);
        };
        let expected = self.next.sequence;
        let len = usize::from(first.count) * SECTOR_BYTES;
        if first.sequence != expected
            || first.index != 0
            || first.opening < self.opening
            || !len.is_multiple_of(PAGE)
            || len as u64 > entry_bytes(body_bytes_max(self.capacity_bytes))
            || within + len as u64 > self.capacity_bytes
        {
            return Ok(None);
        }
        let mut bytes = vec![0; len];
        self.device.read_at(LOG_OFFSET + within, &mut bytes)?;
        let mut body = Vec::with_capacity(len);
        for (index, sector) in (0..first.count).zip(bytes.chunks_mut(SECTOR_BYTES)) {
            let offset = LOG_OFFSET + within + u64::from(index) * SECTOR_BYTES as u64;
            let stamp = sector::decode(sector, offset)?;
            if stamp != Some(Stamp { index, ..first }) && !planted(Mistake::TornEntries) {
                return Ok(None);
            }
            body.extend_from_slice(sector::body(sector));
        }
        self.opening = first.opening;
        self.last = Some(LogHead {
            position,
            sequence: expected,
        });
        self.next = LogHead {
            position: position + len as u64,
            sequence: expected
                .checked_add(1)
                .ok_or(Damage::Log(LOG_OFFSET + within))?,
        };
        Ok(Some(body))
    }
}
