//! A sorted list of changes applied to the tree, in one pass from left to right.
//!
//! A page that changes is taken apart, and what it has with its changes is carried along until
//! there is at least half a page of it, which may take in the page to its right; then it is cut
//! into pages of about the same size. Pages so stay at least half full but for the last one of each
//! parent, whatever is deleted.

use super::node::{self, Item, Node, Payload, ROOM_BYTES};
use super::{Bounds, HEIGHT_MAX, Tree};
use crate::key::{Key, Value};
use crate::layout::PAGE_BYTES;
use crate::pages::{Pages, Pointer};
use crate::{Damage, StoreError};
use std::sync::Arc;

/// A record's new contents, or that it is gone.
pub(crate) type Change<'a> = (&'a Key, Option<&'a Value>);

/// Pages side by side that are written at once: the largest write that gains anything.
const RUN_PAGES_MAX: usize = 256;

impl Tree {
    /// The tree with these changes, which are in order and name each key once. Its pages are
    /// written but not flushed; those that it does not need any more are freed in `pages`.
    ///
    /// # Errors
    /// [`StoreError::NoSpace`] if pages run out, [`StoreError::Damaged`], the device's. Then what
    /// `pages` says counts no more.
    pub(crate) fn apply(
        &mut self,
        pages: &mut Pages,
        changes: &[Change],
    ) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let mut writer = Writer {
            tree: self,
            pages,
            written: Vec::new(),
        };
        let (root, height) = writer.rewrite_root(changes)?;
        writer.write_out()?;
        self.root = root;
        self.height = height;
        Ok(())
    }
}

/// Changes, as far as it matters for the pages that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// How many.
    pub(crate) changes: usize,
    /// How many of them put something.
    pub(crate) puts: usize,
    /// What that comes to, keys included.
    pub(crate) put_bytes: usize,
}

impl Load {
    /// Both.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            changes: self.changes + other.changes,
            puts: self.puts + other.puts,
            put_bytes: self.put_bytes + other.put_bytes,
        }
    }

    /// What these changes cost at most in a tree of `live` pages with `height` levels above the
    /// leaves.
    pub(crate) fn cost_max(self, live: usize, height: u8) -> Cost {
        let levels = usize::from(height) + 1;
        // A change may touch a leaf and its neighbour, and on every level there is no more to write
        // than below it.
        let by_changes = (levels + 2) * (2 * self.changes + 2);
        // Where nothing is put, pages become no more, but keys in inner pages may become longer.
        let all = live + live / 8 + 1;
        // Where something is put, a page may be cut in two on every level; what is put fills new
        // pages by two thirds at least, and the root may get another one above it.
        let cut = all.min(levels * self.puts);
        let new = (3 * self.put_bytes).div_ceil(2 * PAGE_BYTES as usize);
        let growth = cut + new + levels;
        Cost {
            pages: by_changes.min(all + growth),
            growth: by_changes.min(growth),
        }
    }
}

/// Pages, the map's not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// That are written.
    pub(crate) pages: usize,
    /// That there are more than before.
    pub(crate) growth: usize,
}

struct Writer<'a> {
    tree: &'a Tree,
    pages: &'a mut Pages,
    written: Vec<(u64, Vec<u8>)>,
}

impl Writer<'_> {
    fn rewrite_root(&mut self, changes: &[Change]) -> Result<(Option<Pointer>, u8), StoreError> {
        let mut level = self.tree.height;
        let mut items = match self.tree.root {
            Some(root) => self.rewrite(root, level, Bounds::default(), changes)?,
            None => merge(&Node::default(), changes),
        };
        loop {
            match &items[..] {
                [] => return Ok((None, 0)),
                [(_, Payload::Child(only))] => return Ok((Some(*only), level - 1)),
                _ => {}
            }
            items = self.emit(level, items)?;
            level += 1;
            if level > HEIGHT_MAX {
                return Err(Damage::Record.into());
            }
        }
    }

    /// What a page has after the changes, not yet cut into pages.
    fn rewrite(
        &mut self,
        pointer: Pointer,
        level: u8,
        bounds: Bounds<'_>,
        changes: &[Change],
    ) -> Result<Vec<Item>, StoreError> {
        let node = self.tree.load(pointer, level, bounds)?;
        self.pages.free(pointer.page)?;
        if level == 0 {
            return Ok(merge(&node, changes));
        }
        if node.items.is_empty() {
            return self.build(level, changes);
        }
        let mut items = Vec::new();
        let mut carried = Vec::new();
        let mut rest = changes;
        for (index, (key, payload)) in node.items.iter().enumerate() {
            let Payload::Child(child) = payload else {
                return Err(Damage::Record.into());
            };
            let here = match node.items.get(index + 1) {
                Some((next, _)) => rest.partition_point(|(key, _)| *key < next),
                None => rest.len(),
            };
            let (here, after) = rest.split_at(here);
            rest = after;
            if here.is_empty() && !is_meagre(&carried) {
                items.extend(self.emit(level - 1, std::mem::take(&mut carried))?);
                items.push((key.clone(), Payload::Child(*child)));
                continue;
            }
            let below = bounds.of_child(&node, index);
            carried.extend(self.rewrite(*child, level - 1, below, here)?);
            if !is_meagre(&carried) {
                items.extend(self.emit(level - 1, std::mem::take(&mut carried))?);
            }
        }
        items.extend(self.emit(level - 1, carried)?);
        Ok(items)
    }

    /// What leads to new pages up to below `level`, in place of a damaged page of that level.
    fn build(&mut self, level: u8, changes: &[Change]) -> Result<Vec<Item>, StoreError> {
        let mut items = merge(&Node::default(), changes);
        for below in 0..level {
            items = self.emit(below, items)?;
        }
        Ok(items)
    }

    /// Cuts items into pages of that level; what leads to these.
    fn emit(&mut self, level: u8, items: Vec<Item>) -> Result<Vec<Item>, StoreError> {
        let mut leads = Vec::new();
        for items in node::cut(items) {
            let page = self
                .pages
                .allocate()
                .ok_or(StoreError::NoSpace { wanted: 1, free: 0 })?;
            let bytes = node::encode(level, &items);
            let pointer = Pointer {
                page,
                crc: crc32c::crc32c(&bytes),
            };
            leads.push((items[0].0.clone(), Payload::Child(pointer)));
            self.written.push((page, bytes));
            self.tree
                .cache
                .put(pointer, Arc::new(Node { level, items }));
        }
        Ok(leads)
    }

    /// Writes the pages, those side by side at once.
    fn write_out(mut self) -> Result<(), StoreError> {
        self.written.sort_unstable_by_key(|(page, _)| *page);
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for (page, bytes) in self.written {
            match runs.last_mut() {
                Some((first, run))
                    if *first + run.len() as u64 / PAGE_BYTES == page
                        && run.len() < RUN_PAGES_MAX * bytes.len() =>
                {
                    run.extend_from_slice(&bytes);
                }
                _ => runs.push((page, bytes)),
            }
        }
        for (first, run) in runs {
            self.tree.device.write_at(first * PAGE_BYTES, &run)?;
        }
        Ok(())
    }
}

/// Whether there is something, but less than half a page of it.
fn is_meagre(items: &[Item]) -> bool {
    !items.is_empty() && items.iter().map(node::item_len).sum::<usize>() < ROOM_BYTES / 2
}

/// The records of a leaf after the changes.
fn merge(node: &Node, changes: &[Change]) -> Vec<Item> {
    let mut items = Vec::with_capacity(node.items.len() + changes.len());
    let mut old = node.items.iter().peekable();
    for (key, value) in changes {
        while let Some(item) = old.next_if(|(before, _)| before < *key) {
            items.push(item.clone());
        }
        old.next_if(|(same, _)| same == *key);
        if let Some(value) = value {
            items.push(((*key).clone(), Payload::Record((*value).clone())));
        }
    }
    items.extend(old.cloned());
    items
}
