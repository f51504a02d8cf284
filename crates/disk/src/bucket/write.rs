//! What is put into a bucket.

use super::Bucket;
use crate::error::DiskError;
use crate::name::FileName;
use bytes::Bytes;
use object_store::{
    Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
};
use std::io::{self, Write};
use std::sync::Arc;

/// Pieces of a long file; S3 takes none that are shorter.
const PIECE_BYTES: usize = 5 << 20;

/// By what it is known that a file is still the one that was there before.
#[derive(Clone, Debug)]
pub(crate) struct Stamp(Option<UpdateVersion>);

impl Bucket {
    /// Whether a file is there that has bytes.
    pub(crate) fn has(&self, file: &FileName) -> Result<bool, DiskError> {
        let length = self.length(file)?;
        Ok(length.is_some_and(|bytes| bytes > 0))
    }

    /// How many bytes a file has; none if it is not there.
    fn length(&self, file: &FileName) -> Result<Option<u64>, DiskError> {
        let (shared, path) = (Arc::clone(&self.shared), self.shared.path_of(file));
        match self.wait(async move { shared.reader.head(&path).await }) {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("look for", file.as_str(), &error)),
        }
    }

    /// The names of the files in a directory.
    pub(crate) fn names_in(&self, directory: &str) -> Result<Vec<String>, DiskError> {
        let (shared, path) = (Arc::clone(&self.shared), self.shared.path(directory));
        let listed = self.wait(async move { shared.reader.list_with_delimiter(Some(&path)).await });
        let listed = listed.map_err(|error| self.failed("list", directory, &error))?;
        let names = listed.objects.iter();
        let names = names.filter_map(|found| found.location.filename().map(str::to_owned));
        Ok(names.collect())
    }

    /// Puts a file whose name says what is in it. One that is there stays, unless it is of another
    /// length: empty, cut, or packed otherwise. Those who read it bear each of the two.
    pub(crate) fn put_immutable(&self, file: &FileName, bytes: Bytes) -> Result<(), DiskError> {
        let mode = match self.shared.is_conditional {
            true => PutMode::Create,
            false => PutMode::Overwrite,
        };
        match self.put(file, bytes.clone(), mode) {
            Err(Error::AlreadyExists { .. }) => match self.length(file)? {
                Some(length) if length == bytes.len() as u64 => Ok(()),
                _ => self.put_over(file, bytes),
            },
            put => put.map_err(|error| self.failed("write", file.as_str(), &error)),
        }
    }

    /// Puts a file, whatever was there.
    pub(crate) fn put_over(&self, file: &FileName, bytes: Bytes) -> Result<(), DiskError> {
        let put = self.put(file, bytes, PutMode::Overwrite);
        put.map_err(|error| self.failed("write", file.as_str(), &error))
    }

    /// What to say to [`Self::put_if`]; taken before the file is read.
    pub(crate) fn stamp(&self, file: &FileName) -> Result<Stamp, DiskError> {
        let (shared, path) = (Arc::clone(&self.shared), self.shared.path_of(file));
        match self.wait(async move { shared.reader.head(&path).await }) {
            Ok(meta) => Ok(Stamp(Some(UpdateVersion {
                e_tag: meta.e_tag,
                version: meta.version,
            }))),
            Err(Error::NotFound { .. }) => Ok(Stamp(None)),
            Err(error) => Err(self.failed("look at", file.as_str(), &error)),
        }
    }

    /// Puts a file if it is as it was; false if it is not.
    pub(crate) fn put_if(
        &self,
        file: &FileName,
        stamp: Stamp,
        bytes: Bytes,
    ) -> Result<bool, DiskError> {
        let mode = match stamp.0 {
            _ if !self.shared.is_conditional => PutMode::Overwrite,
            Some(version) => PutMode::Update(version),
            None => PutMode::Create,
        };
        match self.put(file, bytes, mode) {
            Ok(()) => Ok(true),
            Err(Error::Precondition { .. } | Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(self.failed("write", file.as_str(), &error)),
        }
    }

    /// Puts what another file has.
    pub(crate) fn copy(&self, from: &FileName, to: &FileName) -> Result<(), DiskError> {
        let shared = Arc::clone(&self.shared);
        let (source, target) = (self.shared.path_of(from), self.shared.path_of(to));
        let copied = self.wait(async move { shared.writer.copy(&source, &target).await });
        copied.map_err(|error| self.failed("write", to.as_str(), &error))
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, file: &FileName) -> Result<(), DiskError> {
        let (shared, path) = (Arc::clone(&self.shared), self.shared.path_of(file));
        match self.wait(async move { shared.writer.delete(&path).await }) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("remove", file.as_str(), &error)),
        }
    }

    fn put(&self, file: &FileName, bytes: Bytes, mode: PutMode) -> Result<(), Error> {
        let (shared, path) = (Arc::clone(&self.shared), self.shared.path_of(file));
        let options = PutOptions::from(mode);
        let put = async move { shared.writer.put_opts(&path, bytes.into(), options).await };
        self.wait(put).map(drop)
    }
}

/// A file that is put piece by piece. It is there once it is finished; dropped before, it never is.
pub(crate) struct Upload<'a> {
    bucket: &'a Bucket,
    file: &'a FileName,
    /// What has been written since the last piece.
    rest: Vec<u8>,
    begun: Option<Box<dyn MultipartUpload>>,
}

impl<'a> Upload<'a> {
    pub(crate) fn new(bucket: &'a Bucket, file: &'a FileName) -> Self {
        Self {
            bucket,
            file,
            rest: Vec::new(),
            begun: None,
        }
    }

    /// Puts what is left, and makes the file appear.
    pub(crate) fn finish(mut self) -> Result<(), DiskError> {
        let rest = std::mem::take(&mut self.rest);
        if self.begun.is_none() {
            return self.bucket.put_over(self.file, rest.into());
        }
        self.send(rest)
            .and_then(|()| {
                let mut upload = self.begun.take().expect("it has begun");
                self.bucket
                    .wait(async move { upload.complete().await.map(drop) })
            })
            .map_err(|error| self.bucket.failed("write", self.file.as_str(), &error))
    }

    fn send(&mut self, piece: Vec<u8>) -> Result<(), Error> {
        let mut upload = match self.begun.take() {
            Some(upload) => upload,
            None => {
                let shared = Arc::clone(&self.bucket.shared);
                let path = shared.path_of(self.file);
                let begin = async move { shared.writer.put_multipart(&path).await };
                self.bucket.wait(begin)?
            }
        };
        let sent = upload.put_part(piece.into());
        let sent = self.bucket.wait(sent);
        self.begun = Some(upload);
        sent
    }
}

impl Write for Upload<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        if self.rest.len() >= PIECE_BYTES {
            let piece = std::mem::take(&mut self.rest);
            self.send(piece).map_err(io::Error::other)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload<'_> {
    /// The server keeps pieces that nobody finishes or gives up.
    fn drop(&mut self) {
        if let Some(mut upload) = self.begun.take() {
            // What cannot be given up is the server's to collect.
            let _ = self.bucket.wait(async move { upload.abort().await });
        }
    }
}
