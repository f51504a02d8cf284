//! Where the bytes of a part of an AU are: from its checksums to a plan.

use crate::key::Key;
use crate::layout::{GROUP_BYTES, Layout, PIECE_BYTES, SPAN_BYTES};
use crate::leaf::{Group, Leaf};
use crate::log::entry::PieceAt;
use crate::read::Plan;
use crate::{Damage, StoreError};
use base::Extent;
use std::sync::Arc;

/// What says where bytes are: the store as it is, or as a transaction sees it.
pub(crate) trait View {
    /// The checksums of a span.
    fn view_leaf(&self, key: &Key) -> Result<Leaf, StoreError>;
    /// A piece that is not in its place yet.
    fn view_piece(&self, at: PieceAt) -> Option<Arc<[u8]>>;
    /// Where everything lies.
    fn view_layout(&self) -> &Layout;
}

/// One group of an AU, and the part of it that is meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupAt {
    pub(crate) au: u32,
    /// The group's number within its AU.
    pub(crate) group: u32,
    /// The part, in bytes from the group's start.
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl GroupAt {
    /// The groups of an AU that have bytes of `extent`, in order.
    pub(crate) fn each(au: u32, extent: Extent) -> impl Iterator<Item = Self> {
        let groups = extent.offset / GROUP_BYTES..extent.end().div_ceil(GROUP_BYTES);
        groups.map(move |group| {
            let whole = Extent::new(group * GROUP_BYTES, GROUP_BYTES);
            let part = whole.intersection(extent);
            Self {
                au,
                group: u32::try_from(group).expect("an AU has at most 1,024 groups"),
                from: (part.offset - whole.offset) as usize,
                to: (part.end() - whole.offset) as usize,
            }
        })
    }

    /// The record with its checksums.
    pub(crate) fn key(self) -> Key {
        let span = u64::from(self.group) * GROUP_BYTES / SPAN_BYTES;
        Key::Leaf(
            self.au,
            u16::try_from(span).expect("an AU has at most 256 spans"),
        )
    }

    /// Which group of that record it is.
    pub(crate) fn index(self) -> usize {
        self.group as usize % (SPAN_BYTES / GROUP_BYTES) as usize
    }

    /// Where it begins on the device.
    pub(crate) fn offset(self, layout: &Layout) -> u64 {
        layout.au_offset(self.au) + u64::from(self.group) * GROUP_BYTES
    }

    /// One of its pieces, by its number within the group.
    pub(crate) fn piece(self, piece: usize) -> PieceAt {
        let first = self.group * (GROUP_BYTES / PIECE_BYTES) as u32;
        PieceAt {
            au: self.au,
            piece: first + u32::try_from(piece).expect("a group has 16 pieces"),
        }
    }

    /// The pieces that have bytes of the part, each with the bytes of it: number, from, to.
    pub(crate) fn pieces(self) -> impl Iterator<Item = (usize, usize, usize)> {
        let size = PIECE_BYTES as usize;
        (self.from / size..self.to.div_ceil(size)).map(move |piece| {
            let start = piece * size;
            (
                piece,
                self.from.max(start) - start,
                self.to.min(start + size) - start,
            )
        })
    }
}

/// Adds the bytes of `extent` of an AU to a plan, which puts them at `into`.
pub(crate) fn plan(
    view: &(impl View + ?Sized),
    au: u32,
    extent: Extent,
    into: usize,
    plan: &mut Plan,
) -> Result<(), StoreError> {
    // Nobody reads beyond what an AU has, whatever a record says.
    let layout = view.view_layout();
    if !extent.is_empty() && (au >= layout.au_count || extent.end() > layout.au_bytes) {
        return Err(Damage::Record.into());
    }
    let mut known: Option<(Key, Leaf)> = None;
    let mut into = into;
    for at in GroupAt::each(au, extent) {
        let key = at.key();
        let leaf = match known.take() {
            Some((same, leaf)) if same == key => leaf,
            _ => view.view_leaf(&key)?,
        };
        plan_group(view, at, leaf.group(at.index()), into, plan);
        into += at.to - at.from;
        known = Some((key, leaf));
    }
    Ok(())
}

/// Adds a part of one group to a plan.
pub(crate) fn plan_group(
    view: &(impl View + ?Sized),
    at: GroupAt,
    group: &Group,
    into: usize,
    plan: &mut Plan,
) {
    let offset = at.offset(view.view_layout());
    match group {
        Group::Empty | Group::Lost => {}
        Group::Coarse(sum) => {
            let to = at.to.min(sum.len as usize);
            if at.from < to {
                plan.device(offset, *sum, (at.from, to - at.from), into);
            }
        }
        Group::Fine(_) => {
            let mut into = into;
            for (piece, from, to) in at.pieces() {
                let sum = group.piece(piece);
                let end = to.min(sum.len as usize);
                if from < end {
                    let part = (from, end - from);
                    match view
                        .view_piece(at.piece(piece))
                        .filter(|bytes| sum.fits(bytes))
                    {
                        Some(bytes) => plan.memory(bytes, part, into),
                        None => plan.device(offset + piece as u64 * PIECE_BYTES, sum, part, into),
                    }
                }
                into += to - from;
            }
        }
    }
}
