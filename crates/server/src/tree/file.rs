//! Open files of a volume.
//!
//! Contents of an export are here. Those of a parallel volume are in stores, where clients read and
//! write them: an open file of it is the right to that, and keeps the inode.

use super::By;
use base::{Access, Attributes, Extent, FsError};
use bytes::BytesMut;
use export::{AllocateMode, OpenFile, Written};
use meta::namespace::{Namespace, OpenInode, Turn};
use std::sync::Arc;

/// See the module's head.
pub(crate) enum File {
    Export(OpenFile),
    Parallel(OpenInode, Arc<Namespace>),
}

impl File {
    pub(super) fn export(&self) -> Option<&OpenFile> {
        match self {
            Self::Export(file) => Some(file),
            Self::Parallel(..) => None,
        }
    }

    pub(super) fn inode(&self) -> Option<&OpenInode> {
        match self {
            Self::Export(_) => None,
            Self::Parallel(inode, _) => Some(inode),
        }
    }

    /// The file, for what concerns its contents.
    fn contents(&self) -> Result<&OpenFile, FsError> {
        self.export().ok_or(FsError::NotSupported)
    }

    pub(crate) fn access(&self) -> Access {
        match self {
            Self::Export(file) => file.access(),
            Self::Parallel(inode, _) => inode.access(),
        }
    }

    /// Whether what is written through it goes to the end.
    pub(crate) fn only_appends(&self) -> bool {
        match self {
            Self::Export(file) => file.only_appends(),
            Self::Parallel(inode, _) => inode.only_appends(),
        }
    }

    pub(crate) fn attributes(&self, turn: &Turn) -> Result<Attributes, FsError> {
        match self {
            Self::Export(file) => file.attributes(),
            Self::Parallel(inode, names) => names.attributes_of(turn, inode),
        }
    }

    pub(crate) fn read_at(
        &self,
        offset: u64,
        len_max: usize,
        out: &mut BytesMut,
    ) -> Result<usize, FsError> {
        match self {
            // Whoever reads nothing wants the open to be made.
            Self::Parallel(..) if len_max == 0 => Ok(0),
            _ => self.contents()?.read_at(offset, len_max, out),
        }
    }

    pub(crate) fn write_at(
        &self,
        by: By<'_>,
        offset: u64,
        data: &[u8],
    ) -> Result<Written, FsError> {
        match self {
            Self::Parallel(..) if data.is_empty() => Ok(Written { offset, bytes: 0 }),
            _ => self.contents()?.write_at(by.worker, by.who, offset, data),
        }
    }

    pub(crate) fn append(&self, by: By<'_>, data: &[u8]) -> Result<Written, FsError> {
        self.contents()?.append(by.worker, by.who, data)
    }

    pub(crate) fn truncate(&self, by: By<'_>, size: u64) -> Result<(), FsError> {
        self.contents()?.truncate(by.worker, by.who, size)
    }

    /// Makes the file durable. The attributes of a parallel volume's are, before anybody hears of
    /// them, and its contents are made so at the stores.
    pub(crate) fn sync(&self, data_only: bool) -> Result<(), FsError> {
        match self {
            Self::Export(file) => file.sync(data_only),
            Self::Parallel(..) => Ok(()),
        }
    }

    /// Has a run of an export's file written to its device, and waits for that.
    pub(crate) fn write_out(&self, offset: u64, bytes: u64) -> Result<(), FsError> {
        match self {
            Self::Export(file) => file.write_out(offset, bytes),
            Self::Parallel(..) => Ok(()),
        }
    }

    pub(crate) fn allocate(
        &self,
        by: By<'_>,
        mode: AllocateMode,
        extent: Extent,
    ) -> Result<(), FsError> {
        (self.contents()?).allocate(by.worker, by.who, mode, extent)
    }

    /// The next data at or after an offset. A parallel volume's files are all data: where holes
    /// are, only their stores know.
    pub(crate) fn seek_data(&self, turn: &Turn, offset: u64) -> Result<u64, FsError> {
        match self {
            Self::Export(file) => file.seek_data(offset),
            Self::Parallel(..) if offset < self.attributes(turn)?.size => Ok(offset),
            Self::Parallel(..) => Err(FsError::NoSuchAddress),
        }
    }

    /// The next hole at or after an offset; there is one at the end.
    pub(crate) fn seek_hole(&self, turn: &Turn, offset: u64) -> Result<u64, FsError> {
        match self {
            Self::Export(file) => file.seek_hole(offset),
            Self::Parallel(..) => {
                let size = self.attributes(turn)?.size;
                match offset < size {
                    true => Ok(size),
                    false => Err(FsError::NoSuchAddress),
                }
            }
        }
    }

    pub(crate) fn copy_range(
        &self,
        by: By<'_>,
        from: Extent,
        to: &Self,
        offset: u64,
    ) -> Result<u64, FsError> {
        let (source, target) = (self.contents()?, to.contents()?);
        source.copy_range(by.worker, by.who, from, target, offset)
    }
}
