//! What is wrong with a store, one thing at a time.

use base::{Extent, ObjectId};
use std::fmt;

/// What kind of thing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// One of the two superblocks.
    Superblock,
    /// A sector of the log.
    Log,
    /// A page of records.
    Page,
    /// The map of the pages of records.
    PageMap,
    /// A record that cannot be, or two that contradict each other.
    Record,
    /// A figure, list or map that follows from other records and is another one.
    Derived,
    /// Space or records that nobody has a name for.
    Orphan,
    /// Records of an object that are gone: what they named cannot be read.
    Lost,
    /// Bytes of an object that do not fit their checksum.
    Data,
    /// Bytes that the device cannot read.
    Device,
}

impl Kind {
    /// As programs see it; stable.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Log => "log",
            Self::Page => "page",
            Self::PageMap => "page_map",
            Self::Record => "record",
            Self::Derived => "derived",
            Self::Orphan => "orphan",
            Self::Lost => "lost",
            Self::Data => "data",
            Self::Device => "device",
        }
    }
}

/// Whether it can be put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mend {
    /// From what else the store has; nothing was changed yet.
    Possible,
    /// It was put right.
    Done,
    /// Nothing on the device says what was there. It stays an error for whoever reads it.
    Impossible,
}

impl Mend {
    /// As programs see it; stable.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Possible => "possible",
            Self::Done => "done",
            Self::Impossible => "impossible",
        }
    }
}

/// One thing that is wrong, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of thing.
    pub kind: Kind,
    /// Whether it can be put right.
    pub mend: Mend,
    /// The object that is concerned, if it is one and known.
    pub object: Option<ObjectId>,
    /// Which bytes of that object, if it is about bytes.
    pub extent: Option<Extent>,
    /// In words, without object and bytes.
    pub what: String,
}

impl Finding {
    /// About the store as a whole.
    pub(crate) fn new(kind: Kind, mend: Mend, what: impl Into<String>) -> Self {
        Self {
            kind,
            mend,
            object: None,
            extent: None,
            what: what.into(),
        }
    }

    /// About an object.
    pub(crate) fn of(self, object: ObjectId) -> Self {
        Self {
            object: Some(object),
            ..self
        }
    }

    /// About these bytes of it.
    pub(crate) fn at(self, extent: Extent) -> Self {
        Self {
            extent: Some(extent),
            ..self
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(object) = self.object {
            write!(f, "object {object}")?;
            if let Some(extent) = self.extent {
                write!(f, ", bytes {} to {}", extent.offset, extent.end())?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.what)
    }
}
