//! Why a store did not do it. One closed set; the text says what, the caller decides what follows.

use crate::check::is_unreadable;
use base::{ByteSize, DeviceError, ObjectId, StoreId};
use reservation::Interval;
use std::fmt;

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such object, or its lifetime is over.
    #[error("there is no object {0}")]
    NotFound(ObjectId),
    /// An object of that identity is there already.
    #[error("object {0} exists already")]
    Exists(ObjectId),
    /// No allocation unit is free that nobody has reserved.
    #[error("no space: {wanted} allocation units wanted, {free} free")]
    NoSpace {
        /// Allocation units that the operation needs.
        wanted: u64,
        /// Allocation units that it could have had.
        free: u64,
    },
    /// The object, or whoever has its space, is past its end.
    #[error("the time of object {0} is over")]
    Expired(ObjectId),
    /// There is no such reservation, it has not begun, or it is over.
    #[error("reservation {0} does not hold now")]
    NotHeld(u64),
    /// The object was cut since the layout was told by which somebody wants to change it.
    #[error("object {0} was cut since")]
    Superseded(ObjectId),
    /// A reservation's allocation units or records are all in use.
    #[error("reservation {reservation} has {reserved} {unit} and all are in use")]
    Used {
        /// Which.
        reservation: u64,
        /// Of what.
        unit: &'static str,
        /// How many it has.
        reserved: u64,
    },
    /// A reservation is not admitted.
    #[error("{wanted} allocation units are wanted, {room} could be had; {offer}")]
    Refused {
        /// Allocation units that it comes to, those for its records included.
        wanted: u64,
        /// How many there are all the time that was asked for.
        room: u64,
        /// The next interval of the same length in which it would be admitted.
        offer: Offer,
    },
    /// A lifetime is longer than this store allows, or over before it begins.
    #[error("a lifetime of this store ends after it begins and within {longest_seconds:?} seconds")]
    Lifetime {
        /// The longest, in seconds; none if there is no limit.
        longest_seconds: Option<u64>,
    },
    /// The object would be longer than a store keeps.
    #[error("{bytes} bytes is longer than an object can be")]
    TooLong {
        /// Where it would end.
        bytes: u64,
    },
    /// An attribute's name or contents are longer than a record holds, or there are too many.
    #[error("an object has at most 64 attributes with names of 64 and contents of 1,024 bytes")]
    Attribute,
    /// One transaction changes more than one entry of the log holds.
    #[error("one transaction of {bytes} bytes is more than the {bytes_max} that the log takes")]
    TooMuch {
        /// Its size in the log.
        bytes: usize,
        /// The most there can be.
        bytes_max: usize,
    },
    /// What lies on the device is not what was written there.
    #[error("damaged: {0}")]
    Damaged(Damage),
    /// The lifetime of an object was renewed as often as this store allows.
    #[error("the lifetime of object {0} cannot be renewed any more")]
    NotRenewable(ObjectId),
    /// The store was opened for reading.
    #[error("the store is open for reading only")]
    ReadOnly,
    /// A flush or a write of records failed before; nothing can be made durable any more.
    #[error("the store takes no writes since the device failed; reading goes on")]
    Poisoned,
    /// Something else comes first. Only from a core that a [`crate::Store`] drives, which sees to
    /// it and tries again.
    #[doc(hidden)]
    #[error("a commit or a checkpoint comes first")]
    Due(crate::core::Due),
    /// The device does not begin with a superblock.
    #[error("this is not a store")]
    NotAStore,
    /// It was written by a newer release.
    #[error("the store has format version {found}; this release reads up to {known}")]
    Newer {
        /// The version that it says.
        found: u16,
        /// The newest that this release reads.
        known: u16,
    },
    /// It is another store than the one that was meant.
    #[error("this is store {found}, not {wanted}")]
    Foreign {
        /// The one that is there.
        found: StoreId,
        /// The one that was meant.
        wanted: StoreId,
    },
    /// The store was further once than it is now.
    #[error(
        "this is an older state of the store: it has had {found} commits, and it had {wanted} or \
         more once"
    )]
    Older {
        /// How many entries its log has had.
        found: u64,
        /// How many are known to have been durable.
        wanted: u64,
    },
    /// The device has become shorter than the store on it: what lay at its end is missing.
    #[error(
        "the store is damaged: it had {} ({wanted_bytes} bytes), and its device has only {} \
         ({len_bytes} bytes)",
        ByteSize(*wanted_bytes), ByteSize(*len_bytes)
    )]
    Shortened {
        /// Which store.
        store: StoreId,
        /// How long the device was.
        wanted_bytes: u64,
        /// How long it is.
        len_bytes: u64,
    },
    /// The sizes asked for do not make a store.
    #[error("cannot format: {0}")]
    Sizes(&'static str),
    /// The device says no.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// What could be had instead of what was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer(pub Option<Interval>);

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(interval) => write!(f, "it would fit in {interval}"),
            None => f.write_str("it never fits"),
        }
    }
}

/// What is damaged, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Both superblocks.
    #[error("both superblocks")]
    Superblocks,
    /// The superblocks, each of another store.
    #[error("the two superblocks are of two different stores")]
    TwoStores,
    /// A sector of the log that acknowledged commits may lie in.
    #[error("the log at byte {0}")]
    Log(u64),
    /// A page of records.
    #[error("the records at byte {0}")]
    Page(u64),
    /// The map of pages.
    #[error("the page map at byte {0}")]
    PageMap(u64),
    /// A record that no version of this store writes.
    #[error("a record")]
    Record,
    /// Bytes of an object.
    #[error("data at byte {0}")]
    Data(u64),
    /// Bytes that the device cannot read: from here on.
    #[error("the device cannot read what is at byte {0}")]
    Unreadable(u64),
    /// Records that were there and that a repair could not restore.
    #[error("a record that was lost")]
    Lost,
}

impl StoreError {
    /// What is damaged, if that is why; also if the medium does not give some bytes.
    pub(crate) fn damage(&self) -> Option<Damage> {
        match self {
            Self::Damaged(damage) => Some(*damage),
            Self::Device(error) => match error {
                DeviceError::Failed { extent, .. } if is_unreadable(error) => {
                    Some(Damage::Unreadable(extent.offset))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

impl From<Damage> for StoreError {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}
