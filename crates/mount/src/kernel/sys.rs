//! The device's ioctls: the only place of this crate where the compiler cannot check what is done.
#![expect(
    unsafe_code,
    reason = "ioctl(2) takes an address that the compiler knows nothing about"
)]

use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};
use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The device's group of numbers.
const GROUP: u8 = 229;

/// `struct fuse_backing_map`.
#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

/// Makes `new`, a fresh descriptor of the device, a second reader of the mount that `existing`
/// belongs to.
///
/// # Errors
/// What `FUSE_DEV_IOC_CLONE` answers.
pub(crate) fn clone_device(
    new: impl AsFd,
    existing: BorrowedFd<'_>,
) -> Result<(), rustix::io::Errno> {
    const NUMBER: Opcode = ioctl::opcode::read::<u32>(GROUP, 0);
    let fd = u32::try_from(existing.as_raw_fd()).expect("a descriptor is not negative");
    // SAFETY: FUSE_DEV_IOC_CLONE reads one u32 at the address that it is given, and `Setter` gives
    // it that of its own copy, for the time of the call.
    unsafe { ioctl::ioctl(new, ioctl::Setter::<NUMBER, u32>::new(fd)) }
}

/// Registers `file` as one that opens can be passed through to; returns its number.
///
/// # Errors
/// What `FUSE_DEV_IOC_BACKING_OPEN` answers.
pub(crate) fn open_backing(
    device: impl AsFd,
    file: BorrowedFd<'_>,
) -> Result<i32, rustix::io::Errno> {
    let map = BackingMap {
        fd: file.as_raw_fd(),
        flags: 0,
        padding: 0,
    };
    // SAFETY: see the implementation of `Ioctl` below.
    unsafe { ioctl::ioctl(device, OpenBacking(map)) }
}

/// Takes back what [`open_backing`] did. Files that are open keep it as long as they are.
///
/// # Errors
/// What `FUSE_DEV_IOC_BACKING_CLOSE` answers.
pub(crate) fn close_backing(device: impl AsFd, backing: i32) -> Result<(), rustix::io::Errno> {
    const NUMBER: Opcode = ioctl::opcode::write::<u32>(GROUP, 2);
    let number = u32::try_from(backing).expect("the kernel gave out a positive number");
    // SAFETY: FUSE_DEV_IOC_BACKING_CLOSE reads one u32 at the address that it is given, and
    // `Setter` gives it that of its own copy, for the time of the call.
    unsafe { ioctl::ioctl(device, ioctl::Setter::<NUMBER, u32>::new(number)) }
}

struct OpenBacking(BackingMap);

// SAFETY: the number belongs to the structure, which the kernel only reads and which lives as long
// as the call; the answer is the call's return value and nothing is written to memory.
unsafe impl Ioctl for OpenBacking {
    type Output = i32;

    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        ioctl::opcode::write::<BackingMap>(GROUP, 1)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut self.0).cast()
    }

    unsafe fn output_from_ptr(
        output: IoctlOutput,
        _: *mut c_void,
    ) -> Result<i32, rustix::io::Errno> {
        Ok(output)
    }
}
