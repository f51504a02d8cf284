//! Power cuts: a machine writes a file, its power is cut, and another one looks what is there.
//!
//! ```text
//! kernel + busybox + init.sh -> initrd -> a guest boots, is READY -> snapshot        once per run
//! cell   = file system x length x wait x flush time x way to write                   pure, a plan
//! cut    = mkfs on a new image; restore, write, DONE, wait, SIGKILL;                 per sample
//!          recover with its tool; restore, mount, hand the file out; judge
//! next   = the cell with the fewest cuts whose interval is not narrow enough yet     pure
//! ```
//!
//! It is the paper's table 5 with real kernels: there a machine of its own was switched off by
//! hand, and the length of the file was noted. Here the machine is QEMU's, so it can be done as
//! often as an interval needs, and the content is compared.
//!
//! The guest that recovers has the same kernel, so nothing of the host's kernel is judged, or
//! needed: neither loop devices nor mounts nor root. A killed guest loses its memory and nothing
//! that its disk was given. Whether its file system tells the disk to flush is another question: a
//! disk with a cache that is lost as well ([`DiskCache`]) is served to it by this process.

mod cached;
mod cpio;
mod guard;
mod guest;
mod judge;
mod kernel;
mod message;
mod modules;
mod plan;
mod qmp;
mod run;
mod sample;
mod state;
mod subject;
mod tools;

pub use guard::{Made, serve};
pub use kernel::{KERNEL_DEFAULT, Kernel, is_cached, resolve};
pub use plan::{Bound, Cell, Matrix, Schedule};
pub use run::{Options, Run, Watch, run};
pub use sample::{Sample, Summary, summary};
pub use state::{Header, State};
pub use subject::{DiskCache, FileSystem, How};

use crate::programs::is_installed;
use base::BlockDevice;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The length of a file is a multiple of this.
pub const BLOCK_BYTES: u64 = message::BLOCK_BYTES;

/// Who shows a device to other programs over NBD.
pub trait DiskServer: Sync {
    /// Shows it at a socket with this name in a directory, until what is returned is dropped.
    ///
    /// # Errors
    /// Of making the socket.
    fn serve(
        &self,
        device: Arc<dyn BlockDevice>,
        directory: &Path,
        name: &str,
    ) -> io::Result<Box<dyn Send>>;
}

/// Why a run came to no end.
#[derive(Debug, thiserror::Error)]
pub enum PowercutError {
    /// A program of the system is not there.
    #[error("{program} is not installed")]
    NoTool {
        /// Its name.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// The guest's kernel cannot be had, or not be used.
    #[error("{0}")]
    Kernel(String),
    /// A guest, or QEMU, does not do what it must.
    #[error("{0}")]
    Guest(String),
    /// A state file cannot be used.
    #[error("{path}: {why}")]
    State {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// There is not enough room.
    #[error("{path}: {needed} bytes are needed and {free} are free")]
    NoRoom {
        /// Where.
        path: PathBuf,
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are there.
        free: u64,
    },
    /// Something of this machine.
    #[error("{path}: {source}")]
    Local {
        /// Which file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Who asked does not want to wait any more.
    #[error("interrupted")]
    Interrupted,
}

/// Whether this machine has what every run needs.
///
/// # Errors
/// [`PowercutError::NoTool`] names the first program that is missing.
pub fn check_tools() -> Result<(), PowercutError> {
    for (program, package) in [
        (guest::QEMU, "qemu-system-x86"),
        ("apt-get", "apt"),
        ("dpkg-deb", "dpkg"),
    ] {
        if !is_installed(program) {
            return Err(PowercutError::NoTool { program, package });
        }
    }
    Ok(())
}
