//! Packs: the chunks of a profile in one file, in the order in which they are first needed.
//!
//! A machine that is far away asks for a few long ranges of one file instead of hundreds of short
//! files. A pack is an accelerator only: every chunk of it is a chunk of the repository as well,
//! has its own id and is verified by it, and where the pack is missing, cut off or wrong, the
//! chunks are fetched one by one.
//!
//! ```text
//! front     head, profile, table of chunks       named by its digest; so a pack has a name
//! chunks    as they lie in the repository        before anybody has read all of it
//! ```
//!
//! The profile in the front is the one for which the pack was made; from it packs for a later
//! version are made.
//!
//! Drawn in `docs/formats/disk.md`.

use crate::DISK_FORMAT_VERSION;
use crate::chunk::{ChunkId, ChunkSpec, Digest, packed_bytes_max, unpack};
use crate::error::{Damage, DiskError};
use crate::name::FileName;
use crate::profile::Profile;
use crate::repository::Repository;
use crate::signed::Bytes32;
use crate::source::{Part, Source, read_known_at_once};
use base::Extent;
use base::limits::{DISK_CHUNK_BYTES_MAX, DISK_PACK_CHUNKS_MAX, DISK_PACK_FRONT_BYTES_MAX};
use serde::{Deserialize, Serialize};
use std::io;

const MAGIC: [u8; 8] = *b"AZKDPACK";
const HEAD_BYTES: usize = 32;
const ENTRY_BYTES: usize = 40;
/// The directory of packs in a repository.
pub(crate) const PACKS: &str = "packs";

/// A pack, as a signed record names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pack {
    /// The name of the profile for which it was made.
    pub profile: String,
    /// The digest (SHA-512/256) of its front.
    pub id: Bytes32,
    /// Length of its front in bytes.
    pub front_bytes: u64,
    /// Length of its file in bytes.
    pub bytes: u64,
}

impl Pack {
    /// Where it lies.
    #[must_use]
    pub fn file(&self) -> FileName {
        FileName::made(format!("{PACKS}/{}.azp", ChunkId(self.id)))
    }

    /// Whether it can be one at all.
    pub(crate) fn is_valid(&self) -> bool {
        let bytes_max = u64::from(DISK_CHUNK_BYTES_MAX) * 2 * DISK_PACK_CHUNKS_MAX as u64;
        crate::name::is_component(&self.profile)
            && self.front_bytes <= DISK_PACK_FRONT_BYTES_MAX
            && (self.front_bytes..=bytes_max).contains(&self.bytes)
    }

    /// Reads the front.
    ///
    /// # Errors
    /// [`DiskError`], also if it is not the front that this name means.
    pub fn read_front(&self, source: &dyn Source) -> Result<Front, DiskError> {
        let file = self.file();
        let bytes_max = self.front_bytes.min(DISK_PACK_FRONT_BYTES_MAX);
        let part = Part::Extent(Extent::new(0, bytes_max));
        let bytes = read_known_at_once(source, &file, part, self.id)?;
        self.front(&bytes).map_err(|damage| DiskError::Damaged {
            place: format!("{file} at {}", source.place()),
            damage,
        })
    }

    /// The front, whose digest is right.
    fn front(&self, bytes: &[u8]) -> Result<Front, Damage> {
        let front = Front::from_bytes(bytes)?;
        let is_same = front.file_bytes() == self.bytes && front.profile.name() == self.profile;
        is_same.then_some(front).ok_or(Damage::Foreign)
    }
}

/// A chunk of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedChunk {
    /// What it is.
    pub spec: ChunkSpec,
    /// Its packed form within the file.
    pub place: Extent,
}

/// What a pack has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Front {
    digest: Digest,
    profile: Profile,
    /// In order; each begins where the one before ends.
    chunks: Vec<PackedChunk>,
    front_bytes: u64,
}

impl Front {
    /// Of chunks with the lengths of their packed forms.
    fn new(digest: Digest, profile: Profile, chunks: &[(ChunkSpec, u32)]) -> Self {
        let profile_bytes = profile.body().len();
        let front_bytes = (HEAD_BYTES + profile_bytes + ENTRY_BYTES * chunks.len()) as u64;
        let mut offset = front_bytes;
        let place = |&(spec, packed_bytes): &(ChunkSpec, u32)| {
            let place = Extent::new(offset, packed_bytes.into());
            offset = place.end();
            PackedChunk { spec, place }
        };
        let chunks = chunks.iter().map(place).collect();
        Self {
            digest,
            profile,
            chunks,
            front_bytes,
        }
    }

    /// The profile for which it was made.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Its chunks in order.
    #[must_use]
    pub fn chunks(&self) -> &[PackedChunk] {
        &self.chunks
    }

    /// Length of the file.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        self.chunks
            .last()
            .map_or(self.front_bytes, |last| last.place.end())
    }

    /// The front as it lies in the file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let profile = self.profile.body();
        let digest: u16 = match self.digest {
            Digest::Sha512Half => 1,
            Digest::Sha256 => 2,
        };
        let mut bytes = Vec::with_capacity(self.front_bytes as usize);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&DISK_FORMAT_VERSION.to_le_bytes());
        bytes.extend_from_slice(&digest.to_le_bytes());
        bytes.extend_from_slice(&(profile.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.chunks.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 12]);
        bytes.extend_from_slice(&profile);
        for chunk in &self.chunks {
            bytes.extend_from_slice(&chunk.spec.id.0);
            bytes.extend_from_slice(&chunk.spec.len_bytes.to_le_bytes());
            bytes.extend_from_slice(&(chunk.place.len as u32).to_le_bytes());
        }
        bytes
    }

    /// Reads a front, of which there is nothing more and nothing less.
    ///
    /// # Errors
    /// [`Damage`] says what is wrong with it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        if bytes.len() < HEAD_BYTES || bytes[..8] != MAGIC {
            return Err(Damage::NotAPack);
        }
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let long = |at: usize| u32::from(short(at)) | u32::from(short(at + 2)) << 16;
        if short(8) > DISK_FORMAT_VERSION {
            return Err(Damage::Newer(short(8)));
        }
        let digest = match short(10) {
            1 => Digest::Sha512Half,
            2 => Digest::Sha256,
            _ => return Err(Damage::Pack),
        };
        let (profile_bytes, count) = (long(12) as usize, long(16) as usize);
        let table = HEAD_BYTES.checked_add(profile_bytes);
        let table = table.filter(|&table| table <= bytes.len());
        let (Some(table), true) = (table, count <= DISK_PACK_CHUNKS_MAX) else {
            return Err(Damage::Pack);
        };
        let is_framed = short(8) == DISK_FORMAT_VERSION
            && bytes[20..HEAD_BYTES].iter().all(|byte| *byte == 0)
            && bytes.len() - table == count * ENTRY_BYTES;
        if !is_framed {
            return Err(Damage::Pack);
        }
        let profile = Profile::from_body(&bytes[HEAD_BYTES..table])?;
        let mut chunks = Vec::with_capacity(count);
        for at in (table..bytes.len()).step_by(ENTRY_BYTES) {
            let mut id = [0; ChunkId::BYTES];
            id.copy_from_slice(&bytes[at..at + ChunkId::BYTES]);
            let (len_bytes, packed_bytes) = (long(at + 32), long(at + 36));
            if len_bytes == 0
                || len_bytes > DISK_CHUNK_BYTES_MAX
                || packed_bytes == 0
                || u64::from(packed_bytes) > packed_bytes_max(len_bytes)
            {
                return Err(Damage::Pack);
            }
            let spec = ChunkSpec {
                id: ChunkId(id),
                digest,
                len_bytes,
            };
            chunks.push((spec, packed_bytes));
        }
        Ok(Self::new(digest, profile, &chunks))
    }
}

/// Writes a pack of these chunks, which lie in the repository; whole and durable, or an error. More
/// chunks than a pack can have are left out, the last ones. The caller has the turn of somebody who
/// adds.
pub(crate) fn write(
    repository: &Repository,
    digest: Digest,
    profile: &Profile,
    specs: &[ChunkSpec],
) -> Result<Pack, DiskError> {
    let specs = &specs[..specs.len().min(DISK_PACK_CHUNKS_MAX)];
    let mut chunks = Vec::with_capacity(specs.len());
    for spec in specs {
        chunks.push((*spec, packed(repository, spec)?.len() as u32));
    }
    let front = Front::new(digest, profile.clone(), &chunks);
    let bytes = front.to_bytes();
    let pack = Pack {
        profile: profile.name().to_owned(),
        id: Digest::Sha512Half.id_of(&bytes).0,
        front_bytes: bytes.len() as u64,
        bytes: front.file_bytes(),
    };
    repository.put_written(&pack.file(), |file| {
        file.write_all(&bytes)?;
        for chunk in front.chunks() {
            let packed = packed(repository, &chunk.spec).map_err(io::Error::other)?;
            if packed.len() as u64 != chunk.place.len {
                return Err(io::Error::other("a chunk was changed meanwhile"));
            }
            file.write_all(&packed)?;
        }
        Ok(())
    })?;
    Ok(pack)
}

/// A chunk as it lies in the repository; it is what its name says.
fn packed(repository: &Repository, spec: &ChunkSpec) -> Result<bytes::Bytes, DiskError> {
    let file = FileName::of_chunk(&spec.id);
    let bytes_max = packed_bytes_max(spec.len_bytes);
    let source = repository.source();
    let packed = source.read_now(&file, Part::Whole { bytes_max })?;
    unpack(spec, &packed).map_err(|damage| DiskError::Damaged {
        place: format!("{file} at {}", source.place()),
        damage,
    })?;
    Ok(packed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Trace;
    use crate::source::Directory;
    use expect_test::expect;
    use proptest::prelude::*;
    use std::time::Duration;

    fn front() -> Front {
        let mut trace = Trace::new(20_000);
        trace.on_read(Duration::from_millis(3), Extent::new(8192, 1));
        let spec = |number: u8, len_bytes| ChunkSpec {
            id: ChunkId([number; 32]),
            digest: Digest::Sha256,
            len_bytes,
        };
        let chunks = [(spec(1, 8192), 100), (spec(2, 3616), 3600)];
        let profile = Profile::new("boot", &trace).unwrap();
        Front::new(Digest::Sha256, profile, &chunks)
    }

    fn named(bytes: &[u8]) -> Pack {
        Pack {
            profile: "boot".into(),
            id: Digest::Sha512Half.id_of(bytes).0,
            front_bytes: bytes.len() as u64,
            bytes: front().file_bytes(),
        }
    }

    #[test]
    fn a_front_has_the_bytes_that_it_had() {
        let bytes = front().to_bytes();
        let line =
            |line: &[u8]| -> String { line.iter().map(|byte| format!("{byte:02x}")).collect() };
        let hex: Vec<_> = bytes.chunks(16).map(line).collect();
        expect![[r#"
            415a4b445041434b0100020011000000
            02000000000000000000000000000000
            04626f6f74a09c010101804080200003
            01010101010101010101010101010101
            01010101010101010101010101010101
            01002000006400000002020202020202
            02020202020202020202020202020202
            020202020202020202200e0000100e00
            00"#]]
        .assert_eq(&hex.join("\n"));
        assert_eq!(Front::from_bytes(&bytes), Ok(front()));
        assert_eq!(front().file_bytes(), bytes.len() as u64 + 3700);
        assert_eq!(named(&bytes).front(&bytes), Ok(front()));
    }

    #[test]
    fn what_is_wrong_with_a_front_is_said() {
        let good = front().to_bytes();
        let last = good.len() - 4;
        let with = |at: usize, change: &[u8]| {
            let mut bytes = good.clone();
            bytes[at..at + change.len()].copy_from_slice(change);
            Front::from_bytes(&bytes).unwrap_err()
        };
        assert_eq!(Front::from_bytes(b""), Err(Damage::NotAPack));
        assert_eq!(Front::from_bytes(&good[..31]), Err(Damage::NotAPack));
        assert_eq!(with(0, b"B"), Damage::NotAPack);
        assert_eq!(with(8, &[2]), Damage::Newer(2));
        for (at, change) in [
            (8, &[0][..]),
            (10, &[3]),
            (12, &[0xff; 4]),
            (16, &[0xff; 4]),
            (16, &[1]),
            (31, &[1]),
            (last - 4, &[0; 4]),
            (last - 4, &[0xff; 4]),
            (last, &[0; 4]),
            (last, &[0xff; 4]),
        ] {
            assert_eq!(with(at, change), Damage::Pack, "{at}");
        }
        assert_eq!(with(HEAD_BYTES + 1, b"/"), Damage::Profile);
    }

    #[test]
    fn a_front_is_believed_only_under_its_own_name() {
        let directory = tempfile::tempdir().unwrap();
        let source = Directory::new(directory.path());
        let bytes = front().to_bytes();
        let good = named(&bytes);
        let path = source.path_of(&good.file());
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        let damage = |pack: &Pack, bytes: &[u8]| {
            std::fs::write(source.path_of(&pack.file()), bytes).unwrap();
            match pack.read_front(&source) {
                Err(DiskError::Damaged { damage, .. }) => damage,
                other => panic!("{other:?}"),
            }
        };
        let mut flipped = bytes.clone();
        flipped[40] ^= 1;
        assert_eq!(damage(&good, &flipped), Damage::Digest);
        let longer = Pack {
            bytes: front().file_bytes() + 1,
            ..good.clone()
        };
        assert_eq!(damage(&longer, &bytes), Damage::Foreign);
        let other = Pack {
            profile: "desktop".into(),
            ..good.clone()
        };
        assert_eq!(damage(&other, &bytes), Damage::Foreign);
        // What is behind the front is not read for it.
        std::fs::write(path, [&bytes[..], b"more"].concat()).unwrap();
        assert_eq!(good.read_front(&source).unwrap(), front());
    }

    proptest! {
        #[test]
        fn every_front_that_is_read_is_written_the_same(
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut bytes = front().to_bytes();
            let at = at.index(bytes.len());
            prop_assert!(Front::from_bytes(&bytes[..at]).is_err());
            bytes[at] = byte;
            if let Ok(read) = Front::from_bytes(&bytes) {
                prop_assert_eq!(read.to_bytes(), bytes);
            }
        }
    }
}
