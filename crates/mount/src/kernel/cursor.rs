//! Taking a request apart: structures, names and data, one after the other, never past the end.

use super::parse::Flaw;
use bytes::Bytes;
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The bytes of a request that are not taken yet.
///
/// Data is copied out of a borrowed request and shared out of an owned one.
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
    shared: Option<&'a Bytes>,
}

impl<'a> Cursor<'a> {
    /// Over `bytes`; if `shared` is given, `bytes` is a part of it.
    pub(crate) fn new(bytes: &'a [u8], shared: Option<&'a Bytes>) -> Self {
        Self {
            rest: bytes,
            shared,
        }
    }

    /// The next structure.
    pub(crate) fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Flaw> {
        let (value, rest) = T::read_from_prefix(self.rest).map_err(|_| Flaw::Truncated)?;
        self.rest = rest;
        Ok(value)
    }

    /// The next `len` bytes.
    pub(crate) fn slice(&mut self, len: usize) -> Result<&'a [u8], Flaw> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Flaw::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `len` bytes, to keep.
    pub(crate) fn data(&mut self, len: usize) -> Result<Bytes, Flaw> {
        let taken = self.slice(len)?;
        Ok(match self.shared {
            Some(shared) => shared.slice_ref(taken),
            None => Bytes::copy_from_slice(taken),
        })
    }

    /// The next string, to keep, without the NUL that ends it. Always copied: a name must not hold
    /// a large buffer.
    pub(crate) fn string(&mut self) -> Result<Bytes, Flaw> {
        let len = self
            .rest
            .iter()
            .position(|b| *b == 0)
            .ok_or(Flaw::Unterminated)?;
        let taken = Bytes::copy_from_slice(&self.rest[..len]);
        self.rest = &self.rest[len + 1..];
        Ok(taken)
    }

    /// A string that names an entry: not empty and without a slash.
    pub(crate) fn name(&mut self) -> Result<Bytes, Flaw> {
        let name = self.string()?;
        if name.is_empty() || name.contains(&b'/') {
            return Err(Flaw::BadName);
        }
        Ok(name)
    }

    /// How many bytes are left.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }

    /// Checks that nothing is left.
    pub(crate) fn finish(self) -> Result<(), Flaw> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Flaw::Trailing)
        }
    }
}
