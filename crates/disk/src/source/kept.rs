//! A repository with the files of it that are kept here.
//!
//! Files that never change are read here first: their names say what they must be, so they lie
//! together with those of other repositories. Tags and trainings change, and are another
//! repository's under the same name; they are read far away, and here, in a directory of their own,
//! if nobody answers there. Chunks are not kept here but in the cache, where they are looked for
//! before anybody asks a source.

use super::{Directory, Part, Reading, Refusal, Source, SourceError, Wanted};
use crate::chunk::Digest;
use crate::name::{CHUNKS, FileName};
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::Arc;

/// What is kept of a repository, and the repository, if there is a network.
#[derive(Clone, Debug)]
pub struct Kept {
    /// What never changes, of all repositories.
    near: Directory,
    /// What changes, of this one.
    own: Directory,
    far: Option<Arc<dyn Source>>,
}

impl Kept {
    /// With the files below these directories: `near` has what never changes, `own` the tags and
    /// trainings of this repository. Without `far`, nobody else is asked.
    #[must_use]
    pub fn new(near: Directory, own: Directory, far: Option<Arc<dyn Source>>) -> Self {
        Self { near, own, far }
    }

    fn directory_of(&self, file: &FileName) -> &Directory {
        match is_immutable(file) {
            true => &self.near,
            false => &self.own,
        }
    }

    /// Where a file is kept.
    pub(crate) fn path_of(&self, file: &FileName) -> PathBuf {
        self.directory_of(file).path_of(file)
    }

    /// What is here, if it is what its name says.
    fn near(&self, file: &FileName, part: Part) -> Result<Bytes, SourceError> {
        let bytes = self.directory_of(file).read_now(file, part)?;
        if name_fits(file, &bytes) {
            return Ok(bytes);
        }
        Err(self.refused(file, "what is kept is damaged"))
    }

    fn refused(&self, file: &FileName, reason: &str) -> SourceError {
        SourceError {
            file: file.clone(),
            place: match &self.far {
                Some(far) => far.place(),
                None => self.directory_of(file).place(),
            },
            refusal: Refusal::Failed(reason.to_owned()),
        }
    }
}

/// Whether a file never changes.
fn is_immutable(file: &FileName) -> bool {
    ["versions/", "indexes/", "packs/"]
        .iter()
        .any(|directory| file.as_str().starts_with(directory))
}

/// Whether a file has the digest that its name says; of a pack, the front that is kept.
fn name_fits(file: &FileName, bytes: &[u8]) -> bool {
    if !is_immutable(file) {
        return true;
    }
    let name = file.as_str().rsplit('/').next();
    let id = name.and_then(|name| name.split('.').next());
    id.is_some_and(|id| id == Digest::Sha512Half.id_of(bytes).to_string())
}

impl Source for Kept {
    fn read<'a>(&'a self, file: &'a FileName, wanted: Wanted) -> Reading<'a> {
        Box::pin(async move {
            let is_chunk = file.as_str().starts_with(CHUNKS);
            match &self.far {
                Some(far) if is_chunk => far.read(file, wanted).await,
                None if is_chunk => Err(self.refused(file, "it is not kept here")),
                _ => {
                    let (kept, name) = (self.clone(), file.clone());
                    let reading = move || kept.read_now(&name, wanted.part);
                    let read = tokio::task::spawn_blocking(reading).await;
                    read.unwrap_or_else(|error| Err(self.refused(file, &error.to_string())))
                }
            }
        })
    }

    fn read_now(&self, file: &FileName, part: Part) -> Result<Bytes, SourceError> {
        let Some(far) = &self.far else {
            return self.near(file, part);
        };
        if is_immutable(file) {
            return self.near(file, part).or_else(|_| far.read_now(file, part));
        }
        match far.read_now(file, part) {
            Err(error) if !error.refusal.is_not_found() => self.near(file, part).map_err(|_| error),
            answer => answer,
        }
    }

    fn doubt(&self, file: &FileName) {
        if let Some(far) = &self.far {
            far.doubt(file);
        }
    }

    fn gives_parts(&self) -> bool {
        self.far.as_ref().is_none_or(|far| far.gives_parts())
    }

    fn place(&self) -> String {
        match &self.far {
            Some(far) => far.place(),
            None => self.own.place(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    fn put(directory: &Path, name: &str, bytes: &[u8]) {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn what_never_changes_is_read_here_and_what_changes_far_away() {
        let [near, own, far] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let version = format!("versions/{}.azm", Digest::Sha512Half.id_of(b"good"));
        let pack = format!("packs/{}.azp", Digest::Sha512Half.id_of(b"front"));
        for directory in [near.path(), far.path()] {
            put(directory, &version, b"good");
        }
        put(own.path(), "tags/a@b.azt", b"old");
        put(near.path(), "tags/a@b.azt", b"another repository's");
        put(near.path(), &pack, b"front");
        put(far.path(), "tags/a@b.azt", b"new");
        let far_source: Arc<dyn Source> = Arc::new(Directory::new(far.path()));
        let kept = |far| Kept::new(Directory::new(near.path()), Directory::new(own.path()), far);
        let (with, without) = (kept(Some(far_source)), kept(None));
        let read = |kept: &Kept, name: &str, part| {
            let read = kept.read_now(&FileName::new(name).unwrap(), part);
            read.map_err(|error| error.refusal)
        };
        let whole = Part::Whole { bytes_max: 100 };
        assert_eq!(read(&with, "tags/a@b.azt", whole).unwrap(), "new");
        assert_eq!(read(&without, "tags/a@b.azt", whole).unwrap(), "old");
        let front = Part::Extent(base::Extent::new(0, 5));
        assert_eq!(read(&with, &pack, front).unwrap(), "front");
        // What is gone far away is gone.
        fs::remove_file(far.path().join("tags/a@b.azt")).unwrap();
        assert_eq!(read(&with, "tags/a@b.azt", whole), Err(Refusal::NotFound));
        // Damage here is put right from there, or said.
        put(near.path(), &version, b"evil");
        assert_eq!(read(&with, &version, whole).unwrap(), "good");
        assert!(matches!(
            read(&without, &version, whole),
            Err(Refusal::Failed(_))
        ));
    }
}
