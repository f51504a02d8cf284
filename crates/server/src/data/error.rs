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
    /// What the managers keep together cannot be read or changed.
    #[error("what the managers of the cluster keep together: {0}")]
    Engine(#[from] meta::MetaError),
    /// An entry there is not what a manager of this cluster has written.
    #[error(
        "the entry {0:?} that the managers keep together is damaged, or of another cluster; each \
         cluster has a prefix of its own"
    )]
    Entry(String),
    /// A newer program has written it.
    #[error("the entry {0:?} that the managers keep together is a newer program's")]
    NewerEntry(String),
    /// There is a cluster already.
    #[error(
        "there is a cluster in {0} already; join it (azekura join create ADDR --kind manager), or \
         name another prefix"
    )]
    MetaInUse(String),
    /// What is there is not what this manager belongs to.
    #[error("there is no cluster in {0}, or another one than this manager's")]
    MetaForeign(String),
    /// A bound is reached.
    #[error("a cluster has {} managers at most", base::limits::MANAGERS_MAX)]
    ManagersMax,
    /// Keys or certificates.
    #[error(transparent)]
    Identity(#[from] wire::identity::IdentityError),
}
