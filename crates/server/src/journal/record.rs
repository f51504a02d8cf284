//! What is written: intents, ends, and how far clients have their answers.

use base::{FileKind, FsError, Handle, Name, RequestId, SessionId, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// One step of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    pub(crate) session: SessionId,
    pub(crate) request: RequestId,
    pub(crate) step: u8,
}

/// What a step is about to do, and what the tree was like before. Handles are those of the wire, so
/// that they name their volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Intent {
    /// When, by the clock from which the kernel takes the times of inodes.
    pub(super) since: Timestamp,
    pub(super) act: Act,
}

/// A step that must not run twice. New variants go to the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Act {
    /// A name is made.
    Make {
        parent: Handle,
        name: Name,
        kind: FileKind,
        /// Whose it will be.
        uid: u32,
        /// Whether contents go in as well.
        fills: bool,
    },
    /// An inode gets one more name.
    Link {
        parent: Handle,
        name: Name,
        target: Handle,
    },
    /// A name is taken away; `victim` had it.
    Remove {
        parent: Handle,
        name: Name,
        victim: Option<Handle>,
    },
    /// A name is moved; `moved` had the old one, `replaced` the new one.
    Rename {
        parent: Handle,
        name: Name,
        to_parent: Handle,
        to_name: Name,
        exchange: bool,
        moved: Option<Handle>,
        replaced: Option<Handle>,
    },
    /// Bytes are put at the end of a file of this size.
    Append { file: Handle, size: u64, bytes: u64 },
}

impl Intent {
    /// An intent of this moment.
    pub(crate) fn new(act: Act) -> Self {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        let since = Timestamp {
            seconds: now.tv_sec,
            nanos: u32::try_from(now.tv_nsec).expect("below a second"),
        };
        Self { since, act }
    }

    pub(super) fn unix_seconds(&self) -> u64 {
        u64::try_from(self.since.seconds).unwrap_or(0)
    }
}

/// What a step that ran has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    /// The inode that it made, linked or moved.
    pub(crate) handle: Option<Handle>,
    /// Where an append landed, and how many bytes of it.
    pub(crate) written: Option<(u64, u64)>,
    /// The file was made, its contents may not be in; this was its time of change when that was
    /// found out.
    pub(crate) unfilled: Option<Timestamp>,
}

impl Done {
    /// It made, linked or moved this.
    pub(crate) fn inode(handle: Handle) -> Self {
        Self {
            handle: Some(handle),
            ..Self::default()
        }
    }
}

/// How far a step has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    /// It may have run or not.
    Begun,
    /// It ran.
    Done(Done),
    /// It ran and failed.
    Failed(FsError),
    /// It did not run.
    NotDone,
    /// Nobody can tell.
    Unknown,
}

/// One entry of the log. New variants go to the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Record {
    /// A step is about to run.
    Intent { key: Key, intent: Intent },
    /// It has run, or its fate is known.
    End { key: Key, state: State },
    /// The client has the answers to all requests of the session below this one.
    Settled {
        session: SessionId,
        below: RequestId,
    },
    /// The same, except these, in order.
    SettledBut {
        session: SessionId,
        below: RequestId,
        except: Vec<RequestId>,
    },
}
