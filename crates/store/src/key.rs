//! The names of records, in the order in which they lie.
//!
//! The order is that of the variants and their fields, so it is part of the format: a new kind goes
//! to the end. What belongs together is adjacent: the places of one object, the checksums of one
//! AU. A key is decoded before it is compared; no trick with byte orders.

use base::ObjectId;
use serde::{Deserialize, Serialize};

/// The name of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Key {
    /// An object: [`crate::record::Onode`].
    Object(ObjectId),
    /// An attribute of the object of that number: its bytes.
    Attribute(u64, Vec<u8>),
    /// Where the AU of that index of the object of that number is: [`crate::record::Place`].
    Place(u64, u32),
    /// An AU that is in use: [`crate::record::AuRecord`].
    Au(u32),
    /// The checksums of one span of an AU: [`crate::leaf::Leaf`].
    Leaf(u32, u16),
    /// 4,096 AUs, a bit each that says whether it is in use. Written by checkpoints only.
    AuMap(u32),
    /// A packed AU of that holder that still has room: how many pieces are free.
    Room(u64, u32),
    /// The number of an object that is deleted and whose AUs are not all given back yet, or of a
    /// clone that is not complete: its holder's number.
    Dead(u64),
    /// Who has space: a reservation, or a pool of what was not reserved.
    /// [`crate::record::Holder`].
    Holder(u64),
    /// An object of that holder: nothing. With the reservation, the paper's table c.
    Member(u64, ObjectId),
    /// The second at which that holder's time is over: nothing.
    End(u64, u64),
    /// A holder whose time is over and whose objects are not all gone yet: nothing.
    Over(u64),
    /// Records that could not be restored: from which key up to which ([`crate::lost`]).
    Lost(u32),
}

/// The contents of a record, encoded.
pub(crate) type Value = std::sync::Arc<[u8]>;

/// Longest encoded key: an attribute of 64 bytes.
pub(crate) const KEY_BYTES_MAX: usize = 80;
/// Longest encoded contents. Three records of this size and their keys fit into a page, so that
/// pages can always be cut in two.
pub(crate) const VALUE_BYTES_MAX: usize = 1152;
/// Longest name of an attribute, in bytes.
pub(crate) const ATTRIBUTE_NAME_BYTES_MAX: usize = 64;
/// Longest contents of an attribute, in bytes.
pub(crate) const ATTRIBUTE_BYTES_MAX: usize = 1024;
/// Most attributes of an object: all of them are one transaction's, when it is deleted.
pub(crate) const ATTRIBUTES_MAX: usize = 64;

impl Key {
    /// A bit of its own for each kind.
    pub(crate) fn kind(&self) -> u16 {
        match self {
            Self::Object(..) => 1,
            Self::Attribute(..) => 1 << 1,
            Self::Place(..) => 1 << 2,
            Self::Au(..) => 1 << 3,
            Self::Leaf(..) => 1 << 4,
            Self::AuMap(..) => 1 << 5,
            Self::Room(..) => 1 << 6,
            Self::Dead(..) => 1 << 7,
            Self::Holder(..) => 1 << 8,
            Self::Member(..) => 1 << 9,
            Self::End(..) => 1 << 10,
            Self::Over(..) => 1 << 11,
            Self::Lost(..) => 1 << 12,
        }
    }

    /// Appends the encoded key.
    pub(crate) fn encode_into(&self, bytes: &mut Vec<u8>) {
        *bytes = postcard::to_extend(self, std::mem::take(bytes))
            .expect("a key has no type that cannot be encoded");
    }

    /// Reads a key from the front of `bytes`, and says what is behind it; none if there is none, or
    /// one that is longer than keys are.
    pub(crate) fn take(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (key, rest) = postcard::take_from_bytes(bytes).ok()?;
        let fits = match &key {
            Self::Attribute(_, name) => name.len() <= ATTRIBUTE_NAME_BYTES_MAX,
            _ => true,
        };
        fits.then_some((key, rest))
    }

    /// Length of the encoded key.
    pub(crate) fn encoded_len(&self) -> usize {
        postcard::experimental::serialized_size(self).unwrap_or(KEY_BYTES_MAX)
    }
}
