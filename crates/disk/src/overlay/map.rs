//! The state of each block, two bits each, in sectors that are replaced whole.
//!
//! A sector that was never written is zeros and says that all its blocks are the base's. Only
//! sectors that say something else are in memory.

use super::head::{Layout, damaged};
use crate::error::{Damage, DiskError};
use base::BlockDevice;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub(super) const SECTOR_BYTES: usize = 512;
/// Behind the checksum and the sector's number.
const STATES_AT: usize = 8;
const STATES_BYTES: usize = SECTOR_BYTES - STATES_AT;
const BLOCKS_PER_BYTE: u64 = 4;
pub(super) const BLOCKS_PER_SECTOR: u64 = STATES_BYTES as u64 * BLOCKS_PER_BYTE;
/// Read at once when an overlay is opened.
const PORTION_BYTES: usize = 1 << 20;

/// Whose a block's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockState {
    /// The base's.
    Base,
    /// The overlay's.
    Written,
    /// Nobody's: it was trimmed.
    Zero,
}

type States = [u8; STATES_BYTES];

/// The state of each block.
#[derive(Debug, Default)]
pub(super) struct Map {
    sectors: BTreeMap<u32, Box<States>>,
    /// Sectors that were changed since they were taken to be written.
    dirty: BTreeSet<u32>,
}

impl Map {
    pub(super) fn read(backing: &dyn BlockDevice, layout: &Layout) -> Result<Self, DiskError> {
        let mut map = Self::default();
        let mut buffer = vec![0; PORTION_BYTES];
        let map_bytes = layout.sector_count * SECTOR_BYTES as u64;
        let mut offset = 0;
        while offset < map_bytes {
            let len = (map_bytes - offset).min(PORTION_BYTES as u64) as usize;
            let portion = &mut buffer[..len];
            backing.read_at(layout.map_offset + offset, portion)?;
            let first = offset / SECTOR_BYTES as u64;
            let (sectors, _) = portion.as_chunks::<SECTOR_BYTES>();
            for (number, sector) in (first..).zip(sectors) {
                let number = u32::try_from(number).map_err(|_| damaged(Damage::Record))?;
                if let Some(states) = decode(number, sector).map_err(damaged)? {
                    map.sectors.insert(number, states);
                }
            }
            offset += len as u64;
        }
        Ok(map)
    }

    pub(super) fn state(&self, block: u64) -> BlockState {
        let (sector, byte, shift) = place(block);
        match self.sectors.get(&sector) {
            None => BlockState::Base,
            Some(states) => match states[byte] >> shift & 3 {
                0 => BlockState::Base,
                1 => BlockState::Written,
                _ => BlockState::Zero,
            },
        }
    }

    pub(super) fn set(&mut self, blocks: Range<u64>, state: BlockState) {
        let bits: u8 = match state {
            BlockState::Base => 0,
            BlockState::Written => 1,
            BlockState::Zero => 2,
        };
        for block in blocks {
            let (sector, byte, shift) = place(block);
            let states = self
                .sectors
                .entry(sector)
                .or_insert_with(|| Box::new([0; STATES_BYTES]));
            let changed = states[byte] & !(3 << shift) | bits << shift;
            if changed != states[byte] {
                states[byte] = changed;
                self.dirty.insert(sector);
            }
        }
    }

    /// Blocks that are not the base's, in order.
    pub(super) fn changed(&self) -> impl Iterator<Item = u64> + '_ {
        self.sectors.iter().flat_map(|(sector, states)| {
            let first = u64::from(*sector) * BLOCKS_PER_SECTOR;
            (0..BLOCKS_PER_SECTOR)
                .filter(|block| {
                    let (_, byte, shift) = place(*block);
                    states[byte] >> shift & 3 != 0
                })
                .map(move |block| first + block)
        })
    }

    /// The sectors that were changed, as they are to be written.
    pub(super) fn take_dirty(&mut self) -> Vec<(u32, [u8; SECTOR_BYTES])> {
        let dirty = std::mem::take(&mut self.dirty);
        let encode = |number: u32| (number, encode(number, &self.sectors[&number]));
        dirty.into_iter().map(encode).collect()
    }
}

/// The sector, the byte of its states and the bit where a block's state is.
fn place(block: u64) -> (u32, usize, u32) {
    let within = block % BLOCKS_PER_SECTOR;
    (
        (block / BLOCKS_PER_SECTOR) as u32,
        (within / BLOCKS_PER_BYTE) as usize,
        (within % BLOCKS_PER_BYTE * 2) as u32,
    )
}

fn encode(number: u32, states: &States) -> [u8; SECTOR_BYTES] {
    let mut sector = [0; SECTOR_BYTES];
    sector[4..8].copy_from_slice(&number.to_le_bytes());
    sector[STATES_AT..].copy_from_slice(states);
    let crc = crc32c::crc32c(&sector[4..]);
    sector[..4].copy_from_slice(&crc.to_le_bytes());
    sector
}

/// None if it was never written.
fn decode(number: u32, sector: &[u8; SECTOR_BYTES]) -> Result<Option<Box<States>>, Damage> {
    if sector.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    let mut states = Box::new([0; STATES_BYTES]);
    states.copy_from_slice(&sector[STATES_AT..]);
    let is_known = states.iter().all(|byte| byte & byte >> 1 & 0x55 == 0);
    if !is_known || encode(number, &states) != *sector {
        return Err(Damage::Record);
    }
    Ok(Some(states))
}
