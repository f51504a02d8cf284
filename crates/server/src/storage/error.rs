//! Why a store is not to be had.

use crate::data::DataError;
use base::{DeviceError, StoreId};
use std::path::PathBuf;
use store::StoreError;
use store::device::{CalibrateError, OpenError};

/// Why a store cannot be made or opened. The text names the remedy where there is one.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The file or device.
    #[error(transparent)]
    Device(#[from] OpenError),
    /// The store on it.
    #[error("{}: {source}", path.display())]
    Store {
        /// Where.
        path: PathBuf,
        /// Why.
        source: StoreError,
    },
    /// It could not be measured.
    #[error("{}: {source}", path.display())]
    Calibrate {
        /// Where.
        path: PathBuf,
        /// Why.
        source: CalibrateError,
    },
    /// The server's own state.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The server has this store already, somewhere else.
    #[error(
        "{} is store {store}, which this server has at {} already",
        path.display(),
        known.display()
    )]
    Twice {
        /// Which.
        store: StoreId,
        /// What is a copy of it.
        path: PathBuf,
        /// Where it is.
        known: PathBuf,
    },
    /// A store was to be accepted though it is older, and it is not, or nobody knows it.
    #[error("store {0} is not there in an older state: there is nothing to accept")]
    NotOlder(StoreId),
    /// A store was to be given up that is there, or that nobody knows.
    #[error("store {0} is not missing: there is nothing to give up")]
    NotMissing(StoreId),
    /// A store comes back that was given up.
    #[error(
        "{}: store {store} was given up; what it has belongs to nothing any more",
        path.display()
    )]
    Lost {
        /// Which.
        store: StoreId,
        /// Where it is.
        path: PathBuf,
    },
    /// More stores than are remembered.
    #[error("{} stores were given up already", base::limits::LOST_STORES_MAX)]
    TooManyLost,
    /// More single tickets than are remembered.
    #[error(
        "{} tickets are revoked one by one already; raise the epoch instead",
        base::limits::REVOKED_TICKETS_MAX
    )]
    TooManyRevoked,
    /// More stores than a server has.
    #[error("a server has at most {} stores", base::limits::SERVER_STORES_MAX)]
    TooMany,
    /// The system has no thread for it.
    #[error("no thread for a device: {0}")]
    Thread(std::io::Error),
}

impl StorageError {
    pub(super) fn store(path: &std::path::Path) -> impl FnOnce(StoreError) -> Self {
        let path = path.to_owned();
        move |source| Self::Store { path, source }
    }

    /// Whether one store is concerned and not the server: others can be served without it.
    pub(super) fn is_of_one_store(&self) -> bool {
        matches!(self, Self::Device(_) | Self::Store { .. })
    }

    /// Whether a store is there in an older state.
    pub(super) fn is_older(&self) -> bool {
        let Self::Store { source, .. } = self else {
            return false;
        };
        matches!(source, StoreError::Older { .. })
    }

    /// The text with the system's reason, which is a source of the error and no part of its text.
    pub(super) fn whole(&self) -> String {
        let system = match self {
            Self::Device(OpenError::System { source, .. })
            | Self::Store {
                source: StoreError::Device(DeviceError::Failed { source, .. }),
                ..
            } => source,
            _ => return self.to_string(),
        };
        let reason = system.to_string();
        let reason = reason.split(" (os error").next().unwrap_or_default();
        format!("{self}: {}", reason.to_lowercase())
    }
}
