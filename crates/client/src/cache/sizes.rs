//! How long a file is that is being written here.
//!
//! The server tells its size with each write that it has. Of those that it has not, this machine
//! knows how far they reach; for appends, how far they were expected to. What is shown is the
//! greater of the two, from one answer to the next: what has turned out to be elsewhere than
//! expected does not go on counting where it was expected because something else is on its way.

use super::{NodeId, NodeTable};
use base::Timestamp;

impl NodeTable {
    /// The server has more of what was written here than before. The size is that of the last state
    /// that it told, which is the one that was taken over or, if it is later, that of this time and
    /// size; or it is what the rest of the written data makes it. Whether it is another size.
    pub fn settle_size(
        &mut self,
        id: NodeId,
        told: Option<(Timestamp, u64)>,
        written_end: impl FnOnce() -> Option<u64>,
    ) -> bool {
        let Some(node) = self.nodes.get_mut(&id) else {
            return false;
        };
        if node.attributes_doubted {
            return false;
        }
        let told = told.filter(|told| *told > (node.told, node.told_size));
        let known = told.map_or(node.told_size, |(_, size)| size);
        let size = written_end().map_or(known, |end| known.max(end));
        std::mem::replace(&mut node.attributes.size, size) != size
    }
}

#[cfg(test)]
mod tests;
