//! Why a tree cannot be exported, a thread cannot work for callers, or changes cannot be watched.

use std::io;
use std::path::PathBuf;

/// What stands in the way, and what the administrator can do about it.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The directory cannot be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The directory as given.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The path leads to another directory than the one that is known.
    #[error("{} is not the directory that was exported: {what}", path.display())]
    Another {
        /// The directory as given.
        path: PathBuf,
        /// How that shows.
        what: crate::Difference,
    },
    /// The process lacks a capability without which it cannot act for its callers.
    #[error("acting for callers needs {capability}; run the server as root")]
    Privilege {
        /// The capability's name, as in capabilities(7).
        capability: &'static str,
    },
    /// The file system does not have file handles that survive.
    #[error(
        "the file system of {} has no persistent file handles ({source}); export a directory of \
         ext4, XFS, Btrfs or tmpfs (an overlay needs the mount option nfs_export=on)",
        path.display()
    )]
    Handles {
        /// The directory as given.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The thread cannot be made ready to act for callers.
    #[error("cannot prepare the thread: {step}: {source}")]
    Thread {
        /// What was tried.
        step: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// The thread has a [`Worker`](crate::Worker) already; a second would not know the first one's
    /// caller.
    #[error("the thread already works for callers")]
    WorkerExists,
    /// The kernel does not report changes of this file system.
    #[error(
        "changes made by other processes cannot be watched ({source}); it takes root and a file \
         system with an identity, such as ext4, XFS, Btrfs or tmpfs"
    )]
    Watch {
        /// What the kernel said.
        source: io::Error,
    },
}
