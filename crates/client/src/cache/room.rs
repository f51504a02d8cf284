//! How many inodes and names are remembered.

use super::{Node, NodeId, NodeTable};
use base::Handle;
use wire::message::Lease;

/// Nodes kept beyond those that the kernel or an open file holds; with handle, name and places in
/// tables that double as they grow, each takes about 1.1 KiB, all of them some 300 MiB.
pub const NODES_IDLE_MAX: usize = 1 << 18;
/// Names remembered for each node that there may be, at most: hard links have more than one, what
/// is absent has none, and each place in a listing counts as a name.
const NAMES_PER_NODE: usize = 4;

/// What [`NodeTable`] remembers of its own size.
#[derive(Debug)]
pub(super) struct Room {
    /// How many nodes there are when the next sweep pays.
    sweep_at: usize,
    /// How many names may be added before they are counted again.
    names: usize,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            sweep_at: NODES_IDLE_MAX,
            names: NODES_IDLE_MAX,
        }
    }
}

impl NodeTable {
    /// So many names have been added to directories, at most.
    pub fn note_names(&mut self, count: usize) {
        self.room.names = self.room.names.saturating_sub(count);
    }

    /// Evicts idle nodes while there are too many, and forgets names; the handles whose leases are
    /// to be returned.
    pub fn evict(&mut self) -> Vec<Handle> {
        if self.room.names == 0 {
            self.forget_names();
        }
        let mut returned = Vec::new();
        if self.nodes.len() <= self.room.sweep_at {
            return returned;
        }
        let target = NODES_IDLE_MAX - NODES_IDLE_MAX / 8;
        for _ in 0..self.sweep.len() {
            if self.nodes.len() <= target {
                break;
            }
            let Some((id, node)) = self
                .sweep
                .pop_front()
                .and_then(|id| Some((id, self.nodes.get(&id)?)))
            else {
                continue;
            };
            let busy = node
                .file
                .as_ref()
                .is_some_and(|file| file.is_busy(node.lasts()));
            if !node.is_idle() || busy || node.handle.is_none() {
                self.sweep.push_back(id);
                continue;
            }
            let node = self.nodes.remove(&id).expect("looked up above");
            let handle = node.handle.expect("checked above");
            if self.by_handle.get(&handle) == Some(&id) {
                self.by_handle.remove(&handle);
            }
            if node.lease != Lease::None {
                returned.push(handle);
            }
        }
        // Those that are in use stay; a sweep that finds little must not come again at once.
        self.room.sweep_at = NODES_IDLE_MAX.max(self.nodes.len() + self.nodes.len() / 8);
        self.recalls.begin_return(&returned);
        returned
    }

    /// Counts the names, and forgets those of the directories that have been known longest while
    /// there are too many: any number of directories may list the same files.
    fn forget_names(&mut self) {
        let names_max = NAMES_PER_NODE * NODES_IDLE_MAX.max(self.nodes.len());
        let count = |node: &Node| node.directory.as_ref().map_or(0, |of| of.places());
        let mut names: usize = self.nodes.values().map(count).sum();
        if names > names_max {
            let target = names_max / 2;
            let mut known: Vec<NodeId> = self.nodes.keys().copied().collect();
            known.sort_unstable();
            for id in known {
                if names <= target {
                    break;
                }
                let directory = self.nodes.get_mut(&id).and_then(|it| it.directory.as_mut());
                if let Some(directory) = directory {
                    names -= directory.places();
                    directory.forget_all();
                    directory.set_order(Vec::new());
                    names += directory.places();
                }
            }
        }
        // At most a quarter more than there may be, and not counted again at each name.
        self.room.names = (names_max.saturating_sub(names)).max(names_max / 4);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Listed;
    use super::super::size::tests::{attributes, entry};
    use super::*;
    use base::{FileKind, Name};
    use std::sync::Arc;

    #[test]
    fn many_directories_that_list_the_same_files_take_no_more_memory() {
        let directory = |n: u8| entry(n, attributes(FileKind::Directory, 0, 0));
        let (mut table, _woken) = NodeTable::new(&directory(1), Arc::default());
        let file = table.apply(&entry(2, attributes(FileKind::File, 0, 0)), 0);
        let listed: Vec<Listed> = (0..40_000)
            .map(|n: u32| Listed {
                name: Name::new(n.to_string()).expect("a plain name"),
                node: file,
                is_directory: false,
            })
            .collect();
        let count = |node: &Node| node.directory.as_ref().map_or(0, |of| of.places());
        let names_max = NAMES_PER_NODE * NODES_IDLE_MAX;
        let mut last = NodeId::ROOT;
        for n in 10..60 {
            last = table.apply(&directory(n), 0);
            table.note_names(2 * listed.len());
            let known = table.get_mut(last).expect("just made").directory_mut();
            known.learn(&listed);
            known.complete(listed.clone());
            assert!(table.evict().is_empty());
            let names: usize = table.nodes.values().map(count).sum();
            assert!(names <= names_max + names_max / 4, "{names}");
        }
        let known = |id: NodeId| table.get(id).and_then(|node| node.directory.as_ref());
        assert!(known(last).is_some_and(|last| last.is_complete()));
        let first = table.by_handle[&directory(10).handle];
        assert_eq!(known(first).map(|first| first.places()), Some(0));
        assert!(known(first).is_some_and(|first| !first.is_complete()));
    }
}
