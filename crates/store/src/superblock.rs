//! The superblock: who the store is, where everything lies, and where its records begin.
//!
//! There are two, written in turn: the one of an odd epoch never touches that of an even epoch. The
//! newer intact one counts. Nothing that the older one needs (its pages of records, the log from
//! its head on) is used again before the *next* superblock is durable, so that a superblock that
//! goes bad is one from which the other recovers everything: see [`crate::log`] and
//! [`crate::pages`].
//!
//! So two intact ones are one epoch apart, whatever happens: each is durable before the next is
//! written ([`crate::core`] has what an opening does about a flush that failed), a torn one is not
//! intact, and what was torn or could not be written is written again with the same epoch, or with
//! a repair both. One that is older than that was not written by the store: a device has forgotten
//! a write, or somebody put an old copy there. It restores nothing any more, and a check says so.
//!
//! Drawn in `docs/formats/store.md`. The first 16 bytes and the rule of the checksum stay as they
//! are in every version, so that an older release can tell a newer store from a damaged one.

use crate::bits::put_one_bit_right;
use crate::layout::{Layout, PAGE_BYTES};
use crate::pages::Pointer;
use crate::tree::HEIGHT_MAX;
use crate::{Damage, StoreError};
use base::{StoreId, Time};
use serde::{Deserialize, Serialize};

const PAGE: usize = PAGE_BYTES as usize;
const MAGIC: [u8; 8] = *b"AZKSTORE";
/// The version of everything on the device. Since 2, objects that were cut have a generation; a
/// store of version 1 has none, and is of version 2 once it has been opened for writing.
pub const STORE_FORMAT_VERSION: u16 = 2;
/// The oldest version that is read.
const OLDEST_VERSION: u16 = 1;
/// The largest number that a store comes to: one that grows in a lifetime of any device reaches a
/// small part of it. What says more was not written by a store, and nothing is counted from there.
pub(crate) const NUMBER_MAX: u64 = u64::MAX >> 1;
/// The same of openings.
const OPENING_MAX: u32 = u32::MAX >> 1;
/// Longest capability table, as bytes: what is left of a page, rounded down.
pub(crate) const CAPABILITY_BYTES_MAX: usize = 3072;
const HEADER_BYTES: usize = 16;
pub(crate) const CRC_AT: std::ops::Range<usize> = 12..16;

/// What one superblock says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superblock {
    /// The store's identity, chosen at format.
    pub store: StoreId,
    /// One more with every superblock; its lowest bit says which of the two places it has.
    pub epoch: u64,
    /// One more with every opening for writing.
    pub opening: u32,
    /// Where everything lies.
    pub layout: Layout,
    /// The records' root.
    pub root: Option<Pointer>,
    /// Levels of inner pages above the records' leaves.
    pub height: u8,
    /// The map of pages; none before the first checkpoint.
    pub page_map: Option<Pointer>,
    /// Where in the log the first entry is that the records do not contain.
    pub log_head: LogHead,
    /// What is never given out twice.
    pub counters: Counters,
    /// How long objects live that nobody has reserved space for.
    pub lifetimes: Lifetimes,
    /// What the device can do, as its calibration wrote it; opaque here.
    pub capability: Vec<u8>,
}

/// How long objects live that nobody has reserved space for; the administrator's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetimes {
    /// If nothing else is said, in seconds; none: without an end.
    pub default_seconds: Option<u64>,
    /// The longest that can be asked for, in seconds; none: any.
    pub longest_seconds: Option<u64>,
    /// How often the lifetime of an object can be renewed; none: as often as one likes.
    pub renewals_max: Option<u32>,
}

/// A place in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogHead {
    /// Bytes from the log's first byte on as if it were not circular; it never goes back.
    pub position: u64,
    /// The number of the entry there, or of the one that will be.
    pub sequence: u64,
}

impl LogHead {
    /// Whether an entry can begin there.
    fn is_possible(&self) -> bool {
        self.position.is_multiple_of(PAGE_BYTES)
            && self.position <= NUMBER_MAX
            && self.sequence <= NUMBER_MAX
    }
}

/// Numbers that only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// The number of the next object or reservation.
    pub number: u64,
    /// The generation of the next AU that is drawn.
    pub generation: u64,
    /// The latest time that the store has heard of. It never goes back, not over a restart either.
    pub now: Time,
}

impl Counters {
    /// Whether a store counts so far. Half of the numbers are names of pools.
    pub(crate) fn are_possible(&self) -> bool {
        self.number <= NUMBER_MAX && self.generation <= NUMBER_MAX
    }
}

/// The number of the opening after one: after two if one may have been lost.
///
/// # Errors
/// [`StoreError::Damaged`] if no store was opened so often.
pub(crate) fn opening_after(opening: u32, is_one_lost: bool) -> Result<u32, StoreError> {
    let next = opening.checked_add(1 + u32::from(is_one_lost));
    let next = next.filter(|next| *next <= OPENING_MAX);
    next.ok_or(Damage::Superblocks.into())
}

impl Superblock {
    /// The page as it goes to the device.
    ///
    /// # Panics
    /// If the capability table is longer than [`CAPABILITY_BYTES_MAX`]; it is checked at format.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let body =
            postcard::to_stdvec(self).expect("a superblock has no type that cannot be encoded");
        assert!(
            HEADER_BYTES + body.len() <= PAGE,
            "the capability table was bounded at format"
        );
        let mut page = vec![0; PAGE];
        page[..8].copy_from_slice(&MAGIC);
        page[8..10].copy_from_slice(&STORE_FORMAT_VERSION.to_le_bytes());
        page[HEADER_BYTES..][..body.len()].copy_from_slice(&body);
        let crc = crc32c::crc32c(&page);
        page[CRC_AT].copy_from_slice(&crc.to_le_bytes());
        page
    }

    /// Reads a page back.
    ///
    /// # Errors
    /// [`StoreError::NotAStore`] without the magic, [`StoreError::Damaged`],
    /// [`StoreError::Newer`].
    pub fn decode(page: &[u8]) -> Result<Self, StoreError> {
        if page.len() != PAGE || page[..8] != MAGIC {
            return Err(StoreError::NotAStore);
        }
        let crc = u32::from_le_bytes(page[CRC_AT].try_into().expect("four bytes"));
        let mut bare = page.to_vec();
        bare[CRC_AT].fill(0);
        if crc32c::crc32c(&bare) != crc {
            return Err(Damage::Superblocks.into());
        }
        let found = u16::from_le_bytes([page[8], page[9]]);
        match found {
            OLDEST_VERSION..=STORE_FORMAT_VERSION => {}
            0 => return Err(Damage::Superblocks.into()),
            _ => {
                return Err(StoreError::Newer {
                    found,
                    known: STORE_FORMAT_VERSION,
                });
            }
        }
        let superblock: Self =
            postcard::from_bytes(&page[HEADER_BYTES..]).map_err(|_| Damage::Superblocks)?;
        match superblock.is_possible() {
            true => Ok(superblock),
            false => Err(Damage::Superblocks.into()),
        }
    }

    /// Reads what lies in one of the two places, by its number.
    ///
    /// # Errors
    /// As [`Self::decode`]; one that belongs to the other place is damage.
    pub(crate) fn decode_at(place: usize, page: &[u8]) -> Result<Self, StoreError> {
        let superblock = Self::decode(page)?;
        match superblock.epoch % 2 == place as u64 {
            true => Ok(superblock),
            false => Err(Damage::Superblocks.into()),
        }
    }

    /// The version of the format that an intact page says.
    pub(crate) fn version_of(page: &[u8]) -> u16 {
        u16::from_le_bytes([page[8], page[9]])
    }

    /// Whether its figures are those of a store: nothing is counted from others, and no memory
    /// taken for them.
    fn is_possible(&self) -> bool {
        let Self { layout, .. } = self;
        let is_page = |pointer: &Pointer| {
            let pages = layout.record_offset() / PAGE_BYTES..layout.device_bytes / PAGE_BYTES;
            pages.contains(&pointer.page)
        };
        layout.check().is_ok()
            && self.epoch <= NUMBER_MAX
            && self.opening <= OPENING_MAX
            && self.height <= HEIGHT_MAX
            && (self.height == 0 || self.root.is_some())
            && self.root.iter().chain(&self.page_map).all(is_page)
            && self.log_head.is_possible()
            && self.counters.are_possible()
            && self.capability.len() <= CAPABILITY_BYTES_MAX
    }

    /// The page as it was before one bit of it flipped; none if that is not what happened.
    pub(crate) fn put_one_bit_right(page: &[u8]) -> Option<Vec<u8>> {
        let crc = u32::from_le_bytes(page.get(CRC_AT)?.try_into().ok()?);
        let mut bare = page.to_vec();
        bare[CRC_AT].fill(0);
        let right = crc32c::crc32c(&bare);
        let is_checksum = (crc ^ right).count_ones() == 1;
        if !is_checksum && !put_one_bit_right(&mut bare, crc) {
            return None;
        }
        let crc = if is_checksum { right } else { crc };
        bare[CRC_AT].copy_from_slice(&crc.to_le_bytes());
        Self::decode(&bare).is_ok().then_some(bare)
    }

    /// Whether the store has written others since: it is not the one before the newest.
    pub(crate) fn is_stale(&self, newest_epoch: u64) -> bool {
        self.epoch < newest_epoch.saturating_sub(1)
    }

    /// The one that counts of what lies in the two places.
    ///
    /// # Errors
    /// That of the first place if neither is intact, unless only the second one says that it is a
    /// store at all. [`StoreError::Newer`] goes before everything: an older release must not go
    /// back to a superblock that a newer one has replaced. [`StoreError::Damaged`] if they are of
    /// two stores: the device was put together from two, and whichever were chosen, what the other
    /// one needs would be written over.
    pub fn choose(
        a: Result<Self, StoreError>,
        b: Result<Self, StoreError>,
    ) -> Result<Self, StoreError> {
        match (a, b) {
            (Err(newer @ StoreError::Newer { .. }), _)
            | (_, Err(newer @ StoreError::Newer { .. })) => Err(newer),
            (Ok(a), Ok(b)) if a.store != b.store => Err(Damage::TwoStores.into()),
            (Ok(a), Ok(b)) if b.epoch > a.epoch => Ok(b),
            (Ok(a), _) => Ok(a),
            (Err(_), Ok(b)) => Ok(b),
            (Err(StoreError::NotAStore), Err(b)) => Err(b),
            (Err(a), Err(_)) => Err(a),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Sizes;
    use proptest::prelude::*;

    fn sample(epoch: u64) -> Superblock {
        let sizes = Sizes {
            au_bytes: 1 << 20,
            log_bytes: 1 << 20,
            record_bytes: 1 << 20,
        };
        Superblock {
            store: StoreId([7; 16]),
            epoch,
            opening: 3,
            layout: Layout::new(64 << 20, sizes).unwrap(),
            root: Some(Pointer {
                page: 300,
                crc: 0x0102_0304,
            }),
            height: 1,
            page_map: Some(Pointer { page: 301, crc: 5 }),
            log_head: LogHead {
                position: 8192,
                sequence: 9,
            },
            counters: Counters {
                number: 4,
                generation: 5,
                now: Time::from_secs(6),
            },
            lifetimes: Lifetimes {
                default_seconds: Some(7),
                longest_seconds: None,
                renewals_max: Some(2),
            },
            capability: vec![1, 2, 3],
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let page = sample(2).encode();
        assert_eq!(&page[..10], b"AZKSTORE\x02\x00");
        assert_eq!(
            crc32c::crc32c(&page),
            0x68DC_8759,
            "changed bytes need a new version"
        );
        assert_eq!(Superblock::decode(&page).unwrap(), sample(2));
    }

    #[test]
    fn a_store_of_version_1_is_read() {
        let page = of_version(1);
        assert_eq!(crc32c::crc32c(&page), 0xD12C_A1BD);
        assert_eq!(Superblock::decode(&page).unwrap(), sample(2));
    }

    /// A superblock that says so.
    fn of_version(version: u8) -> Vec<u8> {
        let mut page = sample(2).encode();
        page[8] = version;
        page[CRC_AT].fill(0);
        let crc = crc32c::crc32c(&page);
        page[CRC_AT].copy_from_slice(&crc.to_le_bytes());
        page
    }

    #[test]
    fn the_newer_intact_one_counts() {
        let good = |epoch| Ok(sample(epoch));
        let damaged = || Err(Damage::Superblocks.into());
        assert_eq!(Superblock::choose(good(2), good(3)).unwrap().epoch, 3);
        assert_eq!(Superblock::choose(good(4), good(3)).unwrap().epoch, 4);
        assert_eq!(Superblock::choose(damaged(), good(3)).unwrap().epoch, 3);
        assert_eq!(Superblock::choose(good(2), damaged()).unwrap().epoch, 2);
        let none = Superblock::choose(Err(StoreError::NotAStore), damaged());
        assert!(matches!(none, Err(StoreError::Damaged(_))));
        let none = Superblock::choose(Err(StoreError::NotAStore), Err(StoreError::NotAStore));
        assert!(matches!(none, Err(StoreError::NotAStore)));
        let newer = Err(StoreError::Newer { found: 3, known: 2 });
        assert!(matches!(
            Superblock::choose(good(2), newer),
            Err(StoreError::Newer { .. })
        ));
    }

    #[test]
    fn what_is_older_than_the_one_before_is_stale() {
        for (epoch, is_stale) in [(1, true), (3, true), (4, false), (5, false), (6, false)] {
            assert_eq!(sample(epoch).is_stale(5), is_stale, "{epoch}");
        }
        assert!(!sample(0).is_stale(0));
    }

    #[test]
    fn a_head_where_no_entry_can_begin_is_damage() {
        for (position, sequence) in [(8193, 9), (u64::MAX - 4095, 9), (8192, u64::MAX)] {
            let log_head = LogHead { position, sequence };
            let page = Superblock {
                log_head,
                ..sample(2)
            }
            .encode();
            let decoded = Superblock::decode(&page);
            assert!(
                matches!(decoded, Err(StoreError::Damaged(_))),
                "{log_head:?}"
            );
        }
    }

    #[test]
    fn figures_that_no_store_has_are_damage() {
        type Change = fn(&mut Superblock);
        let changes: [Change; 17] = [
            |s| s.epoch = u64::MAX,
            |s| s.opening = u32::MAX,
            |s| s.height = 41,
            |s| s.root = None,
            |s| s.root.as_mut().unwrap().page = u64::MAX,
            |s| s.root.as_mut().unwrap().page = (64 << 20) / PAGE_BYTES,
            |s| s.page_map.as_mut().unwrap().page = 31,
            |s| s.counters.number = 1 << 63,
            |s| s.counters.generation = u64::MAX,
            |s| s.layout.au_bytes = 0,
            |s| s.layout.au_count = 0,
            |s| s.layout.au_count = u32::MAX,
            |s| s.layout.log_bytes = u64::MAX,
            |s| s.layout.grid_offset = u64::MAX,
            |s| s.layout.grid_offset = 0,
            |s| {
                s.layout.device_bytes = u64::MAX;
                s.layout.grid_offset = 1 << 62;
            },
            |s| s.layout.device_bytes = 1 << 49,
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut superblock = sample(2);
            change(&mut superblock);
            let decoded = Superblock::decode(&superblock.encode());
            assert!(
                matches!(decoded, Err(StoreError::Damaged(Damage::Superblocks))),
                "{number}: {decoded:?}"
            );
        }
        let most = Superblock {
            epoch: NUMBER_MAX,
            opening: OPENING_MAX,
            ..sample(2)
        };
        assert!(Superblock::decode(&most.encode()).is_ok());
        assert!(opening_after(OPENING_MAX - 1, false).is_ok());
        assert!(opening_after(OPENING_MAX - 1, true).is_err());
        assert!(opening_after(u32::MAX, true).is_err());
    }

    #[test]
    fn each_has_its_place_and_two_stores_are_none() {
        let page = sample(2).encode();
        assert!(Superblock::decode_at(0, &page).is_ok());
        let elsewhere = Superblock::decode_at(1, &page);
        assert!(matches!(elsewhere, Err(StoreError::Damaged(_))));
        let other = |epoch| {
            Ok(Superblock {
                store: StoreId([8; 16]),
                ..sample(epoch)
            })
        };
        for epoch in [1, 3] {
            let chosen = Superblock::choose(Ok(sample(2)), other(epoch));
            let is_refused = matches!(chosen, Err(StoreError::Damaged(Damage::TwoStores)));
            assert!(is_refused, "{chosen:?}");
        }
    }

    #[test]
    fn a_newer_version_is_told_from_damage() {
        let mut page = sample(2).encode();
        page[8] = 3;
        assert!(matches!(
            Superblock::decode(&page),
            Err(StoreError::Damaged(_))
        ));
        let error = Superblock::decode(&of_version(3));
        assert!(matches!(
            error,
            Err(StoreError::Newer { found: 3, known: 2 })
        ));
    }

    proptest! {
        #[test]
        fn every_flipped_bit_is_noticed_and_can_be_put_right(bit in 0..PAGE * 8) {
            let mut page = sample(2).encode();
            page[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Superblock::decode(&page).is_err());
            let mended = Superblock::put_one_bit_right(&page);
            prop_assert_eq!(mended, Some(sample(2).encode()));
        }

        #[test]
        fn no_bytes_make_it_panic(mut page in prop::collection::vec(any::<u8>(), PAGE)) {
            page[..10].copy_from_slice(b"AZKSTORE\x02\x00");
            page[CRC_AT].fill(0);
            let crc = crc32c::crc32c(&page);
            page[CRC_AT].copy_from_slice(&crc.to_le_bytes());
            let _ = Superblock::decode(&page);
        }
    }
}
