//! What a server says unasked.

use base::{Handle, Name};
use serde::{Deserialize, Serialize};

/// The body of a notice frame; sent on the main connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// Somebody else changes something that this session caches. The client drops what is named,
    /// writes back what it holds under an exclusive lease, and answers `RecallDone(id)`.
    Recall {
        /// Number to answer with.
        id: u64,
        /// What is recalled.
        #[serde(deserialize_with = "crate::bounded::list::<1024, _, _>")]
        items: Vec<RecallItem>,
    },
    /// The server has begun anew, and its run before had leased something to this session. The
    /// client answers `RecallDone(id)` when nothing is believed any more that it was told before it
    /// came back, and what it had stored is durable.
    Forget {
        /// Number to answer with.
        id: u64,
    },
    /// Likewise, and the session had a directory alone. The client answers `RecallDone(id)` when
    /// everything has arrived that was created or removed ahead before it came back.
    Settle {
        /// Number to answer with.
        id: u64,
    },
    /// The server has begun anew, and its stores may have lost what this session had written there
    /// and not committed. The client answers `RecallDone(id)` when it has written again what it
    /// still holds of that. Only for clients that have
    /// [`Features::WRITE_AGAIN`](super::Features::WRITE_AGAIN).
    WriteAgain {
        /// Number to answer with.
        id: u64,
    },
}

impl Notice {
    /// Number to answer with.
    #[must_use]
    pub fn id(&self) -> u64 {
        match self {
            Self::Recall { id, .. }
            | Self::Forget { id }
            | Self::Settle { id }
            | Self::WriteAgain { id } => *id,
        }
    }
}

/// One recalled lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecallItem {
    /// The inode.
    pub handle: Handle,
    /// How much of the lease goes.
    pub what: Recall,
}

/// How much of a lease is recalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recall {
    /// All of it: attributes, data, entries, absence of names. The lease is gone.
    Everything,
    /// One name in a directory (present or absent) and the directory's own attributes; the lease on
    /// the rest of its entries stays.
    Entry(Name),
    /// The exclusive part of a directory's lease: creations answered ahead must be sent. Reading
    /// from the cache may go on.
    Exclusive,
}
