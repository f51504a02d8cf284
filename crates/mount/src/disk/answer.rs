//! What is answered about the directory and its one file.

use super::DiskFs;
use crate::kernel::{
    Attr, AttrFlags, DirectoryBuilder, Entry, FOpenFlags, Fh, NodeId, Opened, Operation, Replier,
    Request, SetAttr, StatFs, Whence,
};
use crate::remote::LEASED;
use base::{BlockDevice, DeviceError, Extent, FileKind, Timestamp};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use std::io;

pub(super) const FILE: NodeId = NodeId(2);
/// How far ahead it is looked for data or a hole at once: as long as one answer to an NBD client.
const SEEK_BYTES: u64 = base::limits::NBD_STATUS_BYTES_MAX;

/// Bytes that the file is said to lack: programs look for holes only in files that have fewer
/// blocks than bytes, and to count them would be to go through the whole disk. They are said to be
/// free, so that whoever wants to fill the file finds room.
const LACKING_BYTES: u32 = 4096;

impl DiskFs {
    fn attr(&self, node: NodeId) -> Attr {
        let (kind, mode, links, size) = match node {
            FILE => (FileKind::File, self.mode(), 1, self.device.len_bytes()),
            _ => (FileKind::Directory, 0o555, 2, 0),
        };
        let time = Timestamp::default();
        Attr {
            ino: node.0,
            size,
            blocks: size.saturating_sub(LACKING_BYTES.into()).div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            kind,
            mode,
            links,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            block_bytes: self.device.block_bytes(),
            flags: AttrFlags::empty(),
        }
    }

    fn mode(&self) -> u16 {
        let readers = if self.allow_other { 0o444 } else { 0o400 };
        match self.read_only {
            true => readers,
            false => readers | readers >> 1,
        }
    }

    fn open_flags(&self) -> FOpenFlags {
        match self.pool {
            Some(_) => FOpenFlags::KEEP_CACHE,
            None => FOpenFlags::DIRECT_IO | FOpenFlags::PARALLEL_DIRECT_WRITES,
        }
    }

    /// Answers what needs no device call.
    pub(super) fn answer(&self, request: &Request, replier: Replier) {
        // Nothing is kept for whoever did not take an answer.
        let _ = match &request.operation {
            Operation::Lookup { name } if request.node == NodeId::ROOT => match &**name {
                name if name == self.file_name.as_bytes() => replier.entry(&Entry {
                    node: FILE,
                    generation: 0,
                    entry_valid: LEASED,
                    attr_valid: LEASED,
                    attr: self.attr(FILE),
                }),
                _ => replier.error(Errno::NOENT),
            },
            Operation::GetAttr { .. } => replier.attr(&self.attr(request.node), LEASED),
            Operation::SetAttr(change) => match self.may_set(request, change) {
                Ok(()) => replier.attr(&self.attr(request.node), LEASED),
                Err(errno) => replier.error(errno),
            },
            Operation::Open { flags, .. } => {
                let writes = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
                match self.is_file(request) {
                    Ok(()) if writes && self.read_only => replier.error(Errno::ROFS),
                    Ok(()) => replier.opened(&Opened::new(Fh(0), self.open_flags())),
                    Err(errno) => replier.error(errno),
                }
            }
            Operation::OpenDir { .. } => replier.opened(&Opened::new(Fh(0), FOpenFlags::empty())),
            Operation::ReadDir(page) => {
                replier.directory(&listing(&self.file_name, page.offset, page.size))
            }
            // Closing says nothing about durability, as on a raw device.
            Operation::Flush { .. }
            | Operation::Release(_)
            | Operation::ReleaseDir { .. }
            | Operation::FsyncDir { .. } => replier.done(),
            Operation::StatFs => replier.statfs(&self.stat_fs()),
            Operation::Create { .. } | Operation::MkNod { .. } | Operation::MkDir { .. } => {
                replier.error(Errno::PERM)
            }
            Operation::Unlink { .. } | Operation::Rename { .. } => replier.error(Errno::PERM),
            _ => replier.error(Errno::NOSYS),
        };
    }

    /// Times are set and forgotten; what the file is stays.
    fn may_set(&self, request: &Request, change: &SetAttr) -> Result<(), Errno> {
        self.is_file(request).map_err(|_| Errno::PERM)?;
        let is_other_length = change
            .size
            .is_some_and(|size| size != self.device.len_bytes());
        if is_other_length || change.mode.is_some() || change.uid.or(change.gid).is_some() {
            return Err(Errno::PERM);
        }
        Ok(())
    }

    fn stat_fs(&self) -> StatFs {
        let block_bytes = self.device.block_bytes();
        let free = LACKING_BYTES.div_ceil(block_bytes).into();
        StatFs {
            fragment_bytes: block_bytes,
            block_bytes,
            blocks: self.device.len_bytes().div_ceil(block_bytes.into()),
            blocks_free: free,
            blocks_available: free,
            files: 2,
            files_free: 0,
            name_bytes_max: 255,
        }
    }
}

fn listing(name: &str, offset: u64, size: u32) -> DirectoryBuilder {
    let entries = [
        (NodeId::ROOT, FileKind::Directory, "."),
        (NodeId::ROOT, FileKind::Directory, ".."),
        (FILE, FileKind::File, name),
    ];
    let mut page = DirectoryBuilder::new(size);
    for (position, (node, kind, name)) in (1..).zip(entries) {
        if position > offset && page.add(node.0, position, kind, name) {
            break;
        }
    }
    page
}

/// Answers what needs the device.
pub(super) fn work(device: &dyn BlockDevice, operation: Operation, replier: Replier) {
    let failed = |error: DeviceError| {
        let errno = errno(&error);
        tracing::warn!(error = with_cause(&error), "a request on the disk failed");
        errno
    };
    // Nothing is kept for whoever did not take an answer.
    let _ = match operation {
        Operation::Read(read) => match read_at(device, read.offset, read.size) {
            Ok(bytes) => replier.data(&bytes),
            Err(error) => replier.error(failed(error)),
        },
        Operation::Write(write) => match device.write_at(write.offset, &write.data) {
            Ok(()) => replier.written(write.data.len() as u32),
            // The file is as long as it is.
            Err(DeviceError::Outside { .. }) => replier.error(Errno::NOSPC),
            Err(error) => replier.error(failed(error)),
        },
        Operation::Fsync { .. } => match device.flush() {
            Ok(()) => replier.done(),
            Err(error) => replier.error(failed(error)),
        },
        Operation::Fallocate {
            offset,
            length,
            mode,
            ..
        } => match zeros(device, offset, length, mode) {
            Some(Ok(())) => replier.done(),
            Some(Err(error)) => replier.error(failed(error)),
            None => replier.error(Errno::OPNOTSUPP),
        },
        Operation::Lseek { offset, whence, .. } => match seek(device, offset, whence) {
            Ok(Some(offset)) => replier.offset(offset),
            Ok(None) => replier.error(Errno::NXIO),
            Err(error) => replier.error(failed(error)),
        },
        _ => replier.error(Errno::NOSYS),
    };
}

/// Less than asked for only at the end.
fn read_at(device: &dyn BlockDevice, offset: u64, size: u32) -> Result<Vec<u8>, DeviceError> {
    let there = Extent::new(0, device.len_bytes());
    let extent = Extent::new(offset, size.min(base::limits::DATA_BYTES_MAX).into());
    let mut bytes = vec![0; extent.intersection(there).len as usize];
    device.read_at(offset.min(there.len), &mut bytes)?;
    Ok(bytes)
}

/// Makes zeros, if that is what is asked. Punching past the end is done as far as there is a disk.
fn zeros(
    device: &dyn BlockDevice,
    offset: u64,
    length: u64,
    mode: FallocateFlags,
) -> Option<Result<(), DeviceError>> {
    let keeps = FallocateFlags::KEEP_SIZE;
    let punches = mode == FallocateFlags::PUNCH_HOLE | keeps;
    let is_zeroed =
        mode == FallocateFlags::ZERO_RANGE || mode == FallocateFlags::ZERO_RANGE | keeps;
    let extent = Extent::new(offset, length);
    let there = extent.intersection(Extent::new(0, device.len_bytes()));
    if !(punches || is_zeroed) || (is_zeroed && there != extent) {
        return None;
    }
    Some(device.write_zeros(there))
}

/// The next data or hole from an offset on; none behind the end.
fn seek(device: &dyn BlockDevice, offset: u64, whence: Whence) -> Result<Option<u64>, DeviceError> {
    let len_bytes = device.len_bytes();
    let mut position = offset;
    while position < len_bytes {
        let ahead = Extent::new(position, SEEK_BYTES.min(len_bytes - position));
        let holes = device.holes(ahead)?;
        let found = match whence {
            Whence::Hole => holes.iter().next().map(|hole| hole.offset),
            Whence::Data => holes.missing(ahead).first().map(|data| data.offset),
            Whence::End => Some(len_bytes),
        };
        if found.is_some() {
            return Ok(found);
        }
        position = ahead.end();
    }
    // Behind the last byte there is a hole, as in every file.
    let is_hole = whence != Whence::Data && offset < len_bytes;
    Ok(is_hole.then_some(len_bytes))
}

fn errno(error: &DeviceError) -> Errno {
    match error {
        DeviceError::ReadOnly => Errno::ROFS,
        DeviceError::Outside { .. } => Errno::INVAL,
        DeviceError::Failed { source, .. } => match source.kind() {
            io::ErrorKind::StorageFull => Errno::NOSPC,
            io::ErrorKind::QuotaExceeded => Errno::DQUOT,
            _ => Errno::IO,
        },
    }
}

fn with_cause(error: &DeviceError) -> String {
    match error {
        DeviceError::Failed { source, .. } => format!("{error}: {source}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ExtentSet;

    /// A disk with two holes that is only looked at.
    struct Holed;

    const MIB: u64 = 1 << 20;

    impl BlockDevice for Holed {
        fn len_bytes(&self) -> u64 {
            1 << 30
        }

        fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
            self.extent_at(offset, into.len()).map(drop)
        }

        fn write_at(&self, _: u64, _: &[u8]) -> Result<(), DeviceError> {
            Err(DeviceError::ReadOnly)
        }

        fn flush(&self) -> Result<(), DeviceError> {
            Ok(())
        }

        fn trim(&self, _: Extent) -> Result<(), DeviceError> {
            Err(DeviceError::ReadOnly)
        }

        fn holes(&self, extent: Extent) -> Result<ExtentSet, DeviceError> {
            let mut holes = ExtentSet::new();
            holes.insert(Extent::new(4 * MIB, 600 * MIB).intersection(extent));
            holes.insert(Extent::new(1000 * MIB, 24 * MIB).intersection(extent));
            Ok(holes)
        }
    }

    #[test]
    fn data_and_holes_are_found_however_far_they_are() {
        let data = |offset| seek(&Holed, offset, Whence::Data).unwrap();
        let hole = |offset| seek(&Holed, offset, Whence::Hole).unwrap();
        assert_eq!((data(5), hole(5)), (Some(5), Some(4 * MIB)));
        assert_eq!(
            (data(5 * MIB), hole(5 * MIB)),
            (Some(604 * MIB), Some(5 * MIB))
        );
        assert_eq!(hole(604 * MIB), Some(1000 * MIB));
        assert_eq!(
            (data(1000 * MIB), hole(1023 * MIB)),
            (None, Some(1023 * MIB))
        );
        assert_eq!(
            (data(1 << 30), hole(1 << 30), hole(u64::MAX)),
            (None, None, None)
        );
    }

    #[test]
    fn a_read_past_the_end_has_what_is_there() {
        let len = |offset, size| read_at(&Holed, offset, size).unwrap().len();
        assert_eq!(len((1 << 30) - 10, 4096), 10);
        assert_eq!((len(1 << 30, 4096), len(u64::MAX, 4096)), (0, 0));
        assert_eq!(len(0, u32::MAX), 1 << 20);
    }

    #[test]
    fn only_zeros_are_allocated() {
        let asked = |mode, offset| zeros(&Holed, offset, 10, mode).is_some();
        let (punch, keep) = (FallocateFlags::PUNCH_HOLE, FallocateFlags::KEEP_SIZE);
        assert!(asked(punch | keep, 0) && asked(punch | keep, (1 << 30) - 5));
        assert!(asked(FallocateFlags::ZERO_RANGE, 0));
        assert!(!asked(FallocateFlags::ZERO_RANGE, (1 << 30) - 5));
        assert!(!asked(FallocateFlags::empty(), 0) && !asked(punch, 0));
    }
}
