//! Where the contents of a parallel volume's files lie, and what clients do to them there.
//!
//! A client asks for a layout once and goes to the stores with it. Whenever what is on its way
//! there must not arrive any more, the layout's generation goes up, and stores refuse what comes by
//! an older one.

use base::limits::LAYOUT_COLUMNS_MAX;
use base::{Extent, ObjectId, ServerId, StoreId};
use serde::{Deserialize, Serialize};

/// What bytes of a file have become at its stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoredWhat {
    /// They were written.
    Data,
    /// They have space, and are what they were.
    Space,
    /// They are a hole.
    Hole,
}

/// What a layout is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LayoutPurpose {
    /// To read.
    Read,
    /// To write.
    Write,
    /// To write what stores of an earlier write verifier have had before. Refused with `Io` if
    /// others may have changed the file since.
    WriteAgain,
    /// The same for these bytes: refused if others may have changed some of them since. Only for
    /// servers that have [`Features::WRITE_AGAIN`](super::Features::WRITE_AGAIN).
    WritePartAgain(Extent),
    /// To write where an append was given its place, by who may only append. Only for servers that
    /// have [`Features::APPEND`](super::Features::APPEND).
    Append,
}

impl LayoutPurpose {
    /// Whether it is asked for what was lost.
    #[must_use]
    pub fn is_again(self) -> bool {
        matches!(self, Self::WriteAgain | Self::WritePartAgain(_))
    }
}

/// An object that has every so many stripe units of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileColumn {
    /// The storage server.
    pub server: ServerId,
    /// Its store.
    pub store: StoreId,
    /// The object in it.
    pub object: ObjectId,
}

/// Where the contents of a file lie: byte `b` in column `b / unit % columns`, at
/// `b / unit / columns * unit + b % unit` of its object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLayout {
    /// Bytes of a column before the next one's turn, as a power of two.
    pub unit_log2: u8,
    /// Goes up when the file is cut, or when others go before an append: stores refuse what comes
    /// by an older layout then.
    pub generation: u64,
    /// At least one.
    #[serde(deserialize_with = "crate::bounded::list::<LAYOUT_COLUMNS_MAX, _, _>")]
    pub columns: Vec<FileColumn>,
}
