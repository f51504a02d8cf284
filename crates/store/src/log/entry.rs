//! Entries of the log: what one group commit changed.
//!
//! An entry holds contents, not operations: records as they are from now on, and pieces of 4 KiB as
//! they will be in place. Reading it a second time changes nothing, so recovery needs to know only
//! where to begin.

use crate::key::{Key, Value};
use crate::layout::PIECE_BYTES;
use crate::superblock::Counters;
use crate::{Damage, StoreError, key};
use base::Time;
use std::sync::Arc;

/// One change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The record has these contents.
    Put(Key, Value),
    /// There is no such record.
    Delete(Key),
    /// The piece of the AU has these first bytes; the data of a small write.
    Piece(PieceAt, Arc<[u8]>),
}

/// A piece of an AU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PieceAt {
    pub(crate) au: u32,
    pub(crate) piece: u32,
}

const PUT: u8 = 1;
const DELETE: u8 = 2;
const PIECE: u8 = 3;
const HEADER_BYTES: usize = 28;

/// An entry under construction.
#[derive(Debug)]
pub(crate) struct EntryWriter {
    bytes: Vec<u8>,
}

impl EntryWriter {
    /// Nothing yet but the counters as they are after it; about `len` bytes come to it.
    pub(crate) fn new(counters: &Counters, len: usize) -> Self {
        let mut bytes = Vec::with_capacity(len);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&counters.number.to_le_bytes());
        bytes.extend_from_slice(&counters.generation.to_le_bytes());
        bytes.extend_from_slice(&counters.now.as_nanos().to_le_bytes());
        Self { bytes }
    }

    /// Adds a record: its contents, or that there is none.
    pub(crate) fn record(&mut self, key: &Key, value: Option<&Value>) {
        self.bytes.push(if value.is_some() { PUT } else { DELETE });
        key.encode_into(&mut self.bytes);
        if let Some(value) = value {
            self.contents(value);
        }
    }

    /// Adds a piece of data.
    pub(crate) fn piece(&mut self, at: PieceAt, bytes: &[u8]) {
        self.bytes.push(PIECE);
        self.bytes.extend_from_slice(&at.au.to_le_bytes());
        self.bytes.extend_from_slice(&at.piece.to_le_bytes());
        self.contents(bytes);
    }

    fn contents(&mut self, bytes: &[u8]) {
        let len = u16::try_from(bytes.len()).expect("records and pieces have at most 4 KiB");
        self.bytes.extend_from_slice(&len.to_le_bytes());
        self.bytes.extend_from_slice(bytes);
    }

    /// The entry's bytes.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let len = u32::try_from(self.bytes.len()).expect("an entry has a few megabytes at most");
        self.bytes[..4].copy_from_slice(&len.to_le_bytes());
        self.bytes
    }
}

/// Bytes that a change of a record takes in an entry.
pub(crate) fn record_len(key: &Key, value: Option<&Value>) -> usize {
    1 + key.encoded_len() + value.map_or(0, |value| 2 + value.len())
}

/// Bytes that a piece takes in an entry.
pub(crate) fn piece_len(bytes: usize) -> usize {
    11 + bytes
}

/// Reads an entry; `bytes` may be longer than it.
///
/// # Errors
/// [`StoreError::Damaged`] if it is none.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Counters, Vec<Change>), StoreError> {
    let mut reader = Reader(bytes);
    let len = reader.u32()? as usize;
    if len < HEADER_BYTES || len > bytes.len() {
        return Err(Damage::Record.into());
    }
    reader.0 = &bytes[4..len];
    let counters = Counters {
        number: reader.u64()?,
        generation: reader.u64()?,
        now: Time::from_nanos(reader.u64()?),
    };
    if !counters.are_possible() {
        return Err(Damage::Record.into());
    }
    let mut changes = Vec::new();
    while let [tag, rest @ ..] = reader.0 {
        reader.0 = rest;
        changes.push(match *tag {
            PUT => {
                let key = reader.key()?;
                Change::Put(key, reader.contents(key::VALUE_BYTES_MAX)?)
            }
            DELETE => Change::Delete(reader.key()?),
            PIECE => {
                let at = PieceAt {
                    au: reader.u32()?,
                    piece: reader.u32()?,
                };
                Change::Piece(at, reader.contents(PIECE_BYTES as usize)?)
            }
            _ => return Err(Damage::Record.into()),
        });
    }
    Ok((counters, changes))
}

/// What is left of an entry's bytes.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, len: usize) -> Result<&[u8], StoreError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Damage::Record)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, StoreError> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes(bytes.try_into().expect("two bytes")))
    }

    fn u32(&mut self) -> Result<u32, StoreError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    fn u64(&mut self) -> Result<u64, StoreError> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    fn key(&mut self) -> Result<Key, StoreError> {
        let (key, rest) = Key::take(self.0).ok_or(Damage::Record)?;
        self.0 = rest;
        Ok(key)
    }

    fn contents(&mut self, len_max: usize) -> Result<Arc<[u8]>, StoreError> {
        let len = usize::from(self.u16()?);
        if len > len_max {
            return Err(Damage::Record.into());
        }
        Ok(self.take(len)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::ObjectId;
    use proptest::prelude::*;

    const COUNTERS: Counters = Counters {
        number: 1,
        generation: 2,
        now: Time::from_nanos(3),
    };

    fn sample() -> Vec<u8> {
        let mut entry = EntryWriter::new(&COUNTERS, 0);
        entry.record(&Key::Object(ObjectId([5; 16])), Some(&Value::from(*b"on")));
        entry.record(&Key::Place(300, 1), None);
        entry.piece(PieceAt { au: 2, piece: 9 }, b"data");
        entry.finish()
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let mut golden = vec![68, 0, 0, 0];
        for number in [1_u64, 2, 3] {
            golden.extend_from_slice(&number.to_le_bytes());
        }
        golden.extend_from_slice(&[1, 0]);
        golden.extend_from_slice(&[5; 16]);
        golden.extend_from_slice(&[2, 0, b'o', b'n']);
        golden.extend_from_slice(&[2, 2, 0xAC, 2, 1]);
        golden.extend_from_slice(&[3, 2, 0, 0, 0, 9, 0, 0, 0, 4, 0]);
        golden.extend_from_slice(b"data");
        golden[0] = golden.len() as u8;
        assert_eq!(sample(), golden);
    }

    #[test]
    fn what_was_written_is_read_whatever_follows_it() {
        let mut bytes = sample();
        bytes.extend_from_slice(&[9; 100]);
        let (counters, changes) = decode(&bytes).unwrap();
        assert_eq!(counters, COUNTERS);
        assert_eq!(
            changes,
            [
                Change::Put(Key::Object(ObjectId([5; 16])), Value::from(*b"on")),
                Change::Delete(Key::Place(300, 1)),
                Change::Piece(PieceAt { au: 2, piece: 9 }, Arc::from(*b"data")),
            ]
        );
    }

    #[test]
    fn lengths_said_before_are_those_written() {
        let key = Key::Place(300, 1);
        let value = Value::from(*b"on");
        let mut entry = EntryWriter::new(&COUNTERS, 0);
        entry.record(&key, Some(&value));
        entry.record(&key, None);
        entry.piece(PieceAt { au: 2, piece: 9 }, b"data");
        let said = record_len(&key, Some(&value)) + record_len(&key, None) + piece_len(4);
        assert_eq!(entry.finish().len(), HEADER_BYTES + said);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes in prop::collection::vec(any::<u8>(), 28..200)) {
            let len = bytes.len() as u32;
            bytes[..4].copy_from_slice(&len.to_le_bytes());
            let _ = decode(&bytes);
        }

        #[test]
        fn cut_entries_are_damage(cut in 0..68_usize) {
            let bytes = sample();
            prop_assert!(decode(&bytes[..cut.min(bytes.len() - 1)]).is_err());
        }
    }
}
