//! What the targets share.

use std::fmt::Debug;
use wire::message::{Body, decode, encode};

/// A message body is read or refused, and what was read is written and read again as the same. The
/// bytes may differ: a number can be written with more bytes than it needs.
pub fn body<T>(data: &[u8])
where
    T: Body + PartialEq + Debug,
{
    if let Ok(message) = decode::<T>(data) {
        let again = decode::<T>(&encode(&message));
        assert_eq!(again.as_ref(), Ok(&message));
    }
}

/// Takes numbers from the front of the input.
#[derive(Debug)]
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// The whole input.
    #[must_use]
    pub fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    /// The next byte; `None` at the end.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// What has not been taken.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}
