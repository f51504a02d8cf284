//! Written data that is sent as one, and what the server has of it.

use crate::pause::Pause;
use base::{Extent, ExtentSet, OpenId, Principal, RequestId};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use wire::message::WriteAt;

/// A share of the client's memory, held by every piece that keeps bytes of it.
pub type MemoryShare = Arc<OwnedSemaphorePermit>;

/// What one call writes.
#[derive(Clone, Debug)]
pub struct Write {
    /// Where it begins; for an append, where it is expected to land.
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
    /// Who writes.
    pub who: Principal,
    /// Through which open.
    pub open: Option<OpenId>,
    /// Whether it goes to the end, wherever that is.
    pub append: bool,
    /// What it holds of the client's memory.
    pub permits: Vec<MemoryShare>,
}

/// Where a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceState {
    /// Not under way: one that overlaps it must be at the server first.
    Waiting,
    /// This part of its data is under way.
    Sent(Extent),
    /// It was lost, and all that a change under way will not replace is at the server again: what
    /// becomes of the rest is known after the change.
    Held,
    /// All of it is at the server, not durable; in the order in which pieces came there.
    Stored(u64),
}

/// Written data that is sent as one. Parts of it are extents of its data, from 0.
#[derive(Debug)]
pub struct Piece {
    /// Where it goes; for an append, where it was expected to land.
    pub extent: Extent,
    /// The bytes.
    pub data: Bytes,
    /// Who wrote it.
    pub who: Principal,
    /// Through which open.
    pub open: Option<OpenId>,
    /// Whether it goes to the end, wherever that is.
    pub append: bool,
    /// Where it is.
    pub state: PieceState,
    /// Which of all sendings of the file's pieces its last one was.
    pub(super) sending: u64,
    /// The request by which it goes, while it is under way and if there is one.
    pub(super) request: Option<RequestId>,
    /// The server had what is sent now, and has lost it.
    pub(super) again: bool,
    /// It was under way when the server lost something: an append may land before its place.
    pub(super) in_doubt: bool,
    /// The server had no room for it, and it is tried for the last time.
    pub(super) last_try: bool,
    /// How long it waits the next time that the server puts it off.
    pub(super) put_off: Pause,
    /// Parts that the server is still to get.
    pub(super) left: ExtentSet,
    /// Parts in whose place something else has been put for good: by a truncation, a hole, a copy,
    /// or a later piece that is durable. They are never sent again.
    pub(super) replaced: ExtentSet,
    /// Parts that a change under way replaces.
    pub(super) changing: ExtentSet,
    /// What it holds of the client's memory; goes with it.
    pub permits: Vec<MemoryShare>,
}

impl Piece {
    pub(super) fn new(write: Write) -> Self {
        let whole = Extent::new(0, write.data.len() as u64);
        let mut left = ExtentSet::new();
        left.insert(whole);
        Self {
            extent: Extent::new(write.offset, whole.len),
            data: write.data,
            who: write.who,
            open: write.open,
            append: write.append,
            state: PieceState::Waiting,
            sending: 0,
            request: None,
            again: false,
            in_doubt: false,
            last_try: false,
            put_off: Pause::put_off(),
            left,
            replaced: ExtentSet::new(),
            changing: ExtentSet::new(),
            permits: write.permits,
        }
    }

    /// Whether all of it is at the server.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        matches!(self.state, PieceState::Stored(_))
    }

    /// The part that is sent next, or is under way.
    #[must_use]
    pub fn part(&self) -> Extent {
        match self.state {
            PieceState::Sent(part) => part,
            _ => self.left.iter().next().unwrap_or_default(),
        }
    }

    /// How the server is to store that part.
    #[must_use]
    pub fn at(&self) -> WriteAt {
        if self.append {
            WriteAt::End
        } else if self.again {
            WriteAt::Again(self.place())
        } else {
            WriteAt::Offset(self.place())
        }
    }

    /// Where that part goes.
    #[must_use]
    pub fn place(&self) -> u64 {
        self.extent.offset + self.part().offset
    }

    /// The bytes of that part.
    #[must_use]
    pub fn part_data(&self) -> Bytes {
        let part = self.part();
        let index = |position: u64| usize::try_from(position).unwrap_or(usize::MAX);
        self.data.slice(index(part.offset)..index(part.end()))
    }

    /// The part of the data that goes to `extent` of the file.
    pub(super) fn part_in(&self, extent: Extent) -> Extent {
        let common = self.extent.intersection(extent);
        if common.is_empty() {
            return Extent::default();
        }
        Extent::new(common.offset - self.extent.offset, common.len)
    }

    /// The server may have lost what it had: all but what has been replaced, or is about to be, is
    /// left again.
    pub(super) fn on_lost(&mut self) {
        // Another run of the server, which may refuse it once more for a reason that passes.
        self.last_try = false;
        self.left.insert(Extent::new(0, self.data.len() as u64));
        for part in self.replaced.iter().chain(self.changing.iter()) {
            self.left.remove(part);
        }
    }
}
