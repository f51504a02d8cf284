//! What is known of a directory's entries.

use super::NodeId;
use crate::file::Completion;
use base::{Name, Principal, QuickMap};
use readahead::Neighbours;
use std::collections::VecDeque;
use std::sync::Arc;

/// Names of one directory that are remembered as absent.
const ABSENT_NAMES_MAX: usize = 16_384;

/// Names of a directory, present and absent, and the order in which it lists them.
#[derive(Debug, Default)]
pub struct Directory {
    names: QuickMap<Name, Option<NodeId>>,
    /// Names that were found absent, the last ones, in that order: as many as are remembered where
    /// not all names are known.
    absent: VecDeque<Name>,
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
    /// Who was seen to be allowed to remove files from it.
    pub removes: Option<Principal>,
    /// A listing that is under way.
    pub listing: Option<Completion>,
    /// How many are under way.
    listings: u32,
    /// Names of which this machine knows better than those listings: what has been done to them
    /// here may have come before or after.
    own: QuickMap<Name, ()>,
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
            let before = self.names.insert(name.clone(), node);
            if node.is_none() && before != Some(None) {
                self.note_absent(name);
            }
        }
    }

    /// Has one more name remembered as absent, and the one forgotten that was so longest.
    fn note_absent(&mut self, name: &Name) {
        self.absent.push_back(name.clone());
        if self.absent.len() > ABSENT_NAMES_MAX
            && let Some(oldest) = self.absent.pop_front()
            && self.names.get(&oldest) == Some(&None)
        {
            self.names.remove(&oldest);
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

    /// A listing is begun. `ahead`: names that exist here and that the server may not know yet.
    pub fn begin_listing(&mut self, listing: Completion, ahead: Vec<Name>) {
        self.listing = Some(listing);
        self.listings += 1;
        self.own.extend(ahead.into_iter().map(|name| (name, ())));
    }

    /// A listing is over, taken over or not.
    pub fn end_listing(&mut self) {
        self.listing = None;
        self.listings -= 1;
        if self.listings == 0 {
            self.own = QuickMap::default();
        }
    }

    /// This machine has changed what a name leads to.
    pub fn note_own(&mut self, name: &Name) {
        if self.listings > 0 {
            self.own.insert(name.clone(), ());
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
        self.removes = None;
        self.names.clear();
        self.absent = VecDeque::new();
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
            if !self.own.contains_key(&entry.name) {
                self.names.insert(entry.name.clone(), Some(entry.node));
            }
        }
    }

    /// All names are known: these, which have been learned page by page; unless something has been
    /// done here to one of which nothing is known, so that nobody can say which came first.
    pub fn complete(&mut self, entries: Vec<Listed>) {
        if !self.own.keys().all(|name| self.names.contains_key(name)) {
            return self.set_order(entries);
        }
        let leads_there = |entry: &Listed| self.names.get(&entry.name) == Some(&Some(entry.node));
        if self.names.len() != entries.len() || !entries.iter().all(leads_there) {
            self.names.retain(|name, _| self.own.contains_key(name));
            self.learn(&entries);
        }
        self.set_order(entries);
        self.absent = VecDeque::new();
        self.complete = true;
        self.misses = 0;
    }

    /// A directory that was just made has no names.
    pub fn complete_empty(&mut self) {
        self.names.clear();
        self.absent = VecDeque::new();
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

    /// How many names are remembered, and how many places in a listing.
    #[must_use]
    pub fn places(&self) -> usize {
        let sorted = |order: &Arc<Order>| order.files.listed.len() + order.directories.listed.len();
        self.names.len() + self.listed.len() + self.order.as_ref().map_or(0, sorted)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        Name::new(name).expect("a plain name")
    }

    fn listed(names: &[(&str, u64)]) -> Vec<Listed> {
        let entry = |(of, node): &(&str, u64)| Listed {
            name: name(of),
            node: NodeId(*node),
            is_directory: false,
        };
        names.iter().map(entry).collect()
    }

    #[test]
    fn of_absent_names_as_many_are_remembered_as_fit() {
        let mut directory = Directory::default();
        let number = |n: usize| name(&n.to_string());
        for n in 0..3 * ABSENT_NAMES_MAX {
            directory.set(&number(n), Some(NodeId(n as u64)));
            directory.set(&number(n), None);
        }
        directory.set(&name("there"), Some(NodeId(1)));
        assert_eq!(directory.names.len(), ABSENT_NAMES_MAX + 1);
        assert_eq!(directory.get(&number(0)), None, "not known any more");
        assert_eq!(directory.get(&number(3 * ABSENT_NAMES_MAX - 1)), Some(None));
        assert_eq!(directory.get(&name("there")), Some(Some(NodeId(1))));
        directory.forget_all();
        assert!(directory.absent.is_empty());
    }

    #[test]
    fn what_is_done_here_while_a_listing_is_under_way_stands() {
        let mut directory = Directory::default();
        directory.set(&name("ahead"), Some(NodeId(9)));
        directory.begin_listing(Completion::default(), vec![name("ahead")]);
        for (changed, node) in [("made", Some(NodeId(10))), ("removed", None)] {
            directory.note_own(&name(changed));
            directory.set(&name(changed), node);
        }
        // As it was before all that.
        let entries = listed(&[("removed", 3), ("stays", 4)]);
        directory.learn(&entries);
        directory.complete(entries);
        directory.end_listing();
        assert!(directory.is_complete());
        let known = ["ahead", "made", "removed", "stays", "other"];
        let known = known.map(|of| directory.get(&name(of)));
        let node = |node| Some(Some(NodeId(node)));
        assert_eq!(known, [node(9), node(10), Some(None), node(4), Some(None)]);
    }

    #[test]
    fn a_listing_is_not_all_names_if_it_may_be_older_than_what_was_forgotten() {
        let mut directory = Directory::default();
        directory.begin_listing(Completion::default(), Vec::new());
        directory.note_own(&name("doubted"));
        directory.set(&name("doubted"), Some(NodeId(2)));
        directory.forget(&name("doubted"));
        let entries = listed(&[("doubted", 2), ("stays", 4)]);
        directory.learn(&entries);
        directory.complete(entries);
        assert!(!directory.is_complete());
        assert_eq!(directory.get(&name("doubted")), None);
        assert_eq!(directory.get(&name("stays")), Some(Some(NodeId(4))));
    }

    #[test]
    fn a_listing_that_ends_leaves_another_what_it_must_not_believe() {
        let mut directory = Directory::default();
        directory.begin_listing(Completion::default(), Vec::new());
        directory.begin_listing(Completion::default(), Vec::new());
        directory.note_own(&name("removed"));
        directory.set(&name("removed"), None);
        directory.complete(listed(&[("removed", 3)]));
        directory.end_listing();
        directory.complete(listed(&[("removed", 3), ("stays", 4)]));
        directory.end_listing();
        assert_eq!(directory.get(&name("removed")), Some(None));
        assert_eq!(directory.get(&name("stays")), Some(Some(NodeId(4))));
    }
}
