//! What files contain: numbers that follow from a seed and the position, so that any piece can be
//! made and checked alone and nothing on the way can compress or share it.

/// How much of what is read is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verify {
    /// Every byte.
    Full,
    /// The first word of every page: finds misplaced data at a price that does not slow a
    /// loopback measurement.
    Pages,
}

const WORD_BYTES: usize = 8;
const PAGE_BYTES: usize = 4096;

/// The seed of a file, from its path within the data.
pub(crate) fn seed_of(path: &str) -> u64 {
    path.bytes()
        .fold(0x5EED, |seed, byte| mix(seed ^ u64::from(byte)))
}

fn mix(index: u64) -> u64 {
    let mut word = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    word = (word ^ (word >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word ^ (word >> 32)
}

fn word(seed: u64, index: u64) -> u64 {
    mix(seed.wrapping_add(index))
}

/// Fills `buffer` with the content at `offset`, which is a multiple of 8.
pub(crate) fn fill(seed: u64, offset: u64, buffer: &mut [u8]) {
    assert!(
        offset.is_multiple_of(WORD_BYTES as u64),
        "content is made of whole words"
    );
    let first = offset / WORD_BYTES as u64;
    for (index, bytes) in buffer.chunks_mut(WORD_BYTES).enumerate() {
        let word = word(seed, first + index as u64).to_le_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
}

/// Compares `buffer` with the content at `offset`; returns where it first differs.
pub(crate) fn differs_at(seed: u64, offset: u64, buffer: &[u8], verify: Verify) -> Option<u64> {
    let mut expected = [0u8; PAGE_BYTES];
    for (index, page) in buffer.chunks(PAGE_BYTES).enumerate() {
        let page_offset = offset + (index * PAGE_BYTES) as u64;
        let checked = match verify {
            Verify::Full => page.len(),
            Verify::Pages => page.len().min(WORD_BYTES),
        };
        fill(seed, page_offset, &mut expected[..checked]);
        if expected[..checked] != page[..checked] {
            let at = expected
                .iter()
                .zip(page)
                .position(|(a, b)| a != b)
                .unwrap_or(0);
            return Some(page_offset + at as u64);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_agree_with_the_whole_and_damage_is_found() {
        let mut whole = vec![0u8; 20_000];
        fill(7, 0, &mut whole);
        assert_eq!(
            differs_at(7, 8000, &whole[8000..20_000], Verify::Full),
            None
        );
        whole[12_345] ^= 1;
        assert_eq!(
            differs_at(7, 8000, &whole[8000..20_000], Verify::Full),
            Some(12_345)
        );
        assert_eq!(
            differs_at(8, 0, &whole, Verify::Pages),
            Some(0),
            "another file's content"
        );
    }
}
