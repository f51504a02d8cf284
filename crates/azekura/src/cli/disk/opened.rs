//! A disk with the way its chunks take: repository, cache, memory; and what was written onto it.

use super::keys::Keys;
use super::overlay::Place as OverlayPlace;
use super::place::Image;
use crate::config::Config;
use crate::errors::{Code, Failure, Result};
use ::disk::{
    Cache, DiskError, Fetcher, Foresight, ImageDevice, Index, Overlay, Source, Tag, TagRecord,
    Trained, Trust, VersionId, keep, overlay,
};
use base::{BlockDevice, ByteSize, DeviceError};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Chunks that were used last are kept in so much memory, unpacked.
const MEMORY_BYTES_MAX: u64 = 32 << 20;
/// How long chunks that have come may take on their way into the cache when the program ends.
const KEEP_TIME_MAX: Duration = Duration::from_secs(10);

/// Where chunks are kept on this machine
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CacheArgs {
    /// Directory for chunks that were fetched, for all disks and processes that name it
    /// [default: ~/.cache/azekura/chunks]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// The most that it may have; what was used longest ago goes first
    #[arg(long, value_name = "SIZE", default_value = "16GiB")]
    cache_size: ByteSize,
    /// Ask nobody: use what is here, and what `azekura disk prefetch` has kept
    #[arg(long)]
    pub(super) offline: bool,
}

impl CacheArgs {
    /// The same, from whichever directory it is looked at.
    pub(super) fn absolute(self) -> Result<Self> {
        let absolute = |path: PathBuf| {
            std::path::absolute(&path).map_err(|error| Failure::local(path.display(), error))
        };
        Ok(Self {
            cache: self.cache.map(absolute).transpose()?,
            ..self
        })
    }

    /// As it is given to another process of this program.
    pub(super) fn arguments(&self) -> Vec<OsString> {
        let mut arguments = vec![format!("--cache-size={}", self.cache_size.0).into()];
        if let Some(cache) = &self.cache {
            arguments.extend(["--cache".into(), cache.into()]);
        }
        arguments.extend(self.offline.then(|| "--offline".into()));
        arguments
    }

    pub(super) fn open(&self, config: &Config) -> Result<Cache> {
        let path = self.cache.clone().unwrap_or_else(|| config.chunk_cache());
        Ok(Cache::open(path, self.cache_size.0)?)
    }
}

/// See the module's head.
pub(super) struct Opened {
    pub(super) version: VersionId,
    /// What the name points to now.
    pub(super) newest: VersionId,
    pub(super) index: Arc<Index>,
    pub(super) image: Arc<ImageDevice>,
    pub(super) overlay: Option<Arc<Overlay>>,
    pub(super) fetcher: Fetcher,
}

/// What is written onto a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing<'a> {
    /// Nothing.
    No,
    /// Into this overlay, which is made if it is not there.
    Into(&'a OverlayPlace),
    /// Into this overlay, which must be there.
    IntoFound(&'a OverlayPlace),
}

/// What is fetched of a disk before anybody asks for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ahead<'a> {
    /// The profiles of what is about to be done with it.
    pub(super) follow: &'a [String],
    /// All of it.
    pub(super) rest: bool,
}

/// A version as it is read.
struct Found {
    version: VersionId,
    newest: VersionId,
    trained: Trained,
    foresight: Foresight,
}

fn find(
    source: &dyn Source,
    name: &Tag,
    version: Option<VersionId>,
    trust: &Trust,
    follow: &[String],
) -> Result<Found, DiskError> {
    let newest = TagRecord::read(source, name, trust)?.version();
    let version = version.unwrap_or(newest);
    let opened = Trained::open_at_once(source, version, trust, follow.to_vec());
    let (trained, foresight) = opened?;
    Ok(Found {
        version,
        newest,
        trained,
        foresight,
    })
}

/// The repository with what is kept of it here, or that alone.
///
/// # Errors
/// Of the repository.
fn source_of(
    runtime: &Runtime,
    image: &Image,
    cache: &Cache,
    is_offline: bool,
) -> Result<Arc<dyn Source>> {
    let far = match is_offline {
        true => None,
        false => Some(image.place.source(runtime, &image.way)?),
    };
    Ok(Arc::new(keep::source(cache, &image.place.digest(), far)))
}

/// Opens the disk. If something is written onto it, it stays the version that it was when that
/// began.
///
/// # Errors
/// Of the repository, the cache, and the overlay; [`DiskError::NoProfile`].
pub(super) fn open(
    config: &Config,
    runtime: &Runtime,
    image: &Image,
    cache: &CacheArgs,
    writing: Writing<'_>,
    ahead: Ahead<'_>,
) -> Result<Opened> {
    let is_offline = cache.offline;
    let cache = cache.open(config)?;
    let source = source_of(runtime, image, &cache, is_offline)?;
    let mut keys = Keys::of(config, &image.place, &image.way)?;
    let path = match writing {
        Writing::No => None,
        Writing::Into(place) | Writing::IntoFound(place) => Some(place.file()),
    };
    let is_there = path.as_ref().is_some_and(|path| path.exists());
    if let (Writing::IntoFound(place), false) = (writing, is_there) {
        return Err(place.nothing_there(image));
    }
    let over = match &path {
        Some(path) if is_there => Some(overlay::is_over(path)?),
        _ => None,
    };
    let version = over.map(|(version, _)| version);
    let (name, follow) = (&image.name, ahead.follow);
    let found = keys.believing(|trust| find(&*source, name, version, trust, follow));
    let found = found.map_err(|failure| match version {
        // The name is there, but maybe not what the overlay is over.
        Some(version) if failure.code() == Code::DiskNotFound => {
            failure.leaving(format_args!("what was written is over version {version}"))
        }
        _ => failure,
    })?;
    let Trained { index, packs, .. } = &found.trained;
    let has = |name: &&String| packs.iter().any(|pack| pack.profile == **name);
    if let Some(unknown) = follow.iter().find(|name| !has(name)) {
        return Err(DiskError::NoProfile(unknown.clone()).into());
    }
    let fetcher = Fetcher::new(runtime.handle().clone(), Some(cache), MEMORY_BYTES_MAX);
    let foresight = Foresight {
        // Nobody is asked for what is not here.
        rest: ahead.rest && !is_offline,
        ..found.foresight
    };
    let device = ImageDevice::new(Arc::clone(index), source, fetcher.clone());
    let device = device.cut_from(found.trained.uncut.clone());
    let device = Arc::new(device.foreseen(foresight));
    let overlay = match path {
        None => None,
        Some(path) => {
            if !is_there {
                overlay::create_unless_there(&path, device.len_bytes(), found.version)?;
            }
            let base: Arc<dyn BlockDevice> = device.clone();
            Some(Arc::new(overlay::open(&path, base, found.version)?))
        }
    };
    Ok(Opened {
        version: found.version,
        newest: found.newest,
        index: found.trained.index,
        image: device,
        overlay,
        fetcher,
    })
}

impl Opened {
    /// What programs see.
    pub(super) fn device(&self) -> Arc<dyn BlockDevice> {
        match &self.overlay {
            Some(overlay) => overlay.clone(),
            None => self.image.clone(),
        }
    }

    /// Bytes that were written onto it, in whole blocks.
    pub(super) fn changed_bytes(&self) -> u64 {
        let overlay = self.overlay.as_ref();
        overlay.map_or(0, |overlay| overlay.changed().bytes())
    }

    /// Makes durable what was written, and lets chunks reach the cache: before the program ends.
    ///
    /// # Errors
    /// [`Code::DiskUnwritten`].
    pub(super) fn finish(&self) -> Result<()> {
        let flushed = self.overlay.as_ref().map(|overlay| overlay.flush());
        if !self.fetcher.finish(KEEP_TIME_MAX) {
            tracing::warn!("some chunks did not get into the cache in time");
        }
        let (counts, uses) = (self.fetcher.counts(), self.image.uses());
        let ahead = self.image.ahead_counts();
        tracing::info!(?counts, ?uses, ?ahead, "where chunks came from");
        match flushed {
            Some(Err(error)) => Err(unwritten(error)),
            _ => Ok(()),
        }
    }

    /// How it was used since it was opened, as `disk detach --json` has it. What is written onto
    /// it, and read from there, is not the image's.
    pub(super) fn used(&self) -> Value {
        let (counts, uses) = (self.fetcher.counts(), self.image.uses());
        let ahead = self.image.ahead_counts();
        json!({
            "reads": uses.reads,
            "read_bytes": uses.asked_bytes,
            "asked_bytes": uses.touched_bytes,
            "chunk_bytes": uses.inflated_bytes,
            "fill_rate": uses.fill_rate(),
            "waits": uses.waits,
            "wait_seconds": uses.wait_time.as_secs_f64(),
            "requests": counts.fetched + counts.runs,
            "fetched_bytes": counts.fetched_bytes + counts.run_bytes,
            "from_cache": counts.from_cache,
            "ahead_chunks": ahead.chunks,
            "ahead_used_chunks": ahead.used_chunks,
        })
    }
}

/// A flush at the end has failed.
fn unwritten(error: DeviceError) -> Failure {
    let why = Failure::from(error);
    let message = format!(
        "what was written since the last flush is not safe: {}",
        why.message()
    );
    Failure::new(Code::DiskUnwritten, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{DeviceAction, Extent};

    #[test]
    fn a_failed_flush_is_not_called_a_failed_device() {
        let error = DeviceError::Failed {
            action: DeviceAction::Flush,
            extent: Extent::default(),
            source: std::io::Error::from_raw_os_error(5),
        };
        let failure = unwritten(error);
        assert_eq!(failure.code(), Code::DiskUnwritten);
        let why = "not safe: the device could not be flushed: input/output error";
        assert!(failure.message().ends_with(why), "{failure}");
    }
}
