//! The system calls that rustix does not have, and the few whose safe form does not fit.
//!
//! Everything here is per thread or per descriptor. In particular the identity calls are raw system
//! calls: the C library's `setgroups` would change all threads of the process at once.

#![expect(unsafe_code, reason = "system calls without a safe wrapper")]

use bytes::BytesMut;
use libc::{c_int, c_long};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::CStr;

/// Largest kernel file handle (`MAX_HANDLE_SZ`).
pub(crate) const KERNEL_HANDLE_BYTES_MAX: usize = 128;

/// A file handle as the kernel knows it. It has the layout of `struct file_handle` followed by room
/// for the longest handle.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct KernelHandle {
    len: u32,
    kind: i32,
    bytes: [u8; KERNEL_HANDLE_BYTES_MAX],
}

impl KernelHandle {
    /// A handle of type `kind`; `None` if `bytes` is longer than any handle.
    pub(crate) fn new(kind: i32, bytes: &[u8]) -> Option<Self> {
        let len = u32::try_from(bytes.len()).ok()?;
        let mut handle = Self {
            len,
            kind,
            bytes: [0; KERNEL_HANDLE_BYTES_MAX],
        };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    pub(crate) fn kind(&self) -> i32 {
        self.kind
    }

    /// The inode number in the handle, for the layouts of ext4, tmpfs, XFS and Btrfs.
    pub(crate) fn inode(&self) -> Option<u64> {
        let bytes = self.as_bytes();
        let word = |at: usize| {
            let word = bytes.get(at..)?.first_chunk()?;
            #[expect(
                clippy::host_endian_bytes,
                reason = "the kernel speaks the machine's order"
            )]
            Some(u64::from(u32::from_ne_bytes(*word)))
        };
        let long = |at: usize| {
            let long = bytes.get(at..)?.first_chunk()?;
            #[expect(
                clippy::host_endian_bytes,
                reason = "the kernel speaks the machine's order"
            )]
            Some(u64::from_ne_bytes(*long))
        };
        match (self.kind, bytes.len()) {
            // Number and generation.
            (1, 8) => word(0),
            // Generation, then the number's lower and upper half.
            (1, 12) => Some(word(4)? | word(8)? << 32),
            (0x81, 12) | (0x4d, 20) => long(0),
            _ => None,
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..(self.len as usize).min(KERNEL_HANDLE_BYTES_MAX)]
    }
}

/// Has dirty pages of a run written, and waits until the device has taken them. Nothing is durable
/// by that: neither what leads to them nor the device's own cache.
pub(crate) fn write_out(file: BorrowedFd<'_>, offset: i64, bytes: i64) -> Result<(), Errno> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: the descriptor is open for the time of the call, which takes numbers alone.
    let result = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, flags) };
    check(c_long::from(result)).map(drop)
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn check(result: c_long) -> Result<c_long, Errno> {
    if result < 0 {
        Err(last_errno())
    } else {
        Ok(result)
    }
}

fn owned(result: c_int) -> Result<OwnedFd, Errno> {
    if result < 0 {
        return Err(last_errno());
    }
    // SAFETY: the call just returned this new descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(result) })
}

/// The kernel's handle of the inode behind `fd`, which may be an `O_PATH` descriptor.
pub(crate) fn name_to_handle(fd: BorrowedFd<'_>) -> Result<KernelHandle, Errno> {
    handle_at(fd, c"", libc::AT_EMPTY_PATH).map(|(handle, _)| handle)
}

/// The kernel's handle of what `name` means in a directory (a symbolic link means itself), and the
/// number of the mount in which that lies.
pub(crate) fn name_to_handle_in(
    directory: BorrowedFd<'_>,
    name: &CStr,
) -> Result<(KernelHandle, u64), Errno> {
    handle_at(directory, name, 0)
}

fn handle_at(fd: BorrowedFd<'_>, name: &CStr, flags: c_int) -> Result<(KernelHandle, u64), Errno> {
    let mut handle = KernelHandle {
        len: KERNEL_HANDLE_BYTES_MAX as u32,
        kind: 0,
        bytes: [0; KERNEL_HANDLE_BYTES_MAX],
    };
    let mut mount: c_int = 0;
    // SAFETY: `handle` has the layout of `struct file_handle` with `len` bytes of room behind the
    // head; the path is NUL-terminated; both outlive the call.
    let result = unsafe {
        libc::name_to_handle_at(
            fd.as_raw_fd(),
            name.as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            flags,
        )
    };
    check(c_long::from(result)).map(|_| (handle, u64::from(mount.cast_unsigned())))
}

/// The UUID that the kernel says of a file system; `None` if it does not (before Linux 6.9, and of
/// file systems without one).
pub(crate) fn file_system_uuid(directory: BorrowedFd<'_>) -> Option<[u8; 16]> {
    /// `FS_IOC_GETFSUUID`, which writes a `struct fsuuid2`: the length, and up to 16 bytes.
    const GET: libc::c_ulong = 0x8011_1500;
    let mut answer = [0_u8; 17];
    // SAFETY: the call writes no more than the 17 bytes that its number says.
    let result = unsafe { libc::ioctl(directory.as_raw_fd(), GET as _, answer.as_mut_ptr()) };
    check(c_long::from(result)).ok()?;
    let (len, uuid) = answer.split_first()?;
    uuid.first_chunk().copied().filter(|_| *len == 16)
}

/// The UUID of an XFS, which says it also under older kernels.
pub(crate) fn xfs_uuid(directory: BorrowedFd<'_>) -> Option<[u8; 16]> {
    /// `XFS_IOC_FSGEOMETRY_V1`, which writes a `struct xfs_fsop_geom_v1` of 112 bytes.
    const GET: libc::c_ulong = 0x8070_5864;
    /// Before the UUID stand eight words of 4 bytes and four of 8.
    const UUID_AT: usize = 64;
    let mut answer = [0_u8; 112];
    // SAFETY: the call writes no more than the 112 bytes that its number says.
    let result = unsafe { libc::ioctl(directory.as_raw_fd(), GET as _, answer.as_mut_ptr()) };
    check(c_long::from(result)).ok()?;
    answer[UUID_AT..].first_chunk().copied()
}

/// Opens the inode with this handle in the file system that `mount` lies in. Needs
/// `CAP_DAC_READ_SEARCH` in the calling thread.
pub(crate) fn open_by_handle(
    mount: BorrowedFd<'_>,
    handle: &KernelHandle,
    flags: c_int,
) -> Result<OwnedFd, Errno> {
    let mut handle = handle.clone();
    // SAFETY: `handle` has the layout of `struct file_handle` and `len` valid bytes behind the
    // head.
    owned(unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), flags) })
}

/// Sets the calling thread's file system uid and returns the one it has afterwards.
pub(crate) fn set_fs_uid(uid: u32) -> u32 {
    // SAFETY: the call takes a number and touches no memory. It reports failure only by leaving the
    // uid as it was, hence the second call, whose impossible uid changes nothing.
    unsafe {
        libc::syscall(libc::SYS_setfsuid, c_long::from(uid));
        libc::syscall(libc::SYS_setfsuid, -1 as c_long) as u32
    }
}

/// Sets the calling thread's file system gid and returns the one it has afterwards.
pub(crate) fn set_fs_gid(gid: u32) -> u32 {
    // SAFETY: as in `set_fs_uid`.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, c_long::from(gid));
        libc::syscall(libc::SYS_setfsgid, -1 as c_long) as u32
    }
}

/// Sets the supplementary groups of the calling thread only.
pub(crate) fn set_groups(groups: &[u32]) -> Result<(), Errno> {
    // SAFETY: the pointer and the length describe one slice that outlives the call.
    check(unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) }).map(drop)
}

/// Gives the calling thread its own umask (and working directory and root).
pub(crate) fn unshare_fs() -> Result<(), Errno> {
    // SAFETY: with `CLONE_FS` alone the descriptor table stays shared, so no descriptor changes its
    // meaning in any thread.
    check(c_long::from(unsafe { libc::unshare(libc::CLONE_FS) })).map(drop)
}

/// `truncate(2)`: unlike an open for writing it never waits at a pipe or touches a device.
pub(crate) fn truncate(path: &CStr, size: u64) -> Result<(), Errno> {
    let size = libc::off_t::try_from(size).map_err(|_| Errno::FBIG)?;
    // SAFETY: the path is NUL-terminated and outlives the call.
    check(c_long::from(unsafe { libc::truncate(path.as_ptr(), size) })).map(drop)
}

/// Reads up to `len_max` bytes at `offset` behind the contents of `out`, without zeroing them
/// first. Returns how many bytes came; zero means end of file.
pub(crate) fn read_at(
    fd: BorrowedFd<'_>,
    offset: u64,
    len_max: usize,
    out: &mut BytesMut,
) -> Result<usize, Errno> {
    out.reserve(len_max);
    let spare = &mut out.spare_capacity_mut()[..len_max];
    let (read, _) = rustix::io::pread(fd, spare, offset)?;
    let read = read.len();
    // SAFETY: `pread` initialised the first `read` bytes of the spare capacity.
    unsafe { out.set_len(out.len() + read) };
    Ok(read)
}

/// A new group of file system notifications.
pub(crate) fn fanotify_init(flags: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes two numbers.
    owned(unsafe { libc::fanotify_init(flags, libc::O_RDONLY as u32) })
}

/// Adds the whole file system of `fd` to a group.
pub(crate) fn fanotify_watch(
    group: BorrowedFd<'_>,
    mask: u64,
    fd: BorrowedFd<'_>,
) -> Result<(), Errno> {
    // SAFETY: a null path with a descriptor means the descriptor's own inode.
    let result = unsafe {
        libc::fanotify_mark(
            group.as_raw_fd(),
            libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM,
            mask,
            fd.as_fd().as_raw_fd(),
            std::ptr::null(),
        )
    };
    check(c_long::from(result)).map(drop)
}
