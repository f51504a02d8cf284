//! The bytes of a capability table, as they lie in a superblock.
//!
//! A superblock has one page, so the table is compact: rates are in KiB a second, rounded down
//! (who promises must not round up), and fields have fixed places. Drawn in `docs/formats/store.md`
//! with the superblock. A version that is not known is no damage: the store works without a table,
//! and a new calibration writes one.

use super::{Capability, Direction, MeasuredRate};

/// Of the bytes; not of the store, which does not look into them.
const VERSION: u16 = 1;
const HEADER_BYTES: usize = 20;
const RATE_BYTES: usize = 18;
/// Of the rates: 4 TiB a second can be said.
const RATE_UNIT_BYTES: u64 = 1024;

/// Why bytes are no capability table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Nothing was measured when the store was made.
    #[error("the device was not measured")]
    Absent,
    /// Another release wrote it.
    #[error("the capability table has version {0}, which this release does not know")]
    Version(u16),
    /// The length or a field is not what its writer can have meant.
    #[error("the capability table is malformed")]
    Malformed,
}

impl Capability {
    /// The table as bytes. Rates lose what is less than a KiB a second.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.rates.len() * RATE_BYTES);
        let count = u16::try_from(self.rates.len()).expect("a calibration has some hundred cells");
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend(self.allocation_unit_bytes.to_le_bytes());
        bytes.extend(self.sample_millis.to_le_bytes());
        bytes.extend(self.region_bytes.to_le_bytes());
        for rate in &self.rates {
            bytes.push(match rate.direction {
                Direction::Read => 0,
                Direction::Write => 1,
            });
            bytes.push(u8::try_from(rate.write_percent).expect("a share is at most 100 percent"));
            let depth = u16::try_from(rate.depth).expect("no device is given so many requests");
            bytes.extend(depth.to_le_bytes());
            bytes.extend(rate.size_bytes.to_le_bytes());
            for rate in [rate.low_bytes_per_second, rate.median_bytes_per_second] {
                let units = u32::try_from(rate / RATE_UNIT_BYTES).unwrap_or(u32::MAX);
                bytes.extend(units.to_le_bytes());
            }
            let samples = u16::try_from(rate.sample_count).unwrap_or(u16::MAX);
            bytes.extend(samples.to_le_bytes());
        }
        bytes
    }

    /// Reads a table back.
    ///
    /// # Errors
    /// [`TableError`] says why there is none.
    pub fn decode(bytes: &[u8]) -> Result<Self, TableError> {
        if bytes.is_empty() {
            return Err(TableError::Absent);
        }
        let mut fields = Fields(bytes);
        let version = u16::from_le_bytes(fields.take()?);
        if version != VERSION {
            return Err(TableError::Version(version));
        }
        let count = u16::from_le_bytes(fields.take()?);
        if bytes.len() != HEADER_BYTES + usize::from(count) * RATE_BYTES {
            return Err(TableError::Malformed);
        }
        Ok(Self {
            allocation_unit_bytes: u32::from_le_bytes(fields.take()?),
            sample_millis: u32::from_le_bytes(fields.take()?),
            region_bytes: u64::from_le_bytes(fields.take()?),
            rates: (0..count)
                .map(|_| decode_rate(&mut fields))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn decode_rate(fields: &mut Fields<'_>) -> Result<MeasuredRate, TableError> {
    let direction = match fields.take::<1>()? {
        [0] => Direction::Read,
        [1] => Direction::Write,
        _ => return Err(TableError::Malformed),
    };
    let [write_percent] = fields.take()?;
    let depth = u16::from_le_bytes(fields.take()?);
    let size_bytes = u32::from_le_bytes(fields.take()?);
    let mut rate = || Ok(u64::from(u32::from_le_bytes(fields.take()?)) * RATE_UNIT_BYTES);
    let (low_bytes_per_second, median_bytes_per_second) = (rate()?, rate()?);
    let sample_count = u16::from_le_bytes(fields.take()?);
    if write_percent > 100 || depth == 0 || size_bytes == 0 {
        return Err(TableError::Malformed);
    }
    Ok(MeasuredRate {
        direction,
        size_bytes,
        depth: u32::from(depth),
        write_percent: u32::from(write_percent),
        low_bytes_per_second,
        median_bytes_per_second,
        sample_count: u32::from(sample_count),
    })
}

/// What is left to read.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], TableError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(TableError::Malformed)?;
        self.0 = rest;
        Ok(*field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::CAPABILITY_BYTES_MAX;
    use proptest::prelude::*;

    fn sample() -> Capability {
        let rate = |direction, write_percent| MeasuredRate {
            direction,
            size_bytes: 256 << 10,
            depth: 4,
            write_percent,
            low_bytes_per_second: 3 << 30,
            median_bytes_per_second: 0x0102_0304 << 10,
            sample_count: 20,
        };
        Capability {
            allocation_unit_bytes: 256 << 10,
            sample_millis: 60,
            region_bytes: 2 << 30,
            rates: vec![rate(Direction::Read, 0), rate(Direction::Write, 100)],
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let golden: [u8; HEADER_BYTES + 2 * RATE_BYTES] = [
            1, 0, 2, 0, 0, 0, 4, 0, 60, 0, 0, 0, 0, 0, 0, 128, 0, 0, 0, 0, // header
            0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 48, 0, 4, 3, 2, 1, 20, 0, // reads
            1, 100, 4, 0, 0, 0, 4, 0, 0, 0, 48, 0, 4, 3, 2, 1, 20, 0, // writes
        ];
        assert_eq!(sample().encode(), golden);
        assert_eq!(Capability::decode(&golden), Ok(sample()));
    }

    #[test]
    fn the_largest_table_fits_a_superblock() {
        let cells = super::super::calibrate::cells_max();
        assert_eq!(cells, 136);
        let largest = Capability {
            rates: vec![
                MeasuredRate {
                    low_bytes_per_second: u64::MAX,
                    sample_count: u32::MAX,
                    ..sample().rates[0]
                };
                cells
            ],
            ..sample()
        };
        let bytes = largest.encode();
        assert!(bytes.len() <= CAPABILITY_BYTES_MAX, "{}", bytes.len());
        let back = Capability::decode(&bytes).unwrap();
        assert_eq!(back.rates.len(), cells);
        assert_eq!(
            back.rates[0].low_bytes_per_second,
            u64::from(u32::MAX) << 10
        );
    }

    #[test]
    fn rates_are_rounded_down() {
        let mut table = sample();
        table.rates[0].low_bytes_per_second = 2047;
        let back = Capability::decode(&table.encode()).unwrap();
        assert_eq!(back.rates[0].low_bytes_per_second, 1024);
    }

    #[test]
    fn what_is_no_table_is_named() {
        assert_eq!(Capability::decode(&[]), Err(TableError::Absent));
        let mut newer = sample().encode();
        newer[0] = 9;
        assert_eq!(Capability::decode(&newer), Err(TableError::Version(9)));
        let bytes = sample().encode();
        for (at, value) in [(2, 3), (HEADER_BYTES, 2), (HEADER_BYTES + 1, 101)] {
            let mut bad = bytes.clone();
            bad[at] = value;
            assert_eq!(Capability::decode(&bad), Err(TableError::Malformed));
        }
        for len in 1..bytes.len() {
            assert_eq!(
                Capability::decode(&bytes[..len]),
                Err(TableError::Malformed)
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            count in 0..5u8,
            mut bytes in prop::collection::vec(0..3u8, 110),
        ) {
            bytes.truncate(HEADER_BYTES + usize::from(count) * RATE_BYTES);
            bytes[..4].copy_from_slice(&[1, 0, count, 0]);
            if let Ok(table) = Capability::decode(&bytes) {
                prop_assert_eq!(table.encode(), bytes);
            }
        }
    }
}
