//! What is on a device already: what must not be overwritten by mistake.
//!
//! Only the first MiB is looked at: every file system, partition table and volume manager in use
//! begins there, and a device whose first MiB is zero was wiped or never used. The names are for
//! people; that something is there does not depend on knowing its name.

use crate::{StoreError, Superblock};
use base::{BlockDevice, DeviceError};
use std::fmt;

/// What [`Contents`] looks at, from the device's beginning on.
pub const LOOKED_AT_BYTES: u64 = 1 << 20;
/// The places of a store's superblocks.
const SUPERBLOCKS: [usize; 2] = [0, 64 << 10];

/// Bytes by which others mark a device as theirs: where, which, and whose.
const MARKS: [(usize, &[u8], &str); 16] = [
    (0x438, b"\x53\xef", "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a Btrfs file system"),
    (0x400, b"\x10\x20\xf5\xf2", "an F2FS file system"),
    (3, b"NTFS    ", "an NTFS file system"),
    (3, b"EXFAT   ", "an exFAT file system"),
    (0x52, b"FAT32   ", "a FAT file system"),
    (0x36, b"FAT16   ", "a FAT file system"),
    (0, b"LUKS\xba\xbe", "an encrypted volume (LUKS)"),
    (0x200, b"LABELONE", "an LVM physical volume"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "a member of a Linux RAID"),
    (0xff6, b"SWAPSPACE2", "swap space"),
    (0, b"QFI\xfb", "a QCOW2 image"),
    (0x200, b"EFI PART", "a partition table (GPT)"),
    (0x1000, b"EFI PART", "a partition table (GPT)"),
    (0x1fe, b"\x55\xaa", "a partition table or boot sector"),
];

/// What is on a device already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Zeros.
    Nothing,
    /// A store, or what is left of one: its superblock, if one is intact.
    Store(Option<Box<Superblock>>),
    /// Something with a name.
    Known(&'static str),
    /// Bytes that are not zero.
    Unknown,
}

impl Contents {
    /// Looks at the device.
    ///
    /// # Errors
    /// The device's.
    pub fn of(device: &dyn BlockDevice) -> Result<Self, DeviceError> {
        let len = device.len_bytes().min(LOOKED_AT_BYTES) as usize;
        let mut bytes = vec![0; len];
        device.read_at(0, &mut bytes)?;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(Self::Nothing);
        }
        let is_there = |at: usize, mark: &[u8]| bytes.get(at..at + mark.len()) == Some(mark);
        if SUPERBLOCKS.into_iter().any(|at| is_there(at, b"AZKSTORE")) {
            let newest = crate::core::superblock_of(device).ok();
            return Ok(Self::Store(newest.map(Box::new)));
        }
        let known = MARKS.into_iter().find(|(at, mark, _)| is_there(*at, mark));
        Ok(known.map_or(Self::Unknown, |(_, _, name)| Self::Known(name)))
    }
}

/// Whether a device is as long as the store on it, if there is one. A file that was cut or copied
/// in part, and a partition or volume that was made smaller, lack what lay at the end.
///
/// # Errors
/// [`StoreError::Shortened`] says how long the device was.
pub fn ensure_whole(device: &dyn BlockDevice) -> Result<(), StoreError> {
    match crate::core::superblock_of(device) {
        Ok(superblock) => crate::core::check_len(&superblock, device),
        // Whoever opens the store says what else there is to say.
        Err(_) => Ok(()),
    }
}

impl fmt::Display for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Store(Some(superblock)) => write!(f, "store {}", superblock.store),
            Self::Store(None) => f.write_str("a store that this release cannot read"),
            Self::Known(name) => f.write_str(name),
            Self::Unknown => f.write_str("data of unknown origin"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Core, Format, Lifetimes, Sizes};
    use base::StoreId;
    use sim::CrashDisk;

    const LEN: u64 = 8 << 20;

    fn found(at: u64, bytes: &[u8]) -> String {
        let disk = CrashDisk::new(LEN);
        disk.write_at(at, bytes).unwrap();
        Contents::of(&disk).unwrap().to_string()
    }

    #[test]
    fn what_is_there_is_named() {
        for (at, mark, name) in MARKS {
            assert_eq!(found(at as u64, mark), name);
        }
        assert_eq!(found(LOOKED_AT_BYTES - 1, &[1]), "data of unknown origin");
        assert_eq!(found(LOOKED_AT_BYTES, &[1]), "nothing");
        assert_eq!(found(0, &[0]), "nothing");
    }

    #[test]
    fn a_store_is_known_by_either_superblock() {
        let disk = CrashDisk::new(LEN);
        let format = Format {
            store: StoreId([7; 16]),
            sizes: Sizes::for_device(LEN, 1 << 16),
            lifetimes: Lifetimes::default(),
            capability: Vec::new(),
        };
        Core::format(&disk, &format).unwrap();
        let shown = || Contents::of(&disk).unwrap().to_string();
        let name = format!("store {}", format.store);
        assert_eq!(shown(), name);
        disk.write_at(0, &[0; 4096]).unwrap();
        assert_eq!(shown(), name);
        disk.write_at(70_000, &[9]).unwrap();
        assert_eq!(shown(), name, "what lies behind a superblock is no part");
        disk.write_at(66_000, &[9]).unwrap();
        assert_eq!(shown(), "a store that this release cannot read");
    }

    #[test]
    fn a_store_whose_device_was_shortened_is_no_longer_whole() {
        let disk = CrashDisk::new(LEN);
        let format = Format {
            store: StoreId([7; 16]),
            sizes: Sizes::for_device(LEN, 1 << 16),
            lifetimes: Lifetimes::default(),
            capability: Vec::new(),
        };
        Core::format(&disk, &format).unwrap();
        ensure_whole(&disk).unwrap();
        // Also if not even the second superblock is left of it.
        for len in [LEN - 4096, 4096] {
            let short = CrashDisk::new(len);
            let mut bytes = vec![0; len as usize];
            disk.read_at(0, &mut bytes).unwrap();
            short.write_at(0, &bytes).unwrap();
            let said = ensure_whole(&short).unwrap_err().to_string();
            assert!(said.contains("8.0 MiB"), "{said}");
        }
        ensure_whole(&CrashDisk::new(4096)).unwrap();
    }

    #[test]
    fn a_device_may_be_shorter_than_what_is_looked_at() {
        assert_eq!(
            Contents::of(&CrashDisk::new(4096)).unwrap(),
            Contents::Nothing
        );
    }
}
