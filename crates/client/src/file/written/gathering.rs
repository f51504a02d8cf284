//! How writes become pieces: small adjoining ones are gathered, large ones cut.

use super::{MemoryShare, Write, Written};
use base::limits::DATA_BYTES_MAX;
use base::{OpenId, Principal};
use bytes::{Bytes, BytesMut};

/// Largest piece: the largest payload of a frame.
pub(super) const PIECE_BYTES_MAX: usize = DATA_BYTES_MAX as usize;

/// What is gathered has room for so many bytes at least from the beginning.
const ROOM_BYTES_MIN: usize = 64 << 10;

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
        let mut data = BytesMut::with_capacity(write.data.len().max(ROOM_BYTES_MIN));
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
            data: without_room(self.data),
            who: self.who,
            open: self.open,
            append: self.append,
            permits: self.permits,
        }
    }
}

/// What was gathered, in less than twice the memory that its permits stand for: it stays until it
/// is durable, and others do not come to it any more.
fn without_room(data: BytesMut) -> Bytes {
    match data.len() > data.capacity() / 2 {
        true => data.freeze(),
        false => Bytes::copy_from_slice(&data),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn push(written: &mut Written, offset: u64, bytes: usize) {
        let write = Write {
            offset,
            data: Bytes::from(vec![7; bytes]),
            who: Principal::root(),
            open: None,
            append: false,
            permits: Vec::new(),
        };
        written.push(write, Cut::Parts(PIECE_BYTES_MAX));
    }

    /// Takes the first piece out: its bytes, and those of the memory that it keeps.
    fn kept(written: &mut Written) -> (usize, usize) {
        let (_, piece) = written.pieces.pop_first().unwrap();
        assert!(piece.data.iter().all(|byte| *byte == 7));
        let bytes = piece.data.len();
        (bytes, piece.data.try_into_mut().unwrap().capacity())
    }

    #[test]
    fn a_piece_keeps_less_than_twice_the_memory_of_its_bytes() {
        let mut written = Written::default();
        for bytes in [1, 4096, ROOM_BYTES_MIN / 2, 40_000, 100_000] {
            push(&mut written, 0, bytes);
            written.seal();
            let (len, capacity) = kept(&mut written);
            assert_eq!(len, bytes);
            assert!(capacity < 2 * bytes, "{capacity} for {bytes}");
        }
        // The next write does not adjoin.
        push(&mut written, 0, 4096);
        push(&mut written, 8192, 4096);
        assert_eq!(kept(&mut written), (4096, 4096));
        // What adjoins is still one piece.
        push(&mut written, 12288, 4096);
        written.seal();
        assert_eq!(kept(&mut written), (8192, 8192));
    }
}
