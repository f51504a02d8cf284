//! Who asks.

use serde::{Deserialize, Serialize};

/// The identity for which a server judges one request: the caller's file system uid and gid and
/// its supplementary groups, as on a local file system (path_resolution(7), credentials(7)).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Principal {
    /// User.
    pub uid: u32,
    /// Primary group; new files get it unless the directory says otherwise.
    pub gid: u32,
    /// Supplementary groups, sorted and unique.
    pub groups: Box<[u32]>,
}

impl Principal {
    /// A caller without supplementary groups.
    #[must_use]
    pub fn alone(uid: u32, gid: u32) -> Self {
        Self {
            uid,
            gid,
            groups: Box::default(),
        }
    }

    /// User 0, group 0, no other groups.
    #[must_use]
    pub fn root() -> Self {
        Self::alone(0, 0)
    }

    /// A caller with supplementary groups in any order.
    #[must_use]
    pub fn new(uid: u32, gid: u32, mut groups: Vec<u32>) -> Self {
        groups.sort_unstable();
        groups.dedup();
        Self {
            uid,
            gid,
            groups: groups.into(),
        }
    }

    /// Whether the caller is in `gid`.
    #[must_use]
    pub fn is_member(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.binary_search(&gid).is_ok()
    }
}
