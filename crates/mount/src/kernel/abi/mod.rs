//! The numbers and structures of the kernel's FUSE protocol, version 7.31 to 7.45, as
//! `include/uapi/linux/fuse.h` lays them out.
//!
//! The interface lies between a kernel and a process of the same machine, so everything is in the
//! machine's own byte order and the structures are plain `repr(C)`: zerocopy turns them into bytes
//! and back, and refuses at compile time a structure with padding. Names follow the kernel's, with
//! its prefixes dropped; fields are public within the crate only, because [`super::request`] and
//! [`super::reply`] say the same in types.

pub(crate) mod flags;
pub(crate) mod input;
pub(crate) mod opcode;
pub(crate) mod output;

/// The protocol's major version. There has been no other since 2001.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version that this module speaks (Linux 6.18).
pub(crate) const MINOR_MAX: u32 = 45;
/// The oldest: Linux 5.4, before which requests of 1 MiB and other things taken for granted here
/// do not exist.
pub(crate) const MINOR_MIN: u32 = 31;

/// Set in [`input::InHeader::unique`] of a request that the kernel sends a second time.
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;
