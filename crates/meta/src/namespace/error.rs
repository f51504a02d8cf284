//! Why a namespace as a whole does not do something. What a caller did wrong is a
//! [`base::FsError`].

use crate::MetaError;
use base::VolumeId;

/// Why a namespace cannot be opened, or has not kept a change.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The engine says so.
    #[error(transparent)]
    Engine(#[from] MetaError),
    /// Changes that an answer is made from are not durable and never will be, or it is not known
    /// whether they are. The answer must not be given.
    #[error("changes were lost before they were durable: {0}")]
    Lost(MetaError),
    /// Changes were not durable in time; they may be later.
    #[error("changes were not durable in time")]
    TimedOut,
    /// The engine has no such volume.
    #[error("there is no namespace of volume {0} in this engine")]
    Unknown(VolumeId),
    /// The engine has it already.
    #[error("there is a namespace of volume {0} in this engine already")]
    Exists(VolumeId),
    /// There is no room for more.
    #[error("there is no room for more {0}")]
    Full(&'static str),
}
