//! The two superblocks and the records that each of them leads to.

use super::patched::Patched;
use crate::StoreError;
use crate::bits::put_one_bit_right;
use crate::check::{Finding, Kind, Mend};
use crate::core::{Options, check_len};
use crate::layout::{PAGE_BYTES, SUPERBLOCK_OFFSETS};
use crate::pages::Pages;
use crate::superblock::Superblock;
use crate::tree::node;
use crate::tree::{Gap, Tree, node_of};
use base::BlockDevice;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A superblock, and what can be read of its records.
pub(super) struct View {
    pub(super) superblock: Superblock,
    /// Its tree, in which damaged pages count as empty.
    pub(super) tree: Tree,
    /// Those pages.
    pub(super) gaps: Vec<Gap>,
    /// Its map of pages, if that can be read.
    pub(super) pages: Option<Pages>,
}

/// The device as its superblocks see it.
pub(super) struct Views {
    /// On which the pages that can be mended are right.
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) newest: View,
    /// Of the other superblock, if that is intact and says something else.
    pub(super) older: Option<View>,
    /// Pages with one flipped bit, by their offsets, as they should be.
    pub(super) mended: BTreeMap<u64, Vec<u8>>,
    /// Whether there is only one superblock.
    pub(super) is_single: bool,
}

impl Views {
    /// Reads both; says what is wrong.
    ///
    /// # Errors
    /// Those of opening, if there is no superblock to go on from; the device's.
    pub(super) fn read(
        device: &Arc<dyn BlockDevice>,
        options: Options,
        findings: &mut Vec<Finding>,
    ) -> Result<Self, StoreError> {
        let mut mended = BTreeMap::new();
        let [even, odd] = superblocks(&**device, &mut mended, findings)?;
        let both = [&even, &odd].map(|read| read.as_ref().ok().cloned());
        let superblock = Superblock::choose(even, odd)?;
        if let Some(wanted) = options.store.filter(|wanted| *wanted != superblock.store) {
            let found = superblock.store;
            return Err(StoreError::Foreign { found, wanted });
        }
        check_len(&superblock, &**device)?;
        let other = both
            .into_iter()
            .flatten()
            .find(|other| *other != superblock);
        let is_single = other.is_none();
        let stale = other.as_ref();
        let stale = stale.filter(|other| other.is_stale(superblock.epoch));
        findings.extend(stale.map(|stale| stale_finding(stale, &superblock)));
        let is_stale = stale.is_some();
        let same_root = |other: &Superblock| {
            other.root == superblock.root && other.log_head == superblock.log_head
        };
        let older = other.filter(|other| !same_root(other));
        // Mending a page shows those below it.
        loop {
            let device: Arc<dyn BlockDevice> =
                Arc::new(Patched::new(device.clone(), mended.clone()));
            let view = |superblock| View::read(&device, superblock, options);
            let newest = view(superblock.clone())?;
            let older = older.clone().map(view).transpose()?;
            // Those of the older one matter if something has to come from it.
            let is_needed = !newest.gaps.is_empty();
            let theirs = older.iter().filter(|_| is_needed).flat_map(|o| &o.gaps);
            let gaps = newest.gaps.iter().chain(theirs);
            let more = mend(&*device, gaps, findings)?;
            if more.is_empty() {
                return Ok(Self {
                    device,
                    // What a stale one needs may be used by others since; it is no help unless
                    // help is needed.
                    older: older.filter(|_| !is_stale || is_needed),
                    newest,
                    mended,
                    is_single,
                });
            }
            mended.extend(more);
        }
    }
}

impl View {
    fn read(
        device: &Arc<dyn BlockDevice>,
        superblock: Superblock,
        options: Options,
    ) -> Result<Self, StoreError> {
        let (root, height) = (superblock.root, superblock.height);
        let tree = Tree::new(device.clone(), root, height, options.cache_pages);
        let pages = match superblock.page_map {
            None => Some(Pages::new(superblock.layout)),
            Some(first) => match Pages::read_map(superblock.layout, &**device, first) {
                Ok(pages) => Some(pages),
                Err(StoreError::Damaged(_)) => None,
                Err(other) => return Err(other),
            },
        };
        Ok(Self {
            gaps: tree.gaps()?,
            tree: tree.skipping_damage(),
            superblock,
            pages,
        })
    }

    /// The pages of its records, as far as they are known.
    pub(super) fn tree_pages(&self) -> Result<BTreeSet<u64>, StoreError> {
        let mut all = BTreeSet::new();
        self.tree.visit_pages(&mut |page| {
            all.insert(page);
        })?;
        Ok(all)
    }

    /// Those of its map besides.
    pub(super) fn all_pages(&self) -> Result<BTreeSet<u64>, StoreError> {
        let mut all = self.tree_pages()?;
        all.extend(self.pages.iter().flat_map(|pages| pages.chain()));
        Ok(all)
    }
}

/// What is to be said of a superblock that is not the one before the newest.
fn stale_finding(stale: &Superblock, newest: &Superblock) -> Finding {
    let offset = SUPERBLOCK_OFFSETS[(stale.epoch % 2) as usize];
    let what = format!(
        "the superblock at byte {offset} is an old one, of epoch {} beside {}: the device has \
         forgotten a write, or an old copy was put there",
        stale.epoch, newest.epoch
    );
    Finding::new(Kind::Superblock, Mend::Possible, what)
}

/// The superblocks as they are, or as they were before one bit flipped.
fn superblocks(
    device: &dyn BlockDevice,
    mended: &mut BTreeMap<u64, Vec<u8>>,
    findings: &mut Vec<Finding>,
) -> Result<[Result<Superblock, StoreError>; 2], StoreError> {
    let mut read = Vec::new();
    for (place, offset) in SUPERBLOCK_OFFSETS.into_iter().enumerate() {
        let mut page = vec![0; PAGE_BYTES as usize];
        device.read_at(offset, &mut page)?;
        let mut decoded = Superblock::decode_at(place, &page);
        if matches!(decoded, Err(StoreError::Damaged(_) | StoreError::NotAStore)) {
            if let Some(right) = Superblock::put_one_bit_right(&page) {
                decoded = Superblock::decode_at(place, &right);
                if decoded.is_ok() {
                    mended.insert(offset, right);
                }
            }
            let what = format!("the superblock at byte {offset} is damaged");
            findings.push(Finding::new(Kind::Superblock, Mend::Possible, what));
        }
        read.push(decoded);
    }
    Ok(read.try_into().expect("there are two"))
}

/// The pages that one flipped bit makes unreadable.
fn mend<'a>(
    device: &dyn BlockDevice,
    gaps: impl Iterator<Item = &'a Gap>,
    findings: &mut Vec<Finding>,
) -> Result<BTreeMap<u64, Vec<u8>>, StoreError> {
    let mut mended = BTreeMap::new();
    for gap in gaps {
        let offset = gap.pointer.page.saturating_mul(PAGE_BYTES);
        if mended.contains_key(&offset) {
            continue;
        }
        let mut page = vec![0; PAGE_BYTES as usize];
        device.read_at(offset, &mut page)?;
        // It must make sense, too: what has as many wrong bits as a wrong page could look right.
        let makes_sense = |page: &[u8]| {
            let node = node_of(page, gap.level);
            node.is_some_and(|node| {
                let mut keys = node.items.iter().map(|(key, _)| key);
                node::encode(gap.level, &node.items) == page
                    && keys.all(|key| gap.range.0 <= *key && *key < gap.range.1)
            })
        };
        if put_one_bit_right(&mut page, gap.pointer.crc) && makes_sense(&page) {
            let what = format!("the records at byte {offset}: one bit is wrong");
            findings.push(Finding::new(Kind::Page, Mend::Possible, what));
            mended.insert(offset, page);
        }
    }
    Ok(mended)
}
