//! What was done to a disk, and what of it is certain.
//!
//! The unit of certainty is the sector. A change of a sector holds the whole sector as it was to be
//! after the change, also where less was written: a device that tears at sectors leaves one or the
//! other, never a mixture of half-sectors.

use super::image::Image;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Power is lost between sectors, not within them.
pub(super) const SECTOR_BYTES: usize = 512;
/// What a trimmed sector reads as: neither what was there nor the zeros that a careless reader
/// would take for an empty record.
pub(super) const TRIMMED: [u8; SECTOR_BYTES] = [0xa5; SECTOR_BYTES];

/// Consecutive sectors with what they were to be.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) first_sector: u64,
    pub(super) sector_count: u64,
    /// `None`: they were trimmed.
    pub(super) bytes: Option<Arc<[u8]>>,
}

/// One operation that matters for what survives.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    /// A write or a trim.
    Change(Change),
    Flush(Flushed),
    /// A bit of the medium turned around.
    Flip {
        offset: u64,
        bit: u8,
    },
}

/// What came of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    Durable,
    /// It said so; what was written before it is in doubt for ever.
    Failed,
    /// It said it was done and did nothing.
    Lied,
}

/// What one sector may be, beside what is certain.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// The operation that wrote it, counted from the disk's first.
    pub(super) position: u64,
    content: Option<(Arc<[u8]>, usize)>,
    /// A flush after it has failed: no later flush makes it certain.
    in_doubt: bool,
}

impl Version {
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.content {
            Some((bytes, start)) => &bytes[*start..][..SECTOR_BYTES],
            None => &TRIMMED,
        }
    }

    fn flip_bit(&mut self, at: usize, bit: u8) {
        let mut bytes = self.bytes().to_vec();
        bytes[at] ^= 1 << bit;
        self.content = Some((bytes.into(), 0));
    }
}

/// What is certain, and what may be there besides: sectors with their versions, oldest first.
#[derive(Clone, Debug)]
pub(super) struct Certainty {
    pub(super) image: Image,
    pub(super) pending: BTreeMap<u64, Vec<Version>>,
}

impl Certainty {
    pub(super) fn new(image: Image) -> Self {
        Self {
            image,
            pending: BTreeMap::new(),
        }
    }

    /// Follows one operation.
    pub(super) fn follow(&mut self, position: u64, operation: &Operation) {
        match operation {
            Operation::Change(change) => self.add(position, change),
            Operation::Flush(Flushed::Durable) => self.settle(),
            Operation::Flush(Flushed::Failed) => {
                let versions = self.pending.values_mut().flatten();
                versions.for_each(|version| version.in_doubt = true);
            }
            Operation::Flush(Flushed::Lied) => {}
            Operation::Flip { offset, bit } => {
                self.image.flip_bit(*offset, *bit);
                let (sector, at) = (
                    offset / SECTOR_BYTES as u64,
                    *offset as usize % SECTOR_BYTES,
                );
                for version in self.pending.get_mut(&sector).into_iter().flatten() {
                    version.flip_bit(at, *bit);
                }
            }
        }
    }

    fn add(&mut self, position: u64, change: &Change) {
        for number in 0..change.sector_count {
            let start = number as usize * SECTOR_BYTES;
            let version = Version {
                position,
                content: change
                    .bytes
                    .as_ref()
                    .map(|bytes| (Arc::clone(bytes), start)),
                in_doubt: false,
            };
            let versions = self.pending.entry(change.first_sector + number);
            versions.or_default().push(version);
        }
    }

    /// A sector whose newest version is not in doubt is that from now on. One that was last written
    /// before a failed flush stays as uncertain as it was.
    fn settle(&mut self) {
        let image = &mut self.image;
        self.pending.retain(|sector, versions| {
            let newest = versions.last().expect("a sector in the map has a version");
            if !newest.in_doubt {
                image.write_at(sector * SECTOR_BYTES as u64, newest.bytes());
            }
            newest.in_doubt
        });
    }
}
