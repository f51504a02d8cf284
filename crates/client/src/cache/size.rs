//! Size and space of files of which some is only here.
//!
//! The server tells its size with each write that it has. Of those that it has not, this machine
//! knows how far they reach; for appends, how far they were expected to. What is shown is the
//! greater of the two, from one answer to the next: what has turned out to be elsewhere than
//! expected does not go on counting where it was expected because something else is on its way.

use super::{Node, NodeId, NodeTable};
use base::{Attributes, Extent, Timestamp};
use std::sync::atomic::Ordering;

/// What file systems allocate at least, as a rule.
const PAGE_BYTES: u64 = 4096;
/// The same in units of [`Attributes::blocks`].
const PAGE_BLOCKS: u64 = PAGE_BYTES / 512;

impl NodeTable {
    /// The server has more of what was written here than before. The size is that of the last state
    /// that it told, which is the one that was taken over or, if it is later, that of this time and
    /// size; or it is what the rest of the written data, up to `written_end`, makes it. The space
    /// is the server's again when there is no such rest. Whether it is another size.
    pub fn settle_size(
        &mut self,
        id: NodeId,
        told: Option<(Timestamp, u64)>,
        written_end: impl FnOnce() -> Option<u64>,
    ) -> bool {
        let Some(node) = self.nodes.get_mut(&id) else {
            return false;
        };
        let told = told.filter(|told| *told > (node.told, node.told_size));
        if let Some((changed, size)) = told {
            let at = self.events.fetch_add(1, Ordering::AcqRel) + 1;
            node.acknowledged = Some(Box::new(Acknowledged { changed, size, at }));
        }
        if node.attributes_doubted {
            return false;
        }
        let known = told.map_or(node.told_size, |(_, size)| size);
        let end = written_end();
        if end.is_none() && told.is_none() {
            node.attributes.blocks = node.told_blocks;
        }
        let size = end.map_or(known, |end| known.max(end));
        std::mem::replace(&mut node.attributes.size, size) != size
    }
}

/// A state of a file that the answer to a write has told, and that is not taken over whole because
/// more of what was written is on its way.
#[derive(Debug)]
pub(super) struct Acknowledged {
    changed: Timestamp,
    size: u64,
    /// The event with which it was told.
    at: u64,
}

impl Node {
    /// Whether a request that was queued when `seen` events were known may have been at the server
    /// before a write that has been answered.
    pub(super) fn is_before_write(&self, seen: u64) -> bool {
        let acknowledged = self.acknowledged.as_ref();
        acknowledged.is_some_and(|acknowledged| seen < acknowledged.at)
    }
}

/// Size and space of a file with what was written here, when the server is about to tell those
/// without.
pub(super) struct Here {
    /// Of what is not at the server, if there is anything.
    size: Option<u64>,
    blocks: u64,
    told_size: u64,
}

impl Here {
    pub(super) fn of(node: &Node) -> Self {
        let size = node.file.as_ref().and_then(|file| file.dirty_size());
        Self {
            size,
            blocks: size.map_or(0, |_| node.attributes.blocks),
            told_size: node.told_size,
        }
    }

    /// The server has told its own, in answer to a request that was queued when `seen` events were
    /// known. If that is the state of before a write that has been answered, the size is the one
    /// that the write's answer told.
    pub(super) fn put_on(self, node: &mut Node, seen: u64) {
        (node.told_size, node.told_blocks) = (node.attributes.size, node.attributes.blocks);
        let age = (node.attributes.changed, node.attributes.size);
        node.acknowledged
            .take_if(|later| later.at <= seen || (later.changed, later.size) <= age);
        if let Some(later) = &node.acknowledged {
            node.attributes.size = later.size;
        }
        let doubted = node.attributes_doubted.then_some(self.told_size);
        let size = self.size.max(doubted).unwrap_or(0);
        node.attributes.size = node.attributes.size.max(size);
        node.attributes.blocks = node.attributes.blocks.max(self.blocks);
    }
}

/// Counts what has been written to `extent` of a file in its size and its space, before the server
/// does. Programs that copy files take one without any space for one hole.
pub fn count_written(attributes: &mut Attributes, extent: Extent) {
    attributes.blocks = blocks_after(attributes.size, attributes.blocks, extent);
    attributes.size = attributes.size.max(extent.end());
}

/// Blocks of a file of `size` bytes in `blocks` when `extent` has been written: what is beyond its
/// end takes space, and all that is written has some.
fn blocks_after(size: u64, blocks: u64, extent: Extent) -> u64 {
    if extent.len == 0 {
        return blocks;
    }
    let first = extent.offset / PAGE_BYTES;
    let end = extent.end().div_ceil(PAGE_BYTES);
    let beyond = end.saturating_sub(first.max(size.div_ceil(PAGE_BYTES)));
    let grown = blocks.saturating_add(beyond * PAGE_BLOCKS);
    grown.max((end - first) * PAGE_BLOCKS)
}

#[cfg(test)]
pub(super) mod tests;
