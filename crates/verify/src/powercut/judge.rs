//! What became of a file: its length and its content are told apart, since a file of the right
//! length may be zeros.
//!
//! Contents are compared block by block. Byte by byte, one of 256 bytes of anything is right by
//! chance.

use super::message::BLOCK_BYTES;
use crate::outcome::Outcome;
use crate::workload::content;
use std::io::{self, Read, Write};

/// How much is made and compared at once.
const PIECE_BYTES: u64 = 1 << 20;

/// Which of the two contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    New,
    Old,
}

/// A piece of what is written: no two pieces, nor versions, are alike.
fn piece(seed: u64, version: Version, number: u64, len: u64) -> Vec<u8> {
    let tag = (number << 1) | u64::from(version == Version::Old);
    content(seed.rotate_left(32) ^ tag, len)
}

/// The numbers and lengths of the pieces of so many bytes.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let count = bytes.div_ceil(PIECE_BYTES);
    (0..count).map(move |number| (number, PIECE_BYTES.min(bytes - number * PIECE_BYTES)))
}

/// Writes what a guest has to write: the new content, and behind it the old one.
///
/// # Errors
/// Of writing.
pub(super) fn write_source(out: &mut impl Write, seed: u64, bytes: u64) -> io::Result<()> {
    for version in [Version::New, Version::Old] {
        for (number, len) in pieces(bytes) {
            out.write_all(&piece(seed, version, number, len))?;
        }
    }
    Ok(())
}

/// What was found of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    /// What became of it.
    pub(super) outcome: Outcome,
    /// Its length, as a share of what it should be.
    pub(super) size_share: f64,
    /// Its blocks that are there and right, as a share of all.
    pub(super) content_share: f64,
}

impl Found {
    /// Nothing of it.
    pub(super) const fn nothing(outcome: Outcome) -> Self {
        Self {
            outcome,
            size_share: 0.0,
            content_share: 0.0,
        }
    }
}

/// Blocks by what they are.
#[derive(Clone, Copy, Debug, Default)]
struct Blocks {
    right_bytes: u64,
    old: u64,
    zeros: u64,
    others: u64,
}

/// Compares a file of `size_bytes`, which `file` has as far as it is of interest, with what should
/// be in it: `bytes` of the new content, or of the old one if there was an old file.
///
/// # Errors
/// Of reading.
pub(super) fn judge(
    file: &mut impl Read,
    size_bytes: u64,
    seed: u64,
    bytes: u64,
    had_old: bool,
) -> io::Result<Found> {
    let mut blocks = Blocks::default();
    let mut is_old = had_old && size_bytes == bytes;
    for (number, len) in pieces(size_bytes.min(bytes)) {
        let whole_len = PIECE_BYTES.min(bytes - number * PIECE_BYTES);
        let mut is = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        file.read_exact(&mut is)?;
        let new = piece(seed, Version::New, number, whole_len);
        let old = piece(seed, Version::Old, number, whole_len);
        is_old &= is == old;
        let block = BLOCK_BYTES as usize;
        let all = is
            .chunks(block)
            .zip(new.chunks(block))
            .zip(old.chunks(block));
        for ((is, new), old) in all {
            // The last block of a file that was cut may be a part of one.
            if *is == new[..is.len()] {
                blocks.right_bytes += is.len() as u64;
            } else if had_old && *is == old[..is.len()] {
                blocks.old += 1;
            } else if is.iter().all(|byte| *byte == 0) {
                blocks.zeros += 1;
            } else {
                blocks.others += 1;
            }
        }
    }
    let outcome = match blocks {
        _ if is_old => Outcome::Old,
        Blocks { right_bytes, .. } if right_bytes == bytes && size_bytes == bytes => {
            Outcome::Intact
        }
        Blocks { others: 1.., .. } => Outcome::Foreign,
        Blocks { old: 1.., .. } => Outcome::Stale,
        Blocks { zeros: 1.., .. } => Outcome::ZeroFilled,
        _ if size_bytes > bytes => Outcome::Foreign,
        _ => Outcome::Truncated,
    };
    let share = |part: u64| part as f64 / bytes.max(1) as f64;
    Ok(Found {
        outcome,
        size_share: share(size_bytes),
        content_share: share(blocks.right_bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = PIECE_BYTES + 4 * BLOCK_BYTES;
    const BLOCK: usize = BLOCK_BYTES as usize;

    fn source() -> (Vec<u8>, Vec<u8>) {
        let mut both = Vec::new();
        write_source(&mut both, 7, BYTES).unwrap();
        let old = both.split_off(usize::try_from(BYTES).unwrap());
        assert_eq!(old.len() as u64, BYTES);
        (both, old)
    }

    fn found(file: &[u8], had_old: bool) -> (Outcome, u64, u64) {
        let found = judge(&mut &*file, file.len() as u64, 7, BYTES, had_old).unwrap();
        let percent = |share: f64| (share * 100.0).round() as u64;
        let (size, content) = (found.size_share, found.content_share);
        (found.outcome, percent(size), percent(content))
    }

    #[test]
    fn what_became_of_a_file_is_told_apart() {
        let (new, old) = source();
        assert_eq!(found(&new, false), (Outcome::Intact, 100, 100));
        assert_eq!(found(&old, true), (Outcome::Old, 100, 0));
        // Nobody ever wrote it here.
        assert_eq!(found(&old, false), (Outcome::Foreign, 100, 0));
        assert_eq!(found(&[], false), (Outcome::Truncated, 0, 0));
        let half = new.len() / 2;
        assert_eq!(found(&new[..half], false), (Outcome::Truncated, 50, 50));
        let mut zeros = new.clone();
        zeros[half..].fill(0);
        let (outcome, size, content) = found(&zeros, true);
        assert_eq!((outcome, size), (Outcome::ZeroFilled, 100));
        assert!((49..=50).contains(&content), "{content}");
        let mut mixed = zeros.clone();
        mixed[..BLOCK].copy_from_slice(&old[..BLOCK]);
        assert_eq!(found(&mixed, true).0, Outcome::Stale);
        mixed[BLOCK] ^= 1;
        assert_eq!(found(&mixed, true).0, Outcome::Foreign);
    }

    #[test]
    fn a_file_that_is_longer_is_not_whole() {
        let (mut new, _) = source();
        new.extend([0; 4 * BLOCK]);
        let (outcome, size, content) = found(&new, false);
        assert_eq!((outcome, content), (Outcome::Foreign, 100));
        assert!(size > 100);
        // What stands at another place is not recovered either.
        let (new, _) = source();
        let moved = [&new[BLOCK..], &new[..BLOCK]].concat();
        assert_eq!(found(&moved, false).0, Outcome::Foreign);
    }
}
