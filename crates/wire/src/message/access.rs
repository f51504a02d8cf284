//! What opens may do.

use serde::{Deserialize, Serialize};

/// What an open may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Access {
    /// Read only.
    Read,
    /// Write only.
    Write,
    /// Both.
    ReadWrite,
    /// Write behind the end only, which a rich ACL may allow alone. As the next one only for
    /// servers that have [`Features::APPEND`](super::Features::APPEND).
    Append,
    /// Read, and write behind the end only.
    ReadAppend,
}

impl Access {
    /// Whether reading is allowed.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadWrite | Self::ReadAppend)
    }

    /// Whether writing is allowed, be it behind the end only.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }

    /// Whether writing is allowed behind the end only.
    #[must_use]
    pub const fn only_appends(self) -> bool {
        matches!(self, Self::Append | Self::ReadAppend)
    }

    /// The same, but writing behind the end only.
    #[must_use]
    pub const fn appending(self) -> Self {
        match self {
            Self::Read => Self::Read,
            Self::Write | Self::Append => Self::Append,
            Self::ReadWrite | Self::ReadAppend => Self::ReadAppend,
        }
    }
}
