//! A source of which each file is asked for once, as long as this is there.
//!
//! Who reads a repository for the first time looks at its records to see whose they are, and reads
//! them again when he believes that; who keeps files looks at each before it takes the place of
//! what is here. What was looked at is what is taken then, and not what is there a round trip
//! later. Chunks are not remembered: they have a cache.

use super::{Part, Reading, Source, SourceError, Wanted};
use crate::name::FileName;
use base::Extent;
use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module's head.
#[derive(Debug)]
pub struct Once {
    far: Arc<dyn Source>,
    bytes_max: u64,
    read: Mutex<Vec<Seen>>,
}

/// A file, or this part of it.
#[derive(Debug)]
struct Seen {
    file: FileName,
    extent: Option<Extent>,
    bytes: Bytes,
}

impl Once {
    /// What is longer than `bytes_max` is not remembered, so that it need not be in memory.
    #[must_use]
    pub fn new(far: Arc<dyn Source>, bytes_max: u64) -> Self {
        Self {
            far,
            bytes_max,
            read: Mutex::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remembered(&self, file: &FileName, part: Part) -> Option<Bytes> {
        let (extent, bytes_max) = match part {
            Part::Whole { bytes_max } => (None, bytes_max),
            Part::Extent(extent) => (Some(extent), u64::MAX),
        };
        let seen = self.seen();
        let is_it = |seen: &&Seen| seen.file == *file && seen.extent == extent;
        let bytes = seen.iter().find(is_it).map(|seen| seen.bytes.clone());
        bytes.filter(|bytes| bytes.len() as u64 <= bytes_max)
    }

    fn read_by(
        &self,
        file: &FileName,
        part: Part,
        read: impl FnOnce() -> Result<Bytes, SourceError>,
    ) -> Result<Bytes, SourceError> {
        if let Some(bytes) = self.remembered(file, part) {
            return Ok(bytes);
        }
        let bytes = read()?;
        if bytes.len() as u64 <= self.bytes_max {
            let extent = match part {
                Part::Whole { .. } => None,
                Part::Extent(extent) => Some(extent),
            };
            self.seen().push(Seen {
                file: file.clone(),
                extent,
                bytes: bytes.clone(),
            });
        }
        Ok(bytes)
    }
}

impl Source for Once {
    fn read<'a>(&'a self, file: &'a FileName, wanted: Wanted) -> Reading<'a> {
        self.far.read(file, wanted)
    }

    fn read_now(&self, file: &FileName, part: Part) -> Result<Bytes, SourceError> {
        self.read_by(file, part, || self.far.read_now(file, part))
    }

    fn read_at_once(&self, file: &FileName, part: Part) -> Result<Bytes, SourceError> {
        self.read_by(file, part, || self.far.read_at_once(file, part))
    }

    /// It is asked for again.
    fn doubt(&self, file: &FileName) {
        self.seen().retain(|seen| seen.file != *file);
        self.far.doubt(file);
    }

    fn gives_parts(&self) -> bool {
        self.far.gives_parts()
    }

    fn place(&self) -> String {
        self.far.place()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Directory;
    use std::fs;

    #[test]
    fn what_was_read_is_as_it_was_until_it_is_doubted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tag");
        let far = Arc::new(Directory::new(directory.path()));
        let once = Once::new(far, 100);
        let name = FileName::new("tag").unwrap();
        let whole = |bytes_max| once.read_now(&name, Part::Whole { bytes_max });
        let part = |first, len| once.read_now(&name, Part::Extent(Extent::new(first, len)));
        assert!(whole(50).unwrap_err().refusal.is_not_found());
        fs::write(&path, "before").unwrap();
        assert_eq!(
            (whole(50).unwrap(), part(0, 3).unwrap()),
            ("before".into(), "bef".into())
        );
        fs::write(&path, "after").unwrap();
        assert_eq!(
            (whole(60).unwrap(), part(0, 3).unwrap()),
            ("before".into(), "bef".into())
        );
        let at_once = once.read_at_once(&name, Part::Whole { bytes_max: 6 });
        assert_eq!(at_once.unwrap(), "before");
        // Neither another part, nor more than is wanted.
        assert_eq!(part(1, 3).unwrap(), "fte");
        assert_eq!(whole(5).unwrap(), "after");
        once.doubt(&name);
        assert_eq!(
            (whole(50).unwrap(), part(0, 3).unwrap()),
            ("after".into(), "aft".into())
        );
        // What is long is not remembered.
        once.doubt(&name);
        fs::write(&path, [b'x'; 200]).unwrap();
        assert_eq!(whole(1000).unwrap().len(), 200);
        fs::write(&path, "short").unwrap();
        assert_eq!(whole(1000).unwrap(), "short");
    }
}
