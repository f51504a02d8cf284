//! Why a store did not do it. One closed set; the text says what, the caller decides what follows.

use base::{DeviceError, ObjectId, StoreId};

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
    /// A flush or a write of records failed before; nothing can be made durable any more.
    #[error("the store takes no writes since the device failed; reading goes on")]
    Poisoned,
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
    /// The sizes asked for do not make a store.
    #[error("cannot format: {0}")]
    Sizes(&'static str),
    /// The device says no.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// What is damaged, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Both superblocks.
    #[error("both superblocks")]
    Superblocks,
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
}

impl From<Damage> for StoreError {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}
