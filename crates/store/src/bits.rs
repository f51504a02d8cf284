//! One flipped bit, found by the checksum that it breaks.
//!
//! CRC-32C is linear: what a flipped bit changes in it depends on the bit's place alone. Up to far
//! beyond a page all places change it differently, and any two bits differently from any one, so a
//! difference that one place makes names that place. Whether the outcome makes sense besides is the
//! caller's to ask: many wrong bits can look like one.

use crc32c::{crc32c, crc32c_append};

/// Flips the one bit that gives `bytes` this checksum; false, and nothing changed, if there is
/// none.
pub(crate) fn put_one_bit_right(bytes: &mut [u8], crc: u32) -> bool {
    let difference = crc32c(bytes) ^ crc;
    // What becomes of a change when one more byte follows.
    let nothing = crc32c_append(0, &[0]);
    let before = |change: u32| crc32c_append(change, &[0]) ^ nothing;
    for bit in 0..8 {
        let mut change = crc32c(&[1 << bit]) ^ crc32c(&[0]);
        for byte in bytes.iter_mut().rev() {
            if change == difference {
                *byte ^= 1 << bit;
                return true;
            }
            change = before(change);
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn one_bit_is_found_and_two_are_not(
            bits in prop::collection::btree_set(0..4096_usize * 8, 0..3)
        ) {
            let good: Vec<u8> = (0..4096_u32).map(|at| (at * 7 % 251) as u8).collect();
            let mut page = good.clone();
            for bit in &bits {
                page[bit / 8] ^= 1 << (bit % 8);
            }
            let bad = page.clone();
            let is_found = put_one_bit_right(&mut page, crc32c(&good));
            prop_assert_eq!(is_found, bits.len() == 1);
            let expected = if is_found { good } else { bad };
            prop_assert!(page == expected);
        }
    }
}
