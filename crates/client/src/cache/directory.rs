//! What is known of a directory's entries.

use super::NodeId;
use crate::file::Completion;
use base::{Name, QuickMap};
use readahead::Neighbours;
use std::sync::Arc;

/// Names of a directory, present and absent, and the order in which it lists them.
#[derive(Debug, Default)]
pub struct Directory {
    names: QuickMap<Name, Option<NodeId>>,
    /// All names are known: one that is not here does not exist.
    complete: bool,
    /// Names in the directory's own order and in byte order, for reading ahead. Not kept exact when
    /// names come and go; it only predicts. Made of `listed` when it is first wanted.
    order: Option<Arc<Order>>,
    /// The last listing, if no order was made of it yet.
    listed: Vec<Listed>,
    /// What is being read in it.
    pub neighbours: Neighbours,
    /// Look-ups that had to ask the server since the last listing.
    pub misses: u32,
    /// Look-ups and opens so far: whether names are looked up in order to be read.
    pub lookups: u32,
    /// See `lookups`.
    pub opens: u32,
    /// Whether the directory has a default ACL, which decides what new files may; `None` if
    /// unknown.
    pub default_acl: Option<bool>,
    /// A listing that is under way.
    pub listing: Option<Completion>,
}

/// The order of a directory's entries, files and subdirectories apart.
#[derive(Debug, Default)]
pub struct Order {
    /// Everything that is not a directory.
    pub files: Sequence,
    /// Subdirectories.
    pub directories: Sequence,
}

/// Entries of one sort.
#[derive(Debug, Default)]
pub struct Sequence {
    /// As the directory lists them.
    pub listed: Vec<NodeId>,
    /// By name.
    pub sorted: Vec<NodeId>,
    /// Positions in both, by node.
    pub position: QuickMap<NodeId, (usize, usize)>,
}

impl Sequence {
    fn new<'a>(entries: impl Iterator<Item = &'a Listed>) -> Self {
        let entries: Vec<&Listed> = entries.collect();
        let listed: Vec<NodeId> = entries.iter().map(|entry| entry.node).collect();
        let mut by_name = entries;
        by_name.sort_by(|a, b| a.name.cmp(&b.name));
        let sorted: Vec<NodeId> = by_name.iter().map(|entry| entry.node).collect();
        let mut position: QuickMap<NodeId, (usize, usize)> = listed
            .iter()
            .enumerate()
            .map(|(at, node)| (*node, (at, 0)))
            .collect();
        for (at, node) in sorted.iter().enumerate() {
            position.entry(*node).and_modify(|(_, sorted)| *sorted = at);
        }
        Self {
            listed,
            sorted,
            position,
        }
    }
}

/// One entry of a listing.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its name.
    pub name: Name,
    /// Its node.
    pub node: NodeId,
    /// Whether it is a directory.
    pub is_directory: bool,
}

impl Directory {
    /// A name leads to a node, or to nothing.
    pub fn set(&mut self, name: &Name, node: Option<NodeId>) {
        if node.is_none() && self.complete {
            self.names.remove(name);
        } else {
            self.names.insert(name.clone(), node);
        }
    }

    /// What is known of a name.
    #[must_use]
    pub fn get(&self, name: &Name) -> Option<Option<NodeId>> {
        match self.names.get(name) {
            Some(node) => Some(*node),
            None if self.complete => Some(None),
            None => None,
        }
    }

    /// Nothing is known of a name any more.
    pub fn forget(&mut self, name: &Name) {
        self.names.remove(name);
        self.complete = false;
    }

    /// Nothing is known any more.
    pub fn forget_all(&mut self) {
        self.default_acl = None;
        self.names.clear();
        self.complete = false;
    }

    /// Whether all names are known.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// These names were listed together; what was known of them is known anew.
    pub fn learn(&mut self, entries: &[Listed]) {
        self.names.reserve(entries.len());
        for entry in entries {
            self.names.insert(entry.name.clone(), Some(entry.node));
        }
    }

    /// All names are known: these, which have been learned page by page.
    pub fn complete(&mut self, entries: Vec<Listed>) {
        let leads_there = |entry: &Listed| self.names.get(&entry.name) == Some(&Some(entry.node));
        if self.names.len() != entries.len() || !entries.iter().all(leads_there) {
            self.names.clear();
            self.learn(&entries);
        }
        self.set_order(entries);
        self.complete = true;
        self.misses = 0;
    }

    /// A directory that was just made has no names.
    pub fn complete_empty(&mut self) {
        self.names.clear();
        self.complete = true;
    }

    /// Remembers the order of a listing without believing in its completeness.
    pub fn set_order(&mut self, entries: Vec<Listed>) {
        self.order = None;
        self.listed = entries;
    }

    /// The order of the last listing.
    #[must_use]
    pub fn order(&mut self) -> Option<Arc<Order>> {
        let entries = std::mem::take(&mut self.listed);
        if !entries.is_empty() {
            self.order = Some(Arc::new(Order {
                files: Sequence::new(entries.iter().filter(|entry| !entry.is_directory)),
                directories: Sequence::new(entries.iter().filter(|entry| entry.is_directory)),
            }));
        }
        self.order.clone()
    }

    /// Names that exist, as far as known.
    pub fn present(&self) -> impl Iterator<Item = (&Name, NodeId)> {
        self.names
            .iter()
            .filter_map(|(name, node)| node.map(|node| (name, node)))
    }

    /// Whether looked-up files tend to be opened, so that their contents are worth fetching along.
    #[must_use]
    pub fn contents_wanted(&self) -> bool {
        self.opens.saturating_mul(2) >= self.lookups
    }
}
