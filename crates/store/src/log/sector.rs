//! Sectors of the log.
//!
//! A loss of power leaves each sector of 512 bytes old or new, nothing in between. So each sector
//! carries its own checksum: one whose checksum fails was not torn, it went bad, and that is told
//! from the end of the log. A single flipped bit is put right (CRC32C finds the one bit among the
//! 4,096 of a sector without doubt); more is damage, and the store does not guess what was
//! acknowledged.

use crate::Damage;
use crate::bits::put_one_bit_right;

/// The unit that a loss of power leaves whole.
pub(crate) const SECTOR_BYTES: usize = 512;
const HEADER_BYTES: usize = 20;
/// What a sector carries.
pub(crate) const BODY_BYTES: usize = SECTOR_BYTES - HEADER_BYTES;

/// Which sector of which entry this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The entry's number.
    pub(crate) sequence: u64,
    /// The opening during which it was written: an entry that is written again after a crash never
    /// mixes with the sectors of the first try.
    pub(crate) opening: u32,
    /// Which of the entry's sectors.
    pub(crate) index: u16,
    /// How many it has.
    pub(crate) count: u16,
}

/// Writes a sector with as much of `body` as it takes, zeros after it.
pub(crate) fn encode(stamp: Stamp, body: &[u8], sector: &mut [u8]) {
    assert!(sector.len() == SECTOR_BYTES && body.len() <= BODY_BYTES);
    sector[4..12].copy_from_slice(&stamp.sequence.to_le_bytes());
    sector[12..16].copy_from_slice(&stamp.opening.to_le_bytes());
    sector[16..18].copy_from_slice(&stamp.index.to_le_bytes());
    sector[18..20].copy_from_slice(&stamp.count.to_le_bytes());
    sector[HEADER_BYTES..][..body.len()].copy_from_slice(body);
    sector[HEADER_BYTES + body.len()..].fill(0);
    let crc = crc32c::crc32c(&sector[4..]);
    sector[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Reads a sector, and puts a single flipped bit right. `None` if it is one of a log that was never
/// written.
///
/// # Errors
/// Damage at the byte that `offset` says.
pub(crate) fn decode(sector: &mut [u8], offset: u64) -> Result<Option<Stamp>, Damage> {
    assert!(sector.len() == SECTOR_BYTES);
    if !is_intact(sector) && !repair(sector) {
        return Err(Damage::Log(offset));
    }
    let number = |at: usize| u16::from_le_bytes([sector[at], sector[at + 1]]);
    let stamp = Stamp {
        sequence: u64::from_le_bytes(sector[4..12].try_into().expect("eight bytes")),
        opening: u32::from_le_bytes(sector[12..16].try_into().expect("four bytes")),
        index: number(16),
        count: number(18),
    };
    Ok((stamp.count > 0).then_some(stamp))
}

/// What the sector carries.
pub(crate) fn body(sector: &[u8]) -> &[u8] {
    &sector[HEADER_BYTES..]
}

/// The sector of a log in which nothing was written.
pub(crate) fn blank(sector: &mut [u8]) {
    let none = Stamp {
        sequence: 0,
        opening: 0,
        index: 0,
        count: 0,
    };
    encode(none, &[], sector);
}

/// Whether it is as it was written.
pub(crate) fn is_intact(sector: &[u8]) -> bool {
    sector[..4] == crc32c::crc32c(&sector[4..]).to_le_bytes()
}

fn repair(sector: &mut [u8]) -> bool {
    let (said, rest) = sector.split_at_mut(4);
    let right = crc32c::crc32c(rest);
    let found = u32::from_le_bytes([said[0], said[1], said[2], said[3]]);
    if (found ^ right).count_ones() == 1 {
        said.copy_from_slice(&right.to_le_bytes());
        return true;
    }
    put_one_bit_right(rest, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STAMP: Stamp = Stamp {
        sequence: 0x0102_0304_0506,
        opening: 7,
        index: 8,
        count: 9,
    };

    fn sample() -> Vec<u8> {
        let mut sector = vec![0xFF; SECTOR_BYTES];
        encode(STAMP, b"body", &mut sector);
        sector
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let sector = sample();
        let header = [6, 5, 4, 3, 2, 1, 0, 0, 7, 0, 0, 0, 8, 0, 9, 0];
        assert_eq!(sector[4..20], header);
        assert_eq!(&sector[20..26], b"body\0\0");
        assert_eq!(sector[..4], crc32c::crc32c(&sector[4..]).to_le_bytes());
    }

    #[test]
    fn a_blank_sector_has_no_stamp() {
        let mut sector = vec![1; SECTOR_BYTES];
        blank(&mut sector);
        assert_eq!(decode(&mut sector, 0), Ok(None));
    }

    proptest! {
        #[test]
        fn one_flipped_bit_is_put_right_and_more_are_damage(
            bits in prop::collection::btree_set(0..SECTOR_BYTES * 8, 1..4)
        ) {
            let mut sector = sample();
            for bit in &bits {
                sector[bit / 8] ^= 1 << (bit % 8);
            }
            match decode(&mut sector, 512) {
                Ok(stamp) => {
                    prop_assert_eq!(bits.len(), 1);
                    prop_assert_eq!(stamp, Some(STAMP));
                    prop_assert_eq!(sector, sample());
                }
                Err(damage) => {
                    prop_assert!(bits.len() > 1);
                    prop_assert_eq!(damage, Damage::Log(512));
                }
            }
        }
    }
}
