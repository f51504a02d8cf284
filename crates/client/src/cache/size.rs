//! Size and space of files of which some is only here.

use super::{Node, NodeId, NodeTable};
use base::{Attributes, Extent};

/// What file systems allocate at least, as a rule.
const PAGE_BYTES: u64 = 4096;
/// The same in units of [`Attributes::blocks`].
const PAGE_BLOCKS: u64 = PAGE_BYTES / 512;

impl NodeTable {
    /// Everything written here but that up to `written_end` is in the state that the server told
    /// last: size and space are the server's again. What was expected of them, of appends above
    /// all, may have turned out otherwise.
    pub fn settle_size(&mut self, id: NodeId, written_end: impl FnOnce() -> Option<u64>) {
        if let Some(node) = self.nodes.get_mut(&id)
            && !node.attributes_doubted
        {
            let end = written_end();
            node.attributes.size = end.map_or(node.told_size, |end| node.told_size.max(end));
            if end.is_none() {
                node.attributes.blocks = node.told_blocks;
            }
        }
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

    /// The server has told its own.
    pub(super) fn put_on(self, node: &mut Node) {
        (node.told_size, node.told_blocks) = (node.attributes.size, node.attributes.blocks);
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
mod tests {
    use super::*;

    #[test]
    fn what_is_written_takes_space_and_holes_take_none() {
        // Size, blocks, what is written, blocks then.
        let cases = [
            ((0, 0), (0, 1), 8),
            ((0, 0), (0, 10_000), 24),
            ((10, 8), (10, 10), 8),
            ((4096, 8), (4096, 4097), 24),
            // Over what is there, and over what the server has compressed.
            ((8192, 16), (0, 8192), 16),
            ((8192, 8), (0, 8192), 16),
            // Behind a hole, and into one.
            ((0, 0), (1 << 20, 1), 8),
            ((1 << 20, 0), (0, 8192), 16),
            ((1 << 20, 0), ((1 << 20) - 1, 2), 16),
            ((5, 8), (5, 0), 8),
        ];
        for ((size, blocks), (offset, len), expected) in cases {
            let after = blocks_after(size, blocks, Extent::new(offset, len));
            assert_eq!(after, expected, "{len} at {offset} of {size}");
        }
    }
}
