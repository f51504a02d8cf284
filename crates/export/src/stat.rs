//! What the kernel says about an inode, in the words of [`base`].

use crate::errno::fs_error;
use base::{Attributes, FileKind, FsError, Timestamp, mode};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags, StatxTimestamp};
use std::ffi::CStr;

/// The kind of inode that the kernel's type means.
pub(crate) fn kind_of(file_type: FileType) -> Option<FileKind> {
    Some(match file_type {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Unknown => return None,
    })
}

/// The kernel's type for a kind of inode.
pub(crate) fn type_of(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Fifo => FileType::Fifo,
        FileKind::Socket => FileType::Socket,
        FileKind::CharDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
    }
}

/// Attributes together with the device number of the file system that holds the inode.
pub(crate) struct Stat {
    pub(crate) attributes: Attributes,
    pub(crate) file_system: (u32, u32),
}

/// Asks for everything about the inode behind `fd`, which may be an `O_PATH` descriptor.
pub(crate) fn stat(fd: impl AsFd) -> Result<Stat, FsError> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let statx = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, mask).map_err(fs_error)?;
    convert(&statx)
}

/// Asks for everything about what `name` means in a directory (a symbolic link means itself), and
/// for the number of the mount in which that lies.
pub(crate) fn stat_in(directory: impl AsFd, name: &CStr) -> Result<(Stat, u64), FsError> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let statx = rustix::fs::statx(directory, name, flags, mask).map_err(fs_error)?;
    Ok((convert(&statx)?, statx.stx_mnt_id))
}

fn convert(statx: &Statx) -> Result<Stat, FsError> {
    let time = |t: StatxTimestamp| Timestamp {
        seconds: t.tv_sec,
        nanos: t.tv_nsec,
    };
    let kind = kind_of(FileType::from_raw_mode(statx.stx_mode.into())).ok_or_else(|| {
        tracing::warn!(
            inode = statx.stx_ino,
            mode = statx.stx_mode,
            "inode of unknown kind"
        );
        FsError::Io
    })?;
    let has_birth = statx.stx_mask & StatxFlags::BTIME.bits() != 0;
    let attributes = Attributes {
        kind,
        mode: statx.stx_mode & mode::ALL,
        links: statx.stx_nlink,
        uid: statx.stx_uid,
        gid: statx.stx_gid,
        inode: statx.stx_ino,
        device: match kind {
            FileKind::CharDevice | FileKind::BlockDevice => {
                rustix::fs::makedev(statx.stx_rdev_major, statx.stx_rdev_minor)
            }
            _ => 0,
        },
        size: statx.stx_size,
        blocks: statx.stx_blocks,
        block_size: statx.stx_blksize,
        accessed: time(statx.stx_atime),
        modified: time(statx.stx_mtime),
        changed: time(statx.stx_ctime),
        created: has_birth.then(|| time(statx.stx_btime)),
        protected: statx
            .stx_attributes
            .intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND),
    };
    Ok(Stat {
        attributes,
        file_system: (statx.stx_dev_major, statx.stx_dev_minor),
    })
}
