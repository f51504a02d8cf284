//! Why a server does not start.

use crate::data::DataError;
use std::io;
use std::net::SocketAddr;

/// What stands in the way. The text names the remedy where there is one.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The data directory.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Keys or certificates.
    #[error(transparent)]
    Identity(#[from] wire::identity::IdentityError),
    /// The process may not act for users.
    #[error(transparent)]
    Export(#[from] export::ExportError),
    /// A store.
    #[error(transparent)]
    Storage(#[from] crate::storage::StorageError),
    /// The ledger of reservations.
    #[error(transparent)]
    Manager(#[from] crate::manager::ManagerError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}
