//! What was asked, what was answered, and when.

use std::time::Instant;

/// Machines, each a mount of its own.
pub(crate) const CLIENTS: usize = 2;
/// Names that everybody fights for.
pub(crate) const NAMES: usize = 4;

/// A name, as a number below [`NAMES`].
pub(crate) type Slot = usize;
/// One operation of a history, by its place in it.
pub(crate) type Id = usize;
/// What is written: few enough bytes to be one write everywhere, and unlike any other write.
pub(crate) type Text = [u8; 6];

/// How a rename treats what has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renaming {
    Replace,
    NoReplace,
    Exchange,
}

/// What a look at an inode shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) mode: u16,
    pub(crate) links: u8,
    pub(crate) size: usize,
}

/// What a program asks for, by name as programs do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Exclusive, as `open` with `O_CREAT|O_EXCL`.
    Create {
        name: Slot,
        mode: u16,
    },
    Unlink {
        name: Slot,
    },
    Rename {
        from: Slot,
        to: Slot,
        renaming: Renaming,
    },
    Link {
        from: Slot,
        to: Slot,
    },
    Chmod {
        name: Slot,
        mode: u16,
    },
    Truncate {
        name: Slot,
        size: usize,
    },
    SetXattr {
        name: Slot,
        value: u8,
    },
    GetXattr {
        name: Slot,
    },
    Stat {
        name: Slot,
    },
    /// Open, read all, close.
    Read {
        name: Slot,
    },
    /// Open (and empty), write at the start, close.
    Overwrite {
        name: Slot,
        empty: bool,
        text: Text,
    },
    /// Open with `O_APPEND`, write, close.
    Append {
        name: Slot,
        text: Text,
    },
    List,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Attributes(Attributes),
    Xattr(Option<u8>),
    Bytes(Vec<u8>),
    /// Whether each name was listed.
    Names([bool; NAMES]),
    NotFound,
    Exists,
    Stale,
    /// Anything else: never right.
    Failed(String),
}

/// One operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) client: usize,
    pub(crate) action: Action,
    pub(crate) outcome: Outcome,
    /// Before the first call, then after each call that it consists of: open, write, close.
    pub(crate) marks: Vec<Instant>,
}
