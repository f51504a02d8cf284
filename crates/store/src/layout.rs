//! Where everything lies on the device. Pure arithmetic, done once at format and kept in the
//! superblock.
//!
//! ```text
//! 0         superblock A      4 KiB, the rest of its 64 KiB is unused
//! 64 KiB    superblock B      the same; one bad run of sectors does not take both
//! 128 KiB   log               circular
//!           record pages      the paper's odd area: ends where the grid begins
//! grid      AU 0, AU 1, ...   at multiples of the AU's size from the start of the device
//! ```

use crate::StoreError;
use serde::{Deserialize, Serialize};

/// A page of records, and the unit in which the log grows.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// The unit of small overwrites and of packed objects: what a fine checksum covers.
pub(crate) const PIECE_BYTES: u64 = 4096;
/// What a coarse checksum covers.
pub(crate) const GROUP_BYTES: u64 = 64 << 10;
/// What one record of checksums covers.
pub(crate) const SPAN_BYTES: u64 = 256 << 10;
/// Where the two superblocks are.
pub(crate) const SUPERBLOCK_OFFSETS: [u64; 2] = [0, 64 << 10];
/// Where the log begins.
pub(crate) const LOG_OFFSET: u64 = 128 << 10;
/// Smallest allocation unit: one group.
pub(crate) const AU_BYTES_MIN: u64 = GROUP_BYTES;
/// Largest allocation unit: a disk's best unit is 4-8 MiB (paper, 4.2); beyond this only latency
/// grows.
pub(crate) const AU_BYTES_MAX: u64 = 64 << 20;
/// Smallest log: its longest entry, a sixteenth, still holds several pieces.
pub(crate) const LOG_BYTES_MIN: u64 = 512 << 10;
/// Largest log. A third of it is what is replayed after a crash, and what waits in memory.
pub(crate) const LOG_BYTES_MAX: u64 = 1 << 30;
/// Longest device: as many of the smallest allocation units as are counted, whose map in memory has
/// 512 MiB.
pub(crate) const DEVICE_BYTES_MAX: u64 = 1 << 48;
/// Largest odd area: what suits a device of three times that length. Its map in memory has 32 MiB.
pub(crate) const RECORD_BYTES_MAX: u64 = 1 << 40;
/// Fewest pages of records that the odd area has: enough for a first checkpoint.
pub(crate) const RECORD_BYTES_MIN: u64 = 64 * PAGE_BYTES;

const TOO_LONG: &str = "a store has at most 256 TiB; make several, on parts of the device";

/// The sizes that are chosen when a store is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Size of an allocation unit; a power of two.
    pub au_bytes: u64,
    /// Size of the log; a multiple of a page.
    pub log_bytes: u64,
    /// Room for records before any AU is taken for them; what is left over before the grid's first
    /// AU comes on top.
    pub record_bytes: u64,
}

impl Sizes {
    /// Sizes that suit a device of `device_bytes`: a log of 1/32 of it, at most 192 MiB (a third is
    /// replayed in well below a second), of 1/64 where there is less than 1 GiB; 1/800 for records,
    /// an eighth of a percent, which is more than appended data needs (`docs/performance.md`).
    /// Where there are more records, as of many small objects, they take allocation units.
    #[must_use]
    pub fn for_device(device_bytes: u64, au_bytes: u64) -> Self {
        let pages = |bytes: u64| bytes / PAGE_BYTES * PAGE_BYTES;
        let parts = if device_bytes < 1 << 30 { 64 } else { 32 };
        Self {
            au_bytes,
            log_bytes: pages((device_bytes / parts).clamp(LOG_BYTES_MIN, 192 << 20)),
            record_bytes: pages((device_bytes / 800).max(RECORD_BYTES_MIN)),
        }
    }
}

/// Where everything lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Length of the device that the store uses.
    pub device_bytes: u64,
    /// Size of an allocation unit.
    pub au_bytes: u64,
    /// Size of the log.
    pub log_bytes: u64,
    /// Where AU 0 is; a multiple of [`Self::au_bytes`].
    pub grid_offset: u64,
    /// How many AUs there are.
    pub au_count: u32,
}

impl Layout {
    /// The layout of a device of `device_bytes`.
    ///
    /// # Errors
    /// [`StoreError::Sizes`] if they do not fit it, or each other.
    pub fn new(device_bytes: u64, sizes: Sizes) -> Result<Self, StoreError> {
        let Sizes {
            au_bytes,
            log_bytes,
            record_bytes,
        } = sizes;
        if device_bytes > DEVICE_BYTES_MAX {
            return Err(StoreError::Sizes(TOO_LONG));
        }
        if record_bytes < RECORD_BYTES_MIN {
            return Err(StoreError::Sizes("too little room for records"));
        }
        let records_end = (LOG_OFFSET + log_bytes).saturating_add(record_bytes);
        let grid_offset = records_end
            .checked_next_multiple_of(au_bytes.max(1))
            .ok_or(StoreError::Sizes("the records are larger than any device"))?;
        let au_count = device_bytes.saturating_sub(grid_offset) / au_bytes.max(1);
        let layout = Self {
            device_bytes,
            au_bytes,
            log_bytes,
            grid_offset,
            au_count: u32::try_from(au_count)
                .map_err(|_| StoreError::Sizes("more than 4,294,967,295 allocation units"))?,
        };
        layout.check()?;
        Ok(layout)
    }

    /// The layout when the device has become `device_bytes` long: all is where it was, and there
    /// are more AUs.
    ///
    /// # Errors
    /// [`StoreError::Sizes`] if they are too many.
    pub fn grown_to(&self, device_bytes: u64) -> Result<Self, StoreError> {
        let device_bytes = device_bytes.max(self.device_bytes);
        if device_bytes > DEVICE_BYTES_MAX {
            return Err(StoreError::Sizes(TOO_LONG));
        }
        let au_count = (device_bytes - self.grid_offset) / self.au_bytes;
        let grown = Self {
            device_bytes,
            au_count: u32::try_from(au_count)
                .map_err(|_| StoreError::Sizes("more than 4,294,967,295 allocation units"))?,
            ..*self
        };
        grown.check()?;
        Ok(grown)
    }

    /// Whether the figures make sense together, wherever they come from.
    ///
    /// # Errors
    /// [`StoreError::Sizes`] says what does not.
    pub fn check(&self) -> Result<(), StoreError> {
        let fail = |why| Err(StoreError::Sizes(why));
        if self.device_bytes > DEVICE_BYTES_MAX {
            return fail(TOO_LONG);
        }
        if !self.au_bytes.is_power_of_two()
            || !(AU_BYTES_MIN..=AU_BYTES_MAX).contains(&self.au_bytes)
        {
            return fail("an allocation unit is a power of two from 64 KiB to 64 MiB");
        }
        if !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&self.log_bytes)
            || !self.log_bytes.is_multiple_of(PAGE_BYTES)
        {
            return fail("a log has 512 KiB to 1 GiB in whole pages");
        }
        if !self.grid_offset.is_multiple_of(self.au_bytes)
            || self.grid_offset < self.record_offset() + RECORD_BYTES_MIN
        {
            return fail("the grid begins after the records, at a multiple of the allocation unit");
        }
        if self.grid_offset - self.record_offset() > RECORD_BYTES_MAX + AU_BYTES_MAX {
            return fail("the records have more than 1 TiB before anything is stored");
        }
        let grid_bytes = u64::from(self.au_count) * self.au_bytes;
        if self.au_count == 0
            || self
                .grid_offset
                .checked_add(grid_bytes)
                .is_none_or(|end| end > self.device_bytes)
        {
            return fail("the device is too small");
        }
        Ok(())
    }

    /// Where the pages of records begin.
    #[must_use]
    pub fn record_offset(&self) -> u64 {
        LOG_OFFSET + self.log_bytes
    }

    /// How many pages of records there are before the grid.
    #[must_use]
    pub fn record_pages(&self) -> u64 {
        (self.grid_offset - self.record_offset()) / PAGE_BYTES
    }

    /// Where allocation unit `au` begins.
    #[must_use]
    pub fn au_offset(&self, au: u32) -> u64 {
        self.grid_offset + u64::from(au) * self.au_bytes
    }

    /// The longest object: its allocation units are counted in 32 bits.
    #[must_use]
    pub fn object_bytes_max(&self) -> u64 {
        self.au_bytes.saturating_mul(u64::from(u32::MAX))
    }

    /// Pages of records in an AU that was taken for them.
    #[must_use]
    pub fn au_pages(&self) -> u64 {
        self.au_bytes / PAGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_odd_area_ends_where_the_grid_begins() {
        let sizes = Sizes {
            au_bytes: MIB,
            log_bytes: MIB,
            record_bytes: MIB,
        };
        let layout = Layout::new(16 * MIB, sizes).unwrap();
        assert_eq!(layout.grid_offset, 3 * MIB);
        assert_eq!(layout.au_count, 13);
        assert_eq!(layout.record_pages(), (2 * MIB - LOG_OFFSET) / PAGE_BYTES);
        assert_eq!(layout.au_offset(12) + MIB, 16 * MIB);
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        let good = Sizes {
            au_bytes: MIB,
            log_bytes: MIB,
            record_bytes: MIB,
        };
        let bad = |sizes, bytes| Layout::new(bytes, sizes).unwrap_err().to_string();
        assert!(bad(good, 3 * MIB).contains("too small"));
        assert!(
            bad(
                Sizes {
                    au_bytes: 3 << 16,
                    ..good
                },
                16 * MIB
            )
            .contains("power of two")
        );
        assert!(
            bad(
                Sizes {
                    au_bytes: 0,
                    ..good
                },
                16 * MIB
            )
            .contains("power of two")
        );
        assert!(
            bad(
                Sizes {
                    log_bytes: 5000,
                    ..good
                },
                16 * MIB
            )
            .contains("log")
        );
        assert!(
            bad(
                Sizes {
                    record_bytes: 0,
                    ..good
                },
                16 * MIB
            )
            .contains("records")
        );
        let far = Sizes {
            record_bytes: u64::MAX - 5,
            ..good
        };
        assert!(bad(far, 16 * MIB).contains("larger"));
    }

    #[test]
    fn the_longest_device_is_known_and_what_is_longer_refused() {
        for unit in [AU_BYTES_MIN, MIB, AU_BYTES_MAX] {
            let sizes = |bytes| Sizes::for_device(bytes, unit);
            let most = Layout::new(DEVICE_BYTES_MAX, sizes(DEVICE_BYTES_MAX)).unwrap();
            for bytes in [DEVICE_BYTES_MAX + PAGE_BYTES, u64::MAX - 4095] {
                let more = Layout::new(bytes, sizes(bytes)).unwrap_err();
                assert!(more.to_string().contains("at most 256 TiB"), "{more}");
                let more = most.grown_to(bytes).unwrap_err();
                assert!(more.to_string().contains("at most 256 TiB"), "{more}");
            }
        }
        let sizes = Sizes {
            record_bytes: RECORD_BYTES_MAX + AU_BYTES_MAX,
            ..Sizes::for_device(1 << 44, MIB)
        };
        assert!(Layout::new(1 << 44, sizes).is_err());
    }

    #[test]
    fn every_device_from_eight_megabytes_on_has_default_sizes() {
        for bytes in [8 * MIB, 64 * MIB, 1 << 40, 1 << 46] {
            let layout = Layout::new(bytes, Sizes::for_device(bytes, MIB.min(bytes / 16))).unwrap();
            assert!(u64::from(layout.au_count) * layout.au_bytes > bytes / 10 * 7);
        }
    }
}
