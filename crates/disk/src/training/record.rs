//! The record of how a version was trained, and how one reads a version with it.

use crate::ahead::{Foresight, Plan};
use crate::bucket::Stamp;
use crate::chunk::{ChunkId, Digest};
use crate::error::{Damage, DiskError};
use crate::index::Index;
use crate::manifest::{Manifest, VersionId};
use crate::name::FileName;
use crate::pack::Pack;
use crate::profile::Profile;
use crate::repository::Repository;
use crate::signed::{self, Bytes32, Kind, SigningKey, Trust};
use crate::source::{Part, Source, SourceError, read_known};
use base::limits::{DISK_INDEX_CHUNKS_MAX, DISK_PACKS_MAX, DISK_RECORD_BYTES_MAX};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The directory of trainings in a repository.
pub(crate) const TRAININGS: &str = "trainings";
/// Fronts of packs that are read at once.
const READERS_MAX: usize = 8;

/// How a version is cut, and which packs it has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Training {
    version: VersionId,
    /// One more with each training of this version.
    pub count: u64,
    /// The digest (SHA-512/256) of the file of the index that is cut.
    pub index: Bytes32,
    /// Length of this file in bytes.
    pub index_bytes: u64,
    packs: Vec<Pack>,
    /// When it was made, in seconds since 1970.
    pub time: i64,
}

impl Training {
    /// After the one before, if there was one; the index is not known yet.
    pub(crate) fn new(
        version: VersionId,
        before: Option<&Self>,
        time: i64,
        packs: Vec<Pack>,
    ) -> Self {
        Self {
            version,
            count: before.map_or(1, |before| before.count + 1),
            index: [0; 32],
            index_bytes: 0,
            packs,
            time,
        }
    }

    /// Where that of a version lies.
    #[must_use]
    pub fn file_of(version: VersionId) -> FileName {
        FileName::made(format!("{TRAININGS}/{version}.azn"))
    }

    /// The version whose record has this name in its directory.
    pub(crate) fn version_of_file(name: &str) -> Option<VersionId> {
        name.strip_suffix(".azn")?.parse().ok()
    }

    /// Of which version.
    #[must_use]
    pub fn version(&self) -> VersionId {
        self.version
    }

    /// The packs, one for each profile.
    #[must_use]
    pub fn packs(&self) -> &[Pack] {
        &self.packs
    }

    /// The profiles for which the packs were made: to give them to another version.
    ///
    /// # Errors
    /// [`DiskError`] if one of the packs cannot be read.
    pub fn profiles(&self, source: &dyn Source) -> Result<Vec<Profile>, DiskError> {
        let read = |pack: &Pack| Ok(pack.read_front(source)?.profile().clone());
        self.packs.iter().map(read).collect()
    }

    /// Where the index lies.
    #[must_use]
    pub fn index_file(&self) -> FileName {
        FileName::made(format!("indexes/{}.caibx", ChunkId(self.index)))
    }

    /// The file.
    #[must_use]
    pub fn sign(&self, key: &SigningKey) -> Vec<u8> {
        key.sign(Kind::Training, self)
    }

    /// Writes the index, and then the record that names it, over the one that was there before.
    pub(crate) fn put(
        mut self,
        repository: &Repository,
        before: Option<Stamp>,
        index: &Index,
        key: &SigningKey,
    ) -> Result<(), DiskError> {
        let bytes = index.to_bytes();
        self.index = Digest::Sha512Half.id_of(&bytes).0;
        self.index_bytes = bytes.len() as u64;
        repository.put(&self.index_file(), &bytes)?;
        let record = self.sign(key);
        let file = Self::file_of(self.version);
        match repository.put_if(&file, before, &record)? {
            true => Ok(()),
            false => Err(repository.contested(file)),
        }
    }

    /// Reads the record of a version; none if it was not trained.
    ///
    /// # Errors
    /// [`DiskError`], also if nobody who is trusted has signed it.
    pub fn find(
        source: &dyn Source,
        version: VersionId,
        trust: &Trust,
    ) -> Result<Option<Self>, DiskError> {
        let file = Self::file_of(version);
        let bytes_max = DISK_RECORD_BYTES_MAX;
        let bytes = match source.read_now(&file, Part::Whole { bytes_max }) {
            Err(SourceError { refusal, .. }) if refusal.is_not_found() => return Ok(None),
            bytes => bytes?,
        };
        let place = || format!("{file} at {}", source.place());
        let found: Self = signed::open_trusted(Kind::Training, &bytes, trust, place)?;
        let damaged = |damage| {
            let place = place();
            Err(DiskError::Damaged { place, damage })
        };
        if found.version != version {
            return damaged(Damage::Foreign);
        }
        if found.packs.len() > DISK_PACKS_MAX || !found.packs.iter().all(Pack::is_valid) {
            return damaged(Damage::Record);
        }
        Ok(Some(found))
    }

    /// Reads the index that is cut.
    ///
    /// # Errors
    /// [`DiskError`], also if it is not the one that is meant, or not one of the version's image.
    pub fn read_index(&self, source: &dyn Source, manifest: &Manifest) -> Result<Index, DiskError> {
        let index = self.read_any_index(source)?;
        self.of_image(source, index, manifest)
    }

    /// [`Self::read_index`], of whichever image it is: who has no manifest yet asks
    /// [`Self::of_image`] later.
    pub(super) fn read_any_index(&self, source: &dyn Source) -> Result<Index, DiskError> {
        let file = self.index_file();
        let most = Index::file_bytes(DISK_INDEX_CHUNKS_MAX);
        let bytes_max = self.index_bytes.min(most);
        let bytes = read_known(source, &file, Part::Whole { bytes_max }, self.index)?;
        Index::from_bytes(&bytes).map_err(|damage| self.damaged(source, damage))
    }

    /// The index, if it is one of the version's image.
    pub(super) fn of_image(
        &self,
        source: &dyn Source,
        index: Index,
        manifest: &Manifest,
    ) -> Result<Index, DiskError> {
        match index.image_bytes() == manifest.image_bytes {
            true => Ok(index),
            false => Err(self.damaged(source, Damage::Foreign)),
        }
    }

    fn damaged(&self, source: &dyn Source, damage: Damage) -> DiskError {
        DiskError::Damaged {
            place: format!("{} at {}", self.index_file(), source.place()),
            damage,
        }
    }
}

/// A version as it is to be read: cut as it was trained, if it was.
#[derive(Clone, Debug)]
pub struct Trained {
    /// The index to read.
    pub index: Arc<Index>,
    /// The packs of its profiles; none if it was not trained.
    pub packs: Vec<Pack>,
    /// From what the index was cut; none if it was not trained.
    pub uncut: Option<Manifest>,
}

impl Trained {
    /// Reads a version's index: the trained one, or where there is none that can be believed and
    /// read, the manifest's.
    ///
    /// # Errors
    /// [`DiskError`] of the manifest's index.
    pub fn open(
        source: &dyn Source,
        version: VersionId,
        manifest: &Manifest,
        trust: &Trust,
    ) -> Result<Self, DiskError> {
        let training = Training::find(source, version, trust);
        let trained = training.and_then(|training| {
            let Some(training) = training else {
                return Ok(None);
            };
            let index = Arc::new(training.read_index(source, manifest)?);
            let packs = training.packs;
            let uncut = Some(manifest.clone());
            Ok(Some(Self {
                index,
                packs,
                uncut,
            }))
        });
        match trained {
            Ok(Some(trained)) => return Ok(trained),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the version is read as it was not trained"),
        }
        Ok(Self {
            index: Arc::new(manifest.read_index(source)?),
            packs: Vec::new(),
            uncut: None,
        })
    }

    /// What the version can be fetched ahead by: the fronts of its packs, read all at once. One
    /// that cannot be read is left out. The profiles that are named are followed at once.
    #[must_use]
    pub fn foresight(&self, source: &dyn Source, follow: Vec<String>) -> Foresight {
        Fronts::read(source, &self.packs).foresight(follow)
    }
}

/// What the fronts of a version's packs say, with the time that each took.
pub(super) struct Fronts(Vec<(Plan, Duration)>);

impl Fronts {
    /// Reads them, all at once; those that cannot be read are left out.
    pub(super) fn read(source: &dyn Source, packs: &[Pack]) -> Self {
        let next = AtomicUsize::new(0);
        let read = || {
            let mut plans = Vec::new();
            while let Some(pack) = packs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let begun = Instant::now();
                match pack.read_front(source) {
                    Ok(front) => plans.push((Plan::of_pack(pack, &front), begun.elapsed())),
                    Err(error) => tracing::warn!(%error, "nothing is fetched ahead by this pack"),
                }
            }
            plans
        };
        let mut read: Vec<_> = thread::scope(|scope| {
            let readers = packs.len().min(READERS_MAX);
            let readers: Vec<_> = (0..readers).map(|_| scope.spawn(read)).collect();
            let plans = readers.into_iter().map(|reader| reader.join());
            plans.flat_map(Result::unwrap_or_default).collect()
        });
        // In the order of the packs, whoever was read first.
        let place = |plan: &Plan| packs.iter().position(|p| p.profile == plan.name());
        read.sort_by_key(|(plan, _)| place(plan));
        Self(read)
    }

    /// What an image is fetched ahead by; the profiles that are named are followed at once.
    pub(super) fn foresight(self, follow: Vec<String>) -> Foresight {
        Foresight {
            rtt: self.0.iter().map(|&(_, took)| took).min(),
            plans: self.0.into_iter().map(|(plan, _)| plan).collect(),
            follow,
            sequential: true,
            rest: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Directory;
    use expect_test::expect;

    fn training() -> Training {
        let pack = Pack {
            profile: "boot".into(),
            id: [3; 32],
            front_bytes: 15_000,
            bytes: 10_300_000,
        };
        let version = VersionId([2; 32]);
        let mut training = Training::new(version, None, 1_800_000_000, vec![pack]);
        (training.index, training.index_bytes) = ([1; 32], 179_864);
        training
    }

    #[test]
    fn a_training_has_the_bytes_that_it_had() {
        let key = SigningKey::from_seed(&[7; 32]);
        let line =
            |line: &[u8]| -> String { line.iter().map(|byte| format!("{byte:02x}")).collect() };
        let hex: Vec<_> = training().sign(&key).chunks(32).map(line).collect();
        expect![[r#"
            415a4b4449534b520100030075000000ea4a6c63e29c520abef5507b132ec5f9
            954776aebebe7b92421eea691446d22cf39602d4be80396cb523a28c9f25ea88
            a25604c9a97d520f741255ee871d8e0d9fafd6a20e03147d66d5731462768f59
            202f3676f0d5addcfcaac973762b2a0202020202020202020202020202020202
            0202020202020202020202020202020201010101010101010101010101010101
            010101010101010101010101010101010198fd0a0104626f6f74030303030303
            03030303030303030303030303030303030303030303030303039875e0d4f404
            80c8ceb40d"#]]
        .assert_eq(&hex.join("\n"));
    }

    #[test]
    fn a_training_is_believed_of_its_own_version_only() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join(TRAININGS)).unwrap();
        let source = Directory::new(directory.path());
        let key = SigningKey::from_seed(&[7; 32]);
        let trust = Trust::Keys(vec![key.public()]);
        let (own, other) = (VersionId([2; 32]), VersionId([9; 32]));
        let find = |version| Training::find(&source, version, &trust);
        let put = |version, training: &Training| {
            let path = source.path_of(&Training::file_of(version));
            std::fs::write(path, training.sign(&key)).unwrap();
        };
        assert_eq!(find(own).unwrap(), None);
        put(own, &training());
        put(other, &training());
        assert_eq!(find(own).unwrap(), Some(training()));
        let damage = |error: DiskError| match error {
            DiskError::Damaged { damage, .. } => damage,
            other => panic!("{other}"),
        };
        assert_eq!(damage(find(other).unwrap_err()), Damage::Foreign);
        let mut wrong = training();
        wrong.packs[0].front_bytes = wrong.packs[0].bytes + 1;
        put(own, &wrong);
        assert_eq!(damage(find(own).unwrap_err()), Damage::Record);
        let mut many = training();
        many.packs = vec![many.packs[0].clone(); DISK_PACKS_MAX + 1];
        put(own, &many);
        assert_eq!(damage(find(own).unwrap_err()), Damage::Record);
        let nobody = Training::find(&source, other, &Trust::Keys(Vec::new()));
        assert!(matches!(nobody, Err(DiskError::Untrusted { .. })));
    }

    #[test]
    fn an_index_of_another_image_is_not_taken_for_the_versions() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("indexes")).unwrap();
        let source = Directory::new(directory.path());
        let sizes = crate::index::ChunkSizes::fixed(8192);
        let chunks = [(8192, ChunkId([1; 32])), (9000, ChunkId([2; 32]))];
        let index = Index::new(Digest::Sha256, sizes, chunks).unwrap();
        let bytes = index.to_bytes();
        let mut training = training();
        training.index = Digest::Sha512Half.id_of(&bytes).0;
        training.index_bytes = bytes.len() as u64;
        std::fs::write(source.path_of(&training.index_file()), &bytes).unwrap();
        let manifest = |image_bytes| Manifest {
            image_bytes,
            index: [0; 32],
            index_bytes: 0,
            parents: Vec::new(),
            time: 0,
            new_bytes: 0,
            new_chunks: 0,
            note: String::new(),
        };
        assert_eq!(
            training.read_index(&source, &manifest(9000)).unwrap(),
            index
        );
        let other = training.read_index(&source, &manifest(9001));
        assert!(matches!(
            other,
            Err(DiskError::Damaged {
                damage: Damage::Foreign,
                ..
            })
        ));
    }
}
