//! What goes to the server with the creation of a file that it does not know yet.

use super::Written;
use super::piece::{MemoryShare, Piece, PieceState, Write};
use base::{Extent, ExtentSet, OpenId, Principal, WriteVerifier};
use bytes::{Bytes, BytesMut};
use std::collections::BTreeMap;

impl Written {
    /// Whether all that has been written would go with the creation: bytes from 0 on without gap,
    /// at most `bytes_max`. What is written after this look is kept apart, so that it takes nothing
    /// of that back: see [`Self::take_contents`].
    pub fn is_contents(&mut self, bytes_max: usize) -> bool {
        self.seal();
        let last = self.pieces.keys().next_back().copied();
        last.is_none_or(|last| self.contents(bytes_max).is_some_and(|(id, _)| id == last))
    }

    /// The contents with which a file is created: the longest beginning of all writes that leaves
    /// no gap from 0 on and at most `bytes_max` bytes, each byte as it was written last. These
    /// pieces are taken out.
    pub fn take_contents(&mut self, bytes_max: usize) -> (Bytes, Vec<MemoryShare>) {
        self.seal();
        let Some((through, bytes)) = self.contents(bytes_max) else {
            return (Bytes::new(), Vec::new());
        };
        let later = self.pieces.split_off(&(through + 1));
        let taken = std::mem::replace(&mut self.pieces, later);
        self.lost = self.lost.split_off(&(through + 1));
        let contents = compose(&taken, bytes);
        let permits = taken.into_values().flat_map(|piece| piece.permits);
        (contents, permits.collect())
    }

    /// The last piece of these contents, and their length in bytes.
    fn contents(&self, bytes_max: usize) -> Option<(u64, usize)> {
        let (mut written, mut found) = (ExtentSet::new(), None);
        for (id, piece) in &self.pieces {
            if piece.state != PieceState::Waiting || piece.extent.end() > bytes_max as u64 {
                break;
            }
            written.insert(piece.extent);
            let mut parts = written.iter();
            if let (Some(Extent { offset: 0, len }), None) = (parts.next(), parts.next()) {
                found = Some((*id, len as usize));
            }
        }
        found
    }

    /// Contents that reached the server of `verifier` by another way, written by somebody through
    /// an open; kept until they are durable.
    pub fn add_stored(
        &mut self,
        data: Bytes,
        (who, open): (Principal, OpenId),
        verifier: WriteVerifier,
        permits: Vec<MemoryShare>,
    ) {
        if data.is_empty() {
            return;
        }
        let mut piece = Piece::new(Write {
            offset: 0,
            data,
            who,
            open: Some(open),
            append: false,
            permits,
        });
        self.on_verifier(verifier);
        self.arrivals += 1;
        piece.state = PieceState::Stored(self.arrivals);
        piece.left = ExtentSet::new();
        // Before all that was written since; ids begin at 1, so there is room.
        self.next = self.next.max(1);
        let first = self.pieces.keys().next().copied().unwrap_or(self.next);
        self.pieces.insert(first - 1, piece);
    }
}

/// These pieces over each other in their order; together they leave no gap in so many bytes.
fn compose(pieces: &BTreeMap<u64, Piece>, bytes: usize) -> Bytes {
    if let (1, Some((_, piece))) = (pieces.len(), pieces.first_key_value()) {
        return piece.data.clone();
    }
    let mut contents = BytesMut::zeroed(bytes);
    for piece in pieces.values() {
        let begin = piece.extent.offset as usize;
        contents[begin..][..piece.data.len()].copy_from_slice(&piece.data);
    }
    contents.freeze()
}
