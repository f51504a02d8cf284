//! How writes become pieces: small adjoining ones are gathered, large ones cut.

use super::{MemoryShare, Write, Written};
use base::limits::DATA_BYTES_MAX;
use base::{OpenId, Principal};
use bytes::BytesMut;

/// Largest piece: the largest payload of a frame.
pub(super) const PIECE_BYTES_MAX: usize = DATA_BYTES_MAX as usize;

/// Where pieces end. An append, whose bytes land together, is never cut.
#[derive(Clone, Copy, Debug)]
pub enum Cut {
    /// A large write becomes pieces of at most so many bytes, which end at multiples of that. What
    /// is gathered is sent when there is as much of it, or half of the largest piece.
    Parts(usize),
    /// All pieces end at multiples of the largest piece, whatever the writes are, for as long as
    /// these adjoin.
    Aligned,
}

#[derive(Debug)]
pub(super) struct Gathering {
    pub(super) offset: u64,
    pub(super) data: BytesMut,
    who: Principal,
    open: Option<OpenId>,
    pub(super) append: bool,
    permits: Vec<MemoryShare>,
}

impl Gathering {
    fn begin(write: Write) -> Self {
        let mut data = BytesMut::with_capacity(write.data.len().max(64 << 10));
        data.extend_from_slice(&write.data);
        Self {
            offset: write.offset,
            data,
            who: write.who,
            open: write.open,
            append: write.append,
            permits: write.permits,
        }
    }

    fn goes_on_with(&self, write: &Write) -> bool {
        self.offset + self.data.len() as u64 == write.offset
            && self.open == write.open
            && self.append == write.append
            && self.who == write.who
    }

    fn extend(&mut self, write: Write) {
        self.data.extend_from_slice(&write.data);
        self.permits.extend(write.permits);
    }

    fn into_write(self) -> Write {
        Write {
            offset: self.offset,
            data: self.data.freeze(),
            who: self.who,
            open: self.open,
            append: self.append,
            permits: self.permits,
        }
    }
}

impl Written {
    /// Takes data from a write. Returns whether something is gathered that a timer should send.
    pub fn push(&mut self, write: Write, cut: Cut) -> bool {
        let goes_on = |gathering: &Gathering| gathering.goes_on_with(&write);
        if !self.gathering.as_ref().is_some_and(goes_on) {
            self.seal();
        }
        match cut {
            Cut::Aligned if !write.append => self.push_aligned(write),
            Cut::Aligned => self.push_parts(write, PIECE_BYTES_MAX),
            Cut::Parts(bytes_max) => self.push_parts(write, bytes_max),
        }
        self.gathering.is_some()
    }

    fn push_parts(&mut self, write: Write, piece_bytes_max: usize) {
        let full_bytes = piece_bytes_max.min(PIECE_BYTES_MAX / 2);
        let gathered = |gathering: &Gathering| gathering.data.len();
        if self.gathering.as_ref().map_or(0, gathered) + write.data.len() > PIECE_BYTES_MAX {
            self.seal();
        }
        if self.gathering.is_none() && write.data.len() >= full_bytes {
            return self.add_parts(write, piece_bytes_max);
        }
        self.gather(write);
        if self.gathering.as_ref().map_or(0, gathered) >= full_bytes {
            self.seal();
        }
    }

    fn add_parts(&mut self, mut rest: Write, piece_bytes_max: usize) {
        while !rest.append && rest.data.len() > piece_bytes_max {
            let part = split(&mut rest, piece_bytes_max);
            self.add(part);
        }
        self.add(rest);
    }

    fn push_aligned(&mut self, mut rest: Write) {
        while rest.data.len() >= bytes_to_multiple(rest.offset, PIECE_BYTES_MAX) {
            let part = split(&mut rest, PIECE_BYTES_MAX);
            if self.gathering.is_some() {
                self.gather(part);
                self.seal();
            } else {
                self.add(part);
            }
        }
        if !rest.data.is_empty() {
            self.gather(rest);
        }
    }

    fn gather(&mut self, write: Write) {
        match &mut self.gathering {
            Some(gathering) => gathering.extend(write),
            None => self.gathering = Some(Gathering::begin(write)),
        }
    }

    /// Makes what is gathered a piece.
    pub fn seal(&mut self) {
        if let Some(gathering) = self.gathering.take() {
            self.add(gathering.into_write());
        }
    }

    /// Makes a piece of what was gathered already when a timer began, at this number of pieces
    /// ([`Self::pieces_made`]). Whether nothing newer is left for another turn of the timer.
    pub fn seal_older(&mut self, pieces_made: u64) -> bool {
        if self.gathering.is_some() && self.next != pieces_made {
            return false;
        }
        self.seal();
        true
    }

    /// How many pieces were made.
    #[must_use]
    pub const fn pieces_made(&self) -> u64 {
        self.next
    }
}

/// The part of a write up to the next multiple of `bytes`.
fn split(rest: &mut Write, bytes: usize) -> Write {
    let left = bytes_to_multiple(rest.offset, bytes);
    let part = Write {
        data: rest.data.split_to(left),
        ..rest.clone()
    };
    rest.offset += part.data.len() as u64;
    part
}

fn bytes_to_multiple(offset: u64, bytes: usize) -> usize {
    bytes - (offset % bytes as u64) as usize
}
