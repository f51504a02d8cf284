//! Numbers of the protocol and their meanings, where both directions need them.

use super::request::LockKind;
use base::FileKind;
use rustix::fs::{major, makedev, minor};
use std::time::Duration;

const KINDS: [(u32, FileKind); 7] = [
    (0o010_000, FileKind::Fifo),
    (0o020_000, FileKind::CharDevice),
    (0o040_000, FileKind::Directory),
    (0o060_000, FileKind::BlockDevice),
    (0o100_000, FileKind::File),
    (0o120_000, FileKind::Symlink),
    (0o140_000, FileKind::Socket),
];

/// The kind that `mode` has in its upper bits, if it has one.
pub(crate) fn file_kind(mode: u32) -> Option<FileKind> {
    let bits = mode & 0o170_000;
    KINDS
        .iter()
        .find(|(number, _)| *number == bits)
        .map(|(_, kind)| *kind)
}

/// The upper bits of a mode for `kind`.
pub(crate) fn kind_bits(kind: FileKind) -> u32 {
    let found = KINDS.iter().find(|(_, known)| *known == kind);
    found.expect("the table has every kind").0
}

/// The number of `kind` in a directory's listing (`DT_*`).
pub(crate) fn dirent_kind(kind: FileKind) -> u32 {
    kind_bits(kind) >> 12
}

impl LockKind {
    /// The lock that the kernel numbers so (`F_RDLCK`, `F_WRLCK`, `F_UNLCK`).
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Unlock,
            _ => return None,
        })
    }

    /// The kernel's number.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Unlock => 2,
        }
    }
}

/// A device number as makedev(3) makes it, from the kernel's 32 bits: 12 of the major number
/// between the lower 8 and the upper 12 of the minor one.
pub(crate) fn rdev_from_kernel(rdev: u32) -> u64 {
    makedev(
        (rdev >> 8) & 0xfff,
        (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00),
    )
}

/// The reverse of [`rdev_from_kernel`]; bits that the kernel has no room for are lost, as in
/// stat(2).
pub(crate) fn rdev_to_kernel(rdev: u64) -> u32 {
    let (major, minor) = (major(rdev), minor(rdev));
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
}

/// Seconds and nanoseconds of a validity. The kernel counts in its own ticks, so the largest value
/// means for ever.
pub(crate) fn validity(valid: Duration) -> (u64, u32) {
    (valid.as_secs(), valid.subsec_nanos())
}
