//! One step, as data: run by an actor on a file system, and by the oracle on a model of one.

use super::database;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sim::Random;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// One call of a program. Paths are below the root of the file system, without a slash in front.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// A new, empty file.
    Create {
        /// Which.
        path: String,
    },
    /// A write of [`content`].
    Write {
        /// Which file.
        path: String,
        /// Where.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// Of the content.
        tag: u64,
    },
    /// A write at the end of the file.
    Append {
        /// Which file.
        path: String,
        /// How many bytes.
        len: u64,
        /// Of the content.
        tag: u64,
    },
    /// fallocate(2): space, and zeros behind the end.
    Allocate {
        /// Which file.
        path: String,
        /// Where.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// truncate(2), either way.
    Truncate {
        /// Which file.
        path: String,
        /// Its new length.
        len: u64,
    },
    /// A second name for a file.
    Link {
        /// The file.
        from: String,
        /// The new name.
        to: String,
    },
    /// One name of a file less.
    Unlink {
        /// Which.
        path: String,
    },
    /// A file gets another name; one that has it loses it.
    Rename {
        /// The old name.
        from: String,
        /// The new one.
        to: String,
    },
    /// A new directory.
    Mkdir {
        /// Which.
        path: String,
    },
    /// An empty directory less.
    Rmdir {
        /// Which.
        path: String,
    },
    /// fsync(2) of a file.
    Fsync {
        /// Which.
        path: String,
    },
    /// fdatasync(2) of a file.
    Fdatasync {
        /// Which.
        path: String,
    },
    /// fsync(2) of a directory; empty for the root.
    FsyncDir {
        /// Which.
        path: String,
    },
    /// sync of the whole file system.
    Sync,
    /// A transaction of SQLite, durable when it returns.
    Insert {
        /// The database, which is made if there is none.
        path: String,
        /// The row.
        row: u32,
    },
}

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub struct StepError {
    /// Which.
    pub step: String,
    /// Why.
    pub source: io::Error,
}

/// What a write with this tag consists of. No byte is zero, and two tags have about every 255th in
/// common: what was never written, or by somebody else, does not look like it.
#[must_use]
pub fn content(tag: u64, len: u64) -> Vec<u8> {
    let mut random = Random::new(tag.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut bytes = Vec::with_capacity(len as usize + 8);
    while (bytes.len() as u64) < len {
        bytes.extend(random.next_u64().to_le_bytes().map(|byte| byte.max(1)));
    }
    bytes.truncate(len as usize);
    bytes
}

impl Step {
    /// Whether something is durable when it is done.
    #[must_use]
    pub const fn makes_durable(&self) -> bool {
        matches!(
            self,
            Self::Fsync { .. }
                | Self::Fdatasync { .. }
                | Self::FsyncDir { .. }
                | Self::Sync
                | Self::Insert { .. }
        )
    }

    /// Does it below `root`.
    ///
    /// # Errors
    /// [`StepError`] with what the system said.
    pub fn run(&self, root: &Path) -> Result<(), StepError> {
        self.try_run(root).map_err(|source| StepError {
            step: self.to_string(),
            source,
        })
    }

    fn try_run(&self, root: &Path) -> io::Result<()> {
        let at = |path: &str| root.join(path);
        let open = |path: &str| OpenOptions::new().write(true).open(at(path));
        match self {
            Self::Create { path } => {
                let mut options = OpenOptions::new();
                options.write(true).create_new(true).open(at(path))?;
            }
            Self::Write {
                path,
                offset,
                len,
                tag,
            } => open(path)?.write_all_at(&content(*tag, *len), *offset)?,
            Self::Append { path, len, tag } => {
                let file = open(path)?;
                let end = file.metadata()?.len();
                file.write_all_at(&content(*tag, *len), end)?;
            }
            Self::Allocate { path, offset, len } => {
                rustix::fs::fallocate(open(path)?, FallocateFlags::empty(), *offset, *len)?;
            }
            Self::Truncate { path, len } => open(path)?.set_len(*len)?,
            Self::Link { from, to } => fs::hard_link(at(from), at(to))?,
            Self::Unlink { path } => fs::remove_file(at(path))?,
            Self::Rename { from, to } => fs::rename(at(from), at(to))?,
            Self::Mkdir { path } => fs::create_dir(at(path))?,
            Self::Rmdir { path } => fs::remove_dir(at(path))?,
            Self::Fsync { path } => open(path)?.sync_all()?,
            Self::Fdatasync { path } => open(path)?.sync_data()?,
            Self::FsyncDir { path } => File::open(at(path))?.sync_all()?,
            Self::Sync => sync(root)?,
            Self::Insert { path, row } => database::insert(&at(path), *row)?,
        }
        Ok(())
    }
}

/// syncfs(2), so that other file systems of this machine are left alone.
fn sync(root: &Path) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(root, flags, Mode::empty())?;
    rustix::fs::syncfs(&directory)
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { path } => write!(f, "create {path}"),
            Self::Write {
                path, offset, len, ..
            } => write!(f, "write {path} {offset}+{len}"),
            Self::Append { path, len, .. } => write!(f, "append {path} {len}"),
            Self::Allocate { path, offset, len } => write!(f, "falloc {path} {offset}+{len}"),
            Self::Truncate { path, len } => write!(f, "truncate {path} {len}"),
            Self::Link { from, to } => write!(f, "link {from} {to}"),
            Self::Unlink { path } => write!(f, "unlink {path}"),
            Self::Rename { from, to } => write!(f, "rename {from} {to}"),
            Self::Mkdir { path } => write!(f, "mkdir {path}"),
            Self::Rmdir { path } => write!(f, "rmdir {path}"),
            Self::Fsync { path } => write!(f, "fsync {path}"),
            Self::Fdatasync { path } => write!(f, "fdatasync {path}"),
            Self::FsyncDir { path } if path.is_empty() => f.write_str("fsync-dir ."),
            Self::FsyncDir { path } => write!(f, "fsync-dir {path}"),
            Self::Sync => f.write_str("sync"),
            Self::Insert { path, row } => write!(f, "insert {path} {row}"),
        }
    }
}
