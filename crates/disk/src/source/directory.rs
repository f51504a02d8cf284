//! A repository in a local directory.

use super::{Part, Reading, Refusal, Source, SourceError, Wanted};
use crate::name::FileName;
use base::Extent;
use bytes::Bytes;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Files below a directory. Reading does not change anything there.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The files below `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where a file is.
    #[must_use]
    pub fn path_of(&self, file: &FileName) -> PathBuf {
        self.path.join(file.as_str())
    }
}

fn refusal_of(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Refusal::NotFound,
        _ => Refusal::Failed(error.to_string()),
    }
}

fn read(path: &Path, part: Part) -> io::Result<Result<Bytes, Refusal>> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(Err(Refusal::NotFound));
    }
    match part {
        Part::Whole { bytes_max } => {
            let length = file.metadata()?.len();
            if length > bytes_max {
                return Ok(Err(Refusal::TooLong { bytes_max }));
            }
            let mut bytes = Vec::with_capacity(length as usize);
            // It may grow while it is read.
            file.take(bytes_max.saturating_add(1))
                .read_to_end(&mut bytes)?;
            if bytes.len() as u64 > bytes_max {
                return Ok(Err(Refusal::TooLong { bytes_max }));
            }
            Ok(Ok(bytes.into()))
        }
        Part::Extent(extent) => read_extent(&file, extent),
    }
}

fn read_extent(file: &File, extent: Extent) -> io::Result<Result<Bytes, Refusal>> {
    if file.metadata()?.len() < extent.end() {
        return Ok(Err(Refusal::TooShort(extent)));
    }
    let mut bytes = vec![0; extent.len as usize];
    match file.read_exact_at(&mut bytes, extent.offset) {
        Ok(()) => Ok(Ok(bytes.into())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Ok(Err(Refusal::TooShort(extent)))
        }
        Err(error) => Err(error),
    }
}

impl Source for Directory {
    fn read<'a>(&'a self, file: &'a FileName, wanted: Wanted) -> Reading<'a> {
        let (directory, name) = (self.clone(), file.clone());
        Box::pin(async move {
            let reading = move || directory.read_now(&name, wanted.part);
            let read = tokio::task::spawn_blocking(reading).await;
            read.unwrap_or_else(|error| {
                Err(SourceError {
                    file: file.clone(),
                    place: self.place(),
                    refusal: Refusal::Failed(error.to_string()),
                })
            })
        })
    }

    fn read_now(&self, file: &FileName, part: Part) -> Result<Bytes, SourceError> {
        let refused = |refusal| SourceError {
            file: file.clone(),
            place: self.place(),
            refusal,
        };
        read(&self.path_of(file), part)
            .unwrap_or_else(|error| Err(refusal_of(&error)))
            .map_err(refused)
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_whole_and_in_part_and_never_longer_than_wanted() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("f"), b"0123456789").unwrap();
        std::fs::create_dir(directory.path().join("d")).unwrap();
        let source = Directory::new(directory.path());
        let read = |name: &str, part| {
            let read = source.read_now(&FileName::new(name).unwrap(), part);
            read.map_err(|error| error.refusal)
        };
        let whole = |bytes_max| Part::Whole { bytes_max };
        let extent = |offset, len| Part::Extent(Extent::new(offset, len));
        assert_eq!(read("f", whole(10)).unwrap(), "0123456789");
        assert_eq!(read("f", extent(3, 4)).unwrap(), "3456");
        assert_eq!(read("f", extent(10, 0)).unwrap(), "");
        let too_long = Refusal::TooLong { bytes_max: 9 };
        assert_eq!(read("f", whole(9)), Err(too_long));
        let too_short = Refusal::TooShort(Extent::new(9, 2));
        assert_eq!(read("f", extent(9, 2)), Err(too_short));
        for missing in ["g", "d", "f/g"] {
            assert_eq!(read(missing, whole(9)), Err(Refusal::NotFound), "{missing}");
        }
    }
}
