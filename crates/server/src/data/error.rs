//! What can be wrong with a data directory, and what to do about it.

use std::io;
use std::path::PathBuf;

/// Why a data directory cannot be made, opened or changed. The text names the remedy.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// There is no cluster in it.
    #[error("{} is not a server's data directory; make one with --init", .0.display())]
    NotInitialised(PathBuf),
    /// There is a cluster in it already.
    #[error("{} has a cluster already; start the server without --init", .0.display())]
    Initialised(PathBuf),
    /// Something else is in it.
    #[error("{} has other files in it; choose an empty or a new directory", .0.display())]
    NotEmpty(PathBuf),
    /// Another server works with it.
    #[error("{} is in use by another server; stop that one first", .0.display())]
    InUse(PathBuf),
    /// A newer program has written it.
    #[error(
        "{} has format {found}, this program knows up to {known}; use the program that wrote it or \
         a newer one",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest that this program knows.
        known: u32,
    },
    /// Its contents are not what was written.
    #[error(
        "{} is damaged or was edited by hand ({why}); restore it from a backup of the data \
         directory",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// How that shows.
        why: String,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Keys or certificates.
    #[error(transparent)]
    Identity(#[from] wire::identity::IdentityError),
}
