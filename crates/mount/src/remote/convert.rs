//! Our types as the kernel's.

use super::LEASED;
use crate::kernel::{Attr, AttrFlags, Entry, NodeId};
use base::Attributes;
use client::volume::View;
use std::time::Duration;

/// Attributes as applications see them.
pub(super) fn attr(attributes: &Attributes) -> Attr {
    Attr {
        ino: attributes.inode,
        size: attributes.size,
        blocks: attributes.blocks,
        atime: attributes.accessed,
        mtime: attributes.modified,
        ctime: attributes.changed,
        kind: attributes.kind,
        mode: attributes.mode,
        links: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.device,
        block_bytes: attributes.block_size,
        flags: AttrFlags::empty(),
    }
}

/// How long the kernel may keep attributes.
pub(super) fn attr_valid(view: &View) -> Duration {
    if view.attributes_leased {
        LEASED
    } else {
        Duration::ZERO
    }
}

/// How long the kernel may keep a name, if it keeps any.
pub(super) fn name_valid(leased: bool, names_kept: bool) -> Duration {
    if leased && names_kept {
        LEASED
    } else {
        Duration::ZERO
    }
}

/// An inode and the name that led to it.
pub(super) fn entry(view: &View, names_kept: bool) -> Entry {
    Entry {
        node: NodeId(view.node.0),
        generation: 0,
        entry_valid: name_valid(view.name_leased, names_kept),
        attr_valid: attr_valid(view),
        attr: attr(&view.attributes),
    }
}
