//! Opening a version in few steps of asking: a machine that is far away waits for each of them.
//!
//! ```text
//! tag -> training -> the index that is cut, fronts of packs
//!     -> manifest
//! ```
//!
//! A step needs the one before only for names: what is known by name is asked for at once. It is
//! believed no earlier for that, and by nobody else: a training is one that somebody who is trusted
//! has signed for this version, its index and its fronts have the digests that it says, and nothing
//! of it is used before the manifest is there and the index is one of its image. Without a training
//! that can be believed and read, the manifest's index is read in a step of its own.

use super::record::{Fronts, Trained, Training};
use crate::ahead::Foresight;
use crate::error::DiskError;
use crate::index::Index;
use crate::manifest::{Manifest, VersionId};
use crate::signed::Trust;
use crate::source::Source;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// All that a training leads to, of whichever image it is.
struct Reading {
    training: Training,
    index: Index,
    fronts: Fronts,
    /// How long its record took: one request on a connection that there was.
    rtt: Duration,
}

impl Trained {
    /// Reads a version, and what it can be fetched ahead by, in two steps of asking: what
    /// [`Manifest::read`], [`Self::open`] and [`Self::foresight`] read one after the other. The
    /// profiles that are named are followed at once.
    ///
    /// # Errors
    /// [`DiskError`] of the manifest, or of its index if that is needed.
    pub fn open_at_once(
        source: &dyn Source,
        version: VersionId,
        trust: &Trust,
        follow: Vec<String>,
    ) -> Result<(Self, Foresight), DiskError> {
        let (manifest, reading) = thread::scope(|scope| {
            let manifest = scope.spawn(|| Manifest::read(source, version, trust));
            let reading = Reading::of(source, version, trust);
            (
                manifest.join().unwrap_or_else(|why| resume_unwind(why)),
                reading,
            )
        });
        let manifest = manifest?;
        let trained = reading.and_then(|reading| {
            let fitting = reading.map(|reading| reading.of_image(source, &manifest, &follow));
            fitting.transpose()
        });
        match trained {
            Ok(Some(trained)) => return Ok(trained),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the version is read as it was not trained"),
        }
        let plain = Self {
            index: Arc::new(manifest.read_index(source)?),
            packs: Vec::new(),
            uncut: None,
        };
        let foresight = plain.foresight(source, follow);
        Ok((plain, foresight))
    }
}

impl Reading {
    /// Reads a version's training, and then its index and the fronts of its packs all at once; none
    /// if it was not trained.
    fn of(
        source: &dyn Source,
        version: VersionId,
        trust: &Trust,
    ) -> Result<Option<Self>, DiskError> {
        let begun = Instant::now();
        let Some(training) = Training::find(source, version, trust)? else {
            return Ok(None);
        };
        let rtt = begun.elapsed();
        let (index, fronts) = thread::scope(|scope| {
            let fronts = scope.spawn(|| Fronts::read(source, training.packs()));
            let index = training.read_any_index(source);
            (
                index,
                fronts.join().unwrap_or_else(|why| resume_unwind(why)),
            )
        });
        Ok(Some(Self {
            index: index?,
            training,
            fronts,
            rtt,
        }))
    }

    /// The version as it is to be read, if all of this is of its image.
    fn of_image(
        self,
        source: &dyn Source,
        manifest: &Manifest,
        follow: &[String],
    ) -> Result<(Trained, Foresight), DiskError> {
        let index = self.training.of_image(source, self.index, manifest)?;
        let mut foresight = self.fronts.foresight(follow.to_vec());
        // A front that came over a new connection took longer.
        foresight.rtt = foresight.rtt.map(|rtt| rtt.min(self.rtt));
        let trained = Trained {
            index: Arc::new(index),
            packs: self.training.packs().to_vec(),
            uncut: Some(manifest.clone()),
        };
        Ok((trained, foresight))
    }
}
