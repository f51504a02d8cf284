//! Rich ACLs: whether a volume has them, what was done with them, what decides.

use base::limits::{
    ACL_AUDIT_LINES_PER_REPLY_MAX, ACL_COST_POINTS_MAX, ACL_POLICY_BYTES_MAX, ACL_TEXT_BYTES_MAX,
};
use serde::{Deserialize, Serialize};

/// What a decision was taken by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AclGrounds {
    /// User 0 is not judged.
    Superuser,
    /// The owner's bits of the mode.
    OwnerBits,
    /// The group's bits of the mode.
    GroupBits,
    /// The bits of others in the mode.
    OthersBits,
    /// An entry of the POSIX ACL.
    PosixEntry,
    /// The caller is in groups with entries, none of which allows it all.
    Groups,
    /// An entry of the rich ACL.
    RichEntry,
    /// Owners may do that, or nobody else.
    Owner,
    /// What chmod, or the mode at creation, has put over the list.
    Mode,
    /// No entry speaks of it.
    Nothing,
    /// The stored list cannot be read.
    Unreadable,
    /// In a sticky directory only owners remove names, or set attributes of it.
    Sticky,
    /// Its mode has no execute bit at all, and no kernel runs such a file for anybody.
    NoExecuteBit,
    /// Nobody is asked for a right to that who gets as far as the name.
    Everybody,
}

/// A decision, and what it was taken by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Whether all that was asked for is allowed.
    pub is_allowed: bool,
    /// Whether a rich ACL is the truth about that which decided.
    pub is_rich: bool,
    /// The rights that decided, as in NFSv4.
    pub rights: u32,
    /// What decided.
    pub grounds: AclGrounds,
    /// The entry that decided: its place from 0 on, and its text.
    pub entry: Option<AclEntryText>,
    /// Whether it was one of the directory that has the name.
    pub is_directorys: bool,
}

/// An entry of an ACL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclEntryText {
    /// Its place, from 0 on.
    pub place: u32,
    /// As nfs4_getfacl(1) or getfacl(1) write it, with numbers.
    #[serde(deserialize_with = "crate::bounded::text::<ACL_TEXT_BYTES_MAX, _>")]
    pub text: String,
}

/// How it is with the rich ACLs of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclSummary {
    /// Whether they are on.
    pub is_on: bool,
    /// Rich ACLs that were made from POSIX ACLs to be shown, since the server was started.
    pub views: u64,
    /// Decisions by rich ACLs since then.
    pub judged: u64,
    /// Of these, refusals.
    pub refused: u64,
    /// Files of which it is in memory whether they have a rich ACL.
    pub kept: u64,
    /// Edits of rich ACLs that were ever written down.
    pub edits: u64,
    /// Of these, those that made a rich ACL the truth.
    pub became_rich: u64,
    /// Of these, those that went back to the POSIX ACL.
    pub went_back: u64,
    /// The last of them, the newest at the end.
    #[serde(deserialize_with = "crate::bounded::list::<ACL_AUDIT_LINES_PER_REPLY_MAX, _, _>")]
    pub last: Vec<AclLine>,
}

/// A line of what was written down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclLine(
    #[serde(deserialize_with = "crate::bounded::text::<ACL_TEXT_BYTES_MAX, _>")] pub String,
);

/// What is asked of the views of POSIX ACLs that may lie beside a volume's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AclViewsAsk {
    /// How it is with them.
    Show,
    /// When they are to be stored from now on.
    Store {
        /// `never`, `always`, `measured`, `entries>=N` or `N..M`.
        #[serde(deserialize_with = "crate::bounded::text::<ACL_POLICY_BYTES_MAX, _>")]
        policy: String,
        /// Only check.
        dry_run: bool,
    },
    /// Measure what they cost; answered when that is done.
    Calibrate,
    /// Begin with work on all files; if there is such work, nothing begins and that is shown.
    Work {
        /// What to do.
        work: AclViewWork,
        /// Only count.
        dry_run: bool,
    },
    /// End the work on all files.
    Stop,
}

/// Work on the views of all files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AclViewWork {
    /// Store those that the policy would ever store.
    Convert,
    /// Store all.
    ConvertAll,
    /// Remove all, and rich ACLs that say what mode and POSIX ACL say.
    Compact,
}

/// How it is with the views of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclViews {
    /// When they are stored, as text.
    #[serde(deserialize_with = "crate::bounded::text::<ACL_POLICY_BYTES_MAX, _>")]
    pub policy: String,
    /// Made since the server was started.
    pub made: u64,
    /// Shown as they were stored, since then.
    pub used: u64,
    /// Stored since then.
    pub stored: u64,
    /// Waiting to be stored.
    pub waiting: u64,
    /// Why others were not stored, since then.
    pub unstored: AclUnstored,
    /// What was measured, if it was.
    pub costs: Option<AclCosts>,
    /// Work on all files: under way, or the last one.
    pub work: Option<AclWork>,
}

/// How often a view was not stored, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclUnstored {
    /// The policy says so.
    pub policy: u64,
    /// Too many waited.
    pub busy: u64,
    /// The file system cannot be written.
    pub read_only: u64,
    /// It is full, or a quota is.
    pub full: u64,
    /// It keeps no attribute of that size.
    pub too_large: u64,
    /// The file is immutable.
    pub protected: u64,
    /// Another reason.
    pub failed: u64,
}

/// What views cost on a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclCosts {
    /// When it was measured, in seconds since 1970.
    pub measured: i64,
    /// The kind of file system.
    #[serde(deserialize_with = "crate::bounded::text::<ACL_POLICY_BYTES_MAX, _>")]
    pub file_system: String,
    /// A read of 4 KiB that is not in the machine's memory, in nanoseconds.
    pub read_nanos: u64,
    /// By number of entries.
    #[serde(deserialize_with = "crate::bounded::list::<ACL_COST_POINTS_MAX, _, _>")]
    pub points: Vec<AclCost>,
}

/// What a view of so many entries costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclCost {
    /// Entries of the POSIX ACL.
    pub entries: u32,
    /// An access to a stored view, in nanoseconds.
    pub stored_nanos: u64,
    /// One that converts.
    pub converted_nanos: u64,
    /// One that converts and stores.
    pub storing_nanos: u64,
    /// Reads beyond the inode of the first.
    pub stored_reads: u32,
    /// Of the second.
    pub converted_reads: u32,
}

/// How far work on all files is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AclWork {
    /// What is done.
    pub work: AclViewWork,
    /// Whether it is only counted.
    pub dry_run: bool,
    /// How it stands.
    pub state: AclWorkState,
    /// Files looked at.
    pub files: u64,
    /// Those of which something was stored or removed, or would be.
    pub changed: u64,
    /// Files with which it could not be done.
    pub failed: u64,
    /// Files of the whole file system, as many as there may be at most.
    pub files_max: u64,
}

/// How work on all files stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AclWorkState {
    /// It goes on.
    Running,
    /// It is done.
    Done,
    /// Somebody has ended it.
    Stopped,
    /// The file system cannot be written.
    ReadOnly,
    /// It is full.
    Full,
}
