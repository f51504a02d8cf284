//! Why a device cannot be opened or made.

use std::io;
use std::path::PathBuf;

/// Why a device cannot be opened or made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it: a store that runs, or a mounted file system.
    #[error("{} is in use", path.display())]
    InUse {
        /// The device.
        path: PathBuf,
    },
    /// A directory, a pipe, a terminal.
    #[error("{} is neither a file nor a block device", path.display())]
    NotADevice {
        /// What was named.
        path: PathBuf,
    },
    /// It exists already and is not touched.
    #[error("{} exists", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// It is opened for reading only, or a block device cannot become longer.
    #[error("{} cannot be {what}", path.display())]
    Cannot {
        /// The device.
        path: PathBuf,
        /// What was asked for.
        what: &'static str,
    },
    /// The length is not what a device can have.
    #[error(
        "{len_bytes} bytes is no length for a device: use a multiple of {} bytes",
        super::BLOCK_BYTES
    )]
    Length {
        /// What was asked for.
        len_bytes: u64,
    },
    /// Whoever watched the progress has had enough. A file that was being made is gone.
    #[error("cancelled")]
    Cancelled,
    /// The system says so.
    #[error("cannot {what} {}", path.display())]
    System {
        /// What was being done.
        what: &'static str,
        /// The device.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}
