//! Where the names of a parallel volume lie.
//!
//! A manager that is alone has an engine for each volume, a file of its data directory, and takes
//! a seat in it as anybody would. Several managers have one engine for all volumes; who leads
//! changes them all, guarded by that one seat.

use crate::lead::Lead;
use base::VolumeId;
use meta::namespace::{self, NamespaceError, NamespaceOptions};
use meta::{Embedded, Engine, Leadership, MetaError, campaign};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The seat of whoever changes a volume, in the volume's own engine.
const SEAT: &str = "names";
/// How long one campaign for the seat lasts.
const CAMPAIGN_TIME: Duration = Duration::from_secs(5);
/// How long the last run may take to leave its file, and how often that is looked at.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(5);
const LEAVE_LOOK_TIME: Duration = Duration::from_millis(20);

/// Where to look for the names of volumes.
#[derive(Clone, Copy)]
pub(crate) enum NamesPlace<'a> {
    /// A data directory.
    Directory(&'a Path),
    /// With the other managers.
    Shared(&'a Arc<Lead>),
}

/// An engine with the names of one volume, or of all, and a seat in it.
pub(crate) struct Names {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) seat: Arc<Leadership>,
    /// If it is the volume's own: the engine, and its file.
    own: Option<(Arc<Embedded>, PathBuf)>,
}

impl Names {
    /// Opens the engine and takes the seat.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) async fn open(
        place: NamesPlace<'_>,
        volume: VolumeId,
        holder: &str,
    ) -> Result<Self, MetaError> {
        let directory = match place {
            NamesPlace::Directory(directory) => directory.join("names"),
            NamesPlace::Shared(lead) => {
                return Ok(Self {
                    engine: lead.engine.clone(),
                    seat: lead.seat.clone(),
                    own: None,
                });
            }
        };
        let made = std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory);
        made.map_err(|error| MetaError::Unavailable(error.to_string()))?;
        let path = directory.join(format!("{volume}.redb"));
        let engine = open_engine(&path).await?;
        let seat = campaign(&*engine, SEAT, holder, CAMPAIGN_TIME).await?;
        Ok(Self {
            engine: engine.clone(),
            seat: Arc::new(seat),
            own: Some((engine, path)),
        })
    }

    /// How a namespace is opened here.
    pub(crate) fn options(&self, volume: VolumeId, key: [u8; 32]) -> NamespaceOptions {
        let mut options = NamespaceOptions::new(volume, key);
        if self.own.is_none() {
            // Requests of a cluster may be carried out in another order than they were sent.
            options.in_flight_max = 1;
        }
        options
    }

    /// Ends an engine that is the volume's own.
    pub(crate) async fn close(&self) {
        if let Some((engine, _)) = &self.own {
            engine.close().await;
        }
    }

    /// Removes the names of a volume that was closed.
    ///
    /// # Errors
    /// The system's, or the engine's.
    pub(crate) async fn remove(&self, volume: VolumeId) -> Result<(), NamespaceError> {
        match &self.own {
            Some((_, path)) => std::fs::remove_file(path)
                .map_err(|error| MetaError::Unavailable(error.to_string()).into()),
            None => namespace::remove(&*self.engine, &self.seat, volume).await,
        }
    }
}

async fn open_engine(path: &Path) -> Result<Arc<Embedded>, MetaError> {
    let end = tokio::time::Instant::now() + LEAVE_TIME_MAX;
    loop {
        match Embedded::open(path).await {
            // A run of the server in the same process may be about to end.
            Err(MetaError::InUse) if tokio::time::Instant::now() < end => {
                tokio::time::sleep(LEAVE_LOOK_TIME).await;
            }
            other => return other,
        }
    }
}
