//! A repository with its key, images, and a naive reader.

use disk::chunk::unpack;
use disk::source::Part;
use disk::{
    FileName, Index, Manifest, Published, Publishing, Repository, SigningKey, Tag, TagRecord,
    Trust, VersionId, publish,
};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A moment of publication.
pub(crate) const TIME: i64 = 1_800_000_000;
pub(crate) const KIB: u64 = 1 << 10;

pub(crate) struct Scene {
    pub(crate) directory: TempDir,
    pub(crate) repository: Repository,
    pub(crate) key: SigningKey,
}

pub(crate) fn tag(text: &str) -> Tag {
    text.parse().unwrap()
}

impl Scene {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let repository = Repository::create(directory.path().join("images")).unwrap();
        let key = SigningKey::open_or_create(&directory.path().join("key")).unwrap();
        Self {
            directory,
            repository,
            key,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where the repository is.
    pub(crate) fn images(&self) -> PathBuf {
        self.path("images")
    }

    pub(crate) fn trust(&self) -> Trust {
        Trust::Keys(vec![self.key.public()])
    }

    /// A file with this content.
    pub(crate) fn image(&self, content: &[u8]) -> PathBuf {
        let path = self.path("image.raw");
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn how(name: &str) -> Publishing {
        Publishing {
            chunk_bytes: 64 << 10,
            ..Publishing::new(tag(name), TIME)
        }
    }

    pub(crate) fn publish(&self, image: &Path, how: &Publishing) -> Published {
        publish(&self.repository, image, how, &self.key, &|_| {}).unwrap()
    }

    /// Publishes some bytes.
    pub(crate) fn put(&self, name: &str, content: &[u8]) -> Published {
        self.publish(&self.image(content), &Self::how(name))
    }

    pub(crate) fn version(&self, name: &str) -> VersionId {
        let record = TagRecord::read(self.repository.source(), &tag(name), &self.trust());
        record.unwrap().version()
    }

    pub(crate) fn manifest(&self, name: &str) -> Manifest {
        let source = self.repository.source();
        Manifest::read(source, self.version(name), &self.trust()).unwrap()
    }

    pub(crate) fn index(&self, name: &str) -> Index {
        let manifest = self.manifest(name);
        manifest.read_index(self.repository.source()).unwrap()
    }

    /// The whole image, chunk by chunk.
    pub(crate) fn content(&self, name: &str) -> Vec<u8> {
        let index = self.index(name);
        let mut content = Vec::new();
        for number in 0..index.chunk_count() {
            let spec = index.spec(number);
            let part = Part::Whole { bytes_max: 1 << 20 };
            let file = FileName::of_chunk(&spec.id);
            let packed = self.repository.source().read_now(&file, part).unwrap();
            content.extend_from_slice(&unpack(&spec, &packed).unwrap());
        }
        content
    }

    /// How many files there are below a directory of the repository.
    pub(crate) fn files(&self, below: &str) -> usize {
        count(&self.images().join(below))
    }
}

fn count(directory: &Path) -> usize {
    fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                count(&entry.path())
            } else {
                1
            }
        })
        .sum()
}

/// Bytes that compress a little and repeat nowhere.
pub(crate) fn noise(seed: u64, len: u64) -> Vec<u8> {
    let mut random = sim::Random::new(seed);
    (0..len).map(|_| random.below(200) as u8).collect()
}

/// A sparse file: a length and some pieces of data.
pub(crate) fn sparse(path: &Path, len: u64, pieces: &[(u64, &[u8])]) {
    let file = File::create(path).unwrap();
    file.set_len(len).unwrap();
    for (offset, bytes) in pieces {
        file.write_all_at(bytes, *offset).unwrap();
    }
}
