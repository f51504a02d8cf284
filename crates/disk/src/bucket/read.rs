//! A bucket as a source.

use super::{Bucket, reason};
use crate::name::FileName;
use crate::source::{Part, Reading, Refusal, Source, SourceError, Wanted};
use base::limits::DISK_TRIES_MAX;
use bytes::Bytes;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt};

impl Bucket {
    async fn read_file(&self, file: &FileName, part: Part) -> Result<Bytes, Refusal> {
        let permit = self.shared.permits.acquire().await;
        let read = match part {
            Part::Whole { bytes_max } => self.read_whole(file, bytes_max).await,
            Part::Extent(extent) if extent.is_empty() => Ok(Bytes::new()),
            Part::Extent(extent) => self.read_extent(file, extent).await,
        };
        drop(permit);
        read
    }

    async fn read_whole(&self, file: &FileName, bytes_max: u64) -> Result<Bytes, Refusal> {
        let path = self.shared.path_of(file);
        let found = self.shared.reader.get(&path).await.map_err(refusal)?;
        // As long as the server says: what comes behind that is not read.
        if found.meta.size > bytes_max {
            return Err(Refusal::TooLong { bytes_max });
        }
        found.bytes().await.map_err(refusal)
    }

    async fn read_extent(&self, file: &FileName, extent: base::Extent) -> Result<Bytes, Refusal> {
        let path = self.shared.path_of(file);
        let range = GetRange::Bounded(extent.offset..extent.end());
        let options = GetOptions {
            range: Some(range),
            ..GetOptions::default()
        };
        let found = match self.shared.reader.get_opts(&path, options).await {
            Ok(found) if found.meta.size < extent.end() => {
                return Err(Refusal::TooShort(extent));
            }
            Ok(found) => found,
            Err(error) => {
                // Behind its end there is an error that does not say so.
                let length = self.shared.reader.head(&path).await;
                return match length {
                    Ok(meta) if meta.size < extent.end() => Err(Refusal::TooShort(extent)),
                    _ => Err(refusal(error)),
                };
            }
        };
        let bytes = found.bytes().await.map_err(refusal)?;
        match bytes.len() as u64 == extent.len {
            true => Ok(bytes),
            false => Err(Refusal::TooShort(extent)),
        }
    }

    fn refused(&self, file: &FileName, refusal: Refusal) -> SourceError {
        SourceError {
            file: file.clone(),
            place: self.shared.place.clone(),
            refusal,
        }
    }
}

fn refusal(error: Error) -> Refusal {
    match &error {
        Error::NotFound { .. } => Refusal::NotFound,
        Error::Unauthenticated { .. } => Refusal::Status(401),
        Error::PermissionDenied { .. } => Refusal::Status(403),
        Error::Generic { .. } => Refusal::Unavailable {
            reason: reason(&error),
            tries: DISK_TRIES_MAX,
        },
        _ => Refusal::Failed(reason(&error)),
    }
}

impl Source for Bucket {
    fn read<'a>(&'a self, file: &'a FileName, wanted: Wanted) -> Reading<'a> {
        Box::pin(async move {
            let read = self.read_file(file, wanted.part).await;
            read.map_err(|refusal| self.refused(file, refusal))
        })
    }

    fn read_now(&self, file: &FileName, part: Part) -> Result<Bytes, SourceError> {
        let (bucket, name) = (self.clone(), file.clone());
        let read = self.wait(async move { Ok(bucket.read_file(&name, part).await) });
        let read = read.unwrap_or_else(|error| Err(refusal(error)));
        read.map_err(|refusal| self.refused(file, refusal))
    }

    fn place(&self) -> String {
        self.shared.place.clone()
    }
}
