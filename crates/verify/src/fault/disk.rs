//! A disk that does wrong: what is on its medium, as a log made of what it was told to do.

use super::{Damage, Fault, Flush, Spot};
use crate::log::{Entry, Mark};
use crate::states::SECTOR_BYTES;
use crate::workload::{Step, Workload, content};
use base::Extent;
use sim::Image;

/// So many bytes at the beginning of what is written tell it from everything else.
const KNOWN_BYTES: usize = 64;
/// What a discard that goes too far takes in addition.
const WIDER_BYTES: u64 = 4096;

/// What a log is about: by this its writes are told apart.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The beginnings of what the workload writes.
    contents: Vec<Vec<u8>>,
    /// The steps that make something durable, by their numbers in marks.
    promises: Vec<u32>,
    /// Where on the device the superblock is, in bytes; `None` if nobody knows.
    superblock: Option<u64>,
}

impl About {
    /// Of a workload on a file system whose superblock is there.
    #[must_use]
    pub fn new(workload: &Workload, superblock: Option<u64>) -> Self {
        let begins = |step: &Step| match step {
            Step::Write { len, tag, .. } | Step::Append { len, tag, .. } => {
                let mut bytes = content(*tag, *len);
                bytes.truncate(KNOWN_BYTES);
                Some(bytes)
            }
            _ => None,
        };
        let steps = || (1..).zip(&workload.steps);
        let durable = steps().filter(|(_, step)| step.makes_durable());
        Self {
            contents: workload.steps.iter().filter_map(begins).collect(),
            promises: durable.map(|(number, _)| number).collect(),
            superblock,
        }
    }

    /// Where in a write something begins that the workload has written.
    fn data_at(&self, written: &[u8]) -> Option<usize> {
        let mut known = self.contents.iter().filter(|bytes| !bytes.is_empty());
        known.find_map(|bytes| {
            let mut starts = written.windows(bytes.len());
            starts.position(|part| part == bytes.as_slice())
        })
    }

    /// The entry of a write; `None` if the log has no such write.
    fn find(&self, entries: &[Entry], spot: Spot) -> Option<usize> {
        let mut writes = entries.iter().enumerate().filter_map(|(at, entry)| {
            let Entry::Write { offset, data } = entry else {
                return None;
            };
            Some((at, *offset, data))
        });
        let nth = |number: u64| usize::try_from(number).ok();
        let found = match spot {
            Spot::Number(number) => writes.nth(nth(number)?)?,
            Spot::Data(number) => {
                let mut data = writes.filter(|(_, _, data)| self.data_at(data).is_some());
                data.nth(nth(number)?)?
            }
            Spot::Commit(number) => {
                let step = *self.promises.get(nth(number)?)?;
                let mark = |mark| entries.iter().position(|entry| *entry == Entry::Mark(mark));
                let (begun, done) = (mark(Mark::Begun(step))?, mark(Mark::Done(step))?);
                writes.rfind(|(at, ..)| (begun..done).contains(at))?
            }
            Spot::Superblock => {
                let place = self.superblock?;
                let covers = |offset: u64, len: usize| {
                    Extent::new(offset, len as u64).covers(Extent::new(place, 1))
                };
                writes.rfind(|(_, offset, data)| covers(*offset, data.len()))?
            }
        };
        Some(found.0)
    }

    /// The entry of a flush; `None` if the log has no such flush.
    fn find_flush(&self, entries: &[Entry], which: Flush) -> Option<usize> {
        let mut flushes = (0..entries.len()).filter(|at| entries[*at] == Entry::Flush);
        match which {
            Flush::Number(number) => flushes.nth(usize::try_from(number).ok()?),
            Flush::Behind(spot) => {
                let write = self.find(entries, spot)?;
                flushes.find(|at| *at > write)
            }
            Flush::Before(spot) => {
                let write = self.find(entries, spot)?;
                flushes.take_while(|at| *at < write).last()
            }
        }
    }
}

impl Fault {
    /// What a disk with this fault has on its medium, when it was told `entries` and was `base`
    /// before. Without such a write or flush in the log it does nothing wrong.
    #[must_use]
    pub fn on_log(self, base: &Image, entries: Vec<Entry>, about: &About) -> Vec<Entry> {
        match self {
            Self::NoFlush => without_flushes(entries),
            Self::LostFlush(which) => match about.find_flush(&entries, which) {
                Some(at) => without(entries, at),
                None => entries,
            },
            Self::Write(damage, spot) => match about.find(&entries, spot) {
                Some(at) => damage.on_write(base, entries, at, spot, about),
                None => entries,
            },
            Self::WideDiscard => {
                let widened = |entry| match entry {
                    Entry::Zeros(extent) => {
                        let end = (extent.end() + WIDER_BYTES).min(base.len_bytes());
                        Entry::Zeros(Extent::between(extent.offset, end))
                    }
                    other => other,
                };
                entries.into_iter().map(widened).collect()
            }
            Self::EarlyDiscard => early_discards(entries),
            Self::Skip(_) | Self::NoRecovery => entries,
            Self::RecoveryNoFlush | Self::RecoveryLostWrite(_) => entries,
        }
    }

    /// What is on the medium after a recovery with this fault.
    #[must_use]
    pub fn on_recovery(self, base: &Image, entries: Vec<Entry>) -> Vec<Entry> {
        let about = About::default();
        match self {
            Self::RecoveryNoFlush => without_flushes(entries),
            Self::RecoveryLostWrite(number) => {
                let fault = Self::Write(Damage::Lost, Spot::Number(number));
                fault.on_log(base, entries, &about)
            }
            _ => entries,
        }
    }
}

impl Damage {
    /// The log with this write damaged.
    fn on_write(
        self,
        base: &Image,
        mut entries: Vec<Entry>,
        at: usize,
        spot: Spot,
        about: &About,
    ) -> Vec<Entry> {
        let Entry::Write { offset, data } = entries[at].clone() else {
            return entries;
        };
        let half = (data.len() as u64 / 2 / SECTOR_BYTES * SECTOR_BYTES) as usize;
        let replaced = match self {
            Self::Lost => return without(entries, at),
            Self::Late => return moved(entries, at, behind_next_flush),
            Self::Early => return moved(entries, at, before_last_flush),
            Self::Undone => {
                let mut before = vec![0; data.len()];
                content_at(base, &entries[..at]).read_at(offset, &mut before);
                let to = behind_next_flush(&entries, at);
                entries.insert(to, Entry::write(offset, before));
                return entries;
            }
            Self::Torn => {
                let place = about.superblock.filter(|_| spot == Spot::Superblock);
                // Of a superblock its first sector is new, and its last is not.
                let cut = place.map_or(half, |place| {
                    let sectors = (place - offset) / SECTOR_BYTES + 1;
                    (sectors * SECTOR_BYTES) as usize
                });
                Entry::write(offset, data[..cut.min(data.len())].to_vec())
            }
            Self::Shifted => {
                let len = data.len() as u64;
                let fits = offset + 2 * len <= base.len_bytes();
                let to = if fits {
                    offset + len
                } else {
                    offset.saturating_sub(len)
                };
                Entry::write(to, data.to_vec())
            }
            Self::Swapped => Entry::write(offset, [&data[half..], &data[..half]].concat()),
            Self::Flipped => {
                let mut bytes = data.to_vec();
                let place = about.data_at(&bytes).unwrap_or(bytes.len() / 2);
                bytes[place] ^= 0x10;
                Entry::write(offset, bytes)
            }
            Self::Zeroed => Entry::Zeros(Extent::new(offset, data.len() as u64)),
        };
        entries[at] = replaced;
        entries
    }
}

impl Entry {
    fn write(offset: u64, data: Vec<u8>) -> Self {
        let data = data.into();
        Self::Write { offset, data }
    }
}

fn without(mut entries: Vec<Entry>, at: usize) -> Vec<Entry> {
    entries.remove(at);
    entries
}

fn without_flushes(mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.retain(|entry| *entry != Entry::Flush);
    entries
}

/// Moves an entry to where `to` says, which counts places in the log with it.
fn moved(mut entries: Vec<Entry>, at: usize, to: impl Fn(&[Entry], usize) -> usize) -> Vec<Entry> {
    let to = to(&entries, at);
    let entry = entries.remove(at);
    // What was behind it is now one place further in front.
    entries.insert(if to > at { to - 1 } else { to }, entry);
    entries
}

fn behind_next_flush(entries: &[Entry], at: usize) -> usize {
    let mut flushes = (at..entries.len()).filter(|at| entries[*at] == Entry::Flush);
    flushes.next().map_or(entries.len(), |flush| flush + 1)
}

fn before_last_flush(entries: &[Entry], at: usize) -> usize {
    let flushes = entries[..at]
        .iter()
        .rposition(|entry| *entry == Entry::Flush);
    flushes.unwrap_or(0)
}

fn early_discards(mut entries: Vec<Entry>) -> Vec<Entry> {
    for at in 0..entries.len() {
        if matches!(entries[at], Entry::Zeros(_)) {
            entries = moved(entries, at, before_last_flush);
        }
    }
    entries
}

/// What is on a device after these.
fn content_at(base: &Image, entries: &[Entry]) -> Image {
    let mut now = base.clone();
    for entry in entries {
        match entry {
            Entry::Write { offset, data } => now.write_at(*offset, data),
            Entry::Zeros(extent) => crate::medium::zero(&mut now, *extent),
            Entry::Flush | Entry::Mark(_) => {}
        }
    }
    now
}
