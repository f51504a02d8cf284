//! The contents of records, all but the checksums (see [`crate::leaf`]).
//!
//! Bodies are postcard: numbers are varints, so that a record of an append is a few dozen bytes. An
//! attribute's contents are its bytes as they are.

use crate::key::{VALUE_BYTES_MAX, Value};
use crate::layout::{Layout, PIECE_BYTES};
use crate::{Damage, StoreError};
use reservation::{Interval, Moment};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// What is kept about an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredOnode", into = "StoredOnode")]
pub(crate) struct Onode {
    /// Never given to another object, so that what is left of a deleted one is never found again.
    pub(crate) number: u64,
    /// Its length; bytes that were never written read as zeros.
    pub(crate) size_bytes: u64,
    /// Whose space it has.
    pub(crate) holder: u64,
    /// From when on it is not there any more; its holder's end may be earlier.
    pub(crate) end: Moment,
    /// How often that was put off.
    pub(crate) renewals: u32,
    /// What comes by an older layout than one of this generation is refused.
    pub(crate) generation: u64,
    /// Where its bytes are.
    pub(crate) home: Home,
}

impl Onode {
    /// Whether its figures can be those of an object of a store with this layout. With others, its
    /// bytes would be sought where others' are.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub(crate) fn check(&self, layout: &Layout) -> Result<(), StoreError> {
        let fits = match self.home {
            Home::Own => self.size_bytes <= layout.object_bytes_max(),
            Home::Packed(slot) => {
                let end = u64::from(slot.piece) + u64::from(slot.pieces);
                slot.au < layout.au_count
                    && end * PIECE_BYTES <= layout.au_bytes
                    && self.size_bytes <= u64::from(slot.pieces) * PIECE_BYTES
            }
            Home::Lost => true,
        };
        fits.then_some(()).ok_or(Damage::Record.into())
    }
}

/// An object as it is stored: one that was never cut has the bytes that it had in version 1.
#[derive(Serialize, Deserialize)]
struct StoredOnode {
    number: u64,
    size_bytes: u64,
    holder: u64,
    end: Moment,
    renewals: u32,
    home: StoredHome,
}

/// Where an object's bytes are, as it is stored: with its generation, if that is not 0.
#[derive(Serialize, Deserialize)]
enum StoredHome {
    Own,
    Packed(Slot),
    Lost,
    OwnSince(u64),
    PackedSince(u64, Slot),
}

impl From<StoredOnode> for Onode {
    fn from(stored: StoredOnode) -> Self {
        let (home, generation) = match stored.home {
            StoredHome::Own => (Home::Own, 0),
            StoredHome::Packed(slot) => (Home::Packed(slot), 0),
            StoredHome::Lost => (Home::Lost, 0),
            StoredHome::OwnSince(generation) => (Home::Own, generation),
            StoredHome::PackedSince(generation, slot) => (Home::Packed(slot), generation),
        };
        Self {
            number: stored.number,
            size_bytes: stored.size_bytes,
            holder: stored.holder,
            end: stored.end,
            renewals: stored.renewals,
            generation,
            home,
        }
    }
}

impl From<Onode> for StoredOnode {
    fn from(onode: Onode) -> Self {
        let home = match (onode.home, onode.generation) {
            (Home::Own, 0) => StoredHome::Own,
            (Home::Packed(slot), 0) => StoredHome::Packed(slot),
            (Home::Own, generation) => StoredHome::OwnSince(generation),
            (Home::Packed(slot), generation) => StoredHome::PackedSince(generation, slot),
            // It can only be deleted.
            (Home::Lost, _) => StoredHome::Lost,
        };
        Self {
            number: onode.number,
            size_bytes: onode.size_bytes,
            holder: onode.holder,
            end: onode.end,
            renewals: onode.renewals,
            home,
        }
    }
}

/// Who has space, and how much of it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Holder {
    /// From when to when it has it.
    pub(crate) interval: Interval,
    /// AUs that were reserved; 0 for a pool.
    pub(crate) aus: u64,
    /// Records that were reserved, see [`crate::reserve::Request::records`]; 0 for a pool.
    pub(crate) records: u64,
    /// AUs in use.
    pub(crate) aus_used: u64,
    /// Records in use.
    pub(crate) records_used: u64,
    /// Its time is over: the one durable mark after which nothing of it is readable.
    pub(crate) is_over: bool,
}

/// Where an object's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// In AUs of its own, each named by a [`crate::key::Key::Place`]; missing ones are holes.
    Own,
    /// In some pieces of an AU that several small objects share.
    Packed(Slot),
    /// Nobody knows any more: the object's record could not be restored. It can be deleted.
    Lost,
}

/// Some adjacent pieces of a packed AU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slot {
    /// The AU.
    pub(crate) au: u32,
    /// Its first piece there.
    pub(crate) piece: u16,
    /// How many pieces it has.
    pub(crate) pieces: u16,
}

/// Where one AU's worth of an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    /// The AU.
    pub(crate) au: u32,
}

/// An AU that is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuRecord {
    /// Never the same for two owners one after the other: a read that took long can tell.
    pub(crate) generation: u64,
    /// Whose a packed AU is; 0 for one of an object's own, whose users' holders pay for it.
    pub(crate) holder: u64,
    /// How many places name it; more than one after a clone. For a packed AU, how many slots.
    pub(crate) users: u32,
    /// Which pieces of a packed AU are taken, a bit each; empty for an AU of one object.
    pub(crate) taken: Vec<u8>,
}

/// Encodes the contents of a record.
///
/// # Panics
/// Never: the types here have no form that postcard refuses.
pub(crate) fn encode<T: Serialize>(record: &T) -> Value {
    // Records are made all the time: in one allocation. What is no record may be longer.
    let mut room = [0; VALUE_BYTES_MAX];
    if let Ok(bytes) = postcard::to_slice(record, &mut room) {
        return Value::from(&*bytes);
    }
    let bytes = postcard::to_stdvec(record).expect("a record has no type that cannot be encoded");
    bytes.into()
}

/// Decodes the contents of a record.
///
/// # Errors
/// [`StoreError::Damaged`] if it is none, or has more bytes than one.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StoreError> {
    match postcard::take_from_bytes(bytes) {
        Ok((record, [])) => Ok(record),
        _ => Err(Damage::Record.into()),
    }
}
