//! Raw file data as it travels: pieces that follow each other.
//!
//! What a store reads piece by piece, or a client from several stores, becomes one payload without
//! being put together: a socket or the kernel takes the pieces from where they lie. Where the
//! pieces end means nothing; payloads with the same bytes are equal.

use bytes::Bytes;
use std::collections::VecDeque;

/// See the module's head. No piece is empty.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl Payload {
    /// No bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            pieces: VecDeque::new(),
            len: 0,
        }
    }

    /// Bytes of all pieces.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }

    /// The pieces, in order.
    #[must_use]
    pub fn into_pieces(self) -> Vec<Bytes> {
        self.pieces.into()
    }

    /// Puts a piece behind the others.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// Puts all of another behind these.
    pub fn append(&mut self, other: Self) {
        self.len += other.len;
        self.pieces.extend(other.pieces);
    }

    /// Puts zeros behind the others, all of them the same few.
    pub fn push_zeros(&mut self, len: usize) {
        static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
        let mut left = len;
        while left > 0 {
            let zeros = &ZEROS[..left.min(ZEROS.len())];
            self.push(Bytes::from_static(zeros));
            left -= zeros.len();
        }
    }

    /// Leaves at most the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        while self.len > len {
            let Some(last) = self.pieces.back_mut() else {
                return;
            };
            let excess = self.len - len;
            if excess < last.len() {
                last.truncate(last.len() - excess);
                self.len = len;
            } else {
                self.len -= last.len();
                self.pieces.pop_back();
            }
        }
    }

    /// Takes the first `len` bytes away, or all if there are fewer. A piece that is gone is given
    /// back at once.
    pub fn advance(&mut self, len: usize) {
        let mut left = len;
        while left > 0 {
            let Some(first) = self.pieces.front_mut() else {
                return;
            };
            let taken = left.min(first.len());
            drop(first.split_to(taken));
            if first.is_empty() {
                self.pieces.pop_front();
            }
            self.len -= taken;
            left -= taken;
        }
    }

    /// All bytes in one run: copied if they lie in several.
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        match self.pieces.len() {
            0 => Bytes::new(),
            1 => self.pieces.pop_front().unwrap_or_default(),
            _ => {
                let mut all = Vec::with_capacity(self.len);
                for piece in &self.pieces {
                    all.extend_from_slice(piece);
                }
                all.into()
            }
        }
    }

    /// CRC-32C of all bytes.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        let pieces = self.pieces.iter();
        pieces.fold(0, |sum, piece| crc32c::crc32c_append(sum, piece))
    }
}

impl From<Bytes> for Payload {
    fn from(bytes: Bytes) -> Self {
        let mut payload = Self::new();
        payload.push(bytes);
        payload
    }
}

impl From<Vec<u8>> for Payload {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl FromIterator<Bytes> for Payload {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        let mut payload = Self::new();
        for piece in pieces {
            payload.push(piece);
        }
        payload
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |payload: &Self| payload.clone().into_bytes();
        self.len == other.len && bytes(self) == bytes(other)
    }
}

impl Eq for Payload {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn payload(pieces: &[Vec<u8>]) -> Payload {
        pieces.iter().cloned().map(Bytes::from).collect()
    }

    #[test]
    fn one_run_is_handed_on_as_it_is() {
        let bytes = Bytes::from(vec![7; 100]);
        let payload = Payload::from(bytes.clone());
        assert_eq!(payload.into_bytes().as_ptr(), bytes.as_ptr(), "no copy");
        let none = Payload::from(Bytes::new());
        assert!(none.is_empty() && none.pieces().next().is_none());
        assert_eq!(none, Payload::new());
    }

    #[test]
    fn zeros_are_as_many_as_were_asked_for() {
        for len in [0, 1, 64 << 10, 200_000] {
            let mut payload = Payload::from(vec![1]);
            payload.push_zeros(len);
            assert_eq!(payload.len(), 1 + len);
            assert!(payload.into_bytes()[1..].iter().all(|byte| *byte == 0));
        }
    }

    proptest! {
        #[test]
        fn pieces_are_the_bytes_that_they_are_together(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..6),
            cut in 0usize..60,
        ) {
            let whole = pieces.concat();
            let scattered = payload(&pieces);
            prop_assert_eq!(scattered.len(), whole.len());
            prop_assert_eq!(scattered.is_empty(), whole.is_empty());
            prop_assert_eq!(scattered.checksum(), crc32c::crc32c(&whole));
            prop_assert_eq!(&scattered, &Payload::from(whole.clone()));
            prop_assert!(scattered.pieces().all(|piece| !piece.is_empty()));
            prop_assert_eq!(scattered.clone().into_pieces().concat(), whole.clone());
            let cut = cut.min(whole.len() + 3);
            let (mut front, mut back) = (scattered.clone(), scattered.clone());
            front.truncate(cut);
            back.advance(cut);
            let mut longer = front.clone();
            longer.append(back.clone());
            prop_assert_eq!(longer, scattered);
            let at = cut.min(whole.len());
            prop_assert_eq!((front.len(), back.len()), (at, whole.len() - at));
            prop_assert_eq!(front.into_bytes(), &whole[..at]);
            prop_assert_eq!(back.into_bytes(), &whole[at..]);
        }
    }
}
