//! Chunks: their ids, and their packed form.
//!
//! A chunk's id is the digest of its bytes as they are on the disk; what is stored and transferred
//! is one zstd frame. Whoever unpacks a chunk says its id and its length beforehand, both from an
//! index. So memory is bounded by what was said, whatever the frame claims, and nothing leaves this
//! module that has not the digest it was asked for by.
//!
//! Digests come from ring: it is in the tree for TLS anyway.

use crate::error::Damage;
use base::limits::DISK_CHUNK_BYTES_MAX;
use bytes::Bytes;
use ring::digest;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use zstd::bulk::{Compressor, Decompressor};

/// What names a chunk by its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Digest {
    /// SHA-512/256, the default of casync and desync.
    #[default]
    Sha512Half,
    /// SHA-256: faster where the processor has instructions for it, and read by both as well.
    Sha256,
}

impl Digest {
    /// The id of a chunk with these bytes.
    #[must_use]
    pub fn id_of(self, bytes: &[u8]) -> ChunkId {
        ChunkId::of(&digest::digest(self.algorithm(), bytes))
    }

    fn algorithm(self) -> &'static digest::Algorithm {
        match self {
            Self::Sha512Half => &digest::SHA512_256,
            Self::Sha256 => &digest::SHA256,
        }
    }
}

/// The digest of a chunk's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkId(pub [u8; ChunkId::BYTES]);

impl ChunkId {
    /// Length of an id.
    pub const BYTES: usize = 32;

    fn of(digest: &digest::Digest) -> Self {
        let mut id = [0; Self::BYTES];
        id.copy_from_slice(digest.as_ref());
        Self(id)
    }
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text that is not 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a chunk id: 64 lower-case hexadecimal digits")]
pub struct NotAnId;

impl FromStr for ChunkId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let digit = |c: u8| match c {
            b'0'..=b'9' => Ok(c - b'0'),
            b'a'..=b'f' => Ok(c - b'a' + 10),
            _ => Err(NotAnId),
        };
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != Self::BYTES || !rest.is_empty() {
            return Err(NotAnId);
        }
        let mut id = [0; Self::BYTES];
        for (byte, pair) in id.iter_mut().zip(pairs) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Ok(Self(id))
    }
}

/// What is known of a chunk before its bytes are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkSpec {
    /// Its id.
    pub id: ChunkId,
    /// By which digest.
    pub digest: Digest,
    /// How many bytes it has.
    pub len_bytes: u32,
}

/// Chunks of zeros of some lengths: known by their ids, and never fetched.
#[derive(Clone, Debug)]
pub(crate) struct Zeros(BTreeMap<u32, ChunkId>);

impl Zeros {
    /// Of these lengths. The longest is gone through once, whatever their number.
    pub(crate) fn new(digest: Digest, lengths: &BTreeSet<u32>) -> Self {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut context = digest::Context::new(digest.algorithm());
        let mut done = 0;
        let mut ids = BTreeMap::new();
        for &length in lengths {
            while done < length {
                let more = (length - done).min(ZEROS.len() as u32);
                context.update(&ZEROS[..more as usize]);
                done += more;
            }
            ids.insert(length, ChunkId::of(&context.clone().finish()));
        }
        Self(ids)
    }

    /// Whether a chunk is one of them.
    pub(crate) fn has(&self, spec: &ChunkSpec) -> bool {
        self.0.get(&spec.len_bytes) == Some(&spec.id)
    }
}

/// Compresses chunks. One for each thread: it keeps tables, and a buffer for the longest form.
pub struct Packer {
    compressor: Compressor<'static>,
    buffer: Vec<u8>,
}

impl Packer {
    /// With zstd's `level`, 1 to 19.
    ///
    /// # Errors
    /// If zstd has no such level, or no memory.
    pub fn new(level: i32) -> std::io::Result<Self> {
        Ok(Self {
            compressor: Compressor::new(level)?,
            buffer: Vec::new(),
        })
    }

    /// The packed form of a chunk, in no more memory than it needs: many wait to be written.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn pack(&mut self, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
        let longest = zstd::zstd_safe::compress_bound(bytes.len());
        if self.buffer.len() < longest {
            self.buffer.resize(longest, 0);
        }
        let buffer = self.buffer.as_mut_slice();
        let len = self.compressor.compress_to_buffer(bytes, buffer)?;
        Ok(self.buffer[..len].to_vec())
    }
}

impl fmt::Debug for Packer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Packer")
    }
}

/// The longest packed form of a chunk of so many bytes: what does not shrink grows a little.
#[must_use]
pub fn packed_bytes_max(len_bytes: u32) -> u64 {
    zstd::zstd_safe::compress_bound(len_bytes as usize) as u64
}

/// Unpacks a chunk and verifies it.
///
/// # Errors
/// [`Damage`] says what is wrong with the packed form, or that its bytes are others.
pub fn unpack(spec: &ChunkSpec, packed: &[u8]) -> Result<Bytes, Damage> {
    const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
    let len = spec.len_bytes as usize;
    if len > DISK_CHUNK_BYTES_MAX as usize {
        return Err(Damage::ChunkTooLong(spec.len_bytes.into()));
    }
    if !packed.starts_with(ZSTD) {
        return Err(not_zstd(packed));
    }
    let mut bytes = vec![0; len];
    let mut unpacker = Decompressor::new().map_err(|_| Damage::Frame)?;
    match unpacker.decompress_to_buffer(packed, bytes.as_mut_slice()) {
        Ok(unpacked) if unpacked == len => {}
        Ok(unpacked) => return Err(Damage::ChunkShort(unpacked as u64)),
        Err(_) => return Err(Damage::Frame),
    }
    if spec.digest.id_of(&bytes) != spec.id {
        return Err(Damage::Digest);
    }
    Ok(bytes.into())
}

fn not_zstd(packed: &[u8]) -> Damage {
    match packed {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Damage::OtherCompression("xz"),
        [0x1f, 0x8b, ..] => Damage::OtherCompression("gzip"),
        _ => Damage::Frame,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec(digest: Digest, bytes: &[u8]) -> ChunkSpec {
        ChunkSpec {
            id: digest.id_of(bytes),
            digest,
            len_bytes: bytes.len() as u32,
        }
    }

    fn pack(bytes: &[u8]) -> Vec<u8> {
        Packer::new(3).unwrap().pack(bytes).unwrap()
    }

    #[test]
    fn ids_are_the_published_digests() {
        // FIPS 180-4's examples for the message "abc".
        let half = "53048e2681941ef99b2e29b76b4c7dabe4c2d0c634fc6d46e0e2f13107e7af23";
        let whole = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::Sha512Half.id_of(b"abc").to_string(), half);
        assert_eq!(Digest::Sha256.id_of(b"abc").to_string(), whole);
        assert_eq!(half.parse(), Ok(Digest::Sha512Half.id_of(b"abc")));
        for wrong in ["", &half[1..], &half.to_uppercase(), &format!("{half}0")] {
            assert_eq!(wrong.parse::<ChunkId>(), Err(NotAnId), "{wrong}");
        }
    }

    #[test]
    fn chunks_of_zeros_are_known_by_their_ids() {
        let lengths = BTreeSet::from([1, 4095, 4096, 12_288, 65_536]);
        for digest in [Digest::Sha512Half, Digest::Sha256] {
            let zeros = Zeros::new(digest, &lengths);
            for length in 1..20_000 {
                let spec = spec(digest, &vec![0; length]);
                assert_eq!(
                    zeros.has(&spec),
                    lengths.contains(&(length as u32)),
                    "{length}"
                );
            }
            assert!(!zeros.has(&spec(digest, &[1; 4096])));
        }
    }

    #[test]
    fn a_frame_that_unpacks_to_more_than_was_said_is_refused_in_bounded_memory() {
        let bomb = pack(&vec![0; 64 << 20]);
        let said = spec(Digest::Sha256, &[0; 4096]);
        assert!(bomb.len() < 16 << 10);
        assert_eq!(unpack(&said, &bomb), Err(Damage::Frame));
        let long = ChunkSpec {
            len_bytes: DISK_CHUNK_BYTES_MAX + 1,
            ..said
        };
        let too_long = Damage::ChunkTooLong(u64::from(DISK_CHUNK_BYTES_MAX) + 1);
        assert_eq!(unpack(&long, &bomb), Err(too_long));
    }

    #[test]
    fn other_compressions_are_named() {
        let said = spec(Digest::Sha256, b"x");
        let xz = Damage::OtherCompression("xz");
        assert_eq!(unpack(&said, b"\xfd7zXZ\0..."), Err(xz));
        let gzip = Damage::OtherCompression("gzip");
        assert_eq!(unpack(&said, b"\x1f\x8b\x08"), Err(gzip));
        assert_eq!(unpack(&said, b""), Err(Damage::Frame));
    }

    proptest! {
        #[test]
        fn what_was_packed_is_unpacked_and_nothing_else_is(
            bytes in prop::collection::vec(any::<u8>(), 1..3000),
            repeated in 1_usize..40,
            at in any::<prop::sample::Index>(),
            bit in 0_u32..8,
        ) {
            let bytes = bytes.repeat(repeated);
            let said = spec(Digest::Sha512Half, &bytes);
            let mut packed = pack(&bytes);
            prop_assert!(packed.len() as u64 <= packed_bytes_max(said.len_bytes));
            prop_assert_eq!(unpack(&said, &packed).unwrap(), bytes.clone());
            let at = at.index(packed.len());
            prop_assert!(unpack(&said, &packed[..at]).is_err());
            // A flipped bit may be one that no reader looks at; bytes never differ.
            packed[at] ^= 1_u8 << bit;
            if let Ok(unpacked) = unpack(&said, &packed) {
                prop_assert_eq!(unpacked, bytes);
            }
        }

        #[test]
        fn no_bytes_whatsoever_are_more_than_an_error(
            mut packed in prop::collection::vec(any::<u8>(), 0..300),
            len_bytes in 0_u32..10_000,
        ) {
            packed.splice(..0, [0x28, 0xb5, 0x2f, 0xfd]);
            let said = ChunkSpec { len_bytes, ..spec(Digest::Sha256, b"other") };
            prop_assert!(unpack(&said, &packed).is_err());
        }
    }
}
