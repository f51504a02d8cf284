//! The checkpointed records: a B+tree of pages that are never written over.
//!
//! A checkpoint applies a sorted list of changes at once ([`apply`]): it rewrites the pages that
//! change and those above them into free pages, and ends with another root, which counts once a
//! superblock says so. A pointer carries the checksum of the page it leads to, so that every page
//! is verified when it is read; a damaged one is an error for the records in it and for no others.

mod apply;
mod cache;
pub(crate) mod node;

use crate::key::{Key, Value};
use crate::layout::PAGE_BYTES;
use crate::lost::Range;
use crate::pages::{Pointer, read_page};
use crate::{Damage, StoreError};
pub(crate) use apply::{Cost, Load};
use base::BlockDevice;
use cache::Cache;
use node::{Node, Payload};
use std::sync::Arc;

/// The deepest tree: three items a page at least make 3^40 records.
const HEIGHT_MAX: u8 = 40;

/// The records of one checkpoint. A clone is another view of the same pages, for the next one.
#[derive(Clone)]
pub(crate) struct Tree {
    device: Arc<dyn BlockDevice>,
    root: Option<Pointer>,
    height: u8,
    cache: Arc<Cache>,
    /// A page that is damaged counts as one without items: for a repair.
    skips_damage: bool,
}

/// A page that cannot be read, and what it had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    pub(crate) pointer: Pointer,
    pub(crate) level: u8,
    /// The keys that are in it or below it.
    pub(crate) range: Range,
}

/// What was read on the way to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Walk {
    /// How many pages.
    pub(crate) pages: u64,
    /// The least key that is behind the last one of them.
    pub(crate) to: Key,
    /// The last one, if it is damaged.
    pub(crate) damaged: Option<Pointer>,
}

impl Tree {
    /// The tree of that root.
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        root: Option<Pointer>,
        height: u8,
        cache_pages: usize,
    ) -> Self {
        Self {
            device,
            root,
            height,
            cache: Arc::new(Cache::new(cache_pages)),
            skips_damage: false,
        }
    }

    /// The same, in which a page that is damaged counts as one without items.
    pub(crate) fn skipping_damage(self) -> Self {
        Self {
            skips_damage: true,
            ..self
        }
    }

    /// The root page, and the levels above the leaves.
    pub(crate) fn root(&self) -> (Option<Pointer>, u8) {
        (self.root, self.height)
    }

    /// The contents of a record.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if a page on the way is; the device's.
    pub(crate) fn get(&self, key: &Key) -> Result<Option<Value>, StoreError> {
        let Some(mut pointer) = self.root else {
            return Ok(None);
        };
        for level in (0..=self.height).rev() {
            let node = self.load(pointer, level)?;
            let at = node
                .items
                .partition_point(|(least, _)| least.cmp(key).is_le());
            match at.checked_sub(1).map(|at| &node.items[at]) {
                Some((_, Payload::Child(child))) => pointer = *child,
                Some((found, Payload::Record(value))) => {
                    return Ok((found == key).then(|| value.clone()));
                }
                None => return Ok(None),
            }
        }
        Err(Damage::Page(pointer.page.saturating_mul(PAGE_BYTES)).into())
    }

    /// The records from `from` up to, not including, `to`, at most `count_max` of them, in order.
    ///
    /// # Errors
    /// As those of [`Self::get`].
    pub(crate) fn range(
        &self,
        from: &Key,
        to: &Key,
        count_max: usize,
    ) -> Result<Vec<(Key, Value)>, StoreError> {
        let mut found = Vec::new();
        if let Some(root) = self.root {
            self.collect(root, self.height, (from, to, count_max), &mut found)?;
        }
        Ok(found)
    }

    fn collect(
        &self,
        pointer: Pointer,
        level: u8,
        (from, to, count_max): (&Key, &Key, usize),
        found: &mut Vec<(Key, Value)>,
    ) -> Result<(), StoreError> {
        let node = self.load(pointer, level)?;
        let first = node
            .items
            .partition_point(|(least, _)| least.cmp(from).is_le())
            .saturating_sub(1);
        for (key, payload) in node.items[first..].iter().take_while(|(key, _)| key < to) {
            if found.len() >= count_max {
                break;
            }
            match payload {
                Payload::Child(child) => {
                    self.collect(*child, level - 1, (from, to, count_max), found)?;
                }
                Payload::Record(value) if key >= from => found.push((key.clone(), value.clone())),
                Payload::Record(_) => {}
            }
        }
        Ok(())
    }

    /// Every page, from the root down, as `visit` gets to know it; for a complete check.
    ///
    /// # Errors
    /// As those of [`Self::get`].
    pub(crate) fn visit_pages(&self, visit: &mut dyn FnMut(u64)) -> Result<(), StoreError> {
        match self.root {
            Some(root) => self.visit_below(root, self.height, visit),
            None => Ok(()),
        }
    }

    fn visit_below(
        &self,
        pointer: Pointer,
        level: u8,
        visit: &mut dyn FnMut(u64),
    ) -> Result<(), StoreError> {
        visit(pointer.page);
        for (_, payload) in &self.load(pointer, level)?.items {
            if let Payload::Child(child) = payload {
                self.visit_below(*child, level - 1, visit)?;
            }
        }
        Ok(())
    }

    /// The pages that are damaged, in the order of their keys; what is below one is not known.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn gaps(&self) -> Result<Vec<Gap>, StoreError> {
        let mut gaps = Vec::new();
        if let Some(root) = self.root {
            self.gaps_below(root, self.height, (Key::MIN, Key::MAX), &mut gaps)?;
        }
        Ok(gaps)
    }

    fn gaps_below(
        &self,
        pointer: Pointer,
        level: u8,
        range: Range,
        gaps: &mut Vec<Gap>,
    ) -> Result<(), StoreError> {
        let node = match self.load_whole(pointer, level) {
            Ok(node) => node,
            Err(StoreError::Damaged(_)) => {
                gaps.push(Gap {
                    pointer,
                    level,
                    range,
                });
                return Ok(());
            }
            Err(other) => return Err(other),
        };
        let (mut from, end) = range;
        for (index, (_, payload)) in node.items.iter().enumerate() {
            let next = node.items.get(index + 1);
            let to = next.map_or(end.clone(), |(key, _)| key.clone());
            if let Payload::Child(child) = payload {
                self.gaps_below(*child, level - 1, (from, to.clone()), gaps)?;
            }
            from = to;
        }
        Ok(())
    }

    /// Reads the pages that lead to a key from the device, not from memory.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn walk_to(&self, key: &Key) -> Result<Walk, StoreError> {
        let mut walk = Walk {
            pages: 0,
            to: Key::MAX,
            damaged: None,
        };
        let Some(mut pointer) = self.root else {
            return Ok(walk);
        };
        for level in (0..=self.height).rev() {
            walk.pages += 1;
            let node = match read_page(&*self.device, pointer) {
                Ok(page) => node_of(&page, level),
                Err(StoreError::Damaged(_)) => None,
                Err(other) => return Err(other),
            };
            let Some(node) = node else {
                walk.damaged = Some(pointer);
                return Ok(walk);
            };
            let after = node
                .items
                .partition_point(|(least, _)| least.cmp(key).is_le());
            if let Some((next, _)) = node.items.get(after).filter(|_| level > 0) {
                walk.to = next.clone();
            }
            if let Some((_, Payload::Child(child))) = node.items.get(after.saturating_sub(1)) {
                pointer = *child;
            }
        }
        Ok(walk)
    }

    /// A page as it is in memory or on the device.
    fn load(&self, pointer: Pointer, level: u8) -> Result<Arc<Node>, StoreError> {
        match self.load_whole(pointer, level) {
            Err(StoreError::Damaged(_)) if self.skips_damage => Ok(Arc::new(Node {
                level,
                items: Vec::new(),
            })),
            other => other,
        }
    }

    /// A page, verified.
    fn load_whole(&self, pointer: Pointer, level: u8) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = self.cache.get(pointer) {
            return Ok(node);
        }
        let page = read_page(&*self.device, pointer)?;
        let node =
            node_of(&page, level).ok_or(Damage::Page(pointer.page.saturating_mul(PAGE_BYTES)))?;
        let node = Arc::new(node);
        self.cache.put(pointer, node.clone());
        Ok(node)
    }
}

/// What a page has that is to be at this level. An inner node has at least one child.
pub(crate) fn node_of(page: &[u8], level: u8) -> Option<Node> {
    let fits = |node: &Node| {
        node.level == level && level <= HEIGHT_MAX && (level == 0 || !node.items.is_empty())
    };
    node::decode(page).filter(fits)
}

#[cfg(test)]
mod tests;
