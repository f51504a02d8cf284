//! How far written data reaches, and what the server says of the file meanwhile.
//!
//! Where an append lands is the server's to say. Until it has, the end of the append is where it
//! was expected.

use super::{Piece, Written};
use base::{Attributes, Timestamp};

impl Written {
    /// End of the data that the server may not know of yet.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.end_but(|_, _| false)
    }

    /// As [`Self::end`], when the server has `bytes` more of piece `id`.
    #[must_use]
    pub fn end_after(&self, id: u64, bytes: u64) -> Option<u64> {
        self.end_but(|other, piece| other == id && piece.left.bytes() <= bytes)
    }

    fn end_but(&self, is_stored: impl Fn(u64, &Piece) -> bool) -> Option<u64> {
        let gathered = self
            .gathering
            .as_ref()
            .map(|g| g.offset + g.data.len() as u64);
        let pieces = self
            .pieces
            .iter()
            .filter(|(id, piece)| !piece.is_stored() && !is_stored(**id, piece))
            .map(|(_, piece)| piece.extent.end());
        pieces.chain(gathered).max()
    }

    /// Whether an append is not at the server yet: where it lands, and how long the file then is,
    /// is a guess.
    #[must_use]
    pub fn is_appending(&self) -> bool {
        self.gathering.as_ref().is_some_and(|g| g.append)
            || self
                .pieces
                .values()
                .any(|piece| piece.append && !piece.is_stored())
    }

    /// Whether a piece that is stored at `offset` lands elsewhere than expected: an append may.
    #[must_use]
    pub fn is_moved(&self, id: u64, offset: u64) -> bool {
        let piece = self.pieces.get(&id);
        piece.is_some_and(|piece| piece.append && piece.place() != offset)
    }

    /// A reply to a write tells the state of the file.
    pub fn on_attributes(&mut self, attributes: Attributes, recalls_seen: u64) {
        let age = |attributes: &Attributes| (attributes.changed, attributes.size);
        let newer = |(known, _): &(Attributes, u64)| age(&attributes) >= age(known);
        if self.newest.as_ref().is_none_or(newer) {
            self.newest = Some((attributes, recalls_seen));
        }
    }

    /// The time of the latest state of the file that a reply to a write has told, and its size in
    /// that, if nobody has taken that state.
    #[must_use]
    pub fn told(&self) -> Option<(Timestamp, u64)> {
        let newest = self.newest.as_ref();
        newest.map(|(attributes, _)| (attributes.changed, attributes.size))
    }

    /// The state of the file after all of its writes, if a reply to piece `id`, of which the server
    /// took `bytes`, is the last one that is waited for.
    pub fn take_settled(&mut self, id: u64, bytes: u64) -> Option<(Attributes, u64)> {
        let is_last = self.gathering.is_none()
            && self.pieces.iter().all(|(other, piece)| {
                piece.is_stored() || (*other == id && piece.left.bytes() == bytes)
            });
        if is_last { self.newest.take() } else { None }
    }
}
