//! Who asks: the kernel tells uid and gid, the rest is looked up.

use super::{Call, RemoteFs, is_through_open};
use crate::kernel::{Operation, Process, SetAttr};
use base::Principal;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether it has been said that somebody's groups cannot be seen.
static TOLD: AtomicBool = AtomicBool::new(false);

/// A caller whose groups cannot be known.
pub(super) struct Unknown;

impl Call {
    /// The caller's identity. For root the groups are left out: they never decide anything for it.
    /// Must be asked while the caller waits, before anything is handed to a task.
    pub(super) fn who(&self) -> Principal {
        if let Some(who) = &self.who {
            return who.clone();
        }
        if self.uid == 0 || self.pid == 0 {
            return Principal::alone(self.uid, self.gid);
        }
        match Process::of(self.pid) {
            Ok(process) => Principal::new(self.uid, self.gid, process.groups),
            // Not visible from here (another PID namespace). The kernel, which knows its groups,
            // has judged it.
            Err(_) => Principal::alone(self.uid, self.gid),
        }
    }
}

fn sets_size_alone(change: &SetAttr) -> bool {
    let SetAttr {
        mode,
        uid,
        gid,
        atime,
        mtime,
        ..
    } = change;
    (mode, uid, gid, atime, mtime) == (&None, &None, &None, &None, &None)
}

impl RemoteFs {
    /// Who makes a call on a volume where nobody has judged it yet; `None` where that is known
    /// otherwise: root, whoever goes through an open file, and the only user of a credential, whose
    /// groups the server knows. A group can be denied what others have, so a caller whose groups
    /// are not known may nothing.
    pub(super) fn known(
        &self,
        operation: &Operation,
        (uid, gid, pid): (u32, u32, u32),
    ) -> Result<Option<Principal>, Unknown> {
        let is_judged = match operation {
            // What is open was judged about its contents alone.
            Operation::SetAttr(change) => !(change.fh.is_some() && sets_size_alone(change)),
            operation => !is_through_open(operation),
        };
        let judges = self.volume.is_rich() && is_judged;
        if !judges || uid == 0 || self.volume.transport().sole_user().is_some() {
            return Ok(None);
        }
        let Some(groups) = Process::groups_of_call(pid, uid, gid) else {
            if !TOLD.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    uid,
                    pid,
                    "the groups of a caller cannot be known, and it is refused; mount in the PID \
                     namespace of the callers, with a /proc of that namespace"
                );
            }
            return Err(Unknown);
        };
        Ok(Some(Principal::new(uid, gid, groups)))
    }
}
