//! A version as it was published, for chunks that were cut from it and are gone.
//!
//! A version can be trained again, and what nothing needs any more be collected, while machines
//! have its former index in memory. The bytes of the chunks that went are there still, in those
//! that the version itself needs. They are believed only if they are what the former index says.

use crate::chunk::{ChunkSpec, Digest};
use crate::fetch::Fetcher;
use crate::index::Index;
use crate::manifest::Manifest;
use crate::source::Source;
use base::Extent;
use bytes::Bytes;
use std::slice;
use std::sync::{Arc, OnceLock};

/// The version's manifest, with its index as soon as somebody needs that.
#[derive(Debug)]
pub(super) struct Uncut {
    manifest: Manifest,
    index: OnceLock<Index>,
}

impl Uncut {
    pub(super) fn new(manifest: Manifest) -> Self {
        Self {
            manifest,
            index: OnceLock::new(),
        }
    }

    /// The chunk that has these bytes of the image; none if they cannot be had, or are others.
    pub(super) fn chunk(
        &self,
        fetcher: &Fetcher,
        source: &Arc<dyn Source>,
        extent: Extent,
        (spec, digest): (&ChunkSpec, Digest),
    ) -> Option<Bytes> {
        let index = self.index(&**source)?;
        let zeros = index.zeros();
        let mut bytes = vec![0; extent.len as usize];
        for number in index.chunks_of(extent) {
            let (placed, of_version) = (index.chunk(number).extent, index.spec(number));
            if zeros.has(&of_version) {
                continue;
            }
            let chunk = fetcher.get(source, slice::from_ref(&of_version)).ok()?;
            let both = placed.intersection(extent);
            let from = &chunk.first()?[(both.offset - placed.offset) as usize..];
            let into = &mut bytes[(both.offset - extent.offset) as usize..][..both.len as usize];
            into.copy_from_slice(&from[..both.len as usize]);
        }
        (digest.id_of(&bytes) == spec.id).then(|| bytes.into())
    }

    fn index(&self, source: &dyn Source) -> Option<&Index> {
        if self.index.get().is_none() {
            match self.manifest.read_index(source) {
                // Somebody else may have been quicker.
                Ok(index) => drop(self.index.set(index)),
                Err(error) => tracing::warn!(%error, "the version is not read as published"),
            }
        }
        self.index.get()
    }
}
