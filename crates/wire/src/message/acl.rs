//! Rich ACLs: whether a volume has them, what was done with them, what decides.

use base::limits::{ACL_AUDIT_LINES_PER_REPLY_MAX, ACL_TEXT_BYTES_MAX};
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
    /// In a sticky directory only owners remove names.
    Sticky,
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
