//! The files that the server does not know yet, by node and by name.

use super::AheadFile;
use crate::cache::NodeId;
use base::{Name, OpenId, QuickMap};

#[derive(Debug, Default)]
pub(super) struct Files {
    by_node: QuickMap<NodeId, AheadFile>,
    /// By directory.
    by_name: QuickMap<NodeId, QuickMap<Name, NodeId>>,
}

impl Files {
    pub(super) fn len(&self) -> usize {
        self.by_node.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    pub(super) fn contains_key(&self, node: &NodeId) -> bool {
        self.by_node.contains_key(node)
    }

    pub(super) fn get(&self, node: &NodeId) -> Option<&AheadFile> {
        self.by_node.get(node)
    }

    pub(super) fn get_mut(&mut self, node: &NodeId) -> Option<&mut AheadFile> {
        self.by_node.get_mut(node)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&NodeId, &AheadFile)> {
        self.by_node.iter()
    }

    /// Directory and name of a file.
    pub(super) fn place(&self, node: &NodeId) -> Option<(NodeId, Name, OpenId)> {
        let file = self.by_node.get(node)?;
        Some((file.parent, file.name.clone(), file.open))
    }

    /// The file of that name in a directory.
    pub(super) fn named(&self, parent: NodeId, name: &Name) -> Option<NodeId> {
        self.by_name.get(&parent)?.get(name).copied()
    }

    /// The names of all files in a directory.
    pub(super) fn names(&self, parent: NodeId) -> Vec<Name> {
        let names = self.by_name.get(&parent);
        names.map_or_else(Vec::new, |names| names.keys().cloned().collect())
    }

    pub(super) fn insert(&mut self, node: NodeId, file: AheadFile) {
        let names = self.by_name.entry(file.parent).or_default();
        names.insert(file.name.clone(), node);
        self.by_node.insert(node, file);
    }

    pub(super) fn remove(&mut self, node: &NodeId) -> Option<AheadFile> {
        let file = self.by_node.remove(node)?;
        if let Some(names) = self.by_name.get_mut(&file.parent) {
            if names.get(&file.name) == Some(node) {
                names.remove(&file.name);
            }
            if names.is_empty() {
                self.by_name.remove(&file.parent);
            }
        }
        Some(file)
    }
}
