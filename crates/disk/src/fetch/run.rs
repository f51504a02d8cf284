//! Several chunks by one request: a run of a pack.
//!
//! Chunks of the run that another process fetches, or has fetched, are left to it. If the run does
//! not come, or some of its chunks are not what they should be, these are fetched one by one, as if
//! there were no pack; whoever waits for one of them waits a little longer and gets it.

use super::{Claim, Keeping, Landing, add, locked};
use crate::cache::FetchLock;
use crate::chunk::unpack;
use crate::name::FileName;
use crate::source::{Source, Wanted};
use base::Extent;
use bytes::Bytes;
use std::sync::Arc;

/// Chunks that lie beside each other, or nearly, in one file.
pub(crate) struct Run {
    pub(crate) file: FileName,
    /// With the place of each within the file, ascending.
    pub(crate) chunks: Vec<(Claim, Extent)>,
}

/// What came of a request that nobody waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Landed {
    /// Bytes, as they came.
    pub(crate) bytes: u64,
    /// Chunks that did not come with them.
    pub(crate) failed: usize,
}

/// A chunk of a run that is to be fetched here.
struct Own {
    landing: Landing,
    place: Extent,
    lock: Option<FetchLock>,
}

impl Run {
    /// From its first byte to its last.
    pub(crate) fn extent(&self) -> Extent {
        hull(self.chunks.iter().map(|(_, place)| *place))
    }

    /// Fetches it. `landed` is told what came, as soon as it has, before the cache has it.
    pub(crate) async fn fetch(self, source: Arc<dyn Source>, landed: impl FnOnce(Landed) + Send) {
        let chunks = self.chunks;
        let looking = move || look(chunks);
        let Ok((own, elsewhere)) = tokio::task::spawn_blocking(looking).await else {
            // The program ends, and the chunks' flights with it.
            return;
        };
        for landing in elsewhere {
            let source = Arc::clone(&source);
            tokio::spawn(async move { landing.fly(source, |_| ()).await });
        }
        let Some(first) = own.first() else {
            return landed(Landed::default());
        };
        add(&first.landing.shared.counts.runs, 1);
        let extent = hull(own.iter().map(|own| own.place));
        let failed = match source.read(&self.file, Wanted::extent(extent)).await {
            Err(error) => {
                tracing::warn!(%error, "its chunks are fetched one by one");
                let failed = own;
                landed(Landed {
                    bytes: 0,
                    failed: failed.len(),
                });
                failed
            }
            Ok(bytes) => {
                add(&first.landing.shared.counts.run_bytes, extent.len);
                let unpacking = move || unpack_all(own, extent.offset, &bytes);
                let unpacked = tokio::task::spawn_blocking(unpacking).await;
                let Ok((kept, failed)) = unpacked else {
                    return;
                };
                if !failed.is_empty() {
                    source.doubt(&self.file);
                }
                landed(Landed {
                    bytes: extent.len,
                    failed: failed.len(),
                });
                // If the program ends meanwhile, they are not kept.
                let _ = tokio::task::spawn_blocking(move || keep_all(kept)).await;
                failed
            }
        };
        for own in failed {
            let source = Arc::clone(&source);
            tokio::spawn(async move { own.landing.fetch(source, own.lock, |_| ()).await });
        }
    }
}

fn hull(mut places: impl Iterator<Item = Extent>) -> Extent {
    let first = places.next().unwrap_or_default();
    places.fold(first, |hull, place| {
        Extent::between(hull.offset.min(place.offset), hull.end().max(place.end()))
    })
}

/// Which chunks are to be fetched here, and which another process fetches.
fn look(chunks: Vec<(Claim, Extent)>) -> (Vec<Own>, Vec<Landing>) {
    let (mut own, mut elsewhere) = (Vec::new(), Vec::new());
    for (Claim(landing), place) in chunks {
        let lock = match landing.shared.look(&landing.spec) {
            Some((_, Some(bytes))) => {
                landing.end_with_cached(bytes);
                continue;
            }
            Some((Ok(None), None)) => {
                elsewhere.push(landing);
                continue;
            }
            Some((Ok(lock), None)) => lock,
            // An error of the cache must not keep anybody from reading.
            Some((Err(_), None)) | None => None,
        };
        own.push(Own {
            landing,
            place,
            lock,
        });
    }
    (own, elsewhere)
}

/// A chunk that was delivered, for the cache.
struct Kept {
    own: Own,
    packed: Bytes,
    _keeping: Keeping,
}

/// Delivers the chunks; says which are to be kept, and which were not what they should be.
fn unpack_all(all: Vec<Own>, offset: u64, bytes: &Bytes) -> (Vec<Kept>, Vec<Own>) {
    let (mut kept, mut failed) = (Vec::new(), Vec::new());
    for own in all {
        let start = (own.place.offset - offset) as usize;
        let packed = bytes.slice(start..start + own.place.len as usize);
        let landing = &own.landing;
        match unpack(&landing.spec, &packed) {
            Ok(unpacked) => {
                add(&landing.shared.counts.from_runs, 1);
                add(&landing.shared.counts.inflated_bytes, unpacked.len() as u64);
                let keeping = Keeping::begin(&landing.shared);
                landing.end(Ok(unpacked));
                kept.push(Kept {
                    own,
                    packed,
                    _keeping: keeping,
                });
            }
            Err(damage) => {
                let chunk = landing.spec.id;
                tracing::warn!(%chunk, %damage, "a chunk of a pack is fetched by itself");
                failed.push(own);
            }
        }
    }
    (kept, failed)
}

fn keep_all(all: Vec<Kept>) {
    for kept in all {
        let landing = &kept.own.landing;
        debug_assert!(locked(&landing.flight.outcome).is_some());
        landing.shared.keep(&landing.spec.id, &kept.packed);
        // Its lock goes after that.
    }
}
