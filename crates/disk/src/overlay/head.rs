//! The head of an overlay, and where things lie behind it.

use super::map::{BLOCKS_PER_SECTOR, SECTOR_BYTES};
use super::{BLOCK, BLOCK_BYTES};
use crate::DISK_FORMAT_VERSION;
use crate::error::{Damage, DiskError};
use crate::manifest::VersionId;
use base::BlockDevice;
use base::limits::DISK_IMAGE_BYTES_MAX;

const MAGIC: [u8; 8] = *b"AZKOVERL";
pub(super) const HEAD_BYTES: usize = 4096;
const CRC: std::ops::Range<usize> = 12..16;
const FIELDS_END: usize = 64;

/// What an overlay is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) image_bytes: u64,
    pub(super) version: VersionId,
}

/// Where the parts of an overlay lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) image_bytes: u64,
    pub(super) map_offset: u64,
    pub(super) sector_count: u64,
    pub(super) data_offset: u64,
}

impl Layout {
    pub(super) fn of(image_bytes: u64) -> Self {
        let sector_count = image_bytes.div_ceil(BLOCK).div_ceil(BLOCKS_PER_SECTOR);
        let map_offset = HEAD_BYTES as u64;
        let map_end = map_offset + sector_count * SECTOR_BYTES as u64;
        Self {
            image_bytes,
            map_offset,
            sector_count,
            data_offset: map_end.next_multiple_of(BLOCK),
        }
    }

    pub(super) fn backing_bytes(&self) -> u64 {
        self.data_offset + self.image_bytes.next_multiple_of(BLOCK)
    }
}

impl Head {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&DISK_FORMAT_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.image_bytes.to_le_bytes());
        bytes[24..28].copy_from_slice(&BLOCK_BYTES.to_le_bytes());
        bytes[32..64].copy_from_slice(&self.version.0);
        let crc = crc32c::crc32c(&bytes);
        bytes[CRC].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(super) fn read(backing: &dyn BlockDevice) -> Result<Self, DiskError> {
        if backing.len_bytes() < HEAD_BYTES as u64 {
            return Err(damaged(Damage::NotARecord));
        }
        let mut bytes = vec![0; HEAD_BYTES];
        backing.read_at(0, &mut bytes)?;
        let head = Self::from_bytes(&bytes).map_err(damaged)?;
        if backing.len_bytes() < Layout::of(head.image_bytes).backing_bytes() {
            return Err(damaged(Damage::Record));
        }
        Ok(head)
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, Damage> {
        if bytes.len() != HEAD_BYTES || bytes[..8] != MAGIC {
            return Err(Damage::NotARecord);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version > DISK_FORMAT_VERSION {
            return Err(Damage::Newer(version));
        }
        let mut image_bytes = [0; 8];
        image_bytes.copy_from_slice(&bytes[16..24]);
        let mut over = [0; 32];
        over.copy_from_slice(&bytes[32..FIELDS_END]);
        let head = Self {
            image_bytes: u64::from_le_bytes(image_bytes),
            version: VersionId(over),
        };
        // There is one way to write a head.
        if head.image_bytes > DISK_IMAGE_BYTES_MAX || head.to_bytes() != bytes {
            return Err(Damage::Record);
        }
        Ok(head)
    }

    /// Whether it was made for this image.
    pub(super) fn check_fits(&self, image_bytes: u64, version: VersionId) -> Result<(), DiskError> {
        if self.image_bytes == image_bytes && self.version == version {
            return Ok(());
        }
        Err(damaged(Damage::Foreign))
    }
}

pub(super) fn damaged(damage: Damage) -> DiskError {
    DiskError::Damaged {
        place: "the overlay".into(),
        damage,
    }
}
