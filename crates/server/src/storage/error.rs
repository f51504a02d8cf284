//! Why a store is not to be had.

use crate::data::DataError;
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
}
