//! Files whose truth is a rich ACL.
//!
//! # Origin
//!
//! As on exports, a file has one truth. Until somebody sets a rich ACL that is its mode and POSIX
//! ACL, judged by the kernel's rule, and the rich ACL that is shown is a view of them. The first
//! edit makes the rich ACL the truth; what operations take by it, and every decision, is asked of
//! the crate `acl`, which exports ask as well.
//!
//! Mode and POSIX ACL of such a file say the most that they can without allowing anybody more: for
//! kernels of mounts from before rich ACLs were turned on, and while they are off. What they were
//! before is kept with the list, so that going back is exact.
//!
//! # Where it lies
//!
//! With the inode, in the same record: reading it costs nothing beyond the inode, which every
//! judgement reads anyway. A list of more than [`NAMESPACE_RICH_INLINE_BYTES_MAX`] lies in a record
//! of its own, because inodes are read by listings and written with each change of a file; it is
//! read when somebody is to be judged by it, or looks at it. Files without a rich ACL are stored as
//! if there were none. The bytes: `docs/formats/namespace.md`.
//!
//! Views of POSIX ACLs are never stored: these lie in the inode, too, so that no stored view could
//! save a reading. That is what the policy of exports comes to where nothing has to be measured.
//!
//! # At once
//!
//! A list, what mode and POSIX ACL say of it, and what is written down about the edit change in one
//! transaction, and nobody changes anything behind the manager's back. So there is no order of
//! writing, nothing unsettled, and nothing to be found out. Only a mode that was changed while rich
//! ACLs were off is found by the one that is stored with the list, and lies over it from then on.
//!
//! # Failing closed
//!
//! A list that cannot be read allows nothing; its owner and root can set another one or go back.
//!
//! | file | owns |
//! |---|---|
//! | `record` | the list as it is stored, and in memory |
//! | `judge` | who may do what |
//! | `edit` | the list as clients see it; setting it; going back |
//! | `change` | new files, chmod and chown |
//! | `edits` | what is written down |
//! | `scan` | all files that have one |
//!
//! [`NAMESPACE_RICH_INLINE_BYTES_MAX`]: base::limits::NAMESPACE_RICH_INLINE_BYTES_MAX

mod change;
mod edit;
mod edits;
mod judge;
mod record;
mod scan;

pub use edit::Words;
pub use edits::EditCounts;
pub use scan::{RichScan, Scanned};

pub(super) use change::Heir;
pub(super) use judge::RichFile;
pub(super) use record::{Known, Rich, RichRecord, StoredList, StoredRich};

use super::tree::Namespace;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The attribute as which clients see a rich ACL.
pub(super) const NFS4: &[u8] = b"system.nfs4_acl";

/// Whether rich ACLs are on, and what was done with them.
#[derive(Default)]
pub(super) struct RichRules {
    is_on: AtomicBool,
    views: AtomicU64,
    judged: AtomicU64,
    refused: AtomicU64,
}

impl RichRules {
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    fn count_view(&self) {
        self.views.fetch_add(1, Ordering::Relaxed);
    }

    fn count_judged(&self, is_allowed: bool) {
        self.judged.fetch_add(1, Ordering::Relaxed);
        self.refused
            .fetch_add(u64::from(!is_allowed), Ordering::Relaxed);
    }
}

/// What was done with rich ACLs since the namespace was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RichFigures {
    /// Rich ACLs that were made from POSIX ACLs to be shown.
    pub views: u64,
    /// Decisions by rich ACLs.
    pub judged: u64,
    /// Of these, refusals.
    pub refused: u64,
    /// Lists that lie by themselves and are in memory.
    pub kept: u64,
}

impl Namespace {
    /// Turns rich ACLs on or off. Files whose truth is one are judged by the mode and POSIX ACL
    /// that lie beside it while they are off.
    pub fn set_rich(&self, is_on: bool) {
        self.core.rules.rich.is_on.store(is_on, Ordering::Release);
    }

    /// Whether rich ACLs are on.
    #[must_use]
    pub fn is_rich(&self) -> bool {
        self.core.rules.rich.is_on()
    }

    /// What was done with rich ACLs since the namespace was opened.
    #[must_use]
    pub fn rich_figures(&self) -> RichFigures {
        let RichRules {
            views,
            judged,
            refused,
            ..
        } = &self.core.rules.rich;
        let [views, judged, refused] =
            [views, judged, refused].map(|figure| figure.load(Ordering::Relaxed));
        RichFigures {
            views,
            judged,
            refused,
            kept: self.core.lock().cache.lists_apart() as u64,
        }
    }
}
