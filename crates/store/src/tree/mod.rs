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
pub(crate) const HEIGHT_MAX: u8 = 40;

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

/// Which keys a page may have: from the first one on up to, not including, the second, as the pages
/// above it say. A page with others is damaged, whatever its checksum says: it would be found by
/// who goes through the records, and not by who looks for one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds<'a> {
    from: Option<&'a Key>,
    to: Option<&'a Key>,
}

impl<'a> Bounds<'a> {
    /// Those of a child of a page that has these.
    fn of_child(self, node: &'a Node, index: usize) -> Self {
        let key = |index: usize| node.items.get(index).map(|(key, _)| key);
        Self {
            from: key(index).or(self.from),
            to: key(index + 1).or(self.to),
        }
    }

    /// Whether all keys of a page, which are in order, are within.
    fn have(self, node: &Node) -> bool {
        let first = node.items.first().map(|(key, _)| key);
        let last = node.items.last().map(|(key, _)| key);
        let is_before = |key: &Key| self.from.is_some_and(|from| key < from);
        let is_behind = |key: &Key| self.to.is_some_and(|to| key >= to);
        !first.is_some_and(is_before) && !last.is_some_and(is_behind)
    }
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
        match self.root {
            Some(root) => self.get_below(root, self.height, Bounds::default(), key),
            None => Ok(None),
        }
    }

    fn get_below(
        &self,
        pointer: Pointer,
        level: u8,
        bounds: Bounds<'_>,
        key: &Key,
    ) -> Result<Option<Value>, StoreError> {
        let node = self.load(pointer, level, bounds)?;
        let at = node
            .items
            .partition_point(|(least, _)| least.cmp(key).is_le());
        match at.checked_sub(1).map(|at| (at, &node.items[at])) {
            Some((at, (_, Payload::Child(child)))) => {
                self.get_below(*child, level - 1, bounds.of_child(&node, at), key)
            }
            Some((_, (found, Payload::Record(value)))) => Ok((found == key).then(|| value.clone())),
            None => Ok(None),
        }
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
            let at = (root, self.height, Bounds::default());
            self.collect(at, (from, to, count_max), &mut found)?;
        }
        Ok(found)
    }

    fn collect(
        &self,
        (pointer, level, bounds): (Pointer, u8, Bounds<'_>),
        (from, to, count_max): (&Key, &Key, usize),
        found: &mut Vec<(Key, Value)>,
    ) -> Result<(), StoreError> {
        let node = self.load(pointer, level, bounds)?;
        let first = node
            .items
            .partition_point(|(least, _)| least.cmp(from).is_le())
            .saturating_sub(1);
        for (index, (key, payload)) in node.items.iter().enumerate().skip(first) {
            if found.len() >= count_max || key >= to {
                break;
            }
            match payload {
                Payload::Child(child) => {
                    let at = (*child, level - 1, bounds.of_child(&node, index));
                    self.collect(at, (from, to, count_max), found)?;
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
            Some(root) => self.visit_below(root, self.height, Bounds::default(), visit),
            None => Ok(()),
        }
    }

    fn visit_below(
        &self,
        pointer: Pointer,
        level: u8,
        bounds: Bounds<'_>,
        visit: &mut dyn FnMut(u64),
    ) -> Result<(), StoreError> {
        visit(pointer.page);
        let node = self.load(pointer, level, bounds)?;
        for (index, (_, payload)) in node.items.iter().enumerate() {
            if let Payload::Child(child) = payload {
                self.visit_below(*child, level - 1, bounds.of_child(&node, index), visit)?;
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
            let all = (Key::MIN, Key::MAX);
            self.gaps_below((root, self.height, Bounds::default()), all, &mut gaps)?;
        }
        Ok(gaps)
    }

    fn gaps_below(
        &self,
        (pointer, level, bounds): (Pointer, u8, Bounds<'_>),
        range: Range,
        gaps: &mut Vec<Gap>,
    ) -> Result<(), StoreError> {
        let node = match self.load_whole(pointer, level, bounds) {
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
        // What is less than the first key would be in the first child.
        let (mut from, end) = range;
        for (index, (_, payload)) in node.items.iter().enumerate() {
            let next = node.items.get(index + 1);
            let to = next.map_or(end.clone(), |(key, _)| key.clone());
            if let Payload::Child(child) = payload {
                let at = (*child, level - 1, bounds.of_child(&node, index));
                self.gaps_below(at, (from, to.clone()), gaps)?;
            }
            from = to;
        }
        Ok(())
    }

    /// Reads the pages that lead to a key from `device`, not from memory.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn walk_to(&self, device: &dyn BlockDevice, key: &Key) -> Result<Walk, StoreError> {
        let mut walk = Walk {
            pages: 0,
            to: Key::MAX,
            damaged: None,
        };
        if let Some(root) = self.root {
            walk.go_below(device, (root, self.height, Bounds::default()), key)?;
        }
        Ok(walk)
    }

    /// A page as it is in memory or on the device.
    fn load(
        &self,
        pointer: Pointer,
        level: u8,
        bounds: Bounds<'_>,
    ) -> Result<Arc<Node>, StoreError> {
        match self.load_whole(pointer, level, bounds) {
            Err(StoreError::Damaged(_)) if self.skips_damage => Ok(Arc::new(Node {
                level,
                items: Vec::new(),
            })),
            other => other,
        }
    }

    /// A page, verified. What is in memory is held against the pages above it, too: another page
    /// may lead there.
    fn load_whole(
        &self,
        pointer: Pointer,
        level: u8,
        bounds: Bounds<'_>,
    ) -> Result<Arc<Node>, StoreError> {
        let damaged = Damage::Page(pointer.page.saturating_mul(PAGE_BYTES));
        let node = match self.cache.get(pointer) {
            Some(node) => node,
            None => {
                let page = read_page(&*self.device, pointer)?;
                let node = Arc::new(node_of(&page, level).ok_or(damaged)?);
                self.cache.put(pointer, node.clone());
                node
            }
        };
        match node.level == level && bounds.have(&node) {
            true => Ok(node),
            false => Err(damaged.into()),
        }
    }
}

impl Walk {
    fn go_below(
        &mut self,
        device: &dyn BlockDevice,
        (pointer, level, bounds): (Pointer, u8, Bounds<'_>),
        key: &Key,
    ) -> Result<(), StoreError> {
        self.pages += 1;
        let node = match read_page(device, pointer) {
            Ok(page) => node_of(&page, level).filter(|node| bounds.have(node)),
            Err(StoreError::Damaged(_)) => None,
            Err(other) => return Err(other),
        };
        let Some(node) = node else {
            self.damaged = Some(pointer);
            return Ok(());
        };
        let after = node
            .items
            .partition_point(|(least, _)| least.cmp(key).is_le());
        let at = after.saturating_sub(1);
        let Some((_, Payload::Child(child))) = node.items.get(at) else {
            return Ok(());
        };
        if let Some((next, _)) = node.items.get(at + 1) {
            self.to = next.clone();
        }
        self.go_below(device, (*child, level - 1, bounds.of_child(&node, at)), key)
    }
}

/// What a page has that is to be at this level: something, or there would be no page.
pub(crate) fn node_of(page: &[u8], level: u8) -> Option<Node> {
    let fits = |node: &Node| node.level == level && level <= HEIGHT_MAX && !node.items.is_empty();
    node::decode(page).filter(fits)
}

#[cfg(test)]
mod tests;
