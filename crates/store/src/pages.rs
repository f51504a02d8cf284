//! Pages of records: which are free, and when they become so.
//!
//! Pages are never written over while a superblock may need them. A checkpoint writes the new ones
//! into free pages; those that the old records had and the new ones do not are *freed*, which makes
//! them free only when two superblocks without them are durable: then whichever of the two is
//! intact finds all its pages as it left them.
//!
//! The pages lie in the odd area before the grid and, when that is too small, in whole AUs that
//! the records take, and give back when no superblock needs a page of them. The map of all this is
//! a chain of pages of its own, written with each checkpoint: a bit per page, 1/32,768 of the
//! records' room.

use crate::bitmap::Bitmap;
use crate::layout::{Layout, PAGE_BYTES};
use crate::planted::{Mistake, planted};
use crate::{Damage, StoreError, record};
use base::BlockDevice;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Where a page is, and what its bytes add up to. Who points to a page vouches for it, so a page
/// that was never written, or an old one in the same place, is noticed like a damaged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pointer {
    /// Its offset on the device in pages.
    pub page: u64,
    /// CRC32C of all of its bytes.
    pub crc: u32,
}

const PAGE: usize = PAGE_BYTES as usize;
/// A page of the map's chain begins with the next one's place and checksum and its own length.
const CHAIN_HEADER_BYTES: usize = 16;
const CHAIN_BODY_BYTES: usize = PAGE - CHAIN_HEADER_BYTES;
/// Most bytes of a number of 32 bits as the map has it.
const NUMBER_BYTES_MAX: u64 = 5;

/// Which pages of records are free.
#[derive(Clone, Debug)]
pub(crate) struct Pages {
    layout: Layout,
    /// AUs that the records have taken, in the order in which they did.
    taken: Vec<u32>,
    position_of_taken: BTreeMap<u32, usize>,
    used: Bitmap,
    /// Freed by the checkpoint under way, or by the one that the newest superblock speaks of.
    freed: Vec<u32>,
    /// Freed by the one before.
    freed_before: Vec<u32>,
    /// The pages of the newest map.
    chain: Vec<u64>,
    cursor: usize,
}

/// What the chain says.
#[derive(Serialize, Deserialize)]
struct PageMap {
    taken: Vec<u32>,
    used: Vec<u8>,
    freed: Vec<u32>,
}

impl Pages {
    /// All free.
    #[must_use]
    pub(crate) fn new(layout: Layout) -> Self {
        let count =
            usize::try_from(layout.record_pages()).expect("memory is as large as an address");
        Self {
            layout,
            taken: Vec::new(),
            position_of_taken: BTreeMap::new(),
            used: Bitmap::new(count),
            freed: Vec::new(),
            freed_before: Vec::new(),
            chain: Vec::new(),
            cursor: 0,
        }
    }

    /// The device has become larger.
    pub(crate) fn grow_to(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// How many pages can be allocated now.
    #[must_use]
    pub(crate) fn free_count(&self) -> usize {
        self.used.clear_count()
    }

    /// How many pages the newest records have.
    #[must_use]
    pub(crate) fn live_count(&self) -> usize {
        // Damaged records free a page more than once.
        let freed = self.freed.len() + self.freed_before.len();
        (self.count() - self.free_count()).saturating_sub(freed)
    }

    /// How many pages there are.
    #[must_use]
    pub(crate) fn count(&self) -> usize {
        self.used.len()
    }

    /// The AUs that the records have taken.
    #[must_use]
    pub(crate) fn taken(&self) -> &[u32] {
        &self.taken
    }

    /// Pages that a superblock needs or may need.
    pub(crate) fn used(&self) -> impl Iterator<Item = u64> + '_ {
        self.used.iter().map(|index| self.page_at(index))
    }

    /// Pages that only the older superblock needs.
    pub(crate) fn freed(&self) -> impl Iterator<Item = u64> + '_ {
        let all = self.freed.iter().chain(&self.freed_before);
        all.map(|index| self.page_at(*index as usize))
    }

    /// The pages of the map itself.
    #[must_use]
    pub(crate) fn chain(&self) -> &[u64] {
        &self.chain
    }

    /// Whether records can take another AU: pages are counted in 32 bits, up to 16 TiB of them.
    #[must_use]
    pub(crate) fn can_take_au(&self) -> bool {
        (self.used.len() + self.au_pages()) as u64 <= u64::from(u32::MAX)
    }

    /// Takes a whole AU for records.
    pub(crate) fn take_au(&mut self, au: u32) {
        let known = self.position_of_taken.insert(au, self.taken.len());
        assert!(known.is_none(), "AU {au} was free");
        self.taken.push(au);
        self.used.grow(self.au_pages());
    }

    /// Gives back AUs that have nothing that a superblock needs, while so many pages stay free.
    /// The superblock that is about to be made is the first one whose map is without them.
    pub(crate) fn give_back_empty(&mut self, kept_free: usize) -> Vec<u32> {
        let (odd, au_pages) = (self.odd_pages(), self.au_pages());
        let mut free = self.free_count();
        let mut given = vec![false; self.taken.len()];
        // The last ones first: pages are allocated from the first one on.
        for position in (0..self.taken.len()).rev() {
            let from = odd + position * au_pages;
            if free < kept_free + au_pages {
                break;
            }
            if self.used.is_clear_between(from, from + au_pages) {
                given[position] = true;
                free -= au_pages;
            }
        }
        if !given.contains(&true) {
            return Vec::new();
        }
        // Where a page is on the map after that; given ones are asked for by nobody.
        let mut moved = Vec::with_capacity(given.len());
        let mut next = odd;
        for is_given in &given {
            moved.push(next);
            next += if *is_given { 0 } else { au_pages };
        }
        let place = |index: usize| match index.checked_sub(odd) {
            Some(behind) => moved[behind / au_pages] + behind % au_pages,
            None => index,
        };
        let mut used = Bitmap::new(next);
        for index in self.used.iter() {
            used.set(place(index), true);
        }
        self.used = used;
        for freed in self.freed.iter_mut().chain(&mut self.freed_before) {
            *freed = u32::try_from(place(*freed as usize)).expect("less than before");
        }
        let taken = std::mem::take(&mut self.taken).into_iter().zip(given);
        let (gone, kept): (Vec<_>, Vec<_>) = taken.partition(|(_, is_given)| *is_given);
        self.taken = kept.into_iter().map(|(au, _)| au).collect();
        self.position_of_taken = self.taken.iter().copied().zip(0..).collect();
        self.cursor = 0;
        gone.into_iter().map(|(au, _)| au).collect()
    }

    /// A free page; none if there is none.
    pub(crate) fn allocate(&mut self) -> Option<u64> {
        let index = self.used.next_clear(self.cursor)?;
        self.used.set(index, true);
        self.cursor = index + 1;
        Some(self.page_at(index))
    }

    /// The newest records do not need this page.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if it is none of the pages in use.
    pub(crate) fn free(&mut self, page: u64) -> Result<(), StoreError> {
        let index = self.index_of(page).filter(|index| self.used.get(*index));
        let index = index.ok_or(Damage::Page(page.saturating_mul(PAGE_BYTES)))?;
        if planted(Mistake::PagesFreeAtOnce) {
            self.used.set(index, false);
            return Ok(());
        }
        self.freed
            .push(u32::try_from(index).expect("a map of 2^32 pages fits no chain"));
        Ok(())
    }

    /// A superblock is durable that speaks of the newest records.
    pub(crate) fn superblock_is_durable(&mut self) {
        for index in std::mem::take(&mut self.freed_before) {
            self.used.set(index as usize, false);
        }
        self.freed_before = std::mem::take(&mut self.freed);
        // The lowest first, so that AUs that were taken become empty again.
        self.cursor = 0;
        if planted(Mistake::PagesFreeTooEarly) {
            for index in std::mem::take(&mut self.freed_before) {
                self.used.set(index as usize, false);
            }
        }
    }

    /// How many pages the map takes if `more` pages are freed besides.
    #[must_use]
    pub(crate) fn map_pages(&self, more: usize) -> usize {
        let (taken, freed) = (self.taken.len() as u64, self.freed.len() + more);
        map_pages(taken, self.used.len() as u64, freed as u64) as usize
    }

    /// Writes the map as it is once the next superblock is durable: without what that one frees.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`], the device's.
    pub(crate) fn write_map(&mut self, device: &dyn BlockDevice) -> Result<Pointer, StoreError> {
        for page in std::mem::take(&mut self.chain) {
            self.free(page)?;
        }
        let mut chain = Vec::new();
        for _ in 0..self.map_pages(0) {
            chain.push(
                self.allocate()
                    .ok_or(StoreError::NoSpace { wanted: 1, free: 0 })?,
            );
        }
        let mut used = self.used.clone();
        for index in &self.freed_before {
            used.set(*index as usize, false);
        }
        let bytes = record::encode(&PageMap {
            taken: self.taken.clone(),
            used: used.bytes(0, used.len()),
            freed: self.freed.clone(),
        });
        let mut next = Pointer { page: 0, crc: 0 };
        let parts: Vec<&[u8]> = (0..chain.len())
            .map(|part| {
                let from = (part * CHAIN_BODY_BYTES).min(bytes.len());
                &bytes[from..(from + CHAIN_BODY_BYTES).min(bytes.len())]
            })
            .collect();
        for (&page, part) in chain.iter().zip(parts).rev() {
            let bytes = encode_link(next, part);
            device.write_at(page * PAGE_BYTES, &bytes)?;
            next = Pointer {
                page,
                crc: crc32c::crc32c(&bytes),
            };
        }
        self.chain = chain;
        Ok(next)
    }

    /// Reads the map that `first` points to.
    ///
    /// # Errors
    /// [`StoreError::Damaged`], the device's.
    pub(crate) fn read_map(
        layout: Layout,
        device: &dyn BlockDevice,
        first: Pointer,
    ) -> Result<Self, StoreError> {
        let (chain, bytes) = read_chain(&layout, device, first)?;
        let damaged = || damaged_map(first.page);
        let map: PageMap = record::decode(&bytes).map_err(|_| damaged())?;
        let mut pages = Self::new(layout);
        pages.chain = chain;
        for au in map.taken {
            let is_new = au < layout.au_count && !pages.position_of_taken.contains_key(&au);
            if !is_new || !pages.can_take_au() {
                return Err(damaged());
            }
            pages.take_au(au);
        }
        if !pages.used.set_bytes(0, &map.used) {
            return Err(damaged());
        }
        // What is freed is still in use, and is freed once.
        let mut freed = Bitmap::new(pages.used.len());
        let fits = |index: usize| index < pages.used.len() && pages.used.get(index);
        for index in &map.freed {
            if !fits(*index as usize) || !freed.set(*index as usize, true) {
                return Err(damaged());
            }
        }
        pages.freed = map.freed;
        Ok(pages)
    }

    /// The map that follows from the pages of the newest records, and from all that a superblock
    /// needs for now.
    pub(crate) fn derive(layout: Layout, records: &BTreeSet<u64>, kept: &BTreeSet<u64>) -> Self {
        let mut pages = Self::new(layout);
        for page in records.union(kept) {
            let Some(within) = page.checked_sub(layout.grid_offset / PAGE_BYTES) else {
                continue;
            };
            let au = u32::try_from(within / layout.au_pages()).unwrap_or(u32::MAX);
            if au < layout.au_count && !pages.position_of_taken.contains_key(&au) {
                pages.take_au(au);
            }
        }
        for page in records.union(kept) {
            let index = pages.index_of(*page);
            let Some(index) = index.filter(|index| *index < pages.used.len()) else {
                continue;
            };
            pages.used.set(index, true);
            if !records.contains(page) {
                let index = u32::try_from(index).expect("a map of 2^32 pages fits no chain");
                pages.freed.push(index);
            }
        }
        pages
    }

    /// Pages before the grid.
    fn odd_pages(&self) -> usize {
        usize::try_from(self.layout.record_pages()).expect("counted in a bitmap")
    }

    fn au_pages(&self) -> usize {
        usize::try_from(self.layout.au_pages()).expect("at most 16,384")
    }

    fn page_at(&self, index: usize) -> u64 {
        let odd = self.odd_pages();
        if index < odd {
            return self.layout.record_offset() / PAGE_BYTES + index as u64;
        }
        let au = self.taken[(index - odd) / self.au_pages()];
        self.layout.au_offset(au) / PAGE_BYTES + ((index - odd) % self.au_pages()) as u64
    }

    fn index_of(&self, page: u64) -> Option<usize> {
        let first = self.layout.record_offset() / PAGE_BYTES;
        let grid = self.layout.grid_offset / PAGE_BYTES;
        if page < grid {
            return usize::try_from(page.checked_sub(first)?).ok();
        }
        let odd = self.odd_pages();
        let au = u32::try_from((page - grid) / self.layout.au_pages()).ok()?;
        let within = usize::try_from((page - grid) % self.layout.au_pages()).ok()?;
        Some(odd + self.position_of_taken.get(&au)? * self.au_pages() + within)
    }
}

/// How many pages the map takes of so many taken AUs, and pages of which so many are freed.
fn map_pages(taken: u64, pages: u64, freed: u64) -> u64 {
    let bytes = taken * NUMBER_BYTES_MAX + pages.div_ceil(8) + freed * NUMBER_BYTES_MAX + 30;
    bytes.div_ceil(CHAIN_BODY_BYTES as u64)
}

/// The longest chain that a device can have: records have taken every AU, and the last checkpoint
/// has freed every page, as when a store is emptied.
fn chain_len_max(layout: &Layout) -> u64 {
    let aus = u64::from(layout.au_count);
    let pages = (layout.record_pages() + aus * layout.au_pages()).min(u64::from(u32::MAX));
    map_pages(aus, pages, pages)
}

fn damaged_map(page: u64) -> StoreError {
    Damage::PageMap(page.saturating_mul(PAGE_BYTES)).into()
}

/// Reads the pages of a map; where they are, and what they say.
fn read_chain(
    layout: &Layout,
    device: &dyn BlockDevice,
    first: Pointer,
) -> Result<(Vec<u64>, Vec<u8>), StoreError> {
    let (mut chain, mut bytes) = (Vec::new(), Vec::new());
    // Each page once: what leads back to where it was has no end.
    let mut seen = BTreeSet::new();
    let mut next = first;
    while next.page != 0 {
        if chain.len() as u64 >= chain_len_max(layout) || !seen.insert(next.page) {
            return Err(damaged_map(next.page));
        }
        let page = read_page(device, next).map_err(|error| match error {
            StoreError::Damaged(_) => damaged_map(next.page),
            other => other,
        })?;
        let (following, part) = decode_link(&page).ok_or_else(|| damaged_map(next.page))?;
        chain.push(next.page);
        bytes.extend_from_slice(part);
        next = following;
    }
    Ok((chain, bytes))
}

/// Reads a page and holds it against what its pointer says.
///
/// # Errors
/// [`StoreError::Damaged`], also if there is no such page on the device; the device's.
pub(crate) fn read_page(device: &dyn BlockDevice, pointer: Pointer) -> Result<Vec<u8>, StoreError> {
    let offset = pointer.page.saturating_mul(PAGE_BYTES);
    let mut page = vec![0; PAGE];
    if device.extent_at(offset, PAGE).is_err() {
        return Err(Damage::Page(offset).into());
    }
    device.read_at(offset, &mut page)?;
    if crc32c::crc32c(&page) == pointer.crc || planted(Mistake::PagesUnverified) {
        Ok(page)
    } else {
        Err(Damage::Page(offset).into())
    }
}

fn encode_link(next: Pointer, part: &[u8]) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    page[..8].copy_from_slice(&next.page.to_le_bytes());
    page[8..12].copy_from_slice(&next.crc.to_le_bytes());
    let len = u16::try_from(part.len()).expect("a page at most");
    page[12..14].copy_from_slice(&len.to_le_bytes());
    page[CHAIN_HEADER_BYTES..][..part.len()].copy_from_slice(part);
    page
}

fn decode_link(page: &[u8]) -> Option<(Pointer, &[u8])> {
    let next = Pointer {
        page: u64::from_le_bytes(page.get(..8)?.try_into().ok()?),
        crc: u32::from_le_bytes(page.get(8..12)?.try_into().ok()?),
    };
    let len = usize::from(u16::from_le_bytes(page.get(12..14)?.try_into().ok()?));
    Some((next, page.get(CHAIN_HEADER_BYTES..)?.get(..len)?))
}
